"""Points in geometry columns: where they are, in which reference system, and their coordinates."""

from __future__ import annotations

import decimal
import json
import math
import numbers as numbers_abc
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilmap.arrays import Floats
from veilmap.domain import Domain
from veilmap.errors import BadInput, UnreadableInput
from veilmap.kernels.parsing import read_points

NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
"""How a text spells a number: with a point, and without units."""

USUAL_NAMES = ("geometry", "geom", "wkb_geometry", "the_geom", "wkb")
"""What people call a geometry column, where nothing else says that it is one."""

LON_LAT = "OGC:CRS84"
SAME_SYSTEM = {"EPSG:4326": LON_LAT, "CRS84": LON_LAT}
"""Files of points keep x before y, so that these differ in name only."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """A geometry column as its schema declares it."""

    column: str
    crs: str | None  # AUTHORITY:CODE, None where it is not known
    kinds: tuple[str, ...]  # empty where anything is allowed


def find_geometry(schema: pa.Schema) -> Geometry | None:
    """The geometry column of a table: by GeoParquet's metadata, else GeoArrow's, else by its name."""
    try:
        geo = json.loads((schema.metadata or {})[b"geo"])
        column, about = geo["primary_column"], geo["columns"][geo["primary_column"]]
        if column in schema.names:
            crs = crs_label(about["crs"]) if "crs" in about else LON_LAT
            kinds = about.get("geometry_types") if about["encoding"] in ("WKB", "point") else [about["encoding"]]
            return Geometry(column, crs, tuple(map(str, kinds or ())))
    except (LookupError, TypeError, ValueError, RecursionError):
        pass  # no metadata, or none that can be understood
    declared = [(field.name, *_extension(field)) for field in schema]
    for column, extension, about in declared:
        if extension.startswith(("geoarrow.", "ogc.")):
            kinds = {"wkb": (), "point": ("Point",)}.get(extension.partition(".")[2], (extension,))
            return Geometry(column, crs_label(about.get("crs")), kinds)
    for column in USUAL_NAMES:
        if schema.names.count(column) == 1 and _holds_points(schema.field(column).type):
            return Geometry(column, None, ())
    return None


def must_be_points(geometry: Geometry, schema: pa.Schema, domain: Domain, where: str) -> None:
    """Refuse a column that declares something else than points, or another reference system."""
    if geometry.kinds and not any(kind.removeprefix("2.5D ").split()[:1] == ["Point"] for kind in geometry.kinds):
        raise UnreadableInput(
            f"{where} must hold points, but its geometry column {geometry.column!r} is declared "
            f"{' or '.join(geometry.kinds)}: make one point of each row first, such as its centroid."
        )
    if not _holds_points(kind := schema.field(geometry.column).type):
        raise UnreadableInput(
            f"The geometry column {geometry.column!r} of {_inside(where)} must be WKB or GeoArrow points, "
            f"got {kind}: convert it, or add the columns {' and '.join(domain.names[:2])}."
        )
    must_have_crs(geometry, domain, where)


def must_have_crs(geometry: Geometry, domain: Domain, where: str) -> None:
    """Refuse a reference system that is known to be another than the domain's."""
    wanted = crs_label(domain.crs)
    if wanted and geometry.crs and wanted != geometry.crs:
        raise BadInput(
            f"The points of {_inside(where)} are in {geometry.crs} and the domain is in {domain.crs}: "
            f"reproject the points to {domain.crs}, or give the domain in {geometry.crs}."
        )


def crs_label(crs: object) -> str | None:
    """AUTHORITY:CODE from a PROJJSON or a string, None if it does not say."""
    if isinstance(crs, str) and crs.lstrip().startswith("{"):
        crs = _json(crs)
    if isinstance(crs, Mapping):
        about = crs.get("id")
        crs = f"{about.get('authority')}:{about.get('code')}" if isinstance(about, Mapping) else None
    if not isinstance(crs, str):
        return None
    found = re.fullmatch(r"(?:urn:ogc:def:crs:)?(\w+):(?:[\d.]*:)?(\w+)|(CRS84)", crs.strip(), re.IGNORECASE)
    if not found:
        return None
    label = (found[3] or f"{found[1]}:{found[2]}").upper()
    return SAME_SYSTEM.get(label, label)


def coordinates(column: pa.Array | pa.ChunkedArray) -> tuple[Floats, Floats]:
    """x and y of WKB or GeoArrow points; NaN for whatever is null, empty or not a point."""
    kind = _storage(column.type)
    if kind != column.type:
        column = column.cast(kind)
    if pa.types.is_struct(kind):
        return numbers(pc.struct_field(column, "x")), numbers(pc.struct_field(column, "y"))
    if pa.types.is_fixed_size_list(kind):
        return numbers(pc.list_element(column, 0)), numbers(pc.list_element(column, 1))
    column = column.cast(pa.large_binary())
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    x, y = np.full(len(array), np.nan), np.full(len(array), np.nan)
    _, offsets, data = array.buffers()
    if data is not None:
        bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        read_points(np.frombuffer(data, np.uint8), bounds, x, y)
    if array.null_count:
        x[array.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return x, y


def numbers(column: pa.Array | pa.ChunkedArray) -> Floats:
    """A column as 64-bit floats, NaN where it is null. What a cell becomes does not depend on other cells."""
    if pa.types.is_decimal(column.type):  # Arrow's own cast rounds by the column's scale, which any one row may set
        column = column.cast(pa.string())
    values: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values


def number_of(value: object) -> float:
    """A number, or the number that a text spells; NaN for anything else."""
    if isinstance(value, str):
        value = value.strip()
        return float(value) if re.match(NUMBER, value) else math.nan
    if isinstance(value, bool) or not isinstance(value, numbers_abc.Real | decimal.Decimal):
        return math.nan
    try:
        return float(value)
    except (OverflowError, ValueError):  # too large, or a signalling NaN
        return math.nan


def _holds_points(kind: pa.DataType) -> bool:
    kind, is_a = _storage(kind), pa.types
    if is_a.is_struct(kind):
        return {"x", "y"} <= {kind.field(i).name for i in range(kind.num_fields)}
    if is_a.is_fixed_size_list(kind):
        return bool(is_a.is_floating(kind.value_type) and kind.list_size >= 2)
    return bool(is_a.is_binary(kind) or is_a.is_large_binary(kind) or is_a.is_binary_view(kind))


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _extension(field: pa.Field) -> tuple[str, Mapping[str, Any]]:
    """The name and the metadata of a field's extension type, whether or not pyarrow knows that type."""
    if isinstance(field.type, pa.ExtensionType):
        return field.type.extension_name, _json(field.type.__arrow_ext_serialize__())
    said = field.metadata or {}
    return said.get(b"ARROW:extension:name", b"").decode(), _json(said.get(b"ARROW:extension:metadata", b""))


def _json(text: str | bytes) -> Mapping[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _inside(where: str) -> str:
    return where[0].lower() + where[1:]

"""Geometry columns of points: their place in a table, their reference system and their coordinates."""

from __future__ import annotations

import decimal
import json
import math
import numbers
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

DECIMAL_NUMBER_PATTERN = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
"""A number in text: with a decimal point, and without units."""

USUAL_GEOMETRY_NAMES = ("geometry", "geom", "wkb_geometry", "the_geom", "wkb")
"""Names by which a geometry column is recognised if no metadata declares one."""

LON_LAT = "OGC:CRS84"
CRS_ALIASES = {"EPSG:4326": LON_LAT, "CRS84": LON_LAT}
"""These differ in name only, since files of points store x before y."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """A geometry column as its schema declares it."""

    column: str
    crs: str | None  # AUTHORITY:CODE, None if it is not known
    kinds: tuple[str, ...]  # empty if any kind is allowed


def find_geometry(schema: pa.Schema) -> Geometry | None:
    """Return the geometry column of a table: by GeoParquet metadata, else by GeoArrow metadata, else by its name."""
    try:
        geo = json.loads((schema.metadata or {})[b"geo"])
        column, declared = geo["primary_column"], geo["columns"][geo["primary_column"]]
        if column in schema.names:
            crs = crs_label(declared["crs"]) if "crs" in declared else LON_LAT
            encoding = declared["encoding"]
            kinds = declared.get("geometry_types") if encoding in ("WKB", "point") else [encoding]
            return Geometry(column, crs, tuple(map(str, kinds or ())))
    except (LookupError, TypeError, ValueError, RecursionError):
        pass  # no metadata, or none that can be understood
    extensions = [(field.name, *_extension_type(field)) for field in schema]
    for column, extension, metadata in extensions:
        if extension.startswith(("geoarrow.", "ogc.")):
            kinds = {"wkb": (), "point": ("Point",)}.get(extension.partition(".")[2], (extension,))
            return Geometry(column, crs_label(metadata.get("crs")), kinds)
    for column in USUAL_GEOMETRY_NAMES:
        if schema.names.count(column) == 1 and _holds_points(schema.field(column).type):
            return Geometry(column, None, ())
    return None


def must_be_points(geometry: Geometry, schema: pa.Schema, domain: Domain, input_name: str) -> None:
    """Raise an error if a column declares another kind of geometry than points, or another reference system."""
    if geometry.kinds and not any(kind.removeprefix("2.5D ").split()[:1] == ["Point"] for kind in geometry.kinds):
        raise UnreadableInput(
            f"{input_name} must hold points, but its geometry column {geometry.column!r} is declared as "
            f"{' or '.join(geometry.kinds)}. Convert each geometry to a point first, for example to its centroid."
        )
    if not _holds_points(kind := schema.field(geometry.column).type):
        raise UnreadableInput(
            f"The geometry column {geometry.column!r} of {_inside_sentence(input_name)} must be WKB or GeoArrow "
            f"points, got {kind}. Convert it, or add the columns {' and '.join(domain.names[:2])}."
        )
    must_have_crs(geometry, domain, input_name)


def must_have_crs(geometry: Geometry, domain: Domain, input_name: str) -> None:
    """Raise an error if the reference system is known and differs from the domain's."""
    wanted = crs_label(domain.crs)
    if wanted and geometry.crs and wanted != geometry.crs:
        raise BadInput(
            f"The points of {_inside_sentence(input_name)} are in {geometry.crs} but the domain is in {domain.crs}. "
            f"Reproject the points to {domain.crs}, or give the domain in {geometry.crs}."
        )


def crs_label(crs: object) -> str | None:
    """Return AUTHORITY:CODE from a PROJJSON object or a string, None if it has no such label."""
    if isinstance(crs, str) and crs.lstrip().startswith("{"):
        crs = _json_object(crs)
    if isinstance(crs, Mapping):
        authority_code = crs.get("id")
        crs = None
        if isinstance(authority_code, Mapping):
            crs = f"{authority_code.get('authority')}:{authority_code.get('code')}"
    if not isinstance(crs, str):
        return None
    match = re.fullmatch(r"(?:urn:ogc:def:crs:)?(\w+):(?:[\d.]*:)?(\w+)|(CRS84)", crs.strip(), re.IGNORECASE)
    if not match:
        return None
    label = (match[3] or f"{match[1]}:{match[2]}").upper()
    return CRS_ALIASES.get(label, label)


def coordinates(column: pa.Array | pa.ChunkedArray) -> tuple[Floats, Floats]:
    """Return x and y of WKB or GeoArrow points, NaN for a geometry that is null, empty or not a point."""
    kind = _storage_type(column.type)
    if kind != column.type:
        column = column.cast(kind)
    if pa.types.is_struct(kind):
        return column_to_floats(pc.struct_field(column, "x")), column_to_floats(pc.struct_field(column, "y"))
    if pa.types.is_fixed_size_list(kind):
        return column_to_floats(pc.list_element(column, 0)), column_to_floats(pc.list_element(column, 1))
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


def column_to_floats(column: pa.Array | pa.ChunkedArray) -> Floats:
    """Return a column as 64-bit floats, NaN for null. The result for a cell depends on that cell only."""
    if pa.types.is_decimal(column.type):  # Arrow's own cast rounds by the column's scale, which a single row may set
        column = column.cast(pa.string())
    values: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values


def number_of(value: object) -> float:
    """Return a number, or the number that a text spells, as a float; NaN for any other value."""
    if isinstance(value, str):
        value = value.strip()
        return float(value) if re.match(DECIMAL_NUMBER_PATTERN, value) else math.nan
    if isinstance(value, bool) or not isinstance(value, numbers.Real | decimal.Decimal):
        return math.nan
    try:
        return float(value)
    except (OverflowError, ValueError):  # too large, or a signalling NaN
        return math.nan


def _holds_points(kind: pa.DataType) -> bool:
    kind, is_a = _storage_type(kind), pa.types
    if is_a.is_struct(kind):
        return {"x", "y"} <= {kind.field(i).name for i in range(kind.num_fields)}
    if is_a.is_fixed_size_list(kind):
        return bool(is_a.is_floating(kind.value_type) and kind.list_size >= 2)
    return bool(is_a.is_binary(kind) or is_a.is_large_binary(kind) or is_a.is_binary_view(kind))


def _storage_type(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _extension_type(field: pa.Field) -> tuple[str, Mapping[str, Any]]:
    """Return the name and metadata of a field's extension type, even of a type that is unknown to pyarrow."""
    if isinstance(field.type, pa.ExtensionType):
        return field.type.extension_name, _json_object(field.type.__arrow_ext_serialize__())
    metadata = field.metadata or {}
    name = metadata.get(b"ARROW:extension:name", b"").decode()
    return name, _json_object(metadata.get(b"ARROW:extension:metadata", b""))


def _json_object(text: str | bytes) -> Mapping[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _inside_sentence(input_name: str) -> str:
    return input_name[0].lower() + input_name[1:]

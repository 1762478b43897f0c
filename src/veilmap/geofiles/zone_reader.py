"""Read a file of zones from an untrusted source. Runs in a separate process with limited memory and time."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from veilmap.errors import BadInput, UnreadableInput, need
from veilmap.geofiles import GDAL_DRIVERS, GEOJSON_EXTENSIONS, GEOJSON_LINES_EXTENSIONS
from veilmap.geofiles.gdal_layers import Result, open_gdal

PARQUET_EXTENSIONS = (".parquet", ".geoparquet")
ZONE_EXTENSIONS = (*GDAL_DRIVERS, *GEOJSON_EXTENSIONS, *GEOJSON_LINES_EXTENSIONS, *PARQUET_EXTENSIONS)
MAX_MEMORY_BYTES = 2 << 30  # in addition to what Python and its libraries need
MAX_CPU_SECONDS = 300
LON_LAT = "OGC:CRS84"
AUTHORITY_CODE = re.compile(r"(?:urn:ogc:def:crs:)?(\w+):(?:[\d.]*:)?(\w+)", re.ASCII)

Table = tuple[dict[str, pa.Array], Any, Any]
"""The attributes of zones by name, their shapes, and their reference system as the file declares it."""

NO_SHAPES_MESSAGE = "{!r} has rows without shapes. Give a file with a polygon in each row."


def zones(path: str, layer: str | None, make_valid: bool) -> Result:
    """Read the attributes of zones, their shapes as WKB in the last column, and the code of their reference system."""
    shapely = need("shapely", "geo", "Reading zones")
    attributes, shapes, declared_crs = read_table(path, layer)
    shapes, crs = in_known_crs(shapes, declared_crs)
    if make_valid:
        shapes = shapely.make_valid(shapes, method="structure", keep_collapsed=False)
    columns = [*attributes.values(), pa.array(shapely.to_wkb(shapes), pa.binary())]
    name = next(
        name for name in ("geometry", "veilmap_geometry", *map(str, range(len(columns)))) if name not in attributes
    )
    batch = pa.RecordBatch.from_arrays(columns, [*attributes, name])
    return batch.schema, {"geometry": name, "crs": crs}, iter([batch])


def read_table(path: str, layer: str | None) -> Table:
    """Read attributes, shapes and reference system by the parser for the extension of the file's name."""
    extension = os.path.splitext(path)[1].lower()
    if extension in GDAL_DRIVERS:
        return _from_gdal(path, layer)
    if layer is not None:
        raise BadInput(f"{path!r} is a {extension} file, which has no layers. Leave --layer out.")
    if extension in PARQUET_EXTENSIONS:
        return _from_parquet(path)
    with open(path, "rb") as file:
        return from_geojson(file.read(), by_line=extension in GEOJSON_LINES_EXTENSIONS)


def limit_resources() -> None:
    """Limit the memory and time of this process, and disable core dumps. Windows has no such limits."""
    try:
        import resource
    except ImportError:
        return
    limits = {resource.RLIMIT_CPU: MAX_CPU_SECONDS, resource.RLIMIT_CORE: 0}
    with suppress(FileNotFoundError), open("/proc/self/statm", "rb") as file:  # only Linux reports the current use
        limits[resource.RLIMIT_AS] = int(file.read().split()[0]) * resource.getpagesize() + MAX_MEMORY_BYTES
    for kind, limit in limits.items():
        hard = resource.getrlimit(kind)[1]
        bound = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (bound, bound))


def _from_gdal(path: str, layer: str | None) -> Table:
    shapely, pyogrio = need("shapely", "geo", "Reading zones"), open_gdal(path)
    layers = [str(name) for name in pyogrio.list_layers(path)[:, 0]]
    if not layers or (layer or layers[0]) not in layers or (layer is None and len(layers) > 1):
        problem = "has several layers" if layer is None else f"has no layer {layer!r}"
        raise BadInput(f"{path!r} {problem}. Its layers are {', '.join(layers)}. Choose one with --layer.")
    metadata, table = pyogrio.read_arrow(path, layer=layer or layers[0])
    name = metadata["geometry_name"] or "wkb_geometry"
    if name not in table.column_names:
        raise UnreadableInput(NO_SHAPES_MESSAGE.format(path))
    columns = {column: table[column].combine_chunks() for column in table.column_names if column != name}
    return columns, shapely.from_wkb(table[name].to_numpy(zero_copy_only=False)), metadata["crs"]


def _from_parquet(path: str) -> Table:
    geopandas = need("geopandas", "geo", "Reading zones")
    frame = geopandas.read_parquet(path)
    shapes = [name for name, kind in frame.dtypes.items() if str(kind) == "geometry"]  # only the active one is read
    table = pa.Table.from_pandas(frame.drop(columns=shapes), preserve_index=False)
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    return columns, frame.geometry.to_numpy(), None if frame.crs is None else frame.crs.to_json_dict()


def from_geojson(text: bytes, by_line: bool) -> Table:
    """Read a FeatureCollection, one Feature, one geometry, or one of these per line."""
    from shapely.geometry import shape

    lines = [line for line in text.split(b"\n") if line.strip()] if by_line else [text]
    documents = [json.loads(line.decode("utf-8-sig").removeprefix("\x1e")) for line in lines]
    features = [feature for document in documents for feature in _features(document)]
    names = dict.fromkeys(name for feature in features for name in _mapping(feature.get("properties")))
    columns = {name: _column([_mapping(f.get("properties")).get(name) for f in features]) for name in names}
    if "id" not in columns and any(f.get("id") is not None for f in features):
        columns = {"id": _column([f.get("id") for f in features]), **columns}
    shapes = np.empty(len(features), object)
    shapes[:] = [None if (place := f.get("geometry")) is None else shape(place) for f in features]
    declared = _mapping(documents[0]).get("crs") if len(documents) == 1 else None
    return columns, shapes, LON_LAT if declared is None else _declared_crs(_mapping(declared))


def _declared_crs(declared: Mapping[str, Any]) -> str:
    properties = _mapping(declared.get("properties"))
    if isinstance(name := properties.get("name"), str):
        return name
    if type(code := properties.get("code")) is int:
        return f"EPSG:{code}"
    raise UnreadableInput(
        "The zones declare their reference system by a link, which is not followed. Save them again with its code."
    )


def _features(document: Any) -> list[dict[str, Any]]:
    kind = document["type"]
    if kind == "FeatureCollection":
        return [dict(feature) for feature in document["features"]]
    return [document if kind == "Feature" else {"geometry": document}]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _column(values: list[Any]) -> pa.Array:
    """Return the attributes of one name: in their type if all have the same simple type, else as text."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds in ({int, float}, {int}, {float}, {bool}, {str}, set()):
        with suppress(pa.ArrowInvalid, OverflowError):
            return pa.array(values)
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return pa.array(texts, pa.string())


def in_known_crs(shapes: Any, crs: Any) -> tuple[Any, str | None]:
    """Return shapes in a reference system that has a code, and that code, such as EPSG:3857.

    A system that a file defines in full may name files for PROJ to open. So it is used only here, in a process that
    cannot open them, to transform the shapes to longitude and latitude.
    """
    from pyproj import CRS, Transformer

    if crs is None:
        return shapes, None
    if isinstance(crs, dict):
        system: Any = CRS.from_json_dict(crs)
    elif match := AUTHORITY_CODE.fullmatch(crs.strip()):
        system = CRS.from_authority(*match.groups())
    else:
        system = CRS.from_wkt(crs)
    while system.is_bound or system.is_compound:  # without grid shifts and heights
        system = system.source_crs if system.is_bound else system.sub_crs_list[0]
    code = system.to_authority(min_confidence=100)
    if code is not None and CRS.from_authority(*code).equals(system, ignore_axis_order=True):
        return shapes, ":".join(code)
    definition: dict[str, Any] = _without_file_names(system.to_json_dict())
    shapely = need("shapely", "geo", "Reading zones")
    transformer = Transformer.from_crs(CRS.from_json_dict(definition), LON_LAT, always_xy=True)
    moved = shapely.transform(shapes, lambda xy: np.stack(transformer.transform(xy[:, 0], xy[:, 1]), axis=1))
    return moved, LON_LAT


def _without_file_names(record: Any) -> Any:
    """Return the definition of a reference system without the texts in which PROJ looks for names of files."""
    if isinstance(record, list):
        return [_without_file_names(part) for part in record]
    if not isinstance(record, dict):
        return record
    method = str(_mapping(record.get("method")).get("name", ""))
    texts = [one for one in record.get("parameters", ()) if isinstance(_mapping(one).get("value"), str)]
    if method.upper().startswith("PROJ") or texts:
        raise UnreadableInput("The reference system of the zones needs a file. Save them in another reference system.")
    left_out = ("remarks", "scope", "usages")
    return {name: _without_file_names(part) for name, part in record.items() if name not in left_out}

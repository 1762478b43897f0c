"""Read a file of zones that anyone may have sent. Runs in a process of its own, with limits of memory and time."""

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
from veilmap.geofiles import DOCUMENTS, DRIVERS, LINES
from veilmap.geofiles.gdal_layers import Result, open_gdal

PARQUET = (".parquet", ".geoparquet")
ENDINGS = (*DRIVERS, *DOCUMENTS, *LINES, *PARQUET)
MOST_MEMORY = 2 << 30  # bytes, beyond what Python and its libraries take
MOST_SECONDS = 300  # of the processor
LON_LAT = "OGC:CRS84"
AUTHORITY = re.compile(r"(?:urn:ogc:def:crs:)?(\w+):(?:[\d.]*:)?(\w+)", re.ASCII)

Table = tuple[dict[str, pa.Array], Any, Any]
"""The attributes of zones by name, their shapes, and their reference system as the file has it."""


def zones(path: str, layer: str | None, make_valid: bool) -> Result:
    """Read zones: their attributes, their shapes as WKB in the last column, and the number of a reference system."""
    shapely = need("shapely", "geo", "Reading zones")
    attributes, shapes, found = read_table(path, layer)
    shapes, crs = in_known_crs(shapes, found)
    if make_valid:
        shapes = shapely.make_valid(shapes, method="structure", keep_collapsed=False)
    columns = [*attributes.values(), pa.array(shapely.to_wkb(shapes), pa.binary())]
    name = next(
        name for name in ("geometry", "veilmap_geometry", *map(str, range(len(columns)))) if name not in attributes
    )
    batch = pa.RecordBatch.from_arrays(columns, [*attributes, name])
    return batch.schema, {"geometry": name, "crs": crs}, iter([batch])


def read_table(path: str, layer: str | None) -> Table:
    """Read attributes, shapes and reference system by the parser that the file's name asks for."""
    ending = os.path.splitext(path)[1].lower()
    if ending in DRIVERS:
        return _from_gdal(path, layer)
    if layer is not None:
        raise BadInput(f"Files named {ending} have no layers, and {path!r} is one: leave --layer out.")
    if ending in PARQUET:
        return _from_parquet(path)
    with open(path, "rb") as file:
        return from_geojson(file.read(), by_line=ending in LINES)


def limit_resources() -> None:
    """Bound what this process may take, and leave no image of its memory behind; Windows has no such limits."""
    try:
        import resource
    except ImportError:
        return
    limits = {resource.RLIMIT_CPU: MOST_SECONDS, resource.RLIMIT_CORE: 0}
    with suppress(FileNotFoundError), open("/proc/self/statm", "rb") as file:  # only Linux says what is taken now
        limits[resource.RLIMIT_AS] = int(file.read().split()[0]) * resource.getpagesize() + MOST_MEMORY
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))


def _from_gdal(path: str, layer: str | None) -> Table:
    shapely, pyogrio = need("shapely", "geo", "Reading zones"), open_gdal(path)
    layers = [str(name) for name in pyogrio.list_layers(path)[:, 0]]
    if not layers or (layer or layers[0]) not in layers or (layer is None and len(layers) > 1):
        said = "has several layers" if layer is None else f"has no layer {layer!r}"
        raise BadInput(f"{path!r} {said}, but {', '.join(layers)}: choose one with --layer.")
    about, table = pyogrio.read_arrow(path, layer=layer or layers[0])
    name = about["geometry_name"] or "wkb_geometry"
    if name not in table.column_names:
        raise UnreadableInput(NO_SHAPES.format(path))
    columns = {column: table[column].combine_chunks() for column in table.column_names if column != name}
    return columns, shapely.from_wkb(table[name].to_numpy(zero_copy_only=False)), about["crs"]


def _from_parquet(path: str) -> Table:
    geopandas = need("geopandas", "geo", "Reading zones")
    frame = geopandas.read_parquet(path)
    shapes = [name for name, kind in frame.dtypes.items() if str(kind) == "geometry"]  # the others are left out
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
    about = _mapping(declared.get("properties"))
    if isinstance(name := about.get("name"), str):
        return name
    if type(code := about.get("code")) is int:
        return f"EPSG:{code}"
    raise UnreadableInput("The zones name their reference system by a link, which is not followed: save them anew.")


def _features(document: Any) -> list[dict[str, Any]]:
    kind = document["type"]
    if kind == "FeatureCollection":
        return [dict(feature) for feature in document["features"]]
    return [document if kind == "Feature" else {"geometry": document}]


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _column(values: list[Any]) -> pa.Array:
    """Attributes of one name: of one simple type if they are, else as text."""
    simple = {type(value) for value in values} - {type(None)}
    if simple in ({int, float}, {int}, {float}, {bool}, {str}, set()):
        with suppress(pa.ArrowInvalid, OverflowError):
            return pa.array(values)
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return pa.array(texts, pa.string())


def in_known_crs(shapes: Any, crs: Any) -> tuple[Any, str | None]:
    """Return shapes in a reference system that has a number, and that number, like EPSG:3857.

    A system that a file spells out may name files for PROJ to open. So it is used here and nowhere else, in a process
    that can open none, to bring the shapes to longitude and latitude.
    """
    from pyproj import CRS, Transformer

    if crs is None:
        return shapes, None
    if isinstance(crs, dict):
        found: Any = CRS.from_json_dict(crs)
    elif authority := AUTHORITY.fullmatch(crs.strip()):
        found = CRS.from_authority(*authority.groups())
    else:
        found = CRS.from_wkt(crs)
    while found.is_bound or found.is_compound:  # shifts by grids, and heights
        found = found.source_crs if found.is_bound else found.sub_crs_list[0]
    number = found.to_authority(min_confidence=100)
    if number is not None and CRS.from_authority(*number).equals(found, ignore_axis_order=True):
        return shapes, ":".join(number)
    spelt_out: dict[str, Any] = _plain(found.to_json_dict())
    shapely = need("shapely", "geo", "Reading zones")
    move = Transformer.from_crs(CRS.from_json_dict(spelt_out), LON_LAT, always_xy=True)
    moved = shapely.transform(shapes, lambda places: np.stack(move.transform(places[:, 0], places[:, 1]), axis=1))
    return moved, LON_LAT


def _plain(record: Any) -> Any:
    """A reference system without the words in which PROJ looks for the names of files."""
    if isinstance(record, list):
        return [_plain(part) for part in record]
    if not isinstance(record, dict):
        return record
    method = str(_mapping(record.get("method")).get("name", ""))
    texts = [one for one in record.get("parameters", ()) if isinstance(_mapping(one).get("value"), str)]
    if method.upper().startswith("PROJ") or texts:
        raise UnreadableInput("The zones' reference system is computed from a file: save them in another one.")
    return {name: _plain(part) for name, part in record.items() if name not in ("remarks", "scope", "usages")}


NO_SHAPES = "{!r} has rows without shapes: give a file with a polygon for each row."

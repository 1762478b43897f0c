"""Read layers of GeoPackages, Shapefiles and FlatGeobuf files by GDAL with one driver, in a separate process."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from veilmap.errors import UnreadableInput, need
from veilmap.geofiles import GDAL_DRIVERS

SPATIAL_INDEX = re.compile(r'CREATE VIRTUAL TABLE ("[^"]*"|\w+) USING rtree\s*\(', re.IGNORECASE)
"""The only kind of virtual table that a GeoPackage needs. SQLite itself normalises the words before USING."""

Result: TypeAlias = tuple[pa.Schema, dict[str, Any], Iterator[pa.RecordBatch]]
"""The columns of a file, its metadata and its rows."""


def driver_of(path: str) -> str:
    return GDAL_DRIVERS[os.path.splitext(path)[1].lower()]


def describe(path: str) -> Result:
    """Return the columns of the only layer, or of the only layer of points; else only the names of all layers."""
    pyogrio = open_gdal(path)
    layers = [(str(name), kind) for name, kind in pyogrio.list_layers(path).tolist()]
    points = [name for name, kind in layers if kind and kind.removeprefix("2.5D ").split()[0] == "Point"]
    names = points if len(points) == 1 else [name for name, _ in layers]
    metadata: dict[str, Any] = {"layers": names}
    if len(names) != 1:
        return pa.schema([]), metadata, iter(())
    with pyogrio.open_arrow(path, layer=names[0]) as (layer, stream):
        schema = pa.RecordBatchReader.from_stream(stream).schema
    metadata |= {"crs": layer["crs"], "geometry_type": layer["geometry_type"]}
    return schema, metadata, iter(())


def rows(path: str, layer: str, columns: Sequence[str], geometry: bool) -> Result:
    """Return the rows of a layer, each once."""
    opened = open_gdal(path).open_arrow(path, layer=layer, columns=list(columns), read_geometry=geometry)
    _, stream = opened.__enter__()  # it is closed when the process ends
    batches = pa.RecordBatchReader.from_stream(stream)
    return batches.schema, {}, (_with_valid_texts(batch) for batch in batches)


def open_gdal(path: str) -> Any:
    """Return pyogrio, after a check that GDAL has the driver of this file and no other."""
    unused = [name for name in ("geopandas", "pandas") if name not in sys.modules]
    sys.modules.update(dict.fromkeys(unused))  # type: ignore[arg-type]  # loading them takes a second
    pyogrio = need("pyogrio", "geo", "Reading a GIS file")
    for name in unused:
        del sys.modules[name]
    if set(pyogrio.list_drivers()) != {driver_of(path)}:
        raise RuntimeError("GDAL must have the driver of this file and no other.")
    if driver_of(path) == "GPKG":
        _must_have_plain_tables(path)
    return pyogrio


def _must_have_plain_tables(path: str) -> None:
    """Raise an error for views, virtual tables and computed columns: they run SQL, and GDAL's functions open files."""
    mode = "mode=ro" if os.path.exists(f"{path}-wal") else "immutable=1"  # else SQLite may write to the same folder
    with contextlib.closing(sqlite3.connect(f"{Path(path).as_uri()}?{mode}", uri=True)) as database:
        entries = database.execute(
            "SELECT type, name, rootpage, sql FROM sqlite_master WHERE type IN ('table', 'view')"
        ).fetchall()
        stored = [name for kind, name, page, _ in entries if kind == "table" and page]
        others = [sql for kind, _, page, sql in entries if not (kind == "table" and page)]
        columns = [database.execute("SELECT hidden FROM pragma_table_xinfo(?)", (name,)).fetchall() for name in stored]
    if any(SPATIAL_INDEX.match(sql or "") is None for sql in others) or any(hidden for (hidden,) in chain(*columns)):
        raise UnreadableInput(
            f"The GeoPackage {path!r} has views, virtual tables or computed columns, which are not supported. Save "
            "the layer as a new GeoPackage."
        )


def _with_valid_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Escape bytes that are not UTF-8, so that one invalid text does not make the whole batch invalid."""
    columns = [_escaped(column) if pa.types.is_string(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _escaped(texts: pa.Array) -> pa.Array:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        values = texts.cast(pa.binary()).to_pylist()
        return pa.array(
            (None if value is None else value.decode(errors="backslashreplace") for value in values), texts.type
        )
    return texts

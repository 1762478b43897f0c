"""Layers of GeoPackages, Shapefiles and FlatGeobuf files, by GDAL with one driver. Runs in a process of its own."""

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
from veilmap.geofiles import DRIVERS

SPATIAL_INDEX = re.compile(r'CREATE VIRTUAL TABLE ("[^"]*"|\w+) USING rtree\s*\(', re.IGNORECASE)
"""The only kind of virtual table that a GeoPackage needs; SQLite itself writes the words before USING."""

Result: TypeAlias = tuple[pa.Schema, dict[str, Any], Iterator[pa.RecordBatch]]


def driver_of(path: str) -> str:
    return DRIVERS[os.path.splitext(path)[1].lower()]


def describe(path: str) -> Result:
    """The columns of the only layer, or of the only one of points; and the names of all layers."""
    pyogrio = open_gdal(path)
    layers = [(str(name), kind) for name, kind in pyogrio.list_layers(path).tolist()]
    points = [name for name, kind in layers if kind and kind.removeprefix("2.5D ").split()[0] == "Point"]
    names = points if len(points) == 1 else [name for name, _ in layers]
    about: dict[str, Any] = {"layers": names}
    if len(names) != 1:
        return pa.schema([]), about, iter(())
    with pyogrio.open_arrow(path, layer=names[0]) as (found, stream):
        schema = pa.RecordBatchReader.from_stream(stream).schema
    about |= {"crs": found["crs"], "geometry_type": found["geometry_type"]}
    return schema, about, iter(())


def rows(path: str, layer: str, columns: Sequence[str], geometry: bool) -> Result:
    """The rows of a layer, every one once."""
    opened = open_gdal(path).open_arrow(path, layer=layer, columns=list(columns), read_geometry=geometry)
    _, stream = opened.__enter__()  # the process ends with it
    batches = pa.RecordBatchReader.from_stream(stream)
    return batches.schema, {}, (_readable(batch) for batch in batches)


def open_gdal(path: str) -> Any:
    """pyogrio, once it is known that it has the driver of this file alone."""
    unused = [name for name in ("geopandas", "pandas") if name not in sys.modules]
    sys.modules.update(dict.fromkeys(unused))  # type: ignore[arg-type]  # it would load them, which takes a second
    pyogrio = need("pyogrio", "geo", "Reading a GIS file")
    for name in unused:
        del sys.modules[name]
    if set(pyogrio.list_drivers()) != {driver_of(path)}:
        raise RuntimeError("GDAL has other drivers than the one that is needed.")
    if driver_of(path) == "GPKG":
        _must_hold_tables(path)
    return pyogrio


def _must_hold_tables(path: str) -> None:
    """Refuse views, virtual tables and computed columns: they are programs, and GDAL has functions that open files."""
    how = "mode=ro" if os.path.exists(f"{path}-wal") else "immutable=1"  # or SQLite may want to write beside it
    with contextlib.closing(sqlite3.connect(f"{Path(path).as_uri()}?{how}", uri=True)) as database:
        found = database.execute(
            "SELECT type, name, rootpage, sql FROM sqlite_master WHERE type IN ('table', 'view')"
        ).fetchall()
        stored = [name for kind, name, page, _ in found if kind == "table" and page]
        others = [sql for kind, _, page, sql in found if not (kind == "table" and page)]
        columns = [database.execute("SELECT hidden FROM pragma_table_xinfo(?)", (name,)).fetchall() for name in stored]
    if any(SPATIAL_INDEX.match(sql or "") is None for sql in others) or any(hidden for (hidden,) in chain(*columns)):
        raise UnreadableInput(
            f"The GeoPackage {path!r} has views, virtual tables or computed columns, which are not read: save the "
            "layer as a new GeoPackage."
        )


def _readable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same with bytes that are not UTF-8 written out, so that one text like this spoils no batch."""
    columns = [_written_out(column) if pa.types.is_string(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _written_out(texts: pa.Array) -> pa.Array:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        values = texts.cast(pa.binary()).to_pylist()
        return pa.array(
            (None if value is None else value.decode(errors="backslashreplace") for value in values), texts.type
        )
    return texts

"""Points in tables with an Arrow interface: data frames, Arrow tables, streams and DuckDB relations."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from veilmap.domain import Domain
from veilmap.engines.batches import LocalEngine, Share, equal_slices
from veilmap.engines.columns import Layout, lay_out
from veilmap.engines.geometry import USUAL_GEOMETRY_NAMES, Geometry, crs_label, find_geometry, number_of
from veilmap.engines.redaction import guard, guard_each
from veilmap.engines.units import as_column
from veilmap.errors import UnreadableInput, need

NOT_A_TABLE_MESSAGE = "The points cannot be read as a table. Give a data frame with the columns {}."
BROKEN_STREAM_MESSAGE = (
    "The stream of points failed before its end, so nothing is released. Open it again; if it is a query, its casts "
    "and functions must accept every row, as TRY_CAST does."
)
GUESSING_READERS = re.compile(r"READ_(CSV|JSON|NDJSON|XLSX)|SNIFF_|ST_READ")
"""Names, in DuckDB's query plans, of readers that guess types, separators or formats from rows."""


@dataclass(frozen=True, slots=True)
class TableEngine(LocalEngine):
    """A table in memory."""

    table: pa.Table = field(repr=False)
    layout: Layout

    @property
    def id_type(self) -> Any:
        return self.layout.id_type

    def shares(self) -> Iterator[Share]:
        for fraction, rows in equal_slices(self.table.num_rows):
            yield fraction, self.layout.batch(self.table[rows])


@dataclass(frozen=True, slots=True)
class StreamEngine(LocalEngine):
    """Batches of a stream, each of which can be read once. Their number is not known."""

    streams: Iterator[pa.RecordBatchReader] = field(repr=False)  # each reads all rows once
    layout: Layout
    rereadable: bool
    spills: ClassVar[bool] = True

    @property
    def id_type(self) -> Any:
        return self.layout.id_type

    def shares(self) -> Iterator[Share]:
        stream = guard(lambda: next(self.streams, None), BROKEN_STREAM_MESSAGE)
        if stream is None:
            raise UnreadableInput(
                "A stream of points can be read only once, and this one has been read. Open it again, or give a table."
            )
        for batch in guard_each(stream, BROKEN_STREAM_MESSAGE):
            yield 0.0, self.layout.batch(batch)


def open_table(points: Any, domain: Domain, unit: str | None = None) -> TableEngine | StreamEngine:
    """Open any object with ``__arrow_c_stream__``, including GeoDataFrames."""
    message = NOT_A_TABLE_MESSAGE.format(", ".join(domain.names))
    package = type(points).__module__.partition(".")[0].lstrip("_")
    geopandas = sys.modules.get("geopandas")
    if geopandas and isinstance(points, geopandas.GeoDataFrame):
        return _open_geodataframe(points, domain, unit)
    if package == "duckdb":
        return _open_relation(points, domain, unit, message)
    if (pandas := sys.modules.get("pandas")) and isinstance(points, pandas.DataFrame):
        return _open_dataframe(points, domain, unit)
    if hasattr(points, "__len__"):
        table = guard(lambda: pa.table(points), message)
        return TableEngine(table, lay_out(domain, "The table", table.schema, find_geometry(table.schema), unit))
    stream = guard(lambda: pa.RecordBatchReader.from_stream(points), message)
    layout = lay_out(domain, "The stream", stream.schema, find_geometry(stream.schema), unit)
    return StreamEngine(iter([stream]), layout, False)


def _open_dataframe(frame: Any, domain: Domain, unit: str | None) -> TableEngine:
    names = [str(name) for name in frame.columns]
    table = _select_columns(frame, names, {*domain.names, *USUAL_GEOMETRY_NAMES}, unit)
    geometry = find_geometry(table.schema)
    return TableEngine(table, lay_out(domain, "The data frame", table.schema, geometry, unit, names))


def _open_geodataframe(frame: Any, domain: Domain, unit: str | None) -> TableEngine:
    active, names = frame.active_geometry_name, [str(name) for name in frame.columns]
    table = _select_columns(frame, names, {*domain.names} - {active}, unit)
    geometry = None
    if active is not None and not set(domain.names) <= set(table.column_names):
        shapely = need("shapely", "geo", "Reading a GeoDataFrame")
        shapes = frame.geometry.to_numpy()
        shapes = np.where(shapely.is_empty(shapes), None, shapes)
        xy = pa.StructArray.from_arrays([shapely.get_x(shapes), shapely.get_y(shapes)], ["x", "y"])
        table = pa.Table.from_arrays([*table.columns, xy], names=[*table.column_names, active])
        authority = frame.crs.to_authority() if frame.crs else None
        geometry = Geometry(active, crs_label(":".join(authority)) if authority else None, ())
    return TableEngine(table, lay_out(domain, "The GeoDataFrame", table.schema, geometry, unit, names))


def _select_columns(frame: Any, names: list[str], wanted: set[str], unit: str | None) -> pa.Table:
    """Convert only some columns of a pandas frame: others may hold objects unknown to Arrow, and would cost time."""
    selected = [(position, name) for position, name in enumerate(names) if name in wanted or name == unit]
    message = "The data frame must have simple values in column {!r}, which is the unit of privacy. Convert it to text."
    columns = [
        guard(
            partial(_convert_column, frame.iloc[:, position], name)
            if name in wanted
            else partial(as_column, frame.iloc[:, position]),
            message.format(name),
        )
        for position, name in selected
    ]
    return pa.Table.from_arrays(columns, names=[name for _, name in selected])


def _convert_column(column: Any, name: str) -> pa.Array:
    """Convert a column of a frame; objects one by one, since Arrow would guess one type for all of them."""
    if column.dtype != object:
        return pa.array(column, from_pandas=True)
    values = column.to_list()
    if name in USUAL_GEOMETRY_NAMES:
        return pa.array([value if isinstance(value, bytes) else None for value in values], pa.binary())
    return pa.array([number_of(value) for value in values], pa.float64())


def _open_relation(relation: Any, domain: Domain, unit: str | None, message: str) -> StreamEngine:
    """Open a DuckDB relation, which runs its query at every reading, for the needed columns only."""
    _must_not_guess(relation, unit)
    schema = guard(lambda: pa.RecordBatchReader.from_stream(relation.limit(0)).schema, message)
    layout = lay_out(domain, "The relation", schema, find_geometry(schema), unit)
    names = [name.lower() for name in relation.columns]  # SQL ignores case, and would take the first of equal names
    for name in layout.needed:
        if names.count(name.lower()) > 1:
            raise UnreadableInput(f"The relation has more than one column {name!r}. Rename all but the one you mean.")
    quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in layout.needed)

    def streams() -> Iterator[pa.RecordBatchReader]:
        while True:
            yield pa.RecordBatchReader.from_stream(relation.project(quoted))

    return StreamEngine(streams(), layout, True)


def _must_not_guess(relation: Any, unit: str | None) -> None:
    """Raise an error if DuckDB guesses types of the query from rows: one more row could change how others are read."""
    unknown = (
        "DuckDB does not report what the query reads. It must be version 2.0 or later: pip install --upgrade duckdb."
    )
    scans = guard(lambda: set(_steps(json.loads(relation.explain(format="json")))), unknown)
    if not scans:
        raise UnreadableInput(unknown)
    if any(GUESSING_READERS.match(scan) for scan in scans):
        raise UnreadableInput(
            "The query reads a CSV, JSON or other file whose types DuckDB guesses from its rows. Give the file itself, "
            "without a query; or load it into a table with declared types, CREATE TABLE trips (lon DOUBLE, lat DOUBLE, "
            "who VARCHAR), COPY trips FROM 'trips.csv' (HEADER, AUTO_DETECT false), and query that."
        )
    if unit is not None and "PANDAS_SCAN" in scans:
        raise UnreadableInput(
            f"The query reads a pandas data frame, and DuckDB may guess the type of its column {unit!r}, which is the "
            "unit of privacy. Give the data frame itself, or query pyarrow.Table.from_pandas(frame)."
        )


def _steps(plan: Any) -> Iterator[str]:
    """Yield the names of all steps of a query plan, and of the functions that they call."""
    for step in plan:
        yield step["name"].strip().upper()
        yield str(step.get("extra_info", {}).get("Function", "")).strip().upper()
        yield from _steps(step["children"])

"""Points in a Spark frame, counted on the executors. Proof: proofs/counting.md, proofs/units.md.

Python on an executor reads Arrow batches and runs the same kernels as any other engine. The driver receives one sum per
counter of a question. It receives rows only for medians.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4
from weakref import finalize

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilmap.arrays import Ints, SmallInts
from veilmap.domain import Domain
from veilmap.engines.batches import MAX_ROWS_PER_SUM, Choose
from veilmap.engines.columns import Layout, lay_out
from veilmap.engines.redaction import guard, no_warnings
from veilmap.engines.tally import Columns, Question, cells_of, select_rows
from veilmap.engines.units import keep_known
from veilmap.errors import BadInput, UnreadableInput

T = TypeVar("T")
Batches: TypeAlias = Iterator[pa.RecordBatch]
Progress: TypeAlias = Callable[[float], None]

COUNTERS_PER_BLOCK = 1 << 12
BLOCKS_PER_BATCH = 1 << 8
SUMS_SCHEMA = "block bigint, counts binary"
SECONDS_BETWEEN_REPORTS = 0.2
ID_COLUMN = "whose"  # the columns of cells are named by numbers, so these names are free
COPY_COLUMN = "twin"
ROW_NUMBER_COLUMN = "nth"
PACKED_SCHEMA = "cells binary"
ROWS_PER_PACK = 1 << 12
SPARK_TYPE_NAMES = {pa.string(): "string", pa.binary(): "binary", pa.float64(): "double", pa.int64(): "bigint"}
SPARK_ID_TYPES = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary(), pa.float64(): pa.float64()}
"""The types in which ids return to Spark. Decimals keep their type; all other ids become 64-bit integers."""

FAILED_MESSAGE = (
    "Spark could not read all points, so nothing is released. Spark's own logs, which may quote rows, give the reason."
)
NOT_SIMPLE_MESSAGE = (
    "The Spark frame must have simple values in the columns of the axes and of the unit. Convert the axes to double, "
    "and the unit to string."
)
FAILURE_REASONS = (
    (
        r"No module named '?veilmap",
        "The executors do not have veilmap. Install the same version there, and set PYSPARK_PYTHON to that Python.",
    ),
    (
        r"another veilmap than",
        "The executors have another version of veilmap. Install {} there, as on the driver.",
    ),
    (
        r"Checkpoint block \S+ not found",
        "Too many executors were lost, with the rows kept on their disks, so nothing is released. Try again.",
    ),
    (
        r"maxResultSize",
        "The results for the driver are larger than spark.driver.maxResultSize. Raise it, or choose a smaller height, "
        "or sample= for a method with medians.",
    ),
)
"""Patterns in Spark's errors, and the messages that replace them."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class SparkCells:
    """A frame of cells, read as points of ``domain.of_cells()``. One row of the frame packs many rows of cells.

    The rows of each unit, if there are units, are consecutive, in one partition, and numbered from 1.
    """

    frame: Any = field(repr=False)
    axes: int
    units: bool
    rereadable = True
    limits_rows_per_unit = True

    def tally(self, domain: Domain, question: Question, progress: Progress) -> Ints:
        return _tally(self.frame, partial(_count_cells, self._fields, domain, question), question, progress)

    def hold(self, domain: Domain, progress: Progress) -> tuple[SparkCells, Domain]:
        return self, domain

    def rows(self, domain: Domain, progress: Progress, choose: Choose | None = None) -> tuple[list[Ints], Ints | None]:
        """Bring all rows, or the sample that ``choose`` draws on the executors, to the driver.

        If there are units, ``choose`` samples units.
        """
        frame = self.frame
        if choose is not None:
            frame = _map(frame, partial(_choose, self._fields, self.units, choose), PACKED_SCHEMA)
        batches = _run(frame, frame.toArrow, progress).to_batches()
        blocks = [np.zeros((self._fields, 0), np.int32), *_unpack(self._fields, iter(batches))]
        rows = np.concatenate(blocks, axis=1).astype(np.int64)
        return list(rows[: self.axes]), _unit_of(rows[-1], 0) if self.units else None

    @property
    def _fields(self) -> int:
        """The number of integers per row: its cells and, if there are units, its number within the unit."""
        return self.axes + self.units


def _fresh_key() -> tuple[int, ...]:
    return tuple(int.from_bytes(os.urandom(8), "big", signed=True) for _ in range(2))


@dataclass(frozen=True, slots=True, eq=False)
class SparkEngine:
    """A frame as its owner gave it. It is evaluated once: for one question, or to keep its cells for several."""

    frame: Any = field(repr=False)  # the columns of the layout
    layout: Layout
    max_rows_per_unit: int = 1
    key: tuple[int, ...] = field(default_factory=_fresh_key, repr=False)  # decides which rows of a unit are kept
    rereadable = False
    limits_rows_per_unit = True

    def tally(self, domain: Domain, question: Question, progress: Progress) -> Ints:
        if self.layout.unit is None:
            return _tally(self.frame, partial(_count_rows, self.layout, domain, question), question, progress)
        return self._cells(domain).tally(domain.of_cells(), question, progress)

    def rows(self, domain: Domain, progress: Progress, choose: Choose | None = None) -> tuple[list[Ints], Ints | None]:
        return self._cells(domain).rows(domain.of_cells(), progress, choose)

    def hold(self, domain: Domain, progress: Progress) -> tuple[SparkCells, Domain]:
        """Keep two copies of all cells on the disks of executors.

        Spark cannot recompute them from the source, which may have changed since. If both copies of a row are lost,
        the work fails.
        """
        from pyspark import StorageLevel

        cells = self._cells(domain)
        kept = _run(cells.frame, lambda: cells.frame.localCheckpoint(True, StorageLevel.DISK_ONLY_2), progress)
        held = replace(cells, frame=kept)
        finalize(held, _forget, kept._jdf.queryExecution().analyzed().rdd())
        return held, domain.of_cells()

    def _cells(self, domain: Domain) -> SparkCells:
        if self.layout.unit is None:
            return SparkCells(
                _map(self.frame, partial(_read_cells, self.layout, domain), PACKED_SCHEMA), domain.dimensions, False
            )
        axes, kind = tuple(map(str, range(domain.dimensions))), _spark_id_type(self.layout.id_type)
        is_decimal = pa.types.is_decimal(kind)
        id_type = f"decimal({kind.precision}, {kind.scale})" if is_decimal else SPARK_TYPE_NAMES[kind]
        schema = ", ".join([*(f"`{name}` int" for name in axes), f"{ID_COLUMN} {id_type}"])
        rows = _map(self.frame, partial(_read_units, self.layout, domain), schema)
        kept = _bound(rows, axes, self.max_rows_per_unit, self.key)
        return SparkCells(_map(kept, _pack, PACKED_SCHEMA), domain.dimensions, True)


def open_frame(frame: Any, domain: Domain, unit: str | None, max_rows_per_unit: int | None) -> SparkEngine:
    """Open a DataFrame of a classic Spark session, without reading its rows."""
    if "connect" in type(frame).__module__ or not hasattr(frame, "_jdf"):
        raise BadInput("DataFrames of Spark Connect are not supported yet. Use a DataFrame of a classic Spark session.")
    if frame.isStreaming:
        raise BadInput("The Spark frame is streaming, but points must have an end. Write it to a table first.")
    names = frame.columns
    # Columns are addressed by number, since names in Spark may be duplicated, contain dots, or differ only in case.
    numbered = frame.toDF(*map(str, range(len(names))))
    wanted = [k for k, name in enumerate(names) if name in {*domain.names, unit}]
    kinds = guard(lambda: _schema(numbered.select(*map(str, wanted))).types, NOT_SIMPLE_MESSAGE) if wanted else []
    schema = pa.schema([(names[k], kind) for k, kind in zip(wanted, kinds, strict=True)])
    layout = lay_out(domain, "The Spark frame", schema, None, unit, names)
    number = {name: str(names.index(name)) for name in layout.needed}
    picked = numbered.select(*number.values())
    axes, unit_number = tuple(number[name] for name in layout.names), None if unit is None else number[unit]
    return SparkEngine(picked, replace(layout, names=axes, unit=unit_number), max_rows_per_unit or 1)


def _schema(frame: Any) -> pa.Schema:
    with no_warnings():
        return frame.limit(0).toArrow().schema


def _bound(frame: Any, axes: tuple[str, ...], max_rows: int, key: tuple[int, ...]) -> Any:
    """Keep at most ``max_rows`` rows per unit, by a rule that depends only on that unit's rows and the release's key.

    Equal rows of a unit are numbered, so that the order has no ties: a task that is repeated keeps the same rows.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    unit, cells = Window.partitionBy(ID_COLUMN), [f.col(name) for name in axes]
    by_cell = unit.orderBy(*cells)
    keyed_hash = f.xxhash64(*map(f.lit, key), ID_COLUMN, *cells, COPY_COLUMN)
    numbered = frame.withColumn(COPY_COLUMN, f.row_number().over(by_cell) - f.rank().over(by_cell))
    by_hash = unit.orderBy(keyed_hash, *cells, COPY_COLUMN)
    numbered = numbered.withColumn(ROW_NUMBER_COLUMN, f.row_number().over(by_hash))
    return numbered.where(f.col(ROW_NUMBER_COLUMN) <= max_rows).select(*axes, ROW_NUMBER_COLUMN)


# --- on the executors -------------------------------------------------------------------------------------------


def _count_rows(layout: Layout, domain: Domain, question: Question, batches: Batches) -> Batches:
    return _count(domain, question, (layout.read(batch).columns for batch in batches))


def _count_cells(fields: int, domain: Domain, question: Question, batches: Batches) -> Batches:
    return _count(domain, question, (list(block[: domain.dimensions]) for block in _unpack(fields, batches)))


def _count(domain: Domain, question: Question, pieces: Iterable[Columns]) -> Batches:
    counts, rows = np.zeros(question.size, np.uint32), 0
    for columns in pieces:
        question.add(domain, columns, counts)
        rows += len(columns[0])
        if rows >= MAX_ROWS_PER_SUM:
            yield from _sums(counts)
            counts[:] = rows = 0
    yield from _sums(counts)


def _sums(counts: NDArray[Any]) -> Batches:
    """Yield the blocks of counts that are not all 0, with their numbers."""
    nonzero = np.unique(np.flatnonzero(counts) // COUNTERS_PER_BLOCK)
    for numbers in (nonzero[k : k + BLOCKS_PER_BATCH] for k in range(0, len(nonzero), BLOCKS_PER_BATCH)):
        blocks = [counts[n * COUNTERS_PER_BLOCK :][:COUNTERS_PER_BLOCK].tobytes() for n in numbers]
        yield pa.record_batch([numbers, pa.array(blocks, pa.binary())], ["block", "counts"])


def _merge(size: int, batches: Batches) -> Batches:
    """Add blocks of equal numbers. All blocks of one number are in the same partition."""
    total = np.zeros(size, np.int64)
    _add(batches, np.uint32, total)
    yield from _sums(total)


def _add(batches: Batches, kind: type[np.generic], total: Ints) -> None:
    for batch in batches:
        for number, block in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            total[number * COUNTERS_PER_BLOCK :][:COUNTERS_PER_BLOCK] += np.frombuffer(block.as_buffer(), kind)


def _read_cells(layout: Layout, domain: Domain, batches: Batches) -> Batches:
    """Yield the cells of rows that are not dropped."""
    for batch in batches:
        yield from _packed(select_rows(*cells_of(domain, layout.read(batch).columns)))


def _read_units(layout: Layout, domain: Domain, batches: Batches) -> Batches:
    """Yield the cells and the id of each row that is not dropped."""
    for batch in batches:
        piece = layout.read(batch)
        cells, kept = cells_of(domain, piece.columns)
        ids, kept = keep_known(piece.ids, kept)
        columns = [*(axis.astype(np.int32) for axis in select_rows(cells, kept)), _spark_ids(ids)]
        yield pa.record_batch(columns, [*map(str, range(len(cells))), ID_COLUMN])


def _pack(batches: Batches) -> Batches:
    for batch in batches:
        yield from _packed([column.to_numpy(zero_copy_only=False) for column in batch.columns])


def _packed(columns: Columns) -> Batches:
    """Pack many rows into one value, since Spark is slow per row; but not too many, since a batch has many values."""
    rows = np.stack(columns).astype(np.int32)
    blocks = [rows[:, k : k + ROWS_PER_PACK].tobytes() for k in range(0, rows.shape[1], ROWS_PER_PACK)]
    if blocks:
        yield pa.record_batch([pa.array(blocks, pa.binary())], ["cells"])


def _unpack(fields: int, batches: Batches) -> Iterator[SmallInts]:
    """Yield the rows of each batch."""
    for batch in batches:
        blocks = [np.frombuffer(value.as_buffer(), np.int32).reshape(fields, -1) for value in batch.column(0)]
        if blocks:
            yield np.concatenate(blocks, axis=1)


def _choose(fields: int, units: bool, choose: Choose, batches: Batches) -> Batches:
    """Sample rows; or, if there are units, sample units with all their rows, which are consecutive."""
    last_coin, last_number = np.zeros(1, np.bool_), 0  # of the previous row: its unit's coin, its number in the unit
    for rows in _unpack(fields, batches):
        if units:
            unit = 1 + _unit_of(rows[-1], last_number)
            coins = np.concatenate([last_coin, choose(int(unit[-1]))])
            kept, last_coin, last_number = coins[unit], coins[-1:], int(rows[-1, -1])
        else:
            kept = choose(rows.shape[1])
        yield from _packed(list(rows[:, kept]))


def _unit_of(numbers: NDArray[Any], last_number: int) -> Ints:
    """Return a code per row, from 0 on; from -1 on if the first row continues the unit of the previous row."""
    starts = numbers == 1
    if not np.all(starts | (np.diff(numbers, prepend=last_number) == 1)):
        raise RuntimeError("The rows of a unit are not consecutive.")
    codes: Ints = np.cumsum(starts) - 1
    return codes


def _spark_id_type(kind: pa.DataType) -> pa.DataType:
    return kind if pa.types.is_decimal(kind) else SPARK_ID_TYPES.get(kind, pa.int64())


def _spark_ids(ids: pa.Array) -> pa.Array:
    kind = _spark_id_type(ids.type)
    if kind == pa.int64() and pa.types.is_boolean(ids.type):
        ids = ids.cast(pa.int8())
    if kind == pa.int64() and pa.types.is_date32(ids.type):
        ids = ids.cast(pa.int32())
    return ids.cast(kind)


def _silent(driver_version: str, work: Callable[[Batches], Batches], batches: Batches) -> Batches:
    """Run ``work`` so that its errors quote no value: errors of executors are written to the cluster's logs."""
    if version("veilmap") != driver_version:
        raise RuntimeError(f"This executor has another veilmap than {driver_version}")
    try:
        yield from work(batches)
        return
    except Exception as error:
        kind = type(error).__name__
    raise RuntimeError(f"veilmap failed with {kind}")


# --- on the driver ----------------------------------------------------------------------------------------------


def _map(frame: Any, work: Callable[[Batches], Batches], schema: str) -> Any:
    with no_warnings():  # pyspark warns about pandas, which is not used here
        return frame.mapInArrow(partial(_silent, version("veilmap"), work), schema)


def _tally(frame: Any, count: Callable[[Batches], Batches], question: Question, progress: Progress) -> Ints:
    counted = _map(frame, count, SUMS_SCHEMA)
    merged = _map(counted.repartition("block"), partial(_merge, question.size), SUMS_SCHEMA)
    total = np.zeros(question.size, np.int64)
    _add(iter(_run(frame, merged.toArrow, progress).to_batches()), np.int64, total)
    return total


def _run(frame: Any, action: Callable[[], T], progress: Progress) -> T:
    """Run an action on the cluster in a separate thread, and report the percentage of finished tasks meanwhile."""
    from pyspark import inheritable_thread_target

    session, group, done = frame.sparkSession, f"veilmap-{uuid4()}", 0.0
    context = session.sparkContext

    def act() -> T:
        context.setJobGroup(group, "veilmap")
        with no_warnings():
            return action()

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(inheritable_thread_target(session)(act))
        try:
            while wait([job], SECONDS_BETWEEN_REPORTS).not_done:
                done = max(done, _fraction_done(context.statusTracker(), group))
                progress(min(math.floor(done * 100) / 100, 0.99))
        except BaseException:
            context.cancelJobGroup(group)
            raise
    message = FAILED_MESSAGE
    try:
        result: T = job.result()
    except MemoryError:
        raise
    except Exception as error:
        reasons = (reason for pattern, reason in FAILURE_REASONS if re.search(pattern, str(error)))
        message = next(reasons, FAILED_MESSAGE).format(version("veilmap"))
    else:
        progress(1.0)
        return result
    # Raised outside the handler, so that __context__ does not keep the original error.
    raise UnreadableInput(message)


def _fraction_done(tracker: Any, group: str) -> float:
    """Return the fraction of the tasks known so far that are finished."""
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    tasks = sum(stage.numTasks for stage in stages if stage)
    return sum(stage.numCompletedTasks for stage in stages if stage) / tasks if tasks else 0.0


def _forget(kept: Any) -> None:
    with contextlib.suppress(Exception):  # the session may have ended, and the rows with it
        kept.unpersist(False)

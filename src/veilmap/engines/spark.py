"""Points in a Spark frame, asked on the executors that hold them. Proof: proofs/counting.md, proofs/units.md.

Python on an executor reads Arrow batches and runs the same kernels as any other engine. What goes to the driver is one
sum a place of a question; rows go there only for medians.
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
from veilmap.engines.batches import ROWS_A_SUM, Choose
from veilmap.engines.columns import Layout, lay_out
from veilmap.engines.redaction import guard, no_warnings
from veilmap.engines.tally import Columns, Question, cells_of, only
from veilmap.engines.units import keep_known
from veilmap.errors import BadInput, UnreadableInput

T = TypeVar("T")
Batches: TypeAlias = Iterator[pa.RecordBatch]
Progress: TypeAlias = Callable[[float], None]

PLACES_A_BLOCK, BLOCKS_A_BATCH = 1 << 12, 1 << 8
SUMS = "block bigint, counts binary"
SECONDS_A_REPORT = 0.2
WHOSE, TWIN, NTH = "whose", "twin", "nth"  # cells have numbers for names
PACKED = "cells binary"
ROWS_A_PACK = 1 << 12
SPARK_NAMES = {pa.string(): "string", pa.binary(): "binary", pa.float64(): "double", pa.int64(): "bigint"}
ID_TYPES = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary(), pa.float64(): pa.float64()}
"""Ids on their way back to Spark; all others go as whole numbers, but for decimals."""

BROKEN_OFF = (
    "Spark could not work through the points to their end: nothing is released; its own logs, which may quote rows, "
    "say why."
)
NOT_SIMPLE = (
    "The Spark frame must have simple values in the columns of the axes and of the unit: convert them, "
    "those of axes to double, that of the unit to string."
)
REASONS = (
    (
        r"No module named '?veilmap",
        "The executors do not have veilmap: install the same version there, and set PYSPARK_PYTHON to that Python.",
    ),
    (
        r"another veilmap than",
        "The executors have another version of veilmap: install {} there, as on the driver.",
    ),
    (
        r"Checkpoint block \S+ not found",
        "Too many executors were lost, with rows that were kept on their disks: nothing is released; try again.",
    ),
    (
        r"maxResultSize",
        "What comes to the driver is larger than spark.driver.maxResultSize: raise it, or choose a smaller height, "
        "or sample= for a method with medians.",
    ),
)


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class SparkCells:
    """Cells, many rows in one of the frame's, asked by ``domain.of_cells()``.

    With units, the rows of each are together, in one part, and numbered from 1.
    """

    frame: Any = field(repr=False)
    axes: int
    units: bool
    again = True
    bounded = True

    def tally(self, domain: Domain, question: Question, progress: Progress) -> Ints:
        return _tally(self.frame, partial(_count_cells, self._lines, domain, question), question, progress)

    def held(self, domain: Domain, progress: Progress) -> tuple[SparkCells, Domain]:
        return self, domain

    def rows(self, domain: Domain, progress: Progress, choose: Choose | None = None) -> tuple[list[Ints], Ints | None]:
        """To the driver: all of them, unless ``choose`` takes some, on the executors. With units it takes units."""
        frame = self.frame
        if choose is not None:
            frame = _map(frame, partial(_choose, self._lines, self.units, choose), PACKED)
        found = _run(frame, frame.toArrow, progress).to_batches()
        blocks = [np.zeros((self._lines, 0), np.int32), *_unpack(self._lines, iter(found))]
        rows = np.concatenate(blocks, axis=1).astype(np.int64)
        return list(rows[: self.axes]), _unit_of(rows[-1], 0) if self.units else None

    @property
    def _lines(self) -> int:
        return self.axes + self.units


def _fresh_key() -> tuple[int, ...]:
    return tuple(int.from_bytes(os.urandom(8), "big", signed=True) for _ in range(2))


@dataclass(frozen=True, slots=True, eq=False)
class SparkEngine:
    """A frame as its owner gave it. It is worked out once, whatever is asked: then its cells are kept."""

    frame: Any = field(repr=False)  # the columns of the layout
    layout: Layout
    most_rows: int = 1  # of a unit
    key: tuple[int, ...] = field(default_factory=_fresh_key, repr=False)  # for the choice of these
    again = False
    bounded = True

    def tally(self, domain: Domain, question: Question, progress: Progress) -> Ints:
        if self.layout.unit is None:
            return _tally(self.frame, partial(_count_rows, self.layout, domain, question), question, progress)
        return self._cells(domain).tally(domain.of_cells(), question, progress)

    def rows(self, domain: Domain, progress: Progress, choose: Choose | None = None) -> tuple[list[Ints], Ints | None]:
        return self._cells(domain).rows(domain.of_cells(), progress, choose)

    def held(self, domain: Domain, progress: Progress) -> tuple[SparkCells, Domain]:
        """Twice on the disks of executors, without the way back to the source: it may have changed since.

        Rows of which both copies are lost stop the work.
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
                _map(self.frame, partial(_read_cells, self.layout, domain), PACKED), domain.dimensions, False
            )
        axes, kind = tuple(map(str, range(domain.dimensions))), _plain_type(self.layout.id_type)
        whose = f"decimal({kind.precision}, {kind.scale})" if pa.types.is_decimal(kind) else SPARK_NAMES[kind]
        schema = ", ".join([*(f"`{name}` int" for name in axes), f"{WHOSE} {whose}"])
        rows = _map(self.frame, partial(_read_units, self.layout, domain), schema)
        return SparkCells(_map(_bound(rows, axes, self.most_rows, self.key), _pack, PACKED), domain.dimensions, True)


def open_frame(frame: Any, domain: Domain, unit: str | None, most_rows: int | None) -> SparkEngine:
    """Any frame of Spark's own session; it is not looked at yet."""
    if "connect" in type(frame).__module__ or not hasattr(frame, "_jdf"):
        raise BadInput("Points of Spark are a DataFrame of a classic session: those of Spark Connect are not read yet.")
    if frame.isStreaming:
        raise BadInput("Points of Spark must come to an end, and this frame is streaming: write it to a table first.")
    names = frame.columns
    # By number from here on: Spark's names may be double, have dots in them, or differ in case alone.
    numbered = frame.toDF(*map(str, range(len(names))))
    wanted = [k for k, name in enumerate(names) if name in {*domain.names, unit}]
    kinds = guard(lambda: _schema(numbered.select(*map(str, wanted))).types, NOT_SIMPLE) if wanted else []
    schema = pa.schema([(names[k], kind) for k, kind in zip(wanted, kinds, strict=True)])
    layout = lay_out(domain, "The Spark frame", schema, None, unit, names)
    number = {name: str(names.index(name)) for name in layout.needed}
    picked = numbered.select(*number.values())
    axes, whose = tuple(number[name] for name in layout.names), None if unit is None else number[unit]
    return SparkEngine(picked, replace(layout, names=axes, unit=whose), most_rows or 1)


def _schema(frame: Any) -> pa.Schema:
    with no_warnings():
        return frame.limit(0).toArrow().schema


def _bound(frame: Any, axes: tuple[str, ...], most: int, key: tuple[int, ...]) -> Any:
    """At most so many rows of each unit, by a rule that looks at that unit's rows and a key of this release alone.

    Equal rows are told apart by a number, so that the order has no ties: a task that is done again finds the same.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    person, cells = Window.partitionBy(WHOSE), [f.col(name) for name in axes]
    alike = person.orderBy(*cells)
    luck = f.xxhash64(*map(f.lit, key), WHOSE, *cells, TWIN)
    numbered = frame.withColumn(TWIN, f.row_number().over(alike) - f.rank().over(alike))
    numbered = numbered.withColumn(NTH, f.row_number().over(person.orderBy(luck, *cells, TWIN)))
    return numbered.where(f.col(NTH) <= most).select(*axes, NTH)


# --- on the executors -------------------------------------------------------------------------------------------


def _count_rows(layout: Layout, domain: Domain, question: Question, batches: Batches) -> Batches:
    return _count(domain, question, (layout.read(batch).columns for batch in batches))


def _count_cells(lines: int, domain: Domain, question: Question, batches: Batches) -> Batches:
    return _count(domain, question, (list(block[: domain.dimensions]) for block in _unpack(lines, batches)))


def _count(domain: Domain, question: Question, pieces: Iterable[Columns]) -> Batches:
    counts, rows = np.zeros(question.size, np.uint32), 0
    for columns in pieces:
        question.add(domain, columns, counts)
        rows += len(columns[0])
        if rows >= ROWS_A_SUM:
            yield from _sums(counts)
            counts[:] = rows = 0
    yield from _sums(counts)


def _sums(counts: NDArray[Any]) -> Batches:
    """Blocks of counts that are not all 0, with their numbers."""
    some = np.unique(np.flatnonzero(counts) // PLACES_A_BLOCK)
    for numbers in (some[k : k + BLOCKS_A_BATCH] for k in range(0, len(some), BLOCKS_A_BATCH)):
        blocks = [counts[n * PLACES_A_BLOCK :][:PLACES_A_BLOCK].tobytes() for n in numbers]
        yield pa.record_batch([numbers, pa.array(blocks, pa.binary())], ["block", "counts"])


def _merge(size: int, batches: Batches) -> Batches:
    """All blocks of one number, from wherever they were counted, are in the same part."""
    total = np.zeros(size, np.int64)
    _add(batches, np.uint32, total)
    yield from _sums(total)


def _add(batches: Batches, kind: type[np.generic], total: Ints) -> None:
    for batch in batches:
        for number, block in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            total[number * PLACES_A_BLOCK :][:PLACES_A_BLOCK] += np.frombuffer(block.as_buffer(), kind)


def _read_cells(layout: Layout, domain: Domain, batches: Batches) -> Batches:
    """The cells of rows that are not dropped."""
    for batch in batches:
        yield from _packed(only(*cells_of(domain, layout.read(batch).columns)))


def _read_units(layout: Layout, domain: Domain, batches: Batches) -> Batches:
    """The cells of rows that are not dropped, each with whose it is."""
    for batch in batches:
        piece = layout.read(batch)
        cells, kept = cells_of(domain, piece.columns)
        ids, kept = keep_known(piece.ids, kept)
        columns = [*(axis.astype(np.int32) for axis in only(cells, kept)), _plain_ids(ids)]
        yield pa.record_batch(columns, [*map(str, range(len(cells))), WHOSE])


def _pack(batches: Batches) -> Batches:
    for batch in batches:
        yield from _packed([column.to_numpy(zero_copy_only=False) for column in batch.columns])


def _packed(lines: Columns) -> Batches:
    """Rows as one value: Spark takes long for each of its own. Not too many, since it puts many in a batch."""
    rows = np.stack(lines).astype(np.int32)
    blocks = [rows[:, k : k + ROWS_A_PACK].tobytes() for k in range(0, rows.shape[1], ROWS_A_PACK)]
    if blocks:
        yield pa.record_batch([pa.array(blocks, pa.binary())], ["cells"])


def _unpack(lines: int, batches: Batches) -> Iterator[SmallInts]:
    """The rows of each batch."""
    for batch in batches:
        blocks = [np.frombuffer(value.as_buffer(), np.int32).reshape(lines, -1) for value in batch.column(0)]
        if blocks:
            yield np.concatenate(blocks, axis=1)


def _choose(lines: int, units: bool, choose: Choose, batches: Batches) -> Batches:
    """Some rows; or, with units, some units with all their rows, which come one after the other."""
    last, nth = np.zeros(1, np.bool_), 0  # of the row before: whether its unit is taken, and its number there
    for rows in _unpack(lines, batches):
        if units:
            unit = 1 + _unit_of(rows[-1], nth)
            coins = np.concatenate([last, choose(int(unit[-1]))])
            kept, last, nth = coins[unit], coins[-1:], int(rows[-1, -1])
        else:
            kept = choose(rows.shape[1])
        yield from _packed(list(rows[:, kept]))


def _unit_of(numbers: NDArray[Any], before: int) -> Ints:
    """A code for each row, from 0 on, or from -1 if the first goes on with the unit of the row before."""
    starts = numbers == 1
    if not np.all(starts | (np.diff(numbers, prepend=before) == 1)):
        raise RuntimeError("The rows of a unit are not together.")
    codes: Ints = np.cumsum(starts) - 1
    return codes


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind if pa.types.is_decimal(kind) else ID_TYPES.get(kind, pa.int64())


def _plain_ids(ids: pa.Array) -> pa.Array:
    kind = _plain_type(ids.type)
    if kind == pa.int64() and pa.types.is_boolean(ids.type):
        ids = ids.cast(pa.int8())
    if kind == pa.int64() and pa.types.is_date32(ids.type):
        ids = ids.cast(pa.int32())
    return ids.cast(kind)


def _silent(here: str, work: Callable[[Batches], Batches], batches: Batches) -> Batches:
    """What fails on an executor is in the cluster's logs: so it must not quote a cell."""
    if version("veilmap") != here:
        raise RuntimeError(f"This executor has another veilmap than {here}")
    try:
        yield from work(batches)
        return
    except Exception as error:
        kind = type(error).__name__
    raise RuntimeError(f"veilmap failed with {kind}")


# --- on the driver ----------------------------------------------------------------------------------------------


def _map(frame: Any, work: Callable[[Batches], Batches], schema: str) -> Any:
    with no_warnings():  # pyspark's of pandas, which takes no part in this
        return frame.mapInArrow(partial(_silent, version("veilmap"), work), schema)


def _tally(frame: Any, count: Callable[[Batches], Batches], question: Question, progress: Progress) -> Ints:
    counted = _map(frame, count, SUMS)
    merged = _map(counted.repartition("block"), partial(_merge, question.size), SUMS)
    total = np.zeros(question.size, np.int64)
    _add(iter(_run(frame, merged.toArrow, progress).to_batches()), np.int64, total)
    return total


def _run(frame: Any, action: Callable[[], T], progress: Progress) -> T:
    """An action on the cluster, in a thread of its own: this one tells how many tasks are done, in percents."""
    from pyspark import inheritable_thread_target

    session, group, part = frame.sparkSession, f"veilmap-{uuid4()}", 0.0
    context = session.sparkContext

    def act() -> T:
        context.setJobGroup(group, "veilmap")
        with no_warnings():
            return action()

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(inheritable_thread_target(session)(act))
        try:
            while wait([job], SECONDS_A_REPORT).not_done:
                part = max(part, _done(context.statusTracker(), group))
                progress(min(math.floor(part * 100) / 100, 0.99))
        except BaseException:
            context.cancelJobGroup(group)
            raise
    sentence = BROKEN_OFF
    try:
        found: T = job.result()
    except MemoryError:
        raise
    except Exception as error:
        said = str(error)
        found_reasons = ((re.search(pattern, said), reason) for pattern, reason in REASONS)
        sentence = next((reason.format(version("veilmap")) for at, reason in found_reasons if at), BROKEN_OFF)
    else:
        progress(1.0)
        return found
    # Raised outside the handler: not even __context__ remembers.
    raise UnreadableInput(sentence)


def _done(tracker: Any, group: str) -> float:
    """Which part of the tasks that are known so far."""
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    tasks = sum(stage.numTasks for stage in stages if stage)
    return sum(stage.numCompletedTasks for stage in stages if stage) / tasks if tasks else 0.0


def _forget(kept: Any) -> None:
    with contextlib.suppress(Exception):  # the session may be gone, and the rows with it
        kept.unpersist(False)

"""Counting rows on all cores in bounded memory: the common part of all local engines."""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from veilmap.arrays import Flags, Ints
from veilmap.domain import Domain
from veilmap.engines.tally import Cells, Columns, Question, cells_of, select_rows

if TYPE_CHECKING:
    from veilmap.engines import HeldRows

Choose: TypeAlias = Callable[[int], Flags]
"""Given a number of rows, returns a flag per row: whether it is in the sample."""


class Piece(NamedTuple):
    """Some rows."""

    columns: Columns
    ids: Any = None  # the unit of each row: an Arrow array, null for a row without an id


Batch: TypeAlias = Callable[[], Iterable[Piece]]
"""Reads some of the rows, piece by piece. It is called, and iterated to its end, on a worker thread."""

Share: TypeAlias = tuple[float, Batch]
"""A batch, and the fraction of the whole input that it is."""

Worker: TypeAlias = tuple[Callable[[int, Piece], bool], Callable[[], None]]
"""The two functions of one thread. ``take`` processes a piece of the share with this number, and returns whether
``give`` must follow at once; ``give`` adds the thread's results to those of all threads."""

MAX_THREADS = 32
MAX_ROWS_PER_SUM = 1 << 31  # a piece has fewer rows too, so 32-bit counts cannot overflow between sums
MAX_COUNT_BYTES = 1 << 28  # for the counts of all threads together; every thread has its own
SLICES_PER_TABLE = 32
SECONDS_BETWEEN_REPORTS = 0.1


class LocalEngine:
    """An engine that hands out its rows in shares, to be counted on this machine."""

    __slots__ = ()

    rereadable = True
    limits_rows_per_unit = False
    spills: ClassVar[bool] = False  # whether the rows may need more memory than there is
    id_type: Any  # the Arrow type in which ids are compared, None without a unit

    def shares(self) -> Iterator[Share]:
        raise NotImplementedError

    def reading_context(self) -> contextlib.AbstractContextManager[None]:
        """Return the context manager in which rows are read."""
        return contextlib.nullcontext()

    def tally(self, domain: Domain, question: Question, progress: Callable[[float], None]) -> Ints:
        with self.reading_context():
            return tally_batches(domain, question, self.shares(), progress)

    def rows(
        self, domain: Domain, progress: Callable[[float], None], choose: Choose | None = None
    ) -> tuple[list[Ints], Ints | None]:
        with self.reading_context():
            return collect_rows(domain, self.shares(), self.id_type, progress, choose)

    def hold(self, domain: Domain, progress: Callable[[float], None]) -> HeldRows:
        """Return all rows: in memory, or on disk if they come from files or streams and are too many."""
        if not self.spills:
            return self.rows(domain, progress)[0]
        from veilmap.engines.spill import hold

        with self.reading_context():
            return hold(domain, self.shares(), progress)


def tally_batches(
    domain: Domain, question: Question, shares: Iterable[Share], progress: Callable[[float], None]
) -> Ints:
    """Return exact counts. Each thread reads one share at a time, so only a few are in memory at once."""
    total = np.zeros(question.size, np.int64)

    def start() -> Worker:
        # 32-bit counts use the cache better than 64-bit ones. They are added to the total before one could overflow.
        counts, rows = np.zeros(question.size, np.uint32), 0

        def take(_: int, piece: Piece) -> bool:
            nonlocal rows
            question.add(domain, piece.columns, counts)
            rows += len(piece.columns[0])
            return rows >= MAX_ROWS_PER_SUM

        def give() -> None:
            nonlocal rows
            np.add(total, counts, out=total)
            counts[:] = rows = 0

        return take, give

    work_through(shares, start, MAX_COUNT_BYTES // (4 * max(question.size, 1)), progress)
    return total


def collect_rows(
    domain: Domain, shares: Iterable[Share], id_type: Any, progress: Callable[[float], None], choose: Choose | None
) -> tuple[list[Ints], Ints | None]:
    """Return the cells of all rows that are not dropped, one array per axis, in input order; and their unit codes."""
    collected: list[tuple[int, Cells, Any]] = []

    def start() -> Worker:
        own: list[tuple[int, Cells, Any]] = []

        def take(share_number: int, piece: Piece) -> bool:
            (cells, kept), ids = cells_of(domain, piece.columns), None
            if id_type is not None:
                ids, kept = keep_known(piece.ids, kept)
            cells = select_rows(cells, kept)
            own.append((share_number, cells if choose is None else select_rows(cells, choose(len(cells[0]))), ids))
            return False

        return take, lambda: collected.extend(own)

    if id_type is not None:  # pyarrow is loaded only where it is needed
        from veilmap.engines.units import encode, keep_known
    work_through(shares, start, MAX_THREADS if choose is None else 1, progress)  # random draws must be in order
    collected.sort(key=lambda piece: piece[0])  # stable: pieces of one share are in order already
    codes = None if id_type is None else encode([ids for _, _, ids in collected], id_type)
    pieces = [cells for _, cells, _ in collected]
    collected.clear()  # frees the ids, which are not needed any more
    return joined(pieces, domain.dimensions), codes


def joined(pieces: Iterable[Cells], axes: int) -> list[Ints]:
    """Join pieces, which may be none, in their order; return one array per axis."""
    return [np.concatenate(axis) for axis in zip(*pieces, strict=True)] or [np.zeros(0, np.int64) for _ in range(axes)]


def work_through(
    shares: Iterable[Share], start: Callable[[], Worker], max_workers: int, progress: Callable[[float], None]
) -> None:
    """Pass every piece of every share to one worker's ``take``.

    A worker's ``give`` is called when ``take`` asks for it and at the end, by one thread at a time. ``progress`` is
    called on the caller's thread, at fixed time intervals and in whole percents. So it reveals how long the work takes,
    as a clock would, and nothing else about the number of rows.
    """
    supply, lock = enumerate(shares), threading.Lock()
    done, stop = 0.0, False

    def next_share(last_fraction: float) -> tuple[int, Share] | None:
        nonlocal done
        with lock:
            done += last_fraction
            return None if stop else next(supply, None)

    def work() -> None:
        nonlocal stop
        fraction, (take, give) = 0.0, start()
        try:
            while numbered_share := next_share(fraction):
                share_number, (fraction, batch) = numbered_share
                for piece in batch():
                    if stop:
                        return
                    if take(share_number, piece):
                        with lock:
                            give()
            with lock:
                give()
        except BaseException:
            stop = True
            raise

    threads = max(1, min(os.cpu_count() or 1, MAX_THREADS, max_workers))
    with ThreadPoolExecutor(threads) as pool:
        workers = [pool.submit(work) for _ in range(threads)]
        try:
            while wait(workers, SECONDS_BETWEEN_REPORTS).not_done:
                progress(min(math.floor(done * 100) / 100, 0.99))
        finally:
            stop = True
    for worker in workers:
        if error := worker.exception():
            raise error.with_traceback(None)  # the frames of a worker hold counts
    progress(1.0)


def equal_slices(rows: int) -> Iterator[tuple[float, slice]]:
    """Cut rows in memory into a fixed number of slices, so that progress does not reveal the number of rows."""
    for k in range(SLICES_PER_TABLE):
        yield 1 / SLICES_PER_TABLE, slice(rows * k // SLICES_PER_TABLE, rows * (k + 1) // SLICES_PER_TABLE)

"""Counting shares of the rows on all cores, in bounded memory: what every local engine has in common."""

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
from veilmap.engines.tally import Cells, Columns, Question, cells_of, only

if TYPE_CHECKING:
    from veilmap.engines import Held

Choose: TypeAlias = Callable[[int], Flags]
"""Which of so many rows are looked at."""


class Piece(NamedTuple):
    """Some rows."""

    columns: Columns
    ids: Any = None  # whose they are: an Arrow array, null for nobody


Batch: TypeAlias = Callable[[], Iterable[Piece]]
"""Reads some of the rows, piece by piece: called, and followed to its end, on a worker thread."""

Share: TypeAlias = tuple[float, Batch]
"""A batch, and the part of the whole input that has been read once it is counted."""

Worker: TypeAlias = tuple[Callable[[int, Piece], bool], Callable[[], None]]
"""What one thread does with a piece of a share (true: it must give soon), and how it gives what it has."""

MOST_THREADS = 32
ROWS_A_SUM = 1 << 31  # and a piece has fewer, so that 32 bits are enough between sums
COUNT_BYTES = 1 << 28  # every thread has counts of its own; all of them together take no more than this
EQUAL_PARTS = 32
SECONDS_A_REPORT = 0.1


class LocalEngine:
    """An engine that hands out its rows in shares, to be counted on this machine."""

    __slots__ = ()

    again = True
    bounded = False
    spills: ClassVar[bool] = False
    id_type: Any  # the Arrow type that ids are compared in, None without a unit

    def shares(self) -> Iterator[Share]:
        raise NotImplementedError

    def quiet(self) -> contextlib.AbstractContextManager[None]:
        """Held while rows are read."""
        return contextlib.nullcontext()

    def tally(self, domain: Domain, question: Question, progress: Callable[[float], None]) -> Ints:
        with self.quiet():
            return tally_batches(domain, question, self.shares(), progress)

    def rows(
        self, domain: Domain, progress: Callable[[float], None], choose: Choose | None = None
    ) -> tuple[list[Ints], Ints | None]:
        with self.quiet():
            return collect_rows(domain, self.shares(), self.id_type, progress, choose)

    def held(self, domain: Domain, progress: Callable[[float], None]) -> Held:
        """Files and streams may have more rows than fit in memory; what is in memory does."""
        if not self.spills:
            return self.rows(domain, progress)[0]
        from veilmap.engines.spill import hold

        with self.quiet():
            return hold(domain, self.shares(), progress)


def tally_batches(
    domain: Domain, question: Question, shares: Iterable[Share], progress: Callable[[float], None]
) -> Ints:
    """Exact counts. Shares are taken one at a time; a few are in memory at once, one a thread."""
    total = np.zeros(question.size, np.int64)

    def start() -> Worker:
        # Half the bytes, so that more of them stay in the cache; emptied before one could overflow.
        counts, rows = np.zeros(question.size, np.uint32), 0

        def take(place: int, piece: Piece) -> bool:
            nonlocal rows
            question.add(domain, piece.columns, counts)
            rows += len(piece.columns[0])
            return rows >= ROWS_A_SUM

        def give() -> None:
            nonlocal rows
            np.add(total, counts, out=total)
            counts[:] = rows = 0

        return take, give

    work_through(shares, start, COUNT_BYTES // (4 * max(question.size, 1)), progress)
    return total


def collect_rows(
    domain: Domain, shares: Iterable[Share], id_type: Any, progress: Callable[[float], None], choose: Choose | None
) -> tuple[list[Ints], Ints | None]:
    """The cells of all rows that are not dropped, one array an axis, in the order of the input; and whose they are."""
    found: list[tuple[int, Cells, Any]] = []

    def start() -> Worker:
        mine: list[tuple[int, Cells, Any]] = []

        def take(place: int, piece: Piece) -> bool:
            (cells, kept), ids = cells_of(domain, piece.columns), None
            if id_type is not None:
                ids, kept = keep_known(piece.ids, kept)
            cells = only(cells, kept)
            mine.append((place, cells if choose is None else only(cells, choose(len(cells[0]))), ids))
            return False

        return take, lambda: found.extend(mine)

    if id_type is not None:  # pyarrow is loaded only for those who need it
        from veilmap.engines.units import encode, keep_known
    work_through(shares, start, MOST_THREADS if choose is None else 1, progress)  # chance has an order
    found.sort(key=lambda piece: piece[0])  # stable: pieces of one share are in order already
    codes = None if id_type is None else encode([ids for _, _, ids in found], id_type)
    pieces = [cells for _, cells, _ in found]
    found.clear()  # the ids take room, and are of no more use
    return joined(pieces, domain.dimensions), codes


def joined(pieces: Iterable[Cells], axes: int) -> list[Ints]:
    """One array an axis, of pieces that are in order, or of none."""
    return [np.concatenate(axis) for axis in zip(*pieces, strict=True)] or [np.zeros(0, np.int64) for _ in range(axes)]


def work_through(
    shares: Iterable[Share], start: Callable[[], Worker], most: int, progress: Callable[[float], None]
) -> None:
    """Hand every piece of every share to one worker's ``take``; call its ``give``, alone, when it asks and at the end.

    ``progress`` is called on the caller's thread, by the clock and in whole percents: it says how long the work
    takes, as a clock would, and no more of how many rows there are.
    """
    supply, lock = enumerate(shares), threading.Lock()
    part, stop = 0.0, False

    def next_share(last: float) -> tuple[int, Share] | None:
        nonlocal part
        with lock:
            part += last
            return None if stop else next(supply, None)

    def work() -> None:
        nonlocal stop
        read, (take, give) = 0.0, start()
        try:
            while found := next_share(read):
                place, (read, batch) = found
                for piece in batch():
                    if stop:
                        return
                    if take(place, piece):
                        with lock:
                            give()
            with lock:
                give()
        except BaseException:
            stop = True
            raise

    threads = max(1, min(os.cpu_count() or 1, MOST_THREADS, most))
    with ThreadPoolExecutor(threads) as pool:
        workers = [pool.submit(work) for _ in range(threads)]
        try:
            while wait(workers, SECONDS_A_REPORT).not_done:
                progress(min(math.floor(part * 100) / 100, 0.99))
        finally:
            stop = True
    for worker in workers:
        if error := worker.exception():
            raise error.with_traceback(None)  # the frames of a worker hold counts
    progress(1.0)


def equal_parts(rows: int) -> Iterator[tuple[float, slice]]:
    """Rows that lie in memory, always in as many parts: then progress says nothing of how many they are."""
    for k in range(EQUAL_PARTS):
        yield 1 / EQUAL_PARTS, slice(rows * k // EQUAL_PARTS, rows * (k + 1) // EQUAL_PARTS)

"""Counting shares of the rows on all cores, in bounded memory: what every local engine has in common."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilmap.domain import Domain
from veilmap.kernels.counting import add_axis, tally
from veilmap.tree import RegularTree

Columns: TypeAlias = Sequence[NDArray[np.generic]]
"""One numeric array an axis, all of one length; NaN where there is no value."""

Batch: TypeAlias = Callable[[], Iterable[Columns]]
"""Reads some of the rows, piece by piece: called, and followed to its end, on a worker thread."""

Share: TypeAlias = tuple[float, Batch]
"""A batch, and the part of the whole input that has been read once it is counted."""

ROWS_AT_ONCE = 1 << 15  # a chunk's indices stay in the cache between the axes
ROWS_A_SUM = 1 << 31  # and a piece has fewer, so that 32 bits are enough between sums
COUNT_BYTES = 1 << 28  # every thread has counts of its own; all of them together take no more than this
EQUAL_PARTS = 32
SECONDS_A_REPORT = 0.1


def count_batches(
    domain: Domain, tree: RegularTree, shares: Iterable[Share], progress: Callable[[float], None]
) -> NDArray[np.int64]:
    """Exact leaf counts. Shares are taken one at a time; a few are in memory at once, one a thread.

    ``progress`` is called on the caller's thread, by the clock and in whole percents: it says how long the work
    takes, as a clock would, and no more of how many rows there are.
    """
    offsets = tree.offsets(tree.height)
    shift = domain.bits - tree.height
    leaves = tree.level(tree.height).stop - tree.level(tree.height).start
    supply, lock = iter(shares), threading.Lock()
    total = np.zeros(leaves, np.int64)
    part, stop = 0.0, False

    def take(last: float) -> Share | None:
        nonlocal part
        with lock:
            part += last
            return None if stop else next(supply, None)

    def add(counts: NDArray[np.uint32]) -> None:
        with lock:
            np.add(total, counts, out=total)

    def work() -> None:
        nonlocal stop
        # Half the bytes, so that more of them stay in the cache; emptied before one could overflow.
        counts, rows, read = np.zeros(leaves, np.uint32), 0, 0.0
        try:
            while share := take(read):
                read, batch = share
                for columns in batch():
                    if stop:
                        return
                    _count_columns(domain, columns, offsets, shift, counts)
                    rows += len(columns[0])
                    if rows >= ROWS_A_SUM:
                        add(counts)
                        counts[:] = rows = 0
            if rows:
                add(counts)
        except BaseException:
            stop = True
            raise

    threads = max(1, min(os.cpu_count() or 1, 8, COUNT_BYTES // (4 * leaves)))
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
    return total


def equal_parts(rows: int) -> Iterator[tuple[float, slice]]:
    """Rows that lie in memory, always in as many parts: then progress says nothing of how many they are."""
    for k in range(EQUAL_PARTS):
        yield 1 / EQUAL_PARTS, slice(rows * k // EQUAL_PARTS, rows * (k + 1) // EQUAL_PARTS)


def _count_columns(
    domain: Domain,
    columns: Columns,
    offsets: tuple[NDArray[np.int64], ...],
    shift: int,
    counts: NDArray[Any],
) -> None:
    rows = len(columns[0])
    for start in range(0, rows, ROWS_AT_ONCE):
        index = np.zeros(min(ROWS_AT_ONCE, rows - start), np.int64)
        for a, axis in enumerate(domain.axes):
            with np.errstate(all="ignore"):  # numpy would warn of odd values
                values = np.ascontiguousarray(columns[a][start : start + ROWS_AT_ONCE], dtype=np.float64)
            add_axis(values, axis.lo, axis.hi, domain.scale(a), domain.side, shift, offsets[a], index)
        tally(index, counts)

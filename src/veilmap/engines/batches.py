"""Counting batches of columns on all cores, in bounded memory: what every local engine shares."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilmap.domain import Domain
from veilmap.kernels.counting import add_axis, tally
from veilmap.tree import RegularTree

Columns: TypeAlias = Sequence[NDArray[np.generic]]
"""One numeric array an axis, all of one length; NaN where there is no value."""

Batch: TypeAlias = Callable[[], Columns]
"""Reads one batch of rows: called on a worker thread."""

ROWS_AT_ONCE = 1 << 15  # a chunk's indices stay in the cache between the axes


def count_batches(domain: Domain, tree: RegularTree, batches: Iterable[Batch]) -> NDArray[np.int64]:
    """Exact leaf counts. Batches are taken one at a time; a few are in memory at once, one a thread."""
    offsets = tree.offsets(tree.height)
    shift = domain.bits - tree.height
    leaves = tree.level(tree.height)
    supply, lock = iter(batches), threading.Lock()

    def work() -> NDArray[np.int64]:
        counts = np.zeros(leaves.stop - leaves.start, np.int64)
        while True:
            with lock:
                batch = next(supply, None)
            if batch is None:
                return counts
            _count_columns(domain, batch(), offsets, shift, counts)

    threads = min(os.cpu_count() or 1, 8)
    with ThreadPoolExecutor(threads) as pool:
        workers = [pool.submit(work) for _ in range(threads)]
        total = workers[0].result()
        for worker in workers[1:]:
            total += worker.result()
    return total


def _count_columns(
    domain: Domain,
    columns: Columns,
    offsets: tuple[NDArray[np.int64], ...],
    shift: int,
    counts: NDArray[np.int64],
) -> None:
    rows = len(columns[0])
    for start in range(0, rows, ROWS_AT_ONCE):
        index = np.zeros(min(ROWS_AT_ONCE, rows - start), np.int64)
        for a, axis in enumerate(domain.axes):
            values = np.ascontiguousarray(columns[a][start : start + ROWS_AT_ONCE], dtype=np.float64)
            add_axis(values, axis.lo, axis.hi, domain.scale(a), domain.side, shift, offsets[a], index)
        tally(index, counts)

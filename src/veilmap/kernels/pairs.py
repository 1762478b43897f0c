"""Records in leaves, and records that are close to each other."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@njit(cache=True, nogil=True)
def find_leaves(first_child: Ints, lo: Ints, hi: Ints, cells: Ints, leaf: Ints) -> None:
    """The leaf whose box holds each row of cells; -1 for a row with a cell of -1."""
    for i in range(len(cells)):
        v = 0 if cells[i].min() >= 0 else -1
        while v >= 0 and first_child[v] < first_child[v + 1]:
            here = -1
            for c in range(first_child[v], first_child[v + 1]):
                inside = True
                for k in range(cells.shape[1]):
                    inside = inside and lo[c, k] <= cells[i, k] < hi[c, k]
                if inside:
                    here = c
                    break
            v = here
        leaf[i] = v


@njit(cache=True, nogil=True)
def sweep_pairs(left: Floats, right: Floats, order: Ints, apart: Floats, out: Ints) -> int:
    """Fill ``out`` with the pairs of rows no farther apart than ``apart`` along any axis; how many there are.

    ``order`` sorts the right rows along the first axis. Only as many as ``out`` has room for are written.
    """
    first = right[order, 0]
    found = 0
    for i in range(len(left)):
        start = np.searchsorted(first, left[i, 0] - apart[0] * (1 + 1e-9) - 1e-300)
        for j in range(start, len(order)):
            r = order[j]
            if right[r, 0] - left[i, 0] > apart[0]:
                break
            close = True
            for k in range(left.shape[1]):
                close = close and abs(left[i, k] - right[r, k]) <= apart[k]
            if close:
                if found < len(out):
                    out[found, 0] = i
                    out[found, 1] = r
                found += 1
    return found


def close_pairs(left: Floats, right: Floats, apart: Floats) -> Ints:
    """All pairs of rows that match."""
    order = np.argsort(right[:, 0], kind="stable")
    out = np.empty((1024, 2), np.int64)
    while (found := sweep_pairs(left, right, order, apart, out)) > len(out):
        out = np.empty((found, 2), np.int64)
    return out[:found]

"""Kernels that find the leaf of each record, and pairs of boxes or records within thresholds of each other."""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Ints


@njit(cache=True, nogil=True)
def find_leaves(first_child: Ints, lo: Ints, hi: Ints, cells: Ints, leaf: Ints) -> None:
    """Fill ``leaf`` with the leaf whose box contains each row of cells; -1 for a row with a cell of -1."""
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
def sweep_boxes(lo: Ints, hi: Ints, right_lo: Ints, right_hi: Ints, apart: Ints, out: Ints) -> int:
    """Fill ``out`` with the pairs of boxes at most ``apart`` from each other along every axis, and return their number.

    Ends are included. The right boxes must be sorted by their lower end along the first axis. If there are more pairs
    than ``out`` has room for, the rest is counted but not written.
    """
    first, widest = right_lo[:, 0].copy(), (right_hi[:, 0] - right_lo[:, 0]).max() if len(right_lo) else 0
    found = 0
    for i in range(len(lo)):
        for j in range(np.searchsorted(first, lo[i, 0] - apart[0] - widest), len(right_lo)):
            if right_lo[j, 0] - hi[i, 0] > apart[0]:
                break
            close = True
            for k in range(lo.shape[1]):
                close = close and lo[i, k] - right_hi[j, k] <= apart[k] and right_lo[j, k] - hi[i, k] <= apart[k]
            if close:
                if found < len(out):
                    out[found, 0] = i
                    out[found, 1] = j
                found += 1
    return found


def close_boxes(lo: Ints, hi: Ints, right_lo: Ints, right_hi: Ints, apart: Ints) -> Ints:
    """Return all pairs of boxes that may contain a match, sorted."""
    order = np.argsort(right_lo[:, 0], kind="stable")
    lo, hi, right_lo, right_hi = (np.ascontiguousarray(ends) for ends in (lo, hi, right_lo[order], right_hi[order]))
    out = np.empty((1024, 2), np.int64)
    while (found := sweep_boxes(lo, hi, right_lo, right_hi, apart, out)) > len(out):
        out = np.empty((found, 2), np.int64)
    left, right = out[:found, 0], order[out[:found, 1]]
    return np.stack([left, right], axis=1)[np.lexsort((right, left))]


def close_pairs(left: Ints, right: Ints, apart: Ints) -> Ints:
    """Return all pairs of records that match, treating each record as a box of one cell."""
    return close_boxes(left, left, right, right, apart)

"""Medians and sums of positions of the sorted values of many boxes."""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Ints
from veilmap.kernels.median_ranks import gap_of_rank, nearest_rank


@njit(cache=True, nogil=True)
def find_medians(values: Ints, start: Ints, lo: Ints, hi: Ints, cut: Ints) -> None:
    """Find the cut of each box that divides its values most evenly: at the median, or midway between two values."""
    for v in range(len(lo)):
        if hi[v] - lo[v] < 2:
            cut[v] = hi[v]
            continue
        run = values[start[v] : start[v + 1]]
        r = nearest_rank(run, lo[v], hi[v])
        first, gap = gap_of_rank(run, lo[v], hi[v], r)
        side = np.sign(2 * r - len(run))  # of equally even cuts, take the one closest to the middle of the list
        cut[v] = first + ((gap - 1) // 2 if side == 0 else gap - 1 if side < 0 else 0)


@njit(cache=True, nogil=True)
def sum_positions(values: Ints, start: Ints, lo: Ints, hi: Ints, steps: int, sums: Ints) -> None:
    """Sum the positions floor((value − lo) · steps / width), each from 0 to steps − 1, of each box."""
    for v in range(len(lo)):
        shift = 10 if hi[v] - lo[v] > 1 << 52 else 0  # so that the product fits 64 bits; positions stay in their range
        width = ((hi[v] - lo[v] - 1) >> shift) + 1
        total = 0
        for i in range(start[v], start[v + 1]):
            total += ((values[i] - lo[v]) >> shift) * steps // width
        sums[v] = total

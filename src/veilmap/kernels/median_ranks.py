"""Ranks of the cuts of a box, weighted by how evenly they divide its sorted values."""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Ints

RELATIVE_MARGIN = 1e-9  # far above the relative error of a weight as a float
MAX_EXPONENT = 100.0  # beyond it, a weight is below 1 for every gap and scale, and exp is not computed
MIN_PRECISE_PROPOSAL = 1 << 22  # a proposal of at least this equals its weight to within 2^-20


@njit(cache=True, nogil=True)
def gap_of_rank(values: Ints, lo: int, hi: int, r: int) -> tuple[int, int]:
    """Return the first and the number of the cuts c, lo < c < hi, that have r of the sorted ``values`` below them."""
    first = (lo if r == 0 else values[r - 1]) + 1
    last = hi - 1 if r == len(values) else min(values[r], hi - 1)
    return first, max(last - first + 1, 0)


@njit(cache=True, nogil=True)
def nearest_rank(values: Ints, lo: int, hi: int) -> int:
    """Return the rank closest to n/2 that has cuts, the lower one of two. It exists because hi - lo ≥ 2."""
    low = len(values) // 2
    high = len(values) - low
    while gap_of_rank(values, lo, hi, low)[1] == 0:
        if gap_of_rank(values, lo, hi, high)[1] > 0:
            return high
        low, high = low - 1, high + 1
    return low


@njit(cache=True, nogil=True)
def weigh_ranks(values: Ints, start: Ints, lo: Ints, hi: Ints, rate: float, running: Ints, about: Ints) -> None:
    """Compute the proposals of the ranks of each box. Box v has ``values[start[v] : start[v + 1]]`` in [lo[v], hi[v]).

    A rank r with g cuts has the weight W = g · exp(−rate · (|2r − n| − d0)), where d0 is the smallest |2r − n| of a
    rank that has cuts. Its proposal is an integer m > W · 2^power; a rank without cuts has none.
    ``running[start[v] + v + r]`` becomes the sum of the proposals up to r, and ``about[v]`` the sum of all proposals
    (below 2^62), d0 and power.
    """
    mass = np.empty(max(0, np.max(np.diff(start))) + 1 if len(lo) else 0)
    for v in range(len(lo)):
        if hi[v] - lo[v] < 2:
            about[v, :] = 0
            continue
        run = values[start[v] : start[v + 1]]
        n = len(run)
        nearest = abs(2 * nearest_rank(run, lo[v], hi[v]) - n)
        total = 0.0
        for r in range(n + 1):
            gap = gap_of_rank(run, lo[v], hi[v], r)[1]
            exponent = rate * (abs(2 * r - n) - nearest)
            if gap == 0:
                mass[r] = -1.0
            elif exponent < MAX_EXPONENT:
                mass[r] = gap * np.exp(-exponent)
                total += mass[r]
            else:
                mass[r] = 0.0
        power = 61 - int(np.ceil(np.log2(total)))
        factor = 2.0**power * (1 + RELATIVE_MARGIN)
        whole = 0
        for r in range(n + 1):
            if mass[r] >= 0:
                whole += int(mass[r] * factor) + 2
            running[start[v] + v + r] = whole
        about[v, 0], about[v, 1], about[v, 2] = whole, nearest, power


@njit(cache=True, nogil=True)
def pick_ranks(
    values: Ints, start: Ints, lo: Ints, hi: Ints, running: Ints, boxes: Ints, at: Ints, picked: Ints
) -> None:
    """Find the rank r of box ``boxes[k]`` whose range of running sums contains ``at[k]``.

    ``picked[k]`` becomes its first cut, its number of cuts, its proposal and |2r − n|.
    """
    for k in range(len(boxes)):
        v = boxes[k]
        run, sums = values[start[v] : start[v + 1]], running[start[v] + v : start[v + 1] + v + 1]
        r = int(np.searchsorted(sums, at[k], side="right"))
        picked[k, 0], picked[k, 1] = gap_of_rank(run, lo[v], hi[v], r)
        picked[k, 2] = sums[r] - (sums[r - 1] if r > 0 else 0)
        picked[k, 3] = abs(2 * r - len(run))

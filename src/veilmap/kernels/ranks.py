"""Cuts of sorted values, weighed by how evenly they divide them."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]

SURE = 1e-9  # far above the relative error of a weight as a float
FINE = 1 << 22  # a proposal from this on is its weight to within 2^-20
PICKS = 16  # random words for a choice; more are rarely needed


@njit(cache=True, nogil=True)
def gap_of_rank(values: Ints, lo: int, hi: int, r: int) -> tuple[int, int]:
    """Of the cuts c in lo < c < hi, those with r of the sorted ``values`` below: the first, and how many."""
    first = (lo if r == 0 else values[r - 1]) + 1
    last = hi - 1 if r == len(values) else min(values[r], hi - 1)
    return first, max(last - first + 1, 0)


@njit(cache=True, nogil=True)
def below(limit: int, words: Ints) -> int:
    """A uniform integer below ``limit`` from uniform 64-bit words, -1 if they run out."""
    mask = 1
    while mask < limit:
        mask <<= 1
    for k in range(len(words)):
        at = int(words[k]) & (mask - 1)
        if at < limit:
            return at
    return -1


@njit(cache=True, nogil=True)
def propose_cut(values: Ints, lo: int, hi: int, rate: float, words: Ints) -> tuple[int, int, int, int, int]:
    """Propose one cut. Needs hi - lo ≥ 2.

    A cut of rank r has weight w_r = exp(−rate · (|2r − n| − d0)), where d0 is the least |2r − n| of a rank that
    has cuts. It is proposed with the integer weight m_r > w_r · 2^power, so that accepting with probability
    w_r · 2^power / m_r gives exactly the cuts' true weights. One uniform number picks both the rank and the cut:
    if the words run out before it is found, that says nothing about either.

    Returns cut, m_r, |2r − n| − d0, power; and 1 if the words ran out, else 0.
    """
    n = len(values)
    nearest = n + 1
    for r in range(n + 1):
        if gap_of_rank(values, lo, hi, r)[1] > 0:
            nearest = min(nearest, abs(2 * r - n))
    weight = np.zeros(n + 1)
    total = 0.0
    for r in range(n + 1):
        gap = gap_of_rank(values, lo, hi, r)[1]
        if gap > 0:
            weight[r] = np.exp(-rate * (abs(2 * r - n) - nearest))
            total += gap * weight[r]
    power = 61 - int(np.ceil(np.log2(total)))  # all proposals together stay below 2^62
    factor = 2.0**power * (1 + SURE)
    running = np.zeros(n + 1, np.int64)
    whole = 0
    for r in range(n + 1):
        gap = gap_of_rank(values, lo, hi, r)[1]
        if gap > 0:
            whole += gap * (int(weight[r] * factor) + 2)
        running[r] = whole
    at = below(whole, words)
    if at < 0:
        return 0, 0, 0, power, 1
    r = int(np.searchsorted(running, at, side="right"))
    before = running[r - 1] if r > 0 else 0
    first, gap = gap_of_rank(values, lo, hi, r)
    proposal = (running[r] - before) // gap
    return first + (at - before) // proposal, proposal, abs(2 * r - n) - nearest, power, 0


@njit(cache=True, nogil=True)
def propose_cuts(
    values: Ints, start: Ints, lo: Ints, hi: Ints, rate: float, words: Ints, cut: Ints, about: Ints
) -> None:
    """One proposal for each run ``values[start[v] : start[v + 1]]`` of sorted values, with the box [lo[v], hi[v]).

    ``about`` gets proposal, distance, power and whether the words ran out. A box of fewer than two cells has
    no cut: it keeps all on the left.
    """
    for v in range(len(lo)):
        if hi[v] - lo[v] < 2:
            cut[v] = hi[v]
            about[v, :] = 0
            continue
        run = values[start[v] : start[v + 1]]
        cut[v], about[v, 0], about[v, 1], about[v, 2], about[v, 3] = propose_cut(run, lo[v], hi[v], rate, words[v])

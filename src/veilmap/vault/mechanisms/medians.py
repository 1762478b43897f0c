"""The closed family of private medians: where to cut boxes in about equal halves. Proof: proofs/medians.md.

Cuts are grid lines: the cut c sends cells below c to one side, all others to the other. Everywhere
``values[start[v] : start[v + 1]]`` are the sorted cells of box v, which spans [lo[v], hi[v]); a box of fewer
than two cells has no cut, and keeps all on the left.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from veilmap.arrays import Ints
from veilmap.errors import BadInput, near_misses
from veilmap.kernels import box_medians
from veilmap.vault.entropy import Keys
from veilmap.vault.mechanisms.exponential import exponential_cuts
from veilmap.vault.mechanisms.laplace import discrete_laplace, exp_bounds
from veilmap.vault.mechanisms.smooth import smooth_cuts

MEDIANS = ("exponential", "exponential-paper", "smooth-sensitivity", "noisy-mean")
STEPS = 1024  # positions of a value within its box, for sums; and cells of the cell-based median


def private_cuts(
    mechanism: str, values: Ints, start: Ints, lo: Ints, hi: Ints, epsilon: Fraction, delta: Fraction, keys: Keys
) -> Ints:
    """One private cut of each box, by one of ``MEDIANS``.

    Guarantees (neighbours: add or remove one row): all cuts together are (ε, δ)-differentially private, with δ = 0
    for all but ``smooth-sensitivity``.
    """
    if mechanism == "smooth-sensitivity":
        return smooth_cuts(values, start, lo, hi, epsilon, delta, keys)
    if mechanism == "noisy-mean":
        return mean_cuts(values, start, lo, hi, epsilon, keys)
    if mechanism in ("exponential", "exponential-paper"):
        sharpness = epsilon / 2 if mechanism == "exponential-paper" else epsilon  # the paper's is valid, and blunter
        return exponential_cuts(values, start, lo, hi, sharpness, keys)
    raise BadInput(f"There is no mechanism {mechanism!r} for medians. {near_misses(str(mechanism), MEDIANS)}")


def group_delta(epsilon: Fraction, delta: Fraction, rows: int) -> Fraction:
    """Return the δ for single rows at ε/rows that is worth δ for a group of rows.

    ε-private for a row is kε-private for k rows, and δ grows to k e^(kε) δ at most.
    """
    return delta / (rows * exp_bounds(epsilon, 30)[1]) if rows > 1 else delta


def mean_cuts(values: Ints, start: Ints, lo: Ints, hi: Ints, epsilon: Fraction, keys: Keys) -> Ints:
    """One cut of each box at a noisy mean: Inan et al.'s stand-in for the median.

    Guarantees (neighbours: add or remove one row):

    - A count changes by at most 1, and a sum of positions 0 … 1023 by at most 1023.
    - Each has noise for ε/2. The cut is made of these two noisy numbers and the box.
    """
    sums = np.empty(len(lo), np.int64)
    box_medians.sum_positions(values, start, lo, hi, STEPS, sums)
    count = np.diff(start) + discrete_laplace(epsilon / 2, len(lo), keys)
    total = sums + discrete_laplace(epsilon / 2 / (STEPS - 1), len(lo), keys)
    return mean_cut(count, total, lo, hi, STEPS)


def mean_cut(count: Ints, total: Ints, lo: Ints, hi: Ints, steps: int) -> Ints:
    """The grid line next to the mean of noisy positions; the middle of a box whose noisy count is below 1."""
    part = np.where(count < 1, 0.5, (total / np.maximum(count, 1) + 0.5) / steps)
    cut = lo + np.rint((hi - lo) * np.clip(part, 0, 1)).astype(np.int64)
    return np.where(hi - lo < 2, hi, np.clip(cut, lo + 1, hi - 1))


def exact_cuts(values: Ints, start: Ints, lo: Ints, hi: Ints) -> Ints:
    """The true medians. NOT private: for yardsticks that say so, and for nothing else."""
    cut = np.empty(len(lo), np.int64)
    box_medians.find_medians(values, start, lo, hi, cut)
    return cut


def cell_median(cells: Ints, side: int, epsilon: Fraction, keys: Keys) -> int:
    """The cut of one box [0, side) by the noisy counts of equal cells.

    Guarantees (neighbours: add or remove one row): one count changes, by 1; noise of scale 1/ε on each costs ε once.
    """
    steps = min(STEPS, side)
    counts = np.bincount(cells * steps // side, minlength=steps) + discrete_laplace(epsilon, steps, keys)
    return cell_cut(counts, 0, side)


def cell_cut(counts: Ints, lo: int, hi: int) -> int:
    """A side of the first of equal cells of [lo, hi) at which the running sum of noisy counts reaches half of all."""
    if len(counts) < 2:
        return hi if hi - lo < 2 else (lo + hi) // 2
    running = np.concatenate([[0], np.cumsum(counts)])
    over = 2 * running - running[-1]
    k = int(np.argmax(over[1:] >= 0)) + 1  # of all sums the last is over, unless it is negative
    k = int(np.clip(k - (-over[k - 1] < over[k]), 1, len(counts) - 1))
    return lo - (-k * (hi - lo) // len(counts))  # the first value with (value − lo) · cells ≥ k · width

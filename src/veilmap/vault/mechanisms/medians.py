"""The closed family of private medians, which cut boxes into parts of about equal counts. Proof: proofs/medians.md.

Cuts are grid lines: the cut c sends cells below c to one side and all others to the other side. In all functions,
``values[start[v] : start[v + 1]]`` are the sorted cells of box v, which spans [lo[v], hi[v]). A box of fewer than two
cells cannot be cut; its cut is hi, so all rows stay in the first part.
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
POSITIONS_PER_BOX = 1024  # of the noisy mean; also the number of cells of the cell-based median


def private_cuts(
    mechanism: str, values: Ints, start: Ints, lo: Ints, hi: Ints, epsilon: Fraction, delta: Fraction, keys: Keys
) -> Ints:
    """Return one private cut per box, by one of the ``MEDIANS``.

    Guarantees (neighbours: add or remove one row): all cuts together are (ε, δ)-differentially private, with δ = 0
    for all but ``smooth-sensitivity``.
    """
    if mechanism == "smooth-sensitivity":
        return smooth_cuts(values, start, lo, hi, epsilon, delta, keys)
    if mechanism == "noisy-mean":
        return mean_cuts(values, start, lo, hi, epsilon, keys)
    if mechanism in ("exponential", "exponential-paper"):
        weight = epsilon / 2 if mechanism == "exponential-paper" else epsilon  # the paper's weight is half as sharp
        return exponential_cuts(values, start, lo, hi, weight, keys)
    raise BadInput(f"Unknown mechanism for medians: {mechanism!r}. {near_misses(str(mechanism), MEDIANS)}")


def group_delta(epsilon: Fraction, delta: Fraction, rows: int) -> Fraction:
    """Return the δ per row that gives ``delta`` for a group of rows, if each row costs ε/rows.

    If one row costs (ε, δ), then k rows cost at most (kε, k e^(kε) δ).
    """
    return delta / (rows * exp_bounds(epsilon, 30)[1]) if rows > 1 else delta


def mean_cuts(values: Ints, start: Ints, lo: Ints, hi: Ints, epsilon: Fraction, keys: Keys) -> Ints:
    """Return one cut per box at a noisy mean, which Inan et al. use in place of the median.

    Guarantees (neighbours: add or remove one row):

    - A count changes by at most 1, and a sum of positions 0 … 1023 by at most 1023.
    - Each gets noise for ε/2. The cut is a function of these two noisy numbers and the box.
    """
    sums = np.empty(len(lo), np.int64)
    box_medians.sum_positions(values, start, lo, hi, POSITIONS_PER_BOX, sums)
    count = np.diff(start) + discrete_laplace(epsilon / 2, len(lo), keys)
    total = sums + discrete_laplace(epsilon / 2 / (POSITIONS_PER_BOX - 1), len(lo), keys)
    return mean_cut(count, total, lo, hi, POSITIONS_PER_BOX)


def mean_cut(count: Ints, total: Ints, lo: Ints, hi: Ints, steps: int) -> Ints:
    """Return the grid line nearest to the noisy mean position, or the middle of a box whose noisy count is below 1."""
    fraction = np.where(count < 1, 0.5, (total / np.maximum(count, 1) + 0.5) / steps)
    cut = lo + np.rint((hi - lo) * np.clip(fraction, 0, 1)).astype(np.int64)
    return np.where(hi - lo < 2, hi, np.clip(cut, lo + 1, hi - 1))


def exact_cuts(values: Ints, start: Ints, lo: Ints, hi: Ints) -> Ints:
    """Return the exact medians. NOT private: only for non-private baselines, which are marked as such."""
    cut = np.empty(len(lo), np.int64)
    box_medians.find_medians(values, start, lo, hi, cut)
    return cut


def cell_median(cells: Ints, side: int, epsilon: Fraction, keys: Keys) -> int:
    """Return the cut of one box [0, side), found from the noisy counts of equal cells.

    Guarantees (neighbours: add or remove one row): one count changes by 1, so noise of scale 1/ε on each costs ε once.
    """
    number = min(POSITIONS_PER_BOX, side)
    counts = np.bincount(cells * number // side, minlength=number) + discrete_laplace(epsilon, number, keys)
    return cell_cut(counts, 0, side)


def cell_cut(counts: Ints, lo: int, hi: int) -> int:
    """Return the edge closer to half of the first equal cell of [lo, hi) where the running noisy count reaches half."""
    if len(counts) < 2:
        return hi if hi - lo < 2 else (lo + hi) // 2
    running = np.concatenate([[0], np.cumsum(counts)])
    over = 2 * running - running[-1]
    k = int(np.argmax(over[1:] >= 0)) + 1  # the last sum reaches half of the total, unless the total is negative
    k = int(np.clip(k - (-over[k - 1] < over[k]), 1, len(counts) - 1))
    return lo - (-k * (hi - lo) // len(counts))  # the smallest cut with (cut − lo) · cells ≥ k · width

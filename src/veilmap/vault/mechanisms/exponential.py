"""Private medians by the exponential mechanism, drawn exactly. Proof: proofs/medians.md.

Cuts are grid lines: the cut c sends cells below c to one side, all others to the other.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from veilmap.arrays import Ints
from veilmap.kernels import median_ranks
from veilmap.vault.entropy import Keys, RandomBits
from veilmap.vault.mechanisms.laplace import Bounds, Probability, exp_bounds, is_below


def exponential_cuts(values: Ints, start: Ints, lo: Ints, hi: Ints, epsilon: Fraction, keys: Keys) -> Ints:
    """One cut of each box by the exponential mechanism with the score −|rank − n/2|.

    ``values[start[v] : start[v + 1]]`` are the sorted cells of box v, which spans [lo[v], hi[v]).

    Guarantees (neighbours: add or remove one row):

    - A box's cut c in lo < c < hi has exactly the probability ∝ exp(−ε · |#(values < c) − n/2|).
    - The score changes by at most 1/2, so the cut is ε-differentially private.
    - Boxes do not share rows, so cutting all of them costs ε once.
    """
    rate, bits = epsilon / 2, RandomBits(keys.fresh())  # the rate of |2 rank − n|
    running, about = np.empty(start[-1] + len(lo), np.int64), np.empty((len(lo), 3), np.int64)
    median_ranks.weigh_ranks(values, start, lo, hi, float(rate), running, about)
    cut, open_boxes = np.array(hi), np.flatnonzero(hi - lo >= 2)
    while len(open_boxes):
        whole, nearest, power = about[open_boxes].T
        picked = np.empty((len(open_boxes), 4), np.int64)
        median_ranks.pick_ranks(values, start, lo, hi, running, open_boxes, uniform_below(whole, bits), picked)
        first, gap, proposal, distance = picked.T
        # A fine proposal is accepted with a probability above 1 − 2^-20, so 62 random bits below that settle it.
        # Any other is settled to the last bit; and if rejected, its box draws anew.
        luck = (bits.words(len(open_boxes), "<u8") >> np.uint64(2)).astype(np.int64)
        accepted = (luck < 2**62 - 2**42) & (proposal >= median_ranks.FINE)
        for k in np.flatnonzero(~accepted):
            exponent = rate * int(distance[k] - nearest[k])
            chance = _acceptance(int(gap[k]), int(proposal[k]), exponent, int(power[k]))
            accepted[k] = is_below(int(luck[k]), 62, chance, bits)
        # The place within the gap is drawn only now, and until it succeeds: it cannot bend the ranks.
        cut[open_boxes[accepted]] = first[accepted] + uniform_below(gap[accepted], bits)
        open_boxes = open_boxes[~accepted]
    return cut


def uniform_below(limits: Ints, bits: RandomBits) -> Ints:
    """A uniform integer from 0 to limit − 1 for each limit, 1 to 2^62: masked words, drawn anew until they fit."""
    mask = limits - 1
    for shift in (1, 2, 4, 8, 16, 32):
        mask = mask | (mask >> shift)
    out, todo = np.empty(len(limits), np.int64), np.arange(len(limits))
    while len(todo):
        out[todo] = bits.words(len(todo), "<i8") & mask[todo]
        todo = todo[out[todo] >= limits[todo]]
    return out


def decay_bounds(x: Fraction, precision: int) -> Bounds:
    """lo ≤ e^−x ≤ hi for any x ≥ 0. Far out, 'from 0 to e^−(4 · precision)' is narrow enough, and fits the memory."""
    if not x:
        return Fraction(1), Fraction(1)
    lo, hi = exp_bounds(-min(x, Fraction(4 * precision)), precision)
    return (lo if x <= 4 * precision else Fraction(0)), hi


def _acceptance(gap: int, proposal: int, exponent: Fraction, power: int) -> Probability:
    """gap · e^−exponent · 2^power / proposal: below 1, since proposals are above their weights."""
    factor = gap * Fraction(2) ** power / proposal

    def enclose(precision: int) -> Bounds:
        lo, hi = decay_bounds(exponent, precision)
        return factor * lo, factor * hi

    return Probability(enclose)

"""Private medians by the exponential mechanism, drawn exactly. Proof: proofs/medians.md.

Cuts are grid lines: the cut c sends cells below c to one side and all others to the other side.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from veilmap.arrays import Ints
from veilmap.kernels import median_ranks
from veilmap.vault.entropy import Keys, RandomBits
from veilmap.vault.mechanisms.laplace import Bounds, Probability, decay_bounds, is_below


def exponential_cuts(values: Ints, start: Ints, lo: Ints, hi: Ints, epsilon: Fraction, keys: Keys) -> Ints:
    """Return one cut per box, drawn by the exponential mechanism with the score −|rank − n/2|.

    ``values[start[v] : start[v + 1]]`` are the sorted cells of box v, which spans [lo[v], hi[v]).

    Guarantees (neighbours: add or remove one row):

    - The probability of a cut c, lo < c < hi, is exactly proportional to exp(−ε · |#(values < c) − n/2|).
    - A row changes the score by at most 1/2, so the cut is ε-differentially private.
    - Boxes do not share rows, so cutting all boxes costs ε once.
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
        # A large proposal is accepted with probability above 1 − 2^-20, so 62 random bits below that decide it. All
        # others are compared until the bits differ. A box whose proposal is rejected draws again.
        words = (bits.words(len(open_boxes), "<u8") >> np.uint64(2)).astype(np.int64)
        accepted = (words < 2**62 - 2**42) & (proposal >= median_ranks.MIN_PRECISE_PROPOSAL)
        for k in np.flatnonzero(~accepted):
            exponent = rate * int(distance[k] - nearest[k])
            chance = _acceptance(int(gap[k]), int(proposal[k]), exponent, int(power[k]))
            accepted[k] = is_below(int(words[k]), 62, chance, bits)
        # The place within the gap is drawn last and until it succeeds, so it cannot change the probability of a rank.
        cut[open_boxes[accepted]] = first[accepted] + uniform_below(gap[accepted], bits)
        open_boxes = open_boxes[~accepted]
    return cut


def uniform_below(limits: Ints, bits: RandomBits) -> Ints:
    """Return a uniform integer from 0 to limit − 1 per limit (1 to 2^62). Masked words are redrawn until they fit."""
    mask = limits - 1
    for shift in (1, 2, 4, 8, 16, 32):
        mask = mask | (mask >> shift)
    out, redraw = np.empty(len(limits), np.int64), np.arange(len(limits))
    while len(redraw):
        out[redraw] = bits.words(len(redraw), "<i8") & mask[redraw]
        redraw = redraw[out[redraw] >= limits[redraw]]
    return out


def _acceptance(gap: int, proposal: int, exponent: Fraction, power: int) -> Probability:
    """Return gap · e^−exponent · 2^power / proposal, which is below 1 because a proposal is above its weight."""
    factor = gap * Fraction(2) ** power / proposal

    def enclose(precision: int) -> Bounds:
        lo, hi = decay_bounds(exponent, precision)
        return factor * lo, factor * hi

    return Probability(enclose)

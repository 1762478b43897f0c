"""Private medians: where to cut boxes so that about half of the rows lie on either side. Proof: proofs/medians.md.

Cuts are grid lines: the cut c sends cells below c to one side, all others to the other.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from veilmap.kernels import ranks
from veilmap.vault.entropy import Keys, RandomBits
from veilmap.vault.noise import Probability, exp_bounds, is_below

Ints = NDArray[np.int64]


def exponential_cuts(values: Ints, start: Ints, lo: Ints, hi: Ints, epsilon: Fraction, keys: Keys) -> Ints:
    """One cut of each box by the exponential mechanism with the score −|rank − n/2|.

    ``values[start[v] : start[v + 1]]`` are the sorted cells of box v, which spans [lo[v], hi[v]).

    Guarantees (neighbours: add or remove one row):

    - A box's cut c in lo < c < hi has exactly the probability ∝ exp(−ε · |#(values < c) − n/2|).
    - The score changes by at most 1/2, so the cut is ε-differentially private.
    - Boxes do not share rows, so cutting all of them costs ε once.
    """
    rate = epsilon / 2  # of |2 rank − n|
    cut, about = np.empty(len(lo), np.int64), np.empty((len(lo), 4), np.int64)
    bits = RandomBits(keys.fresh())
    words = bits.words((len(lo), ranks.PICKS), "<i8")
    ranks.propose_cuts(values, start, lo, hi, float(rate), words, cut, about)
    # A fine proposal is accepted with a probability above 1 − 2^-20, so 62 random bits below that settle it.
    # Any other is settled to the last bit; and if rejected, or never made, made anew.
    luck = (bits.words(len(lo), "<u8") >> np.uint64(2)).astype(np.int64)
    settled = (luck < 2**62 - 2**42) & (about[:, 0] >= ranks.FINE) | (hi - lo < 2)
    for v in np.flatnonzero(~settled):
        proposal, distance, power, ran_out = about[v].tolist()
        if ran_out or not is_below(int(luck[v]), 62, _acceptance(proposal, rate * distance, power), bits):
            cut[v] = _cut_slowly(values[start[v] : start[v + 1]], int(lo[v]), int(hi[v]), rate, bits)
    return cut


def _cut_slowly(values: Ints, lo: int, hi: int, rate: Fraction, bits: RandomBits) -> int:
    """Propose until a proposal is accepted."""
    while True:
        words = bits.words(ranks.PICKS, "<i8")
        cut, proposal, distance, power, ran_out = ranks.propose_cut(values, lo, hi, float(rate), words)
        luck = int(bits.words(1, "<u8")[0])
        if not ran_out and is_below(luck, 64, _acceptance(proposal, rate * distance, power), bits):
            return int(cut)


def _acceptance(proposal: int, exponent: Fraction, power: int) -> Probability:
    """e^−exponent · 2^power / proposal: below 1, since proposals are above their weights."""
    factor = Fraction(2) ** power / proposal

    def enclose(precision: int) -> tuple[Fraction, Fraction]:
        if not exponent:
            return factor, factor
        # Far out, "between 0 and e^-(4 · precision)" is narrow enough; e^-exponent might not fit the memory.
        near = min(exponent, Fraction(4 * precision))
        lo, hi = exp_bounds(-near, precision)
        return factor * lo if near == exponent else Fraction(0), factor * hi

    return Probability(enclose)

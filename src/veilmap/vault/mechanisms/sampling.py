"""Poisson samples, and what they are worth. Proof: proofs/sampling.md."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction

import numpy as np

from veilmap.arrays import Flags
from veilmap.errors import BadInput
from veilmap.vault.entropy import Keys, RandomBits
from veilmap.vault.mechanisms.laplace import BLOCK, Probability, exp_bounds, is_below


def poisson(rate: Fraction, n: int, keys: Keys) -> Flags:
    """Which of n units are in the sample: each on its own, with probability exactly ``rate``."""
    if not 0 < rate <= 1:
        raise BadInput(f"A sample takes a part of the data above 0 and up to 1, got {float(rate):.3g}.")
    chosen, chance = np.ones(n, np.bool_), Probability(lambda precision: (rate, rate))
    for first in range(0, n if rate < 1 else 0, BLOCK):
        bits, block = RandomBits(keys.fresh()), chosen[first : first + BLOCK]
        words, limit = bits.words(len(block), "<u8"), np.uint64(chance.digits(64))
        block[:] = words < limit
        for k in np.flatnonzero(words == limit):  # 64 bits left it open
            block[k] = is_below(int(words[k]), 64, chance, bits)
    return chosen


def inner_epsilon(rate: Fraction, outer: Fraction) -> Fraction:
    """What a mechanism may spend on a Poisson sample so that ``outer`` is spent on the data.

    Guarantees: at most ln(1 + (e^outer − 1) / rate), and less than that by no more than 2^-50.
    """
    grown = 1 + (exp_bounds(outer, 60)[0] - 1) / rate
    with localcontext(Context(prec=60, rounding=ROUND_FLOOR, Emin=-(10**9), Emax=10**9, traps=[])):
        log = Fraction((Decimal(grown.numerator) / Decimal(grown.denominator)).ln().next_minus())
    return max(outer, Fraction(int(log * 2**51), 2**51))  # never less than ``outer``: a sample is no more than all

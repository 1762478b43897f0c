"""Poisson samples, and the budget that a mechanism may spend on one. Proof: proofs/sampling.md."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction

import numpy as np

from veilmap.arrays import Flags
from veilmap.errors import BadInput
from veilmap.vault.entropy import Keys, RandomBits
from veilmap.vault.mechanisms.laplace import DRAWS_PER_KEY, Probability, exp_bounds, is_below


def poisson(rate: Fraction, n: int, keys: Keys) -> Flags:
    """Return which of ``n`` units are sampled: each independently, with probability exactly ``rate``."""
    if not 0 < rate <= 1:
        raise BadInput(f"The rate of a sample must be above 0 and up to 1, got {float(rate):.3g}.")
    chosen, chance = np.ones(n, np.bool_), Probability(lambda precision: (rate, rate))
    for first in range(0, n if rate < 1 else 0, DRAWS_PER_KEY):
        bits, block = RandomBits(keys.fresh()), chosen[first : first + DRAWS_PER_KEY]
        words, limit = bits.words(len(block), "<u8"), np.uint64(chance.digits(64))
        block[:] = words < limit
        for k in np.flatnonzero(words == limit):  # 64 bits do not decide these
            block[k] = is_below(int(words[k]), 64, chance, bits)
    return chosen


def inner_epsilon(rate: Fraction, outer: Fraction) -> Fraction:
    """Return the ε that a mechanism may spend on a Poisson sample so that the data loses ``outer``.

    Guarantees: at most ln(1 + (e^outer − 1) / rate), and below it by at most 2^-50.
    """
    grown = 1 + (exp_bounds(outer, 60)[0] - 1) / rate
    with localcontext(Context(prec=60, rounding=ROUND_FLOOR, Emin=-(10**9), Emax=10**9, traps=[])):
        log = Fraction((Decimal(grown.numerator) / Decimal(grown.denominator)).ln().next_minus())
    return max(outer, Fraction(int(log * 2**51), 2**51))  # the exact value is at least ``outer``, since rate ≤ 1

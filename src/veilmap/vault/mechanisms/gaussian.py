"""Exact integer noise for concentrated privacy: the discrete Gaussian distribution. Proof: proofs/gaussian.md.

P[Z = z] ∝ exp(−z² / 2σ²), with σ² an exact rational. Proposals Y are discrete Laplace of scale t = floor(σ) + 1. Each
is accepted with probability exp(−(|Y| − σ²/t)² / 2σ²), by a lazy comparison that continues until it is certain.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.errors import BadInput
from veilmap.vault.entropy import Keys, RandomBits
from veilmap.vault.mechanisms.laplace import Probability, decay_bounds, discrete_laplace, is_below

FIRST_BITS = 32  # compared first, as floats
MAX_PROPOSALS_PER_BATCH = 1 << 20  # bounds the memory
RHO_STEP = Fraction(1, 2**80)  # budgets in ρ are multiples of it
RHO_PRECISION_DIGITS = 80  # decimal digits with which budgets in ρ are certified


def _scale(variance: Fraction) -> int:
    """Return floor(σ) + 1, the scale of the proposals."""
    return math.isqrt(math.floor(variance)) + 1


def _chances(proposals: Ints, variance: Fraction) -> Floats:
    """Return the acceptance probabilities exp(−(|y| − σ²/t)² / 2σ²) as floats, with an error below 2^-40."""
    distance = np.abs(proposals) - float(variance / _scale(variance))
    return np.exp(-(distance**2) / float(2 * variance))


def _chance(proposal: int, variance: Fraction) -> Probability:
    """Return the acceptance probability of one proposal, certified to any number of bits."""
    return Probability(partial(decay_bounds, (abs(proposal) - variance / _scale(variance)) ** 2 / (2 * variance)))


def _accepted(variance: Fraction, n: int, keys: Keys) -> Ints:
    """Return the accepted ones of ``n`` proposals, in order."""
    y = discrete_laplace(Fraction(1, _scale(variance)), n, keys)
    bits = RandomBits(keys.fresh())
    words = bits.words(n, "<u4")
    excess = words * 0.5**FIRST_BITS - _chances(y, variance)
    accepted = excess < 0
    for i in np.flatnonzero(np.abs(excess) <= 2 * 0.5**FIRST_BITS):  # 32 bits and a float do not decide these
        accepted[i] = is_below(int(words[i]), FIRST_BITS, _chance(int(y[i]), variance), bits)
    return y[accepted]


def discrete_gaussian(variance: Fraction, n: int, keys: Keys) -> Ints:
    """Return ``n`` independent draws with the parameter σ² = ``variance``.

    Guarantees:

    - Each draw has exactly the distribution stated above, given uniform random bits.
    - Added to integers that change by at most Δ in Euclidean norm, they are Δ² / 2σ²-zCDP.
    - Every batch uses fresh keys. No random state outlives the call.
    """
    if not Fraction(1, 2**20) <= variance <= 2**80:
        printable = float(variance) if abs(variance) < 2**1000 else math.inf
        raise BadInput(
            f"A count cannot be measured with Gaussian noise of variance {printable:.3g}. Use 2^-20 to 2^80."
        )
    batches = [np.zeros(0, np.int64)]
    while n > 0:
        batches.append(_accepted(variance, min(n + n // 2 + 8, MAX_PROPOSALS_PER_BATCH), keys)[:n])
        n -= len(batches[-1])
    return np.concatenate(batches)


def gaussian_variance(variance: Fraction) -> float:
    """Return the variance of the noise, Σ z² w(z) / Σ w(z). It equals σ² to 64 bits if σ² ≥ 4, and is smaller below."""
    if variance >= 4:
        return float(variance)
    w = [math.exp(-z * z / float(2 * variance)) for z in range(40)]
    return 2 * math.fsum(z * z * w[z] for z in range(40)) / (2 * math.fsum(w) - 1)


def concentrated(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest multiple ρ of 2^-80 with ρ + 2 √(ρ ln(1/δ)) ≤ ε.

    Guarantees:

    - A ρ-zCDP mechanism is (ε, δ)-differentially private.
    """
    if not (Fraction(1, 2**20) <= epsilon <= 1000 and Fraction(1, 2**200) <= delta < 1):
        raise BadInput("Gaussian noise needs an epsilon from 2^-20 to 1000 and a delta of at least 2^-200 and below 1.")
    enough, too_much = 0, math.ceil(epsilon / RHO_STEP)
    while too_much - enough > 1:
        rho = (middle := (enough + too_much) // 2) * RHO_STEP
        if decay_bounds((epsilon - rho) ** 2 / (4 * rho), RHO_PRECISION_DIGITS)[1] <= delta:
            enough = middle
        else:
            too_much = middle
    return enough * RHO_STEP


def root_below(x: Fraction) -> Fraction:
    """Return a fraction r ≥ 0 with r² ≤ x and r ≥ √x (1 − 2^-40). It converts a charge in ρ to the ε that it buys."""
    return Fraction(math.isqrt(x.numerator * x.denominator << 80), x.denominator << 40)

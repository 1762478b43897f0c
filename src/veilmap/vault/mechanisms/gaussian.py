"""Exact integer noise of concentrated privacy: the discrete Gaussian. Proof: proofs/gaussian.md.

P[Z = z] ∝ exp(−z² / 2σ²), with σ² an exact rational. Proposals Y are discrete Laplace of scale t = floor(σ) + 1;
each is accepted with probability exp(−(|Y| − σ²/t)² / 2σ²), by a lazy comparison that goes on until it is certain.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.errors import BadInput
from veilmap.vault.entropy import Keys, RandomBits
from veilmap.vault.mechanisms.laplace import Bounds, Probability, discrete_laplace, exp_bounds, is_below

BITS = 32  # compared at first
BATCH = 1 << 20  # proposals at a time, at most
STEP = Fraction(1, 2**80)  # of concentrated budgets
PRECISION = 80  # decimal digits that certify them


def _falling(exponent: Fraction, precision: int) -> Bounds:
    """lo ≤ e^−exponent ≤ hi, for exponent ≥ 0."""
    if not exponent:
        return Fraction(1), Fraction(1)
    # Far out, "between 0 and e^-(4 · precision)" is narrow enough; e^-exponent might not fit the memory.
    near = min(exponent, Fraction(4 * precision))
    lo, hi = exp_bounds(-near, precision)
    return lo if near == exponent else Fraction(0), hi


def _scale(variance: Fraction) -> int:
    """floor(σ) + 1."""
    return math.isqrt(math.floor(variance)) + 1


def _chances(proposals: Ints, variance: Fraction) -> Floats:
    """exp(−(|y| − σ²/t)² / 2σ²), off by less than 2^-40."""
    distance = np.abs(proposals) - float(variance / _scale(variance))
    return np.exp(-(distance**2) / float(2 * variance))


def _chance(proposal: int, variance: Fraction) -> Probability:
    """The same, to the last bit."""
    return Probability(partial(_falling, (abs(proposal) - variance / _scale(variance)) ** 2 / (2 * variance)))


def _accepted(variance: Fraction, n: int, keys: Keys) -> Ints:
    """Those of ``n`` proposals that are accepted, in their order."""
    y = discrete_laplace(Fraction(1, _scale(variance)), n, keys)
    bits = RandomBits(keys.fresh())
    words = bits.words(n, "<u4")
    excess = words * 0.5**BITS - _chances(y, variance)
    accepted = excess < 0
    for i in np.flatnonzero(np.abs(excess) <= 2 * 0.5**BITS):  # 32 bits and a float leave these open
        accepted[i] = is_below(int(words[i]), BITS, _chance(int(y[i]), variance), bits)
    return y[accepted]


def discrete_gaussian(variance: Fraction, n: int, keys: Keys) -> Ints:
    """``n`` independent draws with the parameter σ² = ``variance``.

    Guarantees:

    - Each draw has exactly the distribution above, given uniform random bits.
    - Added to integers that change by at most Δ in Euclidean norm, they are Δ² / 2σ²-zCDP.
    - Every batch takes fresh keys; no random state outlives the call.
    """
    if not Fraction(1, 2**20) <= variance <= 2**80:
        shown = float(variance) if abs(variance) < 2**1000 else math.inf
        raise BadInput(f"A count cannot be measured with Gaussian noise of variance {shown:.3g}: use 2^-20 to 2^80.")
    found = [np.zeros(0, np.int64)]
    while n > 0:
        found.append(_accepted(variance, min(n + n // 2 + 8, BATCH), keys)[:n])
        n -= len(found[-1])
    return np.concatenate(found)


def gaussian_variance(variance: Fraction) -> float:
    """The variance of the noise, Σ z² w(z) / Σ w(z): σ² if that is not small (to 64 bits from 4 on), else less."""
    if variance >= 4:
        return float(variance)
    w = [math.exp(-z * z / float(2 * variance)) for z in range(40)]
    return 2 * math.fsum(z * z * w[z] for z in range(40)) / (2 * math.fsum(w) - 1)


def concentrated(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest multiple ρ of 2^-80 with ρ + 2 √(ρ ln(1/δ)) ≤ ε.

    Guarantees:

    - Whatever is ρ-zCDP is (ε, δ)-differentially private.
    """
    if not (Fraction(1, 2**20) <= epsilon <= 1000 and Fraction(1, 2**200) <= delta < 1):
        raise BadInput("Concentrated privacy needs an epsilon of 2^-20 to 1000 and a delta of 2^-200 to below 1.")
    enough, too_much = 0, math.ceil(epsilon / STEP)
    while too_much - enough > 1:
        rho = (middle := (enough + too_much) // 2) * STEP
        if _falling((epsilon - rho) ** 2 / (4 * rho), PRECISION)[1] <= delta:
            enough = middle
        else:
            too_much = middle
    return enough * STEP


def root_below(x: Fraction) -> Fraction:
    """A fraction r ≥ 0 with r² ≤ x, less than 2^-40 of √x below it: from a charge in ρ to an ε that it buys."""
    return Fraction(math.isqrt(x.numerator * x.denominator << 80), x.denominator << 40)

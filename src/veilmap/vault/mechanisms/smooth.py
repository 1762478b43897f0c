"""Private medians by smooth sensitivity, drawn exactly. Proof: proofs/smooth.md.

The paper's median plus (2S/ε) · Lap(1), rounded down, is x_m + G or x_m − 1 − G with a fair sign, where G is geometric
with P[G ≥ g] = e^(−g ε / 2S). The smooth sensitivity S is a float, which is a rational number, so G is exact.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.errors import BadInput
from veilmap.kernels.smooth_sensitivity import MAX_LOG_ERROR, find_smooth
from veilmap.vault.entropy import Keys, RandomBits
from veilmap.vault.mechanisms.laplace import Bounds, Probability, decay_bounds, is_below

GEOMETRIC_DIGITS = 62  # drawn of G: a move of 2^62 or more leaves every box
MAX_UNDECIDED_DISTANCE = 2.0  # closer 32-bit comparisons are continued exactly: the float is correct to within 1
MAX_GEOMETRIC_RATE = 64  # of G: S is at least ε / 128, so ties need no special case


def smooth_cuts(values: Ints, start: Ints, lo: Ints, hi: Ints, epsilon: Fraction, delta: Fraction, keys: Keys) -> Ints:
    """Return one cut per box: its median, with noise scaled to its smooth sensitivity, clipped to the box.

    ``values[start[v] : start[v + 1]]`` are the sorted cells of box v, which spans [lo[v], hi[v]).

    Guarantees (neighbours: add or remove one row):

    - S is at least the change of the median, and changes by a factor of at most e^ξ.
    - So each cut is (ε, δ)-differentially private, and so are all cuts together, because boxes do not share rows.
    """
    if delta <= 0:
        raise BadInput(f"A smooth-sensitivity median needs a delta above 0, got {float(delta):.3g}.")
    median, smooth = np.empty(len(lo), np.int64), np.empty(len(lo))
    find_smooth(values, start, lo, hi, smoothness(epsilon, min(delta, Fraction(1))), least_log(epsilon), median, smooth)
    bits = RandomBits(keys.fresh())
    move = geometric(epsilon / 2, smooth, bits)
    up = bits.words(len(lo), "<u1") & 1 == 1
    cut = np.clip(np.where(up, median + move, median - 1 - move), lo + 1, hi - 1)
    return np.where(hi - lo < 2, hi, cut)


def smoothness(epsilon: Fraction, delta: Fraction) -> float:
    """Return slightly less than ξ = min(ε / 4(1 + ln(2/δ)), 1). The difference covers the rounding of S as a float."""
    log = math.log(2 * delta.denominator) - math.log(delta.numerator)
    return max(min(float(epsilon) / (4 * (1 + log)), 1.0) * (1 - 1e-9) - 2 * MAX_LOG_ERROR, 0.0)


def least_log(epsilon: Fraction) -> float:
    """Return the logarithm of the smallest S, ε / 128."""
    return math.log(float(epsilon) / (2 * MAX_GEOMETRIC_RATE))


def geometric(rate: Fraction, scale: Floats, bits: RandomBits) -> Ints:
    """Return min(G, 2^62) per scale s, with P[G ≥ g] = e^(−g · rate / s) exactly, by its digits and its tail."""
    total = np.zeros(len(scale), np.int64)
    for j in range(GEOMETRIC_DIGITS + 1):
        tail = j == GEOMETRIC_DIGITS
        word = bits.words(len(scale), "<u4")
        q = np.exp(-np.minimum(float(rate) / scale * 2.0**j, 100.0))
        above = (q if tail else q / (1 + q)) * 2.0**32 - word
        one = above > MAX_UNDECIDED_DISTANCE
        for v in np.flatnonzero(np.abs(above) <= MAX_UNDECIDED_DISTANCE):
            one[v] = is_below(int(word[v]), 32, _digit(rate / Fraction(scale[v]) * 2**j, tail), bits)
        total = np.where(one, 1 << j, total) if tail else total + (one.astype(np.int64) << j)
    return total


def _digit(x: Fraction, tail: bool) -> Probability:
    """Return 1 / (1 + e^x), the probability of a digit, or e^−x, that of the tail."""

    def enclose(precision: int) -> Bounds:
        lo, hi = decay_bounds(x, precision)
        return (lo, hi) if tail else (lo / (1 + lo), hi / (1 + hi))

    return Probability(enclose)

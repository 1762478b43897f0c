"""Private medians by smooth sensitivity, drawn exactly. Proof: proofs/smooth.md.

The paper's median plus (2S/ε) · Lap(1), rounded down, is x_m + G or x_m − 1 − G with a fair sign, where G is
geometric with P[G ≥ g] = e^(−g ε / 2S). S is a float; whatever it is, it is a rational number and G is exact.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.errors import BadInput
from veilmap.kernels.smooth_sensitivity import ERROR, find_smooth
from veilmap.vault.entropy import Keys, RandomBits
from veilmap.vault.mechanisms.exponential import decay_bounds
from veilmap.vault.mechanisms.laplace import Bounds, Probability, is_below

DIGITS = 62  # of G: anything from 2^62 on leads out of every box
OPEN = 2.0  # a comparison of 32 bits closer than this is carried on: the float is right to within 1
STEEPEST = 64  # G's rate is no more: S is never below ε / 128, so that ties are like any other values


def smooth_cuts(values: Ints, start: Ints, lo: Ints, hi: Ints, epsilon: Fraction, delta: Fraction, keys: Keys) -> Ints:
    """One cut of each box: its median with noise of its smooth sensitivity, moved inside the box.

    ``values[start[v] : start[v + 1]]`` are the sorted cells of box v, which spans [lo[v], hi[v]).

    Guarantees (neighbours: add or remove one row):

    - S is at least what the median changes by, and changes by a factor of at most e^ξ.
    - So the cut is (ε, δ)-differentially private; and all cuts, since boxes do not share rows.
    """
    if delta <= 0:
        raise BadInput(f"A median by smooth sensitivity needs a delta above 0, got {float(delta):.3g}.")
    median, smooth = np.empty(len(lo), np.int64), np.empty(len(lo))
    find_smooth(values, start, lo, hi, smoothness(epsilon, min(delta, Fraction(1))), least_log(epsilon), median, smooth)
    bits = RandomBits(keys.fresh())
    move = geometric(epsilon / 2, smooth, bits)
    up = bits.words(len(lo), "<u1") & 1 == 1
    cut = np.clip(np.where(up, median + move, median - 1 - move), lo + 1, hi - 1)
    return np.where(hi - lo < 2, hi, cut)


def smoothness(epsilon: Fraction, delta: Fraction) -> float:
    """A little less than ξ = ε / 4(1 + ln(2/δ)), at most 1: the difference pays for S being a float."""
    log = math.log(2 * delta.denominator) - math.log(delta.numerator)
    return max(min(float(epsilon) / (4 * (1 + log)), 1.0) * (1 - 1e-9) - 2 * ERROR, 0.0)


def least_log(epsilon: Fraction) -> float:
    return math.log(float(epsilon) / (2 * STEEPEST))


def geometric(rate: Fraction, scale: Floats, bits: RandomBits) -> Ints:
    """min(G, 2^62) for each scale s, with P[G ≥ g] = e^(−g · rate / s) exactly: digit by digit, and then the tail."""
    total = np.zeros(len(scale), np.int64)
    for j in range(DIGITS + 1):
        tail = j == DIGITS
        word = bits.words(len(scale), "<u4")
        q = np.exp(-np.minimum(float(rate) / scale * 2.0**j, 100.0))
        above = (q if tail else q / (1 + q)) * 2.0**32 - word
        one = above > OPEN
        for v in np.flatnonzero(np.abs(above) <= OPEN):
            one[v] = is_below(int(word[v]), 32, _digit(rate / Fraction(scale[v]) * 2**j, tail), bits)
        total = np.where(one, 1 << j, total) if tail else total + (one.astype(np.int64) << j)
    return total


def _digit(x: Fraction, tail: bool) -> Probability:
    """1 / (1 + e^x), or e^−x for the tail."""

    def enclose(precision: int) -> Bounds:
        lo, hi = decay_bounds(x, precision)
        return (lo, hi) if tail else (lo / (1 + lo), hi / (1 + hi))

    return Probability(enclose)

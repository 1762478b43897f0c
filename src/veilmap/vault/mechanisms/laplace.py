"""Exact integer noise: two-sided geometric (discrete Laplace). Proof: proofs/noise.md.

P[Z = z] = (1 − q) / (1 + q) · q^|z|, with q = e^−ε and ε an exact rational. No float takes part: a
Bernoulli(p) is the event U < p for an endless uniform bit string U, compared with the certified binary
expansion of p, 16 bits at first and 64 more for as long as they agree.

Z = 0 with probability (1 − q) / (1 + q); else Z = ±(1 + G), with a fair sign and G geometric. The binary
digits of a geometric variable are independent: digit j is 1 with probability 1 / (1 + e^(ε 2^j)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache, partial
from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from veilmap.arrays import Flags, Ints
from veilmap.errors import BadInput
from veilmap.vault.entropy import Keys, RandomBits

Bounds: TypeAlias = tuple[Fraction, Fraction]
Words: TypeAlias = NDArray[np.uint16]

BLOCK = 1 << 17  # draws that share one key
FIRST, MORE = 16, 64  # bits compared at first, and then
TAIL = 56  # digits go on until ε 2^j ≥ 56; what is left has probability e^−56 < 2^−80


class Probability:
    """A real number in (0, 1), known by enclosures as narrow as one asks for."""

    def __init__(self, enclose: Callable[[int], Bounds]) -> None:
        self._enclose = enclose
        self._known: dict[int, int] = {}

    def digits(self, bits: int) -> int:
        """floor(p · 2^bits), certified. Ends because p is irrational: e^x is, for rational x ≠ 0."""
        precision = bits // 3 + 20
        while bits not in self._known:
            lo, hi = (math.floor(end * 2**bits) for end in self._enclose(precision))
            if lo == hi:
                self._known[bits] = lo
            precision *= 2
        return self._known[bits]


def exp_bounds(x: Fraction, precision: int) -> Bounds:
    """lo ≤ e^x ≤ hi. Decimal's exp is correctly rounded, so one step to either side encloses it."""
    ends = []
    for rounding, step in ((ROUND_FLOOR, Decimal.next_minus), (ROUND_CEILING, Decimal.next_plus)):
        with localcontext(Context(prec=precision, rounding=rounding, Emin=-(10**9), Emax=10**9, traps=[])):
            ends.append(Fraction(step((Decimal(x.numerator) / Decimal(x.denominator)).exp())))
    return ends[0], ends[1]


def _zero(epsilon: Fraction, precision: int) -> Bounds:
    lo, hi = exp_bounds(epsilon, precision)
    return (lo - 1) / (lo + 1), (hi - 1) / (hi + 1)  # (1 − q) / (1 + q), rising in e^ε


def _digit(epsilon: Fraction, j: int, precision: int) -> Bounds:
    lo, hi = exp_bounds(epsilon * 2**j, precision)
    return 1 / (1 + hi), 1 / (1 + lo)


def _tail(epsilon: Fraction, j: int, precision: int) -> Bounds:
    return exp_bounds(-epsilon * 2**j, precision)


@lru_cache(maxsize=256)
def _probabilities(epsilon: Fraction) -> tuple[Probability, ...]:
    """For Z = 0, for each digit of G, and for any digit beyond them."""
    if not 0 < epsilon <= 1000 or epsilon < Fraction(1, 2**50):
        raise BadInput(f"A count cannot be measured with epsilon={float(epsilon):.3g}: use 2^-50 to 1000 a level.")
    count = 0
    while epsilon * 2**count < TAIL:
        count += 1
    digits = [Probability(partial(_digit, epsilon, j)) for j in range(count)]
    return (Probability(partial(_zero, epsilon)), *digits, Probability(partial(_tail, epsilon, count)))


@lru_cache(maxsize=256)
def _first_digits(probabilities: tuple[Probability, ...]) -> Words:
    return np.array([p.digits(FIRST) for p in probabilities], np.uint16)


@njit(cache=True, nogil=True)
def _compare(words: Words, first: Words, signs: NDArray[np.uint8]) -> tuple[Ints, Flags]:
    """Z from 16-bit comparisons, one row of ``words`` for Z = 0, for each digit, and for the tail.

    Beside it, which draws have a comparison that 16 bits left open, or a digit beyond the last.
    """
    rows, n = words.shape
    z, unsure = np.zeros(n, np.int64), words[-1] < first[-1]
    for j in range(rows):
        threshold = first[j]
        for i in range(n):
            unsure[i] |= words[j, i] == threshold
    for j in range(rows - 2):
        threshold = first[j + 1]
        for i in range(n):
            z[i] |= np.int64(words[j + 1, i] < threshold) << j
    for i in range(n):
        sign = 1 - 2 * np.int64(signs[i] & 1)
        z[i] = sign * (z[i] + 1) * np.int64(words[0, i] >= first[0])
    return z, unsure


def _refine(p: Probability, bits: RandomBits, seen: int) -> bool:
    """One Bernoulli(p) whose first ``seen`` bits have agreed with p's."""
    while True:
        word = int(bits.words(1, "<u8")[0])
        digit = p.digits(seen + MORE) & (2**MORE - 1)
        if word != digit:
            return bool(word < digit)
        seen += MORE


def is_below(word: int, seen: int, p: Probability, bits: RandomBits) -> bool:
    """Whether a uniform number that begins with the ``seen`` bits of ``word`` is below p."""
    digits = p.digits(seen)
    return _refine(p, bits, seen) if word == digits else word < digits


def _draw(probabilities: tuple[Probability, ...], n: int, key: bytes) -> Ints:
    """``n`` draws from one key."""
    bits = RandomBits(key)
    words = bits.words((len(probabilities), n), "<u2")
    signs = bits.words(n, "<u1")
    first = _first_digits(probabilities)
    z, unsure = _compare(words, first, signs)
    for i in np.flatnonzero(unsure):  # made one by one
        z[i] = _draw_slowly(probabilities, words[:, i], signs[i], first, bits)
    return z


def _draw_slowly(
    probabilities: tuple[Probability, ...],
    words: Words,
    sign: np.uint8,
    first: Words,
    bits: RandomBits,
) -> int:
    """The same draw, with every comparison carried to its end."""
    zero, *digits, beyond = (
        _refine(p, bits, FIRST) if word == limit else bool(word < limit)
        for p, word, limit in zip(probabilities, words, first, strict=True)
    )
    magnitude = 1 + sum(1 << j for j, one in enumerate(digits) if one)
    while beyond:  # G ≥ 2^J: it forgets, so add 2^J and ask again
        magnitude += 1 << len(digits)
        word = int(bits.words(1, "<u2")[0])
        beyond = _refine(probabilities[-1], bits, FIRST) if word == first[-1] else bool(word < first[-1])
    return 0 if zero else magnitude * (1 - 2 * int(sign & 1))


def discrete_laplace(epsilon: Fraction, n: int, keys: Keys) -> Ints:
    """``n`` independent draws of scale 1/ε.

    Guarantees:

    - Each draw has exactly the distribution above, given uniform random bits.
    - Every block of draws takes a fresh key; no random state outlives the call.
    """
    probabilities = _probabilities(epsilon)
    sizes = [min(BLOCK, n - start) for start in range(0, n, BLOCK)]
    work = [(size, keys.fresh()) for size in sizes]
    if len(work) <= 1:
        blocks = [_draw(probabilities, size, key) for size, key in work]
    else:
        with ThreadPoolExecutor(2) as pool:
            blocks = list(pool.map(lambda job: _draw(probabilities, *job), work))
    return np.concatenate([np.zeros(0, np.int64), *blocks])


def noise_variance(epsilon: Fraction) -> float:
    """The variance of the noise: 2q / (1 − q)²."""
    e = float(epsilon)
    return 2 * math.exp(-e) / math.expm1(-e) ** 2

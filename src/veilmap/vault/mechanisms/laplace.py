"""Exact integer noise: the discrete Laplace distribution (two-sided geometric). Proof: proofs/noise.md.

P[Z = z] = (1 − q) / (1 + q) · q^|z|, with q = e^−ε and ε an exact rational. No floats are used. A Bernoulli(p) variable
is the event U < p for a uniform number U with infinitely many random bits. U is compared with the certified binary
expansion of p: first 16 bits, then 64 more at a time while they agree.

Z = 0 with probability (1 − q) / (1 + q); otherwise Z = ±(1 + G), with a fair sign and G geometric. The binary digits of
a geometric variable are independent: digit j is 1 with probability 1 / (1 + e^(ε 2^j)).
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

DRAWS_PER_KEY = 1 << 17
FIRST_BITS = 16  # compared first: enough for all but 2^-16 of the comparisons
MORE_BITS = 64  # compared next, and again while the bits agree
TAIL_EXPONENT = 56  # J digits are drawn, with ε 2^J ≥ 56: a further digit has probability e^−56 < 2^−80


class Probability:
    """A real number in (0, 1), given by a function that encloses it at any precision."""

    def __init__(self, enclose: Callable[[int], Bounds]) -> None:
        self._enclose = enclose
        self._known: dict[int, int] = {}

    def digits(self, bits: int) -> int:
        """Return floor(p · 2^bits), certified. This ends because p is irrational: so is e^x for rational x ≠ 0."""
        precision = bits // 3 + 20
        while bits not in self._known:
            lo, hi = (math.floor(end * 2**bits) for end in self._enclose(precision))
            if lo == hi:
                self._known[bits] = lo
            precision *= 2
        return self._known[bits]


def exp_bounds(x: Fraction, precision: int) -> Bounds:
    """Return lo ≤ e^x ≤ hi. Decimal's exp is correctly rounded, so one step to either side encloses it."""
    ends = []
    for rounding, step in ((ROUND_FLOOR, Decimal.next_minus), (ROUND_CEILING, Decimal.next_plus)):
        with localcontext(Context(prec=precision, rounding=rounding, Emin=-(10**9), Emax=10**9, traps=[])):
            ends.append(Fraction(step((Decimal(x.numerator) / Decimal(x.denominator)).exp())))
    return ends[0], ends[1]


def decay_bounds(x: Fraction, precision: int) -> Bounds:
    """Return lo ≤ e^−x ≤ hi for x ≥ 0. For large x, [0, e^−(4 · precision)] is narrow enough and fits in memory."""
    if not x:
        return Fraction(1), Fraction(1)
    lo, hi = exp_bounds(-min(x, Fraction(4 * precision)), precision)
    return (lo if x <= 4 * precision else Fraction(0)), hi


def _zero(epsilon: Fraction, precision: int) -> Bounds:
    """Enclose (1 − q) / (1 + q), the probability of Z = 0."""
    lo, hi = exp_bounds(epsilon, precision)
    return (lo - 1) / (lo + 1), (hi - 1) / (hi + 1)  # increasing in e^ε


def _digit(epsilon: Fraction, j: int, precision: int) -> Bounds:
    """Enclose the probability that digit j of G is 1."""
    lo, hi = exp_bounds(epsilon * 2**j, precision)
    return 1 / (1 + hi), 1 / (1 + lo)


def _tail(epsilon: Fraction, j: int, precision: int) -> Bounds:
    """Enclose the probability of G ≥ 2^j."""
    return exp_bounds(-epsilon * 2**j, precision)


@lru_cache(maxsize=256)
def _probabilities(epsilon: Fraction) -> tuple[Probability, ...]:
    """Return the probabilities of Z = 0, of each digit of G being 1, and of any digit beyond them."""
    if not 0 < epsilon <= 1000 or epsilon < Fraction(1, 2**50):
        raise BadInput(f"A count cannot be measured with epsilon={float(epsilon):.3g}. Use 2^-50 to 1000 per level.")
    count = 0
    while epsilon * 2**count < TAIL_EXPONENT:
        count += 1
    digits = [Probability(partial(_digit, epsilon, j)) for j in range(count)]
    return (Probability(partial(_zero, epsilon)), *digits, Probability(partial(_tail, epsilon, count)))


@lru_cache(maxsize=256)
def _first_digits(probabilities: tuple[Probability, ...]) -> Words:
    return np.array([p.digits(FIRST_BITS) for p in probabilities], np.uint16)


@njit(cache=True, nogil=True)
def _compare(words: Words, first: Words, signs: NDArray[np.uint8]) -> tuple[Ints, Flags]:
    """Return Z from 16-bit comparisons: one row of ``words`` for Z = 0, one per digit, and one for the tail.

    Also return which draws are undecided: a comparison that 16 bits do not decide, or a digit beyond the last.
    """
    rows, n = words.shape
    z, undecided = np.zeros(n, np.int64), words[-1] < first[-1]
    for j in range(rows):
        threshold = first[j]
        for i in range(n):
            undecided[i] |= words[j, i] == threshold
    for j in range(rows - 2):
        threshold = first[j + 1]
        for i in range(n):
            z[i] |= np.int64(words[j + 1, i] < threshold) << j
    for i in range(n):
        sign = 1 - 2 * np.int64(signs[i] & 1)
        z[i] = sign * (z[i] + 1) * np.int64(words[0, i] >= first[0])
    return z, undecided


def _refine(p: Probability, bits: RandomBits, seen: int) -> bool:
    """Finish the comparison U < p, given that the first ``seen`` bits of U agree with those of p."""
    while True:
        word = int(bits.words(1, "<u8")[0])
        digit = p.digits(seen + MORE_BITS) & (2**MORE_BITS - 1)
        if word != digit:
            return bool(word < digit)
        seen += MORE_BITS


def is_below(word: int, seen: int, p: Probability, bits: RandomBits) -> bool:
    """Return whether a uniform number that begins with the ``seen`` bits of ``word`` is below p."""
    digits = p.digits(seen)
    return _refine(p, bits, seen) if word == digits else word < digits


def _draw(probabilities: tuple[Probability, ...], n: int, key: bytes) -> Ints:
    """Return ``n`` draws from one key."""
    bits = RandomBits(key)
    words = bits.words((len(probabilities), n), "<u2")
    signs = bits.words(n, "<u1")
    first = _first_digits(probabilities)
    z, undecided = _compare(words, first, signs)
    for i in np.flatnonzero(undecided):
        z[i] = _draw_slowly(probabilities, words[:, i], signs[i], first, bits)
    return z


def _draw_slowly(
    probabilities: tuple[Probability, ...],
    words: Words,
    sign: np.uint8,
    first: Words,
    bits: RandomBits,
) -> int:
    """Return one draw of ``_compare``, with every comparison carried to its end."""
    zero, *digits, beyond = (
        _refine(p, bits, FIRST_BITS) if word == limit else bool(word < limit)
        for p, word, limit in zip(probabilities, words, first, strict=True)
    )
    magnitude = 1 + sum(1 << j for j, one in enumerate(digits) if one)
    while beyond:  # a geometric variable has no memory: add 2^J and draw again
        magnitude += 1 << len(digits)
        word = int(bits.words(1, "<u2")[0])
        beyond = _refine(probabilities[-1], bits, FIRST_BITS) if word == first[-1] else bool(word < first[-1])
    return 0 if zero else magnitude * (1 - 2 * int(sign & 1))


def discrete_laplace(epsilon: Fraction, n: int, keys: Keys) -> Ints:
    """Return ``n`` independent draws of scale 1/ε.

    Guarantees:

    - Each draw has exactly the distribution stated above, given uniform random bits.
    - Every block of draws uses a fresh key. No random state outlives the call.
    """
    probabilities = _probabilities(epsilon)
    sizes = [min(DRAWS_PER_KEY, n - start) for start in range(0, n, DRAWS_PER_KEY)]
    work = [(size, keys.fresh()) for size in sizes]
    if len(work) <= 1:
        blocks = [_draw(probabilities, size, key) for size, key in work]
    else:
        with ThreadPoolExecutor(2) as pool:
            blocks = list(pool.map(lambda job: _draw(probabilities, *job), work))
    return np.concatenate([np.zeros(0, np.int64), *blocks])


def noise_variance(epsilon: Fraction) -> float:
    """Return the variance of the noise, 2q / (1 − q)²."""
    e = float(epsilon)
    return 2 * math.exp(-e) / math.expm1(-e) ** 2

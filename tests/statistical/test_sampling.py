"""Poisson samples: who is in them, and what a mechanism on a sample costs."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest, chisquare

import veilmap as vm
from veilmap.vault.entropy import FixedKeys
from veilmap.vault.mechanisms import sampling
from veilmap.vault.mechanisms.laplace import DRAWS_PER_KEY
from veilmap.vault.mechanisms.sampling import inner_epsilon, poisson

Floats = NDArray[np.float64]

# --- the sample -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [Fraction(1, 1000), Fraction(1, 3), Fraction(1, 2), Fraction(999, 1000)], ids=str)
def test_each_unit_is_in_the_sample_with_its_rate(rate: Fraction) -> None:
    n = 500_000
    seen = int(poisson(rate, n, FixedKeys(1)).sum())
    assert binomtest(seen, n, float(rate)).pvalue > 1e-9
    least = min(rate, 1 - rate)  # a rate whose rarer side is 30 % off
    for other in (Fraction(7, 10), Fraction(13, 10)):
        near = other * least if rate == least else 1 - other * least
        assert binomtest(seen, n, float(near)).pvalue < 1e-9


def test_units_are_chosen_independently() -> None:
    chosen = poisson(Fraction(1, 3), 900_000, FixedKeys(2)).reshape(-1, 3).astype(int)
    p = [(1 / 3) ** sum(three) * (2 / 3) ** (3 - sum(three)) for three in itertools.product((0, 1), repeat=3)]
    assert chisquare(np.bincount(chosen @ [4, 2, 1], minlength=8), np.array(p) * len(chosen)).pvalue > 1e-9


def test_size_of_a_sample_is_not_fixed() -> None:
    """A sample of a fixed size would make the number of units public."""
    sizes = [int(poisson(Fraction(1, 2), 1000, FixedKeys(seed)).sum()) for seed in range(50)]
    assert len(set(sizes)) > 10


@pytest.mark.parametrize("n", [0, 1, DRAWS_PER_KEY, DRAWS_PER_KEY + 1, 3 * DRAWS_PER_KEY])
def test_a_rate_of_one_takes_everyone_and_every_block_has_its_own_key(n: int) -> None:
    assert poisson(Fraction(1), n, FixedKeys(1)).tolist() == [True] * n
    keys = FixedKeys(1)
    assert poisson(Fraction(1, 2), n, keys).shape == (n,)
    assert keys._drawn == -(-n // DRAWS_PER_KEY)


@given(st.fractions(Fraction(1, 10**9), 1).filter(lambda rate: rate < 1), st.data())
def test_comparison_goes_on_until_it_is_settled(rate: Fraction, data: st.DataObject) -> None:
    """64 bits that agree with the rate's leave all to the next 64, and so on: as if all had been drawn at once."""
    digits = [math.floor(rate * 2 ** (64 * k)) % 2**64 for k in (1, 2, 3)]
    agree = data.draw(st.integers(0, 2))
    word = data.draw(st.integers(0, 2**64 - 1).filter(lambda w: w != digits[agree]))
    stream = [*digits[:agree], word]

    class Bits:
        def __init__(self, key: bytes) -> None: ...

        def words(self, n: int, kind: str) -> NDArray[np.uint64]:
            assert (n, kind) == (1, "<u8")
            return np.array([stream.pop(0)], np.uint64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "RandomBits", Bits)
        (chosen,) = poisson(rate, 1, FixedKeys(1))
    assert not stream
    assert chosen == (word < digits[agree])


@pytest.mark.parametrize("rate", [Fraction(0), Fraction(-1, 2), Fraction(3, 2)], ids=str)
def test_a_rate_that_is_none_is_refused(rate: Fraction) -> None:
    with pytest.raises(vm.BadInput, match="above 0 and up to 1"):
        poisson(rate, 3, FixedKeys(1))


# --- what it is worth -------------------------------------------------------------------------------------------


def outer(rate: Fraction, inner: float) -> float:
    return math.log1p(float(rate) * math.expm1(inner))


@given(st.fractions(Fraction(1, 10**9), 1), st.fractions(Fraction(1, 10**8), 100))
def test_inner_epsilon_is_just_below_the_tight_formula(rate: Fraction, total: Fraction) -> None:
    inner = inner_epsilon(rate, total)
    with localcontext(prec=200):
        e = (Decimal(total.numerator) / Decimal(total.denominator)).exp()
        true = (1 + (e - 1) * rate.denominator / rate.numerator).ln()
        found = Decimal(inner.numerator) / Decimal(inner.denominator)
        assert found <= true + Decimal(10) ** -150
        assert true - found < Decimal(2) ** -50
    assert inner >= total


def test_inner_epsilon_of_everyone_is_the_whole() -> None:
    assert inner_epsilon(Fraction(1), Fraction(1, 3)) == Fraction(1, 3)


def test_inner_epsilon_of_the_design() -> None:
    """A hundredth, for 0.1 in all: 2.44, where the paper's 2 p e^ε allows 1.61."""
    assert float(inner_epsilon(Fraction(1, 100), Fraction(1, 10))) == pytest.approx(2.4438, abs=1e-4)
    assert math.log(0.1 / 0.02) == pytest.approx(1.609, abs=1e-3)


def noisy_count(n: int, epsilon: float) -> Floats:
    z = np.abs(np.arange(-60, 61) - n)
    return math.tanh(epsilon / 2) * np.exp(-epsilon * z)


def on_a_sample(rate: float, n: int, mechanism) -> Floats:
    """The exact distribution of what a mechanism says of how many of n are in a Poisson sample."""
    chance = [math.comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(n + 1)]
    return sum(c * mechanism(k) for k, c in enumerate(chance))


def loss(rate: float, mechanism) -> float:
    known = [on_a_sample(rate, n, mechanism) for n in range(5)]
    return max(float(np.abs(np.log(a / b)).max()) for a, b in itertools.pairwise(known))


@pytest.mark.parametrize("rate", [Fraction(1, 100), Fraction(1, 3), Fraction(9, 10)], ids=str)
@pytest.mark.parametrize("total", [Fraction(1, 10), Fraction(1)], ids=str)
def test_loss_on_a_sample_is_the_tight_formula(rate: Fraction, total: Fraction) -> None:
    inner = float(inner_epsilon(rate, total))
    assert loss(float(rate), lambda n: noisy_count(n, inner)) == pytest.approx(float(total), abs=1e-12)
    assert loss(float(rate), lambda n: noisy_count(n, 1.1 * inner)) > 1.02 * total


@pytest.mark.parametrize("rate", [Fraction(1, 100), Fraction(1, 3)], ids=str)
def test_levels_that_share_a_sample_pay_for_their_sum(rate: Fraction) -> None:
    """Two counts of one sample: the formula holds for the composed ε, and a level at a time promises too little."""
    total = Fraction(1, 2)
    inner = float(inner_epsilon(rate, total))
    parts = 0.3 * inner, 0.7 * inner

    def both(n: int) -> Floats:
        return np.outer(noisy_count(n, parts[0]), noisy_count(n, parts[1]))

    seen = loss(float(rate), both)
    assert seen == pytest.approx(float(total), abs=1e-12)
    assert sum(outer(rate, part) for part in parts) < 0.9 * seen  # what adding up level by level would have charged
    # and two levels that each take what is right for them alone cost more than the sum
    each = [float(inner_epsilon(rate, total * k)) for k in (Fraction(3, 10), Fraction(7, 10))]
    assert loss(float(rate), lambda n: np.outer(*(noisy_count(n, e) for e in each))) > 1.1 * total


def test_delta_on_a_sample_is_delta_times_the_rate() -> None:
    """A mechanism that tells all with probability δ, and nothing else: on a sample it tells all with p δ."""
    rate, delta = 0.2, 0.05

    def tells(n: int) -> Floats:
        out = np.zeros(6)
        out[0], out[1 + n] = 1 - delta, delta
        return out

    a, b = on_a_sample(rate, 1, tells), on_a_sample(rate, 0, tells)
    assert np.maximum(a - b, 0).sum() == pytest.approx(rate * delta)

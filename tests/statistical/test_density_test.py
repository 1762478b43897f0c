"""Which boxes look dense: all answers along a path together lose no more than ε. Proof: proofs/density_test.md."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from veilmap.vault.entropy import FixedKeys
from veilmap.vault.mechanisms.density_test import decay, looks_dense
from veilmap.vault.mechanisms.laplace import exp_bounds

EPSILONS = [Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(3), Fraction(10)]
FANOUTS = [2, 4, 8]
ROUNDING = 1e-9


def yes(count: int, depth: int, rate: float, step: int) -> float:
    """ln P[max(−D, count − depth · D) + Z > 0], Z discrete Laplace of this rate: summed in closed form."""
    x, q = max(-step, count - depth * step), math.exp(-rate)
    return (1 - x) * -rate - math.log1p(q) if x <= 0 else math.log1p(-(q**x) / (1 + q))


def no(count: int, depth: int, rate: float, step: int) -> float:
    return math.log(-math.expm1(yes(count, depth, rate, step)))


def worst_loss(counts: tuple[int, ...], rate: float, step: int) -> float:
    """The largest |ln| ratio of an outcome of a path with these counts, root first, and with one row more on it."""
    loss, agreed = 0.0, 0.0
    for depth, count in enumerate(counts):
        here, there = (no(c, depth, rate, step) for c in (count, count + 1))
        loss = max(loss, abs(agreed + here - there))
        agreed += yes(count, depth, rate, step) - yes(count + 1, depth, rate, step)
        loss = max(loss, abs(agreed))  # a tree may end anywhere
    return loss


def worst_of_all(rate: float, step: int, most: int, depth: int) -> float:
    """Over all counts that fall along a path."""
    falling = itertools.combinations_with_replacement(range(most, -1, -1), depth)
    return max(worst_loss(counts, rate, step) for counts in falling)


def worst_of_long(rate: float, step: int, depth: int = 40) -> float:
    """Over paths of one count all along, on which the lowered counts fall as slowly as they may."""
    return max(worst_loss((count,) * depth, rate, step) for count in range(depth * step + 2))


@given(st.integers(-30, 30), st.sampled_from(EPSILONS))
def test_probabilities_are_the_sums_of_the_noise(x: int, rate: Fraction) -> None:
    q, far = math.exp(-rate), 3000
    masses = [(1 - q) / (1 + q) * q ** abs(z) for z in range(-far, far) if x + z > 0]
    assert math.exp(yes(x, 0, float(rate), 100)) == pytest.approx(math.fsum(masses), rel=1e-9)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.7, 3.0])
def test_one_row_more_loses_the_rate_below_1_and_ever_less_above(rate: float) -> None:
    q, step = math.exp(-rate), 12
    for x in range(1 - step, 2):
        assert yes(x, 0, rate, step) - yes(x - 1, 0, rate, step) == pytest.approx(rate)
    for x in range(1, 60):
        assert 0 < yes(x, 0, rate, step) - yes(x - 1, 0, rate, step) <= rate * q ** (x - 1) * (1 + ROUNDING) + 1e-16
    for x in range(-40, 1 - step):  # both are lowered no further, the one at the clip too
        assert yes(x, 0, rate, step) == yes(x - 1, 0, rate, step)


@pytest.mark.parametrize("fanout", FANOUTS)
@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(3), Fraction(10)])
def test_no_path_of_small_counts_loses_more_than_epsilon(fanout: int, epsilon: Fraction) -> None:
    rate, step = decay(epsilon, fanout)
    assert worst_of_all(float(rate), step, 9, 5) <= epsilon + ROUNDING


@pytest.mark.parametrize("fanout", FANOUTS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_long_path_loses_more_than_epsilon_nor_much_less(fanout: int, epsilon: Fraction) -> None:
    rate, step = decay(epsilon, fanout)
    worst = worst_of_long(float(rate), step)
    assert worst <= epsilon + ROUNDING
    if step > 4:  # a step of few rows is rounded up by much
        assert worst > 0.8 * epsilon


@pytest.mark.parametrize("fanout", FANOUTS)
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 7)])  # small: steps of many rows waste least
def test_counts_that_are_not_lowered_or_sharper_noise_lose_more(fanout: int, epsilon: Fraction) -> None:
    rate, step = decay(epsilon, fanout)
    assert worst_loss((0,) * 10, float(rate), 0) > epsilon
    assert worst_of_long(1.3 * float(rate), step) > epsilon
    assert worst_of_long(float(rate), step // 4) > epsilon


@given(st.fractions(Fraction(1, 10**6), 100), st.sampled_from([2, 4, 8, 16, 256]), st.sampled_from([1, 3, 10**6]))
def test_the_step_is_the_least_that_is_certain(epsilon: Fraction, fanout: int, rows: int) -> None:
    rate, step = decay(epsilon / rows, fanout)
    assert rate * (2 * fanout - 1) / (fanout - 1) == epsilon / rows
    assert exp_bounds(rate * step, 60)[0] >= fanout
    assert step == 1 or exp_bounds(rate * (step - 1), 60)[1] < fanout


@pytest.mark.parametrize(("count", "depth"), [(0, 0), (1, 0), (3, 0), (5, 1), (20, 1), (0, 3), (20, 3)])
def test_boxes_look_dense_as_often_as_they_should(count: int, depth: int) -> None:
    (rate, step), n = decay(Fraction(1, 2), 4), 100_000
    seen = int(looks_dense(np.full(n, count), depth, rate, step, FixedKeys(count + 10 * depth)).sum())
    chance = math.exp(yes(count, depth, float(rate), step))
    assert binomtest(seen, n, chance).pvalue > 1e-9
    near = math.exp(yes(count + 1, depth, 1.3 * float(rate), step))  # sharper noise is seen
    assert binomtest(seen, n, near).pvalue < 1e-9 or depth * step - count >= step

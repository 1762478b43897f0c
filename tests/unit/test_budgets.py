"""Shares of epsilon: exact, and the best there are."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from veilmap import BadInput, Geometric, LeafOnly, Levels, Uniform
from veilmap.budgets import level_shares, share
from veilmap.validation import exact_delta, exact_epsilon

HEIGHTS, DIMENSIONS = st.integers(0, 30), st.integers(1, 8)
RATIOS = st.none() | st.floats(1e-300, 1e300)
GROWTHS = st.floats(0.01, 100)
EPSILONS = st.fractions(Fraction(1, 10**6), 100)
SHARES = st.lists(st.fractions(0, 10**6) | st.integers(0, 9) | st.floats(0, 1e6), max_size=12)


def best(dimensions, power=2):
    """How shares should grow on a quadtree; noise whose variance falls with ε², or with ρ."""
    return 2 ** ((dimensions - 1) / (power + 1))


@st.composite
def rules(draw):
    """A rule and the height of a tree it suits."""
    by_hand = [*draw(SHARES), 1]
    free = st.sampled_from([Uniform(), LeafOnly()]) | st.builds(Geometric, RATIOS)
    return draw(st.tuples(free, HEIGHTS) | st.just((Levels(by_hand), len(by_hand) - 1)))


@given(rules(), GROWTHS, EPSILONS)
def test_levels_spend_exactly_the_total(rule_and_height, ratio, epsilon):
    rule, height = rule_and_height
    parts = level_shares(rule, epsilon, height, ratio)
    assert parts == share(epsilon, rule.weights(height, ratio))
    assert len(parts) == height + 1
    assert sum(parts) == epsilon
    assert min(parts) >= 0
    assert parts[-1] > 0


def test_uniform_gives_every_level_the_same():
    assert share(Fraction(1), Uniform().weights(3, 2)) == (Fraction(1, 4),) * 4


def test_leaf_only_gives_the_leaves_everything():
    assert LeafOnly().weights(3, 2) == (0, 0, 0, 1)
    assert LeafOnly().weights(0, 2) == (1,)


def test_levels_by_hand_are_the_numbers_that_were_typed_and_may_skip_levels():
    assert Levels([0.1, 0, "1/3", Fraction(1, 7)]).weights(3, 2) == (
        Fraction(1, 10),
        0,
        Fraction(1, 3),
        Fraction(1, 7),
    )


@given(st.integers(0, 12), DIMENSIONS)
def test_geometric_is_the_optimum_of_lemma_3(height, dimensions):
    """ε_level ∝ 2^((d-1) level / 3); in the plane the lemma writes its sum out."""
    grown = best(dimensions) ** np.arange(height + 1)
    got = np.array([float(w) for w in level_shares(Geometric(), Fraction(1), height, best(dimensions))])
    assert got == pytest.approx(grown / grown.sum(), rel=2**-19 * grown[-1] / grown[0], abs=2**-20)
    if dimensions == 2:
        lemma = (2 ** (1 / 3) - 1) / (2 ** ((height + 1) / 3) - 1)
        assert got[0] == pytest.approx(lemma, rel=1e-4)


def bound(parts, dimensions, power):
    """The paper's bound on the error of any box: Σ 2^((d-1) level) / ε_level², levels from the root; or / ρ_level."""
    return float(np.sum(2.0 ** ((dimensions - 1) * np.arange(len(parts))) / np.asarray(parts) ** power))


POWERS = pytest.mark.parametrize("power", [1, 2], ids=["gaussian", "laplace"])


@POWERS
@given(height=st.integers(1, 10), dimensions=DIMENSIONS, seed=st.integers(0, 2**32 - 1))
def test_no_other_shares_beat_the_geometric_ones(power, height, dimensions, seed):
    ours = np.array([float(p) for p in level_shares(Geometric(), Fraction(1), height, best(dimensions, power))])
    noise = np.random.default_rng(seed).normal(size=(100, height + 1))
    for scale in (0.01, 0.1, 1):
        for other in ours * np.exp(scale * noise):
            assert bound(other / other.sum(), dimensions, power) >= bound(ours, dimensions, power) * (1 - 1e-4)


@pytest.mark.parametrize(("height", "dimensions"), [(3, 2), (6, 2), (4, 3), (5, 1)])
@POWERS
def test_an_optimiser_finds_the_geometric_shares(height, dimensions, power):
    def loss(logits):
        parts = np.exp(logits - logits.max())
        return math.log(bound(parts / parts.sum(), dimensions, power))

    found = math.exp(minimize(loss, np.zeros(height + 1)).fun)
    ours, other = (
        [float(p) for p in level_shares(Geometric(), Fraction(1), height, best(dimensions, kind))]
        for kind in (power, 3 - power)
    )
    assert bound(ours, dimensions, power) == pytest.approx(found, rel=1e-4)
    assert dimensions == 1 or bound(other, dimensions, power) > found * (1 + 1e-3)  # the other noise's are not it


@given(HEIGHTS, GROWTHS, RATIOS)
def test_geometric_weights_are_short_fractions_and_never_zero(height, growth, ratio):
    weights = Geometric(ratio).weights(height, growth)
    assert max(weights) == 1
    assert all(w > 0 and (w * 2**20).denominator == 1 for w in weights)
    assert ratio is None or weights == Geometric(ratio).weights(height, 1.0)  # a ratio of one's own is kept


@pytest.mark.parametrize("ratio", [0, -1, math.nan, math.inf, "abc"])
def test_a_ratio_that_is_not_positive_is_refused(ratio):
    with pytest.raises(BadInput, match=f"ratio of a geometric budget must be a positive number, got '?{ratio}"):
        Geometric(ratio)


@pytest.mark.parametrize("shares", [[], [1, 0], [-1, 1], [0, 0]])
def test_shares_must_not_be_negative_and_the_leaves_need_one(shares):
    with pytest.raises(BadInput, match="0 or more, and more than 0 for the leaves, got"):
        Levels(shares)


@pytest.mark.parametrize("shares", [["a"], 5, None, [None], [math.nan], [math.inf, 1], ["1/0"], [True, 1]])
def test_shares_must_be_numbers(shares):
    with pytest.raises(BadInput, match="must be a list of numbers, got"):
        Levels(shares)


def test_there_must_be_one_share_for_each_level():
    with pytest.raises(BadInput, match="height 3 has 4 levels, but 2 shares were given"):
        Levels([1, 1]).weights(3, 2)


@pytest.mark.parametrize("weights", [(0, 0), (-1, 2)])
def test_weights_that_cannot_be_shared_are_refused(weights):
    with pytest.raises(BadInput, match="The weights of levels must be 0 or more and not all 0"):
        share(Fraction(1), tuple(map(Fraction, weights)))


@pytest.mark.parametrize("typed", [0.1, "0.1", "1/10", Decimal("0.1"), Fraction(1, 10), np.float64(0.1), "1e-1"])
def test_epsilon_is_the_number_that_was_typed(typed):
    assert exact_epsilon(typed) == Fraction(1, 10)


@pytest.mark.parametrize("whole", [1, np.int64(1), np.float32(1)])
def test_epsilon_may_be_any_number_type(whole):
    assert exact_epsilon(whole) == 1


@pytest.mark.parametrize("epsilon", [1e-6, 100])
def test_the_ends_of_the_range_are_allowed(epsilon):
    assert exact_epsilon(epsilon) == Fraction(str(epsilon))


@pytest.mark.parametrize("epsilon", [0, -1, 1e9, 100.0001, 9e-7, "-0.5", Fraction(101), "1e400"])
def test_an_absurd_epsilon_is_refused_with_a_hint(epsilon):
    with pytest.raises(BadInput, match=r"from 1e-06 to 100, got .*\. It limits the influence of one row"):
        exact_epsilon(epsilon)


@pytest.mark.parametrize(
    "epsilon", [math.nan, math.inf, -math.inf, "abc", "", "1/0", True, None, [1], 1j, b"1", Decimal("NaN")]
)
def test_an_epsilon_that_is_no_number_is_refused(epsilon):
    with pytest.raises(BadInput, match=r"epsilon must be a number from 1e-06 to 100, got .*\.$"):
        exact_epsilon(epsilon)


@pytest.mark.parametrize("typed", [1e-6, "1e-6", "1/1000000", Decimal("0.000001"), Fraction(1, 10**6)])
def test_delta_is_the_number_that_was_typed(typed):
    assert exact_delta(typed) == Fraction(1, 10**6)


@pytest.mark.parametrize("delta", [0, 1, -1e-9, 1.5, math.nan, math.inf, "abc", "", True, [1e-6], "1e-99999", "1/0"])
def test_a_delta_that_is_no_chance_is_refused(delta):
    with pytest.raises(BadInput, match=r"delta is a number between 0 and 0\.1, far below 1 / \(number of people\)"):
        exact_delta(delta)

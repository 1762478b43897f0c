"""Medians by smooth sensitivity: the sensitivity, the exact noise, and the loss over all small data sets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chisquare

import veilmap as vm
from veilmap.kernels.smooth_sensitivity import MAX_LOG_ERROR, find_smooth, log_smooth
from veilmap.vault.entropy import FixedKeys, RandomBits
from veilmap.vault.mechanisms import smooth
from veilmap.vault.mechanisms.laplace import exp_bounds
from veilmap.vault.mechanisms.smooth import geometric, least_log, smooth_cuts, smoothness

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
XI, LEAST = smoothness(EPSILON, DELTA), least_log(EPSILON)
SIDE, MOST = 6, 8
ALL = [rows for n in range(MOST + 1) for rows in itertools.combinations_with_replacement(range(SIDE), n)]


# --- twins ------------------------------------------------------------------------------------------------------


def value(rows, lo: int, hi: int, k: int) -> int:
    return lo if k < 1 else hi if k > len(rows) else sorted(rows)[k - 1]


def middle(rows) -> int:
    return math.ceil(len(rows) / 2)


def apart(rows, lo: int, hi: int, k: int, m: int) -> int:
    """A_k: the most that x_j and x_i differ by, i ≤ m ≤ j = i + k + 1. The paper's t is j − m."""
    return max(value(rows, lo, hi, m + t) - value(rows, lo, hi, m + t - k - 1) for t in range(k + 2))


def log_of_the_paper(rows, lo: int, hi: int, xi: float, least: float) -> float:
    widths = [apart(rows, lo, hi, k, middle(rows)) for k in range(len(rows) + 1)]
    return max([least, *(math.log(w) - k * xi for k, w in enumerate(widths) if w > 0)])


def one_more(rows: tuple[int, ...]):
    return [tuple(sorted((*rows, v))) for v in range(SIDE)]


NEIGHBOURS = [(rows, more) for rows in ALL if len(rows) < MOST for more in one_more(rows)]
BOTH_WAYS = [pair for a, b in NEIGHBOURS for pair in ((a, b), (b, a))]


def states(xi: float = XI, least: float = LEAST) -> dict[tuple[int, ...], tuple[int, float]]:
    """x_m and S of all small data sets, as the code has them."""
    start = np.concatenate([[0], np.cumsum([len(rows) for rows in ALL])])
    ends = np.zeros(len(ALL), np.int64), np.full(len(ALL), SIDE)
    median, size = np.empty(len(ALL), np.int64), np.empty(len(ALL))
    find_smooth(np.array([v for rows in ALL for v in rows], np.int64), start, *ends, xi, least, median, size)
    return dict(zip(ALL, zip(median.tolist(), size.tolist(), strict=True), strict=True))


# --- the sensitivity --------------------------------------------------------------------------------------------


@st.composite
def boxes(draw):
    lo, width = draw(st.integers(0, 50)), draw(st.integers(2, 40) | st.sampled_from([2**30, 2**62 - 60]))
    values = sorted(draw(st.lists(st.integers(lo, lo + width - 1) | st.integers(lo, lo + 1), max_size=30)))
    return np.array(values, np.int64), lo, lo + width


@given(boxes(), st.sampled_from([0.0, 1e-9, 1e-3, 0.1, 1.0]) | st.floats(0, 1), st.sampled_from([-60.0, LEAST, 0.5]))
@settings(max_examples=300)
def test_log_smooth(box, xi: float, least: float) -> None:
    values, lo, hi = box
    twin = log_of_the_paper(values.tolist(), lo, hi, xi, least)
    assert log_smooth(values, lo, hi, xi, least) == pytest.approx(twin, abs=MAX_LOG_ERROR / 2)


def test_sensitivity_of_many_rows_is_the_largest_of_all_pairs() -> None:
    """Wide enough for many halvings of the rows, with ties and long gaps."""
    rng = np.random.default_rng(0)
    for xi, least in ((1e-4, -60.0), (0.01, -60.0), (0.3, LEAST)):
        values = np.sort(np.concatenate([rng.integers(0, 2**30, 300), rng.integers(500, 700, 300), np.full(99, 2**20)]))
        x = np.concatenate([[0], values, [2**30]])
        m = (len(values) + 1) // 2
        i, j = np.arange(m + 1)[:, None], np.arange(m, len(x))
        with np.errstate(divide="ignore"):
            twin = (np.log((x[j] - x[i]).astype(float)) - (j - i - 1) * xi).max()
        assert log_smooth(values, 0, 2**30, xi, least) == pytest.approx(max(twin, least), abs=MAX_LOG_ERROR / 2)


def test_find_smooth() -> None:
    for rows, (median, size) in states().items():
        assert median == value(rows, 0, SIDE, middle(rows))
        assert 0 < math.log(size) - log_of_the_paper(rows, 0, SIDE, XI, LEAST) < 3 * MAX_LOG_ERROR


def test_a_neighbour_is_within_the_widths_of_one_step_more() -> None:
    """A_k(D) ≤ A_k+1(D'), and the median moves by at most A_0: what the definition's indices have to do."""
    widths = {rows: [apart(rows, 0, SIDE, k, middle(rows)) for k in range(MOST + 3)] for rows in ALL}
    for a, b in BOTH_WAYS:
        assert abs(value(a, 0, SIDE, middle(a)) - value(b, 0, SIDE, middle(b))) <= widths[a][0]
        assert all(widths[a][k] <= widths[b][k + 1] for k in range(MOST + 2))


@pytest.mark.parametrize("rank", [lambda n: n // 2 + 2, lambda n: max(n - 1, 0), lambda n: 2 * (n // 3)])
def test_other_ranks_would_break_the_indices(rank: Callable[[int], int]) -> None:
    """Ranks that may move by two places, or stray from ceil(n/2), when one row is added."""
    broken = 0
    for a, b in BOTH_WAYS:
        moved = abs(value(a, 0, SIDE, rank(len(a))) - value(b, 0, SIDE, rank(len(b))))
        broken += moved > apart(a, 0, SIDE, 0, middle(a))
    assert broken > 100


def test_sensitivity_covers_the_median_and_is_smooth() -> None:
    of, xi = states(), float(EPSILON) / (4 * (1 + math.log(2 / float(DELTA))))
    for a, b in BOTH_WAYS:
        assert abs(of[a][0] - of[b][0]) <= of[a][1]
        assert abs(math.log(of[a][1] / of[b][1])) <= xi
    assert max(math.log(of[a][1] / of[b][1]) for a, b in BOTH_WAYS) > 0.999 * xi


@given(st.fractions(Fraction(1, 10**8), 100), st.integers(1, 400).map(lambda k: Fraction(1, 10**k)))
def test_smoothness_is_below_the_formula_by_more_than_the_error(epsilon: Fraction, delta: Fraction) -> None:
    log = math.log(2) + math.log(delta.denominator)
    xi = min(float(epsilon) / (4 * (1 + log)), 1)
    assert smoothness(epsilon, delta) <= max(xi - 2 * MAX_LOG_ERROR, 0)
    assert smoothness(epsilon, delta) > 0.999 * xi - 2.1 * MAX_LOG_ERROR


# --- privacy loss -----------------------------------------------------------------------------------------------


OUTCOMES = np.arange(-2500, 2500)


def pmf(median: int, size: float, epsilon: float) -> Floats:
    """Of the noisy median, before it is moved into its box."""
    rate = epsilon / 2 / size
    steps = np.where(median > OUTCOMES, median - 1 - OUTCOMES, OUTCOMES - median)
    return -math.expm1(-rate) / 2 * np.exp(-rate * steps)


def delta_between(p: Floats, other: Floats, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * other, 0).sum())


def worst_delta(of: dict[tuple[int, ...], tuple[int, float]], epsilon: float, shrink: float = 1.0) -> float:
    """The largest Σ max(p − e^ε p', 0) over all neighbours."""
    known = {(median, size): pmf(median, size * shrink, epsilon) for median, size in set(of.values())}
    pairs = {(of[a], of[b]) for a, b in BOTH_WAYS}
    return max(delta_between(known[a], known[b], epsilon) for a, b in pairs)


def test_no_smooth_median_loses_more_than_epsilon_and_delta() -> None:
    worst = worst_delta(states(), float(EPSILON))
    print(f"delta {worst:.3g} of {float(DELTA):.3g} used")
    assert worst <= float(DELTA)


@pytest.mark.parametrize(("xi", "shrink"), [(4, 1), (1, 0.45), (1e6, 1)], ids=["xi", "scale", "local sensitivity"])
def test_sensitivities_that_are_less_smooth_or_too_small_lose_more(xi: float, shrink: float) -> None:
    assert worst_delta(states(XI * xi), float(EPSILON), shrink) > 2 * float(DELTA)


@pytest.mark.parametrize("epsilon", [10, 50, 100])
def test_large_epsilons_keep_their_delta(epsilon: int) -> None:
    """There the paper's ξ, made for ε < 1, may be beyond 1, where e^ξ − 1 ≤ 2ξ fails: so it ends at 1."""
    delta = Fraction(1, 100)
    xi = smoothness(Fraction(epsilon), delta)
    assert worst_delta(states(xi, least_log(Fraction(epsilon))), epsilon) <= delta
    assert delta_between(pmf(0, math.exp(xi), epsilon), pmf(1, 1, epsilon), epsilon) <= delta
    of_the_paper = epsilon / (4 * (1 + math.log(2 / float(delta))))
    if of_the_paper > 2:
        assert delta_between(pmf(0, math.exp(of_the_paper), epsilon), pmf(1, 1, epsilon), epsilon) > delta


# --- the noise --------------------------------------------------------------------------------------------------


def misfit(draws: Ints, rate: float) -> float:
    """The chance of geometric draws that fit this badly, in runs of equal chance."""
    edges = np.unique(np.ceil(-np.log1p(-np.linspace(0, 1, 21)[:-1]) / rate))
    seen = np.bincount(np.searchsorted(edges, draws, side="right") - 1, minlength=len(edges))
    expected = -np.diff(np.append(np.exp(-rate * edges), 0)) * len(draws)
    return 1.0 if len(edges) == 1 else float(chisquare(seen, expected).pvalue)


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.7, 1e4, 1e9, 1e15])
def test_noise_has_its_own_scale_and_no_other(scale: float) -> None:
    draws = geometric(Fraction(1, 2), np.full(100_000, scale), RandomBits(bytes(32)))
    assert misfit(draws, 0.5 / scale) > 1e-9
    for other in (0.7, 1.3):
        assert misfit(draws, other * 0.5 / scale) < 1e-20


def test_each_box_has_its_own_scale() -> None:
    scales = np.random.default_rng(1).permutation(np.repeat([0.4, 3.0, 500.0, 2.0**40], 30_000))
    draws = geometric(Fraction(1, 3), scales, RandomBits(bytes(32)))
    for scale in np.unique(scales):
        assert misfit(draws[scales == scale], 1 / 3 / scale) > 1e-9


@pytest.mark.parametrize("scale", [0.3, 3.0, 2.0**63])
def test_open_comparisons_have_the_same_distribution(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rate = Fraction(1, 2)
    n = 300
    scales = np.full(n, scale)
    quick = geometric(rate, scales, RandomBits(bytes(32)))
    asked: list[Fraction] = []
    digit = smooth._digit
    monkeypatch.setattr(smooth, "MAX_UNDECIDED_DISTANCE", 2.0**33)  # every comparison is settled to the last bit
    monkeypatch.setattr(smooth, "_digit", lambda x, tail: asked.append(x) or digit(x, tail))
    assert np.array_equal(geometric(rate, scales, RandomBits(bytes(32))), quick)  # 32 bits had settled all
    assert len(asked) == 63 * n
    assert asked[::n] == [rate / Fraction(scale) * 2**j for j in range(63)]


@pytest.mark.parametrize("scale", [0.7, 12.3, 1e6])
def test_words_next_to_the_probability_are_carried_on(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The float is right to within 1: words within 1 are left to the certified digits, and those beyond 3 are not."""
    rate, near = Fraction(1, 2), np.arange(-5, 6)
    chances = [smooth._digit(rate / Fraction(scale) * 2**j, j == 62).digits(32) for j in range(63)]
    known = [np.clip(p + near, 0, 2**32 - 1).astype(np.uint32) for p in chances]
    drawn: list[int] = []
    asked: set[tuple[int, int]] = set()

    class Bits:
        def words(self, n: int, kind: str) -> NDArray[np.uint32]:
            assert (n, kind) == (len(near), "<u4")
            drawn.append(len(drawn))
            return known[drawn[-1]]

    def is_below(word: int, seen: int, p: object, bits: object) -> bool:
        assert seen == 32
        asked.add((drawn[-1], word))
        return False

    monkeypatch.setattr(smooth, "is_below", is_below)
    found = geometric(rate, np.full(len(near), scale), Bits())
    for j, (p, some) in enumerate(zip(chances, known, strict=True)):
        for k, word in enumerate(some.tolist()):
            assert abs(word - p) > 1 or (j, word) in asked
            if abs(word - p) > 3:
                assert (j, word) not in asked
                assert j == 62 or (int(found[k]) >> j) % 2 == (word < p)


@given(st.integers(-40, 80), st.fractions(1, 2), st.booleans(), st.sampled_from([32, 96]))
def test_digits_are_certain(power: int, odd: Fraction, tail: bool, bits: int) -> None:
    x = odd * Fraction(2) ** power
    p = smooth._digit(x, tail).digits(bits)
    if x > 200:
        assert p == 0
    else:
        ends = [q if tail else q / (1 + q) for q in exp_bounds(-x, 100)]
        assert [math.floor(end * 2**bits) for end in ends] == [p, p]


@given(st.floats(1e-3, 1e19), st.integers(0, 62), st.booleans(), st.fractions(Fraction(1, 10**6), 50))
def test_comparisons_by_floats_are_right_to_within_one(scale: float, j: int, tail: bool, rate: Fraction) -> None:
    q = float(np.exp(-np.minimum(float(rate) / np.array([scale]) * 2.0**j, 100.0))[0])
    true = smooth._digit(rate / Fraction(scale) * 2**j, tail).digits(64) / 2**32
    assert abs((q if tail else q / (1 + q)) * 2.0**32 - true) < 0.01


def test_noise_beyond_every_box_ends_there() -> None:
    draws = geometric(Fraction(1), np.full(10_000, 2.0**62), RandomBits(bytes(32)))
    assert abs((draws == 2**62).mean() - math.exp(-1)) < 0.03  # six sigma
    assert draws.max() == 2**62
    assert draws.min() >= 0


# --- cuts -------------------------------------------------------------------------------------------------------


def draws(values, lo: int, hi: int, epsilon=EPSILON, n: int = 100_000, seed: int = 1) -> Ints:
    tiled, ends = np.tile(np.array(values, np.int64), n), (np.full(n, lo), np.full(n, hi))
    return smooth_cuts(tiled, np.arange(n + 1) * len(values), *ends, Fraction(epsilon), DELTA, FixedKeys(seed))


def cut_probabilities(values, lo: int, hi: int, epsilon: float, shrink: float = 1.0) -> Floats:
    """Of every cut lo < c < hi."""
    xi = smoothness(Fraction(epsilon), DELTA)
    size = math.exp(log_of_the_paper(values, lo, hi, xi, least_log(Fraction(epsilon)))) * shrink
    median, rate = value(values, lo, hi, middle(values)), float(epsilon) / 2 / size

    def below(c: int) -> float:  # P[x_m + s Lap < c]
        tail = math.exp(-rate * abs(c - median)) / 2
        return tail if c <= median else 1 - tail

    at = [0, *(below(c) for c in range(lo + 2, hi)), 1]  # clamped: all below to lo + 1, all above to hi − 1
    return np.diff(at)


@pytest.mark.parametrize(
    ("values", "lo", "hi"),
    [((1, 2, 2, 5, 7), 0, 9), ((3,) * 400, 0, 8), ((0, 0, 4, 7), 0, 8), ((5,), 3, 8), ((), 2, 7), ((0, 1), 0, 2)],
    ids=["plain", "tied", "both ends", "one row", "empty", "two cells"],
)
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(8)], ids=str)
def test_cuts_have_their_probabilities(values: tuple[int, ...], lo: int, hi: int, epsilon: Fraction) -> None:
    n = 20_000 if len(values) > 9 else 100_000
    seen = np.bincount(draws(values, lo, hi, epsilon, n) - lo - 1, minlength=hi - lo - 1)

    def fit(shrink: float) -> float:
        expected = cut_probabilities(values, lo, hi, epsilon, shrink) * n
        some = expected > 5
        if some.sum() < 2:
            return 1.0
        return float(
            chisquare(
                np.append(seen[some], seen[~some].sum() + 1e-9), np.append(expected[some], expected[~some].sum() + 1e-9)
            ).pvalue
        )

    assert len(seen) == hi - lo - 1
    assert fit(1.0) > 1e-9
    if len(values) == 5:
        assert fit(0.7) < 1e-20
        assert fit(1.3) < 1e-20


def test_boxes_without_room_are_not_cut() -> None:
    start, lo, hi = np.array([0, 2, 2, 3]), np.array([3, 5, 0]), np.array([4, 5, 2])
    assert smooth_cuts(np.array([3, 3, 1]), start, lo, hi, EPSILON, DELTA, FixedKeys(1)).tolist() == [4, 5, 1]


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**8), Fraction(1), Fraction(1000)], ids=str)
@pytest.mark.parametrize("delta", [Fraction(1, 10**400), Fraction(1, 2), Fraction(5)], ids=["tiny", "half", "above 1"])
def test_nothing_makes_it_fail(epsilon: Fraction, delta: Fraction) -> None:
    """No rows, one, a million ties; the widest boxes there are."""
    for values in (np.zeros(0, np.int64), np.array([7]), np.full(10**6, 5), np.array([0, 2**62 - 1])):
        for hi in (8, 2**30, 2**62):
            inside = values[values < hi]
            ends = np.array([0]), np.array([hi])
            (cut,) = smooth_cuts(inside, np.array([0, len(inside)]), *ends, epsilon, delta, FixedKeys(1))
            assert 0 < cut < hi


def test_a_delta_of_nothing_is_refused() -> None:
    with pytest.raises(vm.BadInput, match="needs a delta above 0"):
        smooth_cuts(np.array([1]), np.array([0, 1]), np.array([0]), np.array([4]), EPSILON, Fraction(0), FixedKeys(1))


# --- Lemma 6 of the paper ---------------------------------------------------------------------------------------


def chance_of_the_centre(values: Ints, lo: int, hi: int, epsilon: Fraction, delta: Fraction) -> float:
    """P[cut in [x_n/5, x_4n/5]], from the code's own median and sensitivity."""
    n = len(values)
    median, size = np.empty(1, np.int64), np.empty(1)
    ends = np.array([0, n]), np.array([lo]), np.array([hi])
    find_smooth(values, *ends, smoothness(epsilon, delta), least_log(epsilon), median, size)
    rate = float(epsilon) / 2 / float(size[0])

    def below(c: int) -> float:
        tail = math.exp(-rate * abs(c - int(median[0]))) / 2
        return tail if c <= median[0] else 1 - tail

    low, high = int(values[n // 5 - 1]), int(values[4 * n // 5 - 1])
    return (1 if high >= hi - 1 else below(high + 1)) - (0 if low <= lo + 1 else below(low))


def eighty_twenty(name: str, n: int, side: int) -> Ints:
    rng, k = np.random.default_rng(4), n // 5
    centre = {
        "even": np.linspace(0, side - 1, n),
        "normal": np.clip(rng.normal(side / 2, side / 6, n), 0, side - 1),
        "median at the low end": np.concatenate(
            [np.full(3 * k, side // 4), np.full(n - 3 * k, side // 4 + side // 5 + 1)]
        ),
        "median at the high end": np.concatenate([np.full(k, side // 3), np.full(n - k, side // 3 + side // 5 + 1)]),
        "ends": np.repeat([0, side - 1], [n // 2, n - n // 2]),
        "concentrated": np.full(n, side // 3),  # not 80/20
    }[name]
    return np.sort(centre.astype(np.int64))


SETS = ["even", "normal", "median at the low end", "median at the high end", "ends"]


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 2), Fraction(99, 100)], ids=str)
@pytest.mark.parametrize("name", SETS)
def test_lemma_6_a_smooth_median_is_central_with_constant_probability(name: str, epsilon: Fraction) -> None:
    delta, side = Fraction(1, 10**4), 2**20
    n = 5 * math.ceil(4.03 / smoothness(epsilon, delta) / 5)
    values = eighty_twenty(name, n, side)
    assert 5 * (values[4 * n // 5 - 1] - values[n // 5 - 1]) >= side
    chance = chance_of_the_centre(values, 0, side, epsilon, delta)
    print(f"{name}, epsilon {epsilon}: {chance:.4f}, bound {0.5 * -math.expm1(-float(epsilon) / 4):.4f}")
    assert chance > 0.5 * -math.expm1(-float(epsilon) / 4)


def test_lemma_6_needs_its_condition() -> None:
    """With n ξ far below 4.03 the noise is of the whole range, and the bound fails."""
    epsilon, delta, side = Fraction(1, 2), Fraction(1, 10**4), 2**20
    values = eighty_twenty("median at the low end", 50, side)
    assert chance_of_the_centre(values, 0, side, epsilon, delta) < 0.5 * -math.expm1(-float(epsilon) / 4)

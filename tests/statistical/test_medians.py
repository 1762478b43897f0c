"""Private medians: their exact distribution, their privacy loss over all small data sets, and rows in nodes."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chisquare

import veilmap as vm
from tests import naive
from tests.statistical.test_smooth import SETS, eighty_twenty
from veilmap.domain import Domain
from veilmap.engines.tally import Cut, Nodes, Step, Walk, split_step
from veilmap.kernels import box_medians, median_ranks
from veilmap.kernels.counting import find_cells, follow_cuts, follow_parts
from veilmap.testing import fixed_entropy
from veilmap.trees import CutTree, RegularTree, Tree, frozen
from veilmap.vault.entropy import FixedKeys, RandomBits
from veilmap.vault.mechanisms import exponential, medians, private_median
from veilmap.vault.mechanisms.exponential import uniform_below
from veilmap.vault.mechanisms.laplace import decay_bounds, exp_bounds
from veilmap.vault.mechanisms.medians import (
    MEDIANS,
    cell_cut,
    exact_cuts,
    exponential_cuts,
    mean_cut,
    mean_cuts,
    private_cuts,
)
from veilmap.vault.rows import MIN_ROWS_FOR_TWO_THREADS, Rows

Ints = NDArray[np.int64]
DRAWS = 200_000
EPSILON = Fraction(7, 10)

# values, lo, hi
BOXES = {
    "plain": ((1, 2, 2, 5, 7), 0, 9),
    "tied": ((3,) * 6, 0, 8),
    "two ties": ((2, 2, 2, 6, 6), 0, 8),
    "both ends": ((0, 0, 0, 4, 7), 0, 8),
    "all at the low end": ((4,) * 5, 4, 10),
    "all at the high end": ((9,) * 5, 4, 10),
    "one row": ((5,), 3, 8),
    "empty": ((), 2, 7),
    "two cells": ((0, 1, 1), 0, 2),
    "wide": ((100, 10**8, 10**9), 0, 2**30),
    "widest": ((5, 2**60, 2**61 + 7), 0, 2**62),
}
WIDE = ["wide", "widest"]
SHARP = ["plain", "two ties", "both ends"]  # whose probabilities say much about epsilon


# --- twins ------------------------------------------------------------------------------------------------------


def weights(values, lo, hi, epsilon) -> list[float]:
    """Of every cut lo < c < hi."""
    n = len(values)
    return [math.exp(-epsilon * abs(sum(v < c for v in values) - n / 2)) for c in range(lo + 1, hi)]


def probabilities(values, lo, hi, epsilon) -> NDArray[np.float64]:
    w = np.array(weights(values, lo, hi, epsilon))
    return w / w.sum()


def rank_probabilities(values, lo, hi, epsilon) -> dict[int, float]:
    """Of the ranks of the cut, for boxes with too many cuts to list."""
    ends, n = [lo, *sorted(values), hi - 1], len(values)
    w = {r: (ends[r + 1] - ends[r]) * math.exp(-epsilon * abs(r - n / 2)) for r in range(n + 1)}
    return {r: x / sum(w.values()) for r, x in w.items()}


def draws(values, lo, hi, epsilon, n=DRAWS, seed=1) -> Ints:
    """Cuts of many boxes with the same rows, all at once."""
    size = len(values)
    tiled = np.tile(np.array(values, np.int64), n)
    ends = np.full(n, lo, np.int64), np.full(n, hi, np.int64)
    return exponential_cuts(tiled, np.arange(n + 1) * size, *ends, Fraction(epsilon), FixedKeys(seed))


def fit(cuts: Ints, expected: NDArray[np.float64], lo: int) -> float:
    """The chance of cuts that fit this badly; cuts of less than ten expected draws are taken together."""
    seen = np.bincount(cuts - lo - 1, minlength=len(expected))
    assert len(seen) == len(expected), "a cut outside its box"
    rare = expected * len(cuts) < 10
    seen = np.append(seen[~rare], seen[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum()) * len(cuts)
    if expected[-1] == 0:
        seen, expected = seen[:-1], expected[:-1]
    return 1.0 if len(seen) == 1 else float(chisquare(seen, expected).pvalue)


# --- the distribution -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), EPSILON, Fraction(3)], ids=str)
@pytest.mark.parametrize("name", [name for name in BOXES if name not in WIDE])
def test_cuts_have_their_probabilities(name: str, epsilon: Fraction) -> None:
    values, lo, hi = BOXES[name]
    p = fit(draws(values, lo, hi, epsilon), probabilities(values, lo, hi, float(epsilon)), lo)
    print(f"{name}: p = {p:.3g}")
    assert p > 1e-9


@pytest.mark.parametrize("name", WIDE)
def test_cuts_of_a_wide_box_have_their_probabilities(name: str) -> None:
    values, lo, hi = BOXES[name]
    cuts, expected = draws(values, lo, hi, EPSILON), rank_probabilities(values, lo, hi, float(EPSILON))
    rank = np.searchsorted(values, cuts, side="left")
    assert fit(rank, np.array(list(expected.values())), -1) > 1e-9
    inside = cuts[rank == 2]  # evenly between its two values
    assert chisquare(np.histogram(inside, 50, (values[1] + 1, values[2] + 1))[0]).pvalue > 1e-9
    other = rank_probabilities(values, lo, hi, 1.3 * float(EPSILON))
    assert fit(rank, np.array(list(other.values())), -1) < 1e-20


@pytest.mark.parametrize("factor", [0.7, 1.3, 2.0])
@pytest.mark.parametrize("name", SHARP)
def test_near_misses_would_be_seen(name: str, factor: float) -> None:
    values, lo, hi = BOXES[name]
    p = fit(draws(values, lo, hi, EPSILON), probabilities(values, lo, hi, factor * float(EPSILON)), lo)
    print(f"{name}, epsilon times {factor}: p = {p:.3g}")
    assert p < 1e-20


def test_many_boxes_at_once_are_cut_each_by_its_own_rows() -> None:
    boxes, times = [*BOXES.values(), ((3, 3), 3, 4), ((), 5, 5)], 20_000
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(len(boxes)), times))
    values = np.concatenate([np.array(boxes[k][0], np.int64) for k in order])
    start = np.concatenate([[0], np.cumsum([len(boxes[k][0]) for k in order])])
    lo, hi = (np.array([boxes[k][end] for k in order]) for end in (1, 2))
    cuts = exponential_cuts(values, start, lo, hi, EPSILON, FixedKeys(2))
    for k, box in enumerate(boxes):
        if box[2] - box[1] < 2:  # no cut inside: all stays on the left
            assert (cuts[order == k] == box[2]).all()
        elif box not in [BOXES[name] for name in WIDE]:
            assert fit(cuts[order == k], probabilities(*box, float(EPSILON)), box[1]) > 1e-9


def test_cuts_of_one_call_are_independent() -> None:
    values, lo, hi = BOXES["plain"]
    cuts = draws(values, lo, hi, EPSILON)
    pairs = cuts[0::2] * 100 + cuts[1::2]
    p = probabilities(values, lo, hi, float(EPSILON))
    cells = [(a + 1) * 100 + b + 1 for a in range(len(p)) for b in range(len(p))]
    assert chisquare([np.sum(pairs == c) for c in cells], np.outer(p, p).ravel() * len(pairs)).pvalue > 1e-9


@pytest.mark.parametrize("name", ["plain", "two ties", "empty"])
def test_doubtful_proposals_have_the_same_distribution(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(median_ranks, "MIN_PRECISE_PROPOSAL", 2**63 - 1)  # every proposal is settled to the last bit
    values, lo, hi = BOXES[name]
    cuts = draws(values, lo, hi, EPSILON, 20_000)
    assert fit(cuts, probabilities(values, lo, hi, float(EPSILON)), lo) > 1e-9


def crude_weights(values, start, lo, hi, rate, running, about):
    """Every rank that has cuts is as likely as any other: acceptance has all the work to do, and rejects a lot."""
    for v in range(len(lo)):
        run = values[start[v] : start[v + 1]]
        gaps = [median_ranks.gap_of_rank(run, int(lo[v]), int(hi[v]), r)[1] for r in range(len(run) + 1)]
        distance = [abs(2 * r - len(run)) for r, gap in enumerate(gaps) if gap]
        running[start[v] + v : start[v + 1] + v + 1] = np.cumsum([(2**41 * max(gaps) + 1) * (gap > 0) for gap in gaps])
        about[v] = running[start[v + 1] + v], min(distance), 40


@pytest.mark.parametrize("name", ["plain", "both ends"])
def test_crude_proposals_are_put_right_by_acceptance(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(median_ranks, "MIN_PRECISE_PROPOSAL", 2**63 - 1)
    monkeypatch.setattr(median_ranks, "weigh_ranks", crude_weights)
    values, lo, hi = BOXES[name]
    cuts = draws(values, lo, hi, EPSILON, 8000)
    assert fit(cuts, probabilities(values, lo, hi, float(EPSILON)), lo) > 1e-9
    assert fit(cuts, probabilities(values, lo, hi, 2 * float(EPSILON)), lo) < 1e-12


# --- proposals and acceptance, exactly --------------------------------------------------------------------------


def proposed(values: Ints, lo: int, hi: int, rate: float) -> tuple[list[int], int, int]:
    """The proposal of each rank, the least distance and the power, as the code has them."""
    running, about = np.empty(len(values) + 1, np.int64), np.empty((1, 3), np.int64)
    ends = np.array([0, len(values)]), np.array([lo]), np.array([hi])
    median_ranks.weigh_ranks(values, *ends, rate, running, about)
    whole, nearest, power = about[0].tolist()
    assert whole == running[-1]
    return np.diff(running, prepend=0).tolist(), nearest, power


@st.composite
def small_boxes(draw):
    lo, width = draw(st.integers(0, 50)), draw(st.integers(2, 12))
    values = sorted(draw(st.lists(st.integers(lo, lo + width - 1), max_size=20)))
    return np.array(values, np.int64), lo, lo + width


@st.composite
def wide_boxes(draw):
    hi = draw(st.sampled_from([2**30, 2**45, 2**62]))
    values = sorted(draw(st.lists(st.integers(0, hi - 1) | st.integers(0, 2), max_size=20)))
    return np.array(values, np.int64), 0, hi


rates = st.fractions(Fraction(1, 10**9), 1) | st.fractions(1, 500) | st.sampled_from([Fraction(1, 10**7), Fraction(50)])


@given(small_boxes() | wide_boxes(), rates)
@settings(max_examples=150)
def test_proposals_times_acceptance_are_the_true_weights(box, rate: Fraction) -> None:
    values, lo, hi = box
    n = len(values)
    sizes, nearest, power = proposed(values, lo, hi, float(rate))
    gaps = [median_ranks.gap_of_rank(values, lo, hi, r)[1] for r in range(n + 1)]
    assert sum(gaps) == hi - lo - 1
    assert sum(sizes) < 2**62
    assert nearest == min(abs(2 * r - n) for r in range(n + 1) if gaps[r])
    for r, (gap, proposal) in enumerate(zip(gaps, sizes, strict=True)):
        if gap == 0:
            assert proposal == 0
            continue
        distance = abs(2 * r - n) - nearest
        low, high = exp_bounds(-rate * distance, 40) if distance else (Fraction(1), Fraction(1))
        scale = gap * Fraction(2) ** power
        assert proposal > high * scale + Fraction(1, 2)
        if proposal >= median_ranks.MIN_PRECISE_PROPOSAL:
            assert low * scale / proposal > 1 - Fraction(1, 2**20)
        lower, upper = exponential._acceptance(gap, proposal, rate * distance, power)._enclose(40)
        assert 0 <= lower <= upper < 1
        assert lower * proposal <= high * scale
        assert upper * proposal >= low * scale
        assert (upper - lower) * 10**30 < 1  # and nothing else lies in between


@given(wide_boxes(), rates, st.lists(st.integers(0, 2**62 - 1), min_size=1, max_size=4))
def test_pick_ranks(box, rate: Fraction, numbers: list[int]) -> None:
    values, lo, hi = box
    sizes, _, _ = proposed(values, lo, hi, float(rate))
    ends = np.array([0, len(values)]), np.array([lo]), np.array([hi])
    edges = [e + k for e in itertools.accumulate(sizes) for k in (-1, 0)]  # where one rank ends and the next begins
    at = [x % sum(sizes) for x in (*numbers, *edges)]
    picked = np.empty((len(at), 4), np.int64)
    running = np.cumsum(sizes)
    median_ranks.pick_ranks(values, *ends, running, np.zeros(len(at), np.int64), np.array(at), picked)
    for x, (first, gap, proposal, distance) in zip(at, picked.tolist(), strict=True):
        r = next(r for r, e in enumerate(itertools.accumulate(sizes)) if x < e)
        assert (first, gap) == median_ranks.gap_of_rank(values, lo, hi, r)
        assert (proposal, distance) == (sizes[r], abs(2 * r - len(values)))


@given(st.integers(1, 40).map(lambda e: 10**e), st.sampled_from([62, 126, 190]))
def test_acceptance_of_the_far_tail_is_known_without_its_digits(exponent: int, bits: int) -> None:
    p = exponential._acceptance(1, 2, Fraction(exponent, 3), 60)
    digits = p.digits(bits)
    if exponent > 1000:
        assert digits == 0
    else:
        low, high = exp_bounds(-Fraction(exponent, 3), 200)
        assert math.floor(low * 2 ** (59 + bits)) == digits == math.floor(high * 2 ** (59 + bits))


@given(st.fractions(0, 10) | st.fractions(10, 10**6), st.sampled_from([10, 30, 60]))
def test_bounds_of_decay_enclose_it(x: Fraction, precision: int) -> None:
    lo, hi = decay_bounds(x, precision)
    low, high = exp_bounds(-min(x, Fraction(900)), 2 * precision + 20)
    assert lo == hi == 1 if x == 0 else 0 <= lo <= high
    assert hi >= low
    assert lo < low or lo == hi == 1 or x > 900
    assert hi > high or lo == hi == 1
    assert hi - lo < Fraction(10) ** (1 - precision)


def test_place_within_a_gap_says_nothing_of_the_rank() -> None:
    """It is drawn after its rank is accepted, until it fits: words fit a gap of 65 cuts only half of the time."""
    values, lo, hi = (64, 64 + 65), 0, 64 + 65 + 64  # gaps of 64, 65 and 63 cuts
    cuts = draws(values, lo, hi, Fraction(1, 10**6))
    rank = np.searchsorted(values, cuts, side="left")
    gaps = np.array([64, 65, 63])
    assert fit(rank, gaps / gaps.sum(), -1) > 1e-9
    bent = gaps * np.array([1, 65 / 128, 63 / 64])  # if a misfit threw the rank away
    assert fit(rank, bent / bent.sum(), -1) < 1e-20


def test_only_fine_and_lucky_proposals_are_settled_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """And all others with the exact exponent, which is of ε/2 and not of a float."""
    lucky, fine = 2**62 - 2**42 - 1, median_ranks.MIN_PRECISE_PROPOSAL
    known = [(lucky, fine), (lucky, fine - 1), (lucky + 1, fine), (2**62 - 1, fine), (0, fine), (0, 2)]
    asked, seen_rate = [], []

    class Bits:
        def __init__(self, key: bytes) -> None: ...

        def words(self, shape: object, kind: str) -> NDArray[np.generic]:
            return np.zeros(shape, np.int64) if kind == "<i8" else np.array([u for u, _ in known], np.uint64) * 4 + 3

    def weigh(values, start, lo, hi, rate, running, about) -> None:
        seen_rate.append(rate)
        about[:] = 2**61, 2, 50

    def pick(values, start, lo, hi, running, boxes, at, picked) -> None:
        picked[:] = [(4, 3, m, 5) for _, m in known]

    monkeypatch.setattr(exponential, "RandomBits", Bits)
    monkeypatch.setattr(median_ranks, "weigh_ranks", weigh)
    monkeypatch.setattr(median_ranks, "pick_ranks", pick)
    monkeypatch.setattr(exponential, "_acceptance", lambda *about: about)
    monkeypatch.setattr(exponential, "is_below", lambda word, seen, p, bits: asked.append((word, seen, p)) or True)
    box = np.zeros(len(known), np.int64)
    exponential_cuts(box[:0], np.zeros(len(known) + 1, np.int64), box, box + 9, EPSILON, FixedKeys(1))
    assert seen_rate == [float(EPSILON / 2)]
    assert asked == [(u, 62, (3, m, EPSILON / 2 * 3, 50)) for u, m in known if u > lucky or m < fine]


@given(small_boxes())
def test_gaps_of_ranks_are_the_cuts_with_so_many_below(box) -> None:
    values, lo, hi = box
    of = {c: sum(v < c for v in values.tolist()) for c in range(lo + 1, hi)}
    for r in range(len(values) + 1):
        first, gap = median_ranks.gap_of_rank(values, lo, hi, r)
        assert [c for c in of if of[c] == r] == list(range(first, first + gap))


@given(small_boxes())
def test_nearest_rank(box) -> None:
    values, lo, hi = box
    of = {sum(v < c for v in values.tolist()) for c in range(lo + 1, hi)}
    assert median_ranks.nearest_rank(values, lo, hi) == min(of, key=lambda r: (abs(2 * r - len(values)), r))


@given(st.lists(st.integers(1, 10) | st.sampled_from([2**62, 2**61 + 1]), max_size=9), st.integers(0, 99))
def test_uniform_below_takes_the_first_numbers_that_fit(limits: list[int], seed: int) -> None:
    key = FixedKeys(seed).fresh()
    bits, out, todo = RandomBits(key), [-1] * len(limits), list(range(len(limits)))
    while todo:
        for k, word in zip(todo, bits.words(len(todo), "<i8").tolist(), strict=True):
            out[k] = word % 2 ** (limits[k] - 1).bit_length()
        todo = [k for k in todo if out[k] >= limits[k]]
    assert uniform_below(np.array(limits, np.int64), RandomBits(key)).tolist() == out


@pytest.mark.parametrize("limit", [2, 7, 8, 9])
def test_uniform_below_is_uniform(limit: int) -> None:
    found = uniform_below(np.full(100_000, limit), RandomBits(bytes(32)))
    assert chisquare(np.bincount(found, minlength=limit)).pvalue > 1e-9
    wide = uniform_below(np.full(100_000, limit << 55), RandomBits(bytes(32)))
    assert chisquare(np.bincount(wide >> 55, minlength=limit)).pvalue > 1e-9


# --- privacy loss, over all small data sets ---------------------------------------------------------------------

SIDE, MOST = 6, 8
ALL = [rows for n in range(MOST + 1) for rows in itertools.combinations_with_replacement(range(SIDE), n)]
NEIGHBOURS = [(rows, tuple(sorted((*rows, v)))) for rows in ALL if len(rows) < MOST for v in range(SIDE)]


def of_our_code(rows: tuple[int, ...]) -> list[float]:
    """The weight of each cut as the code proposes and accepts it."""
    values = np.array(rows, np.int64)
    sizes, nearest, power = proposed(values, 0, SIDE, float(EPSILON / 2))
    out = []
    for r, m in enumerate(sizes):
        gap, exponent = (
            median_ranks.gap_of_rank(values, 0, SIDE, r)[1],
            EPSILON / 2 * (abs(2 * r - len(rows)) - nearest),
        )
        if gap:
            out += [float(m * exponential._acceptance(gap, m, exponent, power)._enclose(30)[0] / gap)] * gap
    return out


def at_an_integer_rank(rows: tuple[int, ...]) -> list[float]:
    middle = math.ceil(len(rows) / 2)
    return [math.exp(-EPSILON * abs(sum(v < c for v in rows) - middle)) for c in range(1, SIDE)]


def at_the_rank_of_the_median(rows: tuple[int, ...]) -> list[float]:
    private_median = sorted(rows)[(len(rows) - 1) // 2] if rows else 0
    middle = sum(v < private_median for v in rows)
    return [math.exp(-EPSILON * abs(sum(v < c for v in rows) - middle)) for c in range(1, SIDE)]


def worst_loss(of) -> float:
    """The largest |ln(p / p')| / ε of any outcome, over all data sets and one row more."""
    p = {}
    for rows in ALL:
        w = np.array(of(rows))
        p[rows] = np.log(w / w.sum())
    return max(float(np.abs(p[a] - p[b]).max()) for a, b in NEIGHBOURS) / float(EPSILON)


def test_no_cut_loses_more_than_epsilon() -> None:
    worst = worst_loss(of_our_code)
    print(f"worst loss {worst:.6f} epsilon over {len(ALL)} data sets")
    assert 0.9 < worst <= 1 + 1e-12


@pytest.mark.parametrize(("of", "least"), [(at_an_integer_rank, 1.8), (at_the_rank_of_the_median, 4)])
def test_other_scores_lose_more_at_this_weight(of, least: float) -> None:
    worst = worst_loss(of)
    print(f"{of.__name__}: worst loss {worst:.4f} epsilon")
    assert worst > least


def all_at_once() -> tuple[Ints, Ints, Ints, Ints]:
    """All small data sets, one a box."""
    start = np.concatenate([[0], np.cumsum([len(rows) for rows in ALL])])
    return (
        np.array([v for rows in ALL for v in rows], np.int64),
        start,
        np.zeros(len(ALL), np.int64),
        start[1:] * 0 + SIDE,
    )


def measured(monkeypatch: pytest.MonkeyPatch, steps: int) -> tuple[list[Fraction], Ints, Ints]:
    """The rates that a noisy mean draws its noise with, and what it adds the noise to."""
    asked: list[Fraction] = []
    seen: list[Ints] = []
    monkeypatch.setattr(medians, "POSITIONS_PER_BOX", steps)
    monkeypatch.setattr(medians, "discrete_laplace", lambda e, n, keys: asked.append(e) or np.zeros(n, np.int64))
    monkeypatch.setattr(medians, "mean_cut", lambda count, total, lo, hi, n: seen.extend((count, total)) or (n, steps))
    assert mean_cuts(*all_at_once(), EPSILON, FixedKeys(1)) == (steps, steps)
    return asked, *seen


@pytest.mark.parametrize("steps", [1024, 4])
def test_no_noisy_mean_loses_more_than_epsilon(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Discrete Laplace of rate e on a number that changes by k loses e k, exactly; and the two are independent."""
    rates, counts, sums = measured(monkeypatch, steps)
    assert counts.tolist() == [len(rows) for rows in ALL]
    assert sums.tolist() == [sum(v * steps // SIDE for v in rows) for rows in ALL]
    place = {rows: k for k, rows in enumerate(ALL)}

    def worst(rate_of_sums: Fraction) -> Fraction:
        pairs = ((place[a], place[b]) for a, b in NEIGHBOURS)
        losses = {(int(counts[b] - counts[a]), int(abs(sums[b] - sums[a]))) for a, b in pairs}
        return max(abs(count) * rates[0] + total * rate_of_sums for count, total in losses)

    top = max(v * steps // SIDE for v in range(SIDE))  # the largest position that six cells have
    assert worst(rates[1]) == EPSILON / 2 + EPSILON / 2 * top / (steps - 1) <= EPSILON
    assert worst(2 * rates[1]) > EPSILON  # noise for half of the sensitivity


def test_no_cut_of_a_noisy_mean_loses_more_than_epsilon() -> None:
    """The distribution of the cut itself, for positions 0 to 3: here they are all taken."""
    steps, far = 4, 300
    around = np.arange(-far, far + 1)
    count, total = (x.ravel() for x in np.meshgrid(around, around, indexing="ij"))
    cut = mean_cut(count, total, np.zeros_like(count), np.full_like(count, SIDE), steps)
    states = {(len(rows), sum(v * steps // SIDE for v in rows)) for rows in ALL}

    def chances(rate_of_sums: float) -> dict[tuple[int, int], NDArray[np.float64]]:
        by_cut = [(cut == c).reshape(len(around), -1).astype(float) for c in range(1, SIDE)]
        noise = [
            lambda x, e=e: math.tanh(e / 2) * np.exp(-e * np.abs(around - x))
            for e in (float(EPSILON) / 2, rate_of_sums)
        ]
        return {s: np.array([noise[0](s[0]) @ part @ noise[1](s[1]) for part in by_cut]) for s in states}

    def worst(rate_of_sums: float) -> float:
        p = {s: np.log(x) for s, x in chances(rate_of_sums).items()}
        more = ((s, (s[0] + 1, s[1] + k)) for s in states for k in range(steps))
        return max(float(np.abs(p[a] - p[b]).max()) for a, b in more if b in states) / float(EPSILON)

    right = float(EPSILON) / 2 / (steps - 1)
    print(f"worst loss {worst(right):.4f} epsilon; with noise for a third of the sensitivity {worst(3 * right):.4f}")
    assert worst(right) <= 1 + 1e-9
    assert worst(3 * right) > 1


def test_no_cell_median_loses_more_than_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    """One count changes by 1, and each has noise of rate ε."""
    asked: list[Fraction] = []
    counts: list[Ints] = []
    monkeypatch.setattr(medians, "discrete_laplace", lambda e, n, keys: asked.append(e) or np.zeros(n, np.int64))
    monkeypatch.setattr(medians, "cell_cut", lambda noisy, lo, hi: counts.append(noisy) or 1)
    for rows in ALL:
        medians.cell_median(np.array(rows, np.int64), SIDE, EPSILON, FixedKeys(1))
    place = {rows: k for k, rows in enumerate(ALL)}
    assert set(asked) == {EPSILON}
    changes = {int(np.abs(counts[place[b]] - counts[place[a]]).sum()) for a, b in NEIGHBOURS}
    assert changes == {1}  # so half of the noise would lose 2 ε


# --- Lemma 6 of the paper ---------------------------------------------------------------------------------------


def chance_of_the_centre(values: Ints, lo: int, hi: int, epsilon: float) -> float:
    n = len(values)
    low, high = int(values[n // 5 - 1]), int(values[4 * n // 5 - 1])
    sizes, _, _ = proposed(values, lo, hi, epsilon / 2)
    inside = 0.0
    for r, m in enumerate(sizes):
        first, gap = median_ranks.gap_of_rank(values, lo, hi, r)
        both = min(first + gap - 1, high) - max(first, low) + 1
        inside += m * max(both, 0) / gap if gap else 0
    return inside / sum(sizes)


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.0])
@pytest.mark.parametrize("n", [10, 500])
@pytest.mark.parametrize("name", SETS)
def test_lemma_6_an_exponential_median_is_central_with_probability_a_sixth(name: str, n: int, epsilon: float) -> None:
    values, side = eighty_twenty(name, n, 2**20), 2**20
    assert 5 * (values[4 * n // 5 - 1] - values[n // 5 - 1]) >= side
    for sharpness in (epsilon, epsilon / 2):  # ours, and the paper's
        assert chance_of_the_centre(values, 0, side, sharpness) >= 1 / 6


def test_lemma_6_needs_its_condition() -> None:
    assert chance_of_the_centre(eighty_twenty("concentrated", 500, 2**20), 0, 2**20, 0.1) < 1 / 6


# --- noisy means, true medians, cells ---------------------------------------------------------------------------


@given(small_boxes() | wide_boxes(), st.sampled_from([2, 4, 1024]))
def test_sum_positions(box, steps: int) -> None:
    values, lo, hi = box
    sums = np.empty(1, np.int64)
    box_medians.sum_positions(values, np.array([0, len(values)]), np.array([lo]), np.array([hi]), steps, sums)
    twin = sum((v - lo) * steps // (hi - lo) for v in values.tolist())
    assert sums[0] == twin


@given(st.integers(2**52 + 1, 2**62), st.data())
def test_positions_of_very_wide_boxes_stay_in_their_range(width: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, width - 1) | st.integers(width - 3, width - 1))
    position = np.empty(1, np.int64)
    box_medians.sum_positions(np.array([at]), np.array([0, 1]), np.array([0]), np.array([width]), 1024, position)
    assert 0 <= position[0] <= 1023
    assert abs(int(position[0]) - at * 1024 // width) <= 1


def test_a_noisy_mean_is_near_the_mean() -> None:
    values, n = np.sort(np.random.default_rng(5).integers(100, 400, 3000)), 200
    ends = np.arange(n + 1) * 3000, np.full(n, 50), np.full(n, 1050)
    cuts = mean_cuts(np.tile(values, n), *ends, Fraction(1), FixedKeys(3))
    # 2 · 1023 positions of noise in 3,000 rows are less than one position, and so is the noise of the count
    assert np.abs(cuts - values.mean()).max() < 25
    assert np.abs(cuts.mean() - values.mean()) < 1.5
    assert len(set(cuts.tolist())) > 3


@given(st.integers(-5, 50), st.integers(-3000, 60_000), st.integers(0, 99), st.integers(0, 40))
def test_mean_cut(count: int, total: int, lo: int, width: int) -> None:
    (cut,) = mean_cut(*(np.array([x]) for x in (count, total, lo, lo + width)), 1024)
    part = (Fraction(total, count) + Fraction(1, 2)) / 1024 if count >= 1 else Fraction(1, 2)
    if width < 2:
        assert cut == lo + width
    else:
        assert lo < cut < lo + width
        assert abs(cut - min(max(lo + width * part, lo + 1), lo + width - 1)) <= 0.5


@given(st.lists(small_boxes(), max_size=4))
def test_exact_cuts_divide_most_evenly(some) -> None:
    values = np.concatenate([np.zeros(0, np.int64), *(box[0] for box in some)])
    start = np.concatenate([[0], np.cumsum([len(box[0]) for box in some])]).astype(np.int64)
    lo, hi = (np.array([box[k] for box in some], np.int64) for k in (1, 2))
    for cut, (run, a, b) in zip(exact_cuts(values, start, lo, hi).tolist(), some, strict=True):
        uneven = {c: abs(2 * sum(v < c for v in run.tolist()) - len(run)) for c in range(a + 1, b)}
        assert uneven[cut] == min(uneven.values())


@pytest.mark.parametrize(
    ("values", "expected"),
    [((), 5), ((3,), 3), ((1, 3, 8), 3), ((2, 6), 4), ((2, 2, 2), 2), ((0, 0), 1), ((9, 9), 9), ((2, 6, 6, 6), 6)],
)
def test_exact_cuts_are_medians(values: tuple[int, ...], expected: int) -> None:
    ends = np.array([0, len(values)]), np.array([0]), np.array([10])
    assert exact_cuts(np.array(values, np.int64), *ends).tolist() == [expected]


@given(st.lists(st.integers(-9, 30), min_size=2, max_size=12), st.integers(0, 50), st.integers(0, 60))
def test_cell_cut(counts: list[int], lo: int, extra: int) -> None:
    hi = lo + len(counts) + extra
    cut = cell_cut(np.array(counts), lo, hi)
    assert lo < cut < hi
    left = [sum(counts[:cells]) for cells in range(len(counts) + 1)]
    half = sum(counts) / 2
    k = next((k for k in range(1, len(counts)) if left[k] >= half), len(counts) if half >= 0 else 1)
    if half - left[k - 1] < left[k] - half:  # the other side of the cell that has the median is nearer
        k -= 1
    k = min(max(k, 1), len(counts) - 1)
    assert [(v - lo) * len(counts) // (hi - lo) >= k for v in (cut - 1, cut)] == [False, True]


def test_cell_cut_of_one_cell_is_the_middle() -> None:
    assert cell_cut(np.array([7]), 0, 8) == 4
    assert cell_cut(np.array([7]), 3, 4) == 4


# --- the family -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MEDIANS)
def test_every_private_cut_lies_inside_its_box(mechanism: str) -> None:
    boxes = [*BOXES.values(), ((3, 3), 3, 4), ((), 5, 5)]
    values = np.concatenate([np.array(box[0], np.int64) for box in boxes])
    start = np.concatenate([[0], np.cumsum([len(box[0]) for box in boxes])])
    lo, hi = (np.array([box[end] for box in boxes]) for end in (1, 2))
    for epsilon, seed in itertools.product((Fraction(1, 10**6), Fraction(1), Fraction(100)), range(5)):
        cuts = private_cuts(mechanism, values, start, lo, hi, epsilon, Fraction(1, 10**6), FixedKeys(seed))
        assert cuts.dtype == np.int64
        assert ((lo < cuts) & (cuts < hi) | (hi - lo < 2) & (cuts == hi)).all()


def test_mechanisms_spend_what_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    given_: list[tuple[object, ...]] = []
    for name in ("exponential_cuts", "smooth_cuts", "mean_cuts"):
        monkeypatch.setattr(medians, name, lambda *a, name=name: given_.append((name, *a[4:])))
    box, keys = (np.zeros(1, np.int64),) * 4, FixedKeys(1)
    for mechanism in MEDIANS:
        private_cuts(mechanism, *box, EPSILON, Fraction(1, 9), keys)
    assert given_ == [
        ("exponential_cuts", EPSILON, keys),
        ("exponential_cuts", EPSILON / 2, keys),
        ("smooth_cuts", EPSILON, Fraction(1, 9), keys),
        ("mean_cuts", EPSILON, keys),
    ]


def test_an_unknown_median_is_refused() -> None:
    box = (np.zeros(1, np.int64),) * 4
    with pytest.raises(vm.BadInput, match=r"Unknown mechanism for medians: 'noisy-men'\. Did you mean 'noisy-mean'"):
        private_cuts("noisy-men", *box, EPSILON, EPSILON, FixedKeys(1))


# --- no underflow -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**12), Fraction(1, 1000), Fraction(1), Fraction(1000)], ids=str)
@pytest.mark.parametrize("tie", [0, 1, 12345, 2**30 - 1])
def test_a_million_ties_are_cut(epsilon: Fraction, tie: int) -> None:
    values = np.full(10**6, tie, np.int64)
    for lo, hi in ((0, 2**30), (max(tie - 1, 0), max(tie - 1, 0) + 2)):
        for seed in range(3):
            ends = np.array([lo]), np.array([hi])
            (cut,) = exponential_cuts(values, np.array([0, len(values)]), *ends, epsilon, FixedKeys(seed))
            assert lo < cut < hi


def test_half_of_the_rows_a_world_apart_are_cut_in_between() -> None:
    values = np.repeat([0, 2**30 - 1], 500_000)
    (cut,) = exponential_cuts(
        values, np.array([0, 10**6]), np.array([0]), np.array([2**30]), Fraction(1000), FixedKeys(1)
    )
    assert 0 < cut < 2**30


# --- rows -------------------------------------------------------------------------------------------------------

BITS = 5


@st.composite
def grown(draw):
    """A tree some of whose boxes were cut and split, and rows that followed."""
    axes = draw(st.integers(2, 3))
    table = draw(st.lists(st.tuples(*[st.integers(0, 2**BITS - 1)] * axes), max_size=30))
    rows = Rows([np.array([row[a] for row in table], np.int64) for a in range(axes)])
    tree: Tree = draw(st.sampled_from([RegularTree(2**BITS, axes), CutTree.root(2**BITS, axes)]))
    steps: list[Step] = []
    for _ in range(draw(st.integers(0, 3))):
        newest = tree.level(tree.height)
        boxes = newest.stop - newest.start
        where = np.array(draw(st.lists(st.booleans(), min_size=boxes, max_size=boxes)))
        if not where.any():
            continue
        if draw(st.booleans()):
            parts = np.array([[draw(st.integers(1, 3)) if some else 0 for _ in range(axes)] for some in where])
            tree = tree.split(parts)
            steps.append(split_step(tree, parts))
        else:
            axis = draw(st.integers(0, axes - 1))
            ends = zip(tree.lo[newest, axis].tolist(), tree.hi[newest, axis].tolist(), strict=True)
            at = np.array([draw(st.integers(lo, hi)) for lo, hi in ends])
            tree = tree.cut(axis, at, where)
            steps.append(Cut(axis, at, tree.level_start[-3], tree.first_child))
    one_or_two_threads = draw(st.sampled_from([1, MIN_ROWS_FOR_TWO_THREADS]))
    with patch("veilmap.vault.rows.MIN_ROWS_FOR_TWO_THREADS", one_or_two_threads):
        for step in steps:
            rows.follow(step)
    return tree, table, rows, tuple(steps)


@given(grown())
@settings(max_examples=150)
def test_rows_follow_their_nodes(made) -> None:
    tree, table, rows, steps = made
    boxes = list(zip(tree.lo.tolist(), tree.hi.tolist(), strict=True))
    inside = [
        [row for row in table if all(a <= x < b for a, x, b in zip(lo, row, hi, strict=True))] for lo, hi in boxes
    ]
    found = rows.tally(Nodes(tree.size)).tolist()
    assert found == [len(some) * leaf for some, leaf in zip(inside, tree.is_leaf.tolist(), strict=True)]
    counts, domain = np.zeros(tree.size, np.int64), Domain(dict.fromkeys("abc"[: len(rows.cells)], (0, 1)), bits=BITS)
    Walk(steps, Nodes(tree.size), None).add(domain.of_cells(), rows.cells, counts)
    assert counts.tolist() == found
    newest = tree.level(tree.height)
    for axis in range(tree.lo.shape[1]):
        values, start = rows.sorted_along(tree, axis, BITS)
        runs = [values[start[v] : start[v + 1]].tolist() for v in range(newest.stop - newest.start)]
        assert runs == [sorted(row[axis] for row in some) for some in inside[newest]]


# --- kernels ----------------------------------------------------------------------------------------------------


@given(st.data())
def test_follow_cuts(data) -> None:
    """Nodes 0 to 2 are older; of those from 3 on, some have two children."""
    nodes = data.draw(st.integers(1, 5))
    split = data.draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes))
    at = data.draw(st.lists(st.integers(0, 9), min_size=nodes, max_size=nodes))
    rows = data.draw(st.lists(st.tuples(st.integers(0, nodes + 2), st.integers(0, 9)), max_size=20))
    first_child = np.cumsum([3 + nodes, 0, 0, 0, *(2 * some for some in split)])
    node = np.array([v for v, _ in rows], np.int64)
    follow_cuts(np.array([c for _, c in rows], np.int64), np.array(at), 3, first_child, node)
    for found, (v, c) in zip(node.tolist(), rows, strict=True):
        stays = v < 3 or not split[v - 3]
        assert found == (v if stays else 3 + nodes + 2 * sum(split[: v - 3]) + (c >= at[v - 3]))


@given(st.data())
def test_follow_parts(data) -> None:
    """Two axes, the second cut in 3: its cells, and rows at the edges of parts of the first."""
    boxes = data.draw(st.lists(st.tuples(st.integers(0, 2**29), st.integers(1, 2**29)), min_size=1, max_size=4))
    parts, rows = [data.draw(st.integers(0, 40)) for _ in boxes], [(-1, 5, 1)]
    for j, (lo, width) in enumerate(boxes):
        n = max(parts[j], 1)
        edge = st.integers(0, n - 1).map(lambda k, lo=lo, width=width, n=n: lo + k * width // n)
        cells = st.tuples(st.integers(lo, lo + width - 1) | edge, st.integers(0, 2))
        rows += [(j, *some) for some in data.draw(st.lists(cells, max_size=8))]
    first = 7
    node = np.array([first + j for j, _, _ in rows], np.int64)
    lo, width = (np.array([[box[k], 3 * k] for box in boxes]) for k in (0, 1))
    cut = np.array([[n, 3] for n in parts])
    first_child = frozen(np.cumsum([100, *(3 * n for n in parts)]))
    cells = tuple(np.array([row[k] for row in rows], np.int64) for k in (1, 2))
    follow_parts(cells, naive.packed(lo, width, cut, first_child[:-1]), first, node)
    for found, (j, x, y) in zip(node.tolist(), rows, strict=True):
        if j < 0 or parts[j] == 0:
            assert found == first + j
            continue
        (a, w), n = boxes[j], parts[j]
        (k,) = (k for k in range(n) if a + k * w // n <= x < a + (k + 1) * w // n)
        assert found == 100 + 3 * sum(parts[:j]) + 3 * k + y


odd = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-3, 9) | st.sampled_from([-1.0, 5.0, 2.0, 4.9999])


@given(st.lists(odd, max_size=30), st.integers(1, 30))
def test_find_cells(values: list[float], bits: int) -> None:
    cells = np.empty(len(values), np.int64)
    find_cells(np.array(values), -1.0, 5.0, 2**bits / 6.0, bits, cells)
    twins = [naive.cell(x, -1.0, 5.0, 2**bits) for x in values]
    assert cells.tolist() == [-1 if c is None else c for c in twins]


# --- the median of one list -------------------------------------------------------------------------------------

WAYS = [
    ("exponential", {}),
    ("exponential-paper", {}),
    ("smooth-sensitivity", {"delta": 1e-6}),
    ("noisy-mean", {}),
    ("cell", {}),
]


@pytest.mark.parametrize("sample", [None, 0.5])
@pytest.mark.parametrize(("mechanism", "more"), WAYS)
def test_a_private_median_is_near_the_median_and_never_the_same(mechanism: str, more: dict, sample: object) -> None:
    values = np.random.default_rng(3).uniform(10, 30, 20_001)
    with fixed_entropy(1):
        found = [vm.private_median(values, 0, 100, 0.5, mechanism, sample=sample, **more) for _ in range(5)]
    near = 0.1 if mechanism in ("noisy-mean", "cell") else 0.05
    assert np.abs(np.array([np.mean(values < m) for m in found]) - 0.5).max() < near
    assert len(set(found)) >= (2 if mechanism == "cell" else 5)
    assert not set(found) & set(values.tolist())


class KnownPoints:
    """Points whose cells are known: thousands of medians are drawn, and reading points is not their subject."""

    domain = vm.Domain({"value": (0, 8)}, bits=30)

    def _rows(self, progress) -> tuple[list[Ints], None]:
        return [np.array([2, 2, 6, 6, 6]) << 27], None


@pytest.mark.parametrize(("mechanism", "epsilon"), [("exponential", "1/2"), ("exponential-paper", "1")])
def test_a_private_median_has_the_sharpness_of_its_mechanism_and_no_other(mechanism: str, epsilon: str) -> None:
    """Values at 2 and 6 of a range of 8: a quarter of the cuts has rank 0, half of them rank 2, a quarter rank 5."""
    with fixed_entropy(2):
        arguments = KnownPoints(), mechanism, Fraction(epsilon), Fraction(0), Fraction(1)
        draws = [private_median._median(*arguments) for _ in range(6000)]
    seen = np.histogram(draws, [0, 2 + 1e-6, 6 + 1e-6, 8])[0]

    def misfit(sharpness: float) -> float:
        weight = np.array([1, 2, 1]) * np.exp(-sharpness * np.array([2.5, 0.5, 2.5]))
        expected = 6000 * weight / weight.sum()
        return float(((seen - expected) ** 2 / expected).sum())  # chi-square, two degrees of freedom

    assert misfit(0.5) < 45  # p = 1.7e-10
    assert misfit(0.25) > 45  # expected to be about 300
    assert misfit(1.0) > 45


@pytest.mark.parametrize("values", [[], [np.nan, np.inf, -5.0], [3.0] * 10_000, [7.0], [0.0, 10.0]])
@pytest.mark.parametrize(("mechanism", "more"), WAYS)
def test_a_private_median_of_nothing_or_of_ties_is_some_number_in_the_range(
    mechanism: str, more: dict, values: list[float]
) -> None:
    for sample in (None, "0.01", 1):
        assert 0 < vm.private_median(values, 0, 10, 1, mechanism, sample=sample, **more) < 10


@pytest.mark.parametrize("mechanism", [mechanism for mechanism, _ in WAYS])
def test_a_sample_is_taken_at_its_rate_and_what_it_is_worth_is_spent(
    mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent: list[tuple[object, ...]] = []
    delta = Fraction(1, 1000) if mechanism == "smooth-sensitivity" else None

    def cuts(name, values, start, lo, hi, epsilon, delta, keys) -> Ints:
        spent.append((name, len(values), epsilon, delta))
        return np.array([1])

    def cell(cells, side, epsilon, keys) -> int:
        spent.append(("cell", len(cells), epsilon, 0))
        return 1

    monkeypatch.setattr(private_median, "private_cuts", cuts)
    monkeypatch.setattr(private_median, "cell_median", cell)
    for rate in (None, "0.25"):
        with fixed_entropy(5):
            vm.private_median(np.linspace(0, 1, 10_000), 0, 1, "0.1", mechanism, delta=delta, sample=rate)
    assert spent[0] == (mechanism, 10_000, Fraction(1, 10), delta or 0)
    name, n, epsilon, inner_delta = spent[1]
    assert (name, inner_delta) == (mechanism, 4 * (delta or 0))
    assert abs(n - 2500) < 300  # seven sigma
    assert float(epsilon) == pytest.approx(math.log(1 + math.expm1(0.1) / 0.25), abs=1e-12)


@pytest.mark.parametrize(
    ("arguments", "more", "sentence"),
    [
        (([1.0], 0, 10, 0), {}, "epsilon must be a number"),
        (([1.0], 10, 0, 1), {}, "must run from low to high"),
        (([1.0], 0, 10, 1, "exponental"), {}, "mechanism for medians: 'exponental'. Did you mean 'exponential'"),
        (([1.0], 0, 10, 1, "cel"), {}, "Did you mean 'cell'"),
        ((["a"], 0, 10, 1), {}, "paths|numbers|no file"),
        (([1.0], 0, 10, 1, "smooth-sensitivity"), {}, "smooth-sensitivity needs a delta.*got delta=None"),
        (([1.0], 0, 10, 1, "smooth-sensitivity"), {"delta": 1}, "delta must be a number above 0 and below 1, got 1"),
        (([1.0], 0, 10, 1, "smooth-sensitivity"), {"delta": "no"}, "above 0 and below 1, got 'no'"),
        (([1.0], 0, 10, 1), {"delta": 0.1}, "the other mechanisms take none: got delta=0.1 for 'exponential'"),
        (([1.0], 0, 10, 1, "cell"), {"delta": 0}, "take none: got delta=0 for 'cell'"),
        (([1.0], 0, 10, 1), {"sample": 0}, "sample must be a number above 0 and up to 1, got 0"),
        (([1.0], 0, 10, 1), {"sample": 1.01}, "up to 1, got 1.01"),
        (([1.0], 0, 10, 1), {"sample": True}, "up to 1, got True"),
        (([1.0], 0, 10, 1), {"sample": float("nan")}, "up to 1, got nan"),
        (([1.0], 0, 10, 1), {"sample": [0.1]}, "up to 1, got"),
    ],
)
def test_a_median_that_cannot_be_is_refused_with_a_sentence(
    arguments: tuple[object, ...], more: dict, sentence: str
) -> None:
    with pytest.raises(vm.BadInput, match=sentence):
        vm.private_median(*arguments, **more)


def test_a_column_of_a_data_frame_is_a_list_of_numbers() -> None:
    import pandas as pd
    import polars as pl

    values = [1.0, 2.0, 3.0] * 500
    for column in (pd.Series(values), pd.DataFrame({"a": values})["a"], pl.Series(values)):
        assert abs(vm.private_median(column, 0, 10, 50) - 2) <= 1.01

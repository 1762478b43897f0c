"""Private medians: their exact distribution, their privacy loss over all small data sets, and rows in nodes."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chisquare

import naive
import veilmap as vm
from veilmap.kernels import ranks
from veilmap.kernels.counting import cut_rows, find_cells, part_rows
from veilmap.tree import CutTree, RegularTree, Tree
from veilmap.vault import medians
from veilmap.vault.entropy import FixedKeys, RandomBits
from veilmap.vault.medians import exponential_cuts
from veilmap.vault.noise import exp_bounds
from veilmap.vault.rows import Rows

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
}
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
@pytest.mark.parametrize("name", [name for name in BOXES if name != "wide"])
def test_cuts_have_their_probabilities(name: str, epsilon: Fraction) -> None:
    values, lo, hi = BOXES[name]
    p = fit(draws(values, lo, hi, epsilon), probabilities(values, lo, hi, float(epsilon)), lo)
    print(f"{name}: p = {p:.3g}")
    assert p > 1e-9


def test_cuts_of_a_wide_box_have_their_probabilities() -> None:
    values, lo, hi = BOXES["wide"]
    cuts, expected = draws(values, lo, hi, EPSILON), rank_probabilities(values, lo, hi, float(EPSILON))
    rank = np.searchsorted(values, cuts, side="left")
    assert fit(rank, np.array(list(expected.values())), -1) > 1e-9
    inside = cuts[rank == 2]  # evenly between its two values
    assert chisquare(np.histogram(inside, 50, (values[1] + 1, values[2] + 1))[0]).pvalue > 1e-9


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
        elif box != BOXES["wide"]:
            assert fit(cuts[order == k], probabilities(*box, float(EPSILON)), box[1]) > 1e-9


def test_cuts_of_one_call_are_independent() -> None:
    values, lo, hi = BOXES["plain"]
    cuts = draws(values, lo, hi, EPSILON)
    pairs = cuts[0::2] * 100 + cuts[1::2]
    p = probabilities(values, lo, hi, float(EPSILON))
    cells = [(a + 1) * 100 + b + 1 for a in range(len(p)) for b in range(len(p))]
    assert chisquare([np.sum(pairs == c) for c in cells], np.outer(p, p).ravel() * len(pairs)).pvalue > 1e-9


@pytest.mark.parametrize("name", ["plain", "both ends", "empty"])
def test_slow_path_has_the_same_distribution(name: str) -> None:
    values, lo, hi = BOXES[name]
    bits, rows = RandomBits(bytes(32)), np.array(values, np.int64)
    cuts = np.array([medians._cut_slowly(rows, lo, hi, EPSILON / 2, bits) for _ in range(20_000)])
    assert fit(cuts, probabilities(values, lo, hi, float(EPSILON)), lo) > 1e-9
    if name in SHARP:
        assert fit(cuts, probabilities(values, lo, hi, 2 * float(EPSILON)), lo) < 1e-20


@pytest.mark.parametrize("name", ["plain", "two ties", "empty"])
def test_doubtful_proposals_have_the_same_distribution(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "FINE", 2**63)  # every proposal is settled to the last bit
    values, lo, hi = BOXES[name]
    cuts = draws(values, lo, hi, EPSILON, 20_000)
    assert fit(cuts, probabilities(values, lo, hi, float(EPSILON)), lo) > 1e-9


def crude_cut(values, lo, hi, rate, words):
    """Any cut is as likely as any other, and words run out one time in four: acceptance has all the work to do."""
    n, cuts = len(values), range(lo + 1, hi)
    distance = [abs(2 * sum(v < c for v in values) - n) for c in cuts]
    k = int(words[0]) % len(cuts)
    return cuts[k], 2**40 + 1, distance[k] - min(distance), 40, int(words[1]) % 4 == 0


def crude_cuts(values, start, lo, hi, rate, words, cut, about):
    for v in range(len(lo)):
        cut[v], *about[v] = crude_cut(values[start[v] : start[v + 1]].tolist(), int(lo[v]), int(hi[v]), rate, words[v])


@pytest.mark.parametrize("name", ["plain", "both ends"])
def test_crude_proposals_are_put_right_by_acceptance(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "FINE", 2**63)
    monkeypatch.setattr(ranks, "propose_cut", crude_cut)
    monkeypatch.setattr(ranks, "propose_cuts", crude_cuts)
    values, lo, hi = BOXES[name]
    cuts = draws(values, lo, hi, EPSILON, 20_000)
    assert fit(cuts, probabilities(values, lo, hi, float(EPSILON)), lo) > 1e-9
    assert fit(cuts, probabilities(values, lo, hi, 2 * float(EPSILON)), lo) < 1e-20


# --- proposals and acceptance, exactly --------------------------------------------------------------------------


def proposed(values: Ints, lo: int, hi: int, rate: float) -> tuple[list[int], list[tuple[int, ...]]]:
    """Of 'how many numbers does each cut get' and 'what is said of it', as the code has it.

    One uniform number decides, and cuts rise with it: so bisection finds where each cut's numbers begin.
    """
    word = np.zeros(1, np.int64)

    def of(at: int) -> tuple[int, ...]:
        word[0] = at
        return ranks.propose_cut(values, lo, hi, rate, word)

    most = 2**61 if of(2**61 - 1)[-1] else 2**62
    whole = bisect_left(range(most), 1, key=lambda at: of(at)[-1])
    begin = [bisect_left(range(whole), c, key=lambda at: of(at)[0]) for c in range(lo + 1, hi)] + [whole]
    return np.diff(np.array(begin, object)).tolist(), [of(at) for at in begin[:-1]]


@st.composite
def small_boxes(draw):
    lo, width = draw(st.integers(0, 50)), draw(st.integers(2, 12))
    values = sorted(draw(st.lists(st.integers(lo, lo + width - 1), max_size=20)))
    return np.array(values, np.int64), lo, lo + width


rates = st.fractions(Fraction(1, 10**9), 1) | st.fractions(1, 500) | st.sampled_from([Fraction(1, 10**7), Fraction(50)])


@given(small_boxes(), rates)
def test_proposals_times_acceptance_are_the_true_weights(box, rate: Fraction) -> None:
    values, lo, hi = box
    n = len(values)
    sizes, about = proposed(values, lo, hi, float(rate))
    nearest = min(abs(2 * sum(v < c for v in values.tolist()) - n) for c in range(lo + 1, hi))
    assert sum(sizes) < 2**62
    assert len({power for _, _, _, power, _ in about}) == 1
    for c, size, (cut, proposal, distance, power, _) in zip(range(lo + 1, hi), sizes, about, strict=True):
        assert cut == c
        assert size == proposal  # each number is as likely as any other, and this cut has so many
        assert distance == abs(2 * sum(v < c for v in values.tolist()) - n) - nearest
        low, high = exp_bounds(-rate * distance, 40) if distance else (Fraction(1), Fraction(1))
        assert proposal > high * 2**power + Fraction(1, 2)
        if proposal >= ranks.FINE:
            assert low * 2**power / proposal > 1 - Fraction(1, 2**20)
        lower, upper = medians._acceptance(proposal, rate * distance, power)._enclose(40)
        assert 0 <= lower <= upper < 1
        assert lower * proposal <= high * 2**power
        assert upper * proposal >= low * 2**power
        assert (upper - lower) * 10**30 < 1  # and nothing else lies in between


@given(st.integers(1, 40).map(lambda e: 10**e), st.sampled_from([62, 126, 190]))
def test_acceptance_of_the_far_tail_is_known_without_its_digits(exponent: int, bits: int) -> None:
    p = medians._acceptance(2, Fraction(exponent, 3), 60)
    digits = p.digits(bits)
    if exponent > 1000:
        assert digits == 0
    else:
        low, high = exp_bounds(-Fraction(exponent, 3), 200)
        assert math.floor(low * 2 ** (59 + bits)) == digits == math.floor(high * 2 ** (59 + bits))


def test_running_out_of_words_says_nothing_about_the_cut() -> None:
    """A second draw for the place within a gap would run out more often in some gaps than in others."""
    values = np.array([5, 5, 6, 20], np.int64)
    sizes, _ = proposed(values, 0, 40, 0.1)
    whole = sum(sizes)
    too_large = np.full(ranks.PICKS, whole, np.int64)
    assert ranks.propose_cut(values, 0, 40, 0.1, too_large)[-1] == 1
    for k, at in itertools.product(range(ranks.PICKS), (0, whole // 3, whole - 1)):
        words = too_large.copy()
        words[k] = at
        assert ranks.propose_cut(values, 0, 40, 0.1, words) == ranks.propose_cut(values, 0, 40, 0.1, words[k : k + 1])


def test_only_fine_and_lucky_proposals_are_settled_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """And all others with the exact exponent, which is of ε/2 and not of a float."""
    lucky, fine = 2**62 - 2**42 - 1, ranks.FINE
    known = [(lucky, fine), (lucky, fine - 1), (lucky + 1, fine), (2**62 - 1, fine), (0, fine), (0, 2)]
    asked, seen_rate = [], []

    class Bits:
        def __init__(self, key: bytes) -> None: ...

        def words(self, shape: object, kind: str) -> NDArray[np.generic]:
            return np.zeros(shape, np.int64) if kind == "<i8" else np.array([u for u, _ in known], np.uint64) * 4 + 3

    def propose(values, start, lo, hi, rate, words, cut, about) -> None:
        seen_rate.append(rate)
        cut[:] = 4
        about[:] = [(m, 3, 50, 0) for _, m in known]

    monkeypatch.setattr(medians, "RandomBits", Bits)
    monkeypatch.setattr(ranks, "propose_cuts", propose)
    monkeypatch.setattr(medians, "_acceptance", lambda *about: about)
    monkeypatch.setattr(medians, "is_below", lambda word, seen, p, bits: asked.append((word, seen, p)) or True)
    box = np.zeros(len(known), np.int64)
    exponential_cuts(box[:0], np.zeros(len(known) + 1, np.int64), box, box + 9, EPSILON, FixedKeys(1))
    assert seen_rate == [float(EPSILON / 2)]
    assert asked == [(u, 62, (m, EPSILON / 2 * 3, 50)) for u, m in known if u > lucky or m < fine]


@given(small_boxes())
def test_gaps_of_ranks_are_the_cuts_with_so_many_below(box) -> None:
    values, lo, hi = box
    of = {c: sum(v < c for v in values.tolist()) for c in range(lo + 1, hi)}
    for r in range(len(values) + 1):
        first, gap = ranks.gap_of_rank(values, lo, hi, r)
        assert [c for c in of if of[c] == r] == list(range(first, first + gap))


# --- privacy loss, over all small data sets ---------------------------------------------------------------------

SIDE, MOST = 6, 8
ALL = [rows for n in range(MOST + 1) for rows in itertools.combinations_with_replacement(range(SIDE), n)]


def of_our_code(rows: tuple[int, ...]) -> list[float]:
    """The weight of each cut as the code proposes and accepts it."""
    sizes, about = proposed(np.array(rows, np.int64), 0, SIDE, float(EPSILON / 2))
    accepted = [medians._acceptance(m, EPSILON / 2 * d, power)._enclose(30)[0] for _, m, d, power, _ in about]
    return [float(size * a) for size, a in zip(sizes, accepted, strict=True)]


def at_an_integer_rank(rows: tuple[int, ...]) -> list[float]:
    middle = math.ceil(len(rows) / 2)
    return [math.exp(-EPSILON * abs(sum(v < c for v in rows) - middle)) for c in range(1, SIDE)]


def at_the_rank_of_the_median(rows: tuple[int, ...]) -> list[float]:
    median = sorted(rows)[(len(rows) - 1) // 2] if rows else 0
    middle = sum(v < median for v in rows)
    return [math.exp(-EPSILON * abs(sum(v < c for v in rows) - middle)) for c in range(1, SIDE)]


def worst_loss(of) -> float:
    """The largest |ln(p / p')| / ε of any cut, over all data sets and one row more."""
    p = {}
    for rows in ALL:
        w = np.array(of(rows))
        p[rows] = np.log(w / w.sum())
    more = ((rows, tuple(sorted((*rows, v)))) for rows in ALL if len(rows) < MOST for v in range(SIDE))
    return max(float(np.abs(p[a] - p[b]).max()) for a, b in more) / float(EPSILON)


def test_no_cut_loses_more_than_epsilon() -> None:
    worst = worst_loss(of_our_code)
    print(f"worst loss {worst:.6f} epsilon over {len(ALL)} data sets")
    assert 0.9 < worst <= 1 + 1e-12


@pytest.mark.parametrize(("of", "least"), [(at_an_integer_rank, 1.8), (at_the_rank_of_the_median, 4)])
def test_other_scores_lose_more_at_this_weight(of, least: float) -> None:
    worst = worst_loss(of)
    print(f"{of.__name__}: worst loss {worst:.4f} epsilon")
    assert worst > least


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
    """A tree that was cut and refined, and rows that followed."""
    axes = draw(st.integers(1, 3))
    table = draw(st.lists(st.tuples(*[st.integers(0, 2**BITS - 1)] * axes), max_size=30))
    cells = [np.array([row[a] for row in table], np.int64) for a in range(axes)]
    tree: Tree = draw(st.sampled_from([RegularTree(2**BITS, axes), CutTree.root(2**BITS, axes)]))
    rows = Rows([c.copy() for c in cells])
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            parts = tuple(draw(st.integers(1, 3)) for _ in range(axes))
            rows.refine(tree, parts)
            tree = tree.refine(parts)
        else:
            axis, newest = draw(st.integers(0, axes - 1)), tree.level(tree.height)
            ends = zip(tree.lo[newest, axis].tolist(), tree.hi[newest, axis].tolist(), strict=True)
            at = np.array([draw(st.integers(lo, hi)) for lo, hi in ends])
            rows.cut(axis, at)
            tree = tree.cut(axis, at)
    return tree, table, rows


@given(grown())
@settings(max_examples=150)
def test_rows_follow_their_nodes(made) -> None:
    tree, table, rows = made
    newest = tree.level(tree.height)
    boxes = list(zip(tree.lo[newest].tolist(), tree.hi[newest].tolist(), strict=True))
    inside = [
        [row for row in table if all(a <= x < b for a, x, b in zip(lo, row, hi, strict=True))] for lo, hi in boxes
    ]
    assert rows.counts(len(boxes)).tolist() == [len(some) for some in inside]
    assert sum(map(len, inside)) == len(table)
    for axis in range(tree.lo.shape[1]):
        values, start = rows.sorted_along(axis, len(boxes), BITS)
        runs = [values[start[v] : start[v + 1]].tolist() for v in range(len(boxes))]
        assert runs == [sorted(row[axis] for row in some) for some in inside]


# --- kernels ----------------------------------------------------------------------------------------------------


@given(st.data())
def test_cut_rows(data) -> None:
    nodes = data.draw(st.integers(1, 5))
    at = data.draw(st.lists(st.integers(0, 9), min_size=nodes, max_size=nodes))
    rows = data.draw(st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, 9)), max_size=20))
    node = np.array([v for v, _ in rows], np.int64)
    cut_rows(np.array([c for _, c in rows], np.int64), np.array(at), node)
    assert node.tolist() == [2 * v if c < at[v] else 2 * v + 1 for v, c in rows]


@given(st.data())
def test_part_rows(data) -> None:
    boxes = data.draw(st.lists(st.tuples(st.integers(0, 2**29), st.integers(1, 2**29)), min_size=1, max_size=4))
    parts, rows = data.draw(st.integers(1, 40)), []
    for v, (lo, width) in enumerate(boxes):
        edge = st.integers(0, parts - 1).map(lambda k, lo=lo, width=width: lo + k * width // parts)
        rows += [(v, c) for c in data.draw(st.lists(st.integers(lo, lo + width - 1) | edge, max_size=8))]
    node, index = np.array([v for v, _ in rows], np.int64), np.arange(len(rows))
    lo, hi = np.array([a for a, _ in boxes]), np.array([a + w for a, w in boxes])
    part_rows(np.array([c for _, c in rows], np.int64), lo, hi, parts, node, index)
    for i, (v, c) in enumerate(rows):
        a, width = boxes[v]
        (k,) = (k for k in range(parts) if a + k * width // parts <= c < a + (k + 1) * width // parts)
        assert index[i] == i * parts + k


odd = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-3, 9) | st.sampled_from([-1.0, 5.0, 2.0, 4.9999])


@given(st.lists(odd, max_size=30), st.integers(1, 30))
def test_find_cells(values: list[float], bits: int) -> None:
    cells = np.empty(len(values), np.int64)
    find_cells(np.array(values), -1.0, 5.0, 2**bits / 6.0, bits, cells)
    twins = [naive.cell(x, -1.0, 5.0, 2**bits) for x in values]
    assert cells.tolist() == [-1 if c is None else c for c in twins]


@given(st.integers(1, 10), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=16))
def test_below_takes_the_first_number_that_fits(limit: int, words: list[int]) -> None:
    mask = 2 ** (limit - 1).bit_length()
    fitting = [w % mask for w in words if w % mask < limit]
    assert ranks.below(limit, np.array(words, np.int64)) == (fitting[0] if fitting else -1)


def test_below_is_uniform() -> None:
    words = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, (20_000, ranks.PICKS))
    seen = Counter(int(ranks.below(7, row)) for row in words)
    assert seen.pop(-1, 0) < 10  # 8^-16 each
    assert chisquare([seen[k] for k in range(7)]).pvalue > 1e-9


@pytest.mark.parametrize("mechanism", ["exponential", "exponential-paper"])
def test_a_private_median_is_near_the_median_and_never_the_same(mechanism: str) -> None:
    values = np.random.default_rng(3).uniform(10, 30, 20_001)
    found = [vm.private_median(values, 0, 100, 0.1, mechanism) for _ in range(5)]
    ranks_found = [np.mean(values < m) for m in found]
    assert np.abs(np.array(ranks_found) - 0.5).max() < 0.05  # rank noise of about 1/ε of 20,001
    assert len(set(found)) == 5
    assert not set(found) & set(values.tolist())


@pytest.mark.parametrize(("mechanism", "epsilon"), [("exponential", "0.5"), ("exponential-paper", "1")])
def test_a_private_median_has_the_sharpness_of_its_mechanism_and_no_other(mechanism: str, epsilon: str) -> None:
    """Values at 2 and 6 of a range of 8: a quarter of the cuts has rank 0, half of them rank 2, a quarter rank 5."""
    draws = [vm.private_median([2.0, 2.0, 6.0, 6.0, 6.0], 0, 8, epsilon, mechanism) for _ in range(6000)]
    seen = np.histogram(draws, [0, 2 + 1e-6, 6 + 1e-6, 8])[0]

    def misfit(sharpness: float) -> float:
        weight = np.array([1, 2, 1]) * np.exp(-sharpness * np.array([2.5, 0.5, 2.5]))
        expected = 6000 * weight / weight.sum()
        return float(((seen - expected) ** 2 / expected).sum())  # chi-square, two degrees of freedom

    assert misfit(0.5) < 45  # p = 1.7e-10
    assert misfit(0.25) > 45  # expected to be about 300
    assert misfit(1.0) > 45


@pytest.mark.parametrize("values", [[], [np.nan, np.inf, -5.0], [3.0] * 10_000])
def test_a_private_median_of_nothing_or_of_ties_is_some_number_in_the_range(values: list[float]) -> None:
    assert 0 < vm.private_median(values, 0, 10, 1) < 10


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([1.0], 0, 10, 0), "epsilon must be a number"),
        (([1.0], 10, 0, 1), "must run from low to high"),
        (([1.0], 0, 10, 1, "exponental"), "no mechanism 'exponental' for medians. Did you mean 'exponential'"),
        ((["a"], 0, 10, 1), "paths|numbers|no file"),
    ],
)
def test_a_median_that_cannot_be_is_refused_with_a_sentence(arguments: tuple[object, ...], sentence: str) -> None:
    with pytest.raises(vm.BadInput, match=sentence):
        vm.private_median(*arguments)  # type: ignore[arg-type]

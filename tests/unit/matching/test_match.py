"""Private record matching: what is compared holds the matches, and what is published says nothing else."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

import veilmap as vm
from tests.unit.test_trees import trees
from veilmap.errors import BadInput
from veilmap.kernels.record_pairs import close_boxes, close_pairs, find_leaves
from veilmap.matching import agreement
from veilmap.matching.agreement import Agreement
from veilmap.matching.blocks import MAX_SLOTS, assign_slots, leaves_only, open_side, read_blocks
from veilmap.matching.local_match import Match
from veilmap.matching.records import read_records
from veilmap.matching.rule import MAX_STEPS_PER_AXIS, Rule
from veilmap.testing import fixed_entropy

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

PEOPLE = vm.Domain({"age": (17, 90), "hours": (1, 99)})
METHODS = ["kd-standard", "kd-noisymean", "quad-baseline", "kd-hybrid", "privtree", "uniform-grid"]


def people(n: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    age = np.clip(rng.gamma(6, 7, n) + 17, 17, 90).round()
    return np.stack([age, np.clip(rng.normal(40, 12, n), 1, 99).round()], axis=1)


def as_pairs(found: Ints) -> list[tuple[int, ...]]:
    return sorted(map(tuple, found.tolist()))


def naive_pairs(left: Ints, right: Ints, apart: tuple[int, ...]) -> list[tuple[int, int]]:
    """All rows, one by one. A row of -1 is nobody."""
    every = itertools.product(range(len(left)), range(len(right)))
    return [
        (i, j)
        for i, j in every
        if min(left[i]) >= 0 and min(right[j]) >= 0 and all(abs(left[i] - right[j]) <= np.array(apart))
    ]


# Kernels and their twins


def small_records(axes: int) -> st.SearchStrategy[Ints]:
    return st.integers(0, 12).flatmap(lambda n: arrays(np.int64, (n, axes), elements=st.integers(0, 6)))


@st.composite
def two_sides(draw: st.DrawFn) -> tuple[Ints, Ints, tuple[int, ...]]:
    axes = draw(st.integers(1, 3))
    apart = tuple(draw(st.lists(st.integers(0, 3), min_size=axes, max_size=axes)))
    return draw(small_records(axes)), draw(small_records(axes)), apart


@given(two_sides())
def test_close_pairs_are_those_of_the_twin(sides: tuple) -> None:
    left, right, apart = sides
    assert as_pairs(close_pairs(left, right, np.array(apart))) == naive_pairs(left, right, apart)


@given(two_sides(), st.randoms(use_true_random=False))
def test_close_boxes_are_those_of_the_twin(sides: tuple, chance) -> None:
    """Two boxes are close if some two steps in them are: counted out. Widths from 0, so that ends touch."""
    left, right, apart = sides
    widths = [np.array([[chance.randrange(3) for _ in row] for row in side]).reshape(side.shape) for side in sides[:2]]
    found = close_boxes(left, left + widths[0], right, right + widths[1], np.array(apart))

    def near(i: int, j: int, k: int) -> bool:
        ours = range(left[i, k], left[i, k] + widths[0][i, k] + 1)
        theirs = range(right[j, k], right[j, k] + widths[1][j, k] + 1)
        return any(abs(a - b) <= apart[k] for a in ours for b in theirs)

    every = itertools.product(range(len(left)), range(len(right)))
    expected = [(i, j) for i, j in every if all(near(i, j, k) for k in range(len(apart)))]
    assert list(map(tuple, found.tolist())) == expected  # in order, too


def test_more_pairs_than_there_was_room_for_are_found_all_the_same() -> None:
    ones = np.ones((50, 2), np.int64)
    for found in (close_pairs(ones, ones, np.zeros(2, int)), close_boxes(ones, ones, ones, ones, np.zeros(2, int))):
        assert as_pairs(found) == list(itertools.product(range(50), range(50)))


@given(trees(), st.integers(0, 2**32 - 1))
def test_every_row_is_in_the_leaf_that_holds_it(tree, seed: int) -> None:
    cells = np.random.default_rng(seed).integers(0, tree.hi.max(), (30, tree.lo.shape[1]))
    cells[0], cells[1], cells[2, 0] = 0, -1, -1
    leaf = np.empty(len(cells), np.int64)
    find_leaves(tree.first_child, tree.lo, tree.hi, cells, leaf)
    holds = np.all((tree.lo <= cells[:, None]) & (cells[:, None] < tree.hi), axis=2) & tree.is_leaf
    assert leaf.tolist() == [int(np.flatnonzero(row)[0]) if row.any() else -1 for row in holds]


# The rule


def test_steps_are_exactly_what_was_typed() -> None:
    domain = vm.Domain({"a": (0, 9), "b": (0, 9), "c": (0, 9), "d": (0, 9)})
    for typed in (["0.1", 0.1, Decimal("0.1"), Fraction(1, 10)], np.full(4, 0.1)):
        rule = Rule.of(domain, [1, 1, 1, 1], typed)
        assert rule.steps == (Fraction(1, 10),) * 4
        assert rule.apart == (10,) * 4
    assert Rule.of(domain, ["0.3", 0.3, Fraction(3, 10), 3], [0.1, "0.1", "0.1", "0.1"]).apart == (3, 3, 3, 30)


def test_a_whole_threshold_takes_steps_of_1_and_others_a_tenth() -> None:
    domain = vm.Domain({"a": (0, 9), "b": (0, 9), "c": (0, 9), "d": (0, 9)})
    rule = Rule.of(domain, [0, 2, 2.5, "1/3"], [None] * 4)
    assert rule == Rule.of(domain, [0, 2, 2.5, "1/3"])
    assert rule.steps == (1, 1, Fraction(1, 4), Fraction(1, 30))
    assert rule.apart == (0, 2, 10, 10)
    assert Rule.of(domain, [0, 2, 2.5, 4], [None, None, "0.5", None]).apart == (0, 2, 5, 4)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"domain": {"x": (0, 1)}}, "The domain must be a veilmap.Domain, got dict."),
        ({"thresholds": (1,)}, "Give one threshold of 0 or more for each of age, hours; got (1,)."),
        ({"thresholds": (1, -2)}, "Give one threshold of 0 or more"),
        ({"thresholds": (1, math.nan)}, "Give one threshold of 0 or more"),
        ({"thresholds": (1, math.inf)}, "Give one threshold of 0 or more"),
        ({"thresholds": (1, True)}, "Give one threshold of 0 or more"),
        ({"thresholds": (1, None)}, "Give one threshold of 0 or more"),
        ({"thresholds": (1, "9" * 500)}, "Give one threshold of 0 or more"),
        ({"thresholds": "12"}, "Give one threshold of 0 or more"),
        ({"thresholds": 3}, "Give one threshold of 0 or more"),
        ({"steps": (1,)}, "Give one step above 0 for each of age, hours; got (1,)."),
        ({"steps": (1, 1, 1)}, "Give one step above 0"),
        ({"steps": (0, 1)}, "Give one step above 0"),
        ({"steps": ("-1", 1)}, "Give one step above 0"),
        ({"steps": ("x", 1)}, "Give one step above 0"),
        ({"steps": (3, 1)}, "The threshold of age must be a multiple of its step, got 2 and 3."),
        ({"thresholds": (0, 0), "steps": (1, 1e-6)}, "more than 4,194,304 steps of 1e-06. Choose a larger step."),
        ({"lost": 0}, "The fraction of records that a party may lose must be above 0 and at most 1, got 0."),
        ({"lost": 1.01}, "above 0 and at most 1, got 1.01."),
        ({"lost": "some"}, "above 0 and at most 1, got 'some'."),
        ({"lost": math.nan}, "above 0 and at most 1, got nan."),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_with_one_sentence(arguments: dict, sentence: str) -> None:
    with pytest.raises(BadInput) as refused:
        Rule.of(**{"domain": PEOPLE, "thresholds": (2, 5)} | arguments)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_domain_without_a_whole_step_is_refused() -> None:
    rule = Rule.of(vm.Domain({"x": (0.2, 0.8)}), [0])
    with pytest.raises(BadInput, match=r"The axis x contains no multiple of its step 1\. Choose a smaller step\."):
        rule.rounded(np.array([[0.5]]))


def test_a_domain_may_have_as_many_steps_as_are_allowed_and_no_more() -> None:
    assert len(Rule.of(vm.Domain({"x": (0, MAX_STEPS_PER_AXIS)}), [0]).cells[0]) == MAX_STEPS_PER_AXIS + 1
    with pytest.raises(BadInput, match="more than"):
        Rule.of(vm.Domain({"x": (0, MAX_STEPS_PER_AXIS + 1)}), [0])


def test_numbers_at_the_borders_of_the_domain_are_rounded_into_it_or_left_out() -> None:
    rule = Rule.of(vm.Domain({"x": (-2.5, 3)}), [1])
    assert rule.first.tolist() == [-2]
    x = np.array([-2.51, -2.5, -2.4, -2, -0.4, 0.6, 2.51, 3, 3.01, 3.6, math.nan, math.inf, -math.inf, 1e300])
    assert rule.rounded(x[:, None])[:, 0].tolist() == [-1, 0, 0, 0, 2, 3, 5, 5, -1, -1, -1, -1, -1, -1]
    both = Rule.of(PEOPLE, [2, 5])
    assert both.rounded(np.array([[17, 1], [90, 99], [16, 50], [50, math.nan]])).tolist() == [
        [0, 0],
        [73, 98],
        [-1, -1],  # one number outside, and the record is
        [-1, -1],
    ]


def test_a_step_on_the_border_of_the_domain_is_inside_it() -> None:
    """Also where the border as a float lies a little beyond it: 0.1 above a tenth, 0.3 below three."""
    rule = Rule.of(vm.Domain({"x": (0.1, 0.3)}), ["0.1"], ["0.1"])
    assert rule.rounded(np.array([[0.1], [0.2], [0.3]])).tolist() == [[0], [1], [2]]
    assert rule.cells[0].tolist() == [0, rule.domain.side // 2, rule.domain.side - 1]


@pytest.mark.parametrize(
    ("ends", "numbers"),
    [((18.5, 89.5), [18.5, 89.5, 89.49]), ((0.4, 3), [0.4, 0.45, 3]), ((-2.75, -1.25), [-2.75, -1.25])],
)
def test_records_at_the_ends_of_the_domain_match_themselves(ends: tuple[float, float], numbers: list[float]) -> None:
    """Also where the nearest whole step lies outside."""
    x = np.array(numbers)[:, None]
    found = vm.match(x, x, [0], 50, "quad-baseline", domain=vm.Domain({"x": ends}), height=1)
    assert found.left.records.min() == 0
    assert found.every == len(x) ** 2
    assert found.recall == 1
    assert {(k, k) for k in range(len(x))} <= set(as_pairs(found.candidates)) & set(as_pairs(found.truth))


def test_a_record_outside_the_domain_is_dropped_though_it_would_be_rounded_into_it() -> None:
    ages = vm.Domain({"age": (17, 90)})
    x = np.array([[90.4], [16.6], [17.0], [90.0]])
    assert Rule.of(ages, [2]).rounded(x)[:, 0].tolist() == [-1, -1, 0, 73]
    found = vm.match(x, x, [0], 50, "quad-baseline", domain=ages, height=1)
    assert as_pairs(found.truth) == [(2, 2), (3, 3)]


def test_half_a_step_is_rounded_up() -> None:
    """So numbers one step apart stay one step apart: to the even step, 0.5 and 1.5 would lie two apart."""
    x = np.arange(-3.5, 4)[:, None]
    rule = Rule.of(vm.Domain({"x": (-4, 4)}), [1])
    assert (rule.rounded(x)[:, 0] + rule.first[0]).tolist() == [-3, -2, -1, 0, 1, 2, 3, 4]
    quarters = Rule.of(vm.Domain({"x": (-4, 4)}), [1], ["1/4"])
    assert set(np.diff(quarters.rounded(np.arange(-3.875, 4, 0.25)[:, None])[:, 0])) == {1}


def test_a_threshold_wider_than_the_domain_lets_everybody_match() -> None:
    for threshold in (100, 2**40, 2**63, "1e30"):
        found = vm.match(people(9), people(8, 1), (threshold, threshold), 50, domain=PEOPLE, height=1)
        assert found.matches == len(found.candidates) == 72


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """Of 1 to 3 axes: whole and other ranges, coarse and fine steps, thresholds of 0 and more."""
    axes = draw(st.integers(1, 3))
    ends = st.tuples(st.integers(-40, 40), st.integers(4, 60))
    scale = draw(st.sampled_from([1, 0.25, 0.1]))
    ranges = [(lo * scale, (lo + width) * scale) for lo, width in draw(st.lists(ends, min_size=axes, max_size=axes))]
    steps = draw(st.lists(st.sampled_from(["1", "1/4", "0.1", "1/3"]), min_size=axes, max_size=axes))
    apart = draw(st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=axes, max_size=axes))
    domain = vm.Domain({f"x{k}": ends for k, ends in enumerate(ranges)}, bits=draw(st.sampled_from([None, 4, 20])))
    steps = [step if hi - lo >= 2 else "0.1" for step, (lo, hi) in zip(steps, ranges, strict=True)]
    limits = [t * Fraction(step) for t, step in zip(apart, steps, strict=True)]
    return Rule.of(domain, limits, steps)


def records_for(rule: Rule, n: int, seed: int) -> Floats:
    """Heavy ties, many at the ends of the domain, some outside or no numbers at all."""
    rng = np.random.default_rng(seed)
    lo, hi = rule.domain.lo, rule.domain.hi
    favourites = rng.uniform(lo, hi, (4, len(lo)))
    out = np.where(rng.random((n, 1)) < 0.6, favourites[rng.integers(0, 4, n)], rng.uniform(lo, hi, (n, len(lo))))
    out = np.where(rng.random(out.shape) < 0.1, lo, out)
    out = np.where(rng.random(out.shape) < 0.1, hi, out)
    out[rng.random(n) < 0.05] = hi + 7
    out[rng.random(n) < 0.05, 0] = math.nan
    return out


@given(rules(), st.integers(0, 10**6))
def test_a_rounded_record_is_a_point_in_the_cell_that_the_rule_says(rule: Rule, seed: int) -> None:
    points = records_for(rule, 40, seed)
    records = rule.rounded(points)
    again = rule.points(records)
    inside = records[:, 0] >= 0
    assert np.array_equal(inside, np.all(records >= 0, axis=1))
    assert np.isnan(again[~inside]).all()
    assert np.array_equal(rule.rounded(again), records)
    assert np.all((again >= rule.domain.lo) & (again <= rule.domain.hi), where=inside[:, None])
    assert np.array_equal(inside, np.all((rule.domain.lo <= points) & (points <= rule.domain.hi), axis=1))
    sizes = np.array([float(step) for step in rule.steps])
    top = np.array([len(cells) - 1 for cells in rule.cells])
    moved = (again - points) / sizes
    last = ((records == 0) & (moved > 0)) | ((records == top) & (moved < 0))  # the next step would lie outside
    assert np.all(abs(moved)[inside] <= np.where(last, 1, 0.5)[inside] + 1e-9)
    for a, axis in enumerate(rule.domain.axes):
        cells = rule.cells[a][records[inside, a]]
        assert np.all(np.diff(rule.cells[a]) >= 0)
        whole = (again[inside, a] - axis.lo) * rule.domain.scale(a)
        assert cells.tolist() == np.minimum(whole, rule.domain.side - 1).astype(int).tolist()


# Blocking


def check_match(found: Match, rule: Rule) -> None:
    """The superset law, and that every number said of a match is what counting gives."""
    truth = naive_pairs(found.left.records, found.right.records, rule.apart)
    candidates = set(as_pairs(found.candidates))
    seated = [set(side.seats[side.seats >= 0].tolist()) for side in (found.left, found.right)]
    assert as_pairs(found.truth) == truth
    assert len(candidates) == len(found.candidates) <= found.work
    assert all((i, j) in candidates for i, j in truth if i in seated[0] and j in seated[1])
    kept = len(candidates & set(truth))
    assert found.recall == (kept / len(truth) if truth else 1)
    assert found.precision == (kept / len(candidates) if candidates else 1)
    assert found.every == math.prod(sum(r[0] >= 0 for r in side.records) for side in (found.left, found.right))
    assert found.reduction_ratio == (1 - found.work / found.every if found.every else 0)
    assert found.compared == len(candidates)
    for side in (found.left, found.right):
        blocks = side.blocks
        assert len(side.seats) == blocks.slots.sum()  # dummies fill what is left, exactly
        assert sum(seat >= 0 for seat in side.seats) == len(set(side.seats) - {-1})
        where = np.repeat(np.arange(len(blocks.slots)), blocks.slots)
        for box, seat in zip(where, side.seats, strict=True):
            if seat >= 0:
                assert all(blocks.lo[box] <= side.records[seat])
                assert all(side.records[seat] <= blocks.hi[box])
        held = [np.all((blocks.lo <= r) & (r <= blocks.hi), axis=1) for r in side.records if r[0] >= 0]
        assert all(inside.sum() == 1 for inside in held)  # boxes are disjoint, and leave no step out
        full = np.sum(held, axis=0, dtype=int) if held else np.zeros(len(blocks.slots), int)
        taken = np.bincount(where[side.seats >= 0], minlength=len(blocks.slots))
        assert np.array_equal(taken, np.minimum(full, blocks.slots))  # a seat is empty only if nobody is left


@given(
    rules(),
    st.integers(0, 10**6),
    st.sampled_from(METHODS),
    st.sampled_from([0.2, 1, 20]),
    st.sampled_from(["0.01", "1"]),
    st.sampled_from([0, 1, 25, 60]),
)
def test_candidates_hold_every_match_of_records_that_have_a_slot(
    rule: Rule, seed: int, method: str, epsilon: float, lost: str, size: int
) -> None:
    left, right = records_for(rule, 40, seed), records_for(rule, size, seed)  # of the same favourites
    thresholds = [t * step for t, step in zip(rule.apart, rule.steps, strict=True)]
    with fixed_entropy(seed):
        found = vm.match(
            left, right, thresholds, epsilon, method, domain=rule.domain, steps=rule.steps, rows=40, lost=lost
        )
    assert found.rule == replace(rule, lost=Fraction(lost))
    check_match(found, rule)


@pytest.mark.parametrize("method", METHODS)
def test_the_law_holds_for_whole_numbers_with_heavy_ties(method: str) -> None:
    rule = Rule.of(PEOPLE, (2, 0))
    with fixed_entropy(3):
        found = vm.match(people(150), people(120, 1), (2, 0), 2, method, domain=PEOPLE, rows=150)
    check_match(found, rule)
    assert found.matches > 40


def test_near_misses_break_the_law() -> None:
    """Boxes that are too near, a record in another's seat, or a slot too many, and the same check fails."""
    rule = Rule.of(PEOPLE, (2, 5))
    with fixed_entropy(4):
        found = vm.match(people(150), people(150, 1), (2, 5), 20, domain=PEOPLE, rows=150)
    check_match(found, rule)
    side = found.left
    strict = replace(rule, apart=(0, 0))
    nearer = replace(found, agreement=Agreement.of(strict, side.blocks, found.right.blocks))
    swapped = replace(side, seats=side.seats[::-1].copy())
    first, *_, last = sorted(set(side.seats.tolist()) - {-1})
    twice = replace(side, seats=np.where(side.seats == first, last, side.seats))
    for wrong in (nearer, replace(found, left=swapped), replace(found, left=twice)):
        with pytest.raises(AssertionError):
            check_match(wrong, rule)


def test_nobody_at_all_is_matched_with_nobody() -> None:
    nobody, far = np.zeros((0, 2)), np.full((5, 2), 200.0)
    for left, right in ((nobody, people(9)), (people(9), nobody), (nobody, nobody), (far, people(9))):
        found = vm.match(left, right, (2, 5), 1, domain=PEOPLE, height=1)
        assert len(found.candidates) == found.matches == 0
        assert found.recall == found.precision == 1
    assert vm.match(nobody, nobody, (2, 5), 1, domain=PEOPLE, height=1).reduction_ratio == 0
    assert vm.match(far, people(9), (2, 5), 1, domain=PEOPLE, height=1).reduction_ratio == 0  # nothing to save


def test_rows_outside_the_domain_save_nothing() -> None:
    """They would not be compared without blocking either: the ratio is that of the others alone."""
    outside = np.array([[16, 50], [50, math.nan], [90.5, 50]])
    more = np.concatenate([people(40), np.repeat(outside, 50, axis=0)])
    for left, right in ((more, people(30, 1)), (people(40), people(30, 1))):
        with fixed_entropy(9):
            found = vm.match(left, right, (2, 5), 5, "quad-baseline", domain=PEOPLE, height=2)
        assert found.every == 1200
        assert found.reduction_ratio == 1 - found.work / 1200


# What both parties know


def blocks_at(*boxes: tuple[int, int, int]) -> vm.matching.Blocks:
    """Boxes on a line: both ends, and slots."""
    lo, hi, slots = (np.array(column) for column in zip(*boxes, strict=True))
    return vm.matching.Blocks(np.arange(len(lo)), lo[:, None], hi[:, None], slots, int(slots.sum()))


LINE = Rule.of(vm.Domain({"x": (0, 99)}), [3])


def test_an_agreement_counts_comparisons_lists_and_what_there_would_be_without() -> None:
    left = blocks_at((0, 9, 2), (10, 49, 3), (50, 99, 0))
    right = blocks_at((0, 11, 5), (12, 13, 7), (60, 99, 4))
    met = Agreement.of(LINE, left, right)
    assert met.pairs.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert met.work == (2 + 3) * (5 + 7)
    assert met.listed == 2 * 10 + 3 * 40
    assert met.expected == 5 * 16
    nobody = replace(left, total=-3)  # noise may say so
    assert Agreement.of(LINE, nobody, right).expected == Agreement.of(LINE, right, nobody).expected == 0


def test_an_agreement_without_pairs_has_no_batches() -> None:
    for right in (blocks_at((90, 99, 7)), blocks_at((0, 99, 0))):
        met = Agreement.of(LINE, blocks_at((0, 9, 2), (10, 49, 3)), right)
        assert met.pairs.shape == (0, 2)
        assert list(met.batches()) == []
        assert met.work == met.listed == 0
        met.must_be_short()


def test_too_many_boxes_are_refused_before_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = blocks_at((0, 9, 2), (10, 49, 3), (50, 99, 0)), blocks_at((0, 49, 5), (50, 99, 7))
    monkeypatch.setattr(agreement, "MAX_BOX_PAIRS", 4)  # boxes without slots are no trouble
    assert Agreement.of(LINE, left, right).pairs.tolist() == [[0, 0], [1, 0], [1, 1]]
    monkeypatch.setattr(agreement, "MAX_BOX_PAIRS", 3)
    monkeypatch.setattr(agreement, "close_boxes", None)
    with pytest.raises(BadInput, match=r"too many boxes to check every pair\. Choose a smaller height\."):
        Agreement.of(LINE, left, right)


def test_the_sum_of_noisy_counts_is_published_and_not_that_of_records() -> None:
    rule = Rule.of(PEOPLE, (2, 5))
    with fixed_entropy(10):
        side = open_side(people(300), rule, "0.1", leaves_only("quad-baseline", 2, rule, "0.1", None))
    assert side.blocks.total == side.release.estimates.noisy_count[side.blocks.leaf].sum() != 300


def test_what_a_party_keeps_to_itself_is_not_shown() -> None:
    """No record and no seat in what Python prints of a side or a match: here all of them are 888 and 777."""
    line = vm.Domain({"x": (0, 999)})
    x = np.full((900, 1), 888.0)
    with fixed_entropy(11):
        found = vm.match(x, x, [0], 5, "quad-baseline", domain=line, height=1)
    side = replace(found.left, records=found.left.records * 0 + 888, seats=np.full_like(found.left.seats, 777))
    for shown in (side, found.right, replace(found, left=side), [side], {"side": side}):
        for text in (repr(shown), str(shown)):
            assert not re.search(r"\b(777|888)\b|records|seats|array", text)


def test_a_release_that_was_made_already_is_used_as_it_is() -> None:
    rule = Rule.of(PEOPLE, (2, 5))
    method = leaves_only("kd-standard", 2, rule, 1, None)
    first = open_side(people(100), rule, 1, method)
    again = open_side(people(100), rule, 1, method, made=first.release)
    assert again.release is first.release
    assert np.array_equal(again.blocks.slots, first.blocks.slots)
    assert sum(again.seats >= 0) == sum(first.seats >= 0)  # who is left out is drawn anew


# Trees


def test_medians_reduce_the_work_most_in_trees_of_the_same_height() -> None:
    pool = people(9000)
    with fixed_entropy(2):
        ratio = {
            name: vm.match(pool[:6000], pool[3000:], (2, 5), 0.5, name, domain=PEOPLE, height=3).reduction_ratio
            for name in ("kd-standard", "kd-noisymean", "quad-baseline")
        }
    assert ratio["kd-standard"] > ratio["kd-noisymean"] > ratio["quad-baseline"] > 0.5


# How many records are left out


def parts_left_out(lost: str, epsilon: str, scale: float, boxes: int = 600) -> tuple[float, float]:
    """Expected at most, and seen: records without a seat, where spare slots are those of ``scale`` times the noise."""
    rng = np.random.default_rng(1)
    line = vm.Domain({"x": (0, 2**12 - 1)})
    points = np.repeat(rng.integers(0, 2**12, 4000), 4).astype(float)[:, None]
    rule = Rule.of(line, [0], lost=lost)
    with fixed_entropy(5):
        side = open_side(points, rule, epsilon, leaves_only("quad-baseline", 10, rule, epsilon, None))
    estimates = side.release.estimates
    thinner = replace(estimates, noise_variance=estimates.noise_variance * scale**2)
    blocks = read_blocks(replace(side.release, estimates=thinner), rule)
    assert len(blocks.slots) > boxes
    seats = assign_slots(side.records, side.release, blocks, rule)
    return float(Fraction(lost)) * len(points), len(points) - int(np.sum(seats >= 0))


@pytest.mark.parametrize(("lost", "epsilon"), [("0.01", "0.25"), ("0.02", "0.25"), ("0.05", "0.1")])
def test_no_more_records_are_left_out_than_was_said(lost: str, epsilon: str) -> None:
    """The sum of what a thousand boxes lose has a standard deviation of less than sqrt(2 b m), where m is its mean at
    most and b the scale of the noise: eight of them are p < 1e-9. Spare slots for half the noise are far outside."""
    said, seen = parts_left_out(lost, epsilon, 1)
    margin = 8 * math.sqrt(2 * said / float(epsilon))
    assert 0 < seen <= said + margin
    said, seen = parts_left_out(lost, epsilon, 0.5)
    assert seen > said + margin


def test_with_lost_1_there_is_nothing_to_spare() -> None:
    rule = Rule.of(PEOPLE, (2, 5), lost=1)
    with fixed_entropy(6):
        side = open_side(people(2000), rule, 1, leaves_only("kd-standard", None, rule, 1, 2000))
    counts = side.release.estimates.noisy_count[side.blocks.leaf]
    assert np.array_equal(side.blocks.slots, np.maximum(counts, 0))
    more = read_blocks(side.release, replace(rule, lost=Fraction(1, 100)))
    assert np.all(more.slots >= side.blocks.slots)
    assert more.slots.sum() > side.blocks.slots.sum()


# What is published


@pytest.mark.parametrize("method", ["kd-standard", "kd-noisymean", "quad-baseline", "kd-hybrid", "quad-opt"])
def test_only_the_leaves_are_counted(method: str) -> None:
    found = vm.match(people(500), people(500, 1), (2, 5), "0.5", method, domain=PEOPLE, height=2)
    for side in (found.left, found.right):
        privacy = side.release.privacy
        assert privacy.private
        assert privacy.spent == privacy.epsilon == Fraction(1, 2)
        assert len([c for c in privacy.ledger if c.what.startswith("noisy counts")]) == 1
        tree, variance = side.release.estimates.tree, side.release.estimates.noise_variance
        assert np.array_equal(np.isfinite(variance), tree.is_leaf)


@pytest.mark.parametrize("method", METHODS)
def test_boxes_and_slots_are_read_off_the_saved_release_alone(method: str, tmp_path) -> None:
    found = vm.match(people(300), people(300, 1), (2, 5), 1, method, domain=PEOPLE, rows=300)
    found.left.release.save(tmp_path / "left.parquet")
    read = read_blocks(vm.load(tmp_path / "left.parquet"), found.rule)
    for name in ("leaf", "lo", "hi", "slots", "start"):
        assert np.array_equal(getattr(read, name), getattr(found.left.blocks, name))


def test_the_slot_of_a_record_is_drawn_by_lot() -> None:
    """In one box with 8 slots of 4 records the first record is as often in each slot, and so is the last; who is
    left out where there are too few is drawn too. Chi-square with 7 degrees is below 60 (p < 1e-9), and
    about 400 if every other time the slot were one of the first half."""
    rule = Rule.of(PEOPLE, (2, 5))
    points = np.full((4, 2), 40.0)
    with fixed_entropy(7):
        side = open_side(points, rule, 50, leaves_only("quad-baseline", 1, rule, 50, None))
    box = int(np.flatnonzero(np.all((side.blocks.lo <= 23) & (side.blocks.hi >= 23), axis=1))[0])
    draws = 1600
    for who in (0, 3):
        blocks = replace(side.blocks, slots=np.where(np.arange(len(side.blocks.slots)) == box, 8, 0))
        seen = [assign_slots(side.records, side.release, blocks, rule).tolist().index(who) for _ in range(draws)]
        assert chi_square(np.bincount(seen, minlength=8)) < 60
        first_come = [place if k % 2 else place // 2 for k, place in enumerate(seen)]
        assert chi_square(np.bincount(first_come, minlength=8)) > 60
    few = replace(side.blocks, slots=np.where(np.arange(len(side.blocks.slots)) == box, 1, 0))
    left_in = [int(assign_slots(side.records, side.release, few, rule)[0]) for _ in range(draws)]
    assert chi_square(np.bincount(left_in, minlength=4)) < 60


def chi_square(counts: Ints) -> float:
    expected = counts.sum() / len(counts)
    return float(np.sum((counts - expected) ** 2) / expected)


# Inputs


def test_arrays_frames_and_files_are_matched_alike(tmp_path) -> None:
    """What does not depend on who draws which slot: with few records and much epsilon, everybody has one."""
    pd = pytest.importorskip("pandas")
    left, right = people(60), people(50, 1)
    left[3] = np.nan
    frames = [
        pd.DataFrame(side, columns=["age", "hours"]).assign(name="x")[["hours", "name", "age"]]
        for side in (left, right)
    ]
    paths = [tmp_path / "left.csv", tmp_path / "right.parquet"]
    frames[0].to_csv(paths[0], index=False)
    frames[1].to_parquet(paths[1])
    expected = None
    for sides in ((left, right), frames, paths, list(map(str, paths)), (left.tolist(), frames[1])):
        with fixed_entropy(8):
            found = vm.match(*sides, (2, 5), 50, "quad-baseline", domain=PEOPLE, height=3)
        seen = as_pairs(found.candidates), found.work, found.left.blocks.slots.tolist(), found.recall
        expected = expected or seen
        assert seen == expected
    assert found.recall == 1
    assert len(found.left.records) == 60


def test_records_are_read_in_their_order() -> None:
    points = np.array([[40, 20], [np.nan, 3], [1e9, -5]])
    assert np.array_equal(read_records(points, PEOPLE), points, equal_nan=True)
    assert read_records(np.zeros((0, 2)), PEOPLE).shape == (0, 2)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"left": [1, 2, 3]}, "2 columns|column"),
        ({"left": "nowhere.csv"}, "nowhere.csv"),
        ({"thresholds": (1,)}, "one threshold of 0 or more for each of age, hours; got"),
        ({"epsilon": 0}, "epsilon must be a number"),
        ({"epsilon": "much"}, "epsilon must be a number"),
        ({"method": "kd-standrad"}, "Did you mean 'kd-standard'"),
        ({"method": "hilbert-r"}, "The boxes of hilbert-r overlap"),
        (
            {"method": "kd-pure"},
            r"pure differential privacy \(delta = 0, discrete Laplace noise\), which kd-pure does not have",
        ),
        (
            {"method": "kd-true"},
            r"pure differential privacy \(delta = 0, discrete Laplace noise\), which kd-true does not have",
        ),
        ({"rows": 0}, "rows, the estimated number of records per party, must be a positive integer; got 0."),
        ({"rows": -5}, "must be a positive integer; got -5."),
        ({"rows": "x"}, "must be a positive integer; got 'x'."),
        ({"rows": 1e4}, "must be a positive integer; got 10000.0."),
        ({"rows": True}, "must be a positive integer; got True."),
        ({"height": 99}, "halved"),
        ({"domain": None}, "The domain must be a veilmap.Domain"),
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(changed: dict, sentence: str) -> None:
    arguments = {"left": people(9), "right": people(9), "thresholds": (2, 5), "epsilon": 1, "domain": PEOPLE}
    with pytest.raises(BadInput, match=sentence) as refused:
        vm.match(**arguments | changed)
    assert "\n" not in str(refused.value)
    assert "nonprivate" not in str(refused.value)


def test_a_method_composed_by_hand_is_counted_at_its_leaves_too() -> None:
    method = vm.Method(structure=vm.Quadtree(2), budget=vm.Uniform(), estimate=vm.Estimate.LEAST_SQUARES)
    found = vm.match(people(50), people(50), (2, 5), 1, method, domain=PEOPLE)
    assert len(found.left.blocks.slots) == 16
    assert [c.what for c in found.left.release.privacy.ledger] == ["noisy counts of level 2"]


def test_a_release_with_absurd_counts_is_refused() -> None:
    rule = Rule.of(PEOPLE, (2, 5))
    side = open_side(people(20), rule, 1, leaves_only("quad-baseline", 1, rule, 1, None))
    for count, variance in ((MAX_SLOTS, 1.0), (MAX_SLOTS, 5e-324), (1, np.inf)):
        with pytest.raises(BadInput, match="must add up to fewer than 67,108,864 slots"):
            read_blocks(forged(side.release, count, variance), rule)


def forged(made: vm.Release, count: float, variance: float) -> vm.Release:
    """A release whose first leaf says what it likes."""
    estimates = made.estimates
    leaf = np.arange(len(estimates.noisy_count)) == np.flatnonzero(estimates.tree.is_leaf)[0]
    changed = replace(
        estimates,
        noisy_count=np.where(leaf, int(count), estimates.noisy_count),
        noise_variance=np.where(leaf, variance, estimates.noise_variance),
    )
    return replace(made, estimates=changed)


def test_progress_goes_from_nothing_to_all() -> None:
    told: list[float] = []
    vm.match(people(20), people(20), (2, 5), 1, domain=PEOPLE, height=1, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1

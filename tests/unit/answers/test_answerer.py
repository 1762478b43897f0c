"""Counts in boxes, and whether their error bars tell the truth."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import veilmap as vm
from tests import naive
from tests.unit.kernels.test_kernels import random_queries
from veilmap.answers.answerer import MAX_NODES_PER_BOX_FOR_TABLES, Answerer, noise_intervals
from veilmap.answers.intervals import half_widths, quantiles, skew_shift
from veilmap.method.registry import METHODS
from veilmap.testing import fixed_entropy
from veilmap.trees import CutTree

HEIGHTS = {1: 6, 2: 4, 3: 2}
QUADTREES = [name for name in METHODS if name.startswith("quad-")]
KD_TREES = [name for name in METHODS if name.startswith("kd-")]
METHODS_AND_AXES = [("quad-opt", 1), ("quad-opt", 2), ("quad-opt", 3), *((m, 2) for m in QUADTREES if m != "quad-opt")]
EVERY_METHOD = pytest.mark.parametrize("method", METHODS)
ROUNDING = 1e-9


def unit_domain(axes):
    return vm.Domain({f"x{a}": (0, 1) for a in range(axes)})


def uniform_points(axes):
    return np.random.default_rng(axes).random((1000, axes))


def publish(points, domain, method, height, prune=None):
    """Any method at ε = 0.5, with this height if it has one."""
    height = height if "height" in {field.name for field in fields(METHODS[method].structure)} else None
    return vm.release(points, domain, 0.5, method, height, prune, allow_nonprivate=True)


@cache
def released(method, axes, height=None, prune=None):
    with fixed_entropy(axes):
        return publish(uniform_points(axes), unit_domain(axes), method, height or HEIGHTS[axes], prune)


# Answers


@cache
def walker_of(axes):
    """Answers from the same estimates, on a tree that is not known to be regular."""
    release = released("quad-opt", axes)
    tree = release.estimates.tree
    written = CutTree(tree.lo, tree.hi, tree.children, tree.level_start)
    return Answerer(release.domain, replace(release.estimates, tree=written), True)


@given(st.sampled_from(sorted(HEIGHTS)), st.integers(0, 2**32 - 1))
def test_summed_area_answers_equal_the_walk(axes, seed):
    release, walker = released("quad-opt", axes), walker_of(axes)
    total = release.estimates.estimate[0]
    boxes = random_queries(seed, axes, np.sort(np.append(np.linspace(0, 1, 9), np.random.default_rng(seed).random(9))))
    fast, slow = release.count(boxes), walker.count(boxes, 0.95)
    assert fast.estimate == pytest.approx(slow.estimate, rel=ROUNDING, abs=ROUNDING * total)
    assert fast.stderr == pytest.approx(slow.stderr, rel=ROUNDING, abs=ROUNDING)


@EVERY_METHOD
def test_the_box_of_a_node_is_answered_with_its_own_estimate(method):
    # An edge off its grid line by one rounding would send the walk through slivers of leaves, to another estimate.
    domain = vm.Domain({"lon": (-124.82, -103.00), "lat": (31.33, 49.00)})
    points = domain.lo + uniform_points(2) * (domain.hi - domain.lo)
    with fixed_entropy(2):
        release = publish(points, domain, method, 5)
    corners = np.stack([np.asarray(c) for c in release.nodes["bbox"].flatten()], axis=1)
    # A box without volume counts as empty, and beside it a node has its parent's box, which is answered for the parent.
    tree = release.estimates.tree
    own = np.all(tree.lo < tree.hi, axis=1) & np.any(corners != corners[np.maximum(tree.parent, 0)], axis=1)
    own[0] = True
    own &= np.isfinite(np.asarray(release.nodes["estimate"]))  # of raw counts, an unmeasured node has none
    if getattr(tree, "overlapping", False):
        own[1:] = False  # a box then holds parts of others, too
    got = release.count(corners[own])
    assert got.estimate == pytest.approx(np.asarray(release.nodes["estimate"])[own], rel=1e-6, abs=1e-6)
    assert got.stderr == pytest.approx(np.asarray(release.nodes["stderr"])[own], rel=1e-6)


@EVERY_METHOD
def test_what_lies_outside_the_domain_counts_as_empty(method):
    release = released(method, 2)
    outside = release.count([[2, 2, 3, 3], [-5, 0, -1, 1], [0, 1, 1, 9], [-np.inf, -np.inf, 0, np.inf]])
    assert not np.any(outside.estimate)
    assert not np.any(outside.high)
    inside, beyond = release.count([[0.3, 0, 1, 0.6], [0.3, -7, 5, 0.6]]).estimate
    assert inside == beyond


@EVERY_METHOD
def test_an_infinite_box_is_the_whole_domain(method):
    everything, domain = released(method, 2).count([[-np.inf, -np.inf, np.inf, np.inf], [0, 0, 1, 1]]).estimate
    assert everything == domain == released(method, 2).estimates.estimate[0]


@EVERY_METHOD
@pytest.mark.parametrize("prune", [None, 30])
def test_a_box_without_width_is_empty(method, prune):
    where = np.random.default_rng(0).random((50, 4))
    where[:, 3] = where[:, 1]
    flat = np.concatenate([where[:, [1, 0, 3, 0]], np.repeat(where[:, :2], 2, axis=1)[:, [0, 2, 0, 2]]])
    got = released(method, 2, prune=prune).count(np.sort(flat.reshape(-1, 2, 2), axis=1).reshape(-1, 4))
    assert got.estimate == pytest.approx(0, abs=ROUNDING)
    assert got.stderr == pytest.approx(0, abs=ROUNDING)


def test_one_flat_box_is_one_row():
    release = released("quad-opt", 2)
    assert release.count([0, 0, 0.3, 0.5]).estimate == release.count([[0, 0, 0.3, 0.5]]).estimate


@EVERY_METHOD
def test_no_boxes_give_no_answers(method):
    got = released(method, 2).count(np.empty((0, 4)))
    assert [len(getattr(got, name)) for name in ("estimate", "stderr", "low", "high")] == [0] * 4


ORDER = "low x0, low x1, high x0, high x1"


@pytest.mark.parametrize(
    ("boxes", "sentence"),
    [
        ([[0, 0, 1, np.nan]], rf"Box 0 contains NaN: .*\. A box is 4 numbers \({ORDER}\)\.$"),
        ([[0, 0, 1, 1], [0, 1, 1, 0]], rf"Box 1 is inverted .*\. A box is 4 numbers \({ORDER}\)\.$"),
        ([[np.inf, 0, -np.inf, 1]], "Box 0 is inverted"),
        ([0, 0, 1], rf"is 4 numbers \({ORDER}\)\. Got an array of shape \(1, 3\)"),
        ([[0, 1]], r"Got an array of shape \(1, 2\)"),
        ([[[0, 0, 1, 1]]], r"Got an array of shape \(1, 1, 4\)"),
        (7, r"Got an array of shape \(\)"),
        (None, r"Got an array of shape \(\)"),
        ("everywhere", rf"A box is 4 numbers \({ORDER}\)\. The given values cannot be read as rows"),
        ([["a", "b", "c", "d"]], "cannot be read as rows of numbers"),
        ([[0, 0, 1, 1], [0, 0]], "cannot be read as rows of numbers"),
    ],
)
def test_a_bad_box_is_refused_with_a_sentence(boxes, sentence):
    with pytest.raises(vm.BadInput, match=sentence):
        released("quad-opt", 2).count(boxes)


KD = "kd-hybrid"


def test_errors_are_computed_on_first_access_and_then_kept(monkeypatch):
    worked = []
    plain = Answerer._consistent_errors
    monkeypatch.setattr(Answerer, "_consistent_errors", lambda *a: worked.append(1) or plain(*a))
    got = released(KD, 2).count(random_queries(1, 2, np.linspace(0, 1, 9)))
    assert (got.estimate.dtype, got.confidence, worked) == (np.float64, 0.95, [])
    assert got.high is got.high
    assert got.stderr is got.stderr
    assert np.all(got.low <= got.high)
    assert worked == [1]


@EVERY_METHOD
def test_answers_do_not_change(method):
    got = released(method, 2).count([0, 0, 0.3, 0.5])
    for name in ("estimate", "stderr", "low", "high"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(got, name)[0] = 1
        with pytest.raises((FrozenInstanceError, AttributeError)):
            setattr(got, name, np.ones(1))


@EVERY_METHOD
def test_answers_can_be_pickled_and_copied(method):
    got = released(method, 2).count([[0, 0, 0.3, 0.5], [0.2, 0.2, 1, 1]], 0.9)
    for other in (pickle.loads(pickle.dumps(got)), copy.copy(got), copy.deepcopy(got)):
        assert other.confidence == 0.9
        for name in ("estimate", "stderr", "low", "high"):
            assert np.array_equal(getattr(other, name), getattr(got, name))
        assert repr(other) == repr(got)
    assert len(pickle.dumps(got)) < 2000  # not the release with it


def test_answers_show_the_first_few():
    release = released(KD, 2)
    few, many = release.count([0, 0, 1, 1]), release.count(np.tile([0, 0, 1, 1], (30, 1)))
    half = noise_half_widths(few.stderr, 0.95)[0]
    assert repr(few) == f"<Answers at 95 % confidence: {few.estimate[0]:.6g} ± {half:.3g}>"
    assert repr(many).endswith(", 25 more>")
    assert repr(release.count(np.empty((0, 4)))) == "<Answers at 95 % confidence: none>"


@pytest.mark.parametrize("method", KD_TREES)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_few_boxes_are_answered_as_many_are(method, axes):
    release = released(method, axes, 6 // axes)
    tree, total = release.estimates.tree, abs(release.estimates.estimate[0])
    if not release.consistent:
        return
    enough = 2 + tree.size // MAX_NODES_PER_BOX_FOR_TABLES
    boxes = random_queries(7, axes, np.random.default_rng(7).random(50), count=enough)
    written = CutTree(tree.lo, tree.hi, tree.children, tree.level_start)
    many = Answerer(release.domain, replace(release.estimates, tree=written), True)
    big = many.count(boxes, 0.95)
    few = Answerer(release.domain, replace(release.estimates, tree=Overlapping.of(tree)), True).count(boxes, 0.95)
    assert big.estimate == pytest.approx(few.estimate, rel=ROUNDING, abs=ROUNDING * total)
    assert big.stderr == pytest.approx(few.stderr, rel=1e-7, abs=ROUNDING)
    assert "_marginals" in vars(many)


class Overlapping(CutTree):
    """Says of itself that its boxes overlap, so it is walked."""

    overlapping = True

    @classmethod
    def of(cls, tree):
        return cls(tree.lo, tree.hi, tree.children, tree.level_start)


def test_trees_whose_boxes_overlap_are_walked():
    release = released(KD, 2)
    walker = Answerer(release.domain, replace(release.estimates, tree=Overlapping.of(release.estimates.tree)), True)
    assert np.all(walker.count(random_queries(1, 2, np.linspace(0, 1, 9), count=5000), 0.95).stderr >= 0)
    assert "_marginals" not in vars(walker)


# Intervals


def multiplier(confidence):
    """How many standard errors make an interval when noise is all of the error."""
    return max(quantiles(confidence))


def noise_half_widths(stderr, confidence):
    """Half widths of intervals whose error is Laplace noise alone."""
    none = np.zeros_like(stderr)
    return half_widths(np.square(stderr), none, none, confidence)


def test_intervals_are_one_wider_than_the_noise_or_have_no_width():
    stderr, expected = np.array([0.0, 1.0, 10.0]), [0, 1 + multiplier(0.9), 1 + 10 * multiplier(0.9)]
    assert noise_half_widths(stderr, 0.9).tolist() == expected
    low, high = noise_intervals(np.full(3, 1e4), stderr, 0.9, False)
    assert low.tolist() == [1e4 - half for half in expected]
    assert high.tolist() == [1e4 + half for half in expected]


@EVERY_METHOD
@given(seed=st.integers(0, 2**32 - 1), confidence=st.floats(0.01, 0.999))
def test_intervals_hold_the_estimate_and_are_cut_at_zero(method, seed, confidence):
    got = released(method, 2).count(random_queries(seed, 2, np.sort(np.random.default_rng(seed).random(9))), confidence)
    half = half_widths(*got.error_parts, confidence)
    middle = got.estimate + skew_shift(got.estimate, *got.error_parts, confidence, half)
    assert np.all((got.low <= np.maximum(got.estimate, 0)) & (np.maximum(got.estimate, 0) <= got.high))
    assert got.low == pytest.approx(np.maximum(middle - half, 0))
    assert got.high == pytest.approx(np.maximum(middle + half, 0))
    assert got.confidence == confidence


def test_intervals_lean_where_few_rows_are_expected_and_unevenness_is_all_of_the_error():
    """To an exponential variable's, and no further; noise is even, and so is what many rows do."""

    def lean(estimate, noise, uneven, confidence=0.95):
        values = (np.array([float(x)]) for x in (estimate, noise, uneven, 1e9))
        half = np.array([quantiles(confidence)[0] * np.sqrt(noise + uneven)])
        return skew_shift(*values, confidence, half)[0]

    assert lean(0, 0, 1e4) == pytest.approx(100 * (1.96**2 - 1) / 3, rel=1e-2)
    assert lean(-50, 0, 1e4) == lean(0, 0, 1e4)
    assert lean(100, 0, 1e4) > lean(200, 0, 1e4) > lean(100, 1e4, 1e4) > lean(1e6, 0, 1e4)
    assert lean(1e6, 0, 1e4) < 0.1
    assert lean(5, 9, 0) == lean(5, 0, 0) == lean(5, 0, 9, 0.5) == 0
    assert lean(0, 0, 1e4, 0.9999999) == quantiles(0.9999999)[0] * 50


@given(st.floats(1e-6, 1 - 1e-9))
def test_the_multiplier_is_that_of_the_normal_or_the_laplace_whichever_is_larger(confidence):
    normal = NormalDist().inv_cdf(0.5 + confidence / 2)
    laplace = -np.log1p(-confidence) / np.sqrt(2)
    assert multiplier(confidence) == pytest.approx(max(normal, laplace), rel=1e-6)


def test_the_multiplier_at_95_percent_is_that_of_the_laplace():
    assert multiplier(0.95) == pytest.approx(2.118, abs=1e-3)


@pytest.mark.parametrize("confidence", [0, 1, -0.1, 1.5, np.nan, 95])
def test_a_confidence_lies_between_0_and_1(confidence):
    with pytest.raises(vm.BadInput, match="confidence of an interval lies between 0 and 1, got"):
        released("quad-opt", 2).count([0, 0, 1, 1], confidence)


def test_a_confidence_just_below_1_gives_a_wide_interval():
    assert multiplier(np.nextafter(1, 0)) > 8


# Simulated releases: the same points again and again, fresh noise each time; one process makes them for all tests

ON_THE_LINES = [(0, 1), (0, 0.5), (0.25, 0.75), (0.5, 0.75), (0.25, 1)]
OFF_THE_LINES = [(0.1, 0.9), (0.3, 0.37), (0.03, 0.51), (0.66, 0.67)]
RELEASES = 700


def boxes_of_several_shapes(axes, sides):
    """Cubes, and boxes with different sides along each axis."""
    count = len(sides)
    cubes = [[side] * axes for side in sides]
    mixed = [[sides[(k + 2 * a) % count] for a in range(axes)] for k in range(count)] if axes > 1 else []
    return np.array([[lo for lo, _ in box] + [hi for _, hi in box] for box in cubes + mixed])


@cache
def simulated(method, axes):
    """Answers of many releases (releases × boxes), the true answers, and which boxes lie on the grid lines."""
    aligned = boxes_of_several_shapes(axes, ON_THE_LINES)
    boxes = np.concatenate([aligned, boxes_of_several_shapes(axes, ON_THE_LINES + OFF_THE_LINES)])
    points, domain = uniform_points(axes), unit_domain(axes)
    with fixed_entropy(20 + axes):
        made = [vm.release(points, domain, 0.5, method, HEIGHTS[axes]) for _ in range(RELEASES)]
    # what is learned of cut cells is another matter, and takes its time
    noisy = [replace(release, estimates=replace(release.estimates, learn=None)) for release in made]
    answers = [release.count(boxes) for release in noisy]
    tree = made[0].estimates.tree
    exact = np.array(naive.node_counts(points, domain, tree), float)
    truth = np.array([naive.box_count(tree, exact, box * domain.side) for box in boxes])
    stacked = {name: np.array([getattr(a, name) for a in answers]) for name in ("estimate", "low", "high")}
    stacked["noise"] = np.sqrt([a.error_parts.noise_variance for a in answers])
    return stacked, truth, np.arange(len(boxes)) < len(aligned)


def honest(predicted, answers):
    """Within 27 % of the spread for every box, and within 13 % on average.

    The spread of 700 draws is itself uncertain, by 4.2 % for Laplace noise, less on average: 6.5 times that is
    allowed, so it holds at any seed.
    """
    ratio = predicted / answers.std(axis=0, ddof=1)
    return bool(np.all(np.abs(ratio - 1) < 0.27) and abs(ratio.mean() - 1) < 0.13)


@pytest.mark.parametrize(("method", "axes"), METHODS_AND_AXES + [(m, axes) for m in KD_TREES for axes in (1, 2, 3)])
def test_predicted_errors_are_the_exact_ones(method, axes):
    height = 6 // axes if method in KD_TREES else None
    release, boxes = released(method, axes, height), boxes_of_several_shapes(axes, ON_THE_LINES + OFF_THE_LINES)
    tree, noise, cells = release.estimates.tree, release.estimates.noise_variance, boxes * release.domain.side
    if release.consistent:
        noise = np.where(np.any(tree.lo == tree.hi, axis=1), 1e-9, noise)  # a box without cells holds nothing, surely
        covariance = naive.covariance(tree.first_child, noise)[np.ix_(tree.is_leaf, tree.is_leaf)]
        shares = [naive.shares_of_leaves(tree, box) for box in cells]
        parts = np.array([[share[leaf] for leaf in np.flatnonzero(tree.is_leaf)] for share in shares])
        exact = np.einsum("ql,lk,qk->q", parts, covariance, parts)
    else:
        exact = [naive.range_query(tree, release.estimates.estimate, noise, box)[1] for box in cells]
    assert release.count(boxes).error_parts.noise_variance == pytest.approx(np.array(exact), rel=ROUNDING)


@pytest.mark.xdist_group("simulated")
@pytest.mark.parametrize(("method", "axes"), METHODS_AND_AXES)
def test_predicted_errors_match_the_spread_of_many_releases_and_a_near_miss_does_not(method, axes):
    answers, _, _ = simulated(method, axes)
    predicted = answers["noise"][0]
    assert np.array_equal(answers["noise"], np.tile(predicted, (RELEASES, 1)))
    assert honest(predicted, answers["estimate"])
    assert not honest(predicted * 0.7, answers["estimate"])
    assert not honest(predicted * 1.3, answers["estimate"])


@pytest.mark.xdist_group("simulated")
@pytest.mark.parametrize(("method", "axes"), METHODS_AND_AXES)
def test_95_percent_intervals_cover_94_to_98_percent(method, axes):
    answers, truth, aligned = simulated(method, axes)
    covered = ((answers["low"] <= truth) & (truth <= answers["high"]))[:, aligned]
    assert 0.94 < covered.mean() < 0.98
    assert np.all(covered.mean(axis=0) > 0.91)


def far_from(truth, answers):
    """How many standard errors of the mean the worst box is off; beyond 6.5 has p < 1e-9 for all boxes together."""
    return np.abs((answers.mean(axis=0) - truth) / (answers.std(axis=0) / np.sqrt(len(answers)))).max()


@pytest.mark.xdist_group("simulated")
@pytest.mark.parametrize(("method", "axes"), METHODS_AND_AXES)
def test_estimates_are_unbiased_and_a_small_bias_would_show(method, axes):
    answers, truth, _ = simulated(method, axes)
    assert far_from(truth, answers["estimate"]) < 6.5
    assert far_from(truth, answers["estimate"] + 0.4 * answers["noise"]) > 6.5


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_the_interval_of_one_count_covers_what_it_says_at_any_epsilon(confidence):
    """Noise is whole numbers: P(|Z| <= k) = 1 - 2 q^(k+1) / (1 + q), computed, not simulated."""
    domain = vm.Domain({"x": (0, 1)})
    for epsilon in (0.01, 0.1, 0.5, 1, 1.5, 2, 3, 3.64, 4.48, 5, 8):
        release = vm.release(np.full(10**6, 0.5), domain, epsilon, method="quad-opt", height=0)
        answer = release.count([0, 1], confidence)
        k = np.floor(answer.high[0] - answer.estimate[0])
        q = np.exp(-epsilon)
        assert 1 - 2 * q ** (k + 1) / (1 + q) >= confidence

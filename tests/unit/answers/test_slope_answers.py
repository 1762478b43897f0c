"""Slopes inside leaves, and what uneven leaves add to errors: every path equals a loop over the leaves."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import veilmap as vm
from tests import naive
from tests.unit.answers.test_answerer import (
    HEIGHTS,
    KD,
    Overlapping,
    noise_half_widths,
    publish,
    uniform_points,
    unit_domain,
)
from tests.unit.kernels.test_kernels import SEEDS, random_queries
from tests.unit.kernels.test_marginals import LARGE, cut_trees, pinwheel, queries_of, random_estimates
from tests.unit.test_trees import trees
from veilmap.answers.answerer import Answerer
from veilmap.answers.intervals import half_widths, skew_shift, variance_of
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.estimate.pruning import prune
from veilmap.kernels import box_walks, marginal_lookups, marginals
from veilmap.testing import fixed_entropy
from veilmap.trees import CutTree, RegularTree


def random_leaves(tree, seed):
    """Slopes and unevenness of all leaves, zero elsewhere."""
    rng, shape = np.random.default_rng(seed), tree.lo.shape
    slope = np.where(tree.is_leaf[:, None], rng.normal(0, 100, shape), 0.0)
    unevenness = np.where(tree.is_leaf & (rng.random(shape[0]) < 0.9), 2.0 ** (rng.integers(-8, 60, shape[0]) / 4), 0.0)
    return slope, unevenness


def parts_of_leaves(tree, query):
    """Of each leaf that a query meets: itself, where its part starts and ends along each axis, and the part."""
    axes = tree.lo.shape[1]
    for v in np.flatnonzero(tree.is_leaf):
        lo, hi = tree.lo[v].astype(float), tree.hi[v].astype(float)
        if np.all(lo < hi) and naive.covered(lo, hi, query) > 0:
            a = (np.maximum(query[:axes], lo) - lo) / (hi - lo)
            b = (np.minimum(query[axes:], hi) - lo) / (hi - lo)
            yield v, a, b, naive.covered(lo, hi, query)


def plain_count(tree, value, slope, query):
    """The integral of each leaf's density over its part."""
    total = 0.0
    for v, a, b, _ in parts_of_leaves(tree, query):
        total += value[v] * np.prod(b - a)
        for k in range(len(a)):
            others = np.prod(np.delete(b - a, k))
            total += slope[v, k] * others * ((b[k] ** 2 - b[k]) - (a[k] ** 2 - a[k])) / 2
    return total


def plain_cut(tree, unevenness, query):
    cut = [(f * (1 - f) * unevenness[v]) for v, _, _, f in parts_of_leaves(tree, query) if f < 1]
    return sum(cut), len(cut)


def twin(tree, value, slope, unevenness, queries):
    count = [plain_count(tree, value, slope, q) for q in queries]
    return np.array(count), *np.array([plain_cut(tree, unevenness, q) for q in queries], float).reshape(-1, 2).T


def by_marginals(tree, value, v, slope, unevenness, queries):
    plan = marginals.plan_tables(tree.first_child, tree.lo, tree.hi, (value != 0) | (v != 0))
    table = marginals.build_marginals(plan, value, slope)
    errors = marginals.build_error_marginals(plan, v, unevenness)
    count, variance, uneven, cut = np.empty((4, len(queries)))
    marginal_lookups.count_boxes(table, queries, count)
    marginal_lookups.box_errors(table, errors, queries, variance, uneven, cut)
    return count, uneven, cut, variance


def by_walking(tree, value, v, slope, unevenness, queries):
    count, uneven, cut, variance = np.empty((4, len(queries)))
    shape = tree.first_child, tree.lo, tree.hi
    box_walks.sum_canonical_nodes(*shape, value, v, queries, count, variance)
    box_walks.add_slope_terms(*shape, slope, queries, count)
    box_walks.sum_cut_leaves(*shape, unevenness, queries, uneven, cut)
    box_walks.least_squares_variance(*shape, v, queries, variance)
    return count, uneven, cut, variance


def same(got, expected, tolerance=1e-9):
    """Counts and sums to rounding, numbers of cut leaves exactly."""
    (count, uneven, cut, *_), size = got, np.abs(expected[0]).max() + 1e3
    return (
        np.allclose(count, expected[0], rtol=tolerance, atol=tolerance * size)
        and np.allclose(uneven, expected[1], rtol=tolerance, atol=1e-7)
        and np.array_equal(cut, expected[2])
    )


WAYS = pytest.mark.parametrize("way", [by_marginals, by_walking])
SMALL_TREES = cut_trees(most_axes=4) | trees(most_axes=4) | st.integers(0, 6).map(pinwheel)


def without_hollow(tree, value):
    """Values of leaves without volume are zero, as least squares has them."""
    leaves = np.where(tree.is_leaf & np.all(tree.lo < tree.hi, axis=1), value, 0)
    return np.array(naive.sum_children(tree.first_child, leaves))


@WAYS
@given(tree=SMALL_TREES, seed=SEEDS)
def test_answers_and_unevenness_are_sums_over_leaves(way, tree, seed):
    value, _, v = random_estimates(tree, seed)
    value, (slope, unevenness), queries = without_hollow(tree, value), random_leaves(tree, seed), queries_of(tree, seed)
    got = way(tree, value, v, slope, unevenness, queries)
    assert same(got, twin(tree, value, slope, unevenness, queries))
    flat = way(tree, value, v, np.zeros_like(slope), unevenness, queries)
    assert same(flat, twin(tree, value, 0 * slope, unevenness, queries))
    assert np.array_equal(got[3], flat[3])  # what noise does, slopes leave alone


@pytest.mark.parametrize("kind", LARGE)
def test_on_large_trees_marginals_answer_as_the_walk_does(kind):
    rng = np.random.default_rng(6)
    tree = LARGE[kind](rng)
    side, axes = tree.hi[0, 0], tree.lo.shape[1]
    hollow = np.any(tree.lo == tree.hi, axis=1)
    value = np.where(tree.is_leaf & ~hollow, rng.integers(-50, 500, tree.size), 0).astype(float)
    for u in range(tree.size - 1, -1, -1):
        value[u] += value[tree.first_child[u] : tree.first_child[u + 1]].sum()
    v = np.ones(tree.size)
    slope, unevenness = random_leaves(tree, 6)
    ends = rng.uniform(0, side, (2, 400, axes))
    ends[:, :200] = rng.choice(tree.lo[:, 0], (2, 200, axes))  # on edges
    ends[1, 100:300] = np.minimum(side, ends[0, 100:300] + side * rng.choice([1e-9, 1e-3, 0.5, 1], (200, axes)))
    queries = np.concatenate([ends.min(axis=0), ends.max(axis=0)], axis=1)
    got, expected = (way(tree, value, v, slope, unevenness, queries) for way in (by_marginals, by_walking))
    assert same(got, expected)
    assert got[3] == pytest.approx(expected[3], rel=1e-9, abs=1e-9 * tree.size)


@given(st.integers(1, 40), st.sampled_from([1.0, 3.0, 1e9]), st.booleans(), SEEDS)
def test_cells_of_any_width_are_found(cells, width, even, seed):
    rng = np.random.default_rng(seed)
    edge = np.cumsum(np.r_[rng.integers(0, 9), np.full(cells, width) if even else rng.integers(1, 99, cells) * width])
    places = np.r_[edge, rng.uniform(edge[0], edge[-1], 9)]
    inside = np.minimum(np.searchsorted(edge, places, side="right") - 1, cells - 1)
    padded = np.r_[-1.0, edge]
    assert [marginal_lookups.find_cell(padded, 1, cells, x) - 1 for x in places] == inside.tolist()


def test_a_near_miss_is_seen():
    """What looks almost the same must not pass for it."""
    tree = LARGE["adaptive grid"](np.random.default_rng(1))
    tree = CutTree(tree.lo[:145], tree.hi[:145], np.r_[144, np.zeros(144, int)], (0, 1, 145))
    value = without_hollow(tree, np.random.default_rng(2).integers(0, 90, tree.size).astype(float))
    slope, unevenness = random_leaves(tree, 3)
    queries = random_queries(4, 2, np.sort(np.random.default_rng(5).uniform(0, tree.hi[0, 0], 40)), 20)
    right = by_marginals(tree, value, np.ones(tree.size), slope, unevenness, queries)
    count, uneven, cut = twin(tree, value, slope, unevenness, queries)
    assert same(right, (count, uneven, cut))
    assert not same(right, twin(tree, value, -slope, unevenness, queries))
    assert not same(right, twin(tree, value, slope[:, ::-1], unevenness, queries))
    assert not same(right, twin(tree, value, 1.01 * slope, unevenness, queries))
    assert not same(right, (count, 1.01 * uneven, cut))
    covered = [sum(f * unevenness[v] for v, _, _, f in parts_of_leaves(tree, q) if f < 1) for q in queries]
    assert not same(right, (count, np.array(covered), cut))
    met = np.array([len(list(parts_of_leaves(tree, q))) for q in queries])
    assert not same(right, (count, uneven, met))


# Through the front door


def bare(tree, seed, slopes=True):
    """Estimates of a tree, with random numbers in them."""
    rng = np.random.default_rng(seed)
    value = without_hollow(tree, rng.integers(-20, 200, tree.size).astype(float))
    slope, unevenness = random_leaves(tree, seed)
    one = np.ones(tree.size)
    return NodeEstimates(tree, one.astype(int), one, value, one * 1.0, slope if slopes else None, unevenness)


def boxes_on_and_off_edges(tree, seed, count=8):
    """Fractions of the domain."""
    rng = np.random.default_rng(seed)
    ends = np.r_[0, rng.random(8), rng.choice(tree.lo.ravel(), 8) / tree.hi[0, 0], 1]
    return random_queries(seed, tree.lo.shape[1], np.sort(ends), count)


def errors_of(answers):
    return answers.estimate, answers.error_parts.uneven, answers.error_parts.cut


def with_slopes_off(tree, slope, expected, queries):
    """From three axes on, slopes are taken to be off together."""
    axes = tree.lo.shape[1]
    by = twin(tree, np.zeros(tree.size), slope, np.zeros(tree.size), queries)[0]
    return expected[0], expected[1] + (axes > 2) * (0.05 * (axes - 1) ** 2 * by) ** 2, expected[2]


@st.composite
def grids(draw):
    """Regular trees over the real domain, with cuts that do and do not divide it evenly."""
    axes = draw(st.integers(1, 3))
    tree = RegularTree(unit_domain(axes).side, axes)
    for parts in draw(st.lists(st.tuples(*[st.sampled_from((1, 2, 3, 5))] * axes), max_size=3)):
        tree = tree.refine(parts) if tree.refine(parts).size < 150 else tree
    return tree


@pytest.mark.parametrize("consistent", [True, False])
@pytest.mark.parametrize("slopes", [True, False])
@given(tree=grids(), seed=SEEDS)
def test_grids_are_answered_from_summed_area_tables(consistent, slopes, tree, seed):
    nodes, queries = bare(tree, seed, slopes), boxes_on_and_off_edges(tree, seed)
    got = Answerer(unit_domain(tree.axes), nodes, consistent).count(queries, 0.95)
    slope = np.zeros(tree.lo.shape) if nodes.slope is None else nodes.slope
    expected = twin(tree, nodes.estimate, slope, nodes.known_unevenness, queries * tree.side)
    expected = with_slopes_off(tree, slope, expected, queries * tree.side)
    assert same(errors_of(got), expected, 1e-6)  # flat grids are taken for even to the cell


@given(tree=grids(), seed=SEEDS)
def test_a_grid_is_answered_as_the_same_tree_written_out(tree, seed):
    nodes, queries, domain = bare(tree, seed), boxes_on_and_off_edges(tree, seed), unit_domain(tree.axes)
    written = CutTree(tree.lo, tree.hi, tree.children, tree.level_start)
    one, other, walked = (
        Answerer(domain, replace(nodes, tree=t), True).count(queries, 0.95)
        for t in (tree, written, Overlapping.of(written))
    )
    assert same(errors_of(one), errors_of(other))
    assert same(errors_of(one), errors_of(walked))


@cache
def released(method, axes=2, prune=None):
    """A release with slopes and unevenness in it, whatever its method has of its own."""
    with fixed_entropy(axes):
        made = publish(uniform_points(axes), unit_domain(axes), method, HEIGHTS[axes], prune)
    slope, unevenness = random_leaves(made.estimates.tree, 1)
    return replace(made, estimates=replace(made.estimates, slope=slope, unevenness=unevenness))


METHODS = ["adaptive-grid", KD, "quad-opt", "quad-geo", "privtree"]
EVERY_METHOD = pytest.mark.parametrize("method", METHODS)


@EVERY_METHOD
@pytest.mark.parametrize("prune_below", [None, 10])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_releases_answer_with_slopes_and_unevenness(method, prune_below, axes):
    release = released(method, axes, prune_below)
    nodes, tree = release.estimates, release.estimates.tree
    queries = boxes_on_and_off_edges(tree, 3, 12)
    expected = twin(tree, nodes.estimate, nodes.slope, nodes.known_unevenness, queries * release.domain.side)
    if not release.consistent:  # inside a node its own count is taken, not its leaves
        flat = replace(release, estimates=replace(nodes, slope=None)).count(queries).estimate
        tilted = twin(tree, 0 * nodes.estimate, nodes.slope, nodes.known_unevenness, queries * release.domain.side)[0]
        expected = (flat + tilted, *expected[1:])
    expected = with_slopes_off(tree, nodes.slope, expected, queries * release.domain.side)
    for asked in (queries[:1], np.tile(queries, (100, 1))):  # few are walked
        got = errors_of(replace(release).count(asked))
        few = min(len(asked), len(queries))
        assert same([part[:few] for part in got], [part[:few] for part in expected], 1e-6)


@EVERY_METHOD
@pytest.mark.parametrize("axis", [0, 1])
@given(seed=SEEDS)
def test_two_parts_of_a_box_add_up_to_it(method, axis, seed):
    release, rng = released(method), np.random.default_rng(seed)
    box = np.sort(rng.random((20, 2, 2)), axis=1).reshape(20, 4)
    low, high = box.copy(), box.copy()
    low[:, 2 + axis] = high[:, axis] = box[:, axis] + rng.random(20) * (box[:, 2 + axis] - box[:, axis])
    whole, *parts = (release.count(b).estimate for b in (box, low, high))
    if release.consistent:
        assert whole == pytest.approx(parts[0] + parts[1], rel=1e-9, abs=1e-5)


@EVERY_METHOD
def test_the_domain_and_the_boxes_of_nodes_cut_nothing(method):
    release = released(method)
    tree, side = release.estimates.tree, release.domain.side
    own = np.all(tree.lo < tree.hi, axis=1)
    got = release.count(np.hstack([tree.lo, tree.hi])[own] / side)
    assert not got.error_parts.cut.any()
    assert not got.error_parts.uneven.any()
    assert got.stderr == pytest.approx(np.sqrt(got.error_parts.noise_variance))
    if release.consistent:
        assert got.estimate == pytest.approx(release.estimates.estimate[own], abs=1e-6)
    assert release.count([0, 0, 1, 1]).estimate[0] == pytest.approx(release.estimates.estimate[0], rel=1e-12)


@EVERY_METHOD
def test_a_box_without_width_cuts_nothing(method):
    rng = np.random.default_rng(0)
    flat = np.sort(rng.random((60, 2, 2)), axis=1)
    flat[::2, 1, 0] = flat[::2, 0, 0]
    flat[1::3, 1, 1] = flat[1::3, 0, 1]
    got = released(method).count(flat.reshape(60, 4))
    empty = np.any(flat[:, 0] == flat[:, 1], axis=1)
    assert got.estimate[empty] == pytest.approx(0, abs=1e-6)
    assert not got.error_parts.cut[empty].any()
    assert not got.error_parts.uneven[empty].any()
    assert got.error_parts.cut[~empty].all()


@EVERY_METHOD
def test_without_unevenness_errors_are_those_of_noise(method):
    with_it = released(method)
    without = replace(with_it, estimates=replace(with_it.estimates, unevenness=None, learn=None))
    queries = boxes_on_and_off_edges(with_it.estimates.tree, 1, 400)
    one, other = with_it.count(queries), without.count(queries)
    assert one.error_parts.noise_variance == pytest.approx(other.error_parts.noise_variance)
    assert not other.error_parts.uneven.any()
    assert not other.error_parts.cut.any()
    assert np.all(one.stderr >= other.stderr)
    assert one.stderr**2 == pytest.approx(variance_of(*one.error_parts), rel=1e-12)
    assert np.any(one.stderr > other.stderr)


@EVERY_METHOD
def test_intervals_and_copies_have_all_of_the_error(method):
    got = released(method).count(boxes_on_and_off_edges(released(method).estimates.tree, 2, 30), 0.9)
    half = half_widths(*got.error_parts, 0.9)
    middle = got.estimate + skew_shift(got.estimate, *got.error_parts, 0.9, half)
    assert got.low == pytest.approx(np.maximum(middle - half, 0))
    assert got.high == pytest.approx(np.maximum(middle + half, 0))
    again = pickle.loads(pickle.dumps(got))
    for name in ("estimate", "stderr", "low", "high"):
        assert np.array_equal(getattr(again, name), getattr(got, name))
    assert repr(again) == repr(got)


def test_half_widths_grow_with_every_part_of_the_error():
    one, none = np.ones(1), np.zeros(1)
    assert half_widths(4 * one, none, none, 0.9) == noise_half_widths(2 * one, 0.9)
    assert half_widths(4 * one, 5 * one, one, 0.9) > half_widths(4 * one, 4 * one, one, 0.9)
    assert half_widths(4 * one, 5 * one, one, 0.9) > half_widths(3 * one, 5 * one, one, 0.9)


def test_curves_are_walked():
    release = released("hilbert-r")
    release = replace(release, estimates=replace(release.estimates, slope=None))
    tree, queries = release.estimates.tree, boxes_on_and_off_edges(release.estimates.tree, 1, 20)
    got = release.count(queries)
    expected = np.array([plain_cut(tree, release.estimates.known_unevenness, q) for q in queries * release.domain.side])
    assert got.error_parts.uneven == pytest.approx(expected[:, 0])
    assert np.array_equal(got.error_parts.cut, expected[:, 1])


def test_pruning_keeps_what_stays():
    nodes = bare(RegularTree(unit_domain(2).side, 2, ((3, 3), (2, 2))), 1)
    small = prune(replace(nodes, slope=None, unevenness=None, learn=None), 300)
    assert (small.slope, small.known_unevenness) == (None, None)


@pytest.mark.parametrize(("axes", "off"), [(2, 0.0), (3, 0.2), (4, 0.45)])
def test_from_three_axes_on_slopes_may_all_be_off_together(axes, off):
    points = np.clip(np.random.default_rng(3).normal(0.5, 0.15, (30_000, axes)), 0, 1)
    domain = vm.Domain({f"x{k}": (0, 1) for k in range(axes)})
    with fixed_entropy(2):
        made = vm.release(points, domain, 1).estimates
    nodes = replace(made, unevenness=made.known_unevenness, learn=None, borders=None)
    queries = np.concatenate([np.full((9, axes), 0.26), np.linspace(0.5, 0.9, 9)[:, None] * np.ones(axes)], axis=1)
    leaning, flat = (Answerer(domain, n, True).within(queries, 0.95) for n in (nodes, replace(nodes, slope=None)))
    by = leaning.estimate - flat.estimate
    assert np.abs(by).max() > 10
    assert leaning.error_parts.uneven == pytest.approx(flat.error_parts.uneven + (off * by) ** 2)
    blind = Answerer(domain, replace(nodes, unevenness=None), True).within(queries, 0.95)
    assert not blind.error_parts.uneven.any()

"""Box counts and variances by marginals equal the walk, and dense algebra, on trees of every shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import naive
from tests.unit.kernels.test_kernels import (
    SEEDS,
    combined,
    ends_on_and_off_the_lines,
    random_measurements,
    random_queries,
)
from tests.unit.test_trees import SIDE, trees
from veilmap.estimate.pruning import pruned
from veilmap.kernels import box_walks, marginal_lookups, marginals, sibling_index
from veilmap.trees import CutTree


@st.composite
def cut_trees(draw, most_axes=8, most_nodes=160):
    """Trees cut anywhere, some boxes to nothing, some into grids, some into one part; leaves on any level."""
    axes = draw(st.integers(1, most_axes))
    rng, tree = np.random.default_rng(draw(SEEDS)), CutTree.root(SIDE, axes)
    for kind in draw(st.lists(st.sampled_from(["cut", "cut", "cut", "edge", "grid", "one"]), max_size=9)):
        newest, axis = tree.level(tree.height), int(rng.integers(axes))
        lo, hi = tree.lo[newest, axis], tree.hi[newest, axis]
        if kind == "cut":
            grown = tree.cut(axis, rng.integers(lo, hi + 1))
        elif kind == "edge":
            grown = tree.cut(axis, np.where(rng.random(len(lo)) < 0.5, lo, (lo + hi) // 2))
        else:
            parts = (
                np.ones(axes, int)
                if kind == "one"
                else rng.integers(1, 5, axes)
                if axes < 3
                else 1 + (rng.random(axes) < 0.4)
            )
            grown = tree.refine(tuple(parts.tolist()))
        tree = grown if grown.size <= most_nodes else tree
    stops = draw(st.lists(st.integers(0, tree.size - 1), max_size=5))
    return pruned(tree, np.isin(np.arange(tree.size), stops))[0]


def pinwheel(turns):
    """Five boxes that no one cut parts, the middle one like that again, and so on."""
    lo, hi, children, starts = [(0, 0)], [(SIDE, SIDE)], [], [0, 1]
    for _ in range(turns):
        (x0, y0), (x1, y1) = lo[-1], hi[-1]
        w, h = (x1 - x0) // 3, (y1 - y0) // 3
        lo += [(x0, y0), (x1 - w, y0), (x0 + w, y1 - h), (x0, y0 + h), (x0 + w, y0 + h)]
        hi += [(x1 - w, y0 + h), (x1, y1 - h), (x1, y1), (x0 + w, y1), (x1 - w, y1 - h)]
        children += [5] if not children else [0, 0, 0, 0, 5]
        starts.append(len(lo))
    children += [0] * (len(lo) - len(children))
    return CutTree(np.array(lo), np.array(hi), np.array(children), tuple(starts))


def random_estimates(tree, seed):
    """Consistent estimates, the variances of the noise, and V."""
    noisy, variance = random_measurements(tree.first_child, seed)
    leaves = np.where(tree.is_leaf, noisy, 0)
    value = np.array(naive.sum_children(tree.first_child, leaves))
    return value, variance, combined(tree.first_child, noisy, variance)[1]


def answers(tree, value, v, queries):
    plan = marginals.plan_tables(tree.first_child, tree.lo, tree.hi, (value != 0) | (v != 0))
    table = marginals.build_marginals(plan, value)
    count, variance, uneven, cut = np.empty((4, len(queries)))
    marginal_lookups.count_boxes(table, queries, count)
    errors = marginals.build_error_marginals(plan, v)
    marginal_lookups.box_errors(table, errors, queries, variance, uneven, cut)
    assert not uneven.any()
    assert not cut.any()
    return count, variance


def walked(tree, value, v, queries):
    count, variance, _ = np.empty((3, len(queries)))
    box_walks.sum_canonical_nodes(tree.first_child, tree.lo, tree.hi, value, v, queries, count, _)
    box_walks.least_squares_variance(tree.first_child, tree.lo, tree.hi, v, queries, variance)
    return count, variance


def queries_of(tree, seed, count=12):
    """Ends on the edges of nodes, on round numbers, and anywhere."""
    rng, axes = np.random.default_rng(seed), tree.lo.shape[1]
    ends = np.concatenate([ends_on_and_off_the_lines(SIDE), rng.uniform(0, SIDE, 9), rng.choice(tree.lo.ravel(), 9)])
    return random_queries(seed, axes, np.sort(ends), count)


def assert_equal(got, expected, value, v):
    total, most = np.abs(value).max(), v.max()
    assert got[0] == pytest.approx(expected[0], rel=1e-9, abs=1e-9 * total)
    assert got[1] == pytest.approx(expected[1], rel=1e-9, abs=1e-9 * most)


ANY_TREES = cut_trees() | trees(most_axes=8) | st.integers(0, 12).map(pinwheel)


@given(ANY_TREES, SEEDS)
def test_marginals_answer_as_the_walk_does(tree, seed):
    value, _, v = random_estimates(tree, seed)
    queries = queries_of(tree, seed)
    assert_equal(answers(tree, value, v, queries), walked(tree, value, v, queries), value, v)


@given(cut_trees(most_axes=4, most_nodes=60) | st.integers(0, 6).map(pinwheel), SEEDS)
def test_marginals_answer_as_dense_algebra_does(tree, seed):
    value, variance, v = random_estimates(tree, seed)
    queries = queries_of(tree, seed)
    expected = np.array([naive.consistent_answer(tree, value, variance, q) for q in queries]).T
    got = answers(tree, value, v, queries)
    assert got[0] == pytest.approx(expected[0], rel=1e-9, abs=1e-9 * np.abs(value).max())
    assert got[1] == pytest.approx(expected[1], rel=1e-6, abs=1e-9 * v.max())


@given(ANY_TREES, SEEDS)
def test_without_noise_no_answer_has_an_error(tree, seed):
    value, _, _ = random_estimates(tree, seed)
    none, queries = np.zeros(tree.size), queries_of(tree, seed)
    for got in (answers(tree, value, none, queries), walked(tree, value, none, queries)):
        assert not got[1].any()
        assert np.isfinite(got[0]).all()


def grid_of_grids(side, rng, cells=12, most=9):
    """An adaptive grid: cells × cells boxes, each cut into its own grid."""
    tree = CutTree.root(side, 2).refine((cells, cells))
    lo, hi, children = [tree.lo], [tree.hi], [cells * cells]
    for v in range(1, tree.size):
        one = CutTree(tree.lo[[v]], tree.hi[[v]], np.zeros(1, np.int64), (0, 1))
        parts = tuple(rng.integers(1, most + 1, 2).tolist())
        below = one.refine(parts) if parts != (1, 1) else one
        lo.append(below.lo[1:])
        hi.append(below.hi[1:])
        children.append(below.size - 1)
    size = sum(map(len, lo))
    children = np.concatenate([children, np.zeros(size - len(children), np.int64)])
    return CutTree(np.concatenate(lo), np.concatenate(hi), children, (0, 1, tree.size, size))


def kd_tree(side, rng, axes, levels):
    tree = CutTree.root(side, axes)
    for level in range(levels):
        newest, axis = tree.level(level), level % axes
        lo, hi = tree.lo[newest, axis], tree.hi[newest, axis]
        tree = tree.cut(axis, lo + ((hi - lo) * rng.beta(5, 5, len(lo))).astype(np.int64))
    return tree


LARGE = {
    "adaptive grid": lambda rng: grid_of_grids(2**30, rng),
    "kd, 1 axis": lambda rng: kd_tree(2**30, rng, 1, 10),
    "kd, 2 axes": lambda rng: kd_tree(2**30, rng, 2, 12),
    "kd, 2 axes, cut to nothing": lambda rng: kd_tree(16, rng, 2, 12),
    "kd, 3 axes": lambda rng: kd_tree(2**30, rng, 3, 12),
    "kd, 8 axes": lambda rng: kd_tree(2**20, rng, 8, 11),
}


@pytest.mark.parametrize("kind", LARGE)
def test_marginals_of_large_trees_answer_as_the_walk_does(kind):
    rng = np.random.default_rng(5)
    tree = LARGE[kind](rng)
    side, axes = tree.hi[0, 0], tree.lo.shape[1]
    first_child = tree.first_child
    value = np.where(tree.is_leaf, rng.integers(-50, 500, tree.size), 0).astype(float)
    for u in range(tree.size - 1, -1, -1):
        value[u] += value[first_child[u] : first_child[u + 1]].sum()
    _, v = combined(first_child, value, np.exp(rng.normal(0, 1, tree.size)))
    ends = rng.uniform(0, side, (2, 500, axes))
    ends[:, :200] = rng.choice(tree.lo[:, 0], (2, 200, axes))  # on edges
    ends[1, 100:300] = np.minimum(side, ends[0, 100:300] + side * rng.choice([1e-9, 1e-3, 0.5, 1], (200, axes)))
    queries = np.concatenate([ends.min(axis=0), ends.max(axis=0)], axis=1)
    assert_equal(answers(tree, value, v, queries), walked(tree, value, v, queries), value, v)


def test_a_dense_leaf_leaves_nothing_behind():
    """A leaf of one cell holds nearly everything: what lies beside it must not be rounded away."""
    side = 2**40
    tree = kd_tree(side, np.random.default_rng(1), 1, 0)
    for at in (side // 2, side // 4, side // 8):
        newest = tree.level(tree.height)
        tree = tree.cut(0, np.clip(np.full(newest.stop - newest.start, at), tree.lo[newest, 0], tree.hi[newest, 0]))
    value = np.where(tree.is_leaf & (tree.hi > tree.lo).all(axis=1), 1e-3, 0.0)
    value[np.flatnonzero(value)[0]] = 1e12
    value = np.array(naive.sum_children(tree.first_child, np.where(tree.is_leaf, value, 0)))
    queries = np.array([[side * 0.6, side * 0.9], [side * 0.3, side * 0.4]])
    v = np.ones(tree.size)
    assert answers(tree, value, v, queries)[0] == pytest.approx(walked(tree, value, v, queries)[0], rel=1e-3)


def test_siblings_on_a_grid_are_grouped_by_cuts():
    tree = CutTree.root(SIDE, 2).refine((9, 7)).refine((2, 1))
    halved = sibling_index.index_siblings(tree.first_child, tree.lo, tree.hi, np.ones(tree.size, np.bool_))
    assert np.all(halved.axis[halved.last > halved.first] >= 0)
    assert len(marginals.level_starts(halved)) - 1 <= 1 + 4 + 3 + 1
    assert sorted(halved.origin[halved.origin >= 0]) == list(range(tree.size))


def test_leaves_on_a_grid_make_a_block_and_others_do_not():
    tree = CutTree.root(SIDE, 2).refine((9, 7))
    halved = sibling_index.index_siblings(tree.first_child, tree.lo, tree.hi, np.ones(tree.size, np.bool_))
    assert halved.axis.tolist() == [sibling_index.GRID_OF_LEAVES]
    for moved in (0, 1):
        box = [tree.lo.copy(), tree.hi.copy()]
        box[moved][5, 1] += 1  # a gap, or an overlap
        assert len(sibling_index.index_siblings(tree.first_child, *box, np.ones(tree.size, np.bool_)).axis) > 1


@given(st.integers(1, 3), SEEDS)
def test_boxes_in_a_block_are_sums_over_its_cells(axes, seed):
    rng = np.random.default_rng(seed)
    tree = CutTree.root(SIDE, axes).refine(tuple(rng.integers(1, 7, axes).tolist()))
    value, variance, v = random_estimates(tree, seed)
    queries = queries_of(tree, seed)
    expected = np.array([naive.consistent_answer(tree, value, variance, q) for q in queries]).T
    got = answers(tree, value, v, queries)
    assert got[0] == pytest.approx(expected[0], rel=1e-9, abs=1e-9 * np.abs(value).max())
    assert got[1] == pytest.approx(expected[1], rel=1e-6, abs=1e-9 * v.max())

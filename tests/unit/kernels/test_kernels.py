"""Every kernel equals its simple implementation in naive.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from tests import naive
from tests.unit.test_trees import SIDE, regular_trees, trees
from veilmap.kernels import box_walks, counting, parsing, tree_sweeps
from veilmap.trees import RegularTree, frozen

SEEDS = st.integers(0, 2**32 - 1)
QUANTUM = 2.0**-10


@st.composite
def family_trees(draw):
    """``first_child`` of a tree in which each node has as many children as it likes."""
    children, newest = [], 1
    while newest and len(children) + newest < 40:
        children += draw(st.lists(st.sampled_from([0, 0, 1, 2, 3, 5]), min_size=newest, max_size=newest))
        newest = sum(children[-newest:])
    children += [0] * newest
    return np.concatenate([[1], 1 + np.cumsum(children)])


def random_measurements(first_child, seed):
    """Noisy counts and their variances; half of the inner nodes are not measured."""
    rng, size = np.random.default_rng(seed), len(first_child) - 1
    variance = np.exp(rng.normal(0, 2, size))
    inner = np.diff(first_child) > 0
    variance[inner & (rng.random(size) < 0.5)] = np.inf
    noisy = np.where(np.isfinite(variance), rng.normal(0, 100, size).round(), 0)
    return noisy, variance


def random_queries(seed, axes, ends, count=6):
    """Boxes with ends drawn from ``ends``, so that some lie on grid lines, and the whole domain."""
    corners = np.sort(np.random.default_rng(seed).choice(ends, (count, 2, axes)), axis=1)
    corners[0] = np.array([[ends[0]] * axes, [ends[-1]] * axes])
    return corners.reshape(count, 2 * axes)


def ends_on_and_off_the_lines(side):
    return np.sort(np.concatenate([np.linspace(0, side, 13), side * np.array([0.001, 0.21, 0.4999, 0.77, 0.9999])]))


def combined(first_child, noisy, variance):
    """z and V of every node, by the kernel under test."""
    z, v = noisy.copy(), variance.copy()
    tree_sweeps.combine_up(first_child, z, v)
    return z, v


def least_squares(first_child, noisy, variance):
    z, v = combined(first_child, noisy, variance)
    tree_sweeps.share_down(first_child, z, v)
    return z


# Counting


@given(st.lists(st.floats(-1, 2) | st.sampled_from([0, 0.25, 0.5, 1, math.nan, math.inf])), st.integers(1, 16), SEEDS)
def test_add_axis_adds_each_points_part_or_drops_it(values, parts, seed):
    before = np.random.default_rng(seed).integers(-1, 5, len(values), np.int32)
    index = before.copy()
    counting.add_axis(np.array(values, float), 0.0, 1.0, 16.0, 4, parts, index)
    assert index.tolist() == naive.add_axis(values, 0.0, 1.0, 16, parts, before)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=50), st.integers(1, 2**27), st.booleans())
def test_add_axis_is_right_to_the_cell_in_the_finest_grids(cells, parts, odd):
    """Cells at the borders of parts are those that rounding would move."""
    parts = min(2**27, parts | odd)
    borders = [cell * parts // 2**31 * 2**31 // parts for cell in cells]
    near = np.array([*cells, *borders, *(b + 1 for b in borders), *(max(b - 1, 0) for b in borders), 0, 2**31 - 1])
    index = np.zeros(len(near), np.int32)
    counting.add_axis(near.astype(float), 0.0, 2.0**31, 1.0, 31, parts, index)
    assert index.tolist() == [((int(cell) + 1) * parts - 1) >> 31 for cell in near]


@given(st.lists(st.floats(-1, 2) | st.sampled_from([0, 0.25, 0.5, 1, math.nan, math.inf])), st.integers(1, 30))
def test_find_cells_finds_each_values_cell_or_drops_it(values, bits):
    cells = np.full(len(values), 77)
    counting.find_cells(np.array(values, float), 0.0, 1.0, 2.0**bits, bits, cells)
    expected = [naive.cell(x, 0.0, 1.0, 2**bits) for x in values]
    assert cells.tolist() == [-1 if c is None else c for c in expected]


def random_rows(seed, rows=50, nodes=6, side=40):
    """Boxes along one axis, some of them empty, and cells in those that are not."""
    rng = np.random.default_rng(seed)
    lo, hi = np.sort(rng.integers(0, side + 1, (2, nodes)), axis=0)
    hi[0] = max(hi[0], lo[0] + 1)
    node = rng.choice(np.flatnonzero(hi > lo), rows)
    return rng.integers(lo[node], hi[node]), lo, hi, node, rng


@given(SEEDS, st.integers(0, 4))
def test_follow_cuts_sends_each_row_of_a_cut_node_to_its_side(seed, first):
    """Nodes before the newest level, and nodes of it that were not cut, keep their rows."""
    cells, lo, hi, node, rng = random_rows(seed)
    at, node = rng.integers(lo, hi + 1), node + first
    node[:10] = rng.integers(0, first + 1, 10)  # leaves further up
    cut = rng.random(len(lo)) < 0.7
    first_child = np.concatenate([[1] * (first + 1), 1 + np.cumsum(np.where(cut, 2, 0))]) + first + len(lo)
    expected = naive.follow_cuts(cells, at, first, first_child, node.tolist())
    counting.follow_cuts(cells, at, first, first_child, node)
    assert node.tolist() == expected


def random_parts(seed, axes, first, most, rows=40, nodes=5, side=40):
    """Boxes cut into parts along every axis, some not at all and some empty; and rows in those that are not empty.

    Some rows are in nodes before ``first``, further up.
    """
    rng = np.random.default_rng(seed)
    lo, hi = np.sort(rng.integers(0, side + 1, (2, nodes, axes)), axis=0)
    hi[0] = np.maximum(hi[0], lo[0] + 1)
    box = rng.choice(np.flatnonzero((hi > lo).all(axis=1)), rows)
    parts = rng.integers(1, most + 1, lo.shape)
    parts[rng.random(nodes) < 0.3, rng.integers(axes)] = 0
    node = np.where(rng.random(rows) < 0.2, rng.integers(-first, 0, rows) if first else box, box) + first
    return rng.integers(lo[box], hi[box]), frozen(lo), hi - lo, parts, node


@given(SEEDS, st.integers(1, 4), st.integers(0, 4), st.sampled_from([1, 2, 7, 60]))
def test_follow_parts_sends_each_row_of_a_split_node_to_its_child(seed, axes, first, most):
    rows, lo, width, parts, node = random_parts(seed, axes, first, most)
    first_child = frozen(np.concatenate([[0], np.cumsum(np.prod(parts, axis=1))]) + first + len(lo))
    expected = naive.follow_parts(rows, lo, width, parts, first, first_child, node.tolist())
    counting.follow_parts(columns(rows), naive.packed(lo, width, parts, first_child[:-1]), first, node)
    assert node.tolist() == expected


@given(SEEDS, st.integers(1, 4), st.integers(0, 4), st.sampled_from([1, 2, 7]))
def test_tally_parts_counts_each_row_once_where_it_lies(seed, axes, first, most):
    rows, lo, width, parts, node = random_parts(seed, axes, first, most)
    start = np.concatenate([[0], np.cumsum(np.prod(parts, axis=1))])
    counts = np.zeros(start[-1], np.int64)
    counting.tally_parts(columns(rows), naive.packed(lo, width, parts, start[:-1]), first, node, counts)
    assert counts.tolist() == naive.tally_parts(rows, lo, width, parts, first, start, node.tolist())


def columns(rows):
    return tuple(np.ascontiguousarray(axis) for axis in rows.T)


@given(SEEDS, st.sampled_from([3, 1000, 2**19 + 7, 2**20 - 1, 2**20]))
def test_part_of_is_right_to_the_cell_in_the_largest_boxes(seed, parts):
    """It divides as floats do; the cells at the borders of parts are where a rounding would show."""
    rng, width = np.random.default_rng(seed), 2**31
    k = rng.integers(0, parts, 40)
    cells = np.concatenate([k * width // parts, (k + 1) * width // parts - 1])
    box = np.array([[0, parts, 0, width, parts]])
    found = [counting.part_of((cells,), i, box, 0) for i in range(len(cells))]
    for cell, part in zip(cells.tolist(), found, strict=True):
        assert part * width // parts <= cell < (part + 1) * width // parts


@given(st.lists(st.integers(-1, 9)))
def test_tally_counts_each_index_once(index):
    counts = np.zeros(10, np.int64)
    counting.tally(np.array(index, np.int64), counts)
    assert counts.tolist() == naive.tally(index, 10)


@given(trees(), SEEDS)
def test_sum_children_adds_to_every_node_what_lies_below_it(tree, seed):
    """Also where leaves are on any level."""
    counts = np.where(tree.is_leaf, np.random.default_rng(seed).integers(0, 100, tree.size), 0)
    expected = naive.sum_children(tree.first_child, counts)
    counting.sum_children(tree.first_child, counts, tree.level(tree.height).start)
    assert counts.tolist() == expected


@pytest.mark.parametrize("byte_order", [0, 1])
@pytest.mark.parametrize("flavor", ["iso", "extended"])
@pytest.mark.parametrize("srid", [0, 4326])
def test_read_points_takes_points_of_every_dialect_and_nothing_else(byte_order, flavor, srid):
    shapes = [
        shapely.Point(1.5, -2.25),
        shapely.Point(3, 4, 5),
        shapely.Point(),
        shapely.LineString([(0, 0), (1, 1)]),
        shapely.MultiPoint([(7, 7)]),
        shapely.Point(-0.1, 1e300),
    ]
    with_srid = shapely.set_srid(shapes, srid)
    wkb = shapely.to_wkb(with_srid, byte_order=byte_order, flavor=flavor, include_srid=srid > 0 and flavor != "iso")
    offsets = np.cumsum([0, *map(len, wkb)])
    x, y = np.empty(len(wkb)), np.empty(len(wkb))
    parsing.read_points(np.frombuffer(b"".join(wkb), np.uint8), offsets, x, y)
    assert np.array_equal(np.stack([x, y], axis=1), naive.read_points(wkb), equal_nan=True)


# Least squares


@given(family_trees(), SEEDS)
def test_two_sweeps_are_dense_weighted_least_squares(first_child, seed):
    noisy, variance = random_measurements(first_child, seed)
    got = least_squares(first_child, noisy, variance)
    assert got == pytest.approx(naive.least_squares(first_child, noisy, variance), rel=1e-6, abs=1e-6)


@given(st.integers(1, 5), st.integers(0, 3), SEEDS)
def test_two_sweeps_are_the_papers_three_phases_on_complete_trees(fanout, height, seed):
    rng, tree = np.random.default_rng(seed), RegularTree(1000, 1, ((fanout,),) * height)
    epsilons = rng.uniform(0.1, 2, height + 1)  # of the leaves first, as the paper counts
    noisy = rng.normal(0, 100, tree.size).round()
    got = least_squares(tree.first_child, noisy, 2 / epsilons[height - tree.node_level] ** 2)
    assert got == pytest.approx(naive.three_phases(tree.first_child, noisy, epsilons), rel=1e-9, abs=1e-9)


@given(family_trees(), SEEDS)
def test_combine_up_estimates_each_node_from_its_own_subtree(first_child, seed):
    noisy, variance = random_measurements(first_child, seed)
    _, got = combined(first_child, noisy, variance)
    assert got == pytest.approx(naive.subtree_variance(first_child, variance), rel=1e-6)


@given(family_trees(), SEEDS)
def test_estimate_variances_are_the_dense_ones(first_child, seed):
    noisy, variance = random_measurements(first_child, seed)
    got = np.empty(len(noisy))
    tree_sweeps.estimate_variances(first_child, combined(first_child, noisy, variance)[1], got)
    assert got == pytest.approx(np.diag(naive.covariance(first_child, variance)), rel=1e-6)


DEEP_TREES = st.integers(1, 6).map(lambda fanout: RegularTree(6**4, 1, ((fanout,),) * 4).first_child)


@given(family_trees() | DEEP_TREES, SEEDS)
def test_rounding_keeps_sums_exact_and_moves_no_estimate_by_more_than_one_and_a_half_quanta(first_child, seed):
    noisy, variance = random_measurements(first_child, seed)
    exact = least_squares(first_child, noisy * 1e3, variance)
    rounded = exact.copy()
    tree_sweeps.round_to_quanta(first_child, rounded, QUANTUM)
    assert np.array_equal(rounded / QUANTUM, np.rint(rounded / QUANTUM))
    assert np.abs(rounded - exact).max() <= 1.5 * QUANTUM + 1e-9
    for v in range(len(exact)):
        below = naive.children(first_child, v)
        if below:
            assert rounded[below].sum() == rounded[v]


# Boxes


@given(st.integers(1, 4), st.integers(1, 8), SEEDS)
def test_place_boxes_cuts_boxes_to_the_domain_and_finds_the_first_bad_one(axes, count, seed):
    rng = np.random.default_rng(seed)
    lo, hi = rng.uniform(-9, 0, axes), rng.uniform(1, 9, axes)
    side = 2 ** int(rng.integers(1, 31))
    lines = lo + (hi - lo) * rng.integers(0, side + 1, (3, axes)) / side  # grid lines, as rounding leaves them
    ends = [*rng.uniform(-12, 12, 9), *lines.ravel(), -np.inf, np.inf]
    given_boxes = rng.choice(ends, (count, 2, axes))
    if rng.random() < 0.7:
        given_boxes.sort(axis=1)
    given_boxes = given_boxes.reshape(count, 2 * axes)
    if rng.random() < 0.3:
        given_boxes[rng.integers(count), rng.integers(2 * axes)] = np.nan
    out = np.empty(given_boxes.shape)
    expected, first_bad = naive.place_boxes(given_boxes, lo, hi, side)
    assert box_walks.place_boxes(given_boxes, lo, hi, side, out) == first_bad
    if first_bad < 0:
        assert np.array_equal(out, expected)


@given(regular_trees(most_axes=4, even=True, most_nodes=120), SEEDS)
def test_a_summed_area_table_gives_the_sum_of_covered_leaves(tree, seed):
    rng, grid = np.random.default_rng(seed), tree.grid(tree.height)
    leaves = rng.normal(0, 100, grid).round()
    table = np.pad(leaves, [(1, 0)] * tree.axes)
    for a in range(tree.axes):
        table = table.cumsum(axis=a)
    queries = random_queries(seed, tree.axes, ends_on_and_off_the_lines(1.0)) * np.tile(grid, 2)
    got = np.empty(len(queries))
    box_walks.interpolate_summed_area(table.ravel(), np.array(grid), queries, got)
    cells = list(np.ndindex(grid))
    for query, answer in zip(queries, got, strict=True):
        expected = sum(naive.covered(c, np.add(c, 1), query) * leaves[c] for c in cells)
        assert answer == pytest.approx(expected, rel=1e-9, abs=1e-8)


@given(regular_trees(most_axes=4, even=True, most_nodes=120), SEEDS)
def test_regular_tree_variance_is_the_dense_quadratic_form(tree, seed):
    rng = np.random.default_rng(seed)
    by_level = np.exp(rng.normal(0, 1, tree.height + 1))
    by_level[:-1][rng.random(tree.height) < 0.3] = np.inf
    variance = by_level[tree.node_level]
    _, v = combined(tree.first_child, np.zeros(tree.size), variance)
    grids = np.array([tree.grid(i) for i in range(tree.height + 1)])
    queries = random_queries(seed, tree.axes, ends_on_and_off_the_lines(1.0))
    got = np.empty(len(queries))
    box_walks.regular_tree_variance(grids, v[np.array(tree.level_start[:-1])], queries, got)
    expected = [naive.box_variance(tree, variance, q * SIDE) for q in queries]
    assert got == pytest.approx(expected, rel=1e-8, abs=1e-10)


@given(trees(most_nodes=100), SEEDS)
def test_least_squares_variance_is_the_dense_quadratic_form(tree, seed):
    noisy, variance = random_measurements(tree.first_child, seed)
    _, v = combined(tree.first_child, noisy, variance)
    queries = random_queries(seed, tree.lo.shape[1], ends_on_and_off_the_lines(SIDE))
    got = np.empty(len(queries))
    box_walks.least_squares_variance(tree.first_child, tree.lo, tree.hi, v, queries, got)
    expected = [naive.box_variance(tree, variance, q) for q in queries]
    assert got == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(trees(), SEEDS)
def test_sum_of_canonical_nodes_is_the_canonical_range_query(tree, seed):
    noisy, variance = random_measurements(tree.first_child, seed)
    value = np.where(np.isfinite(variance), noisy, np.nan)  # an unmeasured node must not be asked
    queries = random_queries(seed, tree.lo.shape[1], ends_on_and_off_the_lines(SIDE))
    got, spread = np.empty(len(queries)), np.empty(len(queries))
    box_walks.sum_canonical_nodes(tree.first_child, tree.lo, tree.hi, value, variance, queries, got, spread)
    expected = np.array([naive.range_query(tree, value, variance, q) for q in queries])
    assert got == pytest.approx(expected[:, 0], rel=1e-9, abs=1e-9)
    assert spread == pytest.approx(expected[:, 1], rel=1e-9, abs=1e-9)


@given(trees(), SEEDS)
def test_covered_fraction_is_the_fraction_inside(tree, seed):
    for query in random_queries(seed, tree.lo.shape[1], ends_on_and_off_the_lines(SIDE)):
        for v in range(tree.size):
            assert box_walks.covered_fraction(tree.lo, tree.hi, v, query) == pytest.approx(
                naive.covered(tree.lo[v], tree.hi[v], query), rel=1e-12
            )

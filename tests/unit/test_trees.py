"""Boxes that partition the domain, whatever the cuts."""

from __future__ import annotations

import itertools
import math
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilmap.estimate.pruning import pruned
from veilmap.kernels.hilbert import hilbert_keys
from veilmap.trees import CurveTree, CutTree, RegularTree

SIDE = 144  # of the trees below: room for uneven cuts as well as even ones


@st.composite
def regular_trees(draw, most_axes=8, even=False, most_nodes=300, least_axes=1):
    """Trees of any height and any cuts that stay small; ``even`` ones have nodes of one size a level."""
    axes = draw(st.integers(least_axes, most_axes))
    tree = RegularTree(SIDE, axes)
    parts = st.tuples(*[st.sampled_from((1, 2, 3) if even else (1, 2, 3, 5))] * axes)
    for cut in draw(st.lists(parts, max_size=4)):
        grown = tree.refine(cut)
        fits = all(SIDE % g == 0 if even else g <= SIDE for g in grown.grid(grown.height))
        tree = grown if grown.size <= most_nodes and fits else tree
    return tree


@st.composite
def trees(draw, most_axes=4, most_nodes=150, least_axes=1):
    """Any trees: of any height, any cuts, and with leaves on any level."""
    whole = draw(regular_trees(most_axes, most_nodes=most_nodes, least_axes=least_axes))
    stops = draw(st.lists(st.integers(0, whole.size - 1), max_size=5))
    return pruned(whole, np.isin(np.arange(whole.size), stops))[0]


def assert_leaves_partition_the_domain(tree, side):
    lo, hi = tree.lo[tree.is_leaf], tree.hi[tree.is_leaf]
    assert np.all((lo >= 0) & (lo < hi) & (hi <= side))
    assert sum(math.prod(w) for w in (hi - lo).tolist()) == side ** lo.shape[1]
    overlap = np.minimum(hi[:, None], hi) > np.maximum(lo[:, None], lo)
    assert np.array_equal(overlap.all(axis=2), np.eye(len(lo), dtype=bool))


@given(regular_trees())
def test_leaves_of_a_regular_tree_partition_the_domain(tree):
    assert_leaves_partition_the_domain(tree, SIDE)


@given(trees())
def test_leaves_of_a_pruned_tree_partition_the_domain(tree):
    assert_leaves_partition_the_domain(tree, SIDE)


@pytest.mark.parametrize(("axes", "height"), [(1, 8), (2, 4), (3, 3), (4, 2), (5, 1), (6, 1), (7, 1), (8, 1)])
def test_leaves_of_halvings_are_equal_and_partition_the_domain(axes, height):
    tree = RegularTree(2**height, axes, ((2,) * axes,) * height)
    assert tree.size == sum(2 ** (axes * i) for i in range(height + 1))
    assert_leaves_partition_the_domain(tree, 2**height)
    assert np.all(tree.hi[tree.is_leaf] - tree.lo[tree.is_leaf] == 1)


@given(regular_trees())
def test_a_regular_tree_equals_the_tree_that_refine_writes_out(tree):
    written = reduce(lambda grown, parts: grown.refine(parts), tree.splits, CutTree.root(SIDE, tree.axes))
    assert tree.level_start == written.level_start
    for name in ("lo", "hi", "children", "first_child", "parent", "is_leaf", "node_level"):
        assert np.array_equal(getattr(tree, name), getattr(written, name)), name


@given(trees())
def test_children_parents_and_levels_agree(tree):
    assert tree.level_start[:2] == (0, 1)
    assert tree.size == len(tree.children) == tree.level_start[-1]
    assert tree.height == len(tree.level_start) - 2
    assert tree.parent[0] == -1
    for v in range(tree.size):
        below = np.arange(tree.first_child[v], tree.first_child[v + 1])
        assert len(below) == tree.children[v]
        assert tree.is_leaf[v] == (len(below) == 0)
        assert np.all(tree.parent[below] == v)
        assert np.all(tree.node_level[below] == tree.node_level[v] + 1)
        assert np.all((tree.lo[v] <= tree.lo[below]) & (tree.hi[below] <= tree.hi[v]))
    for i in range(tree.height + 1):
        assert np.all(tree.node_level[tree.level(i)] == i)


@given(regular_trees(even=True))
def test_offsets_find_the_node_at_every_grid_coordinate(tree):
    for i in range(tree.height + 1):
        grid, offsets = tree.grid(i), tree.offsets(i)
        assert math.prod(grid) == tree.level_start[i + 1] - tree.level_start[i]
        for place in itertools.product(*map(range, grid)):
            node = tree.level_start[i] + sum(o[x] for o, x in zip(offsets, place, strict=True))
            assert tree.lo[node].tolist() == [x * SIDE // g for x, g in zip(place, grid, strict=True)]
            assert tree.hi[node].tolist() == [(x + 1) * SIDE // g for x, g in zip(place, grid, strict=True)]


@given(regular_trees(most_axes=3), st.data())
def test_pruning_keeps_a_node_exactly_when_no_node_above_it_stops(tree, data):
    stop = np.array(data.draw(st.lists(st.booleans(), min_size=tree.size, max_size=tree.size)))
    short, stays = pruned(tree, stop)

    def stopped_above(v):
        return v > 0 and (stop[tree.parent[v]] or stopped_above(tree.parent[v]))

    assert stays.tolist() == [not stopped_above(v) for v in range(tree.size)]
    assert np.array_equal(short.lo, tree.lo[stays])
    assert np.array_equal(short.hi, tree.hi[stays])
    assert np.array_equal(short.is_leaf, (stop | tree.is_leaf)[stays])
    assert_leaves_partition_the_domain(short, SIDE)


def test_uneven_cuts_differ_by_one_cell_at_most():
    tree = CutTree.root(10, 1).refine((3,)).refine((2,))
    assert tree.lo[1:4, 0].tolist() == [0, 3, 6]
    assert tree.hi[1:4, 0].tolist() == [3, 6, 10]
    assert (tree.hi - tree.lo)[4:, 0].tolist() == [1, 2, 1, 2, 2, 2]


def test_refine_leaves_the_old_tree_as_it_was():
    root = CutTree.root(8, 2)
    root.refine((2, 2))
    assert root.size == 1
    assert root.is_leaf.tolist() == [True]


def assert_boxes_tile_their_parents(tree):
    """Like a partition, but boxes may be empty: every cell of a node is in exactly one of its children."""
    for v in np.flatnonzero(~tree.is_leaf):
        below = slice(tree.first_child[v], tree.first_child[v + 1])
        cells = np.indices(tree.hi[v] - tree.lo[v]).reshape(tree.lo.shape[1], -1).T + tree.lo[v]
        inside = (tree.lo[below] <= cells[:, None]) & (cells[:, None] < tree.hi[below])
        assert np.all(inside.all(axis=2).sum(axis=1) == 1)
        assert np.all((tree.lo[below] >= tree.lo[v]) & (tree.hi[below] <= tree.hi[v]))
        assert np.all(tree.lo[below] <= tree.hi[below])


def test_a_box_cut_into_more_parts_than_it_has_cells_has_empty_parts():
    tree = CutTree.root(2, 2).refine((3, 1))
    assert (tree.hi - tree.lo)[1:].tolist() == [[0, 2], [1, 2], [1, 2]]
    assert_boxes_tile_their_parents(tree.refine((2, 5)))


@given(st.integers(1, 9), st.integers(1, 3), st.data())
def test_boxes_of_any_cuts_tile_their_parents(side, axes, data):
    tree = data.draw(st.sampled_from([CutTree.root(side, axes), RegularTree(side, axes)]))
    for _ in range(data.draw(st.integers(0, 3))):
        frontier, axis = tree.level(tree.height), data.draw(st.integers(0, axes - 1))
        if data.draw(st.booleans()):
            places = zip(tree.lo[frontier, axis].tolist(), tree.hi[frontier, axis].tolist(), strict=True)
            before, at = tree, np.array([data.draw(st.integers(lo, hi)) for lo, hi in places])
            tree = before.cut(axis, at)
            grown = tree.level(tree.height)
            assert tree.hi[grown, axis][::2].tolist() == tree.lo[grown, axis][1::2].tolist() == at.tolist()
            assert (before.size, len(before.children)) == (frontier.stop, frontier.stop)
        else:
            tree = tree.refine(tuple(data.draw(st.integers(1, 2)) for _ in range(axes)))
    assert_boxes_tile_their_parents(tree)


def test_a_cut_must_lie_inside_its_box():
    tree = CutTree.root(8, 2).cut(1, np.array([3]))
    for at in ([-1, 5], [3, 2], [4, 5], [3, 9]):
        with pytest.raises(ValueError, match="must lie inside its box"):
            tree.cut(1, np.array(at))
    for at in ([3], [0, 3, 5], [[0, 5]], [0.5, 5.5], 3):
        with pytest.raises(ValueError, match="one for each frontier box"):
            tree.cut(1, np.array(at))


@given(st.integers(1, 3), st.data())
def test_leaves_of_mixed_splits_partition_the_domain(axes, data):
    """Each box into its own parts; rows with a zero leave it a leaf, on whatever level it is."""
    tree, side, ended = CutTree.root(SIDE, axes), SIDE, 0
    for _ in range(data.draw(st.integers(0, 3))):
        frontier = tree.level(tree.height)
        if frontier.stop - frontier.start > 40:
            break
        room = (tree.hi[frontier] - tree.lo[frontier]).min(initial=side)
        row = st.lists(st.integers(0, min(4, room)), min_size=axes, max_size=axes)
        rows = st.lists(row, min_size=frontier.stop - frontier.start, max_size=frontier.stop - frontier.start)
        parts = np.array(data.draw(rows), np.int64).reshape(-1, axes)
        before, tree = tree, tree.split(parts)
        assert tree.children[frontier].tolist() == parts.prod(axis=1).tolist()
        assert before.is_leaf[frontier].all()  # trees never change
        ended += int((parts.prod(axis=1) == 0).sum())
        for v, n in zip(range(frontier.start, frontier.stop), parts.tolist(), strict=True):
            below = slice(tree.first_child[v], tree.first_child[v + 1])
            alone = CutTree(tree.lo[[v]], tree.hi[[v]], np.zeros(1, np.int64), (0, 1))
            assert np.array_equal(tree.lo[below], alone.refine(tuple(n)).lo[1:])  # row-major, as refine
            assert np.array_equal(tree.hi[below], alone.refine(tuple(n)).hi[1:])
    assert_leaves_partition_the_domain(tree, SIDE)
    assert tree.is_leaf.sum() == ended + tree.level(tree.height).stop - tree.level(tree.height).start


@pytest.mark.parametrize(
    "parts",
    [[[2, 2]], [[2, 2]] * 3, [2, 2], [[2], [2]], [[2, 2, 2]] * 2, [[2, -1], [2, 2]], [[2.0, 2], [2, 2]]],
    ids=str,
)
def test_parts_are_whole_numbers_one_for_each_axis_of_each_box(parts):
    tree = CutTree.root(8, 2).cut(0, np.array([3]))
    with pytest.raises(ValueError, match="Parts must be 64-bit integers, 0 or more, one for each axis"):
        tree.split(np.array(parts))
    with pytest.raises(ValueError, match="Parts must be 64-bit integers"):
        tree.split(np.full((2, 2), 2, np.int32))


@given(st.integers(1, 3), st.data())
def test_cuts_of_some_boxes_leave_the_others_leaves(axes, data):
    tree, cut = CutTree.root(SIDE, axes), 0
    for k in range(data.draw(st.integers(0, 4))):
        frontier, axis = tree.level(tree.height), k % axes
        boxes = frontier.stop - frontier.start
        where = np.array(data.draw(st.lists(st.booleans(), min_size=boxes, max_size=boxes)), np.bool_)
        where &= tree.hi[frontier, axis] - tree.lo[frontier, axis] > 1
        at = np.where(
            where, (tree.lo[frontier, axis] + tree.hi[frontier, axis]) // 2, -7
        )  # what is not cut is not looked at
        tree, cut = tree.cut(axis, at, where), cut + int(where.sum())
        assert tree.children[frontier].tolist() == np.where(where, 2, 0).tolist()
        grown = tree.level(tree.height)
        assert tree.hi[grown, axis][::2].tolist() == tree.lo[grown, axis][1::2].tolist() == at[where].tolist()
    assert_leaves_partition_the_domain(tree, SIDE)
    assert tree.is_leaf.sum() == 1 + cut
    assert tree.size == 1 + 2 * cut


@pytest.mark.parametrize("where", [[True], [True, False, True], [1, 0], [[True, False]]], ids=str)
def test_where_to_cut_is_one_flag_for_each_box(where):
    tree = CutTree.root(8, 2).cut(1, np.array([3]))
    with pytest.raises(ValueError, match="one for each frontier box"):
        tree.cut(0, np.array([4, 4]), np.array(where))


@st.composite
def curve_trees(draw):
    """Ranges of a curve's keys cut at random places, some of them empty, and with leaves on any level."""
    axes, order, more = (*draw(st.sampled_from([(2, 1), (2, 2), (2, 3), (3, 1), (3, 2)])), draw(st.integers(0, 2)))
    keys = CutTree.root(1 << (axes * order), 1)
    for _ in range(draw(st.integers(0, 4))):
        frontier = keys.level(keys.height)
        places = zip(keys.lo[frontier, 0].tolist(), keys.hi[frontier, 0].tolist(), strict=True)
        at = np.array([draw(st.integers(lo, hi)) for lo, hi in places], np.int64)
        flags = st.lists(st.sampled_from([True, True, False]), min_size=len(at), max_size=len(at))
        keys = keys.cut(0, at, np.array(draw(flags), np.bool_))
    return CurveTree(keys, axes, order, order + more)


def curve_cells(tree):
    """All cells of the curve, and the key of each."""
    cells = np.indices((1 << tree.order,) * tree.axes).reshape(tree.axes, -1)
    keys = np.empty(cells.shape[1], np.int64)
    hilbert_keys(cells, tree.order, keys)
    return cells.T, keys


@given(curve_trees())
def test_boxes_of_a_curve_are_the_smallest_around_the_cells_of_its_ranges(tree):
    cells, keys = curve_cells(tree)
    scale = 1 << (tree.bits - tree.order)
    for v in range(tree.size):
        inside = cells[(tree.keys.lo[v, 0] <= keys) & (keys < tree.keys.hi[v, 0])]
        if len(inside):
            assert tree.lo[v].tolist() == (scale * inside.min(axis=0)).tolist()
            assert tree.hi[v].tolist() == (scale * (inside.max(axis=0) + 1)).tolist()
        else:
            assert np.any(tree.lo[v] == tree.hi[v])  # no cell, no volume
    assert tree.overlapping
    assert (tree.hi[0] - tree.lo[0]).tolist() == [1 << tree.bits] * tree.axes


@given(curve_trees(), st.data())
def test_a_pruned_curve_keeps_its_keys(tree, data):
    stop = np.array(data.draw(st.lists(st.booleans(), min_size=tree.size, max_size=tree.size)))
    short, stays = pruned(tree, stop)
    assert isinstance(short, CurveTree)
    assert (short.axes, short.order, short.bits) == (tree.axes, tree.order, tree.bits)
    expected, same = pruned(tree.keys, stop)
    assert np.array_equal(stays, same)
    for name in ("lo", "hi", "children", "level_start"):
        assert np.array_equal(getattr(short.keys, name), getattr(expected, name))
    assert np.array_equal(short.lo, tree.lo[stays])
    assert np.array_equal(short.hi, tree.hi[stays])
    _, keys = curve_cells(tree)  # its leaves still partition the curve
    lo, hi = (end[short.is_leaf, 0] for end in (short.keys.lo, short.keys.hi))
    assert (((lo <= keys[:, None]) & (keys[:, None] < hi)).sum(axis=1) == 1).all()


@given(regular_trees(), st.data())
def test_a_shortened_regular_tree_is_the_one_that_was_refined_less(tree, data):
    height = data.draw(st.integers(0, tree.height))
    shorter = tree.shortened(height)
    assert (shorter.side, shorter.axes, shorter.splits) == (tree.side, tree.axes, tree.splits[:height])

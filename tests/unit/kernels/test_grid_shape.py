"""Detecting grids among consecutive boxes, and finding their shapes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilmap.kernels.grid_shape import child_grid_shapes, grid_shape, is_grid
from veilmap.trees import CutTree

SEEDS = st.integers(0, 2**32 - 1)


def boxes_of_grid(edges):
    """The boxes of a grid with these edges along each axis, in row-major order."""
    sides = itertools.product(*(list(itertools.pairwise(edge)) for edge in edges))
    boxes = np.array(list(sides), np.int64)
    return boxes[..., 0].copy(), boxes[..., 1].copy()


def random_edges(rng, axes):
    return [np.sort(rng.choice(50, rng.integers(2, 6), replace=False)) for _ in range(axes)]


@given(SEEDS, st.integers(1, 4))
def test_children_of_a_split_have_the_shape_of_the_split(seed, axes):
    parts = np.random.default_rng(seed).integers(1, 6, (1, axes))
    tree, shape = CutTree.root(512, axes).split(parts), np.empty(axes, np.int32)
    assert grid_shape(1, tree.size, tree.lo, shape)
    assert shape.tolist() == parts[0].tolist()


@given(SEEDS, st.integers(1, 4))
def test_uneven_grids_are_grids(seed, axes):
    edges = random_edges(np.random.default_rng(seed), axes)
    (lo, hi), shape, checked = boxes_of_grid(edges), np.empty(axes, np.int64), np.empty(axes, np.int64)
    assert grid_shape(0, len(lo), lo, shape)
    assert is_grid(0, len(lo), lo, hi, checked)
    assert shape.tolist() == checked.tolist() == [len(edge) - 1 for edge in edges]


@given(SEEDS, st.integers(1, 3))
def test_one_box_out_of_place_is_found_when_all_boxes_are_compared(seed, axes):
    rng = np.random.default_rng(seed)
    lo, hi = boxes_of_grid([*random_edges(rng, axes - 1), np.array([0, 7, 20, 50])])
    ends = (lo, hi)[rng.integers(2)]
    ends[rng.integers(len(lo)), rng.integers(axes)] += 1
    shape = np.empty(axes, np.int64)
    assert is_grid(0, len(lo), lo, hi, shape) == is_grid_by_definition(lo, hi)


def is_grid_by_definition(lo, hi):
    edges = [np.unique(np.concatenate([lo[:, k], hi[:, k]])) for k in range(lo.shape[1])]
    expected = boxes_of_grid(edges)
    return all(np.array_equal(ends, wanted) for ends, wanted in zip((lo, hi), expected, strict=True))


@pytest.mark.parametrize("order", [[0, 2, 1, 3], [3, 2, 1, 0], [0, 1, 2]])
def test_boxes_in_another_order_and_missing_boxes_are_no_grid(order):
    lo, hi = boxes_of_grid([[0, 1, 2], [0, 1, 2]])
    lo, hi, shape = lo[order].copy(), hi[order].copy(), np.empty(2, np.int64)
    assert not is_grid(0, len(order), lo, hi, shape)


def test_boxes_without_cells_are_a_grid_only_at_the_end_of_an_axis():
    shape = np.empty(1, np.int64)
    for edges, expected in (([0, 0, 5], False), ([0, 5, 5], True), ([0, 2, 2, 5], False)):
        lo, hi = boxes_of_grid([edges])
        assert is_grid(0, len(lo), lo, hi, shape) == expected


def test_shapes_of_children_are_zeros_at_leaves_and_where_children_are_no_grid():
    tree = (
        CutTree.root(64, 2).split(np.array([[2, 3]])).split(np.array([[0, 0], [4, 1], [0, 0], [1, 1], [0, 0], [2, 2]]))
    )
    shapes = np.full((tree.size, 2), 77, np.int32)
    child_grid_shapes(tree.first_child, tree.lo, shapes)
    assert shapes[:7].tolist() == [[2, 3], [0, 0], [4, 1], [0, 0], [1, 1], [0, 0], [2, 2]]
    assert not shapes[7:].any()
    lo = tree.lo.copy()
    lo[1:5, 0] = 0  # a first row of four, and two boxes left over
    child_grid_shapes(tree.first_child, lo, shapes)
    assert shapes[0].tolist() == [0, 0]

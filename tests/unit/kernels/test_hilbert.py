"""The Hilbert curve, compared with its recursive definition and checked by its defining properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilmap.kernels import hilbert

SMALL = [(2, 1), (2, 2), (2, 3), (2, 4), (2, 6), (3, 1), (3, 2), (3, 4), (4, 1), (4, 3), (5, 2), (6, 2), (8, 1)]
LARGEST = [(2, 31), (3, 20), (4, 15), (5, 12), (6, 10), (7, 8), (8, 7)]

grids = st.integers(2, 8).flatmap(lambda axes: st.tuples(st.just(axes), st.integers(1, 62 // axes)))


def keys_of(cells, order):
    keys = np.empty(cells.shape[1], np.int64)
    hilbert.hilbert_keys(cells, order, keys)
    return keys


def cells_of(keys, axes, order):
    cells = np.empty((axes, len(keys)), np.int64)
    hilbert.hilbert_cells(np.asarray(keys, np.int64), order, cells)
    return cells


def boxes_of(first, last, axes, order):
    lo = np.full((len(first), axes), -7, np.int64)
    hi = lo.copy()
    hilbert.range_boxes(np.asarray(first, np.int64), np.asarray(last, np.int64), axes, order, lo, hi)
    return lo, hi


def box_of(first, last, axes, order):
    lo, hi = boxes_of([first], [last], axes, order)
    return lo[0], hi[0]


def all_keys(axes, order):
    return np.arange(1 << (axes * order))


def picture(axes, order):
    """Return the cells in the curve's order: 2^axes smaller curves, rotated and mirrored so that they join."""
    if order == 0:
        return np.zeros((axes, 1), np.int64)
    small, side = picture(axes, order - 1), 1 << (order - 1)
    copies = []
    for turn in range(1 << axes):
        pair = (turn + 1) // 2  # turns 2p - 1 and 2p are neighbours, drawn alike along the axis they share
        inner = 0 < turn < (1 << axes) - 1
        start = bits(gray(2 * pair - 2) if turn else 0, axes)
        along = (gray(2 * pair - 1) ^ gray(2 * pair)).bit_length() if inner else 1
        copy = np.roll(small, along, axis=0)  # the small picture runs along axis 0
        copies.append(np.where(start[:, None], side - 1 - copy, copy) + side * bits(gray(turn), axes)[:, None])
    return np.concatenate(copies, axis=1)


def gray(turn):
    return turn ^ (turn >> 1)


def bits(number, axes):
    """Bit k belongs to axis k + 1, and the last one to axis 0."""
    return np.roll([(number >> k) & 1 for k in range(axes)], 1)


def random_cells(axes, order, seed, n=200):
    cells = np.random.default_rng(seed).integers(0, 1 << order, (axes, n))
    cells[:, 0], cells[:, 1] = 0, (1 << order) - 1
    return cells


def random_keys(axes, order, seed, n=200):
    keys = np.random.default_rng(seed).integers(0, 1 << (axes * order), n)
    keys[:2] = 0, (1 << (axes * order)) - 1
    return keys


# The curve


@pytest.mark.parametrize(("axes", "order"), SMALL)
def test_the_curve_is_the_picture(axes, order):
    cells = picture(axes, order)
    assert (cells_of(all_keys(axes, order), axes, order) == cells).all()
    assert (keys_of(cells, order) == all_keys(axes, order)).all()


def test_the_picture_of_two_by_two_and_four_by_four():
    assert cells_of(range(4), 2, 1).T.tolist() == [[0, 0], [0, 1], [1, 1], [1, 0]]
    drawn = np.empty((4, 4), int)
    drawn[tuple(cells_of(range(16), 2, 2))] = range(16)
    assert drawn.tolist() == [[0, 3, 4, 5], [1, 2, 7, 6], [14, 13, 8, 9], [15, 12, 11, 10]]


@pytest.mark.parametrize(("axes", "order"), SMALL)
def test_each_cell_has_one_key(axes, order):
    cells = np.indices((1 << order,) * axes).reshape(axes, -1)
    keys = keys_of(cells, order)
    assert (np.sort(keys) == all_keys(axes, order)).all()
    assert (cells_of(keys, axes, order) == cells).all()


@pytest.mark.parametrize(("axes", "order"), SMALL)
def test_one_step_along_the_curve_is_one_step_on_the_grid(axes, order):
    steps = np.abs(np.diff(cells_of(all_keys(axes, order), axes, order)))
    assert (steps.sum(axis=0) == 1).all()


@pytest.mark.parametrize(("axes", "order"), SMALL)
def test_keys_that_begin_alike_fill_an_aligned_cube(axes, order):
    cells = cells_of(all_keys(axes, order), axes, order)
    for level in range(order + 1):
        cubes = cells.reshape(axes, -1, 1 << (axes * level))  # one row of keys with a common prefix
        assert (cubes >> level == cubes[:, :, :1] >> level).all()
        assert (np.ptp(cubes, axis=2) == (1 << level) - 1).all()


@given(grids, st.integers(0, 2**32 - 1))
def test_keys_and_cells_are_inverse_on_any_grid(grid, seed):
    axes, order = grid
    cells = random_cells(axes, order, seed)
    keys = keys_of(cells, order)
    assert ((keys >= 0) & (keys < 1 << (axes * order))).all()
    assert (cells_of(keys, axes, order) == cells).all()
    keys = random_keys(axes, order, seed)
    cells = cells_of(keys, axes, order)
    assert ((cells >= 0) & (cells < 1 << order)).all()
    assert (keys_of(cells, order) == keys).all()


@given(grids, st.integers(0, 2**32 - 1))
def test_neighbouring_keys_are_neighbouring_cells_on_any_grid(grid, seed):
    axes, order = grid
    keys = random_keys(axes, order, seed)
    digits = np.random.default_rng(seed).integers(0, order, len(keys))
    keys = keys >> (digits * axes) << (digits * axes)  # the first key of a cube: the step before it crosses a border
    keys = keys[keys > 0]
    steps = np.abs(cells_of(keys, axes, order) - cells_of(keys - 1, axes, order))
    assert (steps.sum(axis=0) == 1).all()


@given(grids, st.integers(0, 2**32 - 1), st.data())
def test_a_key_begins_with_the_key_of_the_coarser_cell(grid, seed, data):
    axes, order = grid
    level = data.draw(st.integers(0, order - 1))
    cells = random_cells(axes, order, seed)
    assert (keys_of(cells, order) >> (axes * level) == keys_of(cells >> level, order - level)).all()


@pytest.mark.parametrize(("axes", "order"), SMALL + LARGEST)
def test_the_curve_runs_from_cell_0_along_axis_0(axes, order):
    start, end = cells_of([0, (1 << (axes * order)) - 1], axes, order).T
    assert start.tolist() == [0] * axes
    assert end.tolist() == [(1 << order) - 1] + [0] * (axes - 1)


def test_columns_may_lie_apart_in_memory():
    cells = random_cells(3, 9, 1)
    apart = np.asfortranarray(cells)
    keys = keys_of(cells, 9)
    assert (keys_of(apart, 9) == keys).all()
    hilbert.hilbert_cells(np.repeat(keys, 2)[::2], 9, apart)
    assert (apart == cells).all()


# Boxes of ranges


def boxes_of_all_ranges(cells):
    """Return first, last, lo and hi for each first < last: the bounding box of every run of keys, by comparison."""
    n = cells.shape[1]
    first, last = np.triu_indices(n)
    lo = [np.minimum.accumulate(cells[:, a:], axis=1) for a in range(n)]
    hi = [np.maximum.accumulate(cells[:, a:], axis=1) + 1 for a in range(n)]
    return first, last + 1, np.concatenate(lo, axis=1).T, np.concatenate(hi, axis=1).T


@pytest.mark.parametrize(
    ("axes", "order"), [(2, 1), (2, 2), (2, 3), (2, 4), (2, 5), (3, 1), (3, 2), (3, 3), (4, 2), (8, 1)]
)
def test_a_range_has_the_box_of_its_cells(axes, order):
    first, last, lo, hi = boxes_of_all_ranges(picture(axes, order))
    found = boxes_of(first, last, axes, order)
    assert (found[0] == lo).all()
    assert (found[1] == hi).all()


@given(grids, st.integers(0, 2**62), st.integers(1, 3000))
def test_a_short_range_has_the_box_of_its_cells_on_any_grid(grid, start, length):
    axes, order = grid
    whole = 1 << (axes * order)
    first = start % whole
    last = min(first + length, whole)
    cells = cells_of(np.arange(first, last), axes, order)
    lo, hi = box_of(first, last, axes, order)
    assert lo.tolist() == cells.min(axis=1).tolist()
    assert hi.tolist() == (cells.max(axis=1) + 1).tolist()


@given(grids, st.integers(0, 2**32 - 1))
def test_ranges_end_to_end_have_the_box_that_holds_both(grid, seed):
    axes, order = grid
    ends = np.sort(np.random.default_rng(seed).integers(0, (1 << (axes * order)) + 1, (100, 3)), axis=1)
    a, b, c = ends[(np.diff(ends, axis=1) > 0).all(axis=1)].T
    (lo1, hi1), (lo2, hi2) = boxes_of(a, b, axes, order), boxes_of(b, c, axes, order)
    lo, hi = boxes_of(a, c, axes, order)
    assert (lo == np.minimum(lo1, lo2)).all()
    assert (hi == np.maximum(hi1, hi2)).all()


@given(grids, st.integers(0, 2**32 - 1), st.data())
def test_ranges_of_whole_cubes_have_the_coarser_grids_boxes(grid, seed, data):
    axes, order = grid
    level = data.draw(st.integers(0, order - 1))
    ends = np.random.default_rng(seed).integers(0, (1 << (axes * (order - level))) + 1, (100, 2))
    first, last = np.sort(ends, axis=1).T
    lo, hi = boxes_of(first, last, axes, order - level)
    fine_lo, fine_hi = boxes_of(first << (axes * level), last << (axes * level), axes, order)
    assert (fine_lo == lo << level).all()
    assert (fine_hi == hi << level).all()


@pytest.mark.parametrize(("axes", "order"), SMALL + LARGEST)
def test_the_whole_range_is_the_whole_grid(axes, order):
    whole, side = 1 << (axes * order), 1 << order
    lo, hi = boxes_of([0, 1, 0, 0, whole - 1], [whole, whole, whole - 1, 1, whole], axes, order)
    assert lo[0].tolist() == [0] * axes
    assert hi[0].tolist() == [side] * axes
    corner = [side - 1] + [0] * (axes - 1)
    assert hi[3].tolist() == [1] * axes
    assert lo[4].tolist() == corner
    assert hi[4].tolist() == [side] + [1] * (axes - 1)
    if order > 1:  # one cell less does not narrow the box
        assert (lo[1:3] == 0).all()
        assert (hi[1:3] == side).all()


def test_an_empty_range_has_an_empty_box():
    lo, hi = boxes_of([0, 5, 16, 3], [0, 5, 16, 4], 2, 2)
    assert (lo[:3] == 0).all()
    assert (hi[:3] == 0).all()
    assert (hi[3] - lo[3]).tolist() == [1, 1]

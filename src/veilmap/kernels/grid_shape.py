"""Detect whether consecutive boxes of a tree form a grid in row-major order, and find its shape.

The boxes are ``begin : end``, usually the children of one node.
"""

from __future__ import annotations

from numba import njit

from veilmap.arrays import Ints, SmallInts


@njit(cache=True, nogil=True)
def grid_shape(begin: int, end: int, lo: Ints, shape: Ints | SmallInts) -> bool:
    """Fill ``shape`` with the number of boxes along each axis; return False if their corners rule out a grid.

    Row-major means that the last axis runs fastest: along axis k, the low corners of the axes before k stay the same.
    Only the first box of each row is compared. That is enough for children that were made by splitting their parent,
    and for a guess that the caller checks. Boxes that are no grid may pass: ``is_grid`` compares all of them.
    """
    stride = 1
    for k in range(lo.shape[1] - 1, -1, -1):
        n = 1
        while begin + (n + 1) * stride <= end:
            same_row = True
            for j in range(k):
                same_row = same_row and lo[begin + n * stride, j] == lo[begin, j]
            if not same_row:
                break
            n += 1
        shape[k] = n
        stride *= n
    return bool(stride == end - begin)


@njit(cache=True, nogil=True)
def is_grid(begin: int, end: int, lo: Ints, hi: Ints, shape: Ints) -> bool:
    """Return whether the boxes are a grid, by comparing all of them, and fill ``shape`` as ``grid_shape`` does.

    Box i has the place (i // stride_k) mod shape_k along axis k. All boxes with the same place must have the same ends
    on that axis, and each place must begin where the one before ends. A place without cells is no part of a grid,
    except the last one of an axis.
    """
    if not grid_shape(begin, end, lo, shape):
        return False
    axes = lo.shape[1]
    stride = 1
    for k in range(axes - 1, -1, -1):
        for place in range(1, shape[k]):
            if lo[begin + place * stride, k] <= lo[begin + (place - 1) * stride, k]:
                return False
        stride *= shape[k]
    for i in range(end - begin):
        stride = 1
        for k in range(axes - 1, -1, -1):
            place = i // stride % shape[k]
            if lo[begin + i, k] != lo[begin + place * stride, k] or hi[begin + i, k] != hi[begin + place * stride, k]:
                return False
            if place and lo[begin + i, k] != hi[begin + (place - 1) * stride, k]:
                return False
            stride *= shape[k]
    return True


@njit(cache=True, nogil=True)
def child_grid_shapes(first_child: Ints, lo: Ints, shapes: SmallInts) -> None:
    """Write the ``grid_shape`` of the children of each node; zeros where there are no children, or no grid."""
    shapes[:] = 0
    for v in range(len(shapes)):
        begin, end = first_child[v], first_child[v + 1]
        if begin < end and not grid_shape(begin, end, lo, shapes[v]):
            shapes[v] = 0

"""Reading cuts off the counts of a grid."""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Floats, Ints


def summed_area(grid: Floats) -> Floats:
    """Flat; entry (x, y, …) is the sum of all that lies below it on every axis."""
    table = np.zeros(tuple(n + 1 for n in grid.shape))
    inner = table[(slice(1, None),) * grid.ndim]
    inner[...] = grid
    for axis in range(grid.ndim):
        np.cumsum(inner, axis=axis, out=inner)
    return table.ravel()


@njit(cache=True, nogil=True)
def box_sum(table: Floats, cells: int, lo: Ints, hi: Ints) -> float:
    """The sum of the cells of a box, from a summed-area table with ``cells`` a side."""
    axes = len(lo)
    total = 0.0
    for corner in range(2**axes):
        place = 0
        sign = 1.0
        for k in range(axes):
            high = (corner >> k) & 1
            place = place * (cells + 1) + (hi[k] if high else lo[k])
            sign = sign if high else -sign
        total += sign * table[place]
    return total


@njit(cache=True, nogil=True)
def looks_even(table: Floats, cells: int, lo: Ints, hi: Ints, noise: float, sure: float) -> bool:
    """Whether noise and chance explain how the counts of a box differ, in 2, 4 and 8 parts along each axis.

    ``noise`` is its variance for one cell. Each part's squared surprise has mean 1 and, for noise like Laplace's,
    a variance of at most 5; their sum may be ``sure`` deviations above what it should be.
    """
    axes = len(lo)
    total = box_sum(table, cells, lo, hi)
    n = 1.0
    for k in range(axes):
        n *= hi[k] - lo[k]
    a, b = lo.copy(), hi.copy()
    for parts in (2, 4, 8):
        surprise = 0.0
        blocks = 0
        for place in range(parts**axes):
            here = 1.0
            rest = place
            for k in range(axes):
                j = rest % parts
                rest //= parts
                a[k] = lo[k] + j * (hi[k] - lo[k]) // parts
                b[k] = lo[k] + (j + 1) * (hi[k] - lo[k]) // parts
                here *= b[k] - a[k]
            if here > 0:
                expected = total * here / n
                surprise += (box_sum(table, cells, a, b) - expected) ** 2 / (here * noise + max(expected, 0.0))
                blocks += 1
        if surprise > blocks + sure * np.sqrt(5.0 * blocks):
            return False
    return True


@njit(cache=True, nogil=True)
def cut_boxes(table: Floats, cells: int, lo: Ints, hi: Ints, axis: int, noise: float, sure: float, at: Ints) -> None:
    """Where the counts of a grid say that each box has its median along an axis; -1 for boxes to be left whole.

    Those are boxes of one cell along the axis, and boxes that look even.
    """
    for v in range(len(lo)):
        at[v] = -1
        if hi[v, axis] - lo[v, axis] < 2 or looks_even(table, cells, lo[v], hi[v], noise, sure):
            continue
        half = box_sum(table, cells, lo[v], hi[v]) / 2
        end = hi[v].copy()
        before = 0.0
        for c in range(lo[v, axis] + 1, hi[v, axis]):
            end[axis] = c
            running = box_sum(table, cells, lo[v], end)
            at[v] = c
            if running >= half:  # the cell that ends here has the median: cut at the nearer of its sides
                if c - 1 > lo[v, axis] and half - before < running - half:
                    at[v] = c - 1
                break
            before = running

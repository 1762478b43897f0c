"""Find the cuts of a kd-tree in a grid of noisy counts, with the help of a summed-area table."""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Floats, Ints


def summed_area(grid: Floats) -> Floats:
    """Return the summed-area table of a grid, flat and one longer per axis: S(x, y, …) = Σ grid[i < x, j < y, …]."""
    table = np.zeros(tuple(n + 1 for n in grid.shape))
    inner = table[(slice(1, None),) * grid.ndim]
    inner[...] = grid
    for axis in range(grid.ndim):
        np.cumsum(inner, axis=axis, out=inner)
    return table.ravel()


@njit(cache=True, nogil=True)
def box_sum(table: Floats, cells: int, lo: Ints, hi: Ints) -> float:
    """Return the sum of a box of cells: Σ over its corners of ± S, for a grid with ``cells`` cells per axis."""
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
def looks_uniform(table: Floats, cells: int, lo: Ints, hi: Ints, noise_variance: float, margin_sd: float) -> bool:
    """Return whether noise and sampling error explain the differences of counts inside a box.

    The box is divided into 2, 4 and 8 parts per axis. With n_i cells in part i of n, the expected count is
    e_i = total · n_i / n, and the statistic is chi-square = Σ (count_i − e_i)² / (n_i · noise_variance + max(e_i, 0)).
    Each term has mean 1 and, for Laplace noise, a variance of at most 5. The box is not uniform if a statistic exceeds
    its mean by more than ``margin_sd`` standard deviations.
    """
    axes = len(lo)
    total = box_sum(table, cells, lo, hi)
    n = 1.0
    for k in range(axes):
        n *= hi[k] - lo[k]
    a, b = lo.copy(), hi.copy()
    for parts in (2, 4, 8):
        chi_square = 0.0
        terms = 0
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
                chi_square += (box_sum(table, cells, a, b) - expected) ** 2 / (
                    here * noise_variance + max(expected, 0.0)
                )
                terms += 1
        if chi_square > terms + margin_sd * np.sqrt(5.0 * terms):
            return False
    return True


@njit(cache=True, nogil=True)
def find_median_cuts(
    table: Floats, cells: int, lo: Ints, hi: Ints, axis: int, noise_variance: float, margin_sd: float, at: Ints
) -> None:
    """Write into ``at`` the grid line nearest to the median of each box along an axis; -1 for boxes that are not cut.

    Boxes of one cell along the axis and boxes that look uniform are not cut.
    """
    for v in range(len(lo)):
        at[v] = -1
        if hi[v, axis] - lo[v, axis] < 2 or looks_uniform(table, cells, lo[v], hi[v], noise_variance, margin_sd):
            continue
        half = box_sum(table, cells, lo[v], hi[v]) / 2
        end = hi[v].copy()
        before = 0.0
        for c in range(lo[v, axis] + 1, hi[v, axis]):
            end[axis] = c
            running = box_sum(table, cells, lo[v], end)
            at[v] = c
            if running >= half:  # the cell that ends here holds the median: cut at its nearer side
                if c - 1 > lo[v, axis] and half - before < running - half:
                    at[v] = c - 1
                break
            before = running

"""Painting a tree's densities on a raster."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from veilmap.arrays import Floats


@njit(cache=True, nogil=True)
def add_up(lo: Floats, hi: Floats, density: Floats, image: Floats) -> None:
    """Add disjoint boxes to an image of NaN: the density of each, times the part of a pixel that it fills.

    Where all boxes together fill less than half of a pixel, each gives what it has there to the next pixel that is
    rather inside it: else all that is shown would have faint edges.
    """
    filled = np.zeros(image.shape)
    for adding in (False, True):
        for v in range(len(density)):
            left, right = _inside(lo[v, 0], hi[v, 0])
            low, high = _inside(lo[v, 1], hi[v, 1])
            for y in range(math.floor(lo[v, 1]), math.ceil(hi[v, 1])):
                tall = min(hi[v, 1], y + 1.0) - max(lo[v, 1], float(y))
                for x in range(math.floor(lo[v, 0]), math.ceil(hi[v, 0])):
                    part = tall * (min(hi[v, 0], x + 1.0) - max(lo[v, 0], float(x)))
                    if not adding:
                        filled[y, x] += part
                        continue
                    inner = filled[y, x] >= 0.5
                    to = (y, x) if inner else (min(max(y, low), high), min(max(x, left), right))
                    image[to] = density[v] * part + (0.0 if np.isnan(image[to]) else image[to])


@njit(cache=True, nogil=True)
def _inside(lo: float, hi: float) -> tuple[int, int]:
    """The first and the last pixel that are at least half inside, or the one in the middle."""
    first, last, middle = math.floor(lo + 0.5), math.floor(hi + 0.5) - 1, math.floor((lo + hi) / 2)
    return (first, last) if first <= last else (middle, middle)

"""Draw the densities of boxes on a raster image."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from veilmap.arrays import Floats


@njit(cache=True, nogil=True)
def rasterize_boxes(lo: Floats, hi: Floats, density: Floats, image: Floats) -> None:
    """Add disjoint boxes to an image of NaN: image[pixel] = Σ density · (fraction of the pixel that the box covers).

    If all boxes together cover less than half of a pixel, the contribution of each box goes to the nearest pixel that
    is at least half inside the box. Otherwise areas next to blank ones would have faint edges.
    """
    filled = np.zeros(image.shape)
    for adding in (False, True):
        for v in range(len(density)):
            left, right = _inside(lo[v, 0], hi[v, 0])
            low, high = _inside(lo[v, 1], hi[v, 1])
            for y in range(math.floor(lo[v, 1]), math.ceil(hi[v, 1])):
                tall = min(hi[v, 1], y + 1.0) - max(lo[v, 1], float(y))
                for x in range(math.floor(lo[v, 0]), math.ceil(hi[v, 0])):
                    fraction = tall * (min(hi[v, 0], x + 1.0) - max(lo[v, 0], float(x)))
                    if not adding:
                        filled[y, x] += fraction
                        continue
                    inner = filled[y, x] >= 0.5
                    to = (y, x) if inner else (min(max(y, low), high), min(max(x, left), right))
                    image[to] = density[v] * fraction + (0.0 if np.isnan(image[to]) else image[to])


@njit(cache=True, nogil=True)
def _inside(lo: float, hi: float) -> tuple[int, int]:
    """Return the first and last pixel that are at least half inside an interval, or twice the one at its middle."""
    first, last, middle = math.floor(lo + 0.5), math.floor(hi + 0.5) - 1, math.floor((lo + hi) / 2)
    return (first, last) if first <= last else (middle, middle)

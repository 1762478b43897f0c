"""Painting a tree's densities on a raster."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@njit(cache=True, nogil=True)
def paint(first_child: Ints, lo: Ints, hi: Ints, shown: NDArray[np.bool_], density: Floats, image: Floats) -> None:
    """Paint each shown node's density over its parent's, root first; ``lo`` and ``hi`` are rows of pixels.

    Where a node has shown children, its other children are painted over with nothing (NaN); where it has
    none, its own density stands.
    """
    for v in range(len(first_child) - 1):
        any_shown = False
        for c in range(first_child[v], first_child[v + 1]):
            any_shown = any_shown or shown[c]
        if any_shown:
            for c in range(first_child[v], first_child[v + 1]):
                colour = density[c] if shown[c] else np.nan
                image[lo[c, 1] : hi[c, 1], lo[c, 0] : hi[c, 0]] = colour

"""The dissimilarity of adjacent siblings, beyond noise and chance."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from veilmap.arrays import Floats, Ints
from veilmap.kernels.grid_shape import grid_shape


@njit(cache=True, nogil=True)
def add_contrasts(first_child: Ints, lo: Ints, count: Floats, noise: Floats, pairs: Floats, unlike: Floats) -> None:
    """Add up the dissimilarity of adjacent siblings whose sum stands out from its noise, per power of 2 of their mean.

    ``pairs`` counts them, and ``unlike`` is Σ ((a − b)² − noise) / (2 sum)² − 1 / (4 sum): the squared relative
    difference without noise and chance.

    Box j has the children ``first_child[j] : first_child[j + 1]``, a grid, and the count of each has the variance
    ``noise[j]``.
    """
    axes = lo.shape[1]
    side = np.empty(axes, np.int32)
    for j in range(len(first_child) - 1):
        a, b = first_child[j], first_child[j + 1]
        if b - a < 2:
            continue
        if not grid_shape(a, b, lo, side):
            continue
        stride, enough = b - a, 4 * math.sqrt(2 * noise[j])
        for k in range(axes):
            stride //= side[k]
            for c in range(a, b):
                if (c - a) // stride % side[k] == side[k] - 1:
                    continue
                total = count[c] + count[c + stride]
                if total > enough and total > 0:
                    kind = min(int(math.log2(max(total / 2, 1.0))), len(pairs) - 1)
                    apart = count[c] - count[c + stride]
                    pairs[kind] += 1
                    unlike[kind] += (apart * apart - 2 * noise[j]) / (4 * total * total) - 1 / (4 * total)

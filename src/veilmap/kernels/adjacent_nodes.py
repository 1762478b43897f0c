"""Find the neighbours of a tree's nodes: the nodes one width away on either side, along each axis.

Points are integers in half cells, so that the centre of every box is one of them. A box without cells holds no point:
it has no neighbours and is no node's neighbour.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Floats, Ints, SmallInts

NO_NEIGHBOUR = -1


@njit(cache=True, nogil=True)
def box_volumes(lo: Ints, hi: Ints, out: Floats) -> None:
    """Write the volume of each box, in cells."""
    for v in range(len(out)):
        volume = 1.0
        for k in range(lo.shape[1]):
            volume *= hi[v, k] - lo[v, k]
        out[v] = volume


@njit(cache=True, nogil=True, inline="always")
def holds(lo: Ints, hi: Ints, v: int, point: Ints) -> bool:
    """Return whether box ``v`` contains a point."""
    inside = True
    for k in range(len(point)):
        inside &= 2 * lo[v, k] <= point[k] < 2 * hi[v, k]
    return inside


@njit(cache=True, nogil=True, inline="always")
def descend(
    first_child: Ints, lo: Ints, hi: Ints, volume: Floats, shape: SmallInts, v: int, point: Ints, max_volume: float
) -> int:
    """Return the largest node below ``v`` that contains a point and is a leaf or has at most ``max_volume``.

    ``v`` contains the point. A child is looked up by its position in the grid of children; if that guess is wrong, all
    children are tried. Inlined, because a call would cost more than the work.
    """
    while True:
        a, b = first_child[v], first_child[v + 1]
        at, stride, right = int(a), 1, shape[v, 0] > 0
        for k in range(len(point) - 1, -1, -1):
            n = shape[v, k]
            if n > 1:
                i = min(int((point[k] - 2 * lo[v, k]) * n / (2.0 * (hi[v, k] - lo[v, k]))), n - 1)
                while i > 0 and point[k] < 2 * lo[a + i * stride, k]:  # widths of equal parts differ by one cell
                    i -= 1
                while i < n - 1 and point[k] >= 2 * hi[a + i * stride, k]:
                    i += 1
                at += i * stride
            stride *= n
            right &= 2 * lo[at, k] <= point[k] < 2 * hi[at, k]
        if not right:
            at = int(a)
            while at < b and not holds(lo, hi, at, point):
                at += 1
            if at == b:
                return NO_NEIGHBOUR
        if first_child[at] == first_child[at + 1] or volume[at] <= max_volume:
            return at
        v = at


@njit(cache=True, nogil=True)
def find_neighbours(
    first_child: Ints,
    parent: Ints,
    lo: Ints,
    hi: Ints,
    volume: Floats,
    max_volume_ratio: float,
    shape: SmallInts,
    out: SmallInts,
    begin: int,
    end: int,
) -> None:
    """Write the neighbours of the children of nodes ``begin : end``, two per axis: before and behind.

    A neighbour of a node contains the point one width away from the node's centre. It is the first node on the path to
    that point that is a leaf or has at most ``max_volume_ratio`` times the node's volume; NO_NEIGHBOUR outside the
    domain. The neighbours of nodes ``begin : end`` themselves must have been written already.
    """
    axes = lo.shape[1]
    point = np.empty(axes, np.int64)
    for u in range(begin, end):
        a, b = first_child[u], first_child[u + 1]
        for v in range(a, b):
            max_volume = max_volume_ratio * volume[v]
            for k in range(axes):
                point[k] = lo[v, k] + hi[v, k]
            stride = 1
            for k in range(axes - 1, -1, -1):
                centre = point[k]
                for side in range(2):
                    step = 2 * side - 1
                    away = centre + 2 * step * (hi[v, k] - lo[v, k])
                    found = NO_NEIGHBOUR
                    if volume[v] > 0.0 and 0 <= away < 2 * hi[0, k]:
                        point[k] = away
                        found = v + step * stride  # most are siblings, or lie in a neighbour of the parent
                        if not (a <= found < b and holds(lo, hi, found, point)):
                            found = out[u, 2 * k + side]
                        if found < 0 or not holds(lo, hi, found, point):
                            found = u
                            while away < 2 * lo[found, k] or away >= 2 * hi[found, k]:
                                found = parent[found]
                            found = descend(first_child, lo, hi, volume, shape, found, point, max_volume)
                        elif first_child[found] < first_child[found + 1] and volume[found] > max_volume:
                            found = descend(first_child, lo, hi, volume, shape, found, point, max_volume)
                    out[v, 2 * k + side] = found
                point[k] = centre
                stride *= shape[u, k]

"""The neighbours of a tree's nodes: what lies one width away on either side, along each axis.

Places are whole numbers in half cells, so that the middle of every box is one. A box without cells holds no place:
it has no neighbours, and is nobody's.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Floats, Ints, SmallInts

NOBODY = -1


@njit(cache=True, nogil=True)
def measure_boxes(lo: Ints, hi: Ints, out: Floats) -> None:
    """The volume of each box, in cells."""
    for v in range(len(out)):
        volume = 1.0
        for k in range(lo.shape[1]):
            volume *= hi[v, k] - lo[v, k]
        out[v] = volume


@njit(cache=True, nogil=True, inline="always")
def holds(lo: Ints, hi: Ints, v: int, place: Ints) -> bool:
    inside = True
    for k in range(len(place)):
        inside &= 2 * lo[v, k] <= place[k] < 2 * hi[v, k]
    return inside


@njit(cache=True, nogil=True, inline="always")
def descend(
    first_child: Ints, lo: Ints, hi: Ints, volume: Floats, shape: SmallInts, v: int, place: Ints, small: float
) -> int:
    """Below ``v``, which holds a place: the largest node that holds it and is a leaf or not above a volume.

    Children are found where a grid would have them, or else by trying all. Inlined: calls cost more than the work.
    """
    while True:
        a, b = first_child[v], first_child[v + 1]
        at, stride, right = int(a), 1, shape[v, 0] > 0
        for k in range(len(place) - 1, -1, -1):
            n = shape[v, k]
            if n > 1:
                i = min(int((place[k] - 2 * lo[v, k]) * n / (2.0 * (hi[v, k] - lo[v, k]))), n - 1)
                while i > 0 and place[k] < 2 * lo[a + i * stride, k]:  # parts are equal to the cell only
                    i -= 1
                while i < n - 1 and place[k] >= 2 * hi[a + i * stride, k]:
                    i += 1
                at += i * stride
            stride *= n
            right &= 2 * lo[at, k] <= place[k] < 2 * hi[at, k]
        if not right:
            at = int(a)
            while at < b and not holds(lo, hi, at, place):
                at += 1
            if at == b:
                return NOBODY
        if first_child[at] == first_child[at + 1] or volume[at] <= small:
            return at
        v = at


@njit(cache=True, nogil=True)
def find_neighbours(
    first_child: Ints,
    parent: Ints,
    lo: Ints,
    hi: Ints,
    volume: Floats,
    larger: float,
    shape: SmallInts,
    out: SmallInts,
    begin: int,
    end: int,
) -> None:
    """Of children of the nodes from ``begin`` to ``end``, for each axis: the nodes that hold the places one width
    before and behind their middles.

    A neighbour is a leaf, or the first node on the way to one that is at most ``larger`` times the node. Outside the
    domain there is NOBODY. The neighbours of the nodes themselves are there already.
    """
    axes = lo.shape[1]
    place = np.empty(axes, np.int64)
    for u in range(begin, end):
        a, b = first_child[u], first_child[u + 1]
        for v in range(a, b):
            small = larger * volume[v]
            for k in range(axes):
                place[k] = lo[v, k] + hi[v, k]
            stride = 1
            for k in range(axes - 1, -1, -1):
                middle = place[k]
                for side in range(2):
                    step = 2 * side - 1
                    away = middle + 2 * step * (hi[v, k] - lo[v, k])
                    found = NOBODY
                    if volume[v] > 0.0 and 0 <= away < 2 * hi[0, k]:
                        place[k] = away
                        found = v + step * stride  # most are siblings, or lie in a neighbour of the parent
                        if not (a <= found < b and holds(lo, hi, found, place)):
                            found = out[u, 2 * k + side]
                        if found < 0 or not holds(lo, hi, found, place):
                            found = u
                            while away < 2 * lo[found, k] or away >= 2 * hi[found, k]:
                                found = parent[found]
                            found = descend(first_child, lo, hi, volume, shape, found, place, small)
                        elif first_child[found] < first_child[found + 1] and volume[found] > small:
                            found = descend(first_child, lo, hi, volume, shape, found, place, small)
                    out[v, 2 * k + side] = found
                place[k] = middle
                stride *= shape[u, k]

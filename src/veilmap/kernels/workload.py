"""How often each node of a tree helps to answer boxes."""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Flags, Floats, Ints
from veilmap.kernels.box_walks import canonical_nodes


@njit(cache=True, nogil=True)
def contributions(first_child: Ints, lo: Ints, hi: Ints, counted: Flags, queries: Floats, times: Floats) -> None:
    """Add to ``times`` the squared weight of each node in the canonical answer of each query.

    Nodes that are not counted are answered through their children. Queries are in cells.
    """
    room = len(first_child)
    stack, part = np.empty(room, np.int64), np.empty(room)
    for q in range(len(queries)):
        found = canonical_nodes(first_child, lo, hi, counted, queries[q], stack, part)
        for i in range(room - found, room):
            times[stack[i]] += part[i] * part[i]


@njit(cache=True, nogil=True)
def prices(parent: Ints, times: Floats, counted: Flags, total: int, power: int, reserve: int) -> Ints:
    """What each node pays so that Σ times / price^power is least, each path paying ``total`` in whole numbers.

    Parents come before children. An inner node leaves one part in ``reserve`` to its children, or more; leaves
    take whatever is left.
    """
    size = len(parent)
    root = 1.0 / (power + 1)
    own = times**root
    below = np.zeros(size)  # Σ K over the children
    leaf = np.ones(size, np.bool_)
    for v in range(size - 1, 0, -1):
        below[parent[v]] += (own[v] + below[v] ** root) ** (power + 1)
        leaf[parent[v]] = False
    left = np.full(size, total)
    price = np.zeros(size, np.int64)
    for v in range(size):
        if v:
            left[v] = left[parent[v]] - price[parent[v]]
        if leaf[v]:
            price[v] = left[v]
        elif counted[v] and own[v] > 0:
            wanted = int(left[v] * own[v] / (own[v] + below[v] ** root))
            price[v] = max(0, min(wanted, left[v] - max(1, left[v] // reserve)))
    return price

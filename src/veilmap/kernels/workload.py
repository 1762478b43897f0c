"""Optimal prices of a tree's nodes for a workload of boxes."""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Flags, Floats, Ints
from veilmap.kernels.box_walks import canonical_nodes


@njit(cache=True, nogil=True)
def add_squared_weights(first_child: Ints, lo: Ints, hi: Ints, counted: Flags, queries: Floats, weight: Floats) -> None:
    """Add to ``weight`` the squared weight f² of each node in the canonical answer of each query.

    f is the covered fraction. Nodes that are not counted are answered through their children. Queries are in cells.
    """
    room = len(first_child)
    stack, fraction = np.empty(room, np.int64), np.empty(room)
    for q in range(len(queries)):
        found = canonical_nodes(first_child, lo, hi, counted, queries[q], stack, fraction)
        for i in range(room - found, room):
            weight[stack[i]] += fraction[i] * fraction[i]


@njit(cache=True, nogil=True)
def optimal_prices(parent: Ints, weight: Floats, counted: Flags, total: int, power: int, reserve: int) -> Ints:
    """Return integer prices of nodes that minimise Σ weight / price^power, where each path pays ``total``.

    With r = 1 / (power + 1) and K_v = (weight_v^r + (Σ K_c)^r)^(power + 1) over the children c, a node pays the
    fraction weight_v^r / (weight_v^r + (Σ K_c)^r) of what its path has left. An inner node leaves at least
    1 / ``reserve`` of it to its children; a leaf pays all of it. Parents come before children.
    """
    size = len(parent)
    root = 1.0 / (power + 1)
    own = weight**root
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

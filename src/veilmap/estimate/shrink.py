"""Leaves that are probably empty hand their estimates to their siblings."""

from __future__ import annotations

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.estimate.adjacency import Adjacency
from veilmap.kernels import post_processing as kernel
from veilmap.trees import Tree

EDGES = np.array([0.15, 0.3, 0.6, 1.2, 2.4, 4.8])
"""Strata of what a leaf's neighbours have on average, in units of the leaf's noise; above the last, none is empty."""
FEWEST = 50
"""Leaves of a tree to learn from."""


def shrink(
    tree: Tree,
    near: Adjacency,
    noisy_count: Ints,
    noise_variance: Floats,
    estimate: Floats,
    normal: bool = False,
) -> None:
    """In place: what leaves keep of their least-squares estimates is the chance that they are not empty.

    That chance follows from a leaf's noisy count, and from a fit of all leaves whose neighbours have about as much:
    some are empty, the others hold exponential counts, and all have Laplace noise (or ``normal``). The rest goes to
    siblings, so that sums over siblings stay as they are; only leaves change.
    """
    if np.count_nonzero(tree.is_leaf) < FEWEST:
        return
    strata, seen, keeps = np.empty(tree.size, np.uint8), np.empty(tree.size), np.empty(tree.size)
    number, total = np.zeros((2, len(EDGES), kernel.BINS))
    weight = np.empty((len(EDGES), kernel.BINS + 1))
    unit = 1.0 if normal else 2.0
    kernel.sort_leaves(
        tree.first_child,
        near.nodes,
        near.volume,
        near.density(estimate),
        noisy_count,
        noise_variance,
        unit,
        EDGES,
        strata,
        seen,
        number,
        total,
    )
    kernel.learn_weights(number, total, normal, weight)
    kernel.hand_over(tree.first_child, strata, seen, weight, keeps, estimate)

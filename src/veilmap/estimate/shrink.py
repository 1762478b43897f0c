"""Shrink the estimates of leaves that are probably empty, in favour of their siblings."""

from __future__ import annotations

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.estimate.adjacency import Adjacency
from veilmap.kernels import post_processing as kernel
from veilmap.trees import Tree

STRATUM_EDGES = np.array([0.15, 0.3, 0.6, 1.2, 2.4, 4.8])
"""Strata of the mean of a leaf's neighbours, in units of the leaf's noise. Above the last, no leaf counts as empty."""
MIN_LEAVES = 50
"""A tree with fewer leaves is too small to learn from."""


def shrink(
    tree: Tree,
    adjacency: Adjacency,
    noisy_count: Ints,
    noise_variance: Floats,
    estimate: Floats,
    normal: bool = False,
) -> None:
    """Multiply, in place, the least-squares estimate of each leaf by the probability that it is not empty.

    That probability follows from the leaf's noisy count and a mixture fitted to all leaves of its stratum: some are
    empty, the others hold exponential counts, and all have Laplace noise (or ``normal`` noise). The remainder goes to
    the siblings, so that sums over siblings stay the same. Only leaves change.
    """
    if np.count_nonzero(tree.is_leaf) < MIN_LEAVES:
        return
    strata, seen, keeps = np.empty(tree.size, np.uint8), np.empty(tree.size), np.empty(tree.size)
    number, total = np.zeros((2, len(STRATUM_EDGES), kernel.COUNT_BINS))
    weight = np.empty((len(STRATUM_EDGES), kernel.COUNT_BINS + 1))
    unit = 1.0 if normal else 2.0
    kernel.bin_leaf_counts(
        tree.first_child,
        adjacency.nodes,
        adjacency.volume,
        adjacency.density(estimate),
        noisy_count,
        noise_variance,
        unit,
        STRATUM_EDGES,
        strata,
        seen,
        number,
        total,
    )
    kernel.fit_kept_fractions(number, total, normal, weight)
    kernel.shrink_leaves(tree.first_child, strata, seen, weight, keeps, estimate)

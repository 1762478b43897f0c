"""Estimate consistent counts by least squares, with their variances."""

from __future__ import annotations

import numpy as np

from veilmap.arrays import Floats
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.kernels import tree_sweeps
from veilmap.trees import RegularTree
from veilmap.vault import NoisyTree


def least_squares(noisy: NoisyTree | NodeEstimates, counts: Floats | None = None) -> tuple[Floats, Floats]:
    """Return the best linear unbiased counts such that every parent is the sum of its children, and V.

    Two sweeps over any tree, with any variances and with unmeasured nodes. The three phases of section 5 of the paper
    are the special case of one epsilon per level. Leaves must be measured. A box without cells holds 0 rows. ``counts``
    replace the noisy counts if given, and are overwritten.
    """
    z = noisy.noisy_count.astype(np.float64) if counts is None else counts
    variance = noisy.noise_variance.copy()
    if not isinstance(noisy.tree, RegularTree):
        z[hollow := (noisy.tree.lo == noisy.tree.hi).T.any(axis=0)] = 0.0
        variance[hollow] = 0.0
    tree_sweeps.combine_up(noisy.tree.first_child, z, variance)
    tree_sweeps.share_down(noisy.tree.first_child, z, variance)
    return z, variance


def standard_errors(nodes: NodeEstimates, consistent: bool) -> Floats:
    """Return the standard error of each node's estimate, as a count of its box."""
    if not consistent:
        return np.sqrt(nodes.noise_variance)
    variance = np.empty(nodes.tree.size)
    tree_sweeps.estimate_variances(nodes.tree.first_child, nodes.subtree_variance, variance)
    return np.sqrt(variance)

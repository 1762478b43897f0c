"""Estimate a linear density inside each leaf."""

from __future__ import annotations

import numpy as np

from veilmap.arrays import Floats
from veilmap.estimate.adjacency import Adjacency
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.kernels import post_processing as kernel

STEEPNESS_FACTOR = 1.3
"""Slopes are steeper than the difference of the neighbours: a leaf often lies at the foot or the top of a hill."""
SIGNIFICANT_BITS = 12
"""Slopes are rounded to this number of bits towards zero: they are less precise than that, and files stay small."""


def slopes(nodes: NodeEstimates, adjacency: Adjacency | None = None) -> Floats:
    """Return the difference in density between the two ends of each leaf, per axis, in points per leaf: (nodes, axes).

    A slope is the difference between the neighbours over their distance, times the fraction of such differences that is
    not noise. This fraction is learned per axis and per signal-to-noise ratio. Leaves keep their totals, and no density
    is below 0; a leaf with an estimate below 0 is flat. Inner nodes, empty boxes and ranges of a curve have slope 0.
    """
    tree, axes = nodes.tree, nodes.tree.lo.shape[1]
    slope = np.zeros((tree.size, axes))
    if tree.overlapping:
        return slope
    adjacency = Adjacency.of(tree) if adjacency is None else adjacency
    variance, strata = np.empty(tree.size), np.empty((tree.size, axes), np.uint8)
    ratio, number = np.zeros((2, axes, kernel.SLOPE_STRATA))
    kernel.chain_variances(tree.first_child, nodes.subtree_variance, variance)
    density = adjacency.density(nodes.estimate)
    kernel.central_differences(
        tree.first_child, adjacency.nodes, adjacency.volume, density, variance, strata, slope, ratio, number
    )
    seen = (ratio + kernel.PRIOR_RATIO_SUM) / (number + kernel.PRIOR_LEAVES)
    trust = STEEPNESS_FACTOR * np.maximum(0, 1 - 1 / np.maximum(seen, 1e-9))
    kernel.limit_slopes(nodes.estimate, trust, strata, slope)
    return _rounded(slope)


def limited_slopes(estimate: Floats, slope: Floats) -> Floats:
    """Return these slopes for leaves with other estimates, limited so that no density falls below 0."""
    out, nodes, axes = slope.copy(), *slope.shape
    kernel.limit_slopes(estimate, np.ones((axes, 1)), np.zeros((nodes, axes), np.uint8), out)
    return _rounded(out)


def _rounded(slope: Floats) -> Floats:
    bits = slope.view(np.int64)
    bits &= -1 << (53 - SIGNIFICANT_BITS)
    return slope

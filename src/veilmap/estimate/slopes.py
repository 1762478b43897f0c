"""Linear density inside leaves."""

from __future__ import annotations

import numpy as np

from veilmap.arrays import Floats
from veilmap.estimate.adjacency import Adjacency
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.kernels import post_processing as kernel

STEEPER = 1.3
"""A leaf is often at the foot or on the top of something: steeper than its neighbours are unlike."""
SIGNIFICANT = 12
"""Binary digits that slopes keep, rounded to zero: they are far less sure, and files stay small."""


def slopes(nodes: NodeEstimates, near: Adjacency | None = None) -> Floats:
    """Of each leaf and axis, how much denser its far end is than its near end, in points a leaf (nodes, axes).

    The difference between its neighbours over their distance, times the part of such differences that is not noise:
    that part is learned by axis and by how far counts stand out from their noise. Leaves keep their totals, and no
    density is below 0; a leaf below 0 is flat. Inner nodes, boxes without cells and ranges of a curve have none.
    """
    tree, axes = nodes.tree, nodes.tree.lo.shape[1]
    slope = np.zeros((tree.size, axes))
    if tree.overlapping:
        return slope
    near = Adjacency.of(tree) if near is None else near
    variance, strata = np.empty(tree.size), np.empty((tree.size, axes), np.uint8)
    ratio, number = np.zeros((2, axes, kernel.STRATA))
    kernel.share_variance(tree.first_child, nodes.subtree_variance, variance)
    density = near.density(nodes.estimate)
    kernel.difference_leaves(tree.first_child, near.nodes, near.volume, density, variance, strata, slope, ratio, number)
    seen = (ratio + kernel.PRIOR[0]) / (number + kernel.PRIOR[1])
    trust = STEEPER * np.maximum(0, 1 - 1 / np.maximum(seen, 1e-9))
    kernel.limit_slopes(nodes.estimate, trust, strata, slope)
    return _short(slope)


def gentle(estimate: Floats, slope: Floats) -> Floats:
    """These slopes for leaves with other estimates: no steeper than keeps density at 0 or more."""
    out, nodes, axes = slope.copy(), *slope.shape
    kernel.limit_slopes(estimate, np.ones((axes, 1)), np.zeros((nodes, axes), np.uint8), out)
    return _short(out)


def _short(slope: Floats) -> Floats:
    bits = slope.view(np.int64)
    bits &= -1 << (53 - SIGNIFICANT)
    return slope

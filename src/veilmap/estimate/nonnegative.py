"""Consistent counts of 0 or more, and whole numbers for people who must print a table."""

from __future__ import annotations

from dataclasses import replace

from veilmap.arrays import Floats
from veilmap.estimate.least_squares import least_squares
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.estimate.slopes import gentle
from veilmap.kernels import post_processing as kernel
from veilmap.trees import Tree


def nonnegative(tree: Tree, estimate: Floats, subtree_variance: Floats, quantum: float) -> Floats:
    """From the root down, the counts of 0 or more nearest to these that add up, as multiples of a quantum.

    Near is meant in the metric of the variances. Complete trees over sparse data gain much. Where leaves follow the
    data there is less to gain, and large boxes lose: the noise of empty leaves no longer cancels.
    """
    out = estimate.copy()
    kernel.project_down(tree.first_child, out, subtree_variance)
    kernel.apportion(tree.first_child, out, quantum)
    return out


def nonnegative_estimates(nodes: NodeEstimates, consistent: bool, step: float) -> NodeEstimates:
    """Multiples of a step, 0 or more, that add up: of each node, its non-negative estimate rounded down or up.

    Noisy counts, which do not add up, give way to their least squares first. Slopes stay as far as density stays at 0
    or more.
    """
    estimate, variance = nodes.estimate, nodes.subtree_variance
    if not consistent:
        estimate, variance = least_squares(nodes)
    made = nonnegative(nodes.tree, estimate, variance, step)
    slope = None if nodes.slope is None else gentle(made, nodes.slope)
    return replace(nodes, estimate=made, subtree_variance=variance, slope=slope)

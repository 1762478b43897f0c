"""Consistent counts of 0 or more, also as whole numbers for tables."""

from __future__ import annotations

from dataclasses import replace

from veilmap.arrays import Floats
from veilmap.estimate.least_squares import least_squares
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.estimate.slopes import limited_slopes
from veilmap.kernels import post_processing as kernel
from veilmap.trees import Tree


def nonnegative(tree: Tree, estimate: Floats, subtree_variance: Floats, quantum: float) -> Floats:
    """Project counts, from the root down, onto consistent counts of 0 or more, as multiples of a quantum.

    Distances are weighted by the variances. Complete trees over sparse data gain much. Where leaves follow the data
    there is less to gain, and large boxes lose: the noise of empty leaves no longer cancels.
    """
    out = estimate.copy()
    kernel.project_nonnegative(tree.first_child, out, subtree_variance)
    kernel.apportion(tree.first_child, out, quantum)
    return out


def nonnegative_estimates(nodes: NodeEstimates, consistent: bool, step: float) -> NodeEstimates:
    """Return consistent estimates that are multiples of ``step`` and 0 or more, each rounded down or up.

    Noisy counts that are not consistent are replaced by their least-squares estimates first. Slopes are limited so that
    no density falls below 0.
    """
    estimate, variance = nodes.estimate, nodes.subtree_variance
    if not consistent:
        estimate, variance = least_squares(nodes)
    made = nonnegative(nodes.tree, estimate, variance, step)
    slope = None if nodes.slope is None else limited_slopes(made, nodes.slope)
    return replace(nodes, estimate=made, subtree_variance=variance, slope=slope)

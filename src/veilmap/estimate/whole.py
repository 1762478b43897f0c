"""Estimates of 0 or more, and whole numbers, for people who must print a table."""

from __future__ import annotations

from dataclasses import replace

from veilmap.estimate import Estimates, least_squares
from veilmap.estimate.nonnegative import nonnegative
from veilmap.estimate.slopes import gentle


def nonnegative_estimates(nodes: Estimates, consistent: bool, step: float) -> Estimates:
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

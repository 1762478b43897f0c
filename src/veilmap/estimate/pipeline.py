"""From noisy counts to estimates. Post-processing: it sees released numbers only, and costs no privacy."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from veilmap.estimate.adjacency import Adjacency
from veilmap.estimate.least_squares import least_squares
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.estimate.nonnegative import nonnegative
from veilmap.estimate.pruning import prune
from veilmap.estimate.selection_bias import unbiased_counts
from veilmap.estimate.shrink import shrink
from veilmap.estimate.slopes import slopes
from veilmap.estimate.unevenness import Learned, unevenness
from veilmap.kernels import tree_sweeps
from veilmap.memory import return_unused_memory
from veilmap.method.method import Method, Noise, PostProcessing
from veilmap.vault import NoisyTree

LARGE_TREE_NODES = 1 << 20
"""Trees with more nodes are estimated by one thread, to save memory."""
QUANTUM = 2.0**-10
"""Estimates are multiples of this, far below any noise, so that they add up without rounding."""


def estimate(noisy: NoisyTree, method: Method, learn_in_background: bool = False) -> NodeEstimates:
    """Compute the estimates that a method publishes, from its noisy counts.

    With ``learn_in_background``, a second thread learns the unevenness of leaves meanwhile: a check needs it next.
    """
    if not learn_in_background:
        return _estimate(noisy, method, None)
    if noisy.tree.size > LARGE_TREE_NODES:
        return_unused_memory()  # growing the tree has left some behind
        return _estimate(noisy, method, None)
    with ThreadPoolExecutor(1) as other:
        return _estimate(noisy, method, other)


def _estimate(noisy: NoisyTree, method: Method, other: Executor | None) -> NodeEstimates:
    tree, own = noisy.tree, noisy.noise_variance
    adjacency = Adjacency.of(tree) if method.estimate is PostProcessing.SHRINK else None
    learned = None if other is None else other.submit(Learned.of, noisy).result
    if method.estimate is PostProcessing.NOISY_COUNTS:
        counts, variance = np.where(np.isfinite(own), noisy.noisy_count, np.nan), own  # none where not measured
    elif adjacency is not None:
        counts, variance = least_squares(noisy, unbiased_counts(tree, noisy.noisy_count, own))
        shrink(tree, adjacency, noisy.noisy_count, own, counts, method.noise is Noise.DISCRETE_GAUSSIAN)
    else:
        counts, variance = least_squares(noisy)
    if method.estimate is PostProcessing.NONNEGATIVE:
        counts = nonnegative(tree, counts, variance, QUANTUM)
    elif method.estimate is not PostProcessing.NOISY_COUNTS:
        tree_sweeps.round_to_quanta(tree.first_child, counts, QUANTUM)
    full = nodes = NodeEstimates(tree, noisy.noisy_count, own, counts, variance)
    if method.prune_below is not None:
        nodes, adjacency = prune(full, method.prune_below), None
    if method.slopes:
        nodes = replace(nodes, slope=slopes(nodes, adjacency))
    return replace(nodes, learn=partial(unevenness, full, nodes, learned))

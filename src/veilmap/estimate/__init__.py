"""From noisy counts to estimates. Post-processing: it sees released numbers only, and costs no privacy."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from veilmap.curve import CurveTree
from veilmap.estimate.fair import fair_counts
from veilmap.estimate.near import Near
from veilmap.estimate.nodes import Estimates as Estimates
from veilmap.estimate.nonnegative import nonnegative
from veilmap.estimate.shrink import shrink
from veilmap.estimate.slopes import slopes
from veilmap.estimate.uneven import Learned, unevenness
from veilmap.kernels import sweeps
from veilmap.method import Estimate, Method, Noise
from veilmap.tree import CutTree, Flags, RegularTree, Tree
from veilmap.vault import NoisyTree

QUANTUM = 2.0**-10
"""Estimates are multiples of this, far below any noise, so that they add up without rounding."""


def least_squares(
    noisy: NoisyTree | Estimates, counts: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The best linear unbiased counts such that every parent is the sum of its children, and V.

    Two sweeps over any tree, with any variances and with unmeasured nodes (section 5 of the paper,
    whose three phases are the case of one epsilon a level). Leaves must be measured. A box without cells holds
    nothing, whatever the noise made of it. ``counts``, if given, take the place of the noisy ones, and are used up.
    """
    z = noisy.noisy_count.astype(np.float64) if counts is None else counts
    variance = noisy.noise_variance.copy()
    if not isinstance(noisy.tree, RegularTree):
        z[hollow := (noisy.tree.lo == noisy.tree.hi).T.any(axis=0)] = 0.0
        variance[hollow] = 0.0
    sweeps.combine_up(noisy.tree.first_child, z, variance)
    sweeps.share_down(noisy.tree.first_child, z, variance)
    return z, variance


def estimate(noisy: NoisyTree, method: Method, other: Executor | None = None) -> Estimates:
    """What the method publishes of its noisy counts. Meanwhile ``other``, if given, learns how uneven leaves are."""
    tree, own = noisy.tree, noisy.noise_variance
    near = Near.of(tree) if method.estimate is Estimate.SHRINK else None
    learned = None if other is None else other.submit(Learned.of, noisy).result
    if method.estimate is Estimate.NOISY_COUNTS:
        counts, variance = np.where(np.isfinite(own), noisy.noisy_count, np.nan), own  # none where not measured
    elif near is not None:
        counts, variance = least_squares(noisy, fair_counts(tree, noisy.noisy_count, own))
        shrink(tree, near, noisy.noisy_count, own, counts, method.noise is Noise.DISCRETE_GAUSSIAN)
    else:
        counts, variance = least_squares(noisy)
    if method.estimate is Estimate.NONNEGATIVE:
        counts = nonnegative(tree, counts, variance, QUANTUM)
    elif method.estimate is not Estimate.NOISY_COUNTS:
        sweeps.round_down(tree.first_child, counts, QUANTUM)
    full = nodes = Estimates(tree, noisy.noisy_count, own, counts, variance)
    if method.prune_below is not None:
        nodes, near = prune(full, method.prune_below), None
    if method.slopes:
        nodes = replace(nodes, slope=slopes(nodes, near))
    return replace(nodes, learn=partial(unevenness, full, nodes, learned))


def standard_errors(nodes: Estimates, consistent: bool) -> NDArray[np.float64]:
    """The standard error of each node's estimate, as a count of its box."""
    if not consistent:
        return np.sqrt(nodes.noise_variance)
    variance = np.empty(nodes.tree.size)
    sweeps.estimate_variances(nodes.tree.first_child, nodes.subtree_variance, variance)
    return np.sqrt(variance)


def prune(full: Estimates, below: float) -> Estimates:
    """Drop the descendants of every node whose estimate is below a threshold (section 7 of the paper)."""
    stop = (full.estimate < below) & np.isfinite(full.subtree_variance)
    tree, stays = pruned(full.tree, stop)
    return full.only(tree, stays)


def pruned(tree: Tree, stop: Flags) -> tuple[Tree, Flags]:
    """The tree in which every node of ``stop`` is a leaf, and which nodes stayed in it."""
    if isinstance(tree, CurveTree):
        keys, stays = pruned(tree.keys, stop)
        return CurveTree(keys, tree.axes, tree.order, tree.bits), stays
    stays = np.ones(tree.size, np.bool_)
    for i in range(1, tree.height + 1):
        above = tree.parent[tree.level(i)]
        stays[tree.level(i)] = stays[above] & ~stop[above]
    left = np.array([int(stays[tree.level(i)].sum()) for i in range(tree.height + 1)])
    starts = np.concatenate([[0], np.cumsum(left[left > 0])])
    children = np.where(stop, 0, tree.children)[stays]
    return CutTree(tree.lo[stays], tree.hi[stays], children, tuple(starts.tolist())), stays

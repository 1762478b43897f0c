"""Correct the selection bias of counts that decided how finely a box was split."""

from __future__ import annotations

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.trees import Tree

MIN_BIAS_IN_VARIANCES = 16.0
"""A bias is subtracted as far as its square exceeds this number of its own variances: smaller ones are mostly noise."""


def unbiased_counts(tree: Tree, noisy_count: Ints, noise_variance: Floats) -> Floats:
    """Return the noisy counts without their mean selection bias.

    A box that noise makes look full is split into many children. The counts of the children are drawn later and have no
    such bias: so among boxes of a level with equally many children, the mean of (count − sum of its children) is the
    bias of their counts.
    """
    counts = noisy_count.astype(np.float64)
    parents = tree.parent[1:]
    children_sum = np.bincount(parents, counts[1:], tree.size)
    children_variance = np.bincount(parents, noise_variance[1:], tree.size)
    split = np.flatnonzero((tree.children > 0) & np.isfinite(noise_variance + children_variance) & (noise_variance > 0))
    group = tree.node_level[split] * (tree.children.max() + 1) + tree.children[split]
    group = np.unique(group, return_inverse=True)[1]
    noise, variance = noise_variance[split], noise_variance[split] + children_variance[split]
    # in standard deviations of a count's noise, each weighted by its precision
    weight = np.bincount(group, noise / variance)
    bias = np.bincount(group, (counts[split] - children_sum[split]) * np.sqrt(noise) / variance) / weight
    trust = np.maximum(0.0, 1 - MIN_BIAS_IN_VARIANCES / np.maximum(bias * bias * weight, MIN_BIAS_IN_VARIANCES))
    counts[split] -= (trust * bias)[group] * np.sqrt(noise)
    return counts

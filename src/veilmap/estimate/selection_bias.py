"""Counts that decided how far a box was cut are, on average, not what they say."""

from __future__ import annotations

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.trees import Tree

SURE = 16.0
"""A bias is taken off as far as its square is above so many of its own variances: what is not sure does more harm."""


def unbiased_counts(tree: Tree, noisy_count: Ints, noise_variance: Floats) -> Floats:
    """Noisy counts less what chance made of them, on average, when it chose into how many parts a box is cut.

    A box that noise makes look full is cut into many parts. Their own counts, drawn later, are not biased by that:
    so among boxes of a level with as many parts, the mean of (count − sum of its parts) is the bias of their counts.
    """
    counts = noisy_count.astype(np.float64)
    parents = tree.parent[1:]
    parts = np.bincount(parents, counts[1:], tree.size)
    spread = np.bincount(parents, noise_variance[1:], tree.size)
    cut = np.flatnonzero((tree.children > 0) & np.isfinite(noise_variance + spread) & (noise_variance > 0))
    kind = tree.node_level[cut] * (tree.children.max() + 1) + tree.children[cut]
    kind = np.unique(kind, return_inverse=True)[1]
    noise, both = noise_variance[cut], noise_variance[cut] + spread[cut]
    # in units of the standard deviation of a count's noise, and each weighed by what it says of that
    weight = np.bincount(kind, noise / both)
    bias = np.bincount(kind, (counts[cut] - parts[cut]) * np.sqrt(noise) / both) / weight
    sure = np.maximum(0.0, 1 - SURE / np.maximum(bias * bias * weight, SURE))
    counts[cut] -= (sure * bias)[kind] * np.sqrt(noise)
    return counts

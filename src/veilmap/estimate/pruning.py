"""Prune the subtrees of nodes with small estimates (section 7 of the paper)."""

from __future__ import annotations

import numpy as np

from veilmap.arrays import Flags
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.trees import CurveTree, CutTree, Tree


def prune(full: NodeEstimates, below: float) -> NodeEstimates:
    """Drop the descendants of every node whose estimate is below a threshold (section 7 of the paper)."""
    stop = (full.estimate < below) & np.isfinite(full.subtree_variance)
    tree, stays = pruned(full.tree, stop)
    return full.only(tree, stays)


def pruned(tree: Tree, stop: Flags) -> tuple[Tree, Flags]:
    """Return the tree in which every node of ``stop`` is a leaf, and which nodes are kept."""
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

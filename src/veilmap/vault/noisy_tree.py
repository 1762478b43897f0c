"""The noisy counts of a tree, as they are published. Proof: proofs/measure.md."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.errors import BadInput
from veilmap.trees import Tree
from veilmap.vault.budget_meter import Charge


@dataclass(frozen=True, slots=True, eq=False)
class NoisyTree:
    """A tree that is safe to publish: boxes, noisy counts, the variance of each count's noise, and all charges."""

    tree: Tree
    noisy_count: Ints  # 0 where a node was not counted
    noise_variance: Floats  # infinite where a node was not counted
    charges: tuple[Charge, ...]
    private: bool  # False if the random bits were fixed for a test, or if anything exact was used


class NoisyCounts:
    """The noisy counts of a growing tree: zeros with infinite variance until a node is counted."""

    def __init__(self) -> None:
        self.count = np.zeros(0, np.int64)
        self.variance = np.zeros(0)

    @property
    def size(self) -> int:
        return len(self.count)

    def resize(self, size: int) -> None:
        """Make room for ``size`` nodes, or drop the nodes from ``size`` on."""
        more = max(0, size - self.size)
        self.count = np.concatenate([self.count[:size], np.zeros(more, np.int64)])
        self.variance = np.concatenate([self.variance[:size], np.full(more, np.inf)])

    def must_be_uncounted(self, nodes: slice | Ints, what: str) -> None:
        if np.isfinite(self.variance[nodes]).any():
            raise BadInput(f"{what} has been counted already. A structure counts each node at most once.")

    def must_have_leaves(self, tree: Tree) -> None:
        """Make room for all nodes of a finished tree, and raise if a leaf was not counted."""
        self.resize(tree.size)
        if not np.isfinite(self.variance[tree.is_leaf]).all():
            raise BadInput("A structure must count the leaves of its tree.")

"""PrivTree: a quadtree that splits boxes while they look dense (Zhang, Xiao, Xie, SIGMOD 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from veilmap.budgets import Budget, LeafOnly, LevelBudget
from veilmap.structures.base import Gate, Structure
from veilmap.validation import exact_share


@dataclass(frozen=True, slots=True)
class PrivTree(Structure):
    """A quadtree that is deeper where points are denser.

    ``split_share`` of the budget decides which boxes are split; the remainder counts the leaves.
    """

    split_share: Fraction = Fraction(1, 2)
    height: ClassVar[None] = None
    leaves_only: ClassVar[bool] = True
    usual_budget: ClassVar[LevelBudget] = LeafOnly()

    def __post_init__(self) -> None:
        object.__setattr__(self, "split_share", exact_share(self.split_share, "splits"))

    def nodes(self, dimensions: int) -> int | None:
        return None

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        splits_price = epsilon * self.split_share
        for _ in range(gate.domain.bits if splits_price else 0):
            dense = gate.dense(splits_price)
            if not dense.any():
                break
            gate.split(np.tile(np.where(dense, 2, 0)[:, None], (1, gate.domain.dimensions)))
        gate.count_leaves(epsilon - splits_price)

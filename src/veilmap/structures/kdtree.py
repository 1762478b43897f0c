"""Boxes cut at private medians, the axes in turn; from some level on, perhaps, at midpoints (a hybrid)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from veilmap.budget import LevelBudget, share
from veilmap.structures.gate import Gate
from veilmap.structures.quadtree import checked_height
from veilmap.tree import Tree


def middles(tree: Tree, axis: int) -> NDArray[np.int64]:
    """The middle of every newest box."""
    newest = tree.level(tree.height)
    return (tree.lo[newest, axis] + tree.hi[newest, axis]) // 2


@dataclass(frozen=True, slots=True)
class KdTree:
    """A kd-tree of fanout 2^d: each counted level cuts every axis once (section 6.2 of the paper).

    With ``fanout=2`` every single cut makes a counted level. ``switch`` is the number of counted levels
    with medians; below them boxes are cut in the middle. Medians take ``median_share`` of the budget, the
    same for each cut on a path.
    """

    height: int = 8
    switch: int | None = None
    fanout: int | None = None
    median_share: Fraction = Fraction(3, 10)

    def __post_init__(self) -> None:
        checked_height(self.height)

    def grow(self, gate: Gate, epsilon: Fraction, budget: LevelBudget) -> None:
        axes = gate.domain.dimensions
        step = 1 if self.fanout == 2 else axes  # cuts between counted levels
        cuts, by_median = self.height * step, step * (self.height if self.switch is None else self.switch)
        medians = epsilon * self.median_share if by_median else Fraction(0)
        for k in range(cuts):
            axis = k % axes
            gate.cut(axis, gate.medians(axis, medians / by_median) if k < by_median else middles(gate.tree(), axis))
        parts = share(epsilon - medians, budget.weights(self.height, axes if step == axes else 1))
        for level, part in enumerate(parts):
            if part:
                gate.count(level * step, part)

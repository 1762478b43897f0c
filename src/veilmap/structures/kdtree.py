"""Boxes cut at private medians, the axes in turn; from some level on, perhaps, at midpoints (a hybrid)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from veilmap.budget import LevelBudget, exact_number, level_shares
from veilmap.errors import BadInput
from veilmap.structures.gate import Gate
from veilmap.structures.quadtree import whole_height
from veilmap.tree import Tree


def middles(tree: Tree, axis: int) -> NDArray[np.int64]:
    """The middle of every newest box."""
    newest = tree.level(tree.height)
    return (tree.lo[newest, axis] + tree.hi[newest, axis]) // 2


@dataclass(frozen=True, slots=True)
class KdTree:
    """A kd-tree of fanout 2^d: each counted level cuts every axis once (section 6.2 of the paper).

    With ``fanout=2`` every single cut makes a counted level. ``switch`` says how many counted levels have
    medians, ``"all"`` or ``"half"`` of them or a number; below them boxes are cut in the middle. Medians take
    ``median_share`` of the budget, the same for each cut on a path.
    """

    height: int = 8
    switch: int | str = "all"
    fanout: int | None = None
    median_share: Fraction = Fraction(3, 10)

    def __post_init__(self) -> None:
        object.__setattr__(self, "height", whole_height(self.height))
        if self.switch not in ("all", "half"):
            try:
                object.__setattr__(self, "switch", whole_height(self.switch))
            except BadInput:
                rule = 'A kd-tree has medians on "all" or "half" of its levels, or on a number of them, 0 or more'
                raise BadInput(f"{rule}; got {self.switch!r}.") from None
        if self.fanout not in (None, 2):
            raise BadInput(f"A kd-tree has fanout 2, or by default 2 for each axis; got {self.fanout!r}.")
        object.__setattr__(self, "median_share", exact_share(self.median_share))

    def nodes(self, dimensions: int) -> int:
        return int(2 ** (self.height * (1 if self.fanout == 2 else dimensions) + 1)) - 1

    def grow(self, gate: Gate, epsilon: Fraction, budget: LevelBudget) -> None:
        axes = gate.domain.dimensions
        step = 1 if self.fanout == 2 else axes  # cuts from one counted level to the next
        with_medians = {"all": self.height, "half": self.height // 2}.get(str(self.switch), self.switch)
        by_median = step * min(int(with_medians), self.height)
        medians = epsilon * self.median_share if by_median else Fraction(0)
        parts = level_shares(budget, epsilon - medians, self.height, axes)
        for k in range(self.height * step):
            axis = k % axes
            if k < by_median and medians:
                gate.cut(axis, gate.medians(axis, medians / by_median))
            else:
                gate.cut(axis, middles(gate.tree(), axis))
        for level, part in enumerate(parts):
            if part:
                gate.count(level * step, part)


def exact_share(share: object) -> Fraction:
    """A part of a budget, from 0 to 1 and not all of it."""
    try:
        exact = exact_number(share)
    except ValueError:
        exact = Fraction(-1)
    if not 0 <= exact < 1:
        raise BadInput(f"The share of the medians is a number from 0 to below 1, got {share!r}.")
    return exact

"""A uniform grid, and an adaptive grid that splits crowded boxes again (Qardaji, Yang, Li, ICDE 2013)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from veilmap.arrays import Floats, Ints
from veilmap.budgets import Budget, LevelBudget, Levels, NodeBudget, level_shares
from veilmap.domain import MAX_BITS
from veilmap.errors import BadInput
from veilmap.structures.base import Gate, Structure

FIRST_LEVEL_ROWS_EPS = 10.0
"""The constant c of the paper's first level: about rows · ε / c boxes in the plane."""
SECOND_LEVEL_ROWS_EPS = 5.0
"""The same constant of the adaptive grid's second level (c / 2 in the paper)."""
MIN_FIRST_LEVEL_BOXES = 100
MAX_BOXES_PER_LEVEL = 2**22
"""Limits the memory of a grid whose size follows from noisy counts."""
MAX_PARTS_PER_AXIS = 512
"""Limit of the second split of one box, along one axis."""


def boxes_per_axis(rows: NDArray[Any], epsilon: float, rows_eps: float, axes: int) -> Floats:
    """Return (rows · ε / rows_eps)^(2 / (d + 2)), which balances noise error and non-uniformity error.

    In the plane this is a square root, as in the paper.
    """
    sides: Floats = (np.maximum(rows, 0) * epsilon / rows_eps) ** (2 / (axes + 2))
    return sides


@dataclass(frozen=True, slots=True)
class UniformGrid(Structure):
    """One grid with ``cells`` boxes per axis; by default, a number that suits the noisy number of rows."""

    cells: int | None = None
    height: ClassVar[int] = 1
    usual_budget: ClassVar[LevelBudget] = Levels(["1/50", "49/50"])

    def __post_init__(self) -> None:
        if self.cells is not None and not (type(self.cells) is int and 1 <= self.cells <= 2**MAX_BITS):
            raise BadInput(f"A grid has 1 to {2**MAX_BITS} cells per axis; got {self.cells!r}.")

    def nodes(self, dimensions: int) -> int | None:
        return None if self.cells is None else 1 + self.cells**dimensions

    @property
    def passes(self) -> int | None:
        return 2  # one to count all rows, one to count them in the grid

    def halvings(self, dimensions: int) -> int:
        """Return 0: boxes are not halved."""
        return 0

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        prices = level_shares(_level_budget(budget), epsilon, 1)
        rows = gate.count(0, prices[0]) if prices[0] else None
        gate.refine((self.first(gate, rows, gate.sharpness(epsilon), 1),) * gate.domain.dimensions)
        gate.count(1, prices[1])

    def first(self, gate: Gate, rows: Ints | None, epsilon: float, coarser: float) -> int:
        """Return the number of boxes per axis on the first level, ``coarser`` times fewer than suits one grid."""
        axes = gate.domain.dimensions
        if self.cells is not None:
            return min(self.cells, gate.domain.side)
        if rows is None:
            raise BadInput(
                "A grid without a number of cells chooses it from the noisy number of rows. "
                "Give the root a share of the budget, or set cells."
            )
        wanted = math.ceil(boxes_per_axis(rows, epsilon, FIRST_LEVEL_ROWS_EPS, axes)[0] / coarser)
        fewest, most = _root(MIN_FIRST_LEVEL_BOXES, axes), _root(MAX_BOXES_PER_LEVEL, axes)
        return int(min(max(wanted, fewest), most, gate.domain.side))


@dataclass(frozen=True, slots=True)
class AdaptiveGrid(UniformGrid):
    """A coarse grid whose boxes are each split into a grid that suits their noisy count."""

    height: ClassVar[int] = 2
    usual_budget: ClassVar[LevelBudget] = Levels(["1/50", "49/100", "49/100"])

    @property
    def passes(self) -> int | None:
        return None  # the last level is not a regular grid

    def nodes(self, dimensions: int) -> int | None:
        return None

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        axes = gate.domain.dimensions
        prices = level_shares(_level_budget(budget), epsilon, 2)
        if not prices[1]:
            raise BadInput("An adaptive grid must count its first level. Give that level a share of the budget.")
        rows = gate.count(0, prices[0]) if prices[0] else None
        m = self.first(gate, rows, gate.sharpness(epsilon), 4)
        gate.refine((m,) * axes)
        noisy = gate.count(1, prices[1]).astype(np.float64)
        sides = boxes_per_axis(noisy, gate.sharpness(prices[2]), SECOND_LEVEL_ROWS_EPS, axes)
        parts = np.clip(np.ceil(sides).astype(np.int64), 1, min(MAX_PARTS_PER_AXIS, max(1, gate.domain.side // m)))
        if (boxes := float(np.sum(parts.astype(np.float64) ** axes))) > MAX_BOXES_PER_LEVEL:
            parts = np.maximum(1, (parts * (MAX_BOXES_PER_LEVEL / boxes) ** (1 / axes)).astype(np.int64))
        gate.split(np.tile(parts[:, None], (1, axes)))
        gate.count(2, prices[2])


def _level_budget(budget: Budget) -> LevelBudget:
    """Return the budget; raise ``BadInput`` if it has a price per node instead of a price per level."""
    if isinstance(budget, NodeBudget):
        raise BadInput("A grid needs one price per level. Use Levels, or another budget by level.")
    return budget


def _root(boxes: int, axes: int) -> int:
    """Return the number of boxes per axis of a grid with at most this many boxes."""
    side: float = boxes ** (1 / axes)
    return int(side + 1e-6)

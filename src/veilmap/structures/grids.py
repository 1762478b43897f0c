"""One even grid, or one whose cells are cut again where much was counted (Qardaji, Yang, Li, ICDE 2013)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from veilmap.arrays import Floats, Ints
from veilmap.budgets import Budget, LevelBudget, Levels, NodeBudget, level_shares
from veilmap.domain import MOST_BITS
from veilmap.errors import BadInput
from veilmap.structures.base import Gate, Structure

CELL, SMALL_CELL = 10.0, 5.0  # rows times ε that a cell of the first and of the second level deserves
FEWEST, MOST = 100, 2**22  # cells of the first level
MOST_PARTS = 512  # of one of its cells, along an axis


def cells_a_side(rows: NDArray[Any], epsilon: float, cell: float, axes: int) -> Floats:
    """(rows · ε / cell)^(2 / (d + 2)), where noise and uneven cells are in balance; a square root in the plane."""
    cells: Floats = (np.maximum(rows, 0) * epsilon / cell) ** (2 / (axes + 2))
    return cells


@dataclass(frozen=True, slots=True)
class UniformGrid(Structure):
    """One grid of ``cells`` a side; by default as many as suit the noisy number of rows."""

    cells: int | None = None
    height: ClassVar[int] = 1
    usual_budget: ClassVar[LevelBudget] = Levels(["1/50", "49/50"])

    def __post_init__(self) -> None:
        if self.cells is not None and not (type(self.cells) is int and 1 <= self.cells <= 2**MOST_BITS):
            raise BadInput(f"A grid has 1 or more cells a side, and at most {2**MOST_BITS}; got {self.cells!r}.")

    def nodes(self, dimensions: int) -> int | None:
        return None if self.cells is None else 1 + self.cells**dimensions

    @property
    def passes(self) -> int | None:
        return 2  # rows are counted, and then placed in the grid

    def halvings(self, dimensions: int) -> int:
        """Return 0: cells are not halved."""
        return 0

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        parts = level_shares(_by_level(budget), epsilon, 1)
        rows = gate.count(0, parts[0]) if parts[0] else None
        gate.refine((self.first(gate, rows, gate.sharpness(epsilon), 1),) * gate.domain.dimensions)
        gate.count(1, parts[1])

    def first(self, gate: Gate, rows: Ints | None, epsilon: float, coarser: float) -> int:
        """Cells a side of the first level."""
        axes = gate.domain.dimensions
        if self.cells is not None:
            return min(self.cells, gate.domain.side)
        if rows is None:
            raise BadInput("A grid that chooses its cells must count all rows first: give the root a share, or cells.")
        wanted = math.ceil(cells_a_side(rows, epsilon, CELL, axes)[0] / coarser)
        return int(min(max(wanted, _root(FEWEST, axes)), _root(MOST, axes), gate.domain.side))


@dataclass(frozen=True, slots=True)
class AdaptiveGrid(UniformGrid):
    """A coarse grid, each of its cells cut into a grid of its own that suits its noisy count."""

    height: ClassVar[int] = 2
    usual_budget: ClassVar[LevelBudget] = Levels(["1/50", "49/100", "49/100"])

    @property
    def passes(self) -> int | None:
        return None  # its last level is no regular grid

    def nodes(self, dimensions: int) -> int | None:
        return None

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        axes = gate.domain.dimensions
        parts = level_shares(_by_level(budget), epsilon, 2)
        if not parts[1]:
            raise BadInput("An adaptive grid counts its first level: give it a share.")
        rows = gate.count(0, parts[0]) if parts[0] else None
        m = self.first(gate, rows, gate.sharpness(epsilon), 4)
        gate.refine((m,) * axes)
        noisy = gate.count(1, parts[1]).astype(np.float64)
        wanted = np.ceil(cells_a_side(noisy, gate.sharpness(parts[2]), SMALL_CELL, axes)).astype(np.int64)
        finer = np.clip(wanted, 1, min(MOST_PARTS, max(1, gate.domain.side // m)))
        if (cells := float(np.sum(finer.astype(np.float64) ** axes))) > MOST:  # what memory there is, surely
            finer = np.maximum(1, (finer * (MOST / cells) ** (1 / axes)).astype(np.int64))
        gate.split(np.tile(finer[:, None], (1, axes)))
        gate.count(2, parts[2])


def _by_level(budget: Budget) -> LevelBudget:
    if isinstance(budget, NodeBudget):
        raise BadInput("A grid has one price for each of its levels: give it Levels, or another budget by level.")
    return budget


def _root(cells: int, axes: int) -> int:
    """The whole number of cells a side for so many in all."""
    side: float = cells ** (1 / axes)
    return int(side + 1e-6)

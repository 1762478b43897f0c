"""A kd-tree read off a noisy grid (Xiao, Xiong, Yuan, SDM 2010)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from veilmap.budgets import Budget, LeafOnly, LevelBudget
from veilmap.errors import BadInput
from veilmap.kernels.grid_cuts import cut_boxes, summed_area
from veilmap.structures.base import Gate, Structure
from veilmap.validation import exact_share, whole_height

GRID_CELLS, MOST_CELLS = 2**16, 2**26  # by default, and at all
MOST_CUTS = 120  # on one path: readers have room for 127 levels
SURE = 0.0  # standard deviations more than noise and chance explain that do not make a box uneven


@dataclass(frozen=True, slots=True)
class CellTree(Structure):
    """A fixed grid is counted once, with noise; boxes are cut where its counts say that the median is.

    A box whose cells differ no more than noise and chance would make them is a leaf. Leaves are then counted
    afresh. The grid takes ``median_share`` of the budget; it has ``cells`` a side, 256 in the plane by default.
    """

    height: int = 8
    cells: int | None = None
    median_share: Fraction = Fraction(3, 10)
    leaves_only: ClassVar[bool] = True
    follows_data: ClassVar[bool] = True
    usual_budget: ClassVar[LevelBudget] = LeafOnly()

    def __post_init__(self) -> None:
        object.__setattr__(self, "height", whole_height(self.height))
        object.__setattr__(self, "median_share", exact_share(self.median_share))
        if self.cells is not None and not (type(self.cells) is int and 1 <= self.cells <= 2**16):
            raise BadInput(f"The grid of a cell tree has 1 to {2**16} cells a side, got {self.cells!r}.")

    def nodes(self, dimensions: int) -> int:
        return int(min(2 ** (self.height * dimensions + 1), 2 * self._side(dimensions) ** dimensions))

    def _side(self, dimensions: int) -> int:
        """Cells a side of the grid."""
        usual: float = GRID_CELLS ** (1 / dimensions)
        return self.cells or round(usual)

    def halvings(self, dimensions: int) -> int:
        """It is cut at grid lines, for as long as there are any."""
        return 0

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        axes, side = gate.domain.dimensions, gate.domain.side
        part = epsilon * self.median_share
        cells = min(side, self._side(axes))
        if cells**axes > MOST_CELLS:
            raise BadInput(f"A grid of {cells} cells a side has more than {MOST_CELLS} over {axes} axes: choose fewer.")
        if part:
            noisy = gate.grid((cells,) * axes, part).reshape((cells,) * axes).astype(np.float64)
            noise = 2 / gate.sharpness(part) ** 2
            table = summed_area(noisy)
            lo, hi = np.zeros((1, axes), np.int64), np.full((1, axes), cells)
            for k in range(min(self.height * axes, MOST_CUTS)):
                at = np.empty(len(lo), np.int64)  # -1: a leaf
                cut_boxes(table, cells, lo, hi, k % axes, noise, SURE, at)
                go = at >= 0
                if not go.any():
                    break
                gate.cut(k % axes, np.where(go, at * side // cells, 0), go)
                lo, hi = np.repeat(lo[go], 2, axis=0), np.repeat(hi[go], 2, axis=0)
                hi[::2, k % axes] = lo[1::2, k % axes] = at[go]
        gate.count_leaves(epsilon - part)

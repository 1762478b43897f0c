"""A kd-tree whose cuts are computed from a noisy grid (Xiao, Xiong, Yuan, SDM 2010)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from veilmap.budgets import Budget, LeafOnly, LevelBudget
from veilmap.errors import BadInput
from veilmap.kernels.grid_cuts import find_median_cuts, summed_area
from veilmap.structures.base import Gate, Structure
from veilmap.validation import exact_share, whole_height

DEFAULT_GRID_CELLS = 2**16
MAX_GRID_CELLS = 2**26
MAX_GRID_CELLS_PER_AXIS = 2**16
MAX_CUTS_PER_PATH = 120  # readers of release files have room for 127 levels
UNIFORMITY_MARGIN_SD = 0.0  # standard deviations that the chi-square statistic of a uniform box may exceed its mean by


@dataclass(frozen=True, slots=True)
class CellTree(Structure):
    """A kd-tree that cuts boxes at the medians of a fixed grid of noisy counts.

    A box whose counts differ no more than noise and sampling error explain is a leaf. Leaves are then counted again,
    with fresh noise. The grid takes ``median_share`` of the budget and has ``cells`` cells per axis; in the plane, 256
    by default.
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
        if self.cells is not None and not (type(self.cells) is int and 1 <= self.cells <= MAX_GRID_CELLS_PER_AXIS):
            raise BadInput(
                f"The grid of a cell tree has 1 to {MAX_GRID_CELLS_PER_AXIS} cells per axis; got {self.cells!r}."
            )

    def nodes(self, dimensions: int) -> int:
        return int(min(2 ** (self.height * dimensions + 1), 2 * self._side(dimensions) ** dimensions))

    def _side(self, dimensions: int) -> int:
        """Return the number of grid cells per axis."""
        default: float = DEFAULT_GRID_CELLS ** (1 / dimensions)
        return self.cells or round(default)

    def halvings(self, dimensions: int) -> int:
        """Return 0: boxes are cut at lines of the grid, not halved."""
        return 0

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        axes, side = gate.domain.dimensions, gate.domain.side
        grid_price = epsilon * self.median_share
        cells = min(side, self._side(axes))
        if cells**axes > MAX_GRID_CELLS:
            raise BadInput(
                f"A grid of {cells} cells per axis has more than {MAX_GRID_CELLS} cells over {axes} axes. Choose fewer."
            )
        if grid_price:
            noisy = gate.grid((cells,) * axes, grid_price).reshape((cells,) * axes).astype(np.float64)
            noise_variance = 2 / gate.sharpness(grid_price) ** 2
            table = summed_area(noisy)
            lo, hi = np.zeros((1, axes), np.int64), np.full((1, axes), cells)
            for k in range(min(self.height * axes, MAX_CUTS_PER_PATH)):
                at = np.empty(len(lo), np.int64)  # -1: a leaf
                find_median_cuts(table, cells, lo, hi, k % axes, noise_variance, UNIFORMITY_MARGIN_SD, at)
                is_cut = at >= 0
                if not is_cut.any():
                    break
                gate.cut(k % axes, np.where(is_cut, at * side // cells, 0), is_cut)
                lo, hi = np.repeat(lo[is_cut], 2, axis=0), np.repeat(hi[is_cut], 2, axis=0)
                hi[::2, k % axes] = lo[1::2, k % axes] = at[is_cut]
        gate.count_leaves(epsilon - grid_price)

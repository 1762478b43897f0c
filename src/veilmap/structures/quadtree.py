"""Every box cut into halves along every axis: the data decides nothing, except perhaps the height."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from veilmap.budgets import Budget
from veilmap.structures.base import Gate, Structure, count_levels
from veilmap.validation import exact_share, whole_height

MOST_LEAVES_TO_CHOOSE_FROM = 2**22  # what an owner who gave no height has memory for, surely
ROOT_SHARE = Fraction(1, 50)


@dataclass(frozen=True, slots=True)
class Quadtree(Structure):
    """A complete tree of fanout 2^d; a quadtree in the plane, an octree in space.

    Without a ``height`` it takes one that balances noise and detail for the root's noisy count, which
    comes first and pays for the choice. ``check`` is the part of the budget that answers are checked with, for their
    error bars.
    """

    height: int | None = None
    check: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.height is not None:
            object.__setattr__(self, "height", whole_height(self.height))
        object.__setattr__(self, "check", exact_share(self.check, "check"))

    @property
    def passes(self) -> int:
        return 2 if self.check else 1  # rows are counted, and then looked at again

    def nodes(self, dimensions: int) -> int:
        height = self._finest(dimensions) if self.height is None else self.height
        return sum(2 ** (dimensions * level) for level in range(height + 1))

    def _finest(self, dimensions: int) -> int:
        return int(math.log2(MOST_LEAVES_TO_CHOOSE_FROM)) // dimensions

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        axes, kept = gate.domain.dimensions, epsilon * self.check
        epsilon -= kept
        finest = min(gate.domain.bits, self._finest(axes))
        for _ in range(finest if self.height is None else self.height):
            gate.refine((2,) * axes)
        first = None
        if self.height is None:
            first = epsilon * ROOT_SHARE
            rows = int(gate.count(0, first)[0])
            gate.shorten(self.choose(rows, gate.sharpness(epsilon), finest, axes))
        count_levels(gate, epsilon, budget, 1, first)
        if kept:
            gate.reserve_check(kept)

    def choose(self, rows: int, epsilon: float, finest: int, axes: int) -> int:
        """Cells a side = (rows · ε / 4)^(2 / (d + 2)): the error of cut cells and of their noise in balance.

        The 4 is the best constant over six data sets from even to very skewed; skewed ones like more cells.
        """
        cells = (max(rows, 1) * epsilon / 4) ** (2 / (axes + 2))
        return min(finest, max(1, round(math.log2(max(cells, 1)))))

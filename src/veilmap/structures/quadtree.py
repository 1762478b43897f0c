"""Quadtrees: every box is halved along every axis. At most the height depends on the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from veilmap.budgets import Budget
from veilmap.structures.base import Gate, Structure, count_levels
from veilmap.validation import exact_share, whole_height

MAX_LEAVES_BY_DEFAULT = 2**22  # limits the memory of a tree whose owner set no height
ROOT_SHARE = Fraction(1, 50)  # of the budget, for the count that chooses the height
ROWS_EPS_PER_BOX = 4.0


@dataclass(frozen=True, slots=True)
class Quadtree(Structure):
    """A complete tree of fanout 2^d: a quadtree in the plane, an octree in space.

    Without a ``height``, the root is counted first, and the height balances noise and detail for that noisy count.
    ``check`` is the share of the budget for checking the answers, which calibrates error bars.
    """

    height: int | None = None
    check: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.height is not None:
            object.__setattr__(self, "height", whole_height(self.height))
        object.__setattr__(self, "check", exact_share(self.check, "check"))

    @property
    def passes(self) -> int:
        return 2 if self.check else 1  # one to count the rows, one to check the answers

    def nodes(self, dimensions: int) -> int:
        height = self._finest(dimensions) if self.height is None else self.height
        return sum(2 ** (dimensions * level) for level in range(height + 1))

    def _finest(self, dimensions: int) -> int:
        """Return the greatest height that is chosen by default."""
        return int(math.log2(MAX_LEAVES_BY_DEFAULT)) // dimensions

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        axes, check_price = gate.domain.dimensions, epsilon * self.check
        epsilon -= check_price
        finest = min(gate.domain.bits, self._finest(axes))
        for _ in range(finest if self.height is None else self.height):
            gate.refine((2,) * axes)
        root_price = None
        if self.height is None:
            root_price = epsilon * ROOT_SHARE
            rows = int(gate.count(0, root_price)[0])
            gate.shorten(self.choose(rows, gate.sharpness(epsilon), finest, axes))
        count_levels(gate, epsilon, budget, 1, root_price)
        if check_price:
            gate.reserve_check(check_price)

    def choose(self, rows: int, epsilon: float, finest: int, axes: int) -> int:
        """Return the height whose leaves per axis are nearest to (rows · ε / 4)^(2 / (d + 2)).

        There the error of cut leaves and the error of their noise are in balance. The constant 4 was the best over six
        data sets from uniform to very skewed; skewed ones would do better with more leaves.
        """
        leaves_per_axis = (max(rows, 1) * epsilon / ROWS_EPS_PER_BOX) ** (2 / (axes + 2))
        return min(finest, max(1, round(math.log2(max(leaves_per_axis, 1)))))

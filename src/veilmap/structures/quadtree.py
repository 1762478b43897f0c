"""Every box cut into halves along every axis: the data decides nothing, except perhaps the height."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass

from veilmap.errors import BadInput
from veilmap.tree import Parts

MOST_LEAVES_TO_CHOOSE_FROM = 2**22  # what an owner who gave no height has memory for, surely


@dataclass(frozen=True, slots=True)
class Quadtree:
    """A complete tree of fanout 2^d; a quadtree in the plane, an octree in space.

    Without a ``height`` it takes one that balances noise and detail for a noisy total of the rows,
    which the release pays for.
    """

    height: int | None = None

    def __post_init__(self) -> None:
        if self.height is None:
            return
        try:
            height = -1 if isinstance(self.height, bool) else operator.index(self.height)
        except TypeError:
            height = -1
        if height < 0:
            raise BadInput(f"The height of a tree is a whole number, 0 or more, got {self.height!r}.")
        object.__setattr__(self, "height", height)

    def finest(self, bits: int, dimensions: int) -> int:
        return min(bits, int(math.log2(MOST_LEAVES_TO_CHOOSE_FROM)) // dimensions)

    def choose(self, noisy_total: int, epsilon: float, finest: int, dimensions: int) -> int:
        """Cells a side = (rows · ε / 4)^(2 / (d + 2)): the error of cut cells and of their noise in balance.

        The 4 is the best constant over six data sets from even to very skewed; skewed ones like more cells.
        """
        cells = (max(noisy_total, 1) * epsilon / 4) ** (2 / (dimensions + 2))
        return min(finest, max(1, round(math.log2(max(cells, 1)))))

    def splits(self, height: int, dimensions: int) -> tuple[Parts, ...]:
        return ((2,) * dimensions,) * height

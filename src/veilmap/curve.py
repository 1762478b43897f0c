"""Trees of ranges of a Hilbert curve."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilmap.kernels.curves import range_boxes
from veilmap.tree import Ints, Tree, frozen


@dataclass(frozen=True, eq=False)
class CurveTree(Tree):
    """Ranges of a Hilbert curve's keys, which partition the domain; ``lo`` and ``hi`` are the boxes around them.

    The box of a range is the smallest that holds all its cells. Boxes of different ranges may overlap.
    """

    keys: Tree  # one axis, of 2^(axes · order) keys
    axes: int
    order: int  # the curve visits 2^order cells along each axis ...
    bits: int  # ... each made of 2^(bits − order) cells of the domain

    overlapping = True

    @property
    def level_start(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.keys.level_start

    @property
    def children(self) -> Ints:  # type: ignore[override]
        return self.keys.children

    @cached_property
    def _boxes(self) -> tuple[Ints, Ints]:
        lo, hi = np.empty((2, self.size, self.axes), np.int64)
        range_boxes(self.keys.lo[:, 0].copy(), self.keys.hi[:, 0].copy(), self.axes, self.order, lo, hi)
        return frozen(lo << (self.bits - self.order)), frozen(hi << (self.bits - self.order))

    @property
    def lo(self) -> Ints:  # type: ignore[override]
        return self._boxes[0]

    @property
    def hi(self) -> Ints:  # type: ignore[override]
        return self._boxes[1]

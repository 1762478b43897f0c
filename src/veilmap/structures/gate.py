"""What a structure may do while it grows a tree. The vault makes the gate, and charges for what passes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from veilmap.budget import LevelBudget
from veilmap.domain import Domain
from veilmap.tree import Parts, Tree

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Gate:
    """Cuts are free, since they follow from what is public; counts and medians are noisy and have their price."""

    domain: Domain
    tree: Callable[[], Tree]  # as it stands
    refine: Callable[[Parts], None]  # cut every newest box into equal parts
    cut: Callable[[int, Ints], None]  # cut every newest box in two, along an axis, at these cells
    shorten: Callable[[int], None]  # forget the levels below this one; only before the first cut
    medians: Callable[[int, Fraction], Ints]  # a private cut of every newest box along an axis, near its median
    count: Callable[[int, Fraction], Ints]  # the noisy counts of a level; each level once


class Structure(Protocol):
    """What decides where a tree is cut and which levels are counted."""

    @property
    def height(self) -> int | None:
        """Levels that are counted, below the root; ``None`` when they are chosen from a paid noisy total."""
        ...

    def nodes(self, dimensions: int) -> int:
        """How many nodes the tree may have."""
        ...

    def grow(self, gate: Gate, epsilon: Fraction, budget: LevelBudget) -> None:
        """Grow and count a tree, spending at most ``epsilon``."""
        ...

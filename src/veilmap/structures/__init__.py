"""Families of trees. A structure proposes cuts from what is public already; it never sees a point."""

from __future__ import annotations

from typing import Protocol

from veilmap.structures.quadtree import Quadtree
from veilmap.tree import Parts

__all__ = ["Quadtree", "Structure"]


class Structure(Protocol):
    """What decides where a tree is cut."""

    @property
    def height(self) -> int | None:
        """Levels below the root; ``None`` when they are to be chosen from a paid noisy total."""
        ...

    def finest(self, bits: int, dimensions: int) -> int:
        """The height to count at before the height is known; never less than any later choice."""
        ...

    def choose(self, noisy_total: int, epsilon: float, finest: int, dimensions: int) -> int:
        """The height for about this many rows."""
        ...

    def splits(self, height: int, dimensions: int) -> tuple[Parts, ...]:
        """How each level is cut."""
        ...

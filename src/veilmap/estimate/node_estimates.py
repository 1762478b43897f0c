"""What is published of each node of a tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from veilmap.arrays import Flags, Floats, Ints
from veilmap.trees import Tree, frozen


@dataclass(frozen=True, slots=True)
class Borders:
    """How much more, or less, uneven the borders of boxes are than the leaves that they cut say."""

    across: tuple[float, ...]  # of sides across each axis, that cut ``USUAL`` leaves
    growth: float  # the power of the number of cut leaves with which that grows


@dataclass(frozen=True, eq=False)
class NodeEstimates:
    """Flat arrays, one entry a node. All of it is made of noisy numbers."""

    tree: Tree
    noisy_count: Ints
    noise_variance: Floats  # of the node's own noisy count; infinite when unmeasured
    estimate: Floats
    subtree_variance: Floats  # of what the node's whole subtree says of its count
    slope: Floats | None = None
    """(nodes, axes), or None where leaves are flat. At place u, from 0 to 1 along each axis of a leaf, its density is
    estimate + Σ slope · (u − 1/2), in points a leaf."""
    unevenness: Floats | None = None
    """Of each leaf: a query that covers a part f of it has f (1 − f) times this as the variance of the guess that
    points lie as the density says. None where it is not known, or not yet."""
    learn: Callable[[], Floats] | None = None
    """How it is learned, by whoever first asks for ``known_unevenness``."""
    borders: Borders | None = None
    """What a check of the release has said of unevenness; None where there was none."""

    def __post_init__(self) -> None:
        for array in self._arrays():
            if array is not None:
                array.flags.writeable = False

    @cached_property
    def known_unevenness(self) -> Floats | None:
        return self.unevenness if self.unevenness is not None or self.learn is None else frozen(self.learn())

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle or a copy holds what is published: what unevenness is learned from may be more."""
        nodes = replace(self, unevenness=self.known_unevenness, learn=None)
        return NodeEstimates, tuple(getattr(nodes, field.name) for field in fields(nodes))

    def _arrays(self) -> tuple[Floats | Ints | None, ...]:
        return (
            self.noisy_count,
            self.noise_variance,
            self.estimate,
            self.subtree_variance,
            self.slope,
            self.unevenness,
        )

    def only(self, tree: Tree, stays: Flags) -> NodeEstimates:
        """Of a smaller tree, the nodes that stay."""
        return NodeEstimates(tree, *(None if array is None else array[stays] for array in self._arrays()))  # type: ignore[arg-type]

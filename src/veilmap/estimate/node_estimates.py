"""What is published of each node of a tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilmap.tree import Flags, Tree, frozen


@dataclass(frozen=True, slots=True)
class Borders:
    """How much more, or less, uneven the borders of boxes are than the leaves that they cut say."""

    across: tuple[float, ...]  # of sides across each axis, that cut ``USUAL`` leaves
    growth: float  # the power of the number of cut leaves with which that grows


@dataclass(frozen=True, eq=False)
class Estimates:
    """Flat arrays, one entry a node. All of it is made of noisy numbers."""

    tree: Tree
    noisy_count: NDArray[np.int64]
    noise_variance: NDArray[np.float64]  # of the node's own noisy count; infinite when unmeasured
    estimate: NDArray[np.float64]
    subtree_variance: NDArray[np.float64]  # of what the node's whole subtree says of its count
    slope: NDArray[np.float64] | None = None
    """(nodes, axes), or None where leaves are flat. At place u, from 0 to 1 along each axis of a leaf, its density is
    estimate + Σ slope · (u − 1/2), in points a leaf."""
    unevenness: NDArray[np.float64] | None = None
    """Of each leaf: a query that covers a part f of it has f (1 − f) times this as the variance of the guess that
    points lie as the density says. None where it is not known, or not yet."""
    learn: Callable[[], NDArray[np.float64]] | None = None
    """How it is learned, by whoever first asks for ``known_unevenness``."""
    borders: Borders | None = None
    """What a check of the release has said of unevenness; None where there was none."""

    def __post_init__(self) -> None:
        for array in self._arrays():
            if array is not None:
                array.flags.writeable = False

    @cached_property
    def known_unevenness(self) -> NDArray[np.float64] | None:
        return self.unevenness if self.unevenness is not None or self.learn is None else frozen(self.learn())

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle or a copy holds what is published: what unevenness is learned from may be more."""
        nodes = replace(self, unevenness=self.known_unevenness, learn=None)
        return Estimates, tuple(getattr(nodes, field.name) for field in fields(nodes))

    def _arrays(self) -> tuple[NDArray[np.float64] | NDArray[np.int64] | None, ...]:
        return (
            self.noisy_count,
            self.noise_variance,
            self.estimate,
            self.subtree_variance,
            self.slope,
            self.unevenness,
        )

    def only(self, tree: Tree, stays: Flags) -> Estimates:
        """Of a smaller tree, the nodes that stay."""
        return Estimates(tree, *(None if array is None else array[stays] for array in self._arrays()))  # type: ignore[arg-type]

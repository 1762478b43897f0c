"""What is published about each node of a tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from veilmap.arrays import Flags, Floats, Ints
from veilmap.trees import Tree, frozen


@dataclass(frozen=True, slots=True)
class Borders:
    """Calibration factors on the unevenness of the leaves that the border of a query cuts."""

    across: tuple[float, ...]  # per axis: for sides across it that cut ``REFERENCE_CUT_LEAVES`` leaves
    growth: float  # the power of the number of cut leaves with which the factor grows


@dataclass(frozen=True, eq=False)
class NodeEstimates:
    """Flat arrays with one entry per node, made of noisy numbers only."""

    tree: Tree
    noisy_count: Ints
    noise_variance: Floats  # of the node's own noisy count; infinite when unmeasured
    estimate: Floats
    subtree_variance: Floats  # of the estimate of the node's count from its subtree alone
    slope: Floats | None = None
    """(nodes, axes), or None where leaves are flat. At place u, from 0 to 1 along each axis of a leaf, its density is
    estimate + Σ slope · (u − 1/2), in points per leaf."""
    unevenness: Floats | None = None
    """q of each leaf: an answer that covers the fraction f of a leaf has an error of variance f (1 − f) q, beside its
    noise, since points do not lie exactly as the density says. None where it is unknown, or not learned yet."""
    learn: Callable[[], Floats] | None = None
    """Learns the unevenness when ``known_unevenness`` is first used."""
    borders: Borders | None = None
    """Calibration by the check; None where there was no check."""

    def __post_init__(self) -> None:
        for array in self._arrays():
            if array is not None:
                array.flags.writeable = False

    @cached_property
    def known_unevenness(self) -> Floats | None:
        return self.unevenness if self.unevenness is not None or self.learn is None else frozen(self.learn())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy what is published only: ``learn`` may hold more than that."""
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
        """Return the estimates of the nodes that stay in a smaller tree."""
        return NodeEstimates(tree, *(None if array is None else array[stays] for array in self._arrays()))  # type: ignore[arg-type]

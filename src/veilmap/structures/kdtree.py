"""kd-trees: boxes cut at private medians, axis after axis, and optionally at midpoints on lower levels (hybrid)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

from veilmap.arrays import Ints
from veilmap.budgets import Budget
from veilmap.domain import KEY_BITS, Domain
from veilmap.errors import BadInput, near_misses
from veilmap.structures.base import Gate, Structure, count_levels
from veilmap.trees import Tree
from veilmap.validation import exact_rate, exact_share, whole_height

MEDIAN_MECHANISMS = ("exponential", "exponential-paper", "smooth-sensitivity", "noisy-mean", "exact")
"""Mechanisms that a kd-tree may compute its medians with; the last one is not private."""
DEFAULT_HEIGHT = 8
"""The default height, if the limit on cuts allows it."""
DEFAULT_MAX_CUTS_PER_PATH = 16
"""By default a tree has at most 2^16 leaves."""
DEFAULT_HILBERT_ORDER = 18
"""The default order of a Hilbert curve, unless the domain has fewer bits per axis."""


def midpoints(tree: Tree, axis: int) -> Ints:
    """Return the midpoint of every frontier box along an axis."""
    frontier = tree.level(tree.height)
    return (tree.lo[frontier, axis] + tree.hi[frontier, axis]) // 2


@dataclass(frozen=True, slots=True)
class KdTree(Structure):
    """A kd-tree of fanout 2^d: each counted level cuts every axis once (section 6.2 of the paper).

    Without a ``height`` it has 8 levels, fewer in more than two dimensions: at most about 2^16 leaves. With
    ``fanout=2`` every single cut makes a counted level. ``switch`` is the number of counted levels with medians:
    ``"all"``, ``"half"`` or a number; below them boxes are cut at midpoints. Medians take ``median_share`` of the
    budget, divided equally among the cuts on a path. With ``sample``, a rate, medians are computed on a random sample
    of the rows, the same for the whole tree. ``check`` is the share of the budget for checking the answers, which
    calibrates error bars.
    """

    height: int | None = None
    switch: int | str = "all"
    fanout: int | None = None
    median_share: Fraction = Fraction(3, 10)
    median: str = "exponential"
    sample: Fraction | None = None
    check: Fraction = Fraction(0)
    follows_data: ClassVar[bool] = True
    samples_medians: ClassVar[bool] = True
    height_from_domain: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.height is not None:
            object.__setattr__(self, "height", whole_height(self.height))
        if self.switch not in ("all", "half"):
            try:
                object.__setattr__(self, "switch", whole_height(self.switch))
            except BadInput:
                rule = 'The switch of a kd-tree is "all", "half", or the number of levels with medians, 0 or more'
                raise BadInput(f"{rule}; got {self.switch!r}.") from None
        if self.fanout not in (None, 2):
            raise BadInput(f"The fanout of a kd-tree is 2, or by default 2^d for d axes; got {self.fanout!r}.")
        if self.median not in MEDIAN_MECHANISMS:
            suggestion = near_misses(str(self.median), MEDIAN_MECHANISMS)
            raise BadInput(f"A kd-tree cannot compute medians by {self.median!r}. {suggestion}")
        object.__setattr__(self, "median_share", exact_share(self.median_share))
        object.__setattr__(self, "check", exact_share(self.check, "check"))
        if self.sample is not None:
            object.__setattr__(self, "sample", exact_rate(self.sample))
            if self.median == "exact":
                raise BadInput("Exact medians are computed on all rows. Leave the sample out.")

    @property
    def median_mechanism(self) -> str:
        return self.median

    def settled(self, domain: Domain) -> Self:
        """Return the tree with a height."""
        if self.height is not None:
            return self
        by_leaves = DEFAULT_HEIGHT if self.fanout == 2 else DEFAULT_MAX_CUTS_PER_PATH // domain.dimensions
        return replace(self, height=min(DEFAULT_HEIGHT, by_leaves, domain.bits))

    def nodes(self, dimensions: int) -> int | None:
        if self.height is None:
            return None
        return int(2 ** (self.height * (1 if self.fanout == 2 else dimensions) + 1)) - 1

    def halvings(self, dimensions: int) -> int:
        """Return the number of times that one axis is cut."""
        return -(-(self.height or 0) // (dimensions if self.fanout == 2 else 1))

    def axis(self, k: int, axes: int) -> int:
        """Return the axis of the k-th cut."""
        return k % axes

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        axes, height = gate.domain.dimensions, self.settled(gate.domain).height or 0
        check_price = epsilon * self.check
        epsilon -= check_price
        step = 1 if self.fanout == 2 else axes  # cuts from one counted level to the next
        levels_with_medians = {"all": height, "half": height // 2}.get(str(self.switch), self.switch)
        median_cuts = step * min(int(levels_with_medians), height) if self.median_share else 0
        free = self.median == "exact" or not median_cuts
        medians_price = Fraction(0) if free else epsilon * self.median_share
        delta = gate.delta if self.median == "smooth-sensitivity" else Fraction(0)
        sample_epsilon = medians_price  # a sample amplifies privacy: medians may spend more on it
        if self.sample is not None and not free:
            sample_epsilon = gate.sample(self.sample, medians_price, delta, self.median)
            delta = delta / self.sample
        for k in range(height * step):
            axis = self.axis(k, axes)
            if k < median_cuts:
                at = gate.medians(axis, sample_epsilon / median_cuts, delta / median_cuts, self.median)
            else:
                at = midpoints(gate.tree(), axis)
            gate.cut(axis, at, None)
        count_levels(gate, epsilon - medians_price, budget, step)
        if check_price:
            gate.reserve_check(check_price)


@dataclass(frozen=True, slots=True)
class HilbertR(KdTree):
    """A Hilbert R-tree: cells are ordered along a Hilbert curve, and ranges of it are cut in two (section 3.3).

    A counted level cuts every range as often as the domain has axes, so the fanout is that of a kd-tree.
    The curve visits 2^``order`` cells per axis; the default order is 18, or what fits into 62 bits.
    """

    order: int | None = None

    def __post_init__(self) -> None:
        KdTree.__post_init__(self)
        if self.check:
            raise BadInput(f"A Hilbert R-tree cannot check its answers; got check={self.check}. Leave it out.")
        if self.order is not None and not (type(self.order) is int and 1 <= self.order <= KEY_BITS // 2):
            raise BadInput(f"The order of a Hilbert curve is 1 to {KEY_BITS // 2}; got {self.order!r}.")

    def axis(self, k: int, axes: int) -> int:
        return 0

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        gate.follow(min(DEFAULT_HILBERT_ORDER, gate.domain.bits) if self.order is None else self.order)
        KdTree.grow(self, gate, epsilon, budget)

"""Boxes cut at private medians, the axes in turn; from some level on, perhaps, at midpoints (a hybrid)."""

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

MEDIANS = ("exponential", "exponential-paper", "smooth-sensitivity", "noisy-mean", "exact")
"""How a kd-tree may find its medians; the last is not private."""


def middles(tree: Tree, axis: int) -> Ints:
    """The middle of every newest box."""
    newest = tree.level(tree.height)
    return (tree.lo[newest, axis] + tree.hi[newest, axis]) // 2


@dataclass(frozen=True, slots=True)
class KdTree(Structure):
    """A kd-tree of fanout 2^d: each counted level cuts every axis once (section 6.2 of the paper).

    Without a ``height`` it has 8 levels, fewer in more than two dimensions: at most about 2^16 leaves. With
    ``fanout=2`` every single cut makes a counted level. ``switch`` says how many counted levels have medians,
    ``"all"`` or ``"half"`` of them or a number; below them boxes are cut in the middle. Medians take
    ``median_share`` of the budget, the same for each cut on a path. With ``sample``, a rate, they are those of a
    random sample of the rows, one for the whole tree. ``check`` is the part of the budget that answers are checked
    with, for their error bars.
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
                rule = 'A kd-tree has medians on "all" or "half" of its levels, or on a number of them, 0 or more'
                raise BadInput(f"{rule}; got {self.switch!r}.") from None
        if self.fanout not in (None, 2):
            raise BadInput(f"A kd-tree has fanout 2, or by default 2 for each axis; got {self.fanout!r}.")
        if self.median not in MEDIANS:
            raise BadInput(f"A kd-tree has no {self.median!r} medians. {near_misses(str(self.median), MEDIANS)}")
        object.__setattr__(self, "median_share", exact_share(self.median_share))
        object.__setattr__(self, "check", exact_share(self.check, "check"))
        if self.sample is not None:
            object.__setattr__(self, "sample", exact_rate(self.sample))
            if self.median == "exact":
                raise BadInput("Exact medians are those of all rows: leave the sample out.")

    @property
    def median_mechanism(self) -> str:
        return self.median

    def settled(self, domain: Domain) -> Self:
        """With a height."""
        if self.height is not None:
            return self
        return replace(self, height=min(8, 8 if self.fanout == 2 else 16 // domain.dimensions, domain.bits))

    def nodes(self, dimensions: int) -> int | None:
        if self.height is None:
            return None
        return int(2 ** (self.height * (1 if self.fanout == 2 else dimensions) + 1)) - 1

    def halvings(self, dimensions: int) -> int:
        """How often an axis is cut."""
        return -(-(self.height or 0) // (dimensions if self.fanout == 2 else 1))

    def axis(self, k: int, axes: int) -> int:
        """The axis of the k-th cut."""
        return k % axes

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        axes, height = gate.domain.dimensions, self.settled(gate.domain).height or 0
        kept = epsilon * self.check
        epsilon -= kept
        step = 1 if self.fanout == 2 else axes  # cuts from one counted level to the next
        with_medians = {"all": height, "half": height // 2}.get(str(self.switch), self.switch)
        by_median = step * min(int(with_medians), height) if self.median_share else 0
        free = self.median == "exact" or not by_median
        medians = Fraction(0) if free else epsilon * self.median_share
        delta = gate.delta if self.median == "smooth-sensitivity" else Fraction(0)
        part = medians
        if self.sample is not None and not free:
            part, delta = gate.sample(self.sample, medians, delta, self.median), delta / self.sample
        for k in range(height * step):
            axis = self.axis(k, axes)
            if k < by_median:
                gate.cut(axis, gate.medians(axis, part / by_median, delta / by_median, self.median), None)
            else:
                gate.cut(axis, middles(gate.tree(), axis), None)
        count_levels(gate, epsilon - medians, budget, step)
        if kept:
            gate.reserve_check(kept)


@dataclass(frozen=True, slots=True)
class HilbertR(KdTree):
    """A Hilbert R-tree: cells lie along a Hilbert curve, and ranges of it are cut in two (section 3.3 of the paper).

    A counted level cuts every range as often as the domain has axes, so that fanouts are those of a kd-tree.
    The curve visits 2^``order`` cells along each axis; 18 by default, or what fits 62 bits.
    """

    order: int | None = None

    def __post_init__(self) -> None:
        KdTree.__post_init__(self)
        if self.check:
            raise BadInput(f"Answers along a curve cannot be checked, got check={self.check}: leave it out.")
        if self.order is not None and not (type(self.order) is int and 1 <= self.order <= KEY_BITS // 2):
            raise BadInput(f"The order of a Hilbert curve is 1 to {KEY_BITS // 2}, got {self.order!r}.")

    def axis(self, k: int, axes: int) -> int:
        return 0

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        gate.follow(min(18, gate.domain.bits) if self.order is None else self.order)
        KdTree.grow(self, gate, epsilon, budget)

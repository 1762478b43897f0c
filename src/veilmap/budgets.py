"""Budgets: how a total epsilon is divided among the levels or nodes of a tree, in exact fractions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from veilmap.arrays import Flags, Ints
from veilmap.boxes import checked_boxes, even_rows
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.kernels.workload import add_squared_weights, optimal_prices
from veilmap.trees import Tree
from veilmap.validation import exact_number, is_finite_number

RESERVED_FRACTION_INVERSE = 64
"""Inner nodes leave at least 1/64 of their budget to their children, so that leaves outside all boxes are counted."""


@runtime_checkable
class LevelBudget(Protocol):
    """A rule that assigns weights to the levels of a tree."""

    def weights(self, height: int, ratio: float) -> tuple[Fraction, ...]:
        """Return ``height + 1`` weights, 0 or more, root first. A level with weight 0 is not measured.

        ``ratio`` is the best factor between the weights of successive levels, for this kind of tree and noise.
        """
        ...


@runtime_checkable
class NodeBudget(Protocol):
    """A rule that assigns a price to each node, from the boxes of the tree."""

    def node_prices(self, tree: Tree, counted: Flags, domain: Domain, total: int, power: int) -> Ints:
        """Return the price of each node, 0 if it is not counted. Prices add up to at most ``total`` along each path."""
        ...


Budget: TypeAlias = LevelBudget | NodeBudget


@dataclass(frozen=True, slots=True)
class Uniform:
    """A budget with the same share for each level.

    Examples
    --------
    >>> release = vm.release(points, domain, 1, "quad-opt", height=3, budget=vm.Uniform())
    >>> [str(charge.epsilon) for charge in release.privacy.ledger]
    ['1/4', '1/4', '1/4', '1/4']
    """

    def weights(self, height: int, ratio: float) -> tuple[Fraction, ...]:
        return (Fraction(1),) * (height + 1)


@dataclass(frozen=True, slots=True)
class Geometric:
    """A budget whose shares grow by the factor ``ratio`` from each level to the next (Lemma 3 of the paper).

    A box intersects about 2^(d-1) times as many nodes on each next level of a quadtree, so the best ratio is the cube
    root of that, or the square root for Gaussian noise. ``ratio=None`` uses the best ratio. Weights are rounded to
    multiples of 2^-20, which costs no accuracy and keeps the exact fractions short.

    Examples
    --------
    >>> release = vm.release(points, domain, 1, "quad-opt", height=3, budget=vm.Geometric(2))
    >>> [str(charge.epsilon) for charge in release.privacy.ledger]
    ['1/15', '2/15', '4/15', '8/15']
    """

    ratio: float | None = None

    def __post_init__(self) -> None:
        if self.ratio is not None and not (is_finite_number(self.ratio) and self.ratio > 0):
            raise BadInput(f"The ratio of a geometric budget must be a positive number, got {self.ratio!r}.")

    def weights(self, height: int, ratio: float) -> tuple[Fraction, ...]:
        ratio = ratio if self.ratio is None else self.ratio
        # scaled so that the largest weight is 1: a large ratio would overflow
        top = height if ratio > 1 else 0
        return tuple(Fraction(max(1, round(ratio ** (level - top) * 2**20)), 2**20) for level in range(height + 1))


@dataclass(frozen=True, slots=True)
class LeafOnly:
    """A budget that is spent on the leaves alone, so that the tree acts as a grid (Inan et al., EDBT 2010).

    Examples
    --------
    >>> release = vm.release(points, domain, 1, "quad-opt", height=3, budget=vm.LeafOnly())
    >>> [(charge.what, str(charge.epsilon)) for charge in release.privacy.ledger]
    [('noisy counts of level 3', '1')]
    """

    def weights(self, height: int, ratio: float) -> tuple[Fraction, ...]:
        return (Fraction(0),) * height + (Fraction(1),)


@dataclass(frozen=True, slots=True)
class Levels:
    """A budget with one weight per level, root first. A weight of 0 skips a level; the leaves need more than 0.

    Examples
    --------
    >>> release = vm.release(points, domain, 1, "quad-opt", height=2, budget=vm.Levels([0, 1, "3"]))
    >>> [str(charge.epsilon) for charge in release.privacy.ledger]
    ['1/4', '3/4']
    """

    shares: Sequence[float | str | Fraction]

    def __post_init__(self) -> None:
        try:
            exact = tuple(exact_number(s) for s in self.shares)
        except (TypeError, ValueError):
            raise BadInput(f"The shares of the levels must be a list of numbers, got {self.shares!r}.") from None
        if not exact or min(exact) < 0 or exact[-1] == 0:
            raise BadInput(
                f"The shares of the levels must be 0 or more, and more than 0 for the leaves, got {self.shares!r}."
            )
        object.__setattr__(self, "shares", exact)

    def weights(self, height: int, ratio: float) -> tuple[Fraction, ...]:
        if len(self.shares) != height + 1:
            raise BadInput(
                f"A tree of height {height} has {height + 1} levels, but {len(self.shares)} shares were given. "
                f"Give one share per level, root first."
            )
        return tuple(Fraction(s) for s in self.shares)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A budget that the structure divides itself, from noisy counts."""

    def weights(self, height: int, ratio: float) -> tuple[Fraction, ...]:
        raise BadInput(
            "This structure does not divide its budget itself. Give it a budget like Geometric() or Uniform()."
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """A budget that minimises the noise variance of the answers to given boxes, summed over the boxes.

    The variance is that of canonical answers, which add up the largest nodes inside a box. Least squares then reduce it
    further. A node that contributes to c answers adds c times its variance. If each path spends the whole budget, the
    minimum has a closed form: K_v^(1/3) = c_v^(1/3) + (Σ_children K)^(1/3), leaves first, and each node takes the
    fraction c_v^(1/3) / K_v^(1/3) of the budget that its ancestors left (square roots for Gaussian noise). With
    ``per="level"``, all nodes of a level have the same price: shares are proportional to the cube roots of the sums of
    c per level.

    Parameters
    ----------
    boxes
        The boxes, one per row: the low end of each axis, then the high end of each axis.
    per
        ``"node"`` for one price per node, ``"level"`` for one price per level.

    Examples
    --------
    >>> budget = vm.Workload([[-116, 39, -114, 41]])
    >>> release = vm.release(points, domain, 1, "quad-opt", height=5, budget=budget)
    >>> release.privacy.spent <= 1
    True
    """

    boxes: Sequence[Sequence[float]]
    per: str = "node"

    def __post_init__(self) -> None:
        try:
            rows = even_rows(self.boxes)
        except ValueError:
            raise BadInput(
                "A workload is a list of boxes: the low end of each axis, then the high end of each axis."
            ) from None
        if self.per not in ("node", "level"):
            raise BadInput(f'A workload has prices per "node" or per "level", got {self.per!r}.')
        object.__setattr__(self, "boxes", rows)

    def node_prices(self, tree: Tree, counted: Flags, domain: Domain, total: int, power: int) -> Ints:
        answers_per_node = np.zeros(tree.size)
        queries = checked_boxes(self.boxes, domain) * domain.side
        add_squared_weights(tree.first_child, tree.lo, tree.hi, counted, queries, answers_per_node)
        reserve = RESERVED_FRACTION_INVERSE
        if self.per == "level":
            answers_per_level = np.bincount(tree.node_level, answers_per_node, tree.height + 1).astype(np.float64)
            first = np.array(tree.level_start[:-1])
            path = optimal_prices(np.arange(-1, tree.height), answers_per_level, counted[first], total, power, reserve)
            return np.where(counted, path[tree.node_level], 0)
        return optimal_prices(tree.parent, answers_per_node, counted, total, power, reserve)


def share(total: Fraction, weights: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    """Divide ``total`` in proportion to ``weights``. The shares add up to it exactly."""
    exact = tuple(Fraction(w) for w in weights)
    weight_sum = sum(exact, Fraction(0))
    if weight_sum <= 0 or min(exact) < 0:
        raise BadInput(f"The weights of levels must be 0 or more and not all 0, got {tuple(map(str, weights))}.")
    return tuple(total * w / weight_sum for w in exact)


def level_shares(budget: LevelBudget, epsilon: Fraction, height: int, ratio: float = 1.0) -> tuple[Fraction, ...]:
    """Return the budget share of each level, root first. Check budgets written by users: the leaves need a share."""
    weights = budget.weights(height, ratio)
    if len(weights) != height + 1 or not weights[-1] > 0:
        raise BadInput(
            f"A budget must give a tree of height {height} one share for each of its {height + 1} levels, and its "
            f"leaves more than 0, got {tuple(map(str, weights))}."
        )
    return share(epsilon, weights)

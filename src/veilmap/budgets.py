"""How a total epsilon is shared among the levels of a tree. Public, pure, exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from veilmap.arrays import Flags, Ints
from veilmap.boxes import checked_boxes, even_rows
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.kernels.workload import add_squared_weights, optimal_prices
from veilmap.trees import Tree
from veilmap.validation import exact_number

RESERVE = 64  # an inner node leaves one part in so many to its children: nobody asks, yet leaves are counted


@runtime_checkable
class LevelBudget(Protocol):
    """A rule that weighs the levels of a tree."""

    def weights(self, height: int, ratio: float) -> tuple[Fraction, ...]:
        """``height + 1`` weights, root first, none negative; a level of weight 0 is not measured.

        ``ratio`` is by how much shares should grow from level to level, for this kind of tree and noise.
        """
        ...


@runtime_checkable
class NodeBudget(Protocol):
    """A rule that gives every node a price of its own, from the boxes of the tree."""

    def node_prices(self, tree: Tree, counted: Flags, domain: Domain, total: int, power: int) -> Ints:
        """What each node pays, 0 where it is not counted; the sum along no path is above ``total``."""
        ...


Budget: TypeAlias = LevelBudget | NodeBudget


@dataclass(frozen=True, slots=True)
class Uniform:
    """The same share for every level."""

    def weights(self, height: int, ratio: float) -> tuple[Fraction, ...]:
        return (Fraction(1),) * (height + 1)


@dataclass(frozen=True, slots=True)
class Geometric:
    """Shares that grow by ``ratio`` from each level to the next (Lemma 3 of the paper).

    A box touches about 2^(d-1) times as many nodes on each next level of a quadtree, so the best ratio
    is the cube root of that, or the square root when the noise is Gaussian; ``ratio=None`` takes it. Weights are
    whole multiples of 2^-20: that far from the optimum costs nothing, and keeps the shares short exact fractions.
    """

    ratio: float | None = None

    def __post_init__(self) -> None:
        if self.ratio is not None and not _positive(self.ratio):
            raise BadInput(f"The ratio of a geometric budget must be a positive number, got {self.ratio!r}.")

    def weights(self, height: int, ratio: float) -> tuple[Fraction, ...]:
        ratio = ratio if self.ratio is None else self.ratio
        # the largest weight is 1, so that no ratio overflows
        top = height if ratio > 1 else 0
        return tuple(Fraction(max(1, round(ratio ** (level - top) * 2**20)), 2**20) for level in range(height + 1))


@dataclass(frozen=True, slots=True)
class LeafOnly:
    """Everything for the leaves: the tree is only a grid (Inan et al., EDBT 2010)."""

    def weights(self, height: int, ratio: float) -> tuple[Fraction, ...]:
        return (Fraction(0),) * height + (Fraction(1),)


@dataclass(frozen=True, slots=True)
class Levels:
    """A weight for each level by hand, root first; zeros skip a level, but not the leaves."""

    shares: Sequence[float | str | Fraction]

    def __post_init__(self) -> None:
        try:
            exact = tuple(exact_number(s) for s in self.shares)
        except (TypeError, ValueError):
            raise BadInput(f"The shares of the levels must be a list of numbers, got {self.shares!r}.") from None
        if not exact or min(exact) < 0 or exact[-1] == 0:
            raise BadInput(
                f"The shares of the levels must be 0 or more, and more than 0 for the leaves; got {self.shares!r}."
            )
        object.__setattr__(self, "shares", exact)

    def weights(self, height: int, ratio: float) -> tuple[Fraction, ...]:
        if len(self.shares) != height + 1:
            raise BadInput(
                f"A tree of height {height} has {height + 1} levels, but {len(self.shares)} shares were given: "
                f"give one for each level, root first."
            )
        return tuple(Fraction(s) for s in self.shares)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Shared out by the structure itself, from noisy counts."""

    def weights(self, height: int, ratio: float) -> tuple[Fraction, ...]:
        raise BadInput("This structure does not choose its prices: give it a budget like Geometric() or Uniform().")


@dataclass(frozen=True, slots=True)
class Workload:
    """Prices that make the noise of the answers to some boxes smallest, summed over these boxes.

    Of canonical answers, which add up the largest nodes inside a box: least squares then make them better still.
    A node that contributes to answers c times costs them c times its variance. With every path spending the whole
    budget, the least sum has a closed form: K_v^(1/3) = c_v^(1/3) + (Σ_children K)^(1/3), leaves first, and each
    node takes c_v^(1/3) / K_v^(1/3) of what its ancestors left (square roots for Gaussian noise). With
    ``per="level"`` all nodes of a level pay the same: shares in proportion to the cube roots of the levels' sums.
    """

    boxes: Sequence[Sequence[float]]
    per: str = "node"

    def __post_init__(self) -> None:
        try:
            rows = even_rows(self.boxes)
        except ValueError:
            raise BadInput(
                "A workload is a list of boxes: the low end of each axis, then the high end of each."
            ) from None
        if self.per not in ("node", "level"):
            raise BadInput(f'A workload gives prices per "node" or per "level", got {self.per!r}.')
        object.__setattr__(self, "boxes", rows)

    def node_prices(self, tree: Tree, counted: Flags, domain: Domain, total: int, power: int) -> Ints:
        times = np.zeros(tree.size)
        queries = checked_boxes(self.boxes, domain) * domain.side
        add_squared_weights(tree.first_child, tree.lo, tree.hi, counted, queries, times)
        if self.per == "level":
            sums = np.bincount(tree.node_level, times, tree.height + 1).astype(np.float64)
            first = np.array(tree.level_start[:-1])
            path = optimal_prices(np.arange(-1, tree.height), sums, counted[first], total, power, RESERVE)
            return np.where(counted, path[tree.node_level], 0)
        return optimal_prices(tree.parent, times, counted, total, power, RESERVE)


def _positive(value: object) -> bool:
    try:
        return isinstance(value, Real) and math.isfinite(value) and float(value) > 0
    except OverflowError:  # a whole number beyond all floats
        return False


def share(total: Fraction, weights: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    """Split ``total`` in proportion to ``weights``; the parts add up to it exactly."""
    exact = tuple(Fraction(w) for w in weights)
    whole = sum(exact, Fraction(0))
    if whole <= 0 or min(exact) < 0:
        raise BadInput(f"Weights of levels must be 0 or more and not all 0, got {tuple(map(str, weights))}.")
    return tuple(total * w / whole for w in exact)


def level_shares(budget: LevelBudget, epsilon: Fraction, height: int, ratio: float = 1.0) -> tuple[Fraction, ...]:
    """What each level may spend, root first. A budget may be anyone's: it must cover all levels, and the leaves."""
    weights = budget.weights(height, ratio)
    if len(weights) != height + 1 or not weights[-1] > 0:
        raise BadInput(
            f"A budget gives a tree of height {height} one share for each of its {height + 1} levels, and its leaves "
            f"more than 0; got {tuple(map(str, weights))}."
        )
    return share(epsilon, weights)

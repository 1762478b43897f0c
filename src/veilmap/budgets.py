"""How a total epsilon is shared among the levels of a tree. Public, pure, exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Protocol

from veilmap.amounts import exact_number
from veilmap.errors import BadInput


class LevelBudget(Protocol):
    """A rule that weighs the levels of a tree."""

    def weights(self, height: int, ratio: float) -> tuple[Fraction, ...]:
        """``height + 1`` weights, root first, none negative; a level of weight 0 is not measured.

        ``ratio`` is by how much shares should grow from level to level, for this kind of tree and noise.
        """
        ...


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

"""The base class of structures, and the gate: everything that a structure may do while it grows a tree.

A structure never sees a row. What it learns of the rows passes the gate, and is charged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from veilmap.arrays import Flags, Ints
from veilmap.budgets import Budget, Geometric, NodeBudget, level_shares, share
from veilmap.domain import Domain
from veilmap.trees import Parts, Tree

MAX_PRICE_STEPS = 2**12
"""Nodes with prices of their own pay whole multiples of the budget divided by this: few prices, exact sums."""
CELLS_PER_RUN = 4
"""Neighbouring cells whose halves are compared together, for roughness."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What the vault offers to a structure.

    Cuts are free, since they follow from public numbers and paid answers. Every verb with a price asks the rows: it is
    charged first, and its answer is noisy. Prices are shares of the budget: of ε or, with Gaussian noise, of ρ. The
    newest boxes are the frontier, the lowest level of the growing tree.
    """

    domain: Domain
    delta: Fraction  # that medians may spend
    power: int  # the variance of a count's noise falls with this power of its price
    sharpness: Callable[[Fraction], float]  # (price): the ε of Laplace noise that is as small as what the price buys
    tree: Callable[[], Tree]  # as it stands
    boxes: Callable[[], Tree]  # the same, with its boxes in the domain when it lies along a curve
    # free
    refine: Callable[[Parts], None]  # (parts): cut every newest box into equal parts
    split: Callable[[Ints], None]  # (parts): cut each newest box into its own parts; zeros leave it a leaf
    cut: Callable[[int, Ints, Flags | None], None]  # (axis, at, where): cut newest boxes in two, at these cells
    shorten: Callable[[int], None]  # (height): drop the levels below this one; only before the first cut
    follow: Callable[[int], None]  # (order): lay the domain along a Hilbert curve: one axis of keys
    # paid
    sample: Callable[[Fraction, Fraction, Fraction, str], Fraction]
    """(rate, price, delta, mechanism): compute medians on a sample from now on; returns what they may spend on it."""
    medians: Callable[[int, Fraction, Fraction, str], Ints]
    """(axis, price, delta, mechanism): a private cut of every newest box, near its median."""
    dense: Callable[[Fraction], Flags]  # (price): which newest boxes look dense; one price for all levels (PrivTree)
    roughness: Callable[[Ints, int, Fraction], Ints]
    """(depth, scales, price): sums of differences between half-cells of the newest boxes, at several scales."""
    grid: Callable[[Parts, Fraction], Ints]  # (parts, price): noisy counts of a regular grid over the domain, row-major
    count: Callable[[int, Fraction], Ints]  # (level, price): noisy counts of a level; each node once
    count_leaves: Callable[[Fraction], Ints]  # (price): noisy counts of all leaves, on whatever level
    count_each: Callable[[Ints, Ints, Fraction], Ints]
    """(nodes, steps, step): noisy counts of these nodes, each at its own price, so many steps."""
    reserve_check: Callable[[Fraction], None]  # (price): pay for a check of the answers, for error bars; the last call


class Structure(ABC):
    """A family of trees: decides where boxes are cut and which nodes are counted.

    A structure of your own derives from this class, defines ``height``, ``nodes`` and ``grow``, and overrides the other
    attributes where the defaults do not fit.
    """

    __slots__ = ()

    usual_budget: ClassVar[Budget] = Geometric()
    """The budget of a method that names none."""
    leaves_only: ClassVar[bool] = False
    """Whether only leaves are counted: then the budget must be ``LeafOnly()``."""
    follows_data: ClassVar[bool] = False
    """Whether cuts depend on the rows, by paid noisy answers."""
    samples_medians: ClassVar[bool] = False
    """Whether medians can be computed on a sample, by the option ``sample``."""
    height_from_domain: ClassVar[bool] = False
    """Whether a missing height follows from the domain alone, by ``settled``."""
    max_nodes: ClassVar[int] = 0
    """About how many nodes the tree may have, where ``nodes`` does not say; 0 if that is not known either."""

    if TYPE_CHECKING:  # at run time a dataclass would take an inherited property for the default of its field

        @property
        def height(self) -> int | None:
            """Counted levels below the root; ``None`` when they are chosen from paid noisy numbers."""

    @abstractmethod
    def nodes(self, dimensions: int) -> int | None:
        """Return how many nodes the tree has; ``None`` when that is not known beforehand."""

    @abstractmethod
    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        """Grow and count a tree, spending at most ``epsilon`` (of ρ, when the noise is Gaussian)."""

    @property
    def median_mechanism(self) -> str | None:
        """How medians are found, where the structure has any."""
        return None

    @property
    def passes(self) -> int | None:
        """How often all rows are read when the tree is a regular grid: rows are then streamed, and not held.

        ``None`` when rows must be held, as they are for all other trees.
        """
        return None

    def halvings(self, dimensions: int) -> int:
        """Return how often one axis is halved."""
        return self.height or 0

    def settled(self, domain: Domain) -> Self:
        """Return the structure with a height that fits the domain, if it has one to choose."""
        return self


def count_levels(gate: Gate, price: Fraction, budget: Budget, step: int, root_price: Fraction | None = None) -> None:
    """Count every ``step``-th level of a grown tree, as its budget says.

    With ``root_price``, the root has been counted at that price already, and the rest goes to the levels below.
    """
    tree, axes = gate.tree(), gate.domain.dimensions
    levels = range(0, tree.height + 1, step)
    fanout = tree.level_start[step + 1] - tree.level_start[step] if tree.height else 1
    growth = fanout ** ((axes - 1) / axes)  # the border of a box meets this many times more nodes per counted level
    if isinstance(budget, NodeBudget):
        counted = np.isin(tree.node_level, levels)
        steps = budget.node_prices(gate.boxes(), counted, gate.domain, MAX_PRICE_STEPS, gate.power)
        nodes = np.flatnonzero(steps)
        gate.count_each(nodes, steps[nodes], price / MAX_PRICE_STEPS)
        return
    prices = level_shares(budget, price, len(levels) - 1, growth ** (1 / (gate.power + 1)))
    if root_price is not None:
        prices = (Fraction(0), *share(price - root_price, prices[1:]))
    for level, level_price in zip(levels, prices, strict=True):
        if level_price:
            gate.count(level, level_price)

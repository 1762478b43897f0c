"""The base class of structures, and the gate: the operations that a structure may use while it grows a tree.

A structure never sees a row. All that it learns about the rows passes the gate and is charged to the budget.
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
"""Prices of single nodes are multiples of budget / MAX_PRICE_STEPS, which keeps prices few and their sums exact."""
CELLS_PER_RUN = 4
"""Adjacent cells whose halves are compared together when roughness is measured."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The operations that the vault offers to a structure.

    Splits and cuts are free, since they depend only on public numbers and on answers that were paid for. Every
    operation with a price reads the rows: it is charged first, and its answer is noisy. Prices are shares of the
    budget: of ε or, with Gaussian noise, of ρ. The frontier is the last level of the growing tree.
    """

    domain: Domain
    delta: Fraction  # δ that medians may spend
    power: int  # the variance of a count's noise is proportional to price^(−power)
    sharpness: Callable[[Fraction], float]  # (price): the ε of Laplace noise with the same variance
    tree: Callable[[], Tree]  # the tree so far
    boxes: Callable[[], Tree]  # the tree so far, with boxes in the domain even if it lies along a curve
    # free
    refine: Callable[[Parts], None]  # (parts): split every frontier box into equal parts
    split: Callable[[Ints], None]  # (parts): split each frontier box into its own parts; zeros leave it a leaf
    cut: Callable[[int, Ints, Flags | None], None]  # (axis, at, where): cut frontier boxes in two at these cells
    shorten: Callable[[int], None]  # (height): drop the levels below this one; only before the first cut
    follow: Callable[[int], None]  # (order): replace the domain's axes by one axis of Hilbert curve keys
    # paid
    sample: Callable[[Fraction, Fraction, Fraction, str], Fraction]
    """(rate, price, delta, mechanism): compute all later medians on a sample; returns the ε they may spend on it."""
    medians: Callable[[int, Fraction, Fraction, str], Ints]
    """(axis, price, delta, mechanism): a private approximate median of every frontier box."""
    dense: Callable[[Fraction], Flags]  # (price): which frontier boxes look dense; one price for all levels (PrivTree)
    roughness: Callable[[Ints, int, Fraction], Ints]
    """(depth, scales, price): noisy sums of differences of half-cells in frontier boxes, at several scales."""
    grid: Callable[[Parts, Fraction], Ints]  # (parts, price): noisy counts of a regular grid over the domain, row-major
    count: Callable[[int, Fraction], Ints]  # (level, price): noisy counts of a level; once per node
    count_leaves: Callable[[Fraction], Ints]  # (price): noisy counts of all leaves, whatever their level
    count_each: Callable[[Ints, Ints, Fraction], Ints]
    """(nodes, steps, step): noisy counts of these nodes; node i pays steps[i] · step."""
    reserve_check: Callable[[Fraction], None]  # (price): pay for a check that calibrates error bars; the last call


class Structure(ABC):
    """A family of trees, which decides where boxes are split and which nodes are counted.

    A new structure derives from this class, defines ``height``, ``nodes`` and ``grow``, and overrides the other
    attributes where the defaults do not fit.
    """

    __slots__ = ()

    usual_budget: ClassVar[Budget] = Geometric()
    """The default budget."""
    leaves_only: ClassVar[bool] = False
    """Whether only leaves are counted: then the budget must be ``LeafOnly()``."""
    follows_data: ClassVar[bool] = False
    """Whether cuts depend on the rows, through noisy answers."""
    samples_medians: ClassVar[bool] = False
    """Whether medians can be computed on a sample, with the option ``sample``."""
    height_from_domain: ClassVar[bool] = False
    """Whether ``settled`` can choose a missing height from the domain alone."""
    max_nodes: ClassVar[int] = 0
    """Approximate maximum number of nodes, for structures whose ``nodes`` returns None; 0 if it is not known."""

    if TYPE_CHECKING:  # at run time a dataclass would take an inherited property for the default of its field

        @property
        def height(self) -> int | None:
            """Number of counted levels below the root; ``None`` if it is chosen from noisy answers."""

    @abstractmethod
    def nodes(self, dimensions: int) -> int | None:
        """Return the number of nodes of the tree; ``None`` if it is not known in advance."""

    @abstractmethod
    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        """Grow and count a tree, spending at most ``epsilon`` (ρ, if the noise is Gaussian)."""

    @property
    def median_mechanism(self) -> str | None:
        """The mechanism that computes medians; ``None`` if the structure has none."""
        return None

    @property
    def passes(self) -> int | None:
        """The number of passes over the rows, if every level is a regular grid: rows are then streamed, not stored.

        ``None`` if the rows must be kept in memory, as for all other trees.
        """
        return None

    def halvings(self, dimensions: int) -> int:
        """Return the number of times that one axis is halved."""
        return self.height or 0

    def settled(self, domain: Domain) -> Self:
        """Return the structure with its height set, if the height follows from the domain."""
        return self


def count_levels(gate: Gate, price: Fraction, budget: Budget, step: int, root_price: Fraction | None = None) -> None:
    """Count every ``step``-th level of a grown tree, at the prices of its budget.

    With ``root_price``, the root was already counted at that price, and the remainder goes to the levels below.
    """
    tree, axes = gate.tree(), gate.domain.dimensions
    levels = range(0, tree.height + 1, step)
    fanout = tree.level_start[step + 1] - tree.level_start[step] if tree.height else 1
    growth = fanout ** ((axes - 1) / axes)  # factor by which a query's border meets more nodes, per counted level
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

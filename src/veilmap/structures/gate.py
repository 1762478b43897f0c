"""What a structure may do while it grows a tree. The vault makes the gate, and charges for what passes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from veilmap.budget import LevelBudget, level_shares, share
from veilmap.domain import Domain
from veilmap.tree import Flags, Ints, Parts, Tree

GRAINS = 2**12
"""Nodes with prices of their own pay whole multiples of the budget divided by this: few different ones, exact sums."""
RUN = 4
"""Cells in a row whose halves are compared together."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Cuts are free, since they follow from what is public; whatever asks the data is noisy and has its price.

    Prices are parts of the budget: of ε or, when the noise is Gaussian, of ρ.
    """

    domain: Domain
    delta: Fraction  # that medians may spend
    power: int  # the variance of a count's noise falls with this power of its price
    sharpness: Callable[[Fraction], float]  # the ε of Laplace noise that is as small as what a price buys
    tree: Callable[[], Tree]  # as it stands
    boxes: Callable[[], Tree]  # the same, with its boxes in the domain when it lies along a curve
    refine: Callable[[Parts], None]  # cut every newest box into equal parts
    split: Callable[[Ints], None]  # cut each newest box into its own parts; zeros leave it a leaf
    cut: Callable[[int, Ints, Flags | None], None]  # cut newest boxes in two, along an axis, at these cells
    shorten: Callable[[int], None]  # forget the levels below this one; only before the first cut
    follow: Callable[[int], None]  # lay the domain along a Hilbert curve of this order: one axis of keys
    sample: Callable[[Fraction, Fraction, Fraction, str], Fraction]  # medians on a sample: what they may spend on it
    medians: Callable[[int, Fraction, Fraction, str], Ints]  # a private cut of every newest box, near its median
    dense: Callable[[Fraction], Flags]  # which newest boxes look dense; one price for all levels (PrivTree)
    halves: Callable[[Ints, int, Fraction], Ints]  # how uneven newest boxes are inside, at so many scales
    grid: Callable[[Parts, Fraction], Ints]  # noisy counts of an even grid over the domain, row-major
    count: Callable[[int, Fraction], Ints]  # the noisy counts of a level; each node once
    count_leaves: Callable[[Fraction], Ints]  # the noisy counts of all leaves, wherever they are
    count_each: Callable[[Ints, Ints, Fraction], Ints]  # of these nodes, each at so many times a price
    check: Callable[[Fraction], None]  # how far off answers are, the last thing to ask: for error bars


@runtime_checkable
class NodeBudget(Protocol):
    """A rule that gives every node a price of its own, from the boxes of the tree."""

    def grains(self, tree: Tree, counted: Flags, domain: Domain, total: int, power: int) -> Ints:
        """What each node pays, 0 where it is not counted; the sum along no path is above ``total``."""
        ...


Budget: TypeAlias = LevelBudget | NodeBudget


class Structure(Protocol):
    """What decides where a tree is cut and which levels are counted.

    It may say more of itself: ``usual_budget``, ``leaves_only`` (no other node is counted), ``median`` (how it
    finds medians), ``most_nodes`` where ``nodes`` is ``None``, ``halvings(dimensions)``, how often an axis is cut when
    that is not its height, and ``stages``, how often it reads all rows, when its tree is a regular one: then they are
    read so often, and not held.
    """

    @property
    def height(self) -> int | None:
        """Levels that are counted, below the root; ``None`` when they are chosen from paid noisy numbers."""
        ...

    def nodes(self, dimensions: int) -> int | None:
        """How many nodes the tree may have; ``None`` when that is not known beforehand."""
        ...

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        """Grow and count a tree, spending at most ``epsilon`` (of ρ, when the noise is Gaussian)."""
        ...


def count_levels(gate: Gate, part: Fraction, budget: Budget, step: int, first: Fraction | None = None) -> None:
    """Count every ``step``-th level of a grown tree, as its budget says.

    With ``first``, the root has been counted at that price already, and the rest goes to the levels below.
    """
    tree, axes = gate.tree(), gate.domain.dimensions
    levels = range(0, tree.height + 1, step)
    fanout = tree.level_start[step + 1] - tree.level_start[step] if tree.height else 1
    growth = fanout ** ((axes - 1) / axes)  # so many more nodes does a box's border meet, a counted level on
    if isinstance(budget, NodeBudget):
        counted = np.isin(tree.node_level, levels)
        prices = budget.grains(gate.boxes(), counted, gate.domain, GRAINS, gate.power)
        nodes = np.flatnonzero(prices)
        gate.count_each(nodes, prices[nodes], part / GRAINS)
        return
    parts = level_shares(budget, part, len(levels) - 1, growth ** (1 / (gate.power + 1)))
    if first is not None:
        parts = (Fraction(0), *share(part - first, parts[1:]))
    for level, price in zip(levels, parts, strict=True):
        if price:
            gate.count(level, price)

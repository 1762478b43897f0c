"""What paths from the root have paid for nodes that have their own prices. Proof: proofs/measure.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from veilmap.arrays import Ints
from veilmap.errors import BadInput
from veilmap.structures import MAX_PRICE_STEPS
from veilmap.trees import Tree


class PathCosts:
    """The price of each node, as a number of equal steps, and the cost of the most expensive path so far."""

    def __init__(self) -> None:
        self._step: Fraction | None = None  # all prices are multiples of it
        self._paid = np.zeros(0, np.int64)  # steps per node
        self._max_path = 0  # steps on the most expensive path

    def pay(self, tree: Tree, nodes: Ints, steps: Ints, step: Fraction, charge: Callable[[Fraction], None]) -> None:
        """Charge the increase of the most expensive path that results when these nodes pay ``steps`` each."""
        if self._step not in (None, step):
            raise BadInput("All prices of single nodes in a release must be multiples of the same step.")
        if not (steps.min(initial=1) >= 1 and steps.max(initial=1) <= MAX_PRICE_STEPS):
            raise BadInput(f"The price of a node is 1 to {MAX_PRICE_STEPS} steps.")
        paid = np.zeros(tree.size, np.int64)
        paid[: len(self._paid)] = self._paid[: tree.size]
        paid[nodes] = steps
        max_path = max(int(_along_paths(tree, paid).max()), self._max_path)
        if max_path > self._max_path:
            charge((max_path - self._max_path) * step)
        self._step, self._paid, self._max_path = step, paid, max_path

    def forget_paths(self) -> None:
        """Start again from zero: rows will be read again, and may then lie on other paths."""
        self._paid, self._max_path = np.zeros(0, np.int64), 0


def group_by_price(nodes: Ints, steps: Ints) -> Iterator[tuple[Ints, int]]:
    """Yield the nodes of each price and that price in steps, cheapest first."""
    by_price, number = np.argsort(steps.astype(np.int16), kind="stable"), np.bincount(steps)
    for price, end in zip(np.flatnonzero(number).tolist(), np.cumsum(number)[number > 0].tolist(), strict=True):
        yield nodes[by_price[end - number[price] : end]], price


def _along_paths(tree: Tree, paid: Ints) -> Ints:
    """Return the sum of what was paid from the root down to each node."""
    total = paid.copy()
    for level in range(1, tree.height + 1):
        nodes = tree.level(level)
        total[nodes] += total[tree.parent[nodes]]
    return total

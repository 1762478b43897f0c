"""What paths from the root have paid for nodes with prices of their own. Proof: proofs/measure.md."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from veilmap.arrays import Ints
from veilmap.errors import BadInput
from veilmap.structures import MAX_PRICE_STEPS
from veilmap.trees import Tree


class PathCosts:
    """The price of each node in steps of one size, and what the most expensive path has come to cost."""

    def __init__(self) -> None:
        self._step: Fraction | None = None  # all prices are multiples of it
        self._paid = np.zeros(0, np.int64)  # steps per node
        self._most = 0  # steps on the most expensive path

    def pay(self, tree: Tree, nodes: Ints, steps: Ints, step: Fraction, charge: Callable[[Fraction], None]) -> None:
        """Charge what the most expensive path costs more than before, once these nodes have paid ``steps`` each."""
        if self._step not in (None, step):
            raise BadInput("The prices of single nodes are multiples of one and the same price.")
        if not (steps.min(initial=1) >= 1 and steps.max(initial=1) <= MAX_PRICE_STEPS):
            raise BadInput(f"The price of a node is 1 to {MAX_PRICE_STEPS} steps.")
        paid = np.zeros(tree.size, np.int64)
        paid[: len(self._paid)] = self._paid[: tree.size]
        paid[nodes] = steps
        most = max(int(_along_paths(tree, paid).max()), self._most)
        if most > self._most:
            charge((most - self._most) * step)
        self._step, self._paid, self._most = step, paid, most

    def forget_paths(self) -> None:
        """Begin anew: rows will be read again, and may lie on other paths by then."""
        self._paid, self._most = np.zeros(0, np.int64), 0


def _along_paths(tree: Tree, paid: Ints) -> Ints:
    """Return what has been paid from the root down to each node."""
    total = paid.copy()
    for level in range(1, tree.height + 1):
        nodes = tree.level(level)
        total[nodes] += total[tree.parent[nodes]]
    return total

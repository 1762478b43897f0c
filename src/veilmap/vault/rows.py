"""Rows in memory, each in one node of a tree. Exact, and for use inside the vault only. Proof: proofs/counting.md."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np

from veilmap.arrays import Ints
from veilmap.engines.tally import Count, Nodes, Step, keys_along
from veilmap.trees import Tree
from veilmap.vault.entropy import Keys, RandomBits
from veilmap.vault.mechanisms.sampling import poisson

MIN_ROWS_FOR_TWO_THREADS = 1 << 17  # below this, starting a thread costs more than it saves


class Rows:
    """The cells of every row, the deepest node that contains it, and the unit that it belongs to."""

    __slots__ = ("_node", "_unit", "cells")

    def __init__(self, cells: list[Ints], unit: Ints | None = None, node: Ints | None = None) -> None:
        self.cells, self._unit = cells, unit
        self._node = np.zeros(len(cells[0]), np.int64) if node is None else node

    def capped(self, max_rows_per_unit: int, keys: Keys) -> Rows:
        """Return at most this many rows per unit, chosen at random and independently of all other units."""
        if self._unit is None:
            return self
        random_words = RandomBits(keys.fresh()).words(len(self._unit), "<u8")
        order = np.lexsort((random_words, self._unit))
        unit = self._unit[order]
        rank = np.arange(len(unit)) - np.searchsorted(unit, unit)  # among the rows of the same unit
        return self._only(order[rank < max_rows_per_unit])

    def sampled(self, rate: Fraction, keys: Keys) -> Rows:
        """Return a Poisson sample of the units: all rows of a unit, or none."""
        if self._unit is None:
            return self._only(np.flatnonzero(poisson(rate, len(self._node), keys)))
        chosen = poisson(rate, int(self._unit.max(initial=-1)) + 1, keys)
        return self._only(np.flatnonzero(chosen[self._unit]))

    def _only(self, rows: Ints) -> Rows:
        unit = None if self._unit is None else self._unit[rows]
        return Rows([axis[rows] for axis in self.cells], unit, self._node[rows])

    def in_order(self) -> Rows:
        """Return rows of one axis, sorted along it. Cuts keep them sorted within every node."""
        return self._only(np.argsort(self.cells[0])) if self._unit is not None else Rows([np.sort(self.cells[0])])

    def along(self, order: int, bits: int) -> Rows:
        """Return the rows with a single axis: their place along a Hilbert curve."""
        return Rows([keys_along(tuple(self.cells), order, bits)], self._unit, self._node).in_order()

    def follow(self, step: Step) -> None:
        """Move every row to its node after the step."""
        n = len(self._node)
        pieces = [slice(0, n)] if n < MIN_ROWS_FOR_TWO_THREADS else [slice(0, n // 2), slice(n // 2, n)]
        with ThreadPoolExecutor(len(pieces)) as pool:
            list(
                pool.map(
                    lambda piece: step.follow(tuple(axis[piece] for axis in self.cells), self._node[piece]), pieces
                )
            )

    def tally(self, count: Count) -> Ints:
        """Return the exact counts of a question."""
        counts = np.zeros(count.size, np.int64)
        count.tally(tuple(self.cells), self._node, counts)
        return counts

    def loaded(self) -> Rows:
        return self

    def sorted_along(self, tree: Tree, axis: int, bits: int) -> tuple[Ints, Ints]:
        """Return the sorted cells of the frontier nodes along an axis, node after node, and where each node begins."""
        frontier = tree.level(tree.height)
        start = np.concatenate([[0], np.cumsum(self.tally(Nodes(tree.size))[frontier])])
        if len(self.cells) == 1:
            return self.cells[0][self._node >= frontier.start], start
        packed = ((self._node - frontier.start) << bits) | self.cells[axis]
        return np.sort(packed[packed >= 0]) & ((1 << bits) - 1), start

"""Rows in memory, each in one node of a tree. Exact, and for the vault alone. Proof: proofs/counting.md."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np

from veilmap.arrays import Ints
from veilmap.engines.tally import Count, Nodes, Step, keys_along
from veilmap.trees import Tree
from veilmap.vault.entropy import Keys, RandomBits
from veilmap.vault.mechanisms.sampling import poisson

MANY = 1 << 17  # rows that are worth two threads


class Rows:
    """The cells of every row, the deepest node that it lies in, and whose it is."""

    __slots__ = ("_node", "_unit", "cells")

    def __init__(self, cells: list[Ints], unit: Ints | None = None, node: Ints | None = None) -> None:
        self.cells, self._unit = cells, unit
        self._node = np.zeros(len(cells[0]), np.int64) if node is None else node

    def capped(self, most: int, keys: Keys) -> Rows:
        """At most so many rows of each unit, which ones by chance: that of one unit does not touch another's."""
        if self._unit is None:
            return self
        luck = RandomBits(keys.fresh()).words(len(self._unit), "<u8")
        order = np.lexsort((luck, self._unit))
        unit = self._unit[order]
        place = np.arange(len(unit)) - np.searchsorted(unit, unit)  # among the rows of its unit
        return self._only(order[place < most])

    def sampled(self, rate: Fraction, keys: Keys) -> Rows:
        """A Poisson sample of the units: all rows of a unit, or none."""
        if self._unit is None:
            return self._only(np.flatnonzero(poisson(rate, len(self._node), keys)))
        chosen = poisson(rate, int(self._unit.max(initial=-1)) + 1, keys)
        return self._only(np.flatnonzero(chosen[self._unit]))

    def _only(self, rows: Ints) -> Rows:
        unit = None if self._unit is None else self._unit[rows]
        return Rows([axis[rows] for axis in self.cells], unit, self._node[rows])

    def in_order(self) -> Rows:
        """Rows of one axis, sorted along it: so they are in every node, for as long as it is cut."""
        return self._only(np.argsort(self.cells[0])) if self._unit is not None else Rows([np.sort(self.cells[0])])

    def along(self, order: int, bits: int) -> Rows:
        """The same rows with one axis: a Hilbert curve."""
        return Rows([keys_along(tuple(self.cells), order, bits)], self._unit, self._node).in_order()

    def follow(self, step: Step) -> None:
        n = len(self._node)
        parts = [slice(0, n)] if n < MANY else [slice(0, n // 2), slice(n // 2, n)]
        with ThreadPoolExecutor(len(parts)) as pool:
            list(pool.map(lambda some: step.follow(tuple(axis[some] for axis in self.cells), self._node[some]), parts))

    def tally(self, count: Count) -> Ints:
        counts = np.zeros(count.size, np.int64)
        count.tally(tuple(self.cells), self._node, counts)
        return counts

    def loaded(self) -> Rows:
        return self

    def sorted_along(self, tree: Tree, axis: int, bits: int) -> tuple[Ints, Ints]:
        """The cells of each newest node along an axis, sorted, node after node; and where each node's begin."""
        newest = tree.level(tree.height)
        start = np.concatenate([[0], np.cumsum(self.tally(Nodes(tree.size))[newest])])
        if len(self.cells) == 1:
            return self.cells[0][self._node >= newest.start], start
        packed = ((self._node - newest.start) << bits) | self.cells[axis]
        return np.sort(packed[packed >= 0]) & ((1 << bits) - 1), start

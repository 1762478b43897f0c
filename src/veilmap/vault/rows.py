"""Rows in memory, each in one node of a tree. Exact, and for the vault alone. Proof: proofs/cells.md."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from veilmap.kernels.counting import follow_cuts, follow_parts, tally, tally_parts
from veilmap.tree import Ints, RegularTree, Tree, product
from veilmap.vault.entropy import Keys, RandomBits
from veilmap.vault.sampling import poisson


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

    def along(self, keys: Ints) -> Rows:
        """The same rows with one axis."""
        return Rows([keys], self._unit, self._node).in_order()

    def place(self, tree: RegularTree, bits: int) -> None:
        """From the root to the leaves of a regular tree, by the rule of ``add_axis``."""
        self._node[:] = tree.level_start[-2]
        for cells, parts, offsets in zip(self.cells, tree.grid(tree.height), tree.offsets(tree.height), strict=True):
            self._node += offsets[((cells + 1) * parts - 1) >> bits]

    def cut(self, grown: Tree, axis: int, at: Ints) -> None:
        """Follow ``Tree.cut`` to the tree that it made."""
        follow_cuts(self.cells[axis], at, grown.level_start[-3], grown.first_child, self._node)

    def split(self, grown: Tree, parts: Ints) -> None:
        """Follow ``Tree.split`` to the tree that it made."""
        above = grown.level(grown.height - 1)
        boxes = _boxes(grown, above, parts, grown.first_child[above])
        follow_parts(tuple(self.cells), boxes, above.start, self._node)

    def tallied(self, tree: Tree, side: Ints) -> Ints:
        """How many rows lie in each of the ``side`` parts an axis of the newest boxes, box after box."""
        newest, parts = tree.level(tree.height), np.tile(side[:, None], (1, len(self.cells)))
        size = product(parts)
        counts = np.zeros(int(size.sum()), np.int64)
        boxes = _boxes(tree, newest, parts, np.cumsum(size) - size)
        tally_parts(tuple(self.cells), boxes, newest.start, self._node, counts)
        return counts

    def counts(self, size: int) -> Ints:
        """How many rows each node has that no child of it has."""
        counts = np.zeros(size, np.int64)
        tally(self._node, counts)
        return counts

    def sorted_along(self, tree: Tree, axis: int, bits: int) -> tuple[Ints, Ints]:
        """The cells of each newest node along an axis, sorted, node after node; and where each node's begin."""
        newest = tree.level(tree.height)
        start = np.concatenate([[0], np.cumsum(self.counts(tree.size)[newest])])
        if len(self.cells) == 1:
            return self.cells[0][self._node >= newest.start], start
        packed = ((self._node - newest.start) << bits) | self.cells[axis]
        return np.sort(packed[packed >= 0]) & ((1 << bits) - 1), start


def _boxes(tree: Tree, nodes: slice, parts: Ints, start: Ints) -> Ints:
    """All that ``part_of`` needs to know of each box, side by side in memory."""
    boxes = np.empty((len(parts), 2 + 3 * parts.shape[1]), np.int64)
    boxes[:, 0], boxes[:, 1] = start, product(parts)
    boxes[:, 2::3], boxes[:, 4::3] = tree.lo[nodes], parts
    boxes[:, 3::3] = tree.hi[nodes] - tree.lo[nodes]
    return boxes

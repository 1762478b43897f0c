"""Rows in memory, each in one node of the newest level. Exact, and for the vault alone. Proof: proofs/cells.md."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilmap.kernels.counting import cut_rows, part_rows
from veilmap.tree import Parts, Tree

Ints = NDArray[np.int64]


class Rows:
    """The cells of every row, and the place of its node in the newest level."""

    __slots__ = ("_cells", "_node")

    def __init__(self, cells: list[Ints]) -> None:
        self._cells = cells
        self._node = np.zeros(len(cells[0]), np.int64)

    def cut(self, axis: int, at: Ints) -> None:
        """Follow ``Tree.cut``."""
        cut_rows(self._cells[axis], at, self._node)

    def refine(self, tree: Tree, parts: Parts) -> None:
        """Follow ``Tree.refine``; ``tree`` is the one that is refined."""
        newest, index = tree.level(tree.height), self._node.copy()
        for axis, n in enumerate(parts):
            lo, hi = tree.lo[newest, axis].copy(), tree.hi[newest, axis].copy()
            part_rows(self._cells[axis], lo, hi, n, self._node, index)
        self._node = index

    def counts(self, nodes: int) -> Ints:
        """How many rows each of the newest nodes has."""
        return np.bincount(self._node, minlength=nodes)

    def sorted_along(self, axis: int, nodes: int, bits: int) -> tuple[Ints, Ints]:
        """The cells of each newest node along an axis, sorted, node after node; and where each node's begin."""
        values = np.sort((self._node << bits) | self._cells[axis]) & ((1 << bits) - 1)
        return values, np.concatenate([[0], np.cumsum(self.counts(nodes))])

"""Counting questions: the number of rows in each of many counters. Proof: proofs/counting.md.

The counter of a row follows from its own cells and from public numbers. So rows may be counted on any machine and in
any order, and the counts are added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilmap.arrays import Flags, Floats, Ints
from veilmap.domain import Domain
from veilmap.kernels.counting import (
    add_axis,
    find_cells,
    follow_cuts,
    follow_parts,
    pack_boxes,
    tally,
    tally_grid,
    tally_parts,
)
from veilmap.kernels.hilbert import hilbert_keys
from veilmap.trees import Parts, RegularTree, Tree, product

Columns: TypeAlias = Sequence[NDArray[np.generic]]
"""One numeric array per axis, all of one length; NaN for a missing value."""
Cells: TypeAlias = tuple[Ints, ...]
"""The cells of rows, one array per axis."""

ROWS_PER_CHUNK = 1 << 16  # the indices of a chunk stay in the cache from axis to axis


class Step(Protocol):
    """A step from one level of a tree to the next."""

    def follow(self, cells: Cells, node: Ints) -> None:
        """Replace the node of each row, in place, by the child in which the row lies."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """The step from any node to the leaves of a regular tree, by the rule of ``add_axis``."""

    tree: RegularTree
    bits: int

    def follow(self, cells: Cells, node: Ints) -> None:
        grid, offsets = self.tree.grid(self.tree.height), self.tree.offsets(self.tree.height)
        node[:] = self.tree.level_start[-2]
        for axis, parts, offset in zip(cells, grid, offsets, strict=True):
            node += offset[((axis + 1) * parts - 1) >> self.bits]


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The step to the children that ``Tree.cut`` made."""

    axis: int
    at: Ints
    first: int
    first_child: Ints

    def follow(self, cells: Cells, node: Ints) -> None:
        follow_cuts(cells[self.axis], self.at, self.first, self.first_child, node)


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The step to the children that ``Tree.split`` made; ``boxes`` come from ``pack_node_boxes``."""

    boxes: Ints
    first: int

    def follow(self, cells: Cells, node: Ints) -> None:
        follow_parts(cells, self.boxes, self.first, node)


class Count(Protocol):
    """What is counted after rows have reached their nodes."""

    @property
    def size(self) -> int: ...

    def tally(self, cells: Cells, node: Ints, counts: NDArray[Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Nodes:
    """The number of rows at each node that are in none of its children."""

    size: int

    def tally(self, cells: Cells, node: Ints, counts: NDArray[Any]) -> None:
        tally(node, counts)


@dataclass(frozen=True, slots=True, eq=False)
class BoxParts:
    """The number of rows in each part of boxes, box after box."""

    boxes: Ints
    first: int
    size: int

    def tally(self, cells: Cells, node: Ints, counts: NDArray[Any]) -> None:
        tally_parts(cells, self.boxes, self.first, node, counts)


@dataclass(frozen=True, slots=True)
class Grids:
    """The number of rows in each box of several grids over the domain, grid after grid."""

    parts: tuple[Parts, ...]
    bits: int

    @property
    def sizes(self) -> list[int]:
        return [int(np.prod(parts)) for parts in self.parts]

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def tally(self, cells: Cells, node: Ints, counts: NDArray[Any]) -> None:
        counts_by_grid = np.split(counts, np.cumsum(self.sizes)[:-1])

        def tally_one(parts: Parts, grid_counts: NDArray[Any]) -> None:
            tally_grid(cells, np.array(parts), self.bits, grid_counts)

        if len(cells[0]) <= ROWS_PER_CHUNK:
            list(map(tally_one, self.parts, counts_by_grid))
        else:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(tally_one, self.parts, counts_by_grid))


class Question(Protocol):
    """A set of counters, each row of a data set belonging to at most one of them."""

    @property
    def size(self) -> int:
        """The number of counters."""
        ...

    def add(self, domain: Domain, columns: Columns, counts: NDArray[Any]) -> None:
        """Add 1 to the counter of each row. Rows with a NaN, infinite or outside value belong to no counter."""
        ...


@dataclass(frozen=True, slots=True)
class Grid:
    """The number of rows in each box of one grid over the domain, row-major. It needs coordinates, not cells."""

    parts: Parts

    @property
    def size(self) -> int:
        return math.prod(self.parts)

    def add(self, domain: Domain, columns: Columns, counts: NDArray[Any]) -> None:
        for chunk in _chunks(columns):
            index = np.zeros(len(chunk[0]), np.int32)
            for a, axis in enumerate(domain.axes):
                add_axis(floats(chunk[a]), axis.lo, axis.hi, domain.scale(a), domain.bits, self.parts[a], index)
            tally(index, counts)


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """A question about nodes of a tree: rows descend it step by step and are counted where they end."""

    steps: tuple[Step, ...]
    count: Count
    order: int | None  # of the Hilbert curve, if the tree splits ranges of keys along it

    @property
    def size(self) -> int:
        return self.count.size

    def add(self, domain: Domain, columns: Columns, counts: NDArray[Any]) -> None:
        for chunk in _chunks(columns):
            cells = select_rows(*cells_of(domain, chunk))
            if self.order is not None:
                cells = (keys_along(cells, self.order, domain.bits),)
            node = np.zeros(len(cells[0]), np.int64)
            for step in self.steps:
                step.follow(cells, node)
            self.count.tally(cells, node, counts)


def _chunks(columns: Columns) -> list[Columns]:
    return [[c[k : k + ROWS_PER_CHUNK] for c in columns] for k in range(0, len(columns[0]), ROWS_PER_CHUNK)]


def cells_of(domain: Domain, columns: Columns) -> tuple[Cells, Flags]:
    """Return the cells of rows, and a flag per row: whether it has a cell on every axis. Other rows are dropped."""
    cells = tuple(np.empty(len(column), np.int64) for column in columns)
    for a, axis in enumerate(domain.axes):
        find_cells(floats(columns[a]), axis.lo, axis.hi, domain.scale(a), domain.bits, cells[a])
    return cells, np.logical_and.reduce([axis >= 0 for axis in cells])


def select_rows(cells: Cells, kept: Flags) -> Cells:
    return cells if kept.all() else tuple(axis[kept] for axis in cells)


def keys_along(cells: Cells, order: int, bits: int) -> Ints:
    """Return the keys of rows along a Hilbert curve of the given order."""
    keys = np.empty(len(cells[0]), np.int64)
    hilbert_keys(np.stack(cells) >> (bits - order), order, keys)
    return keys


def floats(column: NDArray[np.generic]) -> Floats:
    with np.errstate(all="ignore"):  # numpy would warn about NaN and infinite values
        return np.ascontiguousarray(column, dtype=np.float64)


def pack_node_boxes(tree: Tree, nodes: slice, parts: Ints, start: Ints) -> Ints:
    """Return the boxes of nodes in the form that ``part_of`` takes."""
    boxes = np.empty((len(parts), 2 + 3 * parts.shape[1]), np.int64)
    pack_boxes(tree.lo[nodes], tree.hi[nodes], parts, start, boxes)
    return boxes


def split_step(grown: Tree, parts: Ints) -> Split:
    """Return the step to the frontier of a tree that ``Tree.split`` has grown with these parts."""
    above = grown.level(grown.height - 1)
    return Split(pack_node_boxes(grown, above, parts, grown.first_child[above]), above.start)


def parts_of(tree: Tree, side: Ints) -> BoxParts:
    """Return the count of parts of the frontier: each box is cut into its ``side`` parts per axis."""
    frontier = tree.level(tree.height)
    parts = np.tile(side[:, None], (1, tree.lo.shape[1]))
    size = product(parts)
    return BoxParts(pack_node_boxes(tree, frontier, parts, np.cumsum(size) - size), frontier.start, int(size.sum()))

"""Questions that rows are asked: how many lie in each place. Proof: proofs/counting.md.

The place of a row follows from its own cells and from public numbers. So rows may be asked anywhere, in any order,
and what they say is added up.
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
"""One numeric array an axis, all of one length; NaN where there is no value."""
Cells: TypeAlias = tuple[Ints, ...]
"""The cells of rows, one array an axis."""

ROWS_AT_ONCE = 1 << 16  # a chunk's indices stay in the cache between the axes


class Step(Protocol):
    """From one level of a tree to the next."""

    def follow(self, cells: Cells, node: Ints) -> None:
        """In place: each row goes from its node to the child that it lies in."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """From anywhere to the leaves of a regular tree, by the rule of ``add_axis``."""

    tree: RegularTree
    bits: int

    def follow(self, cells: Cells, node: Ints) -> None:
        grid, offsets = self.tree.grid(self.tree.height), self.tree.offsets(self.tree.height)
        node[:] = self.tree.level_start[-2]
        for axis, parts, offset in zip(cells, grid, offsets, strict=True):
            node += offset[((axis + 1) * parts - 1) >> self.bits]


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Follow ``Tree.cut`` to the tree that it made."""

    axis: int
    at: Ints
    first: int
    first_child: Ints

    def follow(self, cells: Cells, node: Ints) -> None:
        follow_cuts(cells[self.axis], self.at, self.first, self.first_child, node)


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Follow ``Tree.split`` to the tree that it made; ``boxes`` are those of ``packed``."""

    boxes: Ints
    first: int

    def follow(self, cells: Cells, node: Ints) -> None:
        follow_parts(cells, self.boxes, self.first, node)


class Count(Protocol):
    """What is counted of rows that have come to their nodes."""

    @property
    def size(self) -> int: ...

    def tally(self, cells: Cells, node: Ints, counts: NDArray[Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Nodes:
    """How many rows each node has that no child of it has."""

    size: int

    def tally(self, cells: Cells, node: Ints, counts: NDArray[Any]) -> None:
        tally(node, counts)


@dataclass(frozen=True, slots=True, eq=False)
class BoxParts:
    """How many rows lie in each part of boxes, box after box."""

    boxes: Ints
    first: int
    size: int

    def tally(self, cells: Cells, node: Ints, counts: NDArray[Any]) -> None:
        tally_parts(cells, self.boxes, self.first, node, counts)


@dataclass(frozen=True, slots=True)
class Grids:
    """How many rows lie in each box of grids over the domain, grid after grid."""

    parts: tuple[Parts, ...]
    bits: int

    @property
    def sizes(self) -> list[int]:
        return [int(np.prod(parts)) for parts in self.parts]

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def tally(self, cells: Cells, node: Ints, counts: NDArray[Any]) -> None:
        each = np.split(counts, np.cumsum(self.sizes)[:-1])

        def one(parts: Parts, mine: NDArray[Any]) -> None:
            tally_grid(cells, np.array(parts), self.bits, mine)

        if len(cells[0]) <= ROWS_AT_ONCE:
            list(map(one, self.parts, each))
        else:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(one, self.parts, each))


class Question(Protocol):
    """Asked of rows as they come."""

    @property
    def size(self) -> int:
        """How many places there are."""
        ...

    def add(self, domain: Domain, columns: Columns, counts: NDArray[Any]) -> None:
        """Add 1 to the count of each row's place. Rows with a NaN, infinite or outside value have none."""
        ...


@dataclass(frozen=True, slots=True)
class Grid:
    """How many rows lie in each box of one grid over the domain, row-major: asked of rows before they have cells."""

    parts: Parts

    @property
    def size(self) -> int:
        return math.prod(self.parts)

    def add(self, domain: Domain, columns: Columns, counts: NDArray[Any]) -> None:
        for some in _chunks(columns):
            index = np.zeros(len(some[0]), np.int32)
            for a, axis in enumerate(domain.axes):
                add_axis(floats(some[a]), axis.lo, axis.hi, domain.scale(a), domain.bits, self.parts[a], index)
            tally(index, counts)


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """Rows go down a tree, step by step, and are counted there."""

    steps: tuple[Step, ...]
    count: Count
    order: int | None  # of the curve, when the tree is one of keys along it

    @property
    def size(self) -> int:
        return self.count.size

    def add(self, domain: Domain, columns: Columns, counts: NDArray[Any]) -> None:
        for some in _chunks(columns):
            cells = only(*cells_of(domain, some))
            if self.order is not None:
                cells = (keys_along(cells, self.order, domain.bits),)
            node = np.zeros(len(cells[0]), np.int64)
            for step in self.steps:
                step.follow(cells, node)
            self.count.tally(cells, node, counts)


def _chunks(columns: Columns) -> list[Columns]:
    return [[c[k : k + ROWS_AT_ONCE] for c in columns] for k in range(0, len(columns[0]), ROWS_AT_ONCE)]


def cells_of(domain: Domain, columns: Columns) -> tuple[Cells, Flags]:
    """The cells of rows, and which of these have one on every axis; the others are dropped."""
    cells = tuple(np.empty(len(column), np.int64) for column in columns)
    for a, axis in enumerate(domain.axes):
        find_cells(floats(columns[a]), axis.lo, axis.hi, domain.scale(a), domain.bits, cells[a])
    return cells, np.logical_and.reduce([axis >= 0 for axis in cells])


def only(cells: Cells, kept: Flags) -> Cells:
    return cells if kept.all() else tuple(axis[kept] for axis in cells)


def keys_along(cells: Cells, order: int, bits: int) -> Ints:
    """Where rows lie on a Hilbert curve of an order."""
    keys = np.empty(len(cells[0]), np.int64)
    hilbert_keys(np.stack(cells) >> (bits - order), order, keys)
    return keys


def floats(column: NDArray[np.generic]) -> Floats:
    with np.errstate(all="ignore"):  # numpy would warn of odd values
        return np.ascontiguousarray(column, dtype=np.float64)


def packed(tree: Tree, nodes: slice, parts: Ints, start: Ints) -> Ints:
    """Boxes of nodes, as ``part_of`` takes them."""
    boxes = np.empty((len(parts), 2 + 3 * parts.shape[1]), np.int64)
    pack_boxes(tree.lo[nodes], tree.hi[nodes], parts, start, boxes)
    return boxes


def split_step(grown: Tree, parts: Ints) -> Split:
    """To the tree that ``Tree.split`` has grown with these parts."""
    above = grown.level(grown.height - 1)
    return Split(packed(grown, above, parts, grown.first_child[above]), above.start)


def parts_of(tree: Tree, side: Ints) -> BoxParts:
    """The ``side`` parts an axis of each newest box."""
    newest = tree.level(tree.height)
    parts = np.tile(side[:, None], (1, tree.lo.shape[1]))
    size = product(parts)
    return BoxParts(packed(tree, newest, parts, np.cumsum(size) - size), newest.start, int(size.sum()))

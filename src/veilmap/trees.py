"""Trees of boxes as flat arrays in level order. They hold boxes, never counts.

Node 0 is the root. Nodes are ordered by level, and siblings are adjacent, in the order of their parents. The number of
children of each node therefore determines the shape of a tree, and ``first_child`` is a cumulative sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TypeAlias, TypeVar

import numpy as np

from veilmap.arrays import Flags, Floats, Ints
from veilmap.kernels.counting import split_boxes
from veilmap.kernels.hilbert import range_boxes

Array = TypeVar("Array", Ints, Flags, Floats)
Parts: TypeAlias = tuple[int, ...]
"""The number of equal parts into which a box is divided, for each axis."""


def frozen(array: Array) -> Array:
    """Make an array read-only and return it: structures see trees while they grow."""
    array.flags.writeable = False
    return array


def product(parts: Ints) -> Ints:
    """Return the product of each row. Much faster than ``np.prod`` for many rows and few axes."""
    return reduce(np.multiply, parts.T)


class Tree:
    """Half-open integer boxes ``[lo, hi)``, each a leaf or the disjoint union of its children.

    A tree starts as one box and grows only by ``refine``, ``split`` and ``cut``, which divide boxes of the last level
    (the frontier) into disjoint boxes, so its leaves partition the domain by construction. Trees are immutable: these
    methods return new ones.
    """

    lo: Ints  # (nodes, axes)
    hi: Ints  # (nodes, axes)
    children: Ints  # number of children of each node
    level_start: tuple[int, ...]  # level i is the nodes level_start[i] : level_start[i + 1]
    overlapping = False  # whether boxes of different leaves may overlap

    def refine(self, parts: Parts) -> Tree:
        """Divide each frontier box into ``parts`` boxes, equal up to one cell, in row-major order."""
        boxes = self.level_start[-1] - self.level_start[-2]
        return self.split(np.tile(np.array(parts, np.int64), (boxes, 1)))

    def split(self, parts: Ints) -> Tree:
        """Divide each frontier box by its own row of ``parts``. A row of zeros leaves it a leaf."""
        frontier = self.level(self.height)
        if parts.dtype != np.int64 or parts.shape != self.lo[frontier].shape or np.any(parts < 0):
            raise ValueError("Parts must be 64-bit integers, 0 or more, one for each axis of each frontier box.")
        fanout = product(parts)
        low, high = np.empty((2, int(fanout.sum()), parts.shape[1]), np.int64)
        split_boxes(self.lo[frontier], self.hi[frontier], parts, low, high)
        return self._grown(low, high, fanout)

    def cut(self, axis: int, at: Ints, where: Flags | None = None) -> Tree:
        """Cut frontier boxes in two along an axis: cells below ``at``, and the remaining cells.

        With ``where``, cut only the boxes where it is true. The other boxes remain leaves.
        """
        frontier = self.level(self.height)
        chosen = np.ones(frontier.stop - frontier.start, np.bool_) if where is None else where
        if at.dtype != np.int64 or at.shape != chosen.shape or chosen.dtype != np.bool_:
            raise ValueError("Cuts must be 64-bit integers, one for each frontier box.")
        at, lo, hi = at[chosen], self.lo[frontier][chosen], self.hi[frontier][chosen]
        if np.any(at < lo[:, axis]) or np.any(at > hi[:, axis]):
            raise ValueError("A cut must lie inside its box.")
        left_hi, right_lo = hi.copy(), lo.copy()
        left_hi[:, axis] = right_lo[:, axis] = at
        lows, highs = np.stack([lo, right_lo], axis=1), np.stack([left_hi, hi], axis=1)
        return self._grown(lows.reshape(-1, lo.shape[1]), highs.reshape(-1, lo.shape[1]), np.where(chosen, 2, 0))

    def _grown(self, lo: Ints, hi: Ints, fanout: Ints) -> Tree:
        """Return the tree with one more level: ``fanout`` children for each frontier box."""
        children = np.concatenate([self.children, np.zeros(len(lo), np.int64)])
        children[self.level(self.height)] = fanout
        starts = (*self.level_start, self.size + len(lo))
        return CutTree(np.concatenate([self.lo, lo]), np.concatenate([self.hi, hi]), children, starts)

    @property
    def height(self) -> int:
        """Number of levels below the root."""
        return len(self.level_start) - 2

    @property
    def size(self) -> int:
        """Number of nodes."""
        return self.level_start[-1]

    def level(self, i: int) -> slice:
        """Return the nodes of a level."""
        return slice(self.level_start[i], self.level_start[i + 1])

    @cached_property
    def first_child(self) -> Ints:
        """Children of node ``v`` are ``first_child[v] : first_child[v + 1]``."""
        return frozen(np.concatenate([[1], 1 + np.cumsum(self.children)]))

    @cached_property
    def is_leaf(self) -> Flags:
        """Whether each node has no children."""
        return frozen(np.equal(self.children, 0))

    @cached_property
    def parent(self) -> Ints:
        """The parent of each node, -1 for the root."""
        return frozen(np.concatenate([[-1], np.repeat(np.arange(self.size), self.children)]))

    @cached_property
    def node_level(self) -> Ints:
        """The level of each node."""
        return frozen(np.repeat(np.arange(self.height + 1), np.diff(self.level_start)))


@dataclass(frozen=True, eq=False)
class CutTree(Tree):
    """A tree of any shape, with its boxes stored explicitly."""

    lo: Ints
    hi: Ints
    children: Ints
    level_start: tuple[int, ...]

    def __post_init__(self) -> None:
        for array in (self.lo, self.hi, self.children):
            frozen(array)

    @classmethod
    def root(cls, side: int, axes: int) -> Tree:
        """Return the tree that is one box of ``side`` cells per axis."""
        origin = np.zeros((1, axes), np.int64)
        return cls(origin, origin + side, np.zeros(1, np.int64), (0, 1))


@dataclass(frozen=True, eq=False)
class RegularTree(Tree):
    """A tree whose levels are grids: each node of level ``i`` is divided into ``splits[i]`` equal parts.

    Its arrays follow from ``splits``, and are computed when they are first used.
    """

    side: int  # cells of the domain per axis
    axes: int
    splits: tuple[Parts, ...] = ()

    def refine(self, parts: Parts) -> Tree:
        return RegularTree(self.side, self.axes, (*self.splits, parts))

    def shortened(self, height: int) -> RegularTree:
        """Return the tree without the levels below ``height``."""
        return RegularTree(self.side, self.axes, self.splits[:height])

    @cached_property
    def level_start(self) -> tuple[int, ...]:  # type: ignore[override]
        starts, size = [0, 1], 1
        for parts in self.splits:
            size *= math.prod(parts)
            starts.append(starts[-1] + size)
        return tuple(starts)

    @cached_property
    def _written_out(self) -> Tree:
        return reduce(lambda tree, parts: tree.refine(parts), self.splits, CutTree.root(self.side, self.axes))

    @cached_property
    def lo(self) -> Ints:  # type: ignore[override]
        return self._written_out.lo

    @cached_property
    def hi(self) -> Ints:  # type: ignore[override]
        return self._written_out.hi

    @cached_property
    def children(self) -> Ints:  # type: ignore[override]
        fanouts = [math.prod(parts) for parts in self.splits] + [0]
        return frozen(np.repeat(np.array(fanouts, np.int64), np.diff(self.level_start)))

    def grid(self, level: int) -> Parts:
        """Return the number of nodes of a level along each axis."""
        return tuple(math.prod(parts[a] for parts in self.splits[:level]) for a in range(self.axes))

    def offsets(self, level: int) -> tuple[Ints, ...]:
        """Return offsets per axis: the node at ``(x, y, …)`` of a level's grid has the number
        ``offsets[0][x] + offsets[1][y] + …`` in its level.

        The number of a node in its level has one digit per level, and each coordinate contributes to each digit.
        """
        offsets = [np.zeros(1, np.int64)] * self.axes
        for parts in self.splits[:level]:
            for a in range(self.axes):
                digit = np.arange(parts[a]) * math.prod(parts[a + 1 :])
                offsets[a] = (offsets[a][:, None] * math.prod(parts) + digit).ravel()
        return tuple(offsets)

    def places(self, level: int) -> Ints:
        """Return the node at each position of a level's grid, as an array of the grid's shape."""
        return self.level_start[level] + reduce(np.add.outer, self.offsets(level))


@dataclass(frozen=True, eq=False)
class CurveTree(Tree):
    """Ranges of a Hilbert curve's keys, which partition the domain; ``lo`` and ``hi`` are their bounding boxes.

    The bounding boxes of different ranges may overlap.
    """

    keys: Tree  # on one axis, with 2^(axes · order) keys
    axes: int
    order: int  # the curve visits a grid with 2^order cells per axis
    bits: int  # each of them is 2^(bits − order) cells of the domain wide

    overlapping = True

    @property
    def level_start(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.keys.level_start

    @property
    def children(self) -> Ints:  # type: ignore[override]
        return self.keys.children

    @cached_property
    def _boxes(self) -> tuple[Ints, Ints]:
        lo, hi = np.empty((2, self.size, self.axes), np.int64)
        range_boxes(self.keys.lo[:, 0].copy(), self.keys.hi[:, 0].copy(), self.axes, self.order, lo, hi)
        return frozen(lo << (self.bits - self.order)), frozen(hi << (self.bits - self.order))

    @property
    def lo(self) -> Ints:  # type: ignore[override]
        return self._boxes[0]

    @property
    def hi(self) -> Ints:  # type: ignore[override]
        return self._boxes[1]

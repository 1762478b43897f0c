"""Pairs of small synthetic data sets that differ by one row or person, in ways that are easy to detect."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np

from veilmap.arrays import Flags, Ints
from veilmap.domain import Domain
from veilmap.engines.tally import Grid, Question
from veilmap.kernels.hilbert import hilbert_keys
from veilmap.trees import CurveTree, Parts, RegularTree, Tree
from veilmap.vault import Sealed


@dataclass(frozen=True)
class KnownRows:
    """Rows whose cells are known. An audit makes thousands of releases and does not test the reading of rows."""

    cells: list[Ints]
    units: Ints | None = None
    rereadable = True
    limits_rows_per_unit = False

    def hold(self, domain: object, progress: object) -> list[Ints]:
        return self.cells

    def rows(self, domain: object, progress: object, choose: object = None) -> tuple[list[Ints], Ints | None]:
        return self.cells, self.units

    def tally(self, domain: Domain, question: Question, progress: object) -> Ints:
        parts = cast(Grid, question).parts  # the only question for rows that are held in memory
        if parts not in self._known:
            self._known[parts] = on_grid(np.stack(self.cells, axis=1), np.ones_like(self.cells[0]), parts, domain.bits)
        return self._known[parts].copy()

    @cached_property
    def _known(self) -> dict[Parts, Ints]:
        return {}


def on_grid(places: Ints, rows: Ints, parts: Parts, bits: int) -> Ints:
    """Return the number of rows in each box of a grid, in row-major order. ``rows`` are the rows per place."""
    counts = np.zeros(parts, np.int64)
    np.add.at(counts, tuple(((places + 1) * np.array(parts) - 1).T >> bits), rows)
    return counts.ravel()


def inside(lo: Ints, hi: Ints, places: Ints) -> Ints:
    """Return a matrix with 1 where a box (row) contains a place (column), else 0."""
    held: Flags = np.logical_and.reduce((lo[:, None] <= places) & (places < hi[:, None]), axis=2)
    return held.astype(np.int64)


class Look(NamedTuple):
    """A tree as seen by an adversary who knows both data sets."""

    tree: int  # a hash of all boxes
    path: int  # a hash of the boxes that contain the additional unit
    without: Ints  # exact counts without the additional unit
    having: Ints  # exact counts with it


@dataclass(frozen=True)
class Neighbours:
    """Two data sets with the same rows in one cell; one of them has an additional unit in another cell.

    Cells are numbered along the last axis. On the other axes, all rows are in the first cell.
    """

    name: str
    axes: int = 1
    bits: int = 1
    both: int = 0  # rows that both data sets have
    beside: int = 0  # the cell of these rows
    at: int = 0  # the cell of the additional unit
    most: int | None = None  # maximum number of rows per unit: the additional unit has twice as many plus one

    @cached_property
    def domain(self) -> Domain:
        return Domain({f"x{axis}": (0, 1) for axis in range(self.axes)}, bits=self.bits)

    def sealed(self, one_more: bool) -> Sealed:
        """Return the data set with or without the additional unit, as the vault reads it."""
        rows = (1 if self.most is None else 2 * self.most + 1) if one_more else 0
        last = np.repeat(np.array([self.beside, self.at]), [self.both, rows])
        units = np.concatenate([np.arange(1, self.both + 1), np.zeros(rows, np.int64)])
        cells = [np.zeros_like(last)] * (self.axes - 1) + [last]
        return Sealed(KnownRows(cells, None if self.most is None else units), self.domain, self.most)

    @cached_property
    def _places(self) -> Ints:
        places = np.zeros((2, self.axes), np.int64)
        places[:, -1] = self.beside, self.at
        return places

    @cached_property
    def _rows(self) -> Ints:
        """The number of rows at each place, without the additional unit and with it."""
        return np.array([[self.both, self.both], [0, self.most or 1]])

    def look(self, tree: Tree) -> Look:
        """Return the hashes of a tree and the exact counts of its nodes."""
        if not isinstance(tree, RegularTree):
            return self._look(tree)
        if tree.splits not in self._known:
            self._known[tree.splits] = self._look(tree)
        return self._known[tree.splits]

    @cached_property
    def _known(self) -> dict[tuple[Parts, ...], Look]:
        return {}

    def _look(self, tree: Tree) -> Look:
        places, boxes = self._places, tree
        if isinstance(tree, CurveTree):
            keys = np.empty(2, np.int64)
            hilbert_keys(np.ascontiguousarray(places.T >> (tree.bits - tree.order)), tree.order, keys)
            places, boxes = keys[:, None], tree.keys
        lo, hi = boxes.lo, boxes.hi
        without, having = (inside(lo, hi, places) @ self._rows).T
        path = having > without
        return Look(hash((lo.tobytes(), hi.tobytes())), hash((lo[path].tobytes(), hi[path].tobytes())), without, having)

    def on_grid(self, parts: Parts) -> tuple[Ints, Ints]:
        """Return the exact counts of the boxes of a grid, without the additional unit and with it."""
        without, having = (on_grid(self._places, rows, parts, self.bits) for rows in self._rows.T)
        return without, having


def usual(axes: int, most: int | None, halvings: int) -> list[Neighbours]:
    """Return the pairs of data sets that an audit tries. Each reveals another kind of flaw."""
    who, fine = "a row" if most is None else "a person", max(4 // axes, halvings)
    return [
        # counts reveal most with few levels
        Neighbours(f"{who} in an empty data set", axes, max(1, halvings), most=most),
        # a cut between two rows is the most likely one; without the additional row, all cuts are equally likely
        Neighbours(f"{who} next to another", axes, fine, both=1, beside=1, most=most),
        # a row in the last cell moves a mean as far as possible
        Neighbours(f"{who} in the last cell of an empty data set", axes, fine, at=(1 << fine) - 1, most=most),
        Neighbours(f"{who} added to a thousand", axes, max(1, halvings), both=1000, most=most),
    ]

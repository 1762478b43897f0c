"""Two made-up data sets, one with a row (or a person) more: small, and chosen so that it shows most."""

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
    """Rows whose cells are known: an audit draws thousands of releases, and reading rows is not its subject."""

    cells: list[Ints]
    units: Ints | None = None
    rereadable = True
    limits_rows_per_unit = False

    def hold(self, domain: object, progress: object) -> list[Ints]:
        return self.cells

    def rows(self, domain: object, progress: object, choose: object = None) -> tuple[list[Ints], Ints | None]:
        return self.cells, self.units

    def tally(self, domain: Domain, question: Question, progress: object) -> Ints:
        parts = cast(Grid, question).parts  # rows that are held are asked no other
        if parts not in self._known:
            self._known[parts] = on_grid(np.stack(self.cells, axis=1), np.ones_like(self.cells[0]), parts, domain.bits)
        return self._known[parts].copy()

    @cached_property
    def _known(self) -> dict[Parts, Ints]:
        return {}


def on_grid(places: Ints, times: Ints, parts: Parts, bits: int) -> Ints:
    """How often places lie in each box of a grid, row-major."""
    counts = np.zeros(parts, np.int64)
    np.add.at(counts, tuple(((places + 1) * np.array(parts) - 1).T >> bits), times)
    return counts.ravel()


def inside(lo: Ints, hi: Ints, places: Ints) -> Ints:
    """1 where a box (a row) holds a place (a column), else 0."""
    held: Flags = np.logical_and.reduce((lo[:, None] <= places) & (places < hi[:, None]), axis=2)
    return held.astype(np.int64)


class Look(NamedTuple):
    """What a tree looks like to someone who knows both data sets."""

    tree: int  # a hash of all boxes
    path: int  # of those that hold the one more
    without: Ints  # exact counts
    having: Ints  # the same, with the one more


@dataclass(frozen=True)
class Neighbours:
    """Rows of which both data sets have some in one cell, and one has a unit's rows more in another.

    Cells are counted along the last axis; along the others all rows lie in the first.
    """

    name: str
    axes: int = 1
    bits: int = 1
    both: int = 0
    beside: int = 0  # the cell of these
    at: int = 0  # the cell of the others
    most: int | None = None  # rows of a unit that count; the one more has twice as many and one

    @cached_property
    def domain(self) -> Domain:
        return Domain({f"x{axis}": (0, 1) for axis in range(self.axes)}, bits=self.bits)

    def sealed(self, one_more: bool) -> Sealed:
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
        """Of each place: without the one more, and with it."""
        return np.array([[self.both, self.both], [0, self.most or 1]])

    def look(self, tree: Tree) -> Look:
        """A tree, and the exact counts of all its nodes."""
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
        """The same of the boxes of a grid, row-major."""
        without, having = (on_grid(self._places, rows, parts, self.bits) for rows in self._rows.T)
        return without, having


def usual(axes: int, most: int | None, halvings: int) -> list[Neighbours]:
    """What an audit tries: each suits another way to tell a row."""
    who, fine = "a row" if most is None else "a person", max(4 // axes, halvings)
    return [
        # counts say most when there are few levels
        Neighbours(f"{who} of none", axes, max(1, halvings), most=most),
        # a cut between two rows is the likeliest one; without the one more, all are alike
        Neighbours(f"{who} beside another", axes, fine, both=1, beside=1, most=most),
        # the last cell moves a mean as far as can be
        Neighbours(f"{who} in the last cell, of none", axes, fine, at=(1 << fine) - 1, most=most),
        Neighbours(f"{who} more of a thousand", axes, max(1, halvings), both=1000, most=most),
    ]

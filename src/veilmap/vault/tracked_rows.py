"""The rows behind a growing tree. Exact, and for use inside the vault only. Proof: proofs/measure.md."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from veilmap.arrays import Ints
from veilmap.engines.tally import Count, Grid, Nodes, Place, Step
from veilmap.kernels.counting import sum_children
from veilmap.trees import RegularTree, Tree
from veilmap.vault.entropy import Keys
from veilmap.vault.rows import Rows
from veilmap.vault.sealed import Progress, Sealed
from veilmap.vault.stream import Stream


class TrackedRows:
    """Rows that follow the cuts of a tree. They are read when first needed, into memory or as a stream."""

    __slots__ = ("_counts", "_keys", "_points", "_progress", "_rows", "_sample", "streams")

    def __init__(self, points: Sealed, passes: int | None, keys: Keys, progress: Progress) -> None:
        self._points, self._keys, self._progress = points, keys, progress
        # A regular tree is counted without holding rows, unless units must be told apart, the tree later has other
        # cuts, or rows would have to be read twice from a source that can be read only once.
        self.streams = not points.has_units and (passes == 1 or (passes is not None and points.again))
        self._rows: Rows | Stream | None = None  # set when a tree that is not a regular grid needs them
        self._sample: Rows | None = None  # the rows that medians are computed on, if not all
        self._counts: Ints | None = None  # of all nodes, until the tree grows

    @property
    def read(self) -> bool:
        """Whether rows have been read and follow the tree."""
        return self._rows is not None

    def _tracked(self, tree: Tree) -> Rows | Stream:
        if self._rows is None:
            points, domain = self._points, self._points.domain
            if points.has_units:
                rows: Rows | Stream = Rows(*points._rows(self._progress)).capped(points.max_rows_per_unit, self._keys)
            else:
                source = (points._engine, domain) if self.streams else points._held(self._progress)
                rows = Rows(source) if isinstance(source, list) else Stream(*source, self._progress)
            self._rows = rows.in_order() if domain.dimensions == 1 else rows
            if isinstance(tree, RegularTree) and tree.size > 1:
                self._rows.follow(Place(tree, domain.bits))
        return self._rows

    def follow(self, tree: Tree, step: Step | None) -> None:
        """Move all rows by the step from ``tree`` to the next tree. ``None`` if no row has been read yet."""
        if step is not None:
            self._tracked(tree).follow(step)
            if self._sample is not None:
                self._sample.follow(step)
        self._counts = None

    def shorten(self, tree: RegularTree) -> None:
        """Move all rows back to a tree of fewer levels."""
        self._counts = None if self._counts is None else self._counts[: tree.size]
        for rows in (self._rows, self._sample):
            if rows is not None:
                rows.follow(Place(tree, self._points.domain.bits))

    def lay_along(self, tree: Tree, order: int) -> None:
        """Replace the axes of all rows by one: their place along a Hilbert curve."""
        self._rows = self._tracked(tree).along(order, self._points.domain.bits)

    def sample(self, tree: Tree, rate: Fraction) -> None:
        """Draw the sample of rows that medians are computed on."""
        self._sample = self._tracked(tree).sampled(rate, self._keys)

    def sorted_along(self, tree: Tree, axis: int) -> tuple[Ints, Ints]:
        """Return the sorted cells of frontier nodes along an axis, from the sample if any, and where each begins."""
        rows = self._sample
        if rows is None:
            self._rows = rows = self._tracked(tree).loaded()
        return rows.sorted_along(tree, axis, self._points.domain.bits)

    def tally(self, tree: Tree, count: Count) -> Ints:
        """Return the exact counts of a question."""
        return self._tracked(tree).tally(count)

    def counts(self, tree: Tree) -> Ints:
        """Return the exact counts of all nodes."""
        if self._counts is None:
            if self._rows is None and isinstance(tree, RegularTree) and self.streams:
                self._counts = np.zeros(tree.size, np.int64)
                leaves = tree.places(tree.height)
                self._counts[leaves] = self._points._tally(Grid(leaves.shape), self._progress).reshape(leaves.shape)
            else:
                self._counts = self.tally(tree, Nodes(tree.size))
            sum_children(tree.first_child, self._counts, tree.level_start[-2])
        return self._counts

    def forget_counts(self) -> None:
        """Free memory that only further counts would use."""
        self._counts = None

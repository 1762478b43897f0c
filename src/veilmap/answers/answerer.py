"""Counts in boxes and polygons with error bars, from published numbers alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from veilmap.answers.intervals import (
    border_fractions,
    calibrated_unevenness,
    fractions_of,
    half_widths,
    quantiles,
    skew_shift,
    variance_of,
)
from veilmap.answers.zones import are_zones, checked_zones
from veilmap.arrays import Floats, Ints
from veilmap.boxes import checked_boxes
from veilmap.domain import Domain
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.kernels import box_walks as kernel
from veilmap.kernels import marginal_lookups, marginals
from veilmap.kernels import polygon_counts as zone_kernel
from veilmap.kernels.grid_cuts import summed_area
from veilmap.trees import RegularTree, frozen

WORTH_TABLES = 64
"""A tree with more nodes than this for each box that is asked is walked, not made tables of."""
SHOWN = 5
SLOPES_OFF = 0.05
"""From three axes on leaves are wide, and slopes inside them may all be off together: by this part of what they add to
an answer, times the square of the directions of a border."""


class Errors(NamedTuple):
    """What the errors of answers are made of, each an array with an entry an answer."""

    noise_variance: Floats
    uneven: Floats  # Σ f (1 − f) q over leaves of which the query covers a part f, q their unevenness; as checked
    cut: Floats  # how many leaves those are


@dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """One answer a query: what is in it, how far off that may be, and an interval.

    The error covers the noise that was added for privacy, and the guess how points lie inside a cell which the
    query's border cuts. Errors are worked out when someone first looks at them.
    """

    estimate: Floats
    confidence: float
    _errors: Callable[[slice], Errors]  # of the answers in a slice
    _gaussian: bool  # whether the noise is

    @cached_property
    def _parts(self) -> Errors:
        return Errors(*map(frozen, self._errors(slice(None))))

    @cached_property
    def stderr(self) -> Floats:
        return frozen(np.sqrt(variance_of(*self._parts)))

    @cached_property
    def _ends(self) -> tuple[Floats, Floats]:
        half = half_widths(*self._parts, self.confidence, self._gaussian)
        middle = self.estimate + skew_shift(self.estimate, *self._parts, self.confidence, half)
        return frozen(np.maximum(middle - half, 0)), frozen(np.maximum(middle + half, 0))

    @property
    def low(self) -> Floats:
        return self._ends[0]

    @property
    def high(self) -> Floats:
        return self._ends[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return _written_out, (self.estimate, self.confidence, self._gaussian, *self._parts)

    def __repr__(self) -> str:
        some, more = self.estimate[:SHOWN], len(self.estimate) - SHOWN
        away = half_widths(*self._errors(slice(SHOWN)), self.confidence, self._gaussian)
        each = [f"{e:.6g} ± {r:.3g}" for e, r in zip(some, away, strict=True)]
        rest = [f"{more} more"] if more > 0 else []
        return f"<Answers at {100 * self.confidence:g} % confidence: {', '.join(each + rest) or 'none'}>"


def _written_out(estimate: Floats, confidence: float, gaussian: bool, *errors: Floats) -> Answers:
    """Answers whose errors are known."""
    return Answers(frozen(estimate), confidence, lambda some: Errors(*(part[some] for part in errors)), gaussian)


@dataclass(frozen=True, eq=False)
class Answerer:
    """Answers questions on one tree of estimates; tables are built at the first question that is worth them."""

    domain: Domain
    nodes: NodeEstimates
    consistent: bool
    gaussian: bool = False

    def count(self, asked: ArrayLike | object, confidence: float) -> Answers:
        quantiles(confidence)  # refuses what is no confidence, before any work
        if are_zones(asked):
            return self._in_zones(asked, confidence)
        return self.within(checked_boxes(cast(ArrayLike, asked), self.domain), confidence)

    def within(self, queries: Floats, confidence: float) -> Answers:
        """The same of boxes that are given as parts of the domain."""
        if self.consistent:
            errors = partial(self._consistent_errors, queries)
            return Answers(frozen(self._estimates(queries)), confidence, errors, self.gaussian)
        estimate, variance = self._walk(queries, self.nodes.noise_variance)
        return Answers(frozen(estimate), confidence, partial(self._other_errors, queries, variance), self.gaussian)

    # Estimates

    def _estimates(self, queries: Floats) -> Floats:
        tree, out = self.nodes.tree, np.empty(len(queries))
        if isinstance(tree, RegularTree) and self.nodes.slope is None:
            grid = np.array(tree.grid(tree.height), np.int64)
            kernel.look_up(self._table, grid, queries * np.tile(grid, 2), out)
        elif isinstance(tree, RegularTree):
            marginal_lookups.count_grid(self._grid, self._table, self._tilts, queries * self.domain.side, out)
        elif self._walks(len(queries)):
            out = self._walk(queries, self.nodes.subtree_variance)[0]
        else:
            marginal_lookups.count_boxes(self._marginals, queries * self.domain.side, out)
        return out

    def _walk(self, queries: Floats, variance: Floats) -> tuple[Floats, Floats]:
        nodes, cells, (out, spread) = self.nodes, queries * self.domain.side, np.empty((2, len(queries)))
        shape = nodes.tree.first_child, nodes.tree.lo, nodes.tree.hi
        kernel.walk(*shape, nodes.estimate, variance, cells, out, spread)
        if nodes.slope is not None:
            kernel.walk_slopes(*shape, nodes.slope, cells, out)
        return out, spread

    def _walks(self, boxes: int) -> bool:
        """Whether boxes are answered by walking the tree: few of them, or a tree whose boxes overlap."""
        few = "_marginals" not in vars(self) and boxes * WORTH_TABLES < self.nodes.tree.size
        return few or self.nodes.tree.overlapping

    # Errors

    def _consistent_errors(self, queries: Floats, some: slice) -> Errors:
        tree, variance, asked = self.nodes.tree, self.nodes.subtree_variance, queries[some]
        noise, cells = np.empty(len(asked)), asked * self.domain.side
        if isinstance(tree, RegularTree):
            grids = np.array([tree.grid(i) for i in range(tree.height + 1)], np.int64)
            kernel.grid_variance(grids, variance[np.array(tree.level_start[:-1])], asked, noise)
        elif self._walks(len(asked)):
            kernel.walk_variance(tree.first_child, tree.lo, tree.hi, variance, cells, noise)
        else:
            uneven, cut = np.empty((2, len(asked)))
            marginal_lookups.box_errors(self._marginals, self._spreads, cells, noise, uneven, cut)
            return Errors(noise, self._on_borders(asked, uneven, cut), cut)
        return Errors(noise, *self._cut(asked))

    def _other_errors(self, queries: Floats, variance: Floats, some: slice) -> Errors:
        return Errors(variance[some], *self._cut(queries[some]))

    def _cut(self, queries: Floats) -> tuple[Floats, Floats]:
        """Of each query Σ f (1 − f) q over the leaves that it cuts, and how many those are."""
        tree, unevenness, cells = self.nodes.tree, self.nodes.known_unevenness, queries * self.domain.side
        uneven, cut = np.zeros((2, len(queries)))
        if isinstance(tree, RegularTree) and unevenness is not None:
            marginal_lookups.cut_grid(self._grid, self._unevens, cells, uneven, cut)
        elif unevenness is not None:
            kernel.walk_cut(tree.first_child, tree.lo, tree.hi, unevenness, cells, uneven, cut)
        return self._on_borders(queries, uneven, cut), cut

    def _on_borders(self, queries: Floats, uneven: Floats, cut: Floats) -> Floats:
        """What is known of the whole release, beside its leaves."""
        found, nodes, axes = self.nodes.borders, self.nodes, self.domain.dimensions
        if axes > 2 and nodes.slope is not None and nodes.known_unevenness is not None:
            uneven = uneven + np.square(SLOPES_OFF * (axes - 1) ** 2 * self._by_slopes(queries))
        if found is None:
            return uneven
        return calibrated_unevenness(uneven, cut, border_fractions(queries), np.array(found.across), found.growth)

    def _by_slopes(self, queries: Floats) -> Floats:
        """What slopes add to answers."""
        tree, out = self.nodes.tree, np.zeros(len(queries))
        slope, cells = cast(Floats, self.nodes.slope), queries * self.domain.side
        kernel.walk_slopes(tree.first_child, tree.lo, tree.hi, slope, cells, out)
        return out

    # Polygons

    def _in_zones(self, asked: object, confidence: float) -> Answers:
        zones, nodes, found = checked_zones(asked, self.domain), self.nodes, self.nodes.borders
        tree, uneven, none = nodes.tree, nodes.known_unevenness, np.empty(0)
        out = np.empty((len(zones.start) - 1, 4))
        zone_kernel.walk_zones(
            tree.first_child,
            tree.lo,
            tree.hi,
            self._columns,
            nodes.estimate,
            np.empty((0, 2)) if nodes.slope is None else nodes.slope,
            none if uneven is None else uneven,
            nodes.subtree_variance if self.consistent else nodes.noise_variance,
            self._below if self.consistent else none,
            tree.height,
            zones.edges,
            zones.start,
            out,
        )
        estimate, noise, off, cut = out.T.copy()
        if found is not None:
            off = calibrated_unevenness(off, cut, fractions_of(zones.faces), np.array(found.across), found.growth)
        return _written_out(estimate, confidence, self.gaussian, noise, off, cut)

    @cached_property
    def _columns(self) -> Ints:
        tree, out = self.nodes.tree, np.empty(self.nodes.tree.size, np.int64)
        zone_kernel.grid_columns(tree.first_child, tree.lo, tree.hi, out)
        return out

    @cached_property
    def _below(self) -> Floats:
        out = np.empty(self.nodes.tree.size)
        zone_kernel.sum_children(self.nodes.tree.first_child, self.nodes.subtree_variance, out)
        return out

    # Tables

    @cached_property
    def _grouped(self) -> marginals.Grouped:
        tree, nodes = self.nodes.tree, self.nodes
        carries = (nodes.estimate != 0) | (nodes.subtree_variance != 0)
        return marginals.group(tree.first_child, tree.lo, tree.hi, carries)

    @cached_property
    def _marginals(self) -> marginals.Marginals:
        return marginals.add_up(self._grouped, self.nodes.estimate, self.nodes.slope)

    @cached_property
    def _spreads(self) -> marginals.Errors:
        return marginals.add_errors(self._grouped, self.nodes.subtree_variance, self.nodes.known_unevenness)

    @cached_property
    def _table(self) -> Floats:
        """Entry (x, y, …) is the estimate of all that lies below it on every axis: exact sums of exact numbers."""
        return self._summed(self.nodes.estimate)

    @cached_property
    def _tilts(self) -> Floats:
        """The same of half the slopes along each axis."""
        slope = cast(Floats, self.nodes.slope)
        return np.stack([self._summed(slope[:, k] / 2) for k in range(slope.shape[1])])

    @cached_property
    def _unevens(self) -> Floats:
        return self._summed(cast(Floats, self.nodes.known_unevenness))

    def _summed(self, values: Floats) -> Floats:
        tree = cast(RegularTree, self.nodes.tree)
        return summed_area(values[tree.places(tree.height)])

    @cached_property
    def _grid(self) -> marginals.Blocks:
        """The leaves of a regular tree are one block."""
        tree = cast(RegularTree, self.nodes.tree)
        axes = [RegularTree(tree.side, 1, tuple((parts[a],) for parts in tree.splits)) for a in range(tree.axes)]
        edges = [np.append(axis.lo[axis.level(axis.height), 0], tree.side) for axis in axes]
        starts = np.cumsum([0] + [len(edge) for edge in edges])
        shape = np.array([[*tree.grid(tree.height), *starts[:-1], 0]], np.int64)
        return marginals.Blocks(shape, np.concatenate(edges).astype(np.float64))


def reach(stderr: Floats, confidence: float, gaussian: bool) -> Floats:
    """How far the intervals of answers go to either side that cut no leaf: noise is all of their error."""
    none = np.zeros_like(stderr)
    return half_widths(np.square(stderr), none, none, confidence, gaussian)


def noise_intervals(estimate: Floats, stderr: Floats, confidence: float, gaussian: bool) -> tuple[Floats, Floats]:
    """Return the low and the high ends of the intervals of answers that cut no leaf, such as leaves themselves."""
    half = reach(stderr, confidence, gaussian)
    return np.maximum(estimate - half, 0), np.maximum(estimate + half, 0)

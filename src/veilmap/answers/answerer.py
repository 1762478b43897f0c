"""Answer counts in boxes and polygons with error bars, from published numbers alone."""

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

MAX_NODES_PER_BOX_FOR_TABLES = 64
"""Tables of marginals are built once a tree has at most this many nodes per queried box; otherwise it is walked."""
ANSWERS_IN_REPR = 5
SLOPE_ERROR_FRACTION = 0.05
"""With three or more axes, leaves are wide and the errors of their slopes are correlated. The standard error gains
this fraction of what slopes add to an answer, times (axes − 1)²."""


class Errors(NamedTuple):
    """The components of the errors of answers: arrays with one entry per answer."""

    noise_variance: Floats
    uneven: Floats  # Σ f (1 − f) q over cut leaves: f the covered fraction, q the unevenness; after calibration
    cut: Floats  # number of leaves that the query's border cuts


@dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """One answer per query: an estimate, its standard error and a confidence interval.

    The error covers the noise that was added for privacy, and the uncertainty about where points lie inside leaves
    that the query's border cuts. Errors are computed on first access.
    """

    estimate: Floats
    confidence: float
    _errors: Callable[[slice], Errors]  # returns the errors of the answers in a slice
    _gaussian: bool  # whether the noise is Gaussian

    @cached_property
    def error_parts(self) -> Errors:
        """What the error bars are made of."""
        return Errors(*map(frozen, self._errors(slice(None))))

    @cached_property
    def stderr(self) -> Floats:
        return frozen(np.sqrt(variance_of(*self.error_parts)))

    @cached_property
    def _ends(self) -> tuple[Floats, Floats]:
        half = half_widths(*self.error_parts, self.confidence, self._gaussian)
        middle = self.estimate + skew_shift(self.estimate, *self.error_parts, self.confidence, half)
        return frozen(np.maximum(middle - half, 0)), frozen(np.maximum(middle + half, 0))

    @property
    def low(self) -> Floats:
        return self._ends[0]

    @property
    def high(self) -> Floats:
        return self._ends[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return _answers_with_errors, (self.estimate, self.confidence, self._gaussian, *self.error_parts)

    def __repr__(self) -> str:
        shown, more = self.estimate[:ANSWERS_IN_REPR], len(self.estimate) - ANSWERS_IN_REPR
        half = half_widths(*self._errors(slice(ANSWERS_IN_REPR)), self.confidence, self._gaussian)
        texts = [f"{estimate:.6g} ± {width:.3g}" for estimate, width in zip(shown, half, strict=True)]
        rest = [f"{more} more"] if more > 0 else []
        return f"<Answers at {100 * self.confidence:g} % confidence: {', '.join(texts + rest) or 'none'}>"


def _answers_with_errors(estimate: Floats, confidence: float, gaussian: bool, *errors: Floats) -> Answers:
    """Return answers whose errors have been computed already."""
    return Answers(frozen(estimate), confidence, lambda part: Errors(*(array[part] for array in errors)), gaussian)


@dataclass(frozen=True, eq=False)
class Answerer:
    """Answers queries on one tree of estimates.

    Tables are built on the first call with enough boxes to make up for their cost.
    """

    domain: Domain
    nodes: NodeEstimates
    consistent: bool
    gaussian: bool = False

    def count(self, query: ArrayLike | object, confidence: float) -> Answers:
        """Answer boxes or polygons in the coordinates of the domain."""
        quantiles(confidence)  # raises if the confidence is out of range, before any work
        if are_zones(query):
            return self._in_zones(query, confidence)
        return self.within(checked_boxes(cast(ArrayLike, query), self.domain), confidence)

    def within(self, queries: Floats, confidence: float) -> Answers:
        """Answer boxes whose ends are fractions of the domain's sides, from 0 to 1."""
        if self.consistent:
            errors = partial(self._consistent_errors, queries)
            return Answers(frozen(self._estimates(queries)), confidence, errors, self.gaussian)
        estimate, variance = self._walk(queries, self.nodes.noise_variance)
        return Answers(
            frozen(estimate), confidence, partial(self._independent_errors, queries, variance), self.gaussian
        )

    # Estimates

    def _estimates(self, queries: Floats) -> Floats:
        """Return the counts of boxes, from tables where there are any."""
        tree, out = self.nodes.tree, np.empty(len(queries))
        if isinstance(tree, RegularTree) and self.nodes.slope is None:
            grid = np.array(tree.grid(tree.height), np.int64)
            kernel.interpolate_summed_area(self._table, grid, queries * np.tile(grid, 2), out)
        elif isinstance(tree, RegularTree):
            marginal_lookups.count_grid(
                self._grid, self._table, self._half_slope_tables, queries * self.domain.side, out
            )
        elif self._walks(len(queries)):
            out = self._walk(queries, self.nodes.subtree_variance)[0]
        else:
            marginal_lookups.count_boxes(self._marginals, queries * self.domain.side, out)
        return out

    def _walk(self, queries: Floats, variance: Floats) -> tuple[Floats, Floats]:
        """Return the counts of boxes by walking the tree, and their variances if node estimates are independent."""
        nodes, cells, (out, spread) = self.nodes, queries * self.domain.side, np.empty((2, len(queries)))
        shape = nodes.tree.first_child, nodes.tree.lo, nodes.tree.hi
        kernel.sum_canonical_nodes(*shape, nodes.estimate, variance, cells, out, spread)
        if nodes.slope is not None:
            kernel.add_slope_terms(*shape, nodes.slope, cells, out)
        return out, spread

    def _walks(self, boxes: int) -> bool:
        """Return whether to walk the tree instead of building tables: for few boxes, or if leaves' boxes overlap."""
        few = "_marginals" not in vars(self) and boxes * MAX_NODES_PER_BOX_FOR_TABLES < self.nodes.tree.size
        return few or self.nodes.tree.overlapping

    # Errors

    def _consistent_errors(self, queries: Floats, part: slice) -> Errors:
        """Return the errors of a slice of the queries, for least-squares estimates."""
        tree, variance, boxes = self.nodes.tree, self.nodes.subtree_variance, queries[part]
        noise, cells = np.empty(len(boxes)), boxes * self.domain.side
        if isinstance(tree, RegularTree):
            grids = np.array([tree.grid(i) for i in range(tree.height + 1)], np.int64)
            kernel.regular_tree_variance(grids, variance[np.array(tree.level_start[:-1])], boxes, noise)
        elif self._walks(len(boxes)):
            kernel.least_squares_variance(tree.first_child, tree.lo, tree.hi, variance, cells, noise)
        else:
            uneven, cut = np.empty((2, len(boxes)))
            marginal_lookups.box_errors(self._marginals, self._error_marginals, cells, noise, uneven, cut)
            return Errors(noise, self._calibrated(boxes, uneven, cut), cut)
        return Errors(noise, *self._cut(boxes))

    def _independent_errors(self, queries: Floats, variance: Floats, part: slice) -> Errors:
        """Return the errors of a slice of the queries, for node estimates with independent noise."""
        return Errors(variance[part], *self._cut(queries[part]))

    def _cut(self, queries: Floats) -> tuple[Floats, Floats]:
        """Return, per query, Σ f (1 − f) q over the leaves that it cuts, and the number of these leaves."""
        tree, unevenness, cells = self.nodes.tree, self.nodes.known_unevenness, queries * self.domain.side
        uneven, cut = np.zeros((2, len(queries)))
        if isinstance(tree, RegularTree) and unevenness is not None:
            marginal_lookups.sum_cut_grid(self._grid, self._unevenness_table, cells, uneven, cut)
        elif unevenness is not None:
            kernel.sum_cut_leaves(tree.first_child, tree.lo, tree.hi, unevenness, cells, uneven, cut)
        return self._calibrated(queries, uneven, cut), cut

    def _calibrated(self, queries: Floats, uneven: Floats, cut: Floats) -> Floats:
        """Return unevenness with the correlated error of slopes, scaled by the release's calibration if it has one."""
        borders, nodes, axes = self.nodes.borders, self.nodes, self.domain.dimensions
        if axes > 2 and nodes.slope is not None and nodes.known_unevenness is not None:
            uneven = uneven + np.square(SLOPE_ERROR_FRACTION * (axes - 1) ** 2 * self._slope_contributions(queries))
        if borders is None:
            return uneven
        return calibrated_unevenness(uneven, cut, border_fractions(queries), np.array(borders.across), borders.growth)

    def _slope_contributions(self, queries: Floats) -> Floats:
        """Return what the slopes inside leaves add to each answer."""
        tree, out = self.nodes.tree, np.zeros(len(queries))
        slope, cells = cast(Floats, self.nodes.slope), queries * self.domain.side
        kernel.add_slope_terms(tree.first_child, tree.lo, tree.hi, slope, cells, out)
        return out

    # Polygons

    def _in_zones(self, query: object, confidence: float) -> Answers:
        zones, nodes, borders = checked_zones(query, self.domain), self.nodes, self.nodes.borders
        tree, unevenness, none = nodes.tree, nodes.known_unevenness, np.empty(0)
        out = np.empty((len(zones.start) - 1, 4))
        zone_kernel.count_polygons(
            tree.first_child,
            tree.lo,
            tree.hi,
            self._grid_columns,
            nodes.estimate,
            np.empty((0, 2)) if nodes.slope is None else nodes.slope,
            none if unevenness is None else unevenness,
            nodes.subtree_variance if self.consistent else nodes.noise_variance,
            self._children_variance if self.consistent else none,
            tree.height,
            zones.edges,
            zones.start,
            out,
        )
        estimate, noise, uneven, cut = out.T.copy()
        if borders is not None:
            uneven = calibrated_unevenness(
                uneven, cut, fractions_of(zones.faces), np.array(borders.across), borders.growth
            )
        return _answers_with_errors(estimate, confidence, self.gaussian, noise, uneven, cut)

    @cached_property
    def _grid_columns(self) -> Ints:
        tree, out = self.nodes.tree, np.empty(self.nodes.tree.size, np.int64)
        zone_kernel.grid_columns(tree.first_child, tree.lo, tree.hi, out)
        return out

    @cached_property
    def _children_variance(self) -> Floats:
        """The sum of the children's subtree variances, per node."""
        out = np.empty(self.nodes.tree.size)
        zone_kernel.sum_children(self.nodes.tree.first_child, self.nodes.subtree_variance, out)
        return out

    # Tables

    @cached_property
    def _table_plan(self) -> marginals.TablePlan:
        tree, nodes = self.nodes.tree, self.nodes
        carries = (nodes.estimate != 0) | (nodes.subtree_variance != 0)
        return marginals.plan_tables(tree.first_child, tree.lo, tree.hi, carries)

    @cached_property
    def _marginals(self) -> marginals.Marginals:
        return marginals.build_marginals(self._table_plan, self.nodes.estimate, self.nodes.slope)

    @cached_property
    def _error_marginals(self) -> marginals.ErrorMarginals:
        variance, unevenness = self.nodes.subtree_variance, self.nodes.known_unevenness
        return marginals.build_error_marginals(self._table_plan, variance, unevenness)

    @cached_property
    def _table(self) -> Floats:
        """The summed-area table of a regular tree's leaf estimates.

        Estimates are multiples of a power of two, so the sums are exact.
        """
        return self._summed(self.nodes.estimate)

    @cached_property
    def _half_slope_tables(self) -> Floats:
        """Summed-area tables of half the leaves' slopes, one per axis."""
        slope = cast(Floats, self.nodes.slope)
        return np.stack([self._summed(slope[:, k] / 2) for k in range(slope.shape[1])])

    @cached_property
    def _unevenness_table(self) -> Floats:
        """The summed-area table of the leaves' unevenness."""
        return self._summed(cast(Floats, self.nodes.known_unevenness))

    def _summed(self, values: Floats) -> Floats:
        tree = cast(RegularTree, self.nodes.tree)
        return summed_area(values[tree.places(tree.height)])

    @cached_property
    def _grid(self) -> marginals.Blocks:
        """The leaves of a regular tree as one block."""
        tree = cast(RegularTree, self.nodes.tree)
        axes = [RegularTree(tree.side, 1, tuple((parts[a],) for parts in tree.splits)) for a in range(tree.axes)]
        edges = [np.append(axis.lo[axis.level(axis.height), 0], tree.side) for axis in axes]
        starts = np.cumsum([0] + [len(edge) for edge in edges])
        shape = np.array([[*tree.grid(tree.height), *starts[:-1], 0]], np.int64)
        return marginals.Blocks(shape, np.concatenate(edges).astype(np.float64))


def noise_intervals(estimate: Floats, stderr: Floats, confidence: float, gaussian: bool) -> tuple[Floats, Floats]:
    """Return the lower and upper ends of intervals whose error is noise alone: the counts of leaves and inner nodes."""
    none = np.zeros_like(stderr)
    half = half_widths(np.square(stderr), none, none, confidence, gaussian)
    return np.maximum(estimate - half, 0), np.maximum(estimate + half, 0)

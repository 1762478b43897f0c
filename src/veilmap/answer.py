"""Counts in boxes with error bars, from published numbers alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from statistics import NormalDist
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.estimate import Estimates
from veilmap.kernels import boxes as kernel
from veilmap.tree import RegularTree

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Answers:
    """One answer a query: what is in it, how far off that may be, and an interval.

    The error covers the noise that was added for privacy. It does not cover the guess that points lie
    evenly inside a cell which the query's border cuts.
    """

    estimate: Floats
    stderr: Floats
    low: Floats
    high: Floats
    confidence: float


@dataclass(frozen=True, eq=False)
class Answerer:
    """Answers boxes on one tree of estimates; tables are built at the first question."""

    domain: Domain
    nodes: Estimates
    consistent: bool

    def count(self, boxes: ArrayLike, confidence: float) -> Answers:
        times = multiplier(confidence)
        queries = checked_boxes(boxes, self.domain)
        if not self.consistent:
            estimate, variance = self._walk(queries, self.nodes.noise_variance)
        else:
            estimate, variance = self._consistent_estimates(queries), self._consistent_variances(queries)
        stderr = np.sqrt(variance)
        # Noise is whole numbers: where one draw dominates, one more may be needed to reach the confidence.
        reach = np.where(stderr > 0, times * stderr + 1, 0.0)
        low, high = estimate - reach, estimate + reach
        return Answers(estimate, stderr, np.maximum(low, 0), np.maximum(high, 0), confidence)

    def _consistent_estimates(self, queries: Floats) -> Floats:
        if isinstance(self.nodes.tree, RegularTree):
            return self._look_up(queries, self.nodes.tree)
        return self._walk(queries, self.nodes.subtree_variance)[0]

    def _consistent_variances(self, queries: Floats) -> Floats:
        tree, variance = self.nodes.tree, np.empty(len(queries))
        if isinstance(tree, RegularTree):
            grids = np.array([tree.grid(i) for i in range(tree.height + 1)], np.int64)
            per_level = self.nodes.subtree_variance[np.array(tree.level_start[:-1])]
            kernel.grid_variance(grids, per_level, queries, variance)
        else:
            cells = queries * self.domain.side
            kernel.walk_variance(tree.first_child, tree.lo, tree.hi, self.nodes.subtree_variance, cells, variance)
        return variance

    def _walk(self, queries: Floats, variance: Floats) -> tuple[Floats, Floats]:
        tree, out, spread = self.nodes.tree, np.empty(len(queries)), np.empty(len(queries))
        cells = queries * self.domain.side
        kernel.walk(tree.first_child, tree.lo, tree.hi, self.nodes.estimate, variance, cells, out, spread)
        return out, spread

    def _look_up(self, queries: Floats, tree: RegularTree) -> Floats:
        grid, out = np.array(tree.grid(tree.height), np.int64), np.empty(len(queries))
        kernel.look_up(self._table, grid, queries * np.tile(grid, 2), out)
        return out

    @cached_property
    def _table(self) -> Floats:
        """Entry (x, y, …) is the estimate of all that lies below it on every axis: exact sums of exact numbers."""
        tree = cast(RegularTree, self.nodes.tree)
        order = reduce(np.add.outer, tree.offsets(tree.height))
        table = np.zeros(tuple(g + 1 for g in tree.grid(tree.height)))
        inner = table[(slice(1, None),) * tree.axes]
        inner[...] = self.nodes.estimate[tree.level(tree.height)][order]
        for a in range(tree.axes):
            np.cumsum(inner, axis=a, out=inner)
        return table.ravel()


def checked_boxes(boxes: ArrayLike, domain: Domain) -> Floats:
    """Boxes as fractions of the domain: lo of each axis, then hi of each. What lies outside is cut off."""
    axes = domain.dimensions
    try:
        array = np.asarray(boxes, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"Boxes must be numbers, {2 * axes} a row: {_order(domain)}.") from None
    array = array[None, :] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] != 2 * axes:
        raise BadInput(f"A box of this domain is {2 * axes} numbers, {_order(domain)}; got shape {array.shape}.")
    out = np.empty(array.shape)
    bad = kernel.place_boxes(array, domain.lo, domain.hi, domain.side, out)
    if bad >= 0:
        fault = "has a NaN" if np.isnan(array[bad]).any() else "is inverted"
        raise BadInput(f"Box {bad} {fault}, {array[bad].tolist()}: give {_order(domain)}.")
    return out


def _order(domain: Domain) -> str:
    return ", ".join([f"low {n}" for n in domain.names] + [f"high {n}" for n in domain.names])


def multiplier(confidence: float) -> float:
    """How many standard errors make an interval, whether the noise is one Laplace draw or a sum of many.

    A single draw has heavier tails than a normal variable at 95 % (2.12 against 1.96), lighter ones
    nearer the middle; sums lie in between. So the larger of the two is taken.
    """
    if not isinstance(confidence, (int, float)) or not 0 < confidence < 1:
        raise BadInput(f"The confidence of an interval lies between 0 and 1, got {confidence!r}.")
    return max(-NormalDist().inv_cdf((1 - confidence) / 2), -math.log(1 - confidence) / math.sqrt(2))

"""Counts in boxes with error bars, from published numbers alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from statistics import NormalDist
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.estimate import Estimates
from veilmap.kernels import boxes as kernel
from veilmap.kernels import lookups, marginals
from veilmap.kernels.grids import summed_area
from veilmap.queries import checked_boxes
from veilmap.tree import RegularTree, frozen

Floats = NDArray[np.float64]


WORTH_TABLES = 256
"""A tree with more nodes than this for each box that is asked is walked, not made tables of."""
SHOWN = 5


@dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """One answer a query: what is in it, how far off that may be, and an interval.

    The error covers the noise that was added for privacy. It does not cover the guess that points lie
    evenly inside a cell which the query's border cuts. Errors are worked out when someone first looks at them.
    """

    estimate: Floats
    confidence: float
    _variance: Callable[[slice], Floats]  # of the answers in a slice

    @cached_property
    def stderr(self) -> Floats:
        return frozen(np.sqrt(self._variance(slice(None))))

    @cached_property
    def low(self) -> Floats:
        return frozen(np.maximum(self.estimate - reach(self.stderr, self.confidence), 0))

    @cached_property
    def high(self) -> Floats:
        return frozen(np.maximum(self.estimate + reach(self.stderr, self.confidence), 0))

    def __reduce__(self) -> tuple[Any, ...]:
        return _written_out, (self.estimate, self.stderr, self.confidence)

    def __repr__(self) -> str:
        some, more = slice(SHOWN), len(self.estimate) - SHOWN
        away = reach(np.sqrt(self._variance(some)), self.confidence)
        each = [f"{e:.6g} ± {r:.3g}" for e, r in zip(self.estimate[some], away, strict=True)]
        rest = [f"{more} more"] if more > 0 else []
        return f"<Answers at {100 * self.confidence:g} % confidence: {', '.join(each + rest) or 'none'}>"


def _written_out(estimate: Floats, stderr: Floats, confidence: float) -> Answers:
    """Answers whose errors are known."""
    answers = Answers(frozen(estimate), confidence, np.square(stderr).__getitem__)
    vars(answers)["stderr"] = frozen(stderr)
    return answers


@dataclass(frozen=True, eq=False)
class Answerer:
    """Answers boxes on one tree of estimates; tables are built at the first question that is worth them."""

    domain: Domain
    nodes: Estimates
    consistent: bool

    def count(self, boxes: ArrayLike, confidence: float) -> Answers:
        multiplier(confidence)  # refuses what is no confidence, before any work
        queries = checked_boxes(boxes, self.domain)
        if not self.consistent:
            estimate, variance = self._walk(queries, self.nodes.noise_variance)
            return Answers(frozen(estimate), confidence, variance.__getitem__)
        return Answers(frozen(self._estimates(queries)), confidence, partial(self._variances, queries))

    def _estimates(self, queries: Floats) -> Floats:
        tree, out = self.nodes.tree, np.empty(len(queries))
        if isinstance(tree, RegularTree):
            grid = np.array(tree.grid(tree.height), np.int64)
            kernel.look_up(self._table, grid, queries * np.tile(grid, 2), out)
            return out
        if self._walks(len(queries)):
            return self._walk(queries, self.nodes.subtree_variance)[0]
        lookups.count_boxes(self._marginals, queries * self.domain.side, out)
        return out

    def _variances(self, queries: Floats, some: slice) -> Floats:
        tree, variance, asked = self.nodes.tree, self.nodes.subtree_variance, queries[some]
        out, cells = np.empty(len(asked)), asked * self.domain.side
        if isinstance(tree, RegularTree):
            grids = np.array([tree.grid(i) for i in range(tree.height + 1)], np.int64)
            kernel.grid_variance(grids, variance[np.array(tree.level_start[:-1])], asked, out)
        elif self._walks(len(asked)):
            kernel.walk_variance(tree.first_child, tree.lo, tree.hi, variance, cells, out)
        else:
            lookups.box_variances(self._marginals, cells, out)
        return out

    def _walks(self, boxes: int) -> bool:
        """Whether boxes are answered by walking the tree: few of them, or a tree whose boxes overlap."""
        few = "_marginals" not in vars(self) and boxes * WORTH_TABLES < self.nodes.tree.size
        return few or self.nodes.tree.overlapping

    def _walk(self, queries: Floats, variance: Floats) -> tuple[Floats, Floats]:
        tree, out, spread = self.nodes.tree, np.empty(len(queries)), np.empty(len(queries))
        cells = queries * self.domain.side
        kernel.walk(tree.first_child, tree.lo, tree.hi, self.nodes.estimate, variance, cells, out, spread)
        return out, spread

    @cached_property
    def _marginals(self) -> marginals.Marginals:
        tree = self.nodes.tree
        return marginals.add_up(tree.first_child, tree.lo, tree.hi, self.nodes.estimate, self.nodes.subtree_variance)

    @cached_property
    def _table(self) -> Floats:
        """Entry (x, y, …) is the estimate of all that lies below it on every axis: exact sums of exact numbers."""
        tree = cast(RegularTree, self.nodes.tree)
        order = reduce(np.add.outer, tree.offsets(tree.height))
        return summed_area(self.nodes.estimate[tree.level(tree.height)][order])


def reach(stderr: Floats, confidence: float) -> Floats:
    """How far the intervals of answers with these standard errors go to either side.

    Noise is whole numbers: where one draw dominates, one more may be needed to reach the confidence.
    """
    return np.where(stderr > 0, multiplier(confidence) * stderr + 1, 0.0)


def multiplier(confidence: float) -> float:
    """How many standard errors make an interval, whether the noise is one Laplace draw or a sum of many.

    A single draw has heavier tails than a normal variable at 95 % (2.12 against 1.96), lighter ones
    nearer the middle; sums lie in between. So the larger of the two is taken.
    """
    if not isinstance(confidence, (int, float)) or not 0 < confidence < 1:
        raise BadInput(f"The confidence of an interval lies between 0 and 1, got {confidence!r}.")
    return max(-NormalDist().inv_cdf((1 - confidence) / 2), -math.log(1 - confidence) / math.sqrt(2))

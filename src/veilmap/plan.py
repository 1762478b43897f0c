"""What a release will be worth, before a budget is spent and without the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap.amounts import exact_epsilon
from veilmap.answer import Answerer, reach
from veilmap.curve import CurveTree
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.estimate import estimate
from veilmap.method import DEFAULT_METHOD, Estimate, Method, Noise
from veilmap.publish import BYTES_A_NODE, checked_delta, must_fit, resolve, settled
from veilmap.structures import Budget, Gate, middles
from veilmap.tree import CutTree, Ints, RegularTree, Tree
from veilmap.vault import LaplacePrice, NoisyTree, decay, price_of

MOST_ROWS = 10**12
SIDES = (0.5, 0.25, 0.1, 0.03, 0.01)
"""Boxes that people ask for: these parts of every axis."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The standard error that privacy will cost on boxes of one size, placed at random."""

    side: float  # part of each axis
    stderr: float  # root mean square over the places
    margin: float  # half of a 95 % interval


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A method, an epsilon and a domain, and what follows from them."""

    domain: Domain
    method: Method
    epsilon: Fraction
    height: int
    nodes: int
    memory: int  # bytes while it is made
    _answerer: Answerer

    def stderr(self, boxes: ArrayLike) -> NDArray[np.float64]:
        """The standard error of the answer to each box."""
        return self._answerer.count(boxes, 0.95).stderr

    def predictions(self) -> list[Prediction]:
        places = np.random.default_rng(0).random((200, self.domain.dimensions))  # an example, not a secret
        lo, width = self.domain.lo, self.domain.hi - self.domain.lo
        out = []
        for side in SIDES:
            low = lo + places * (1 - side) * width
            error = float(np.sqrt(np.mean(self.stderr(np.hstack([low, low + side * width])) ** 2)))
            out.append(Prediction(side, error, float(reach(np.array([error]), 0.95)[0])))
        return out


def plan(
    domain: Domain,
    epsilon: object,
    method: str | Method = DEFAULT_METHOD,
    height: int | None = None,
    rows: int | None = None,
    *,
    delta: object = None,
    sample: object = None,
    noise: str | Noise | None = None,
    budget: Budget | None = None,
    options: Mapping[str, object] | None = None,
    max_rows_per_unit: int = 1,
) -> Plan:
    """Predict the error of a release.

    Where the method would follow the noisy number of rows, ``rows`` is a guess of it; for structures that
    follow the data, the prediction is for rows that lie evenly.
    """
    chosen, total = resolve(method, height, None, sample, noise, budget, options), exact_epsilon(epsilon)
    chance = checked_delta(chosen, delta)
    chosen = settled(chosen, domain)
    must_fit(chosen, domain)
    if rows is None and (chosen.structure.height is None or chosen.structure.nodes(domain.dimensions) is None):
        raise BadInput("The tree depends on the number of rows: give a guess of it, or a height if the method has one.")
    if rows is not None and not (type(rows) is int and 0 <= rows <= MOST_ROWS):
        raise BadInput(f"A guess of the rows is a whole number from 0 to {MOST_ROWS:.0e}, got {rows!r}.")
    if type(max_rows_per_unit) is not int or max_rows_per_unit < 1:
        raise BadInput(f"A unit may have 1 or more rows, got max_rows_per_unit={max_rows_per_unit!r}.")
    empty = rehearse(domain, chosen, total, rows or 0, chance, max_rows_per_unit)
    answerer = Answerer(domain, estimate(empty, chosen), chosen.estimate is not Estimate.NOISY_COUNTS)
    size = empty.tree.size
    return Plan(domain, chosen, total, empty.tree.height, size, size * BYTES_A_NODE, answerer)


def rehearse(
    domain: Domain, method: Method, epsilon: Fraction, rows: int, delta: Fraction = Fraction(0), most_rows: int = 1
) -> NoisyTree:
    """Grow the tree of a method without data, as if ``rows`` rows lay evenly: medians are middles.

    The standard error of an answer does not depend on the counts, so this tree has it too; for a structure
    that follows the data, it is that of evenly spread data.
    """
    price, total = price_of(method, epsilon, delta, most_rows)
    return Rehearsal(domain, price, rows).run(method, total, delta)


class Rehearsal:
    """The gate without the data. It charges nothing and draws nothing."""

    def __init__(self, domain: Domain, price: LaplacePrice, rows: int) -> None:
        self.domain, self.price, self.rows = domain, price, rows
        self.tree: Tree = RegularTree(domain.side, domain.dimensions)
        self.order: int | None = None
        self.variance = np.zeros(0)  # by node

    def run(self, method: Method, total: Fraction, delta: Fraction) -> NoisyTree:
        gate = Gate(
            domain=self.domain,
            delta=delta,
            power=self.price.power,
            sharpness=self.price.sharpness,
            tree=lambda: self.tree,
            boxes=self.boxes,
            refine=lambda parts: self.grow(self.tree.refine(parts)),
            split=lambda parts: self.grow(self.tree.split(parts)),
            cut=lambda axis, at, where: self.grow(self.tree.cut(axis, at, where)),
            shorten=lambda height: self.grow(cast(RegularTree, self.tree).shortened(height)),
            follow=self.follow,
            sample=lambda rate, part, chance, mechanism: part,
            medians=lambda axis, part, chance, mechanism: middles(self.tree, axis),
            dense=self.dense,
            grid=lambda parts, part: np.full(math.prod(parts), self.rows // math.prod(parts)),
            count=lambda level, part: self.count(self.nodes(self.tree.level(level)), part),
            count_leaves=lambda part: self.count(np.flatnonzero(self.tree.is_leaf), part),
            count_each=self.count_each,
        )
        method.structure.grow(gate, total, method.budget)
        return NoisyTree(self.boxes(), np.zeros(self.tree.size, np.int64), self.spread(), (), False)

    def boxes(self) -> Tree:
        domain = self.domain
        return self.tree if self.order is None else CurveTree(self.tree, domain.dimensions, self.order, domain.bits)

    def nodes(self, of: slice) -> Ints:
        return np.arange(of.start, of.stop)

    def spread(self) -> NDArray[np.float64]:
        """The variances so far, as many as there are nodes."""
        more = np.full(max(0, self.tree.size - len(self.variance)), np.inf)
        self.variance = np.concatenate([self.variance[: self.tree.size], more])
        return self.variance

    def grow(self, tree: Tree) -> None:
        self.tree = tree

    def follow(self, order: int) -> None:
        self.order, self.tree = order, CutTree.root(1 << (order * self.domain.dimensions), 1)

    def expected(self, nodes: Ints) -> Ints:
        """Even counts."""
        whole = float(self.tree.hi[0, 0])
        volume = np.prod((self.tree.hi[nodes] - self.tree.lo[nodes]) / whole, axis=1)
        counts: Ints = (self.rows * volume).astype(np.int64)
        return counts

    def dense(self, part: Fraction) -> NDArray[np.bool_]:
        _, step = decay(self.price.pure(part) / self.price.rows, 2**self.domain.dimensions)
        return self.expected(self.nodes(self.tree.level(self.tree.height))) > self.tree.height * step

    def count(self, nodes: Ints, part: Fraction) -> Ints:
        self.spread()[nodes] = self.price.variance(part)
        return self.expected(nodes)

    def count_each(self, nodes: Ints, grains: Ints, one: Fraction) -> Ints:
        for price in np.unique(grains).tolist():
            self.count(nodes[grains == price], price * one)
        return self.expected(nodes)

"""What a release will be worth, before a budget is spent and without the data."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap.answer import Answerer, multiplier
from veilmap.budget import exact_epsilon
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.estimate import estimate
from veilmap.method import DEFAULT_METHOD, Estimate, Method
from veilmap.publish import BYTES_A_NODE, must_fit, resolve
from veilmap.structures import Gate, middles
from veilmap.tree import Parts, RegularTree, Tree
from veilmap.vault import NoisyTree, noise_variance

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
            out.append(Prediction(side, error, multiplier(0.95) * error))
        return out


def plan(
    domain: Domain,
    epsilon: object,
    method: str | Method = DEFAULT_METHOD,
    height: int | None = None,
    rows: int | None = None,
) -> Plan:
    """Predict the error of a release.

    Where the method would choose its height from the noisy number of rows, ``rows`` is a guess of it.
    """
    chosen, budget = resolve(method, height, None), exact_epsilon(epsilon)
    must_fit(chosen, domain)
    if chosen.structure.height is None and rows is None:
        raise BadInput("The height depends on the number of rows: give a height, or a guess of the rows.")
    if rows is not None and rows < 0:
        raise BadInput(f"A guess of the rows is 0 or more, got {rows}.")
    empty = rehearse(domain, chosen, budget, rows or 0)
    answerer = Answerer(domain, estimate(empty, chosen), chosen.estimate is not Estimate.NOISY_COUNTS)
    size = empty.tree.size
    return Plan(domain, chosen, budget, empty.tree.height, size, size * BYTES_A_NODE, answerer)


def rehearse(domain: Domain, method: Method, epsilon: Fraction, rows: int) -> NoisyTree:
    """Grow the tree of a method without data: counts are 0 but for the root's, medians are middles.

    The standard error of an answer does not depend on the counts, so this tree has it too; for a structure
    that follows the data, it is that of evenly spread data.
    """
    tree: Tree = RegularTree(domain.side, domain.dimensions)
    spread: dict[int, float] = {}

    def refine(parts: Parts) -> None:
        nonlocal tree
        tree = tree.refine(parts)

    def cut(axis: int, at: NDArray[np.int64]) -> None:
        nonlocal tree
        tree = tree.cut(axis, at)

    def shorten(height: int) -> None:
        nonlocal tree
        tree = tree.shortened(height)

    def count(level: int, part: Fraction) -> NDArray[np.int64]:
        nodes = tree.level(level)
        spread[level] = noise_variance(part)
        return np.full(nodes.stop - nodes.start, rows if level == 0 else 0)

    def medians(axis: int, part: Fraction) -> NDArray[np.int64]:
        return middles(tree, axis)

    gate = Gate(domain, lambda: tree, refine, cut, shorten, medians, count)
    method.structure.grow(gate, epsilon, method.budget)
    variance = [spread.get(level, np.inf) for level in range(tree.height + 1)]
    sizes = np.diff(tree.level_start)
    return NoisyTree(tree, np.zeros(tree.size, np.int64), np.repeat(np.array(variance), sizes), (), False)

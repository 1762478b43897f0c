"""What a release will be worth, before a budget is spent and without the data."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Real
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap.amounts import LEAST_EPSILON, MOST_EPSILON, exact_epsilon
from veilmap.answer import Answerer, Answers
from veilmap.curve import CurveTree
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.estimate import Estimates, least_squares, prune
from veilmap.method import DEFAULT_METHOD, Estimate, Method, Noise
from veilmap.needs import Asked, Needs, must_be_had, needs
from veilmap.publish import checked_delta, must_fit, resolve, settled
from veilmap.structures import RUN, Budget, Gate, middles
from veilmap.tree import CutTree, Ints, Parts, RegularTree, Tree
from veilmap.vault import LaplacePrice, NoisyTree, decay, price_of

MOST_ROWS = 10**12
ROUGH = 0.25  # |first half − second half| of a cell, as a part of it, beyond chance: about the middle of many real sets
SIDES = (0.5, 0.25, 0.1, 0.03, 0.01)
"""Boxes that people ask for: these parts of every axis."""
ROUND_EPSILONS = tuple(
    epsilon
    for power in range(-7, 2)
    for digits in range(10, 100)
    if LEAST_EPSILON <= (epsilon := digits * Fraction(10) ** power) <= MOST_EPSILON
)
"""All that may be spent, with two digits."""
LARGE = 200_000  # nodes of a tree: more of them take long to plan, but fit their epsilon more smoothly
NEAR = 1.5  # margins too wide by less than this: every epsilon is tried
EVERY = slice(None)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The error of boxes of one size, placed at random: root mean squares over the places."""

    side: float  # part of each axis
    stderr: float
    margin: float  # how far a 95 % interval reaches, up, which is no less than down


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A method, an epsilon and a domain, and what follows from them.

    With a guess of the rows, errors cover the noise that privacy costs and the cells that a box cuts; without, they
    cover the noise alone.
    """

    domain: Domain
    method: Method
    epsilon: Fraction
    rows: int | None  # a guess
    height: int
    nodes: int
    needs: Needs
    _answerer: Answerer

    def count(self, boxes: ArrayLike, confidence: float = 0.95) -> Answers:
        """What a release would say of such rows: its errors are the prediction."""
        return self._answerer.count(boxes, confidence)

    def stderr(self, boxes: ArrayLike) -> NDArray[np.float64]:
        """The standard error of the answer to each box."""
        return self.count(boxes).stderr

    def margin(self, boxes: ArrayLike) -> NDArray[np.float64]:
        """How far the 95 % interval of each box reaches: up, which is no less than down."""
        answers = self.count(boxes)
        return answers.high - answers.estimate

    def predictions(self, sides: Sequence[float] = SIDES) -> list[Prediction]:
        places = np.random.default_rng(0).random((200, self.domain.dimensions))  # an example, not a secret
        lo, width = self.domain.lo, self.domain.hi - self.domain.lo
        out = []
        for side in sides:
            low = lo + places * (1 - side) * width
            answers = self.count(np.hstack([low, low + side * width]))
            errors = answers.stderr, answers.high - answers.estimate
            out.append(Prediction(side, *(float(np.sqrt(np.mean(error**2))) for error in errors)))
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
    estimate: str | Estimate | None = None,
    budget: Budget | None = None,
    options: Mapping[str, object] | None = None,
    max_rows_per_unit: int | None = None,
    engine: str = "local",
) -> Plan:
    """Predict the error of a release, and what it takes of a machine.

    ``rows`` is a guess of their number, which must be given where the tree depends on it. The prediction is for rows
    that are spread over the whole domain, as unevenly as is usual inside a cell: where they crowd, a release will be
    less accurate than that, and more so where there are few.

    What has no room on this machine is refused, for rows in files; with the engine ``spark``, rows are elsewhere, but
    for those that medians are asked of.
    """
    chosen, total = resolve(method, height, None, sample, noise, budget, options, estimate), exact_epsilon(epsilon)
    chance = checked_delta(chosen, delta)
    chosen = settled(chosen, domain)
    must_fit(chosen, domain)
    if rows is None and (chosen.structure.height is None or chosen.structure.nodes(domain.dimensions) is None):
        raise BadInput("The tree depends on the number of rows: give a guess of it, or a height if the method has one.")
    if rows is not None and not (type(rows) is int and 0 <= rows <= MOST_ROWS):
        raise BadInput(f"A guess of the rows is a whole number from 0 to {MOST_ROWS:.0e}, got {rows!r}.")
    if max_rows_per_unit is not None and (type(max_rows_per_unit) is not int or max_rows_per_unit < 1):
        raise BadInput(f"A unit may have 1 or more rows, got max_rows_per_unit={max_rows_per_unit!r}.")
    if engine not in ("local", "spark"):
        raise BadInput(f"An engine is local or spark, got {engine!r}.")
    price, budgeted = price_of(chosen, total, chance, max_rows_per_unit or 1)
    rehearsal = Rehearsal(domain, price, rows or 0)
    noisy = rehearsal.run(chosen, budgeted, chance)
    nodes = even_estimates(noisy, chosen, rows)
    gaussian = chosen.noise is Noise.DISCRETE_GAUSSIAN
    answerer = Answerer(domain, nodes, chosen.estimate is not Estimate.NOISY_COUNTS, gaussian)
    on_spark = engine == "spark"
    people = max_rows_per_unit is not None and not on_spark
    found = needs(chosen, domain, rehearsal.asked(), rows or 0, people, on_spark)
    must_be_had(found, chosen, people)
    return Plan(domain, chosen, total, rows, nodes.tree.height, nodes.tree.size, found, answerer)


def plan_within(
    domain: Domain,
    within: float,
    side: float,
    method: str | Method = DEFAULT_METHOD,
    height: int | None = None,
    rows: int | None = None,
    **options: Any,
) -> Plan:
    """The smallest epsilon, of two digits, that is enough for ± ``within`` on boxes of a part ``side`` of each axis.

    That is half of a 95 % interval, as :func:`plan` predicts it for boxes placed at random; the other arguments are
    those of ``plan``. Where no epsilon is enough, this is refused. A little more epsilon may change the tree and make
    the margin wider, so epsilons are tried from below, in steps that shorten as the margin comes near; of trees with
    very many nodes fewer are tried, and a slightly smaller epsilon may be enough too.
    """
    if not (_is_number(within) and 0 < within < math.inf):
        raise BadInput(f"within is a number of rows above 0, got {within!r}.")
    if not (_is_number(side) and 0 < side <= 1):
        raise BadInput(f"side is a part of each axis, above 0 and up to 1, got {side!r}.")

    def planned(at: int) -> tuple[Plan, float]:
        made = plan(domain, ROUND_EPSILONS[at], method, height, rows, **options)
        return made, made.predictions([side])[0].margin

    at = before = 0
    made, margin = planned(at)
    nearest = margin, made.epsilon
    while margin > within:
        if at == len(ROUND_EPSILONS) - 1:
            raise BadInput(
                f"No epsilon is enough for ±{within:g} on boxes of {100 * side:g} % of each axis: of those tried, "
                f"{float(nearest[1]):g} comes nearest, with ±{nearest[0]:.3g}. Ask for wider bounds, or take another "
                "method."
            )
        before, at = at, _next_to_try(at, margin / within, made.nodes)
        made, margin = planned(at)
        nearest = min(nearest, (margin, made.epsilon))
    first = bisect_left(range(at), True, before + 1, key=lambda i: planned(i)[1] <= within) if at else 0
    return made if first == at else planned(first)[0]


def _next_to_try(at: int, ratio: float, nodes: int) -> int:
    """Which of the round epsilons, when one gives a margin that is too wide by a ratio.

    A margin falls about as fast as epsilon grows, or slower, apart from steps where the tree changes.
    """
    step = (ratio**0.25 if ratio > NEAR else 1.0) if nodes < LARGE else max(1.5, ratio**0.5)
    target = ROUND_EPSILONS[at] * Fraction(min(step, 1e3))
    return min(max(at + 1, bisect_right(ROUND_EPSILONS, target) - 1), len(ROUND_EPSILONS) - 1)


def even_counts(tree: Tree, rows: int, nodes: Ints | slice = EVERY) -> NDArray[np.float64]:
    """What nodes would hold of rows that lie evenly."""
    if isinstance(tree, RegularTree):  # its boxes need not be written out
        sizes = np.diff(tree.level_start)
        return np.asarray((rows / sizes)[tree.node_level[nodes]])
    keys = tree.keys if isinstance(tree, CurveTree) else tree
    return np.asarray(rows * np.prod((keys.hi[nodes] - keys.lo[nodes]) / float(keys.hi[0, 0]), axis=1))


def even_estimates(noisy: NoisyTree, method: Method, rows: int | None) -> Estimates:
    """The estimates of a rehearsed tree: even counts, and leaves as uneven inside as is usual."""
    counts = even_counts(noisy.tree, rows or 0)
    if method.estimate is Estimate.NOISY_COUNTS:
        variance = noisy.noise_variance
        counts[~np.isfinite(variance)] = np.nan
    else:
        variance = least_squares(noisy)[1]
    nodes = Estimates(noisy.tree, noisy.noisy_count, noisy.noise_variance, counts, variance)
    if rows is None:
        return nodes
    if method.prune_below is not None:
        nodes = prune(nodes, method.prune_below)
    held = np.where(nodes.tree.is_leaf, even_counts(nodes.tree, rows), 0.0)
    return replace(nodes, unevenness=held + math.pi / 2 * (ROUGH * held) ** 2)  # by chance, and since data are rough


class Rehearsal:
    """The gate without the data, as if so many rows lay evenly: medians are middles. It charges and draws nothing.

    The standard error of an answer does not depend on the counts, so a tree that grows here has it too; for a
    structure that follows the data, it is that of evenly spread data.
    """

    def __init__(self, domain: Domain, price: LaplacePrice, rows: int) -> None:
        self.domain, self.price, self.rows = domain, price, rows
        self.tree: Tree = RegularTree(domain.side, domain.dimensions)
        self.order: int | None = None
        self.variance = np.zeros(0)  # by node
        self.questions, self.counted = 0, False  # whether the tree has been, since it grew
        self.rate, self.sorted = Fraction(1), False  # of the sample that medians are asked of, if they are

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
            sample=self.sample,
            medians=self.find_medians,
            dense=self.dense,
            halves=self.halves,
            grid=self.grid,
            count=lambda level, part: self.count(self.nodes(self.tree.level(level)), part),
            count_leaves=lambda part: self.count(np.flatnonzero(self.tree.is_leaf), part),
            count_each=self.count_each,
            check=lambda part: self.ask(),
        )
        method.structure.grow(gate, total, method.budget)
        return NoisyTree(self.boxes(), np.zeros(self.tree.size, np.int64), self.spread(), (), False)

    def asked(self) -> Asked:
        return Asked(self.tree.size, self.questions, self.rate * self.sorted)

    def ask(self) -> None:
        self.questions += 1

    def sample(self, rate: Fraction, part: Fraction, chance: Fraction, mechanism: str) -> Fraction:
        self.rate = rate
        self.ask()
        return part

    def find_medians(self, axis: int, part: Fraction, chance: Fraction, mechanism: str) -> Ints:
        self.sorted = True
        return middles(self.tree, axis)

    def grid(self, parts: Parts, part: Fraction) -> Ints:
        self.ask()
        return np.full(math.prod(parts), self.rows // math.prod(parts))

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
        self.tree, self.counted = tree, False

    def follow(self, order: int) -> None:
        self.order, self.tree = order, CutTree.root(1 << (order * self.domain.dimensions), 1)

    def expected(self, nodes: Ints) -> Ints:
        return even_counts(self.tree, self.rows, nodes).astype(np.int64)

    def dense(self, part: Fraction) -> NDArray[np.bool_]:
        self.count_tree()
        _, step = decay(self.price.pure(part) / self.price.rows, 2**self.domain.dimensions)
        return self.expected(self.nodes(self.tree.level(self.tree.height))) > self.tree.height * step

    def halves(self, depth: Ints, scales: int, part: Fraction) -> Ints:
        """The halves of a run of cells differ as two Poisson numbers do, and by what is usual."""
        self.ask()
        rows, axes = self.expected(self.nodes(self.tree.level(self.tree.height))), self.domain.dimensions
        out = np.zeros(scales, np.int64)
        for scale in range(scales):
            asked = depth >= scale
            side = 2.0 ** (depth[asked] - scale)
            runs = side**axes / (np.minimum(side, RUN) if axes > 1 else 1)
            by_chance = np.sum(runs * _typical_difference(rows[asked] / runs))
            out[scale] = axes * math.hypot(by_chance, ROUGH * rows[asked].sum())
        return out

    def count_tree(self) -> None:
        """All nodes are counted at once, and known until the tree grows."""
        self.questions, self.counted = self.questions + (not self.counted), True

    def count(self, nodes: Ints, part: Fraction) -> Ints:
        return self.count_each(nodes, np.ones(len(nodes), np.int64), part)

    def count_each(self, nodes: Ints, grains: Ints, one: Fraction) -> Ints:
        self.count_tree()
        prices, which = np.unique(grains, return_inverse=True)
        self.spread()[nodes] = np.array([self.price.variance(grain * one) for grain in prices.tolist()])[which]
        return self.expected(nodes)


def _typical_difference(mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """E|X − Y| of independent Poisson numbers whose means add up to this, within 2 %: from m to √(2m/π)."""
    return mean / (1 + (math.pi / 2 * mean) ** 1.25) ** 0.4


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)

"""What a release will be worth, before a budget is spent and without the data."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from veilmap.answers.answerer import Answerer, Answers
from veilmap.arrays import Floats
from veilmap.budgets import Budget
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.method.method import Method, Noise, PostProcessing
from veilmap.method.registry import DEFAULT_METHOD
from veilmap.method.request import ReleaseRequest
from veilmap.method.resources import Needs, must_be_available, needs
from veilmap.planning.rehearsal import Rehearsal, even_estimates
from veilmap.validation import MAX_EPSILON, MIN_EPSILON
from veilmap.vault import noise_and_budget

MOST_ROWS = 10**12
ROUGH = 0.25  # |first half − second half| of a cell, as a part of it, beyond chance: about the middle of many real sets
SIDES = (0.5, 0.25, 0.1, 0.03, 0.01)
"""Boxes that people ask for: these parts of every axis."""
ROUND_EPSILONS = tuple(
    epsilon
    for power in range(-7, 2)
    for digits in range(10, 100)
    if MIN_EPSILON <= (epsilon := digits * Fraction(10) ** power) <= MAX_EPSILON
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

    def stderr(self, boxes: ArrayLike) -> Floats:
        """The standard error of the answer to each box."""
        return self.count(boxes).stderr

    def margin(self, boxes: ArrayLike) -> Floats:
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
    estimate: str | PostProcessing | None = None,
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
    request = ReleaseRequest.of(
        epsilon,
        method,
        height=height,
        delta=delta,
        sample=sample,
        noise=noise,
        estimate=estimate,
        budget=budget,
        options=options,
        max_rows_per_unit=max_rows_per_unit,
    ).settled(domain)
    chosen = request.method
    if rows is None and (chosen.structure.height is None or chosen.structure.nodes(domain.dimensions) is None):
        raise BadInput("The tree depends on the number of rows: give a guess of it, or a height if the method has one.")
    if rows is not None and not (type(rows) is int and 0 <= rows <= MOST_ROWS):
        raise BadInput(f"A guess of the rows is a whole number from 0 to {MOST_ROWS:.0e}, got {rows!r}.")
    if engine not in ("local", "spark"):
        raise BadInput(f"An engine is local or spark, got {engine!r}.")
    model, total = noise_and_budget(chosen, request.epsilon, request.delta, request.rows_per_unit)
    rehearsal = Rehearsal(domain, model, rows or 0)
    noisy = rehearsal.run(chosen, total, request.delta)
    nodes = even_estimates(noisy, chosen, rows)
    consistent, gaussian = chosen.estimate is not PostProcessing.NOISY_COUNTS, chosen.noise is Noise.DISCRETE_GAUSSIAN
    answerer = Answerer(domain, nodes, consistent, gaussian)
    on_spark = engine == "spark"
    people = max_rows_per_unit is not None and not on_spark
    needed = needs(chosen, domain, rehearsal.question_count(), rows or 0, people, on_spark)
    must_be_available(needed, chosen, people)
    return Plan(domain, chosen, request.epsilon, rows, nodes.tree.height, nodes.tree.size, needed, answerer)


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


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)

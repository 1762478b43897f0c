"""Predict the accuracy and the resources of a release without the data, before any budget is spent."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
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
from veilmap.validation import MAX_EPSILON, MIN_EPSILON, is_finite_number, is_whole_number
from veilmap.vault import noise_and_budget

MAX_ROWS = 10**12
BOX_SIDES = (0.5, 0.25, 0.1, 0.03, 0.01)
"""Sizes of typical query boxes, as fractions of each axis."""
ROUND_EPSILONS = tuple(
    epsilon
    for power in range(-7, 2)
    for digits in range(10, 100)
    if MIN_EPSILON <= (epsilon := digits * Fraction(10) ** power) <= MAX_EPSILON
)
"""All permitted epsilons with two significant digits."""
LARGE_TREE_NODES = 200_000
"""Larger trees take long to plan, so fewer epsilons are tried. Their margins change more smoothly with epsilon."""
NEAR_MARGIN_RATIO = 1.5
"""If the margin is too wide by less than this factor, each following epsilon is tried."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The error of boxes of one size, as root mean squares over random positions."""

    side: float  # as a fraction of each axis
    stderr: float
    margin: float  # upper end of the 95 % interval minus the estimate, never smaller than the lower half


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The predicted accuracy and resources of a release with a given method, epsilon and domain.

    With an expected number of rows, errors include both the noise and the uncertainty inside leaves that a box cuts.
    Without, they include the noise alone.

    Examples
    --------
    >>> plan = vm.plan(domain, epsilon=1, method="quad-opt", height=5, rows=100_000)
    >>> [prediction.side for prediction in plan.predictions()]
    [0.5, 0.25, 0.1, 0.03, 0.01]
    >>> bool(plan.margin([[-116, 39, -114, 41]])[0] > 0)
    True
    """

    domain: Domain
    method: Method
    epsilon: Fraction
    rows: int | None  # expected number
    height: int
    nodes: int
    needs: Needs
    _answerer: Answerer

    def count(self, boxes: ArrayLike, confidence: float = 0.95) -> Answers:
        """Answer boxes as a release of evenly spread rows would. The errors are the prediction."""
        return self._answerer.count(boxes, confidence)

    def stderr(self, boxes: ArrayLike) -> Floats:
        """Return the predicted standard error of the answer to each box."""
        return self.count(boxes).stderr

    def margin(self, boxes: ArrayLike) -> Floats:
        """Return the predicted upper half-width of each box's 95 % interval, which is at least the lower one."""
        answers = self.count(boxes)
        return answers.high - answers.estimate

    def predictions(self, sides: Sequence[float] = BOX_SIDES) -> list[Prediction]:
        """Predict the error of boxes whose sides are these fractions of each axis, at random positions."""
        positions = np.random.default_rng(0).random((200, self.domain.dimensions))  # public, so a fixed seed is fine
        lo, width = self.domain.lo, self.domain.hi - self.domain.lo
        predictions = []
        for side in sides:
            low = lo + positions * (1 - side) * width
            answers = self.count(np.hstack([low, low + side * width]))
            errors = answers.stderr, answers.high - answers.estimate
            predictions.append(Prediction(side, *(float(np.sqrt(np.mean(error**2))) for error in errors)))
        return predictions


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
    """Predict the error of a release and the memory and disk space that it needs, without reading any data.

    The prediction assumes that rows are spread over the whole domain, with typical unevenness inside a leaf. In crowded
    areas a release will be less accurate than predicted, in sparse areas more accurate. A release that needs more
    memory or disk space than this machine has is refused.

    Parameters
    ----------
    domain, epsilon, method, height, delta, sample, noise, estimate, budget, options, max_rows_per_unit
        As for :func:`veilmap.release`.
    rows
        The expected number of rows. It is required if the tree depends on it.
    engine
        ``local`` for rows in files, or ``spark``, where only the rows needed for medians are held on this machine.

    Examples
    --------
    >>> plan = vm.plan(domain, epsilon=0.5, rows=100_000)
    >>> plan.method.name, plan.nodes > 1
    ('best', True)
    >>> bool(plan.stderr([[-116, 39, -114, 41]])[0] > 0)
    True
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
        raise BadInput(
            "The tree depends on the number of rows. Give the expected number, or a height if the method has one."
        )
    if rows is not None and not is_whole_number(rows, 0, MAX_ROWS):
        raise BadInput(f"The expected number of rows must be a whole number from 0 to {MAX_ROWS:.0e}, got {rows!r}.")
    if engine not in ("local", "spark"):
        raise BadInput(f"The engine must be local or spark, got {engine!r}.")
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
    """Find the smallest epsilon with two digits for a margin of ± ``within`` on boxes of a given size.

    ``side`` is the size of the boxes, as a fraction of each axis. The margin is half of a 95 % interval, as
    :func:`plan` predicts it for boxes at random positions. The other arguments are those of ``plan``. If no epsilon is
    large enough, ``BadInput`` is raised. A slightly larger epsilon may change the tree and widen the margin, so
    epsilons are tried from below, in steps that become shorter as the margin approaches ``within``. For very large
    trees fewer epsilons are tried, and a slightly smaller epsilon may also be enough.
    """
    if not (is_finite_number(within) and within > 0):
        raise BadInput(f"within must be a number of rows above 0, got {within!r}.")
    if not (is_finite_number(side) and 0 < side <= 1):
        raise BadInput(f"side must be a fraction of each axis, above 0 and up to 1, got {side!r}.")

    def plan_and_margin(index: int) -> tuple[Plan, float]:
        made = plan(domain, ROUND_EPSILONS[index], method, height, rows, **options)
        return made, made.predictions([side])[0].margin

    index = previous = 0
    made, margin = plan_and_margin(index)
    best = margin, made.epsilon
    while margin > within:
        if index == len(ROUND_EPSILONS) - 1:
            raise BadInput(
                f"No epsilon is enough for ±{within:g} on boxes of {100 * side:g} % of each axis. Of those tried, "
                f"{float(best[1]):g} comes closest, with ±{best[0]:.3g}. Allow a wider margin, or choose another "
                "method."
            )
        previous, index = index, _next_to_try(index, margin / within, made.nodes)
        made, margin = plan_and_margin(index)
        best = min(best, (margin, made.epsilon))
    first = bisect_left(range(index), True, previous + 1, key=lambda i: plan_and_margin(i)[1] <= within) if index else 0
    return made if first == index else plan_and_margin(first)[0]


def _next_to_try(index: int, ratio: float, nodes: int) -> int:
    """Return the index of the next round epsilon to try, if the margin is too wide by a factor.

    A margin falls at most about as fast as epsilon grows, apart from steps where the tree changes.
    """
    step = (ratio**0.25 if ratio > NEAR_MARGIN_RATIO else 1.0) if nodes < LARGE_TREE_NODES else max(1.5, ratio**0.5)
    target = ROUND_EPSILONS[index] * Fraction(min(step, 1e3))
    return min(max(index + 1, bisect_right(ROUND_EPSILONS, target) - 1), len(ROUND_EPSILONS) - 1)

"""Audit a method: choose neighbouring data sets, certify a lower bound for epsilon, check noise and outputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from veilmap.arrays import Floats
from veilmap.auditing.adversary import Seen, Trial
from veilmap.auditing.epsilon_bound import Certificate, Event, certify, choose
from veilmap.auditing.neighbours import usual
from veilmap.auditing.output_checks import Check, of_noise, of_outputs, of_trees
from veilmap.budgets import LevelBudget
from veilmap.errors import BadInput
from veilmap.method.method import Method, Noise
from veilmap.method.request import ReleaseRequest
from veilmap.structures import KdTree
from veilmap.validation import is_finite_number, is_whole_number

MIN_RELEASES = 400
PILOT_FRACTION = 0.2
"""Fraction of the releases that select the neighbouring data sets."""
LEARNING_FRACTION = 0.1
"""Fraction of the releases of the selected data sets from which the likelihoods of trees are learned."""
CHOOSING_FRACTION = 0.25
"""End of the fraction that chooses the event, after the learning fraction. The remaining releases certify."""
DOUBT_OF_NEIGHBOURS = 0.5
"""Error probability of the bounds when data sets are compared: later releases will reduce it."""
DOUBT_OF_EVENTS = 0.1
"""The same when events are compared."""
RELEASES_PER_REPORT = 50
"""Number of releases between two calls of ``progress``."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit. A bound above epsilon proves a bug; a bound below it proves nothing."""

    method: str
    epsilon: Fraction
    delta: Fraction
    confidence: float
    releases: int
    neighbours: str
    reading: str  # the statistic of each release
    event: Event
    certificate: Certificate
    checks: tuple[Check, ...]
    scores: tuple[Floats, Floats]  # of the certifying releases, with and without the additional unit

    @property
    def bound(self) -> float:
        """Lower bound for epsilon, 0 or more."""
        return max(0.0, self.certificate.bound)

    @property
    def within(self) -> bool:
        """Whether the bound is at most the claimed epsilon."""
        return self.bound <= self.epsilon

    @property
    def passed(self) -> bool:
        """Whether the bound is within the claim and all checks passed."""
        return self.within and all(check.passed for check in self.checks)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the scores of the two data sets, and the privacy loss of each event beside the claim."""
        from veilmap.auditing.plot import draw

        draw(self, path)


def audit(
    method: str | Method,
    epsilon: object,
    *,
    releases: int = 20_000,
    confidence: float = 0.999,
    delta: object = None,
    height: int | None = None,
    sample: object = None,
    noise: str | Noise | None = None,
    budget: LevelBudget | None = None,
    options: Mapping[str, object] | None = None,
    max_rows_per_unit: int | None = None,
    progress: Callable[[float], None] = lambda part: None,
) -> Audit:
    """Test the privacy guarantee of a method: compute a lower bound for its epsilon from many releases.

    The releases are made of two synthetic data sets that differ by one row (or person). Some of the releases choose the
    data sets, a statistic of a release, and the event that distinguishes the data sets best. The other releases bound
    the two probabilities of this event. The logarithm of their ratio is a lower bound for epsilon. A bound above the
    claimed epsilon proves a bug.

    Parameters
    ----------
    method, height, sample, noise, budget, options
        As for :func:`veilmap.release`, including a ``Method`` with a structure of your own.
    epsilon, delta
        The claimed guarantee.
    releases
        Total number of releases, at least 400. More releases bring the bound closer to the true epsilon.
    confidence
        Probability with which the bound holds.
    max_rows_per_unit
        Audit the protection of people with many rows, with this maximum number of rows per person.
    progress
        A function that is called from time to time with the fraction of the releases that are done.

    Examples
    --------
    >>> audit = vm.audit("quad-opt", epsilon=1, height=1, releases=400)
    >>> audit.method, audit.within
    ('quad-opt', True)
    """
    request = ReleaseRequest.of(
        epsilon,
        method,
        height=height,
        delta=delta,
        sample=sample,
        noise=noise,
        budget=budget,
        options=options,
        max_rows_per_unit=max_rows_per_unit,
    )
    if not request.method.private:
        raise BadInput(f"{request.method.name} is a non-private baseline and has no privacy guarantee to audit.")
    if not is_whole_number(releases, MIN_RELEASES):
        raise BadInput(f"An audit needs {MIN_RELEASES} releases or more, got {releases!r}.")
    if not (is_finite_number(confidence) and 0.5 <= confidence < 1):
        raise BadInput(f"The confidence of an audit must be from 0.5 to below 1, got {confidence!r}.")
    return _audit(replace(request, method=_shallow(request.method)), releases, 1 - confidence, progress)


def _audit(request: ReleaseRequest, releases: int, doubt: float, progress: Callable[[float], None]) -> Audit:
    """Run an audit whose bound may be wrong with probability ``doubt``."""
    done, slack = 0, float(request.delta)

    def run(trial: Trial, times: int) -> None:
        nonlocal done
        for start in range(0, times, RELEASES_PER_REPORT):
            batch = min(RELEASES_PER_REPORT, times - start)
            trial.run(batch)
            done += 2 * batch
            progress(min(done / releases, 1.0))

    trials = _trials(request)
    times = max(20, int(PILOT_FRACTION * releases / 2 / (2 * len(trials))))
    while len(trials) > 1:  # the better half continues, with twice as many releases
        for trial in trials:
            run(trial, times)
        trials = sorted(trials, key=lambda trial: -_pilot_bound(trial, slack))[: len(trials) // 2]
        times *= 2
    trial = trials[0]
    known = len(trial.seen[0].odds)
    run(trial, max((releases - done) // 2, MIN_RELEASES // 4))
    total = len(trial.seen[0].odds)
    # releases that took part in a choice must not certify
    learn, start = (known + int(fraction * (total - known)) for fraction in (LEARNING_FRACTION, CHOOSING_FRACTION))
    choices = {
        name: choose(*scores, DOUBT_OF_EVENTS, slack) for name, scores in trial.scores(learn, start, learn).items()
    }
    reading = max(choices, key=lambda name: choices[name][0])
    event = choices[reading][1]
    ours, theirs = trial.scores(start, total, learn)[reading]
    return Audit(
        request.method.name,
        request.epsilon,
        request.delta,
        1 - doubt,
        done,
        trial.case.name,
        reading,
        event,
        certify(event, ours, theirs, doubt, slack),
        (of_noise(trial), *of_outputs(trial), of_trees(trial, start, doubt)),
        (ours, theirs),
    )


def _trials(request: ReleaseRequest) -> list[Trial]:
    """Return trials on one axis, where a row is most visible, or on two for methods that need them (Hilbert curves)."""
    trials: list[Trial] = []
    for axes in (1, 2):
        cases = usual(axes, request.max_rows_per_unit, request.method.structure.halvings(axes))
        trials = [Trial(case, request.method, request.epsilon, request.delta) for case in cases]
        try:
            replace(trials[0], seen=(Seen(), Seen())).run(1)
        except BadInput:
            if axes == 2:
                raise
        else:
            break
    return trials


def _shallow(method: Method) -> Method:
    """Return the method with the smallest height, if it has none: 1, or 2 for a hybrid, which also has midpoints."""
    structure: Any = method.structure
    if structure.height is not None or not structure.height_from_domain:
        return method
    hybrid = isinstance(structure, KdTree) and structure.switch == "half"
    return replace(method, structure=replace(structure, height=2 if hybrid else 1))


def _pilot_bound(trial: Trial, delta: float) -> float:
    """Return the largest preliminary bound for a pair of neighbouring data sets, from its releases so far."""
    half = len(trial.seen[0].odds) // 2
    return max(choose(*scores, DOUBT_OF_NEIGHBOURS, delta)[0] for scores in trial.scores(half, 2 * half, half).values())

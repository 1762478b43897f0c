"""An audit of a method: the neighbours that show most, a certified bound, and checks of noise and of outputs."""

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

FEWEST = 400
PILOT = 0.2  # of the releases find the neighbours that show most
LEARN, CHOOSE = 0.1, 0.25  # of those of the best neighbours say what trees tell, and (up to here) choose the event
UNSURE, LIKELY = 0.5, 0.1  # doubt when neighbours and when events are compared: of more releases, less will be left
STEP = 50  # releases from one report of progress to the next


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit has found. A bound above epsilon proves a bug; a bound below it proves nothing."""

    method: str
    epsilon: Fraction
    delta: Fraction
    confidence: float
    releases: int
    neighbours: str
    reading: str  # what was read off each release
    event: Event
    certificate: Certificate
    checks: tuple[Check, ...]
    scores: tuple[Floats, Floats]  # of the releases that certify, with the one more and without

    @property
    def bound(self) -> float:
        """What epsilon is at least; 0 when nothing was found."""
        return max(0.0, self.certificate.bound)

    @property
    def within(self) -> bool:
        """Whether the bound is no more than the claim."""
        return self.bound <= self.epsilon

    @property
    def passed(self) -> bool:
        """Whether nothing was found against the method."""
        return self.within and all(check.passed for check in self.checks)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw what was seen of the two data sets, and the loss of each event beside the claim."""
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
    """Try to prove that a method tells more than it claims.

    Many releases are made of two made-up data sets that differ by one row (or person). Which data sets, what is read
    off the releases and which event tells them apart is chosen on some of them; the others bound the event's two
    probabilities, and the log of their ratio is a bound for epsilon.

    Parameters
    ----------
    method, height, sample, noise, budget, options
        As for :func:`veilmap.release`; also a ``Method`` with a structure of one's own.
    epsilon, delta
        The claim.
    releases
        How many are made, in all. More of them bring the bound nearer to what is true.
    confidence
        With which the bound holds.
    max_rows_per_unit
        Audit the protection of people with many rows, of whom so many are looked at.
    progress
        Called now and then with the part that is done.
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
        raise BadInput(f"{request.method.name} is a non-private baseline: it makes no claim to audit.")
    if type(releases) is not int or releases < FEWEST:
        raise BadInput(f"An audit makes {FEWEST} releases or more, got {releases!r}.")
    if not 0.5 <= confidence < 1:
        raise BadInput(f"The confidence of an audit is from 0.5 to below 1, got {confidence!r}.")
    return _audit(replace(request, method=_low(request.method)), releases, 1 - confidence, progress)


def _audit(request: ReleaseRequest, releases: int, doubt: float, progress: Callable[[float], None]) -> Audit:
    done, slack = 0, float(request.delta)

    def run(trial: Trial, times: int) -> None:
        nonlocal done
        for start in range(0, times, STEP):
            some = min(STEP, times - start)
            trial.run(some)
            done += 2 * some
            progress(min(done / releases, 1.0))

    trials = _trials(request)
    some = max(20, int(PILOT * releases / 2 / (2 * len(trials))))
    while len(trials) > 1:  # half of them go on, with twice as many releases
        for trial in trials:
            run(trial, some)
        trials = sorted(trials, key=lambda trial: -_promise(trial, slack))[: len(trials) // 2]
        some *= 2
    trial = trials[0]
    known = len(trial.seen[0].odds)
    run(trial, max((releases - done) // 2, FEWEST // 4))
    total = len(trial.seen[0].odds)
    # Nothing that had a part in a choice certifies.
    learn, start = (known + int(part * (total - known)) for part in (LEARN, CHOOSE))
    guesses = {name: choose(*seen, LIKELY, slack) for name, seen in trial.scores(learn, start, learn).items()}
    reading = max(guesses, key=lambda name: guesses[name][0])
    event = guesses[reading][1]
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
    """Along one axis, where least hides a row; or two, for methods that need them, as those along a curve do."""
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


def _low(method: Method) -> Method:
    """With as few levels as it can have, where it was given no height: one, and one more with middles for a hybrid."""
    structure: Any = method.structure
    if structure.height is not None or not structure.height_from_domain:
        return method
    return replace(method, structure=replace(structure, height=1 + (structure.switch == "half")))


def _promise(trial: Trial, delta: float) -> float:
    """What a few releases say of a pair of neighbours: how far its events may go."""
    half = len(trial.seen[0].odds) // 2
    return max(choose(*seen, UNSURE, delta)[0] for seen in trial.scores(half, 2 * half, half).values())

"""Compute a lower bound for epsilon from a statistic of many outputs.

A bound above the claim proves a bug. A bound below it proves nothing; that is what proofs/ is for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.errors import need


@dataclass(frozen=True, slots=True)
class Event:
    """The event that a statistic is at or beyond a threshold, which should be more likely on one of two data sets."""

    at: float
    sign: int  # 1: at least ``at``; -1: at most
    swapped: bool  # whether it is more likely on the second data set

    def hits(self, ours: Floats, theirs: Floats) -> tuple[int, int]:
        """Return how often it occurred on the data set where it is more likely, and on the other."""
        first, second = (int(np.sum(self.sign * scores >= self.sign * self.at)) for scores in (ours, theirs))
        return (second, first) if self.swapped else (first, second)


class Certificate(NamedTuple):
    """Bounds for an event, which hold except with a stated probability."""

    bound: float  # epsilon is above this
    more: float  # lower bound for its probability on the data set where it is more likely
    fewer: float  # upper bound for its probability on the other data set


def choose(ours: Floats, theirs: Floats, doubt: float, delta: float) -> tuple[float, Event]:
    """Return the event with the largest bound, and this bound, which does not account for the choice."""
    values, candidates = np.unique(np.concatenate([ours, theirs])), []
    for sign in (1, -1):
        first, second = (_beyond(scores, values, sign) for scores in (ours, theirs))
        for swapped, more, fewer in ((False, first, second), (True, second, first)):
            bounds = _intervals(more, fewer, (len(ours), len(theirs))[:: -1 if swapped else 1], doubt, delta)[0]
            best = int(np.argmax(bounds))
            candidates.append((float(bounds[best]), Event(float(values[best]), sign, swapped)))
    return max(candidates, key=lambda pair: pair[0])


def certify(event: Event, ours: Floats, theirs: Floats, doubt: float, delta: float) -> Certificate:
    """Bound the probabilities of an event from samples that took no part in choosing it."""
    sizes = (len(theirs), len(ours)) if event.swapped else (len(ours), len(theirs))
    more, fewer = (np.array([n]) for n in event.hits(ours, theirs))
    return Certificate(*(float(x[0]) for x in _intervals(more, fewer, sizes, doubt, delta)))


def losses(ours: Floats, theirs: Floats, event: Event, doubt: float, delta: float) -> tuple[Floats, Floats, Floats]:
    """Return the thresholds of all events on the same side, with their empirical losses and individual lower bounds."""
    at = np.unique(np.concatenate([ours, theirs]))
    more, fewer = ours, theirs
    if event.swapped:
        more, fewer = theirs, ours
    hits = _beyond(more, at, event.sign), _beyond(fewer, at, event.sign)
    with np.errstate(divide="ignore", invalid="ignore"):
        empirical = np.log((hits[0] / len(more) - delta) / (hits[1] / len(fewer)))
    return at, empirical, _intervals(*hits, (len(more), len(fewer)), doubt, delta)[0]


def _beyond(scores: Floats, at: Floats, sign: int) -> Ints:
    """Return the number of scores at or beyond each threshold."""
    ordered = np.sort(scores)
    if sign > 0:
        return len(ordered) - np.searchsorted(ordered, at, "left")
    return np.searchsorted(ordered, at, "right")


def _intervals(
    more: Ints, fewer: Ints, sizes: tuple[int, ...], doubt: float, delta: float
) -> tuple[Floats, Floats, Floats]:
    """Return lower bounds for ln((p − δ) / p') and for p, and upper bounds for p' (Clopper and Pearson, 1934).

    The bounds for p and p' each have half of the error probability. The first is −inf if p may be below δ.
    """
    beta = need("scipy.stats", "audit", "An audit").beta
    low = np.where(more > 0, beta.ppf(doubt / 2, np.maximum(more, 1), sizes[0] - more + 1), 0.0)
    high = np.where(fewer < sizes[1], beta.ppf(1 - doubt / 2, fewer + 1, np.maximum(sizes[1] - fewer, 1)), 1.0)
    known = low > delta
    return np.where(known, np.log(np.where(known, low - delta, 1.0) / high), -np.inf), low, high

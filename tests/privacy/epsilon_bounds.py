"""A lower bound for epsilon from two samples of a statistic, by the event and certificate of ``veilmap audit``."""

from __future__ import annotations

from veilmap.arrays import Floats
from veilmap.auditing.epsilon_bound import certify, choose


def least_epsilon(ours: Floats, theirs: Floats, doubt: float = 0.001, delta: float = 0.0) -> float:
    """Return a lower bound for epsilon that holds except with probability ``doubt``.

    ``ours`` and ``theirs`` are a statistic of outputs on two neighbouring data sets. An ε-private mechanism has
    P[statistic in E] ≤ e^ε P'[statistic in E] + δ for every event E. The event is chosen on one half of the samples;
    the other half bounds both probabilities.
    """
    half = len(ours) // 2
    _, event = choose(ours[:half], theirs[:half], doubt, delta)
    return certify(event, ours[half:], theirs[half:], doubt, delta).bound

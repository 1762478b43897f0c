"""A black-box audit of a privacy claim: a lower bound for epsilon from samples of the output alone.

A bound above the claim proves a bug. A bound below it proves nothing; that is what proofs/ is for.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta


def least_epsilon(
    ours: NDArray[np.float64], theirs: NDArray[np.float64], doubt: float = 0.001, delta: float = 0.0
) -> float:
    """A number that epsilon exceeds, except with probability ``doubt``.

    ``ours`` and ``theirs`` are a statistic of outputs on two neighbouring data sets. An ε-private mechanism has
    P[statistic in E] ≤ e^ε P'[statistic in E] for every event E. The event, a half-line, and the direction are
    chosen on one half of the samples; the other half bounds both probabilities (Clopper and Pearson, 1934), each
    with half of the doubt. With a ``delta``, the claim is P[E] ≤ e^ε P'[E] + δ.
    """
    half = len(ours) // 2
    flips = ((1, ours, theirs), (-1, ours, theirs), (1, theirs, ours), (-1, theirs, ours))
    guesses = []
    for sign, more, fewer in flips:
        for threshold in np.unique(sign * np.concatenate([more[:half], fewer[:half]])):
            a, b = (int(np.sum(sign * x[:half] >= threshold)) for x in (more, fewer))
            guesses.append((_log_ratio(a, b, half, doubt, delta), threshold, sign, more, fewer))
    _, threshold, sign, more, fewer = max(guesses, key=lambda guess: guess[0])
    a, b = (int(np.sum(sign * x[half:] >= threshold)) for x in (more, fewer))
    return _log_ratio(a, b, len(ours) - half, doubt, delta)


def _log_ratio(more: int, fewer: int, n: int, doubt: float, delta: float = 0.0) -> float:
    """A lower bound for ln((p − δ) / p'), from ``more`` and ``fewer`` hits of ``n``."""
    low = beta.ppf(doubt / 2, more, n - more + 1) if more else 0.0
    high = beta.ppf(1 - doubt / 2, fewer + 1, n - fewer) if fewer < n else 1.0
    return math.log((low - delta) / high) if low > delta else -math.inf

"""A black-box audit of a privacy claim: a lower bound for epsilon from samples of the output alone.

A bound above the claim proves a bug. A bound below it proves nothing; that is what proofs/ is for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def least_epsilon(ours: Floats, theirs: Floats, doubt: float = 0.001, delta: float = 0.0) -> float:
    """A number that epsilon exceeds, except with probability ``doubt``.

    ``ours`` and ``theirs`` are a statistic of outputs on two neighbouring data sets. An ε-private mechanism has
    P[statistic in E] ≤ e^ε P'[statistic in E] for every event E. The event, a half-line, and the direction are
    chosen on one half of the samples; the other half bounds both probabilities (Clopper and Pearson, 1934), each
    with half of the doubt. With a ``delta``, the claim is P[E] ≤ e^ε P'[E] + δ.
    """
    half = len(ours) // 2
    guesses = []
    for sign, more, fewer in ((1, ours, theirs), (-1, ours, theirs), (1, theirs, ours), (-1, theirs, ours)):
        at = np.unique(sign * np.concatenate([more[:half], fewer[:half]]))
        bounds = _log_ratio(_hits(sign * more[:half], at), _hits(sign * fewer[:half], at), half, doubt, delta)
        best = int(np.argmax(bounds))
        guesses.append((bounds[best], at[best : best + 1], sign, more, fewer))
    _, at, sign, more, fewer = max(guesses, key=lambda guess: guess[0])
    rest = len(ours) - half
    return float(_log_ratio(_hits(sign * more[half:], at), _hits(sign * fewer[half:], at), rest, doubt, delta)[0])


def _hits(values: Floats, at: Floats) -> Ints:
    """How many values are at or above each threshold."""
    return len(values) - np.searchsorted(np.sort(values), at)


def _log_ratio(more: Ints, fewer: Ints, n: int, doubt: float, delta: float) -> Floats:
    """Lower bounds for ln((p − δ) / p'), from ``more`` and ``fewer`` hits of ``n``; −inf where nothing is known."""
    low = np.where(more > 0, beta.ppf(doubt / 2, np.maximum(more, 1), n - more + 1), 0.0)
    high = np.where(fewer < n, beta.ppf(1 - doubt / 2, fewer + 1, np.maximum(n - fewer, 1)), 1.0)
    known = low > delta
    return np.where(known, np.log(np.where(known, low - delta, 1.0) / high), -np.inf)

"""The private median of one list of numbers. Proof: proofs/medians.md."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from veilmap.budget import exact_epsilon
from veilmap.domain import Domain
from veilmap.errors import BadInput, near_misses
from veilmap.vault.entropy import current_keys
from veilmap.vault.medians import exponential_cuts
from veilmap.vault.sealed import Sealed, seal, silenced

SHARPNESS = {"exponential": Fraction(1), "exponential-paper": Fraction(1, 2)}
"""Of the weight exp(−ε · |rank − n/2|). The paper's ε/2 is valid too, and half as sharp."""


def private_median(values: object, lo: float, hi: float, epsilon: object, mechanism: str = "exponential") -> float:
    """A number near the median of ``values``, under ``epsilon``-differential privacy for one value.

    Parameters
    ----------
    values
        A list or array of numbers, or anything else that holds points of one axis called ``value``. Those
        that are missing or outside the range are left out.
    lo, hi
        The public range, known without the values. The result is one of 2^30 - 1 even steps between them.
    epsilon
        The privacy budget. It has no default, and nobody keeps count of it here.
    mechanism
        ``exponential``; or ``exponential-paper``, with the weight of the paper, which is half as sharp.
    """
    domain, budget = Domain({"value": (lo, hi)}), exact_epsilon(epsilon)
    if mechanism not in SHARPNESS:
        raise BadInput(f"There is no mechanism {mechanism!r} for medians. {near_misses(str(mechanism), SHARPNESS)}")
    sealed = seal(values, domain)
    del values
    try:
        return _median(sealed, budget * SHARPNESS[mechanism])
    except BaseException as error:
        failure = silenced(error)
    del sealed
    raise failure


def _median(points: Sealed, sharpness: Fraction) -> float:
    domain = points.domain
    (cells,) = points._cells(lambda part: None)
    start, lo, hi = np.array([0, len(cells)]), np.array([0]), np.array([domain.side])
    cut = exponential_cuts(np.sort(cells), start, lo, hi, sharpness, current_keys())
    return float(domain.edges(cut, 0)[0])

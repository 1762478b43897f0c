"""The private median of one list of numbers. Proof: proofs/medians.md."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from veilmap.domain import Domain
from veilmap.errors import BadInput, near_misses
from veilmap.validation import exact_epsilon, exact_number
from veilmap.vault.entropy import current_keys
from veilmap.vault.mechanisms.medians import MEDIANS, cell_median, private_cuts
from veilmap.vault.mechanisms.sampling import inner_epsilon, poisson
from veilmap.vault.sealed import Sealed, seal, silenced

MECHANISMS = (*MEDIANS, "cell")


def private_median(
    values: object,
    lo: float,
    hi: float,
    epsilon: object,
    mechanism: str = "exponential",
    *,
    delta: object = None,
    sample: object = None,
) -> float:
    """A number near the median of ``values``, under ``epsilon``-differential privacy for one value.

    Parameters
    ----------
    values
        A list or array of numbers, or anything else that holds points of one axis called ``value``. Those
        that are missing or outside the range are left out.
    lo, hi
        The public range, known without the values. The result is one of 2^31 - 1 even steps between them.
    epsilon
        The privacy budget. It has no default, and nobody keeps count of it here.
    mechanism
        ``exponential``; ``exponential-paper``, with the weight of the paper, which is half as sharp;
        ``smooth-sensitivity``, which needs a ``delta``; ``noisy-mean``; or ``cell``, from 1,024 noisy counts.
    delta
        For ``smooth-sensitivity`` alone: the median is then (epsilon, delta)-differentially private.
    sample
        Look at each value only with this probability. The budget stays the same: a sample is worth more of it.
    """
    domain, budget = Domain({"value": (lo, hi)}), exact_epsilon(epsilon)
    if mechanism not in MECHANISMS:
        raise BadInput(f"There is no mechanism {mechanism!r} for medians. {near_misses(str(mechanism), MECHANISMS)}")
    if (delta is None) == (mechanism == "smooth-sensitivity"):
        rule = "smooth-sensitivity needs a delta, and the others are private without one"
        raise BadInput(f"{rule}: got delta={delta!r:.40} for {mechanism!r}.")
    slack = Fraction(0) if delta is None else _part("delta", delta, below=True)
    rate = Fraction(1) if sample is None else _part("sample", sample, below=False)
    if hasattr(values, "to_numpy") and not hasattr(values, "columns"):
        values = values.to_numpy()  # one column of a data frame
    sealed = seal(values, domain)
    del values
    try:
        return _median(sealed, mechanism, inner_epsilon(rate, budget), min(slack / rate, Fraction(1)), rate)
    except BaseException as error:
        failure = silenced(error)
    del sealed
    raise failure


def _part(name: str, value: object, *, below: bool) -> Fraction:
    try:
        part = exact_number(value)
    except ValueError:
        part = Fraction(0)
    if not 0 < part <= 1 or (below and part == 1):
        raise BadInput(f"{name} must be a number above 0 and {'below' if below else 'up to'} 1, got {value!r:.40}.")
    return part


def _median(points: Sealed, mechanism: str, epsilon: Fraction, delta: Fraction, rate: Fraction) -> float:
    domain, keys = points.domain, current_keys()
    ((cells,), _) = points._rows(lambda part: None)
    cells = np.sort(cells[poisson(rate, len(cells), keys)])
    box = cells, np.array([0, len(cells)]), np.array([0]), np.array([domain.side])
    if mechanism == "cell":
        return float(domain.edges(np.array([cell_median(cells, domain.side, epsilon, keys)]), 0)[0])
    return float(domain.edges(private_cuts(mechanism, *box, epsilon, delta, keys), 0)[0])

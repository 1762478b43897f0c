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
    """Return a number close to the median of ``values``, under ``epsilon``-differential privacy for one value.

    Parameters
    ----------
    values
        A list or array of numbers, or another input with one axis called ``value``. Missing values and values outside
        the range are left out.
    lo, hi
        The public range, chosen without looking at the values. The result is one of 2^31 - 1 evenly spaced numbers.
    epsilon
        The privacy budget. It has no default, and is not charged to a ledger: the caller adds up repeated calls.
    mechanism
        ``exponential``; ``exponential-paper``, with the paper's weight, which is half as sharp;
        ``smooth-sensitivity``, which needs a ``delta``; ``noisy-mean``; or ``cell``, which uses 1,024 noisy counts.
    delta
        Only for ``smooth-sensitivity``: the median is then (epsilon, delta)-differentially private.
    sample
        Use each value only with this probability. The same budget then allows less noise on the sample.
    """
    domain, budget = Domain({"value": (lo, hi)}), exact_epsilon(epsilon)
    if mechanism not in MECHANISMS:
        raise BadInput(f"Unknown mechanism for medians: {mechanism!r}. {near_misses(str(mechanism), MECHANISMS)}")
    if (delta is None) == (mechanism == "smooth-sensitivity"):
        rule = "smooth-sensitivity needs a delta, and the other mechanisms take none"
        raise BadInput(f"{rule}: got delta={delta!r:.40} for {mechanism!r}.")
    exact_delta = Fraction(0) if delta is None else _probability("delta", delta, below=True)
    rate = Fraction(1) if sample is None else _probability("sample", sample, below=False)
    if hasattr(values, "to_numpy") and not hasattr(values, "columns"):
        values = values.to_numpy()  # one column of a data frame
    sealed = seal(values, domain)
    del values
    try:
        return _median(sealed, mechanism, inner_epsilon(rate, budget), min(exact_delta / rate, Fraction(1)), rate)
    except BaseException as error:
        failure = silenced(error)
    del sealed
    raise failure


def _probability(name: str, value: object, *, below: bool) -> Fraction:
    """Return an exact probability above 0 and up to 1, or strictly ``below`` 1."""
    try:
        probability = exact_number(value)
    except ValueError:
        probability = Fraction(0)
    if not 0 < probability <= 1 or (below and probability == 1):
        raise BadInput(f"{name} must be a number above 0 and {'below' if below else 'up to'} 1, got {value!r:.40}.")
    return probability


def _median(points: Sealed, mechanism: str, epsilon: Fraction, delta: Fraction, rate: Fraction) -> float:
    """Return the median, whose budget is (``epsilon``, ``delta``) for a sample of the rate ``rate``."""
    domain, keys = points.domain, current_keys()
    ((cells,), _) = points._rows(lambda fraction: None)
    cells = np.sort(cells[poisson(rate, len(cells), keys)])
    box = cells, np.array([0, len(cells)]), np.array([0]), np.array([domain.side])
    if mechanism == "cell":
        return float(domain.edges(np.array([cell_median(cells, domain.side, epsilon, keys)]), 0)[0])
    return float(domain.edges(private_cuts(mechanism, *box, epsilon, delta, keys), 0)[0])

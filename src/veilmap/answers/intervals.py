"""Standard errors and confidence intervals of answers, from the variances of their two sources of error."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from veilmap.arrays import Floats
from veilmap.errors import BadInput

REFERENCE_CUT_LEAVES = 40.0
"""Number of cut leaves at which the factors of ``Borders.across`` hold."""
SHORT_BORDER_CUT_LEAVES = 15.0
"""On borders that cut this number of leaves or fewer, adjacent leaves share less of their errors."""
SHORT_BORDER_FRACTION = 2 / 3
"""Fraction of the unevenness that counts on the shortest borders."""


def variance_of(noise_variance: Floats, uneven: Floats, cut: Floats) -> Floats:
    """Return the variance of answers: noise, and where points lie inside the leaves that are cut.

    ``uneven`` is Σ f(1−f)·q over the leaves that a query cuts, ``cut`` their number.
    """
    short = SHORT_BORDER_FRACTION * SHORT_BORDER_CUT_LEAVES
    return noise_variance + uneven * (cut + short) / (cut + SHORT_BORDER_CUT_LEAVES)


def calibrated_unevenness(uneven: Floats, cut: Floats, sides: Floats, across: Floats, growth: float) -> Floats:
    """Return unevenness as the check of a release found it, by the direction and length of the query's border.

    ``sides`` are the fractions of the border across each axis, ``across`` the factor of each axis.
    """
    return uneven * (sides @ across) * (np.maximum(cut, 1) / REFERENCE_CUT_LEAVES) ** growth


def border_fractions(queries: Floats) -> Floats:
    """Return the fractions of the border of boxes that lie across each axis. Sides of the domain cut nothing."""
    axes = queries.shape[1] // 2
    lo, hi = queries[:, :axes], queries[:, axes:]
    width = hi - lo
    face = np.stack([np.prod(np.delete(width, k, axis=1), axis=1) for k in range(axes)], axis=1)
    return fractions_of(face * ((lo > 0).astype(np.float64) + (hi < 1)))


def fractions_of(faces: Floats) -> Floats:
    """Return what lies across each axis as a fraction of all."""
    positive: Floats = faces + 1e-9
    return np.asarray(positive / positive.sum(axis=1, keepdims=True))


def half_widths(
    noise_variance: Floats, uneven: Floats, cut: Floats, confidence: float, gaussian: bool = False
) -> Floats:
    """Return half the width of the confidence interval of each answer.

    One draw of Laplace noise has heavier tails at 95 % than a normal variable (2.12 standard errors against 1.96), and
    noise is a whole number, so that one more may be needed to reach the confidence. Both effects vanish where a query
    cuts leaves: then fractions of many draws are added up.
    """
    normal, laplace = quantiles(confidence)
    laplace = normal if gaussian else laplace
    variance = variance_of(noise_variance, uneven, cut)
    single = np.divide(noise_variance, variance, out=np.zeros_like(variance), where=variance > 0) / (1 + cut / 3)
    multiplier = normal + max(laplace - normal, 0.0) * single
    return np.where(variance > 0, multiplier * np.sqrt(variance) + (1 + single) / 2, 0.0)


def skew_shift(
    estimate: Floats, noise_variance: Floats, uneven: Floats, cut: Floats, confidence: float, half_width: Floats
) -> Floats:
    """Return how far intervals are moved up because counts are skewed: many more rows are possible, fewer than 0 not.

    The skewness of the unevenness part is its standard deviation over the expected count, at most 2, that of an
    exponential variable. Quantiles move by the first term of the Cornish-Fisher expansion.
    """
    variance = variance_of(noise_variance, uneven, cut)
    own = np.maximum(variance - noise_variance, 0)
    fraction = np.divide(own, variance, out=np.zeros_like(variance), where=variance > 0)
    deviation = np.sqrt(variance)
    skew = np.sqrt(own) / np.maximum(np.maximum(estimate, 0) + deviation / 2, 1e-9) * fraction**1.5
    return np.minimum(max(quantiles(confidence)[0] ** 2 - 1, 0.0) / 6 * skew * deviation, half_width / 2)


def quantiles(confidence: float) -> tuple[float, float]:
    """Return the standard errors within which a normal, and a Laplace, variable lies with this confidence."""
    if not isinstance(confidence, (int, float)) or not 0 < confidence < 1:
        raise BadInput(f"The confidence of an interval lies between 0 and 1, got {confidence!r}.")
    return -NormalDist().inv_cdf((1 - confidence) / 2), -math.log(1 - confidence) / math.sqrt(2)

"""From what is known of an answer's error to its standard error and interval."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from veilmap.arrays import Floats
from veilmap.errors import BadInput

USUAL = 40.0
"""Leaves that a box cuts, for which ``across`` is meant."""
FEW, CORNERS = 10.0, 15.0
"""Unevenness counts on long borders, where neighbours err alike. A short one has few neighbours: it is off by less."""


def spread_of(noise_variance: Floats, uneven: Floats, cut: Floats) -> Floats:
    """The variance of answers: noise, and the guess of how points lie inside the leaves that are cut.

    ``uneven`` is Σ f(1−f)·q over the leaves that a query cuts, ``cut`` is how many they are.
    """
    return noise_variance + uneven * (cut + FEW) / (cut + CORNERS)


def on_borders(uneven: Floats, cut: Floats, parts: Floats, across: Floats, growth: float) -> Floats:
    """Unevenness as a check of the release has found it: by the direction of a query's border, and the leaves it cuts.

    ``parts`` are how much of the border is across each axis, ``across`` is how uneven borders across it are.
    """
    return uneven * (parts @ across) * (np.maximum(cut, 1) / USUAL) ** growth


def sides(queries: Floats) -> Floats:
    """How much of the border of boxes is across each axis: parts that add up to 1. Sides of the domain cut nothing."""
    axes = queries.shape[1] // 2
    lo, hi = queries[:, :axes], queries[:, axes:]
    width = hi - lo
    face = np.stack([np.prod(np.delete(width, k, axis=1), axis=1) for k in range(axes)], axis=1)
    return parts_of(face * ((lo > 0).astype(np.float64) + (hi < 1)))


def parts_of(faces: Floats) -> Floats:
    """What is across each axis, as parts of all."""
    some: Floats = faces + 1e-9
    return np.asarray(some / some.sum(axis=1, keepdims=True))


def half_widths(
    estimate: Floats, noise_variance: Floats, uneven: Floats, cut: Floats, confidence: float, gaussian: bool = False
) -> Floats:
    """How far the intervals of answers go to either side.

    One draw of Laplace noise has heavier tails at 95 % than a normal variable (2.12 standard errors against 1.96), and
    noise is a whole number, so that one more may be needed to reach the confidence. Both wear off where a query cuts
    leaves: then many draws are added up, in parts.
    """
    normal, laplace = quantiles(confidence)
    laplace = normal if gaussian else laplace
    variance = spread_of(noise_variance, uneven, cut)
    single = np.divide(noise_variance, variance, out=np.zeros_like(variance), where=variance > 0) / (1 + cut / 3)
    multiplier = normal + max(laplace - normal, 0.0) * single
    return np.where(variance > 0, multiplier * np.sqrt(variance) + (1 + single) / 2, 0.0)


def leans(
    estimate: Floats, noise_variance: Floats, uneven: Floats, cut: Floats, confidence: float, half: Floats
) -> Floats:
    """How far intervals that go ``half`` to either side are moved up: where few rows are expected there may be many
    more, but none fewer than none.

    The guess of how points lie in leaves that are cut is as skewed as its deviation is large against what is expected,
    2 at most, as an exponential variable is; and quantiles move by Cornish and Fisher's first term.
    """
    variance = spread_of(noise_variance, uneven, cut)
    own = np.maximum(variance - noise_variance, 0)
    part = np.divide(own, variance, out=np.zeros_like(variance), where=variance > 0)
    deviation = np.sqrt(variance)
    skew = np.sqrt(own) / np.maximum(np.maximum(estimate, 0) + deviation / 2, 1e-9) * part**1.5
    return np.minimum(max(quantiles(confidence)[0] ** 2 - 1, 0.0) / 6 * skew * deviation, half / 2)


def quantiles(confidence: float) -> tuple[float, float]:
    """Standard errors that hold a part ``confidence`` of a normal variable, and of a Laplace one."""
    if not isinstance(confidence, (int, float)) or not 0 < confidence < 1:
        raise BadInput(f"The confidence of an interval lies between 0 and 1, got {confidence!r}.")
    return -NormalDist().inv_cdf((1 - confidence) / 2), -math.log(1 - confidence) / math.sqrt(2)

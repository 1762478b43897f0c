"""Post-processing of least-squares estimates: shrinkage of empty leaves, non-negative counts, integers, slopes.

Trees are given as in ``tree_sweeps``: the children of ``v`` are ``first_child[v] : first_child[v + 1]``, and come after
their parents. A node with one child is the same box measured twice: a leaf may be the end of a chain of such nodes.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from veilmap.arrays import Floats, Ints, SmallInts

Bytes = NDArray[np.uint8]

NO_STRATUM = 255  # in place of a stratum: the leaf is not known to be small
KNOWN_EXACTLY = 254  # in place of a stratum: the count of the leaf has no noise


@njit(cache=True, nogil=True)
def end_of_chain(first_child: Ints, v: int) -> int:
    """Return the first node from ``v`` down that does not have exactly one child."""
    while first_child[v + 1] - first_child[v] == 1:
        v = first_child[v]
    return v


@njit(cache=True, nogil=True)
def densities(estimate: Floats, volume: Floats, out: Floats) -> None:
    """Write estimate / volume; 0 for a box without cells."""
    for v in range(len(out)):
        out[v] = estimate[v] / volume[v] if volume[v] > 0 else 0.0


# Shrinkage of leaves that are probably empty

LOWEST_BIN = -8.0  # noisy counts are binned in units of their noise
BIN_WIDTH = 0.0625
COUNT_BINS = 512
EM_ROUNDS = 25
MIN_LEAVES_PER_STRATUM = 30  # with fewer there is too little to fit
MIN_KEPT_FRACTION = 0.02  # every leaf keeps at least this fraction of its estimate


@njit(cache=True, nogil=True)
def bin_leaf_counts(
    first_child: Ints,
    neighbours: SmallInts,
    volume: Floats,
    density: Floats,
    noisy: Ints,
    variance: Floats,
    unit: float,
    edges: Floats,
    strata: Bytes,
    scaled: Floats,
    number: Floats,
    total: Floats,
) -> None:
    """Bin the noisy counts of leaves, in units of their noise, by stratum.

    The stratum of a leaf is the count that the mean density of adjacent leaves predicts, in units of its noise, between
    two ``edges``. ``number`` and ``total`` are the number of counts and their sum per stratum and bin; ``unit`` is the
    variance of noise of scale 1. Inner nodes, leaves with a prediction above the last edge and leaves that are known
    exactly are in no stratum. A leaf whose siblings are all inner nodes is binned as well, since it is evidence.
    """
    strata[:] = NO_STRATUM
    for u in range(len(volume)):
        a, b = first_child[u], first_child[u + 1]
        if b - a < 2:
            continue
        for c in range(a, b):
            leaf, weight, sum_z = c, 0.0, 0.0
            while True:
                weight += 1.0 / variance[leaf] if variance[leaf] > 0 else np.inf
                sum_z += noisy[leaf] / variance[leaf] if variance[leaf] > 0 else 0.0
                if first_child[leaf + 1] - first_child[leaf] != 1:
                    break
                leaf = first_child[leaf]
            if first_child[leaf] < first_child[leaf + 1]:
                continue
            if volume[leaf] == 0 or not 0.0 < weight < np.inf:
                strata[leaf] = KNOWN_EXACTLY
                continue
            size = math.sqrt(1.0 / weight / unit)
            predicted, found = 0.0, 0
            for k in range(neighbours.shape[1]):
                if neighbours[leaf, k] >= 0:
                    predicted += density[neighbours[leaf, k]]
                    found += 1
            predicted *= volume[leaf] / size / max(found, 1)
            s = 0
            while s < len(edges) and predicted >= edges[s]:
                s += 1
            if s == len(edges):
                continue
            y = sum_z / weight / size
            strata[leaf] = s
            scaled[leaf] = y
            i = int(min(max((y - LOWEST_BIN) / BIN_WIDTH, 0.0), COUNT_BINS - 1.0))
            number[s, i] += 1
            total[s, i] += y


@njit(cache=True, nogil=True)
def likelihood_ratio(y: float, rate: float, normal: bool) -> float:
    """Return p(y | exponential count + noise) / p(y | noise alone), for noise of scale 1.

    Normal noise, with t = y − rate: rate · √(π/2) · exp(t²/2) · erfc(−t/√2).
    Laplace noise: rate / (1 + rate) for y ≤ 0; else, with g = exp((1 − rate) y),
    rate · (g − 1) / (1 − rate) + rate / (1 + rate) · g.
    """
    if normal:
        t = min(max(y - rate, -30.0), 30.0)
        return rate * math.sqrt(math.pi / 2) * math.exp(t * t / 2) * math.erfc(-t / math.sqrt(2.0))
    if y <= 0.0:
        return rate / (1.0 + rate)
    slower = min((1.0 - rate) * y, 700.0)
    growth = y if slower == 0.0 else math.expm1(slower) / (1.0 - rate)
    return rate * growth + rate / (1.0 + rate) * math.exp(slower)


@njit(cache=True, nogil=True)
def fit_zero_inflated_exponential(number: Floats, total: Floats, normal: bool) -> tuple[float, float]:
    """Return the fraction of empty leaves in a stratum and the rate of the exponential counts of the others.

    Fitted by expectation-maximisation to binned noisy counts.
    """
    above, much = 0.0, 0.0
    for i in range(COUNT_BINS):
        if total[i] > number[i]:
            above += number[i]
            much += total[i]
    empty, mean = 0.5, max(much / above if above > 0 else 1.0, 0.5)
    everything = number.sum()
    for _ in range(EM_ROUNDS):
        blank, there, held = 0.0, 0.0, 0.0
        for i in range(COUNT_BINS):
            if number[i] > 0:
                odds = (1.0 - empty) / empty * likelihood_ratio(total[i] / number[i], 1.0 / mean, normal)
                blank += number[i] / (1.0 + odds)
                there += number[i] * odds / (1.0 + odds) if odds < np.inf else number[i]
                held += total[i] * odds / (1.0 + odds) if odds < np.inf else total[i]
        empty = min(max(blank / everything, 0.001), 0.999)
        mean = max(held / max(there, 1e-9), 0.3)
    return empty, 1.0 / mean


@njit(cache=True, nogil=True)
def fit_kept_fractions(number: Floats, total: Floats, normal: bool, kept: Floats) -> None:
    """Write, per stratum and bin edge, the fraction of its estimate that a leaf keeps: the chance that it is not empty.

    With π the fraction of empty leaves and L the likelihood ratio: odds = (1 − π) / π · L, kept = odds / (1 + odds).
    """
    for s in range(len(number)):
        kept[s, :] = 1.0
        if number[s].sum() < MIN_LEAVES_PER_STRATUM:
            continue
        empty, rate = fit_zero_inflated_exponential(number[s], total[s], normal)
        for i in range(COUNT_BINS + 1):
            odds = (1.0 - empty) / empty * likelihood_ratio(LOWEST_BIN + i * BIN_WIDTH, rate, normal)
            kept[s, i] = max(odds / (1.0 + odds), MIN_KEPT_FRACTION) if odds < np.inf else 1.0
        kept[s, COUNT_BINS] = 1.0  # the last bin also holds all larger counts


@njit(cache=True, nogil=True)
def shrink_leaves(
    first_child: Ints, strata: Bytes, scaled: Floats, kept: Floats, fraction: Floats, estimate: Floats
) -> None:
    """Shrink the estimates of leaves, and distribute what they lose among sibling leaves (in place).

    With w_c the fraction that leaf c keeps, β_c ← w_c · (β_c + Σ (1 − w_j) β_j / Σ w_j) over its sibling leaves j and
    itself, so that the sum over siblings stays the same. ``fraction`` is scratch memory.
    """
    for u in range(len(estimate)):
        a, b = first_child[u], first_child[u + 1]
        if b - a < 2:
            continue
        removed, sum_w, least_w = 0.0, 0.0, 1.0
        for c in range(a, b):
            fraction[c] = 0.0
            leaf = end_of_chain(first_child, c)
            if first_child[leaf] < first_child[leaf + 1] or strata[leaf] == KNOWN_EXACTLY:
                continue
            w = 1.0
            if strata[leaf] != NO_STRATUM:
                at = min(max((scaled[leaf] - LOWEST_BIN) / BIN_WIDTH, 0.0), COUNT_BINS - 1e-9)
                i = int(at)
                row = kept[strata[leaf]]
                w = row[i] + (at - i) * (row[i + 1] - row[i])
            fraction[c] = w
            sum_w += w
            least_w = min(least_w, w)
            removed += (1.0 - w) * estimate[leaf]
        if least_w == 1.0:
            continue
        for c in range(a, b):
            if fraction[c] > 0.0:
                new = fraction[c] * (estimate[c] + removed / sum_w)
                leaf = c
                while True:
                    estimate[leaf] = new
                    if first_child[leaf] == first_child[leaf + 1]:
                        break
                    leaf = first_child[leaf]


# Non-negative counts


@njit(cache=True, nogil=True)
def project_nonnegative(first_child: Ints, estimate: Floats, variance: Floats) -> None:
    """Replace children, from the root down, by the nearest non-negative counts that add up to their parent (in place).

    The distance is Σ (x_c − β_c)² / V_c, so that x_c = max(0, β_c + V_c · t). Newton's method finds t: the sum of x_c
    is convex in t, and every step reduces the excess of the sum times the variance of the positive children to a
    quarter or less, so few steps are needed. Children that are known exactly stay the same, unless the others cannot
    absorb the difference.
    """
    estimate[0] = max(estimate[0], 0.0)
    for v in range(len(estimate)):
        a, b = first_child[v], first_child[v + 1]
        if a == b:
            continue
        loose = 0.0
        for c in range(a, b):
            loose += variance[c]
        even = loose == 0.0
        while True:
            t, last = np.inf, b - a + 1
            fixed = 0.0
            while True:
                above, sum_x, sum_v, fixed = 0, 0.0, 0.0, 0.0
                for c in range(a, b):
                    own = 1.0 if even else variance[c]
                    if own == 0.0:
                        fixed += max(estimate[c], 0.0)
                    elif t == np.inf or estimate[c] + own * t > 0.0:
                        above += 1
                        sum_x += estimate[c]
                        sum_v += own
                if above >= last or above == 0:
                    break
                last = above
                t = (estimate[v] - fixed - sum_x) / sum_v
            if even or fixed <= estimate[v]:
                break
            even = True
        for c in range(a, b):
            own = 1.0 if even else variance[c]
            estimate[c] = max(estimate[c] + own * t, 0.0) if own > 0.0 else max(estimate[c], 0.0)


@njit(cache=True, nogil=True)
def apportion(first_child: Ints, estimate: Floats, quantum: float) -> None:
    """Round non-negative estimates to multiples of ``quantum`` that add up exactly, from the root down (in place).

    The largest remainder method: every child is rounded down, and the children with the largest remainders (the first
    among equals) get the parent's remaining quanta, one each. So each estimate is rounded down or up.
    """
    estimate[0] = np.rint(max(estimate[0], 0.0) / quantum) * quantum
    for v in range(len(estimate)):
        a, b = first_child[v], first_child[v + 1]
        if a == b:
            continue
        rest = np.empty(b - a)
        left = np.rint(estimate[v] / quantum)
        for c in range(a, b):
            quanta = max(estimate[c], 0.0) / quantum
            whole = np.floor(quanta)
            rest[c - a] = whole - quanta
            estimate[c] = whole * quantum
            left -= whole
        if left == 0.0:
            continue
        order = np.argsort(rest, kind="mergesort")
        step = 1 if left > 0.0 else -1  # negative only if floating-point sums were not exact
        for i in range(2 * (b - a)):
            c = a + order[(i if step > 0 else -1 - i) % (b - a)]
            if left != 0.0 and estimate[c] + step * quantum >= 0.0:
                estimate[c] += step * quantum
                left -= step


# Slopes

SLOPE_STRATA = 20  # leaves are grouped by count / noise: half octaves, starting at a quarter
MAX_VARIANCE_RATIO = 30.0  # limits the influence of one leaf
PRIOR_RATIO_SUM = 20.0  # the prior of a stratum is worth PRIOR_LEAVES leaves with this sum of variance ratios
PRIOR_LEAVES = 10.0


@njit(cache=True, nogil=True)
def chain_variances(first_child: Ints, variance: Floats, out: Floats) -> None:
    """Write the subtree variance of each node; for the only child of a node, that of the chain's first node."""
    out[0] = variance[0]
    for v in range(len(out)):
        a, b = first_child[v], first_child[v + 1]
        for c in range(a, b):
            out[c] = out[v] if b - a == 1 else variance[c]


@njit(cache=True, nogil=True)
def central_differences(
    first_child: Ints,
    neighbours: SmallInts,
    volume: Floats,
    density: Floats,
    variance: Floats,
    strata: Bytes,
    slope: Floats,
    ratio: Floats,
    number: Floats,
) -> None:
    """Write the slope of each leaf along each axis, and sum slope² / noise variance by stratum.

    The slope is the difference of the two neighbours' densities, over the number of widths between them, times the
    leaf's volume: the change in count across the leaf. At the domain's border the leaf itself replaces the missing
    neighbour. ``slope`` must be zeros at the start, and so must the sums ``ratio`` and ``number`` (axes, SLOPE_STRATA).
    """
    for v in range(len(volume)):
        if first_child[v] < first_child[v + 1] or volume[v] == 0.0:
            continue
        known = max(variance[v], 1e-30)
        for k in range(slope.shape[1]):
            before, behind = neighbours[v, 2 * k], neighbours[v, 2 * k + 1]
            strata[v, k] = NO_STRATUM
            if before < 0 and behind < 0:
                continue
            width = 2.0 if before >= 0 and behind >= 0 else 1.0
            before, behind = before if before >= 0 else v, behind if behind >= 0 else v
            change = (density[behind] - density[before]) * volume[v] / width
            one, other = volume[v] / volume[before] / width, volume[v] / volume[behind] / width
            noise = variance[before] * one * one + variance[behind] * other * other
            level = max(density[before], 0.0) + 2.0 * max(density[v], 0.0) + max(density[behind], 0.0)
            level *= volume[v] / 4.0
            _, octave = math.frexp(max(level * level / known, 0.0625))
            s = min(max(octave + 3, 0), SLOPE_STRATA - 1)
            strata[v, k] = s
            slope[v, k] = change
            ratio[k, s] += min(change * change / max(noise, 1e-30), MAX_VARIANCE_RATIO)
            number[k, s] += 1.0


@njit(cache=True, nogil=True)
def limit_slopes(estimate: Floats, trust: Floats, strata: Bytes, slope: Floats) -> None:
    """Multiply slopes by the trust in their stratum, and limit them so that no density is negative (in place).

    The density of a leaf is non-negative if Σ |slope_k| ≤ 2 · estimate.
    """
    for v in range(len(estimate)):
        steepness = 0.0
        for k in range(slope.shape[1]):
            if slope[v, k] != 0.0:
                slope[v, k] *= trust[k, strata[v, k]]
                steepness += abs(slope[v, k])
        most = (2.0 - 1e-9) * max(estimate[v], 0.0)
        if steepness > most:
            for k in range(slope.shape[1]):
                slope[v, k] *= most / steepness

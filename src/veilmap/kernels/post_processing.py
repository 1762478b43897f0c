"""Estimates beyond least squares: probably empty leaves, counts of 0 or more, whole numbers, and slopes.

Trees come as in the sweeps: the children of ``v`` are ``first_child[v] : first_child[v + 1]``, after their parents.
A node with one child is that child, measured twice: a leaf may be the end of a chain of such nodes.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from veilmap.arrays import Floats, Ints, SmallInts

Bytes = NDArray[np.uint8]

NONE, FIXED = 255, 254  # in place of a stratum: of what is not known to be small; of what is known exactly


@njit(cache=True, nogil=True)
def end_of(first_child: Ints, v: int) -> int:
    """The leaf that a chain from ``v`` ends in, or the first node of it with more children."""
    while first_child[v + 1] - first_child[v] == 1:
        v = first_child[v]
    return v


@njit(cache=True, nogil=True)
def spread_out(estimate: Floats, volume: Floats, out: Floats) -> None:
    """Densities; 0 in a box without cells."""
    for v in range(len(out)):
        out[v] = estimate[v] / volume[v] if volume[v] > 0 else 0.0


# Leaves that are probably empty

LOWEST, STEP, BINS = -8.0, 0.0625, 512  # bins of noisy counts, in units of noise
ROUNDS = 25
FEWEST = 30  # leaves to learn from
LEAST = 0.02  # of its estimate a leaf keeps


@njit(cache=True, nogil=True)
def sort_leaves(
    first_child: Ints,
    near: SmallInts,
    volume: Floats,
    density: Floats,
    noisy: Ints,
    variance: Floats,
    unit: float,
    edges: Floats,
    strata: Bytes,
    seen: Floats,
    number: Floats,
    total: Floats,
) -> None:
    """Noisy counts of leaves in units of their noise, binned by what their neighbours would make one expect.

    ``unit`` is the variance of noise of unit size. Leaves whose neighbours have much, or which are known exactly, and
    inner nodes are in none. A leaf alone among inner siblings is sorted too: it is evidence.
    """
    strata[:] = NONE
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
                strata[leaf] = FIXED
                continue
            size = math.sqrt(1.0 / weight / unit)
            around, neighbours = 0.0, 0
            for k in range(near.shape[1]):
                if near[leaf, k] >= 0:
                    around += density[near[leaf, k]]
                    neighbours += 1
            around *= volume[leaf] / size / max(neighbours, 1)
            s = 0
            while s < len(edges) and around >= edges[s]:
                s += 1
            if s == len(edges):
                continue
            y = sum_z / weight / size
            strata[leaf] = s
            seen[leaf] = y
            i = int(min(max((y - LOWEST) / STEP, 0.0), BINS - 1.0))
            number[s, i] += 1
            total[s, i] += y


@njit(cache=True, nogil=True)
def odds_of_many(y: float, rate: float, normal: bool) -> float:
    """How much likelier y is as an exponential count of this rate with noise, than as noise alone."""
    if normal:
        t = min(max(y - rate, -30.0), 30.0)
        return rate * math.sqrt(math.pi / 2) * math.exp(t * t / 2) * math.erfc(-t / math.sqrt(2.0))
    if y <= 0.0:
        return rate / (1.0 + rate)
    slower = min((1.0 - rate) * y, 700.0)
    growth = y if slower == 0.0 else math.expm1(slower) / (1.0 - rate)
    return rate * growth + rate / (1.0 + rate) * math.exp(slower)


@njit(cache=True, nogil=True)
def fit_empty(number: Floats, total: Floats, normal: bool) -> tuple[float, float]:
    """Which part of a stratum is empty, and the rate of what is in the others: expectation and maximisation."""
    above, much = 0.0, 0.0
    for i in range(BINS):
        if total[i] > number[i]:
            above += number[i]
            much += total[i]
    empty, mean = 0.5, max(much / above if above > 0 else 1.0, 0.5)
    everything = number.sum()
    for _ in range(ROUNDS):
        blank, there, held = 0.0, 0.0, 0.0
        for i in range(BINS):
            if number[i] > 0:
                odds = (1.0 - empty) / empty * odds_of_many(total[i] / number[i], 1.0 / mean, normal)
                blank += number[i] / (1.0 + odds)
                there += number[i] * odds / (1.0 + odds) if odds < np.inf else number[i]
                held += total[i] * odds / (1.0 + odds) if odds < np.inf else total[i]
        empty = min(max(blank / everything, 0.001), 0.999)
        mean = max(held / max(there, 1e-9), 0.3)
    return empty, 1.0 / mean


@njit(cache=True, nogil=True)
def learn_weights(number: Floats, total: Floats, normal: bool, weight: Floats) -> None:
    """What a leaf of each stratum keeps of its estimate, by its noisy count: the chance that it is not empty."""
    for s in range(len(number)):
        weight[s, :] = 1.0
        if number[s].sum() < FEWEST:
            continue
        empty, rate = fit_empty(number[s], total[s], normal)
        for i in range(BINS + 1):
            odds = (1.0 - empty) / empty * odds_of_many(LOWEST + i * STEP, rate, normal)
            weight[s, i] = max(odds / (1.0 + odds), LEAST) if odds < np.inf else 1.0
        weight[s, BINS] = 1.0  # and beyond: how far beyond is not known here


@njit(cache=True, nogil=True)
def hand_over(first_child: Ints, strata: Bytes, seen: Floats, weight: Floats, keeps: Floats, estimate: Floats) -> None:
    """In place: leaves keep a part of their estimates, and share the rest out among siblings that are leaves.

    Each gets as large a share as the part it keeps, so a group of siblings keeps its total. ``keeps`` is room.
    """
    for u in range(len(estimate)):
        a, b = first_child[u], first_child[u + 1]
        if b - a < 2:
            continue
        given, kept, all_kept = 0.0, 0.0, 1.0
        for c in range(a, b):
            keeps[c] = 0.0
            leaf = end_of(first_child, c)
            if first_child[leaf] < first_child[leaf + 1] or strata[leaf] == FIXED:
                continue
            part = 1.0
            if strata[leaf] != NONE:
                at = min(max((seen[leaf] - LOWEST) / STEP, 0.0), BINS - 1e-9)
                i = int(at)
                row = weight[strata[leaf]]
                part = row[i] + (at - i) * (row[i + 1] - row[i])
            keeps[c] = part
            kept += part
            all_kept = min(all_kept, part)
            given += (1.0 - part) * estimate[leaf]
        if all_kept == 1.0:
            continue
        for c in range(a, b):
            if keeps[c] > 0.0:
                new = keeps[c] * (estimate[c] + given / kept)
                leaf = c
                while True:
                    estimate[leaf] = new
                    if first_child[leaf] == first_child[leaf + 1]:
                        break
                    leaf = first_child[leaf]


# Counts of 0 or more


@njit(cache=True, nogil=True)
def project_down(first_child: Ints, estimate: Floats, variance: Floats) -> None:
    """In place, root first: children become the counts of 0 or more nearest to theirs that add up to their parent.

    Near in the metric of their variances, so x_c = max(0, β_c + V_c · t). Newton's steps find t: the sum is convex in
    t, and with every step what it is too large times the variance of those above 0 falls to a quarter or less, so
    there are few. Children that are known exactly stay, unless nothing else can give way.
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
    """In place, root first: estimates of 0 or more become multiples of ``quantum`` that add up exactly.

    Every child gets the whole quanta that it has; those with the largest remainders, the first among equals, get what
    their parent has left, one each. So each node's is its own estimate rounded down or up.
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
        step = 1 if left > 0.0 else -1  # below 0 only where sums were not exact
        for i in range(2 * (b - a)):
            c = a + order[(i if step > 0 else -1 - i) % (b - a)]
            if left != 0.0 and estimate[c] + step * quantum >= 0.0:
                estimate[c] += step * quantum
                left -= step


# Slopes

STRATA = 20  # half octaves of count over noise, from a quarter
CAP = 30.0  # of a ratio of variances, that one leaf may bring
PRIOR = (20.0, 10.0)  # ratios already seen, and of how many leaves


@njit(cache=True, nogil=True)
def share_variance(first_child: Ints, variance: Floats, out: Floats) -> None:
    """What is known of each node by its subtree, or by the chain that it is in."""
    out[0] = variance[0]
    for v in range(len(out)):
        a, b = first_child[v], first_child[v + 1]
        for c in range(a, b):
            out[c] = out[v] if b - a == 1 else variance[c]


@njit(cache=True, nogil=True)
def difference_leaves(
    first_child: Ints,
    near: SmallInts,
    volume: Floats,
    density: Floats,
    variance: Floats,
    strata: Bytes,
    slope: Floats,
    ratio: Floats,
    number: Floats,
) -> None:
    """How much density changes across each leaf, by its neighbours; and that over noise, squared, by stratum.

    ``slope`` begins as zeros, and so do the sums ``ratio`` and ``number`` (axes, STRATA).
    """
    for v in range(len(volume)):
        if first_child[v] < first_child[v + 1] or volume[v] == 0.0:
            continue
        known = max(variance[v], 1e-30)
        for k in range(slope.shape[1]):
            before, behind = near[v, 2 * k], near[v, 2 * k + 1]
            strata[v, k] = NONE
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
            s = min(max(octave + 3, 0), STRATA - 1)
            strata[v, k] = s
            slope[v, k] = change
            ratio[k, s] += min(change * change / max(noise, 1e-30), CAP)
            number[k, s] += 1.0


@njit(cache=True, nogil=True)
def limit_slopes(estimate: Floats, trust: Floats, strata: Bytes, slope: Floats) -> None:
    """In place: slopes as far as they can be trusted, and no steeper than keeps density at 0 or more."""
    for v in range(len(estimate)):
        steep = 0.0
        for k in range(slope.shape[1]):
            if slope[v, k] != 0.0:
                slope[v, k] *= trust[k, strata[v, k]]
                steep += abs(slope[v, k])
        most = (2.0 - 1e-9) * max(estimate[v], 0.0)
        if steep > most:
            for k in range(slope.shape[1]):
                slope[v, k] *= most / steep

"""How unevenly points lie inside boxes, seen from noisy counts of the boxes and of their parts.

Trees come as ``first_child``: the children of ``v`` are ``first_child[v] : first_child[v + 1]``. ``z`` and ``subtree``
are what each subtree says of its own count, and the variance of that: siblings err independently. ``mean`` and
``square`` are what a count and its square are expected to be; ``volume`` is the part of the domain that a box takes.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LOWEST, HIGHEST, STEPS = -30.0, 8.0, 32  # where the hazard is tabled, and entries a unit
STEEPEST, FLATTEST = -7.0, 3.0  # of the log odds of a correlation
COLUMNS = 6  # of what ``contrasts`` writes
SMALLEST, LARGEST = -40, 400  # powers of 2^(1/4) that unevenness may be
EIGHTHS = (2**0.125, 2**0.375, 2**0.625, 2**0.875)


def hazards() -> Floats:
    """φ(a) / Φ(a) of the standard normal, by steps of a."""
    at = np.linspace(LOWEST, HIGHEST, int((HIGHEST - LOWEST) * STEPS) + 1).tolist()
    return np.array([math.exp(-a * a / 2) / (math.sqrt(math.pi / 2) * math.erfc(-a / math.sqrt(2))) for a in at])


def logistics() -> Floats:
    """1 / (1 + exp(−e)), by steps of e."""
    return 1 / (1 + np.exp(-np.linspace(STEEPEST, FLATTEST, int((FLATTEST - STEEPEST) * STEPS) + 2)))


@njit(cache=True, nogil=True, error_model="numpy")
def log2(value: float) -> float:
    """Of a number above 0, to 0.001: its exponent, and a polynomial of its digits."""
    bits = np.float64(value).view(np.int64)
    m = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64) - 1.0
    return float((bits >> 52) - 1023) + m * (1.4386 - m * (0.6766 - m * (0.3146 - m * 0.0766)))


@njit(cache=True, nogil=True, error_model="numpy")
def expected(x: float, s: float, prior: float, hazard: Floats) -> tuple[float, float]:
    """The means of a count and of its square: x is the count with normal noise of that s, and it was exponential before.

    So it is normal around x − s² / prior, cut off at 0.
    """
    if s <= 0.0:
        return max(x, 0.0), max(x, 0.0) ** 2
    a = x / s - s / prior
    if a < LOWEST + 1.0:  # far below 0: nearly exponential again
        return s / -a, 2.0 * (s / a) ** 2
    h = 0.0
    if a < HIGHEST:
        place = (a - LOWEST) * STEPS
        i = np.uint64(place)
        h = hazard[i] + (hazard[i + np.uint64(1)] - hazard[i]) * (place - np.float64(i))
    mean = max(s * (a + h), 1e-9)
    return mean, max(s * s * (1.0 + a * (a + h)), mean * mean)


@njit(cache=True, nogil=True, error_model="numpy")
def share(first_child: Ints, z: Floats, subtree: Floats, v: int, best: float) -> tuple[float, float]:
    """What a child's z gains for each of its variance when children must add up to ``best``; and ΣV."""
    sum_z = 0.0
    sum_v = 0.0
    for c in range(first_child[v], first_child[v + 1]):
        sum_z += z[c]
        sum_v += subtree[c]
    return ((best - sum_z) / sum_v if sum_v > 0.0 else 0.0), sum_v


@njit(cache=True, nogil=True, error_model="numpy")
def expect_inner(
    first_child: Ints, volume: Floats, z: Floats, subtree: Floats, hazard: Floats, state: Floats
) -> tuple[float, float]:
    """Of inner nodes, root first: least-squares count, its variance, mean, square and how far it stands out (log2).

    Each count is expected to be its volume's part of its parent's mean. Returns Σ w · log2 volume and Σ w over parents
    of leaves, for their leaves, w their mean.
    """
    scale = 0.0
    mass = 0.0
    state[0, 0] = z[0]
    state[0, 1] = subtree[0]
    state[0, 2] = max(z[0], 1.0)
    state[0, 3] = state[0, 2] ** 2
    state[0, 4] = 0.0
    for v in range(len(z)):
        a, b = first_child[v], first_child[v + 1]
        if a == b or volume[v] <= 0.0:
            continue
        gain, sum_v = share(first_child, z, subtree, v, state[v, 0])
        leaves = 0
        for c in range(a, b):
            if first_child[c] == first_child[c + 1]:
                leaves += 1
                continue
            part = subtree[c] / sum_v if sum_v > 0.0 else 0.0
            prior = max(state[v, 2] * volume[c] / volume[v], 1e-6)
            state[c, 0] = z[c] + subtree[c] * gain
            state[c, 1] = subtree[c] * (1.0 - part) + part * part * state[v, 1]
            state[c, 2], state[c, 3] = expected(state[c, 0], math.sqrt(state[c, 1]), prior, hazard)
            state[c, 4] = log2((state[c, 2] + 1.0) / (prior + 1.0))
        if leaves:
            w = state[v, 2] * leaves / (b - a)
            mass += w
            scale += w * log2(volume[v] / (b - a))
    return scale, mass


@njit(cache=True, nogil=True, error_model="numpy")
def grid_parts(first_child: Ints, lo: Ints, v: int, parts: Ints) -> bool:
    """Into how many parts a node's children cut it along each axis; False when they are no grid in row-major order."""
    a, n = first_child[v], first_child[v + 1] - first_child[v]
    stride = 1
    for k in range(lo.shape[1] - 1, -1, -1):
        m = 1
        while (m + 1) * stride <= n:
            same = True
            for j in range(k):
                same = same and lo[a + m * stride, j] == lo[a, j]
            if not same:
                break
            m += 1
        parts[k] = m
        stride *= m
    return stride == n


@njit(cache=True, nogil=True, error_model="numpy")
def all_parts(first_child: Ints, lo: Ints, nodes: Ints, parts: Ints, grid: NDArray[np.bool_]) -> None:
    """Of each of these nodes."""
    for i in range(len(nodes)):
        grid[i] = grid_parts(first_child, lo, nodes[i], parts[i])


@njit(cache=True, nogil=True, error_model="numpy")
def volumes(lo: Ints, hi: Ints, out: Floats) -> None:
    """The part of the domain, which is the first box, that each box takes."""
    for v in range(len(out)):
        out[v] = 1.0
        for k in range(lo.shape[1]):
            out[v] *= (hi[v, k] - lo[v, k]) / (hi[0, k] - lo[0, k])


@njit(cache=True, nogil=True, error_model="numpy")
def contrasts(
    nodes: Ints,
    parts: Ints,
    first_child: Ints,
    volume: Floats,
    z: Floats,
    subtree: Floats,
    hazard: Floats,
    state: Floats,
    out: Floats,
) -> int:
    """How unlike the halves of boxes are: of nodes cut into a grid, and of aligned blocks of 2, 4, … cells a side.

    D = (points in one half) − f · (all points), f the half's part of the volume. A row of ``out`` is log2 volume, mean,
    square and how far it stands out, of the block; then D² / f(1−f) less what noise adds to it, and that noise. Along
    each axis that is cut, one row. Returns the number of rows.
    """
    rows = 0
    axes = parts.shape[1]
    extent, blocks, stride, corner, cell = np.empty((5, axes), np.int64)
    half = np.empty((axes, 3))  # Σ z, ΣV, Σ volume of the lower half along each axis
    for q in range(len(nodes)):
        v, m = nodes[q], parts[q]
        gain, sum_v = share(first_child, z, subtree, v, state[v, 0])
        stride[axes - 1] = 1
        for k in range(axes - 2, -1, -1):
            stride[k] = stride[k + 1] * m[k + 1]
        b = 1
        while b <= m.max() // 2:
            count, cells = 1, 1
            for k in range(axes):
                extent[k] = min(2 * b, m[k])
                blocks[k] = m[k] // extent[k]
                count *= blocks[k]
                cells *= extent[k]
            for t in range(count):
                rest = t
                for k in range(axes - 1, -1, -1):
                    corner[k] = rest % blocks[k] * extent[k]
                    rest //= blocks[k]
                half[:] = 0.0
                all_z, all_v, size = 0.0, 0.0, 0.0
                for i in range(cells):
                    rest, c = i, first_child[v]
                    for k in range(axes - 1, -1, -1):
                        cell[k] = rest % extent[k]
                        rest //= extent[k]
                        c += (corner[k] + cell[k]) * stride[k]
                    all_z += z[c]
                    all_v += subtree[c]
                    size += volume[c]
                    for k in range(axes):
                        if cell[k] < b:
                            half[k, 0] += z[c]
                            half[k, 1] += subtree[c]
                            half[k, 2] += volume[c]
                if size <= 0.0:
                    continue
                if count == 1 and cells == first_child[v + 1] - first_child[v]:
                    mean, square, out_by = state[v, 2], state[v, 3], state[v, 4]
                else:
                    prior = max(state[v, 2] * size / volume[v], 1e-6)
                    part = all_v / sum_v if sum_v > 0.0 else 0.0
                    spread = all_v * (1.0 - part) + part * part * state[v, 1]
                    mean, square = expected(all_z + all_v * gain, math.sqrt(spread), prior, hazard)
                    out_by = log2((mean + 1.0) / (prior + 1.0))
                for k in range(axes):
                    f = half[k, 2] / size
                    if m[k] < 2 * b or not 0.02 < f < 0.98:
                        continue
                    if rows == len(out):
                        return rows
                    d = (1.0 - f) * half[k, 0] - f * (all_z - half[k, 0])
                    noise = (1.0 - f) / f * half[k, 1] + f / (1.0 - f) * (all_v - half[k, 1])
                    out[rows, 0] = log2(size)
                    out[rows, 1] = mean
                    out[rows, 2] = square
                    out[rows, 3] = out_by
                    out[rows, 4] = d * d / (f * (1.0 - f)) - noise
                    out[rows, 5] = noise
                    rows += 1
            b *= 2
    return rows


@njit(cache=True, nogil=True, error_model="numpy")
def correlation(base: float, density: float, out_by: float, scale: Floats, weight: Floats, logistic: Floats) -> float:
    """Inside a box, by its side (in ``base``), log2 of its density and how far it stands out.

    ``scale`` is the side and density at the middle, and the least and greatest density that was learned from.
    """
    e = base + weight[2] * (min(max(density, scale[2]), scale[3]) - scale[1])
    e += weight[3] * min(max(out_by, 0.0), 4.0) + weight[4] * min(max(-out_by, 0.0), 4.0)
    return float(logistic[int((min(max(e, STEEPEST), FLATTEST) - STEEPEST) * STEPS + 0.5)])


@njit(cache=True, nogil=True, error_model="numpy")
def stepped(value: float, powers: Floats) -> float:
    """The nearest power of 2^(1/4); 0 stays."""
    if value <= powers[0]:
        return 0.0
    bits = np.float64(value).view(np.int64)
    m = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)  # 1 <= m < 2
    k = 4 * ((bits >> 52) - 1023) + (m > EIGHTHS[0]) + (m > EIGHTHS[1]) + (m > EIGHTHS[2]) + (m > EIGHTHS[3])
    return float(powers[min(k - SMALLEST, len(powers) - 1)])


@njit(cache=True, nogil=True, error_model="numpy")
def unevenness(
    nodes: Ints,
    parent: Ints,
    first_child: Ints,
    volume: Floats,
    z: Floats,
    subtree: Floats,
    hazard: Floats,
    logistic: Floats,
    state: Floats,
    explained: Floats,
    scale: Floats,
    weight: Floats,
    powers: Floats,
    out: Floats,
) -> None:
    """q = mean + correlation · (square − mean), less what slopes explain, of ``nodes``, rounded by ``stepped``.

    A negative node stands for no leaf: its q is 0. ``explained`` is one number a node, or none at all.
    """
    axes = scale[4]
    family, size, noise = -1, -1.0, -1.0
    gain, sum_v, prior, usual, content, base, s = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(len(nodes)):
        v = nodes[i]
        out[i] = 0.0
        if v < 0 or volume[v] <= 0.0:
            continue
        p = parent[v]
        if volume[v] != size:  # siblings are often alike
            size = volume[v]
            content = log2(size)
            base = weight[0] + weight[1] * min(max(content / axes - scale[0], -2.5), 4.0)
            family = -1
        if v == 0 or first_child[v] < first_child[v + 1]:
            mean, square, out_by = state[v, 2], state[v, 3], state[v, 4]
            crowd = log2(mean + 1.0)
        else:
            if p != family:
                family = p
                gain, sum_v = share(first_child, z, subtree, p, state[p, 0])
                prior = max(state[p, 2] * size / volume[p], 1e-6)
                usual = log2(prior + 1.0)
                noise = -1.0
            if subtree[v] != noise:
                noise = subtree[v]
                part = noise / sum_v if sum_v > 0.0 else 0.0
                s = math.sqrt(noise * (1.0 - part) + part * part * state[p, 1])
            mean, square = expected(z[v] + noise * gain, s, prior, hazard)
            crowd = log2(mean + 1.0)
            out_by = crowd - usual
        over = max(square - mean, 0.0) * correlation(base, crowd - content, out_by, scale, weight, logistic)
        if len(explained):
            over = max(over - explained[i], 0.3 * over)
        out[i] = stepped(mean + over, powers)

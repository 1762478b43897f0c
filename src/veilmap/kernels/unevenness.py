"""How unevenly points lie inside boxes, estimated from noisy counts of boxes and of their children.

Trees come as ``first_child``: the children of ``v`` are ``first_child[v] : first_child[v + 1]``. ``z`` and ``subtree``
are the estimate of each count from its own subtree, and its variance: siblings have independent errors. ``mean`` and
``square`` are the expectations of a count and of its square; ``volume`` is the fraction of the domain in a box.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from veilmap.arrays import Flags, Floats, Ints
from veilmap.kernels.grid_shape import grid_shape

MIN_HAZARD_ARGUMENT = -30.0  # the hazard is tabulated from here …
MAX_HAZARD_ARGUMENT = 8.0  # … to here
TABLE_ENTRIES_PER_UNIT = 32
MIN_LOG_ODDS = -7.0  # of a correlation
MAX_LOG_ODDS = 3.0
MIN_UNEXPLAINED_FRACTION = 0.2  # of a leaf's unevenness: slopes explain no more than the rest
# Beyond these bounds the fit of a correlation would follow single boxes.
MIN_OCTAVES_OF_SIDE = -2.5
MAX_OCTAVES_OF_SIDE = 4.0
MAX_EXCESS = 4.0  # octaves
MIN_HALF_FRACTION = 0.02  # of the volume: a box that is cut beside its border says nothing about halves
MAX_BORDER_GAP = 0.15  # of a width: borders this close count as one
MAX_STANDARD_ERRORS = 4.0  # of a difference: outliers are pulled in
CONTRAST_COLUMNS = 7  # of the rows that ``contrasts`` writes
MIN_UNEVENNESS_POWER = -40  # of 2^(1/4)
MAX_UNEVENNESS_POWER = 400
ROUNDING_BORDERS = (2**0.125, 2**0.375, 2**0.625, 2**0.875)  # between powers of 2^(1/4)


def hazards() -> Floats:
    """Tabulate φ(a) / Φ(a) of the standard normal distribution."""
    at = np.linspace(
        MIN_HAZARD_ARGUMENT,
        MAX_HAZARD_ARGUMENT,
        int((MAX_HAZARD_ARGUMENT - MIN_HAZARD_ARGUMENT) * TABLE_ENTRIES_PER_UNIT) + 1,
    ).tolist()
    return np.array([math.exp(-a * a / 2) / (math.sqrt(math.pi / 2) * math.erfc(-a / math.sqrt(2))) for a in at])


def logistics() -> Floats:
    """Tabulate 1 / (1 + exp(−e))."""
    return 1 / (
        1
        + np.exp(
            -np.linspace(MIN_LOG_ODDS, MAX_LOG_ODDS, int((MAX_LOG_ODDS - MIN_LOG_ODDS) * TABLE_ENTRIES_PER_UNIT) + 2)
        )
    )


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def log2(value: float) -> float:
    """Return log2 of a positive number, to 0.001: its exponent, and a polynomial of its mantissa."""
    bits = np.float64(value).view(np.int64)
    m = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64) - 1.0
    return float((bits >> 52) - 1023) + m * (1.4386 - m * (0.6766 - m * (0.3146 - m * 0.0766)))


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def expected(x: float, s: float, prior: float, hazard: Floats) -> tuple[float, float]:
    """Return the posterior means of a count and of its square.

    x is the count with normal noise of standard deviation s, and its prior is exponential with the mean ``prior``: so
    the posterior is a normal distribution around x − s² / prior, truncated at 0.
    """
    if s <= 0.0:
        return max(x, 0.0), max(x, 0.0) ** 2
    a = x / s - s / prior
    if a < MIN_HAZARD_ARGUMENT + 1.0:  # far below 0: nearly exponential again
        return s / -a, 2.0 * (s / a) ** 2
    h = 0.0
    if a < MAX_HAZARD_ARGUMENT:
        place = (a - MIN_HAZARD_ARGUMENT) * TABLE_ENTRIES_PER_UNIT
        i = int(place)
        h = hazard[i] + (hazard[i + 1] - hazard[i]) * (place - i)
    mean = max(s * (a + h), 1e-9)
    return mean, max(s * s * (1.0 + a * (a + h)), mean * mean)


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def correction(first_child: Ints, z: Floats, subtree: Floats, v: int, best: float) -> tuple[float, float]:
    """Return the correction of a child's z per unit of its variance that makes children add up to ``best``; and ΣV."""
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
    """Fill ``state`` of inner nodes, root first: least-squares count, its variance, mean, square and excess.

    The prior mean of a count is its share by volume of its parent's mean; the excess is log2 of its mean over that.
    Return Σ w · log2 volume and Σ w over the leaves, w the mean of their parents.
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
        gain, sum_v = correction(first_child, z, subtree, v, state[v, 0])
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
def all_parts(first_child: Ints, lo: Ints, nodes: Ints, parts: Ints, grid: Flags) -> None:
    """Find the shape of the grid of children of each of these nodes."""
    for i in range(len(nodes)):
        grid[i] = grid_shape(first_child[nodes[i]], first_child[nodes[i] + 1], lo, parts[i])


@njit(cache=True, nogil=True, error_model="numpy")
def volumes(lo: Ints, hi: Ints, out: Floats) -> None:
    """Compute the fraction of the domain, which is the first box, in each box."""
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
    elongation: Floats,
    out: Floats,
) -> int:
    """Contrast the two halves of nodes that are split into a grid, and of aligned blocks of 2, 4, … children per axis.

    D = (points in one half) − f · (all points), with f the half's fraction of the volume. A row of ``out`` holds log2
    volume, mean, square and excess of the block; then D² / f(1−f) less the mean contribution of noise, that
    contribution, and the elongation of the side that is cut. There is one row per axis that is cut. Return the number
    of rows. ``elongation`` is log2 of the sides of each box over their mean side, or empty.
    """
    rows = 0
    axes = parts.shape[1]
    extent, blocks, stride, corner, cell = np.empty((5, axes), np.int64)
    half = np.empty((axes, 3))  # Σ z, ΣV, Σ volume of the lower half along each axis
    for q in range(len(nodes)):
        v, m = nodes[q], parts[q]
        gain, sum_v = correction(first_child, z, subtree, v, state[v, 0])
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
                    mean, square, excess = state[v, 2], state[v, 3], state[v, 4]
                else:
                    prior = max(state[v, 2] * size / volume[v], 1e-6)
                    part = all_v / sum_v if sum_v > 0.0 else 0.0
                    spread = all_v * (1.0 - part) + part * part * state[v, 1]
                    mean, square = expected(all_z + all_v * gain, math.sqrt(spread), prior, hazard)
                    excess = log2((mean + 1.0) / (prior + 1.0))
                for k in range(axes):
                    f = half[k, 2] / size
                    if m[k] < 2 * b or not MIN_HALF_FRACTION < f < 1.0 - MIN_HALF_FRACTION:
                        continue
                    if rows == len(out):
                        return rows
                    d = (1.0 - f) * half[k, 0] - f * (all_z - half[k, 0])
                    noise = (1.0 - f) / f * half[k, 1] + f / (1.0 - f) * (all_v - half[k, 1])
                    out[rows, 0] = log2(size)
                    out[rows, 1] = mean
                    out[rows, 2] = square
                    out[rows, 3] = excess
                    out[rows, 4] = d * d / (f * (1.0 - f)) - noise
                    out[rows, 5] = noise
                    out[rows, 6] = elongation[v, k] if len(elongation) else 0.0
                    rows += 1
            b *= 2
    return rows


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def side_odds(side: float, scale: Floats, weight: Floats) -> float:
    """Return the part of the log odds of the correlation that depends on the side that is cut (log2).

    ``scale`` holds log2 side and density at the middle, the least and greatest density of the fit, and the axes.
    """
    return float(
        weight[0]
        + weight[1] * min(max(side - scale[0], MIN_OCTAVES_OF_SIDE), MAX_OCTAVES_OF_SIDE)
        - weight[2] * scale[1]
    )


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def correlation(
    odds: float, density: float, excess: float, low: float, high: float, by: tuple[float, float, float], table: Floats
) -> float:
    """Inside a box: by its size (in ``odds``), its density between low and high, and how far it stands out (log2)."""
    e = odds + by[0] * min(max(density, low), high)
    e += by[1] * min(excess, MAX_EXCESS) if excess > 0.0 else by[2] * min(-excess, MAX_EXCESS)
    return float(table[int((min(max(e, MIN_LOG_ODDS), MAX_LOG_ODDS) - MIN_LOG_ODDS) * TABLE_ENTRIES_PER_UNIT + 0.5)])


@njit(cache=True, nogil=True, error_model="numpy")
def cut_below(first_child: Ints, lo: Ints, out: Flags) -> None:
    """Whether anything in a node's subtree is cut along each axis."""
    for v in range(len(lo) - 1, -1, -1):
        for c in range(first_child[v], first_child[v + 1]):
            for k in range(lo.shape[1]):
                out[v, k] = out[v, k] or out[c, k] or lo[c, k] != lo[v, k]


@njit(cache=True, nogil=True, error_model="numpy")
def beside_lines(
    first_child: Ints, lo: Ints, hi: Ints, cut: Flags, lines: Floats, axis: int, along: int, out: Ints
) -> int:
    """The smallest boxes cut by planes across ``axis``, met on lines in them: each with the sibling behind the border
    that is nearest to the plane.

    A row of ``out`` is the line, where the box begins on it, the box and the sibling on the lower side first, the
    border between them and the width of both; the siblings are -1 where there is none. Returns the number of rows.
    """
    rows = 0
    axes = lo.shape[1]
    parts, stride = np.empty((2, axes), np.int64)
    stack = np.empty(len(first_child), np.int64)
    for line in range(len(lines)):
        at = lines[line]
        stack[0] = 0
        top = 1 if first_child[0] < first_child[1] else 0
        while top:
            top -= 1
            v = stack[top]
            if not grid_shape(first_child[v], first_child[v + 1], lo, parts):
                continue
            stride[axes - 1] = 1
            for k in range(axes - 2, -1, -1):
                stride[k] = stride[k + 1] * parts[k + 1]
            first, place, met = first_child[v], 0, True
            for k in range(axes):
                if k == along:
                    continue
                i = 0
                while i < parts[k] and not lo[first + i * stride[k], k] <= at[k] < hi[first + i * stride[k], k]:
                    i += 1
                met = met and i < parts[k]
                first += i * stride[k]
                if k == axis:
                    place = i
            if not met:
                continue
            for i in range(parts[along]):
                c = first + i * stride[along]
                if lo[c, along] == hi[c, along]:
                    continue
                if cut[c, axis]:
                    stack[top] = c
                    top += 1
                    continue
                if rows == len(out):
                    return rows
                out[rows] = (line, lo[c, along], -1, -1, 0, 1)
                up = place == 0 or (place + 1 < parts[axis] and 2 * at[axis] >= lo[c, axis] + hi[c, axis])
                below = c if up else c - stride[axis]
                above = below + stride[axis]
                if parts[axis] > 1 and lo[below, axis] < lo[above, axis] < hi[above, axis]:
                    out[rows, 2] = below
                    out[rows, 3] = above
                    out[rows, 4] = lo[above, axis]
                    out[rows, 5] = hi[above, axis] - lo[below, axis]
                rows += 1
    return rows


@njit(cache=True, nogil=True, error_model="numpy")
def differences(
    pairs: Ints,
    parent: Ints,
    first_child: Ints,
    volume: Floats,
    z: Floats,
    subtree: Floats,
    hazard: Floats,
    logistic: Floats,
    state: Floats,
    scale: Floats,
    weight: Floats,
    elongation: Floats,
    axis: int,
    out: Floats,
) -> None:
    """For siblings on either side of a cut: D as in ``contrasts``, its variance by correlation, and by noise and
    chance."""
    low, high, by = scale[2], scale[3], (weight[2], weight[3], weight[4])
    for i in range(len(pairs)):
        a, b = pairs[i, 0], pairs[i, 1]
        out[i] = 0.0
        if a < 0 or volume[a] + volume[b] <= 0.0:
            continue
        v = parent[a]
        gain, sum_v = correction(first_child, z, subtree, v, state[v, 0])
        size, both = volume[a] + volume[b], subtree[a] + subtree[b]
        part = both / sum_v if sum_v > 0.0 else 0.0
        prior = max(state[v, 2] * size / volume[v], 1e-6)
        s = math.sqrt(both * (1.0 - part) + part * part * state[v, 1])
        mean, square = expected(z[a] + z[b] + both * gain, s, prior, hazard)
        content, crowd, f = log2(size), log2(mean + 1.0), volume[a] / size
        excess = crowd - log2(prior + 1.0)
        odds = side_odds(content / scale[4] + (elongation[v, axis] if len(elongation) else 0.0), scale, weight)
        rho = correlation(odds, crowd - content, excess, low, high, by, logistic)
        out[i, 0] = (1.0 - f) * z[a] - f * z[b]
        out[i, 1] = f * (1.0 - f) * rho * max(square - mean, 0.0)
        out[i, 2] = (1.0 - f) ** 2 * subtree[a] + f * f * subtree[b] + f * (1.0 - f) * mean


@njit(cache=True, nogil=True, error_model="numpy")
def sum_products(rows: Ints, moments: Floats, boxes_per_weight: int, max_apart: int) -> Floats:
    """Sum the products of D of boxes that are 1, 2, … below ``max_apart`` apart on a line.

    ``rows`` are those of ``beside_lines``, ``moments`` those of ``differences``. ``boxes_per_weight`` consecutive boxes
    of a line share the weight w, which grows with the fraction of their variance that is not noise. Per distance:
    Σ w·sd·sd of all pairs; for pairs cut at one border the same, Σ w·D·D and Σ (w·D·D)². Entry 0 begins with Σ w·sd².
    """
    out = np.zeros((max_apart, 4))
    start = 0
    while start < len(rows):
        end = start
        own, chance = 0.0, 1e-9
        while end < len(rows) and end - start < boxes_per_weight and rows[end, 0] == rows[start, 0]:
            own += moments[end, 1]
            chance += moments[end, 2]
            end += 1
        weight = own / (own + chance) ** 2
        out[0, 0] += weight * own
        for i in range(start, end):
            if moments[i, 1] <= 0.0:
                continue
            limit = MAX_STANDARD_ERRORS * math.sqrt(moments[i, 1] + moments[i, 2])
            d = weight * min(max(moments[i, 0], -limit), limit)
            for j in range(i + 1, min(i + max_apart, end)):
                if moments[j, 1] <= 0.0:
                    continue
                usual = weight * math.sqrt(moments[i, 1] * moments[j, 1])
                out[j - i, 0] += usual
                if abs(rows[i, 4] - rows[j, 4]) <= MAX_BORDER_GAP * min(rows[i, 5], rows[j, 5]):
                    bound = MAX_STANDARD_ERRORS * math.sqrt(moments[j, 1] + moments[j, 2])
                    product = d * min(max(moments[j, 0], -bound), bound)
                    out[j - i, 1] += usual
                    out[j - i, 2] += product
                    out[j - i, 3] += product * product
        start = end
    return out


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def stepped(value: float, powers: Floats) -> float:
    """Round to the nearest power of 2^(1/4); values below the smallest become 0."""
    if value <= powers[0]:
        return 0.0
    bits = np.float64(value).view(np.int64)
    m = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)  # 1 <= m < 2
    k = (
        4 * ((bits >> 52) - 1023)
        + (m > ROUNDING_BORDERS[0])
        + (m > ROUNDING_BORDERS[1])
        + (m > ROUNDING_BORDERS[2])
        + (m > ROUNDING_BORDERS[3])
    )
    return float(powers[min(int(k) - MIN_UNEVENNESS_POWER, len(powers) - 1)])


@njit(cache=True, nogil=True, error_model="numpy")
def unevenness(
    kept_child: Ints,
    kept: Ints,
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
    inflation: float,
    elongation: Floats,
    often: Floats,
    begin: int,
    end: int,
    out: Floats,
) -> None:
    """Compute q = mean + inflation · correlation · (square − mean) of leaves, less what slopes explain, rounded.

    ``kept_child`` is the published tree, ``kept`` the node of the whole tree for each of its nodes, or empty where it
    is the whole tree. ``explained`` has one number per node, or is empty; ``elongation`` is as in ``contrasts``, and
    ``often`` the weight of a cut across each axis. q is 0 at inner nodes. The children of nodes from ``begin`` to
    ``end`` are written; -1 stands for the parent of the root.
    """
    low, high, by = scale[2], scale[3], (weight[2], weight[3], weight[4])
    size, noise, prior, usual, content, odds, s = -1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(begin, end):
        if i >= 0 and kept_child[i] == kept_child[i + 1]:
            continue
        p = -1 if i < 0 else kept[i] if len(kept) else i
        a, b = (0, 1) if i < 0 else (kept_child[i], kept_child[i + 1])
        gain, sum_v = correction(first_child, z, subtree, p, state[p, 0]) if i >= 0 else (0.0, 0.0)
        above = state[p, 1] if i >= 0 else 0.0
        noise = -1.0
        changed = True
        for j in range(a, b):
            v = 0 if i < 0 else first_child[p] + (j - a)
            out[j] = 0.0
            if kept_child[j] < kept_child[j + 1] or volume[v] <= 0.0:
                continue
            if volume[v] != size:  # siblings are often alike
                size = volume[v]
                content = log2(size)
                odds = side_odds(content / scale[4], scale, weight)
                changed = True
            if i < 0 or first_child[v] < first_child[v + 1]:
                mean, square = state[v, 2], state[v, 3]
                usual = log2(mean + 1.0) - state[v, 4]
                changed = True
            else:
                if changed:
                    prior = max(state[p, 2] * size / volume[p], 1e-6)
                    usual = log2(prior + 1.0)
                    changed = False
                if subtree[v] != noise:
                    noise = subtree[v]
                    part = noise / sum_v if sum_v > 0.0 else 0.0
                    s = math.sqrt(noise * (1.0 - part) + part * part * above)
                mean, square = expected(z[v] + noise * gain, s, prior, hazard)
            over = square - mean
            if over <= 0.0:  # nearly empty: no pair of points
                out[j] = stepped(mean, powers)
                continue
            crowd = log2(mean + 1.0)
            if len(elongation):
                alike = 0.0
                for k in range(elongation.shape[1]):
                    along = side_odds(content / scale[4] + elongation[v, k], scale, weight)
                    rho = correlation(along, crowd - content, crowd - usual, low, high, by, logistic)
                    alike += often[v, k] * rho
                over *= alike
            else:
                over *= correlation(odds, crowd - content, crowd - usual, low, high, by, logistic)
            if len(explained):
                over = max(over - explained[j], MIN_UNEXPLAINED_FRACTION * over)
            out[j] = stepped(mean + inflation * over, powers)

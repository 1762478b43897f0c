"""How unevenly points lie inside boxes, seen from noisy counts of the boxes and of their parts.

Trees come as ``first_child``: the children of ``v`` are ``first_child[v] : first_child[v + 1]``. ``z`` and ``subtree``
are what each subtree says of its own count, and the variance of that: siblings err independently. ``mean`` and
``square`` are what a count and its square are expected to be; ``volume`` is the part of the domain that a box takes.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from veilmap.arrays import Flags, Floats, Ints

LOWEST, HIGHEST, STEPS = -30.0, 8.0, 32  # where the hazard is tabled, and entries a unit
STEEPEST, FLATTEST = -7.0, 3.0  # of the log odds of a correlation
LEAST = 0.2  # part of a leaf's unevenness that no slope explains
COLUMNS = 7  # of what ``contrasts`` writes
SMALLEST, LARGEST = -40, 400  # powers of 2^(1/4) that unevenness may be
EIGHTHS = (2**0.125, 2**0.375, 2**0.625, 2**0.875)


def hazards() -> Floats:
    """φ(a) / Φ(a) of the standard normal, by steps of a."""
    at = np.linspace(LOWEST, HIGHEST, int((HIGHEST - LOWEST) * STEPS) + 1).tolist()
    return np.array([math.exp(-a * a / 2) / (math.sqrt(math.pi / 2) * math.erfc(-a / math.sqrt(2))) for a in at])


def logistics() -> Floats:
    """1 / (1 + exp(−e)), by steps of e."""
    return 1 / (1 + np.exp(-np.linspace(STEEPEST, FLATTEST, int((FLATTEST - STEEPEST) * STEPS) + 2)))


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def log2(value: float) -> float:
    """Of a number above 0, to 0.001: its exponent, and a polynomial of its digits."""
    bits = np.float64(value).view(np.int64)
    m = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64) - 1.0
    return float((bits >> 52) - 1023) + m * (1.4386 - m * (0.6766 - m * (0.3146 - m * 0.0766)))


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def expected(x: float, s: float, prior: float, hazard: Floats) -> tuple[float, float]:
    """The means of a count and of its square: x is the count with normal noise of that s; it was exponential before.

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
        i = int(place)
        h = hazard[i] + (hazard[i + 1] - hazard[i]) * (place - i)
    mean = max(s * (a + h), 1e-9)
    return mean, max(s * s * (1.0 + a * (a + h)), mean * mean)


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
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
    return bool(stride == n)


@njit(cache=True, nogil=True, error_model="numpy")
def all_parts(first_child: Ints, lo: Ints, nodes: Ints, parts: Ints, grid: Flags) -> None:
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
    stretch: Floats,
    out: Floats,
) -> int:
    """How unlike the halves of boxes are: of nodes cut into a grid, and of aligned blocks of 2, 4, … cells a side.

    D = (points in one half) − f · (all points), f the half's part of the volume. A row of ``out`` is log2 volume, mean,
    square and how far it stands out, of the block; then D² / f(1−f) less what noise adds to it, that noise, and the
    stretch of the side that is cut. Along each axis that is cut, one row. Returns the number of rows. ``stretch`` is
    log2 of the sides of each box over what they would be were they alike, or nothing.
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
                    out[rows, 6] = stretch[v, k] if len(stretch) else 0.0
                    rows += 1
            b *= 2
    return rows


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def side_odds(side: float, scale: Floats, weight: Floats) -> float:
    """What the side of a box that is cut, log2, says of the log odds of the correlation inside it.

    ``scale`` is log2 side and density at the middle, the least and greatest density that was learned from, and axes.
    """
    return float(weight[0] + weight[1] * min(max(side - scale[0], -2.5), 4.0) - weight[2] * scale[1])


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def correlation(
    odds: float, density: float, out_by: float, low: float, high: float, by: tuple[float, float, float], table: Floats
) -> float:
    """Inside a box: by its size (in ``odds``), its density between low and high, and how far it stands out (log2)."""
    e = odds + by[0] * min(max(density, low), high)
    e += by[1] * min(out_by, 4.0) if out_by > 0.0 else by[2] * min(-out_by, 4.0)
    return float(table[int((min(max(e, STEEPEST), FLATTEST) - STEEPEST) * STEPS + 0.5)])


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
            if not grid_parts(first_child, lo, v, parts):
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
    stretch: Floats,
    axis: int,
    out: Floats,
) -> None:
    """Of siblings on either side of a cut: D as in ``contrasts``, what company adds to its variance, and what noise and
    chance do."""
    low, high, by = scale[2], scale[3], (weight[2], weight[3], weight[4])
    for i in range(len(pairs)):
        a, b = pairs[i, 0], pairs[i, 1]
        out[i] = 0.0
        if a < 0 or volume[a] + volume[b] <= 0.0:
            continue
        v = parent[a]
        gain, sum_v = share(first_child, z, subtree, v, state[v, 0])
        size, both = volume[a] + volume[b], subtree[a] + subtree[b]
        part = both / sum_v if sum_v > 0.0 else 0.0
        prior = max(state[v, 2] * size / volume[v], 1e-6)
        s = math.sqrt(both * (1.0 - part) + part * part * state[v, 1])
        mean, square = expected(z[a] + z[b] + both * gain, s, prior, hazard)
        content, crowd, f = log2(size), log2(mean + 1.0), volume[a] / size
        out_by = crowd - log2(prior + 1.0)
        odds = side_odds(content / scale[4] + (stretch[v, axis] if len(stretch) else 0.0), scale, weight)
        rho = correlation(odds, crowd - content, out_by, low, high, by, logistic)
        out[i, 0] = (1.0 - f) * z[a] - f * z[b]
        out[i, 1] = f * (1.0 - f) * rho * max(square - mean, 0.0)
        out[i, 2] = (1.0 - f) ** 2 * subtree[a] + f * f * subtree[b] + f * (1.0 - f) * mean


@njit(cache=True, nogil=True, error_model="numpy")
def neighbours(rows: Ints, of: Floats, stretch: int, far: int) -> Floats:
    """Products of D of boxes that are 1, 2, … below ``far`` apart on a line, and what they would be were boxes alike.

    ``rows`` are those of ``beside_lines``, ``of`` those of ``differences``. A line falls into stretches of so many
    boxes, weighed by how much of their variance is their own. Of each distance: Σ w·sd·sd of all pairs; of pairs cut at
    one border the same, Σ w·D·D and Σ (w·D·D)². In entry 0 the first is Σ w·sd².
    """
    out = np.zeros((far, 4))
    start = 0
    while start < len(rows):
        end = start
        own, chance = 0.0, 1e-9
        while end < len(rows) and end - start < stretch and rows[end, 0] == rows[start, 0]:
            own += of[end, 1]
            chance += of[end, 2]
            end += 1
        weight = own / (own + chance) ** 2
        out[0, 0] += weight * own
        for i in range(start, end):
            if of[i, 1] <= 0.0:
                continue
            limit = 4.0 * math.sqrt(of[i, 1] + of[i, 2])
            d = weight * min(max(of[i, 0], -limit), limit)
            for j in range(i + 1, min(i + far, end)):
                if of[j, 1] <= 0.0:
                    continue
                usual = weight * math.sqrt(of[i, 1] * of[j, 1])
                out[j - i, 0] += usual
                if abs(rows[i, 4] - rows[j, 4]) <= 0.15 * min(rows[i, 5], rows[j, 5]):
                    bound = 4.0 * math.sqrt(of[j, 1] + of[j, 2])
                    product = d * min(max(of[j, 0], -bound), bound)
                    out[j - i, 1] += usual
                    out[j - i, 2] += product
                    out[j - i, 3] += product * product
        start = end
    return out


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def stepped(value: float, powers: Floats) -> float:
    """The nearest power of 2^(1/4); 0 stays."""
    if value <= powers[0]:
        return 0.0
    bits = np.float64(value).view(np.int64)
    m = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)  # 1 <= m < 2
    k = 4 * ((bits >> 52) - 1023) + (m > EIGHTHS[0]) + (m > EIGHTHS[1]) + (m > EIGHTHS[2]) + (m > EIGHTHS[3])
    return float(powers[min(int(k) - SMALLEST, len(powers) - 1)])


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
    company: float,
    stretch: Floats,
    often: Floats,
    begin: int,
    end: int,
    out: Floats,
) -> None:
    """q = mean + company · correlation · (square − mean), less what slopes explain, of leaves, as ``stepped``.

    ``kept_child`` is the tree that is published, ``kept`` which node of the whole tree each of its nodes is, or nothing
    where it is the whole tree. ``explained`` is one number a node, or none at all; ``stretch`` as in ``contrasts``,
    and ``often`` how much a cut along each axis counts. q is 0 at inner nodes. Written are the children of nodes from
    ``begin`` to ``end``; -1 is nothing, whose child is the root.
    """
    low, high, by = scale[2], scale[3], (weight[2], weight[3], weight[4])
    size, noise, prior, usual, content, odds, s = -1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(begin, end):
        if i >= 0 and kept_child[i] == kept_child[i + 1]:
            continue
        p = -1 if i < 0 else kept[i] if len(kept) else i
        a, b = (0, 1) if i < 0 else (kept_child[i], kept_child[i + 1])
        gain, sum_v = share(first_child, z, subtree, p, state[p, 0]) if i >= 0 else (0.0, 0.0)
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
            if over <= 0.0:  # hardly anything: no two points to keep company
                out[j] = stepped(mean, powers)
                continue
            crowd = log2(mean + 1.0)
            if len(stretch):
                alike = 0.0
                for k in range(stretch.shape[1]):
                    along = side_odds(content / scale[4] + stretch[v, k], scale, weight)
                    rho = correlation(along, crowd - content, crowd - usual, low, high, by, logistic)
                    alike += often[v, k] * rho
                over *= alike
            else:
                over *= correlation(odds, crowd - content, crowd - usual, low, high, by, logistic)
            if len(explained):
                over = max(over - explained[j], LEAST * over)
            out[j] = stepped(mean + company * over, powers)

"""Answers to polygons, and their variances, on any tree of boxes with two axes.

An edge is a row of ``x, y`` from and ``x, y`` to, in cells; what a polygon holds lies to the right of its edges. How
often a place is held is then the number of edges to its left that go up, less those that go down. Of a box this needs
only the edges that run through its inside and ``cover``: the same number just inside the left side, added up along it.
``cover`` changes little when coordinates do, so that rounding does no harm, wherever edges run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from veilmap.arrays import Floats, Ints
from veilmap.kernels.grid_shape import is_grid

SLIVER = 2.0**-40
"""A leaf of which less than this is held, or not held, is not cut: rounding does that where edges touch it."""


@njit(cache=True, nogil=True)
def grid_columns(first_child: Ints, lo: Ints, hi: Ints, out: Ints) -> None:
    """Of each node whose children are a grid: how many of them stand in a row of it. 0 for others."""
    shape = np.empty(2, np.int64)
    for v in range(len(out)):
        a, b = first_child[v], first_child[v + 1]
        out[v] = shape[1] if a < b and is_grid(a, b, lo, hi, shape) else 0


@njit(cache=True, nogil=True)
def sum_children(first_child: Ints, values: Floats, out: Floats) -> None:
    for v in range(len(out)):
        out[v] = values[first_child[v] : first_child[v + 1]].sum()


@njit(cache=True, nogil=True, inline="always")
def between(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


@njit(cache=True, nogil=True, inline="always")
def height_at(edge: Floats, x: float) -> float:
    """Where an edge that is not upright meets a line that is."""
    return float(edge[1] + (edge[3] - edge[1]) * ((x - edge[0]) / (edge[2] - edge[0])))


@njit(cache=True, nogil=True, inline="always")
def goes_left(edge: Floats, x: float) -> int:
    """1 where an edge crosses a line to the left, -1 to the right, 0 where it does not; on it is left of it."""
    return int(edge[2] <= x) - int(edge[0] <= x)


@njit(cache=True, nogil=True)
def runs_through(edge: Floats, x0: float, y0: float, x1: float, y1: float) -> bool:
    """Whether an edge meets the inside of a box."""
    if max(edge[0], edge[2]) <= x0 or min(edge[0], edge[2]) >= x1:
        return False
    if max(edge[1], edge[3]) <= y0 or min(edge[1], edge[3]) >= y1:
        return False
    dx, dy = edge[2] - edge[0], edge[3] - edge[1]
    a, b = dx * (y0 - edge[1]), dx * (y1 - edge[1])
    c, d = dy * (x0 - edge[0]), dy * (x1 - edge[0])
    # the corners are not all on one side of it
    return bool(min(a, b) < max(c, d) and max(a, b) > min(c, d))


@njit(cache=True, nogil=True)
def corner_of(edges: Floats, some: Ints, a: int, b: int, x0: float, y0: float, y1: float, cover: float) -> float:
    """How often the lower left corner of a box is held: ``cover`` without what changes along the left side."""
    for i in range(a, b):
        edge = edges[some[i]]
        turn = goes_left(edge, x0)
        if turn:
            y = height_at(edge, x0)
            if y > y0:
                cover -= turn * (y1 - min(y, y1))
    return float(np.rint(cover / (y1 - y0)))


@njit(cache=True, nogil=True)
def enter(
    edges: Floats,
    some: Ints,
    a: int,
    b: int,
    end: int,
    x: float,
    y: float,
    corner: float,
    x0: float,
    y0: float,
    x1: float,
    y1: float,
) -> tuple[float, int]:
    """From a box with its corner at ``x, y``, and edges ``some[a:b]``, into a box inside it.

    Its edges are put into ``some`` from ``end`` on. Its cover, and where its edges end.
    """
    cover = corner * (y1 - y0)
    for i in range(a, b):
        edge = edges[some[i]]
        turn = goes_left(edge, x)
        if turn:
            at = height_at(edge, x)
            if at > y:
                cover += turn * (y1 - between(at, y0, y1))
        if x < x0 and max(edge[0], edge[2]) > x and min(edge[0], edge[2]) <= x0:
            # the part of it that is now on the left
            low, high = edge[1], edge[3]
            if not x < edge[0] <= x0:
                low = height_at(edge, between(edge[0], x, x0))
            if not x < edge[2] <= x0:
                high = height_at(edge, between(edge[2], x, x0))
            cover += between(high, y0, y1) - between(low, y0, y1)
        if runs_through(edge, x0, y0, x1, y1):
            some[end] = some[i]
            end += 1
    return cover, end


@njit(cache=True, nogil=True)
def measure(
    edges: Floats, some: Ints, a: int, b: int, x0: float, y0: float, x1: float, y1: float, cover: float
) -> tuple[float, float, float]:
    """The part f of a box that is held, and the sums over it of u − 1/2 and v − 1/2, the places in it from 0 to 1."""
    wide, high = x1 - x0, y1 - y0
    f, along, up = cover / high, 0.0, 0.0
    for i in range(a, b):
        edge = edges[some[i]]
        turn = goes_left(edge, x0)
        if turn:
            v = (height_at(edge, x0) - y0) / high
            if 0.0 < v < 1.0:
                up += turn * v * (1.0 - v) / 2
        v, last_v = between((edge[1] - y0) / high, 0.0, 1.0), between((edge[3] - y0) / high, 0.0, 1.0)
        if v == last_v:
            continue
        # first cut off above and below, then on both sides: what is upright or level stays exact
        u, last_u = (edge[0] - x0) / wide, (edge[2] - x0) / wide
        tilt = (edge[2] - edge[0]) / (edge[3] - edge[1])
        if not y0 <= edge[1] <= y1:
            u += tilt * (y0 + v * high - edge[1]) / wide
        if not y0 <= edge[3] <= y1:
            last_u += tilt * (y0 + last_v * high - edge[3]) / wide
        if max(u, last_u) <= 0.0 or min(u, last_u) >= 1.0:
            continue
        du, dv = last_u - u, last_v - v
        if not 0.0 <= last_u <= 1.0:
            last_v += (between(last_u, 0.0, 1.0) - last_u) * (dv / du)
        if not 0.0 <= u <= 1.0:
            v += (between(u, 0.0, 1.0) - u) * (dv / du)
        u, last_u = between(u, 0.0, 1.0), between(last_u, 0.0, 1.0)
        du, dv = last_u - u, last_v - v
        middle = u + du / 2
        f += (1.0 - middle) * dv
        along += (middle * (1.0 - middle) - du * du / 12) * dv / 2
        up += ((1.0 - middle) * (v + dv / 2 - 0.5) - du * dv / 12) * dv
    return f, along, up


@njit(cache=True, nogil=True)
def grown(array: NDArray[Any], room: int) -> NDArray[Any]:
    """The same array, with room for so many entries."""
    if room <= len(array):
        return array
    more = np.empty((2 * room,) + array.shape[1:], array.dtype)  # noqa: RUF005 - numba has no stars here
    more[: len(array)] = array
    return more


@njit(cache=True, nogil=True)
def walk_zones(
    first_child: Ints,
    lo: Ints,
    hi: Ints,
    columns: Ints,
    value: Floats,
    slope: Floats,
    unevenness: Floats,
    variance: Floats,
    below: Floats,
    levels: int,
    edges: Floats,
    start: Ints,
    out: Floats,
) -> None:
    """Of each polygon, whose edges are ``start[q] : start[q + 1]``: its count; the variance of its noise; the sum of
    f (1 − f) q over leaves of which it covers a part f, with q their unevenness; and how many those are.

    Nodes inside answer for themselves, unless their variance is infinite: they have no value of their own. ``below``
    is the sum of the children's variances, for answers of least squares (see ``boxes.walk_variance``); without any,
    values are independent. ``slope`` and ``unevenness`` have no rows where there are none.

    What waits is siblings on a grid, half of them after half: of node ``v`` the children from row i0 to i1 and from
    column j0 to j1, the edges through them, from a to b in ``some``, and how many levels are above. No rows: all
    children of ``v`` have been looked at. Where children are no grid, each is a row of its own.
    """
    adds_up, tilted, known = len(below) > 0, len(slope) > 0, len(unevenness) > 0
    some, todo, covers = np.empty(64, np.int64), np.empty((64, 8), np.int64), np.empty((64, 1))
    sums = np.empty((levels + 2, 2))  # Σ V A and Σ V A² over the children seen so far
    rows = np.empty((2, 4), np.int64)
    for q in range(len(out)):
        count, noise, uneven, cut = 0.0, 0.0, 0.0, 0.0
        some = grown(some, start[q + 1] - start[q])
        cover, end = 0.0, 0
        for i in range(start[q], start[q + 1]):
            if max(edges[i, 0], edges[i, 2]) <= lo[0, 0]:
                cover += edges[i, 3] - edges[i, 1]
            elif runs_through(edges[i], lo[0, 0], lo[0, 1], hi[0, 0], hi[0, 1]):
                some[end] = i
                end += 1
        sums[0] = 0.0
        todo[0] = (-1, 0, 1, 0, 1, 0, end, 0)
        covers[0, 0] = cover
        top = 1 if end or cover > (hi[0, 1] - lo[0, 1]) / 2 else 0
        while top:
            top -= 1
            here, cover = todo[top], covers[top, 0]
            v, i0, i1, j0, j1, a, b, depth = here[0], here[1], here[2], here[3], here[4], here[5], here[6], here[7]
            first = first_child[v] if v >= 0 else 0
            wide = max(columns[v], 1) if v >= 0 else 1
            c, last = first + i0 * wide + j0, first + (i1 - 1) * wide + j1 - 1
            if i0 == i1:
                part = sums[depth, 0] / below[v] if below[v] > 0 else 0.0
                noise += sums[depth, 1] - sums[depth, 0] * part
                sums[depth - 1, 0] += variance[v] * part
                sums[depth - 1, 1] += variance[v] * part * part
                continue
            leaf = first_child[c] == first_child[c + 1]
            if a == b and (c < last or leaf or variance[c] < np.inf):  # all of it is inside
                for i in range(i0, i1):
                    for j in range(j0, j1):
                        c = first + i * wide + j
                        if variance[c] == np.inf and first_child[c] < first_child[c + 1]:
                            todo, covers = grown(todo, top + 1), grown(covers, top + 1)
                            todo[top] = (v, i, i + 1, j, j + 1, a, b, depth)
                            covers[top, 0] = hi[c, 1] - lo[c, 1]
                            top += 1
                        else:
                            count += value[c]
                            noise += 0.0 if adds_up else variance[c]
                            sums[depth] += variance[c]
                continue
            x0, y0, x1, y1 = float(lo[c, 0]), float(lo[c, 1]), float(hi[last, 0]), float(hi[last, 1])
            if c == last and leaf:
                f, along, up = measure(edges, some, a, b, x0, y0, x1, y1, cover)
                f = between(f, 0.0, 1.0)
                count += f * value[c]
                if tilted:
                    count += slope[c, 0] * along + slope[c, 1] * up
                noise += 0.0 if adds_up else f * f * variance[c]
                sums[depth, 0] += f * variance[c]
                sums[depth, 1] += f * f * variance[c]
                if known and SLIVER < f < 1.0 - SLIVER:
                    uneven += f * (1.0 - f) * unevenness[c]
                    cut += 1.0
                continue
            parts, each = 2, i1 - i0 == 1 and j1 - j0 == 1
            if each:  # a node that is not inside, or has no value: on to its children
                v, first, depth = c, first_child[c], depth + 1
                parts, wide = first_child[c + 1] - first, max(columns[c], 1)
                sums[depth] = 0.0
                todo, covers = grown(todo, top + parts + 1), grown(covers, top + parts + 1)
                if adds_up:
                    todo[top] = (v, 0, 0, 0, 0, b, b, depth)
                    top += 1
                if columns[v] > 0:
                    todo[top] = (v, 0, parts // wide, 0, wide, a, b, depth)
                    covers[top, 0] = cover
                    top += 1
                    continue
            elif i1 - i0 > j1 - j0:
                rows[0], rows[1] = (i0, (i0 + i1) // 2, j0, j1), ((i0 + i1) // 2, i1, j0, j1)
            else:
                rows[0], rows[1] = (i0, i1, j0, (j0 + j1) // 2), (i0, i1, (j0 + j1) // 2, j1)
            todo, covers = grown(todo, top + parts), grown(covers, top + parts)
            corner, end = corner_of(edges, some, a, b, x0, y0, y1, cover), b
            for k in range(parts):
                i0, i1, j0, j1 = (k, k + 1, 0, 1) if each else (rows[k, 0], rows[k, 1], rows[k, 2], rows[k, 3])
                c, last = first + i0 * wide + j0, first + (i1 - 1) * wide + j1 - 1
                if lo[c, 0] >= hi[last, 0] or lo[c, 1] >= hi[last, 1]:
                    continue
                begin, left, low, right, high = end, lo[c, 0], lo[c, 1], hi[last, 0], hi[last, 1]
                some = grown(some, end + b - a)
                cover, end = enter(edges, some, a, b, begin, x0, y0, corner, left, low, right, high)
                if end > begin or cover > (high - low) / 2:
                    todo[top] = (v, i0, i1, j0, j1, begin, end, depth)
                    covers[top, 0] = cover
                    top += 1
        out[q, 0], out[q, 1], out[q, 2], out[q, 3] = count, max(noise + sums[0, 1] * adds_up, 0.0), uneven, cut

"""Count points in polygons, and compute the variance of the counts, on any tree of boxes with two axes.

An edge is a row of ``x, y`` from and ``x, y`` to, in cells; the inside of a polygon is to the right of its edges. The
winding number of a point is then the number of edges to its left that go up, minus the number that go down. For a box,
only the edges through its interior are needed, and ``cover``: the integral of the winding number along the left side of
the box. ``cover`` is continuous in the coordinates, so rounding errors stay small wherever edges run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from veilmap.arrays import Floats, Ints
from veilmap.kernels.grid_shape import is_grid

MIN_CUT_FRACTION = 2.0**-40
"""A leaf is not cut if less than this fraction is inside, or outside: rounding does that where an edge touches it."""


@njit(cache=True, nogil=True)
def grid_columns(first_child: Ints, lo: Ints, hi: Ints, out: Ints) -> None:
    """Write, for each node whose children form a grid, the number of children along the second axis; 0 for others."""
    shape = np.empty(2, np.int64)
    for v in range(len(out)):
        a, b = first_child[v], first_child[v + 1]
        out[v] = shape[1] if a < b and is_grid(a, b, lo, hi, shape) else 0


@njit(cache=True, nogil=True)
def sum_children(first_child: Ints, values: Floats, out: Floats) -> None:
    """Write the sum of the children's values for each node."""
    for v in range(len(out)):
        out[v] = values[first_child[v] : first_child[v + 1]].sum()


@njit(cache=True, nogil=True, inline="always")
def clamp(value: float, low: float, high: float) -> float:
    """Return the value limited to [low, high]."""
    return min(max(value, low), high)


@njit(cache=True, nogil=True, inline="always")
def height_at(edge: Floats, x: float) -> float:
    """Return the y at which a non-vertical edge crosses the vertical line at ``x``."""
    return float(edge[1] + (edge[3] - edge[1]) * ((x - edge[0]) / (edge[2] - edge[0])))


@njit(cache=True, nogil=True, inline="always")
def crossing_direction(edge: Floats, x: float) -> int:
    """Return 1 if an edge crosses the vertical line at ``x`` leftwards, -1 rightwards, 0 if it does not.

    Points on the line count as left of it.
    """
    return int(edge[2] <= x) - int(edge[0] <= x)


@njit(cache=True, nogil=True)
def meets_interior(edge: Floats, x0: float, y0: float, x1: float, y1: float) -> bool:
    """Return whether an edge meets the interior of a box."""
    if max(edge[0], edge[2]) <= x0 or min(edge[0], edge[2]) >= x1:
        return False
    if max(edge[1], edge[3]) <= y0 or min(edge[1], edge[3]) >= y1:
        return False
    dx, dy = edge[2] - edge[0], edge[3] - edge[1]
    a, b = dx * (y0 - edge[1]), dx * (y1 - edge[1])
    c, d = dy * (x0 - edge[0]), dy * (x1 - edge[0])
    # it does if the box's corners are not all on one side of the edge
    return bool(min(a, b) < max(c, d) and max(a, b) > min(c, d))


@njit(cache=True, nogil=True)
def corner_winding(edges: Floats, some: Ints, a: int, b: int, x0: float, y0: float, y1: float, cover: float) -> float:
    """Return the winding number at the lower left corner of a box.

    It is (cover − Σ changes along the left side) / height, where an edge that crosses the left side at y changes the
    winding number from there up.
    """
    for i in range(a, b):
        edge = edges[some[i]]
        turn = crossing_direction(edge, x0)
        if turn:
            y = height_at(edge, x0)
            if y > y0:
                cover -= turn * (y1 - min(y, y1))
    return float(np.rint(cover / (y1 - y0)))


@njit(cache=True, nogil=True)
def child_cover(
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
    """Return the cover of a box inside another, and where the list of its edges ends.

    The outer box has its lower left corner at ``x, y``, with winding number ``corner``, and the edges ``some[a:b]``.
    The edges that meet the interior of the inner box are written into ``some`` from ``end`` on.
    """
    cover = corner * (y1 - y0)
    for i in range(a, b):
        edge = edges[some[i]]
        turn = crossing_direction(edge, x)
        if turn:
            at = height_at(edge, x)
            if at > y:
                cover += turn * (y1 - clamp(at, y0, y1))
        if x < x0 and max(edge[0], edge[2]) > x and min(edge[0], edge[2]) <= x0:
            # the section of the edge that lies left of the inner box
            low, high = edge[1], edge[3]
            if not x < edge[0] <= x0:
                low = height_at(edge, clamp(edge[0], x, x0))
            if not x < edge[2] <= x0:
                high = height_at(edge, clamp(edge[2], x, x0))
            cover += clamp(high, y0, y1) - clamp(low, y0, y1)
        if meets_interior(edge, x0, y0, x1, y1):
            some[end] = some[i]
            end += 1
    return cover, end


@njit(cache=True, nogil=True)
def area_and_moments(
    edges: Floats, some: Ints, a: int, b: int, x0: float, y0: float, x1: float, y1: float, cover: float
) -> tuple[float, float, float]:
    """Return the fraction f of a box inside the polygon, and the integrals of u − 1/2 and v − 1/2 over that area.

    u and v are coordinates in the box, from 0 to 1.
    """
    wide, high = x1 - x0, y1 - y0
    f, along, up = cover / high, 0.0, 0.0
    for i in range(a, b):
        edge = edges[some[i]]
        turn = crossing_direction(edge, x0)
        if turn:
            v = (height_at(edge, x0) - y0) / high
            if 0.0 < v < 1.0:
                up += turn * v * (1.0 - v) / 2
        v, last_v = clamp((edge[1] - y0) / high, 0.0, 1.0), clamp((edge[3] - y0) / high, 0.0, 1.0)
        if v == last_v:
            continue
        # clip to the box vertically first, then horizontally: vertical and horizontal edges stay exact
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
            last_v += (clamp(last_u, 0.0, 1.0) - last_u) * (dv / du)
        if not 0.0 <= u <= 1.0:
            v += (clamp(u, 0.0, 1.0) - u) * (dv / du)
        u, last_u = clamp(u, 0.0, 1.0), clamp(last_u, 0.0, 1.0)
        du, dv = last_u - u, last_v - v
        middle = u + du / 2
        f += (1.0 - middle) * dv
        along += (middle * (1.0 - middle) - du * du / 12) * dv / 2
        up += ((1.0 - middle) * (v + dv / 2 - 0.5) - du * dv / 12) * dv
    return f, along, up


@njit(cache=True, nogil=True)
def with_capacity(array: NDArray[Any], room: int) -> NDArray[Any]:
    """Return the array, or a longer copy if it has fewer than ``room`` entries."""
    if room <= len(array):
        return array
    more = np.empty((2 * room,) + array.shape[1:], array.dtype)  # noqa: RUF005 - numba has no stars here
    more[: len(array)] = array
    return more


@njit(cache=True, nogil=True)
def count_polygons(
    first_child: Ints,
    lo: Ints,
    hi: Ints,
    columns: Ints,
    value: Floats,
    slope: Floats,
    unevenness: Floats,
    variance: Floats,
    children_variance: Floats,
    levels: int,
    edges: Floats,
    start: Ints,
    out: Floats,
) -> None:
    """Write four numbers per polygon, whose edges are ``start[q] : start[q + 1]``.

    They are the count Σ f · value + slope terms; the variance of its noise; Σ f (1 − f) · unevenness over the leaves
    that it cuts, where f is the covered fraction; and the number of these leaves.

    A node inside the polygon contributes its own value, unless its variance is infinite: then it has no value.
    ``children_variance`` is the sum of the children's variances, for the variance of least-squares estimates (see
    ``box_walks.least_squares_variance``); if it is empty, values are independent. ``slope`` and ``unevenness`` are
    empty if they are not known.

    The stack ``todo`` holds groups of siblings, which are halved until they are inside, outside or single nodes. A
    group is the children of ``v`` in rows i0 : i1 and columns j0 : j1 of their grid, with the edges through them,
    ``some[a:b]``, and their depth. A group without rows means that all children of ``v`` are done. Children that do not
    form a grid are rows of one node.
    """
    least_squares, has_slopes, known = len(children_variance) > 0, len(slope) > 0, len(unevenness) > 0
    some, todo, covers = np.empty(64, np.int64), np.empty((64, 8), np.int64), np.empty((64, 1))
    sums = np.empty((levels + 2, 2))  # Σ V A and Σ V A² over the children seen so far
    rows = np.empty((2, 4), np.int64)
    for q in range(len(out)):
        count, noise, uneven, cut = 0.0, 0.0, 0.0, 0.0
        some = with_capacity(some, start[q + 1] - start[q])
        cover, end = 0.0, 0
        for i in range(start[q], start[q + 1]):
            if max(edges[i, 0], edges[i, 2]) <= lo[0, 0]:
                cover += edges[i, 3] - edges[i, 1]
            elif meets_interior(edges[i], lo[0, 0], lo[0, 1], hi[0, 0], hi[0, 1]):
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
                mean_a = sums[depth, 0] / children_variance[v] if children_variance[v] > 0 else 0.0
                noise += sums[depth, 1] - sums[depth, 0] * mean_a
                sums[depth - 1, 0] += variance[v] * mean_a
                sums[depth - 1, 1] += variance[v] * mean_a * mean_a
                continue
            leaf = first_child[c] == first_child[c + 1]
            if a == b and (c < last or leaf or variance[c] < np.inf):  # the group is inside the polygon
                for i in range(i0, i1):
                    for j in range(j0, j1):
                        c = first + i * wide + j
                        if variance[c] == np.inf and first_child[c] < first_child[c + 1]:
                            todo, covers = with_capacity(todo, top + 1), with_capacity(covers, top + 1)
                            todo[top] = (v, i, i + 1, j, j + 1, a, b, depth)
                            covers[top, 0] = hi[c, 1] - lo[c, 1]
                            top += 1
                        else:
                            count += value[c]
                            noise += 0.0 if least_squares else variance[c]
                            sums[depth] += variance[c]
                continue
            x0, y0, x1, y1 = float(lo[c, 0]), float(lo[c, 1]), float(hi[last, 0]), float(hi[last, 1])
            if c == last and leaf:
                f, along, up = area_and_moments(edges, some, a, b, x0, y0, x1, y1, cover)
                f = clamp(f, 0.0, 1.0)
                count += f * value[c]
                if has_slopes:
                    count += slope[c, 0] * along + slope[c, 1] * up
                noise += 0.0 if least_squares else f * f * variance[c]
                sums[depth, 0] += f * variance[c]
                sums[depth, 1] += f * f * variance[c]
                if known and MIN_CUT_FRACTION < f < 1.0 - MIN_CUT_FRACTION:
                    uneven += f * (1.0 - f) * unevenness[c]
                    cut += 1.0
                continue
            parts, each = 2, i1 - i0 == 1 and j1 - j0 == 1
            if each:  # a single node that is cut, or has no value: continue with its children
                v, first, depth = c, first_child[c], depth + 1
                parts, wide = first_child[c + 1] - first, max(columns[c], 1)
                sums[depth] = 0.0
                todo, covers = with_capacity(todo, top + parts + 1), with_capacity(covers, top + parts + 1)
                if least_squares:
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
            todo, covers = with_capacity(todo, top + parts), with_capacity(covers, top + parts)
            corner, end = corner_winding(edges, some, a, b, x0, y0, y1, cover), b
            for k in range(parts):
                i0, i1, j0, j1 = (k, k + 1, 0, 1) if each else (rows[k, 0], rows[k, 1], rows[k, 2], rows[k, 3])
                c, last = first + i0 * wide + j0, first + (i1 - 1) * wide + j1 - 1
                if lo[c, 0] >= hi[last, 0] or lo[c, 1] >= hi[last, 1]:
                    continue
                begin, left, low, right, high = end, lo[c, 0], lo[c, 1], hi[last, 0], hi[last, 1]
                some = with_capacity(some, end + b - a)
                cover, end = child_cover(edges, some, a, b, begin, x0, y0, corner, left, low, right, high)
                if end > begin or cover > (high - low) / 2:
                    todo[top] = (v, i0, i1, j0, j1, begin, end, depth)
                    covers[top, 0] = cover
                    top += 1
        out[q, 0], out[q, 1], out[q, 2], out[q, 3] = count, max(noise + sums[0, 1] * least_squares, 0.0), uneven, cut

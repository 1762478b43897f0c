"""Answers to boxes, and their variances.

A query is a row of ``[lo of each axis, hi of each axis]`` in cells (fractions allowed), inside the domain.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Flags, Floats, Ints

DEEPEST = 128  # levels that a walk has room for; a box of 2^62 cells cannot be cut more often


@njit(cache=True, nogil=True)
def slack_of(lo: Floats, hi: Floats, scale: Floats) -> Floats:
    """The rounding of coordinates, in cells."""
    return np.minimum(0.25, 4 * np.spacing(np.maximum(np.abs(lo), np.abs(hi))) * scale)


@njit(cache=True, nogil=True, inline="always")
def place(value: float, lo: float, hi: float, scale: float, slack: float, side: int) -> float:
    """A coordinate as a fraction of its axis, on a grid line if it is as near as rounding."""
    cell = min((min(max(value, lo), hi) - lo) * scale, side)
    line = np.rint(cell)
    return float((line if abs(cell - line) <= slack else cell) * (1.0 / side))


@njit(cache=True, nogil=True)
def place_boxes(boxes: Floats, lo: Floats, hi: Floats, side: int, out: Floats) -> int:
    """Boxes as fractions of the domain [lo, hi], what is outside cut off; the first bad row, or -1.

    A row is bad when it has a NaN or a low end above its high end. An end that is within the rounding of
    a coordinate from one of the ``side`` grid lines lies on it: a node's own box is that node.
    """
    axes = len(lo)
    scale = side / (hi - lo)
    slack = slack_of(lo, hi, scale)
    for q in range(len(boxes)):
        for k in range(axes):
            if not boxes[q, k] <= boxes[q, k + axes]:
                return q
            for end in (k, k + axes):
                out[q, end] = place(boxes[q, end], lo[k], hi[k], scale[k], slack[k], side)
    return -1


@njit(cache=True, nogil=True)
def place_points(points: Floats, lo: Floats, hi: Floats, side: int, out: Floats) -> None:
    """Points as fractions of the domain, just as the ends of boxes."""
    scale = side / (hi - lo)
    slack = slack_of(lo, hi, scale)
    for i in range(len(points)):
        for k in range(len(lo)):
            out[i, k] = place(points[i, k], lo[k], hi[k], scale[k], slack[k], side)


@njit(cache=True, nogil=True)
def look_up(table: Floats, grid: Ints, queries: Floats, out: Floats) -> None:
    """Box counts from a summed-area table (flat, one longer than ``grid`` along each axis).

    The table is multilinear between grid lines. Along an axis, the difference of its values at the two
    ends of the query touches four entries, with weights −(1−a), −a, 1−b, b; a box is their product.
    """
    axes = len(grid)
    at = np.empty((axes, 4), np.int64)
    weight = np.empty((axes, 4))
    for q in range(len(queries)):
        stride = 1
        for k in range(axes - 1, -1, -1):
            for end in range(2):
                u = queries[q, k + end * axes]
                i = min(np.int64(u), grid[k] - 1)
                part = u - i
                at[k, 2 * end] = i * stride
                at[k, 2 * end + 1] = (i + 1) * stride
                weight[k, 2 * end] = (1.0 - part) * (2 * end - 1)
                weight[k, 2 * end + 1] = part * (2 * end - 1)
            stride *= grid[k] + 1
        total = 0.0
        last = axes - 1
        for terms in range(4 ** (axes - 1)):
            place = 0
            w = 1.0
            t = terms
            for k in range(axes - 1):
                place += at[k, t & 3]
                w *= weight[k, t & 3]
                t >>= 2
            if w != 0.0:
                row = 0.0
                for j in range(4):
                    row += weight[last, j] * table[place + at[last, j]]
                total += w * row
        out[q] = total


@njit(cache=True, nogil=True)
def grid_variance(grids: Ints, subtree_variance: Floats, queries: Floats, out: Floats) -> None:
    """The variance of least-squares answers on a regular tree, in closed form.

    ``grids[i]`` are the nodes of level i along each axis, ``subtree_variance[i]`` their V. With S_i the
    sum over level i of (covered fraction)², which is a product over the axes,
    Var = V_h S_h + Σ_{i<h} (V_i − f_i V_{i+1}) S_i, where f_i is the fanout. Queries are fractions of the domain.
    """
    levels, axes = grids.shape
    factor = subtree_variance.copy()
    for i in range(levels - 1):
        fanout = 1
        for k in range(axes):
            fanout *= grids[i + 1, k] // grids[i, k]
        factor[i] -= fanout * subtree_variance[i + 1]
    cells = grids.T.astype(np.float64)
    term = np.empty(levels)
    for q in range(len(queries)):
        term[:] = factor
        for k in range(axes):
            low, high = queries[q, k], queries[q, k + axes]
            for i in range(levels):
                a, b = low * cells[k, i], high * cells[k, i]
                first, last = np.floor(a), np.floor(b)  # the cells that hold the two ends
                apart = (first + 1.0 - a) ** 2 + (last - first - 1.0) + (b - last) ** 2
                term[i] *= (b - a) ** 2 if first == last else apart
        out[q] = max(term.sum(), 0.0)


@njit(cache=True, nogil=True)
def covered(lo: Ints, hi: Ints, v: int, query: Floats) -> float:
    """The fraction of node ``v`` that a query covers."""
    fraction = 1.0
    axes = lo.shape[1]
    for k in range(axes):
        a = max(float(lo[v, k]), query[k])
        b = min(float(hi[v, k]), query[k + axes])
        if b <= a:
            return 0.0
        fraction *= (b - a) / (hi[v, k] - lo[v, k])
    return fraction


@njit(cache=True, nogil=True)
def position(lo: Ints, hi: Ints, v: int, query: Floats) -> int:
    """0: node ``v`` is outside a query (or empty), 1: cut by its border, 2: inside."""
    axes = lo.shape[1]
    inside = True
    for k in range(axes):
        if query[k + axes] <= lo[v, k] or hi[v, k] <= query[k] or lo[v, k] == hi[v, k]:
            return 0
        inside = inside and query[k] <= lo[v, k] and hi[v, k] <= query[k + axes]
    return 2 if inside else 1


@njit(cache=True, nogil=True)
def canonical_nodes(
    first_child: Ints, lo: Ints, hi: Ints, has_value: Flags, query: Floats, stack: Ints, part: Floats
) -> int:
    """Which nodes answer a query, and the part of each (section 4.1 of the paper); how many there are.

    From the root: a node inside the query answers for itself, a leaf cut by it for the covered fraction, and any
    other node that meets it, or has no value of its own, is asked through its children. ``stack`` has room for all
    nodes: those found gather at its end, the last one first.
    """
    found = 0
    room = len(stack)
    stack[0] = 0
    top = 1
    while top:
        top -= 1
        v = stack[top]
        where = position(lo, hi, v, query)
        if where == 0:
            continue
        a, b = first_child[v], first_child[v + 1]
        if a == b or (where == 2 and has_value[v]):
            found += 1
            stack[room - found] = v
            part[room - found] = 1.0 if where == 2 else covered(lo, hi, v, query)
        else:
            for c in range(a, b):
                stack[top] = c
                top += 1
    return found


@njit(cache=True, nogil=True)
def walk(
    first_child: Ints,
    lo: Ints,
    hi: Ints,
    value: Floats,
    variance: Floats,
    queries: Floats,
    out: Floats,
    var: Floats,
) -> None:
    """The sum over the canonical nodes of each query, each with its part.

    A node of infinite variance has no value of its own. ``var`` is the variance of that sum when the values are
    independent.
    """
    room = len(first_child)
    stack, part = np.empty(room, np.int64), np.empty(room)
    has_value = variance < np.inf
    for q in range(len(queries)):
        total = 0.0
        spread = 0.0
        found = canonical_nodes(first_child, lo, hi, has_value, queries[q], stack, part)
        for i in range(room - 1, room - 1 - found, -1):
            total += part[i] * value[stack[i]]
            spread += part[i] * part[i] * variance[stack[i]]
        out[q] = total
        var[q] = spread


@njit(cache=True, nogil=True)
def walk_slopes(first_child: Ints, lo: Ints, hi: Ints, slope: Floats, queries: Floats, out: Floats) -> None:
    """Add what the slopes of cut leaves change: of the part f from a to b, f · Σ slope · ((a + b) / 2 − 1/2)."""
    axes, room = lo.shape[1], len(first_child)
    stack, part, has_value = np.empty(room, np.int64), np.empty(room), np.ones(room - 1, np.bool_)
    for q in range(len(queries)):
        found = canonical_nodes(first_child, lo, hi, has_value, queries[q], stack, part)
        for i in range(room - 1, room - 1 - found, -1):
            v = stack[i]
            if part[i] < 1:
                for k in range(axes):
                    before = max(queries[q, k] - lo[v, k], 0.0)
                    after = max(hi[v, k] - queries[q, k + axes], 0.0)
                    out[q] += part[i] * slope[v, k] * (before - after) / (2.0 * (hi[v, k] - lo[v, k]))


@njit(cache=True, nogil=True)
def walk_cut(
    first_child: Ints, lo: Ints, hi: Ints, unevenness: Floats, queries: Floats, uneven: Floats, cut: Floats
) -> None:
    """The sum of f (1 − f) q over leaves of which a query covers a part f, and how many those are."""
    room = len(first_child)
    stack, part, has_value = np.empty(room, np.int64), np.empty(room), np.ones(room - 1, np.bool_)
    for q in range(len(queries)):
        uneven[q] = cut[q] = 0.0
        found = canonical_nodes(first_child, lo, hi, has_value, queries[q], stack, part)
        for i in range(room - 1, room - 1 - found, -1):
            if 0 < part[i] < 1:
                uneven[q] += part[i] * (1 - part[i]) * unevenness[stack[i]]
                cut[q] += 1


@njit(cache=True, nogil=True)
def walk_variance(
    first_child: Ints, lo: Ints, hi: Ints, subtree_variance: Floats, queries: Floats, out: Floats
) -> None:
    """The variance of least-squares answers on any tree, visiting only nodes that a query's border cuts.

    With A the covered fraction of a leaf and, upward, A_v = Σ V_c A_c / Σ V_c:
    Var = V_root A_root² + Σ_v [ Σ V_c A_c² − (Σ V_c A_c)² / Σ V_c ].
    """
    node = np.empty(DEEPEST, np.int64)
    child = np.empty(DEEPEST, np.int64)
    sums = np.empty((DEEPEST, 3))  # Σ V, Σ V A, Σ V A² over the children seen so far
    for q in range(len(queries)):
        total = 0.0
        if first_child[0] == first_child[1] or position(lo, hi, 0, queries[q]) == 2:
            out[q] = subtree_variance[0] * covered(lo, hi, 0, queries[q]) ** 2
            continue
        depth = 0
        node[0] = 0
        child[0] = first_child[0]
        sums[0] = 0.0
        while True:
            v = node[depth]
            if child[depth] < first_child[v + 1]:
                c = child[depth]
                child[depth] += 1
                where = position(lo, hi, c, queries[q])
                if where == 1 and first_child[c] < first_child[c + 1]:
                    depth += 1
                    node[depth] = c
                    child[depth] = first_child[c]
                    sums[depth] = 0.0
                    continue
                a = covered(lo, hi, c, queries[q]) if where == 1 else where / 2
                w = subtree_variance[c]
            else:
                a = sums[depth, 1] / sums[depth, 0] if sums[depth, 0] > 0 else 0.0
                total += sums[depth, 2] - sums[depth, 1] * a
                w = subtree_variance[v]
                if depth == 0:
                    total += w * a * a
                    break
                depth -= 1
            sums[depth, 0] += w
            sums[depth, 1] += w * a
            sums[depth, 2] += w * a * a
        out[q] = max(total, 0.0)

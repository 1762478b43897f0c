"""Count points in boxes by walking a tree or reading a summed-area table, and compute the variance of the counts.

A query is a row of ``[lo of each axis, hi of each axis]`` in cells (fractions allowed), inside the domain.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Flags, Floats, Ints

MAX_TREE_LEVELS = 128  # a box of 2^62 cells cannot be cut more often


@njit(cache=True, nogil=True)
def rounding_slack(lo: Floats, hi: Floats, scale: Floats) -> Floats:
    """Return the rounding error of coordinates per axis, in cells: four ulps, at most a quarter of a cell."""
    return np.minimum(0.25, 4 * np.spacing(np.maximum(np.abs(lo), np.abs(hi))) * scale)


@njit(cache=True, nogil=True, inline="always")
def to_fraction(value: float, lo: float, hi: float, scale: float, slack: float, side: int) -> float:
    """Return a coordinate as a fraction of its axis, clipped to [0, 1] and snapped to a grid line within ``slack``."""
    cell = min((min(max(value, lo), hi) - lo) * scale, side)
    line = np.rint(cell)
    return float((line if abs(cell - line) <= slack else cell) * (1.0 / side))


@njit(cache=True, nogil=True)
def place_boxes(boxes: Floats, lo: Floats, hi: Floats, side: int, out: Floats) -> int:
    """Write boxes as fractions of the domain [lo, hi], clipped to it; return the first invalid row, or -1.

    A row is invalid if it has a NaN, or a lower end above its upper end. An end within rounding error of one of the
    ``side`` grid lines is moved onto it, so that the box of a node covers exactly that node.
    """
    axes = len(lo)
    scale = side / (hi - lo)
    slack = rounding_slack(lo, hi, scale)
    for q in range(len(boxes)):
        for k in range(axes):
            if not boxes[q, k] <= boxes[q, k + axes]:
                return q
            for end in (k, k + axes):
                out[q, end] = to_fraction(boxes[q, end], lo[k], hi[k], scale[k], slack[k], side)
    return -1


@njit(cache=True, nogil=True)
def place_points(points: Floats, lo: Floats, hi: Floats, side: int, out: Floats) -> None:
    """Write points as fractions of the domain, clipped and snapped like the ends of boxes."""
    scale = side / (hi - lo)
    slack = rounding_slack(lo, hi, scale)
    for i in range(len(points)):
        for k in range(len(lo)):
            out[i, k] = to_fraction(points[i, k], lo[k], hi[k], scale[k], slack[k], side)


@njit(cache=True, nogil=True)
def interpolate_summed_area(table: Floats, grid: Ints, queries: Floats, out: Floats) -> None:
    """Write box counts from a summed-area table (flat, one longer than ``grid`` along each axis).

    The table is interpolated multilinearly between grid lines: points are uniform inside a box of the grid. Along one
    axis, the difference between the two ends of a query has four terms with the weights −(1−a), −a, 1−b, b, where a and
    b are the fractional positions of the ends. The count is the sum over all products of terms.
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
                beyond = u - i
                at[k, 2 * end] = i * stride
                at[k, 2 * end + 1] = (i + 1) * stride
                weight[k, 2 * end] = (1.0 - beyond) * (2 * end - 1)
                weight[k, 2 * end + 1] = beyond * (2 * end - 1)
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
def regular_tree_variance(grids: Ints, subtree_variance: Floats, queries: Floats, out: Floats) -> None:
    """Write the variance of least-squares answers on a regular tree, in closed form.

    ``grids[i]`` is the number of nodes of level i along each axis, ``subtree_variance[i]`` is their V. With S_i the
    sum over level i of (covered fraction)², which is a product over the axes, and f_i the fanout,
    Var = V_h S_h + Σ_{i<h} (V_i − f_i V_{i+1}) S_i. Queries are fractions of the domain.
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
                first, last = np.floor(a), np.floor(b)  # the nodes that hold the two ends
                apart = (first + 1.0 - a) ** 2 + (last - first - 1.0) + (b - last) ** 2
                term[i] *= (b - a) ** 2 if first == last else apart
        out[q] = max(term.sum(), 0.0)


@njit(cache=True, nogil=True)
def covered_fraction(lo: Ints, hi: Ints, v: int, query: Floats) -> float:
    """Return the fraction of node ``v`` that a query covers."""
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
    """Return 0 if node ``v`` is outside a query or has no cells, 1 if the query's border cuts it, 2 if it is inside."""
    axes = lo.shape[1]
    inside = True
    for k in range(axes):
        if query[k + axes] <= lo[v, k] or hi[v, k] <= query[k] or lo[v, k] == hi[v, k]:
            return 0
        inside = inside and query[k] <= lo[v, k] and hi[v, k] <= query[k + axes]
    return 2 if inside else 1


@njit(cache=True, nogil=True)
def canonical_nodes(
    first_child: Ints, lo: Ints, hi: Ints, has_value: Flags, query: Floats, stack: Ints, fraction: Floats
) -> int:
    """Find the canonical nodes of a query and their covered fractions (section 4.1 of the paper); return their number.

    From the root down: a node inside the query is canonical, and so is a leaf that the query cuts. Any other node that
    meets the query, or has no value of its own, is replaced by its children. ``stack`` and ``fraction`` have room for
    all nodes; the canonical ones are written to their ends, in reverse order.
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
            fraction[room - found] = 1.0 if where == 2 else covered_fraction(lo, hi, v, query)
        else:
            for c in range(a, b):
                stack[top] = c
                top += 1
    return found


@njit(cache=True, nogil=True)
def sum_canonical_nodes(
    first_child: Ints,
    lo: Ints,
    hi: Ints,
    value: Floats,
    variance: Floats,
    queries: Floats,
    out: Floats,
    var: Floats,
) -> None:
    """Write Σ f · value over the canonical nodes of each query, where f is the covered fraction.

    ``var`` is Σ f² · variance, the variance of that sum if values are independent. A node of infinite variance has no
    value of its own.
    """
    room = len(first_child)
    stack, fraction = np.empty(room, np.int64), np.empty(room)
    has_value = variance < np.inf
    for q in range(len(queries)):
        total = 0.0
        spread = 0.0
        found = canonical_nodes(first_child, lo, hi, has_value, queries[q], stack, fraction)
        for i in range(room - 1, room - 1 - found, -1):
            total += fraction[i] * value[stack[i]]
            spread += fraction[i] * fraction[i] * variance[stack[i]]
        out[q] = total
        var[q] = spread


@njit(cache=True, nogil=True)
def add_slope_terms(first_child: Ints, lo: Ints, hi: Ints, slope: Floats, queries: Floats, out: Floats) -> None:
    """Add f · Σ_k slope_k · ((a_k + b_k) / 2 − 1/2) over the leaves that a query cuts.

    The query covers the fraction f of a leaf, from a_k to b_k along axis k, in units of the leaf's width.
    """
    axes, room = lo.shape[1], len(first_child)
    stack, fraction, has_value = np.empty(room, np.int64), np.empty(room), np.ones(room - 1, np.bool_)
    for q in range(len(queries)):
        found = canonical_nodes(first_child, lo, hi, has_value, queries[q], stack, fraction)
        for i in range(room - 1, room - 1 - found, -1):
            v = stack[i]
            if fraction[i] < 1:
                for k in range(axes):
                    before = max(queries[q, k] - lo[v, k], 0.0)
                    after = max(hi[v, k] - queries[q, k + axes], 0.0)
                    out[q] += fraction[i] * slope[v, k] * (before - after) / (2.0 * (hi[v, k] - lo[v, k]))


@njit(cache=True, nogil=True)
def sum_cut_leaves(
    first_child: Ints, lo: Ints, hi: Ints, unevenness: Floats, queries: Floats, uneven: Floats, cut: Floats
) -> None:
    """Write Σ f (1 − f) · unevenness over the leaves that a query cuts, and the number of these leaves.

    f is the covered fraction of a leaf.
    """
    room = len(first_child)
    stack, fraction, has_value = np.empty(room, np.int64), np.empty(room), np.ones(room - 1, np.bool_)
    for q in range(len(queries)):
        uneven[q] = cut[q] = 0.0
        found = canonical_nodes(first_child, lo, hi, has_value, queries[q], stack, fraction)
        for i in range(room - 1, room - 1 - found, -1):
            if 0 < fraction[i] < 1:
                uneven[q] += fraction[i] * (1 - fraction[i]) * unevenness[stack[i]]
                cut[q] += 1


@njit(cache=True, nogil=True)
def least_squares_variance(
    first_child: Ints, lo: Ints, hi: Ints, subtree_variance: Floats, queries: Floats, out: Floats
) -> None:
    """Write the variance of least-squares answers on any tree, visiting only nodes that a query's border cuts.

    A is the covered fraction of a leaf and, upward, A_v = Σ V_c A_c / Σ V_c over the children c. Then
    Var = V_root A_root² + Σ_v [ Σ V_c A_c² − (Σ V_c A_c)² / Σ V_c ].
    """
    node = np.empty(MAX_TREE_LEVELS, np.int64)
    child = np.empty(MAX_TREE_LEVELS, np.int64)
    sums = np.empty((MAX_TREE_LEVELS, 3))  # Σ V, Σ V A, Σ V A² over the children seen so far
    for q in range(len(queries)):
        total = 0.0
        if first_child[0] == first_child[1] or position(lo, hi, 0, queries[q]) == 2:
            out[q] = subtree_variance[0] * covered_fraction(lo, hi, 0, queries[q]) ** 2
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
                a = covered_fraction(lo, hi, c, queries[q]) if where == 1 else where / 2
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

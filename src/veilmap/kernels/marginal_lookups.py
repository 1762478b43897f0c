"""Compute box counts and their errors from marginals.

A query is a row of ``[lo of each axis, hi of each axis]`` in cells (fractions allowed), inside the domain.
While a tree is walked, the sides of the query that lie inside a node are bits of an integer: ``1 << 2k`` for the
low side of axis k, ``2 << 2k`` for the high side. A node without such a side is inside the query. A node whose sides
all belong to one axis is answered from its marginal along that axis. Only the children of other nodes are visited.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Floats, Ints
from veilmap.kernels.marginals import Blocks, ErrorMarginals, Marginals
from veilmap.kernels.sibling_index import GRID_OF_LEAVES, LEAF_NODE, NO_CHILDREN_LEFT, NO_SINGLE_CUT

LOW_SIDE_BITS = 0x5555


@njit(cache=True, nogil=True)
def find_knot(knot: Floats, a: int, n: int, x: float) -> int:
    """Return the last of the n knots from ``a`` on that is at most ``x``, never the very last one; bisection."""
    while n > 2:
        half = (n - 1) >> 1
        a += half if knot[a + half] <= x else 0
        n -= half
    return a


@njit(cache=True, nogil=True)
def find_cell(edge: Floats, a: int, n: int, x: float) -> int:
    """Return the interval that holds ``x``, of the n intervals from edge ``a`` on; fast if they are equally wide."""
    i = a + min(int((x - edge[a]) * n / (edge[a + n] - edge[a])), n - 1)
    return i if edge[i] <= x and (x < edge[i + 1] or i == a + n - 1) else find_knot(edge, a, n + 1, x)


@njit(cache=True, nogil=True)
def sides_inside(box: Floats, query: Floats) -> int:
    """Return the bits of a query's sides that lie inside a box; -1 if the query and the box do not meet."""
    axes = len(query) // 2
    sides = 0
    for k in range(axes):
        lo, hi = box[2 * k], box[2 * k + 1]
        if query[k + axes] <= lo or hi <= query[k]:
            return -1
        sides |= (1 << 2 * k if lo < query[k] else 0) | (2 << 2 * k if query[k + axes] < hi else 0)
    return sides


@njit(cache=True, nogil=True)
def sides_inside_half(second: int, axis: int, at: int, sides: int, query: Floats) -> int:
    """Return the sides of a query inside the first or second half of a node; -1 if the half does not meet the query.

    The node is cut at ``at``, and has ``sides`` of the query inside.
    """
    lo, hi = query[axis], query[axis + len(query) // 2]
    if second:
        return -1 if hi <= at else sides if at < lo else sides & ~(1 << 2 * axis)
    return -1 if at <= lo else sides if hi < at else sides & ~(2 << 2 * axis)


@njit(cache=True, nogil=True)
def axis_of(sides: int) -> int:
    """Return the one axis that all sides belong to; -1 if they belong to several."""
    low = (sides | sides >> 1) & LOW_SIDE_BITS
    if low & (low - 1):
        return -1
    k = 0
    while low > 1:
        low >>= 2
        k += 1
    return k


@njit(cache=True, nogil=True)
def covered_fraction(box: Floats, query: Floats) -> float:
    """Return the fraction of a box that a query covers, if they meet."""
    axes = len(query) // 2
    fraction = 1.0
    for k in range(axes):
        lo, hi = box[2 * k], box[2 * k + 1]
        fraction *= (min(hi, query[k + axes]) - max(lo, query[k])) / (hi - lo)
    return fraction


@njit(cache=True, nogil=True)
def leaf_count(box: Floats, query: Floats, estimate: float, half_slope: Floats) -> float:
    """Return the count of the part of a leaf that a query covers: Π (b − a) · (estimate + Σ half_slope · (a + b − 1)).

    The query covers the leaf from a to b along each axis, in units of the leaf's width.
    """
    axes = len(query) // 2
    fraction, density = 1.0, estimate
    for k in range(axes):
        lo, hi = box[2 * k], box[2 * k + 1]
        a, b = max(lo, query[k]), min(hi, query[k + axes])
        fraction *= (b - a) / (hi - lo)
        if len(half_slope):
            density += half_slope[k] * ((a - lo) - (hi - b)) / (hi - lo)
    return fraction * density


@njit(cache=True, nogil=True)
def marginal_count(tree: Marginals, place: int, x: float) -> float:
    """Return the count of a node below ``x`` along an axis, by interpolating its marginal."""
    i = find_knot(tree.knot, tree.start[place, 0], tree.start[place, 1], x)
    past, ahead = x - tree.knot[i], tree.knot[i + 1] - x
    t = past / (past + ahead)
    below = tree.estimate[i] + t * (tree.estimate[i + 1] - tree.estimate[i])
    return float(below - tree.bend[i] * past * ahead) if len(tree.bend) else float(below)


@njit(cache=True, nogil=True)
def marginal_errors(tree: Marginals, errors: ErrorMarginals, place: int, x: float) -> tuple[float, float, float, float]:
    """Return the four error terms of :class:`ErrorMarginals` for a node that a query covers below ``x``.

    They are V·A, V·A² plus the terms below, Σ f (1 − f) q, and the number of cut leaves.
    """
    i = find_knot(tree.knot, tree.start[place, 0], tree.start[place, 1], x)
    past, ahead = x - tree.knot[i], tree.knot[i + 1] - x
    t = past / (past + ahead)
    here, there = errors.spread[i], errors.spread[i + 1]
    one = here[0] + t * (there[0] - here[0])
    two = here[1] + t * (there[1] - here[1]) - here[2] * past * ahead
    if errors.uneven.shape[1] == 0:
        return one, two, 0.0, 0.0
    here, there = errors.uneven[i], errors.uneven[i + 1]
    uneven = here[0] + t * (there[0] - here[0]) - here[1] * past * ahead
    return one, two, uneven, here[2] if past == 0 else here[3]


@njit(cache=True, nogil=True)
def block_weights(blocks: Blocks, b: int, query: Floats, at: Ints, weight: Floats, cells: Ints) -> None:
    """Write the four table entries that a query needs along each axis of a block, and their weights in three sums.

    Along an axis, leaves have the weight w at the low end, w' at the high end and 1 between. Sums over leaves are
    differences of table entries, so the entries have the weights −w, w − 1, 1 − w', w'. In ``weight[0]``, for Σ f, w is
    the covered fraction; in ``weight[1]``, for Σ f², its square. In ``weight[2]``, for half the slopes, a leaf covered
    from a to b has the weight b (b − 1) − a (a − 1), which is 0 between the ends. ``cells`` is the number of leaves
    along each axis that the query meets, and the number that it covers.
    """
    axes = len(query) // 2
    mine = blocks.shape[b]
    stride = 1
    for k in range(axes - 1, -1, -1):
        start, lo, hi = mine[axes + k], query[k], query[k + axes]
        lo, hi = max(lo, blocks.edge[start]), min(hi, blocks.edge[start + mine[k]])
        i, j = find_cell(blocks.edge, start, mine[k], lo), find_cell(blocks.edge, start, mine[k], hi)
        wide = blocks.edge[i + 1] - blocks.edge[i]
        first = (min(hi, blocks.edge[i + 1]) - lo) / wide
        last = (hi - blocks.edge[j]) / (blocks.edge[j + 1] - blocks.edge[j])
        bend = (lo - blocks.edge[i]) / wide * ((blocks.edge[i + 1] - lo) / wide)  # − a (a − 1)
        end = last * (last - 1.0)
        between = 1.0
        if i == j:
            bend += end
            last = between = end = 0.0
        cells[0, k] = max(j - i - 1, 0) + (first > 0) + (last > 0)
        cells[1, k] = max(j - i - 1, 0) + (first == 1) + (last == 1)
        for power in range(2):
            weight[power, k, 0], weight[power, k, 1] = -first, first - between
            weight[power, k, 2], weight[power, k, 3] = between - last, last
            first, last = first * first, last * last
        weight[2, k, 0], weight[2, k, 1], weight[2, k, 2], weight[2, k, 3] = -bend, bend, -end, end
        at[k, 0], at[k, 1] = (i - start) * stride, (i + 1 - start) * stride
        at[k, 2], at[k, 3] = (j - start) * stride, (j + 1 - start) * stride
        stride *= mine[k] + 1


@njit(cache=True, nogil=True)
def sum_block(table: Floats, start: int, at: Ints, weight: Floats) -> float:
    """Return the weighted sum of a block's table entries: Σ over 4^axes entries of the product of their weights."""
    axes = len(at)
    total = 0.0
    for terms in range(4 ** (axes - 1)):
        place, w = start, 1.0
        for k in range(axes - 1):
            place += at[k, terms >> 2 * k & 3]
            w *= weight[k, terms >> 2 * k & 3]
        row = 0.0
        for j in range(4):
            row += weight[axes - 1, j] * table[place + at[axes - 1, j]]
        total += w * row
    return total


@njit(cache=True, nogil=True)
def block_count(estimate: Floats, half_slope: Floats, start: int, at: Ints, weight: Floats) -> float:
    """Return the count of a query in a block, from its tables of estimates and of half the slopes along each axis."""
    total = sum_block(estimate, start, at, weight[0])
    for k in range(len(half_slope)):
        weight[3] = weight[0]
        weight[3, k] = weight[2, k]
        total += sum_block(half_slope[k], start, at, weight[3])
    return total


@njit(cache=True, nogil=True)
def block_unevenness(uneven: Floats, start: int, at: Ints, weight: Floats, cells: Ints) -> tuple[float, int]:
    """Return Σ f (1 − f) q over the leaves of a block, and the number of leaves that a query cuts."""
    met = covered = 1
    for k in range(cells.shape[1]):
        met *= cells[0, k]
        covered *= cells[1, k]
    if met == covered:
        return 0.0, 0
    axes, total = len(at), 0.0
    for terms in range(4 ** (axes - 1)):
        place, w, squared = start, 1.0, 1.0
        for k in range(axes - 1):
            place += at[k, terms >> 2 * k & 3]
            w *= weight[0, k, terms >> 2 * k & 3]
            squared *= weight[1, k, terms >> 2 * k & 3]
        for j in range(4):
            difference = w * weight[0, axes - 1, j] - squared * weight[1, axes - 1, j]  # Σ f q − Σ f² q
            total += difference * uneven[place + at[axes - 1, j]]
    return max(total, 0.0), met - covered


@njit(cache=True, nogil=True)
def count_grid(blocks: Blocks, estimate: Floats, half_slope: Floats, queries: Floats, out: Floats) -> None:
    """Write box counts on a regular tree, whose leaves are one block."""
    axes = queries.shape[1] // 2
    at, weight, cells = np.empty((axes, 4), np.int64), np.empty((4, axes, 4)), np.empty((2, axes), np.int64)
    for q in range(len(queries)):
        block_weights(blocks, 0, queries[q], at, weight, cells)
        out[q] = block_count(estimate, half_slope, 0, at, weight)


@njit(cache=True, nogil=True)
def sum_cut_grid(blocks: Blocks, table: Floats, queries: Floats, uneven: Floats, cut: Floats) -> None:
    """Write Σ f (1 − f) q over the leaves of a regular tree that each query cuts, and their number."""
    axes = queries.shape[1] // 2
    at, weight, cells = np.empty((axes, 4), np.int64), np.empty((4, axes, 4)), np.empty((2, axes), np.int64)
    for q in range(len(queries)):
        block_weights(blocks, 0, queries[q], at, weight, cells)
        uneven[q], cut[q] = block_unevenness(table, 0, at, weight, cells)


@njit(cache=True, nogil=True)
def count_boxes(tree: Marginals, queries: Floats, out: Floats) -> None:
    """Write box counts, visiting no children of nodes that a marginal answers."""
    axes = queries.shape[1] // 2
    stack, bits = np.empty((2, len(tree.link)), np.int64)
    entries, weight = np.empty((axes, 4), np.int64), np.empty((4, axes, 4))
    cells, no_slope = np.empty((2, axes), np.int64), np.empty(0)
    flat = len(tree.half_slope) == 0
    for q in range(len(queries)):
        query = queries[q]
        total = 0.0
        stack[0], bits[0] = 0, sides_inside(tree.box[0], query)
        top = 1 if bits[0] >= 0 else 0
        while top:
            top -= 1
            v, sides = stack[top], bits[top]
            if sides == 0:
                total += tree.node_estimate[v]
                continue
            a, axis, at, table = tree.link[v, 0], tree.link[v, 1], tree.link[v, 2], tree.link[v, 3]
            k = axis_of(sides) if table >= 0 else -1
            if k >= 0:
                place = table * axes + k
                total += marginal_count(tree, place, query[k + axes]) if sides >> 2 * k & 2 else tree.node_estimate[v]
                total -= marginal_count(tree, place, query[k]) if sides >> 2 * k & 1 else 0.0
            elif axis == LEAF_NODE:
                half_slope = no_slope if flat else tree.half_slope[v]
                total += leaf_count(tree.box[v], query, tree.node_estimate[v], half_slope)
            elif axis == GRID_OF_LEAVES:
                block_weights(tree.blocks, at, query, entries, weight, cells)
                start = tree.blocks.shape[at, 2 * axes]
                total += block_count(tree.block_estimate, tree.block_half_slope, start, entries, weight)
            elif axis == NO_SINGLE_CUT:
                for c in range(a, at):
                    inside = sides_inside(tree.box[c], query)
                    if inside >= 0:
                        stack[top], bits[top] = c, inside
                        top += 1
            elif axis >= 0:
                for second in range(2):
                    inside = sides_inside_half(second, axis, at, sides, query)
                    if inside >= 0:
                        stack[top], bits[top] = a + second, inside
                        top += 1
        out[q] = total


@njit(cache=True, nogil=True)
def box_errors(
    tree: Marginals, errors: ErrorMarginals, queries: Floats, out: Floats, uneven_out: Floats, cut_out: Floats
) -> None:
    """Write the variance of least-squares answers, visiting no children of nodes that a marginal answers.

    A is the covered fraction of a leaf and, upward, A_v = Σ V_c A_c / Σ V_c over the children c. Then
    Var = V_root A_root² + Σ_v [ Σ V_c A_c² − (Σ V_c A_c)² / Σ V_c ].
    A node that a query covers above x, not below x, has 1 − A in place of A; its other terms stay the same.
    Also write Σ f (1 − f) q over the leaves that the query cuts, with f the covered fraction and q the unevenness, and
    the number of these leaves.
    """
    axes = queries.shape[1] // 2
    known = errors.uneven.shape[1] > 0
    node, child, last, bits = np.empty((4, tree.levels + 1), np.int64)
    entries, weight = np.empty((axes, 4), np.int64), np.empty((4, axes, 4))
    cells = np.empty((2, axes), np.int64)
    once, twice = np.empty((2, tree.levels + 1))  # Σ V A, Σ V A² and more over the children seen so far
    for q in range(len(queries)):
        query = queries[q]
        c, sides, depth = 0, sides_inside(tree.box[0], query), 0
        once[0] = twice[0] = 0.0
        uneven, cut = 0.0, 0.0
        while True:
            # depth 0 is above the root, so that the root is treated like any other node
            one = two = 0.0
            axis, table, v = tree.link[c, 1], tree.link[c, 3], errors.node[c, 0]
            if sides == 0:
                one = two = v
            elif sides > 0 and table >= 0 and sides & (sides - 1) == 0:
                k = axis_of(sides)
                below = sides >> 2 * k == 2
                end = query[k + axes] if below else query[k]
                one, two, more, leaves = marginal_errors(tree, errors, table * axes + k, end)
                if not below:
                    one, two = v - one, two - 2 * one + v
                uneven += more
                cut += leaves
            elif sides > 0 and axis == LEAF_NODE:
                f = covered_fraction(tree.box[c], query)
                one, two = v * f, v * f * f
                if known and 0 < f < 1:
                    uneven += f * (1 - f) * errors.node[c, 1]
                    cut += 1
            elif sides > 0 and axis == GRID_OF_LEAVES:
                block_weights(tree.blocks, tree.link[c, 2], query, entries, weight, cells)
                start = tree.blocks.shape[tree.link[c, 2], 2 * axes]
                one = sum_block(errors.block_variance, start, entries, weight[0])
                two = sum_block(errors.block_variance, start, entries, weight[1])
                mean_a = one / errors.node[c, 2] if errors.node[c, 2] > 0 else 0.0
                one, two = v * mean_a, two - one * mean_a + v * mean_a * mean_a
                if known:
                    more, leaves = block_unevenness(errors.block_uneven, start, entries, weight, cells)
                    uneven += more
                    cut += leaves
            elif sides > 0 and axis != NO_CHILDREN_LEFT:
                depth += 1
                node[depth], child[depth], bits[depth] = c, tree.link[c, 0], sides
                last[depth] = tree.link[c, 2] if axis == NO_SINGLE_CUT else tree.link[c, 0] + 2
                once[depth] = twice[depth] = 0.0
            once[depth] += one
            twice[depth] += two
            while depth > 0 and child[depth] == last[depth]:
                u = node[depth]
                mean_a = once[depth] / errors.node[u, 2] if errors.node[u, 2] > 0 else 0.0
                one = errors.node[u, 0] * mean_a
                two = twice[depth] - once[depth] * mean_a + one * mean_a
                depth -= 1
                once[depth] += one
                twice[depth] += two
            if depth == 0:
                break
            u, c = node[depth], child[depth]
            child[depth] += 1
            if tree.link[u, 1] == NO_SINGLE_CUT:
                sides = sides_inside(tree.box[c], query)
            else:
                sides = sides_inside_half(c - tree.link[u, 0], tree.link[u, 1], tree.link[u, 2], bits[depth], query)
        out[q], uneven_out[q], cut_out[q] = max(twice[0], 0.0), max(uneven, 0.0), cut

"""Box counts and their variances from marginals.

A query is a row of ``[lo of each axis, hi of each axis]`` in cells (fractions allowed), inside the domain.
While a tree is walked, the sides of the query that lie inside a node are bits of an integer: ``1 << 2k`` for the
low side of axis k, ``2 << 2k`` for the high one. A node without such a side is inside the query, and one whose
sides are all of one axis is answered from its marginal along that axis. Only the others are opened.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from veilmap.kernels.halves import BLOCK, FAN, HOLLOW, LEAF
from veilmap.kernels.marginals import Blocks, Marginals

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

LOW_SIDES = 0x5555


@njit(cache=True, nogil=True)
def find_knot(knot: Floats, a: int, n: int, x: float) -> int:
    """The last but one of the n knots from ``a`` on that is not above ``x``."""
    while n > 2:
        half = (n - 1) >> 1
        a += half if knot[a + half] <= x else 0
        n -= half
    return a


@njit(cache=True, nogil=True)
def sides_inside(box: Floats, query: Floats) -> int:
    """The bits of a query's sides that lie inside a box; -1 when they do not meet."""
    axes = len(query) // 2
    sides = 0
    for k in range(axes):
        lo, hi = box[2 * k], box[2 * k + 1]
        if query[k + axes] <= lo or hi <= query[k]:
            return -1
        sides |= (1 << 2 * k if lo < query[k] else 0) | (2 << 2 * k if query[k + axes] < hi else 0)
    return sides


@njit(cache=True, nogil=True)
def side_of_cut(second: int, axis: int, at: int, sides: int, query: Floats) -> int:
    """The sides of a query inside the first or the second half of a node with these; -1 when they do not meet."""
    lo, hi = query[axis], query[axis + len(query) // 2]
    if second:
        return -1 if hi <= at else sides if at < lo else sides & ~(1 << 2 * axis)
    return -1 if at <= lo else sides if hi < at else sides & ~(2 << 2 * axis)


@njit(cache=True, nogil=True)
def axis_of(sides: int) -> int:
    """The one axis that all sides belong to, -1 when they are of several."""
    low = (sides | sides >> 1) & LOW_SIDES
    if low & (low - 1):
        return -1
    k = 0
    while low > 1:
        low >>= 2
        k += 1
    return k


@njit(cache=True, nogil=True)
def part_inside(box: Floats, query: Floats) -> float:
    """The fraction of a box that a query covers, when they meet."""
    axes = len(query) // 2
    fraction = 1.0
    for k in range(axes):
        lo, hi = box[2 * k], box[2 * k + 1]
        fraction *= (min(hi, query[k + axes]) - max(lo, query[k])) / (hi - lo)
    return fraction


@njit(cache=True, nogil=True)
def estimate_below(tree: Marginals, place: int, x: float) -> float:
    """What a node holds below ``x`` along the axis of a table."""
    i = find_knot(tree.knot, tree.start[place, 0], tree.start[place, 1], x)
    t = (x - tree.knot[i]) / (tree.knot[i + 1] - tree.knot[i])
    return float(tree.estimate[i] + t * (tree.estimate[i + 1] - tree.estimate[i]))


@njit(cache=True, nogil=True)
def spread_below(tree: Marginals, place: int, x: float) -> tuple[float, float]:
    """V·A and V·A² and more of a query that covers a node below ``x``."""
    i = find_knot(tree.knot, tree.start[place, 0], tree.start[place, 1], x)
    past, ahead = x - tree.knot[i], tree.knot[i + 1] - x
    t = past / (past + ahead)
    one = tree.spread[i, 0] + t * (tree.spread[i + 1, 0] - tree.spread[i, 0])
    two = tree.spread[i, 1] + t * (tree.spread[i + 1, 1] - tree.spread[i, 1]) - tree.spread[i, 2] * past * ahead
    return one, two


@njit(cache=True, nogil=True)
def look_into_block(blocks: Blocks, b: int, query: Floats, at: Ints, weight: Floats) -> None:
    """Which entries of a block's table a query takes along each axis, and how often, to sum A and to sum A².

    Along an axis cells have weight w at the low end, w' at the high end and 1 between; sums of cells are differences
    of entries, so entries weigh −w, w − 1, 1 − w', w'. For A² the ends weigh w² and w'².
    """
    axes = len(query) // 2
    mine = blocks.shape[b]
    stride = 1
    for k in range(axes - 1, -1, -1):
        start, lo, hi = mine[axes + k], query[k], query[k + axes]
        i = find_knot(blocks.edge, start, mine[k] + 1, lo)
        j = find_knot(blocks.edge, start, mine[k] + 1, hi)
        lo, hi = max(lo, blocks.edge[start]), min(hi, blocks.edge[start + mine[k]])
        first = (min(hi, blocks.edge[i + 1]) - lo) / (blocks.edge[i + 1] - blocks.edge[i])
        last = (hi - blocks.edge[j]) / (blocks.edge[j + 1] - blocks.edge[j])
        between = 1.0
        if i == j:
            last = between = 0.0
        for power in range(2):
            weight[power, k, 0], weight[power, k, 1] = -first, first - between
            weight[power, k, 2], weight[power, k, 3] = between - last, last
            first, last = first * first, last * last
        at[k, 0], at[k, 1] = (i - start) * stride, (i + 1 - start) * stride
        at[k, 2], at[k, 3] = (j - start) * stride, (j + 1 - start) * stride
        stride *= mine[k] + 1


@njit(cache=True, nogil=True)
def sum_block(table: Floats, start: int, at: Ints, weight: Floats) -> float:
    """The weighted sum of a block's entries."""
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
def count_boxes(tree: Marginals, queries: Floats, out: Floats) -> None:
    """Box counts, opening no node that a marginal can answer for."""
    axes = queries.shape[1] // 2
    stack, bits = np.empty((2, len(tree.link)), np.int64)
    entries, weight = np.empty((axes, 4), np.int64), np.empty((2, axes, 4))
    for q in range(len(queries)):
        query = queries[q]
        total = 0.0
        stack[0], bits[0] = 0, sides_inside(tree.box[0], query)
        top = 1 if bits[0] >= 0 else 0
        while top:
            top -= 1
            v, sides = stack[top], bits[top]
            if sides == 0:
                total += tree.number[v, 0]
                continue
            a, axis, at, table = tree.link[v, 0], tree.link[v, 1], tree.link[v, 2], tree.link[v, 3]
            k = axis_of(sides) if table >= 0 else -1
            if k >= 0:
                place = table * axes + k
                total += estimate_below(tree, place, query[k + axes]) if sides >> 2 * k & 2 else tree.number[v, 0]
                total -= estimate_below(tree, place, query[k]) if sides >> 2 * k & 1 else 0.0
            elif axis == LEAF:
                total += part_inside(tree.box[v], query) * tree.number[v, 0]
            elif axis == BLOCK:
                look_into_block(tree.blocks, at, query, entries, weight)
                total += sum_block(tree.blocks.estimate, tree.blocks.shape[at, 2 * axes], entries, weight[0])
            elif axis == FAN:
                for c in range(a, at):
                    inside = sides_inside(tree.box[c], query)
                    if inside >= 0:
                        stack[top], bits[top] = c, inside
                        top += 1
            elif axis >= 0:
                for second in range(2):
                    inside = side_of_cut(second, axis, at, sides, query)
                    if inside >= 0:
                        stack[top], bits[top] = a + second, inside
                        top += 1
        out[q] = total


@njit(cache=True, nogil=True)
def box_variances(tree: Marginals, queries: Floats, out: Floats) -> None:
    """The variance of least-squares answers, opening no node that a marginal can answer for.

    With A the covered fraction of a leaf and, upward, A_v = Σ V_c A_c / Σ V_c:
    Var = V_root A_root² + Σ_v [ Σ V_c A_c² − (Σ V_c A_c)² / Σ V_c ].
    A node that a query covers from a place on, not up to it, has 1 − A in place of A; its terms stay the same.
    """
    axes = queries.shape[1] // 2
    node, child, last, bits = np.empty((4, tree.levels + 1), np.int64)
    entries, weight = np.empty((axes, 4), np.int64), np.empty((2, axes, 4))
    once, twice = np.empty((2, tree.levels + 1))  # Σ V A, Σ V A² and more over the children seen so far
    for q in range(len(queries)):
        query = queries[q]
        c, sides, depth = 0, sides_inside(tree.box[0], query), 0
        once[0] = twice[0] = 0.0
        while True:
            # depth 0 stands above the root, so that the root is met like any other node
            one = two = 0.0
            axis, table, v = tree.link[c, 1], tree.link[c, 3], tree.number[c, 1]
            if sides == 0:
                one = two = v
            elif sides > 0 and table >= 0 and sides & (sides - 1) == 0:
                k = axis_of(sides)
                if sides >> 2 * k == 2:
                    one, two = spread_below(tree, table * axes + k, query[k + axes])
                else:
                    one, two = spread_below(tree, table * axes + k, query[k])
                    one, two = v - one, two - 2 * one + v
            elif sides > 0 and axis == LEAF:
                part = part_inside(tree.box[c], query)
                one, two = v * part, v * part * part
            elif sides > 0 and axis == BLOCK:
                look_into_block(tree.blocks, tree.link[c, 2], query, entries, weight)
                start = tree.blocks.shape[tree.link[c, 2], 2 * axes]
                one = sum_block(tree.blocks.variance, start, entries, weight[0])
                two = sum_block(tree.blocks.variance, start, entries, weight[1])
                part = one / tree.number[c, 2] if tree.number[c, 2] > 0 else 0.0
                one, two = v * part, two - one * part + v * part * part
            elif sides > 0 and axis != HOLLOW:
                depth += 1
                node[depth], child[depth], bits[depth] = c, tree.link[c, 0], sides
                last[depth] = tree.link[c, 2] if axis == FAN else tree.link[c, 0] + 2
                once[depth] = twice[depth] = 0.0
            once[depth] += one
            twice[depth] += two
            while depth > 0 and child[depth] == last[depth]:
                u = node[depth]
                part = once[depth] / tree.number[u, 2] if tree.number[u, 2] > 0 else 0.0
                one = tree.number[u, 1] * part
                two = twice[depth] - once[depth] * part + one * part
                depth -= 1
                once[depth] += one
                twice[depth] += two
            if depth == 0:
                break
            u, c = node[depth], child[depth]
            child[depth] += 1
            if tree.link[u, 1] == FAN:
                sides = sides_inside(tree.box[c], query)
            else:
                sides = side_of_cut(c - tree.link[u, 0], tree.link[u, 1], tree.link[u, 2], bits[depth], query)
        out[q] = max(twice[0], 0.0)

"""Box counts and their errors from marginals.

A query is a row of ``[lo of each axis, hi of each axis]`` in cells (fractions allowed), inside the domain.
While a tree is walked, the sides of the query that lie inside a node are bits of an integer: ``1 << 2k`` for the
low side of axis k, ``2 << 2k`` for the high one. A node without such a side is inside the query, and one whose
sides are all of one axis is answered from its marginal along that axis. Only the others are opened.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Floats, Ints
from veilmap.kernels.marginals import Blocks, Errors, Marginals
from veilmap.kernels.sibling_index import BLOCK, FAN, HOLLOW, LEAF

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
def find_cell(edge: Floats, a: int, n: int, x: float) -> int:
    """As :func:`find_knot`, of n cells that begin at edge ``a``: quicker where all are of one width."""
    i = a + min(int((x - edge[a]) * n / (edge[a + n] - edge[a])), n - 1)
    return i if edge[i] <= x and (x < edge[i + 1] or i == a + n - 1) else find_knot(edge, a, n + 1, x)


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
def count_inside(box: Floats, query: Floats, number: float, tilt: Floats) -> float:
    """What a query takes of a leaf that it meets: number and half the slopes are those of the leaf.

    Of the part from a to b along each axis, Π (b − a) · (number + Σ tilt · (a + b − 1)).
    """
    axes = len(query) // 2
    fraction, density = 1.0, number
    for k in range(axes):
        lo, hi = box[2 * k], box[2 * k + 1]
        a, b = max(lo, query[k]), min(hi, query[k + axes])
        fraction *= (b - a) / (hi - lo)
        if len(tilt):
            density += tilt[k] * ((a - lo) - (hi - b)) / (hi - lo)
    return fraction * density


@njit(cache=True, nogil=True)
def estimate_below(tree: Marginals, place: int, x: float) -> float:
    """What a node holds below ``x`` along the axis of a table."""
    i = find_knot(tree.knot, tree.start[place, 0], tree.start[place, 1], x)
    past, ahead = x - tree.knot[i], tree.knot[i + 1] - x
    t = past / (past + ahead)
    below = tree.estimate[i] + t * (tree.estimate[i + 1] - tree.estimate[i])
    return float(below - tree.bend[i] * past * ahead) if len(tree.bend) else float(below)


@njit(cache=True, nogil=True)
def errors_below(tree: Marginals, errors: Errors, place: int, x: float) -> tuple[float, float, float, float]:
    """Of a query that covers a node below ``x``: V·A, V·A² and more, the sum of f (1 − f) q, leaves that it cuts."""
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
def look_into_block(blocks: Blocks, b: int, query: Floats, at: Ints, weight: Floats, cells: Ints) -> None:
    """Which entries of a block's tables a query takes along each axis, and how often, for three kinds of sums.

    Along an axis cells have weight w at the low end, w' at the high end and 1 between; sums of cells are differences
    of entries, so entries weigh −w, w − 1, 1 − w', w'. To sum A these are covered parts, to sum A² their squares.
    For half the slopes, cells weigh b (b − 1) − a (a − 1) when covered from a to b, so those between weigh 0.
    ``cells`` is how many the query meets along each axis, and how many it covers.
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
def count_block(number: Floats, tilt: Floats, start: int, at: Ints, weight: Floats) -> float:
    """What a query takes of a block: the tables are of its estimates and, along each axis, of half its slopes."""
    total = sum_block(number, start, at, weight[0])
    for k in range(len(tilt)):
        weight[3] = weight[0]
        weight[3, k] = weight[2, k]
        total += sum_block(tilt[k], start, at, weight[3])
    return total


@njit(cache=True, nogil=True)
def cut_block(uneven: Floats, start: int, at: Ints, weight: Floats, cells: Ints) -> tuple[float, int]:
    """The sum of f (1 − f) q over the cells of a block, and how many of them a query cuts."""
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
            some = w * weight[0, axes - 1, j] - squared * weight[1, axes - 1, j]  # Σ f q − Σ f² q
            total += some * uneven[place + at[axes - 1, j]]
    return max(total, 0.0), met - covered


@njit(cache=True, nogil=True)
def count_grid(blocks: Blocks, number: Floats, tilt: Floats, queries: Floats, out: Floats) -> None:
    """Box counts on one block."""
    axes = queries.shape[1] // 2
    at, weight, cells = np.empty((axes, 4), np.int64), np.empty((4, axes, 4)), np.empty((2, axes), np.int64)
    for q in range(len(queries)):
        look_into_block(blocks, 0, queries[q], at, weight, cells)
        out[q] = count_block(number, tilt, 0, at, weight)


@njit(cache=True, nogil=True)
def cut_grid(blocks: Blocks, table: Floats, queries: Floats, uneven: Floats, cut: Floats) -> None:
    """The sums of f (1 − f) q on one block, and how many of its cells each query cuts."""
    axes = queries.shape[1] // 2
    at, weight, cells = np.empty((axes, 4), np.int64), np.empty((4, axes, 4)), np.empty((2, axes), np.int64)
    for q in range(len(queries)):
        look_into_block(blocks, 0, queries[q], at, weight, cells)
        uneven[q], cut[q] = cut_block(table, 0, at, weight, cells)


@njit(cache=True, nogil=True)
def count_boxes(tree: Marginals, queries: Floats, out: Floats) -> None:
    """Box counts, opening no node that a marginal can answer for."""
    axes = queries.shape[1] // 2
    stack, bits = np.empty((2, len(tree.link)), np.int64)
    entries, weight = np.empty((axes, 4), np.int64), np.empty((4, axes, 4))
    cells, level = np.empty((2, axes), np.int64), np.empty(0)
    flat = len(tree.tilt) == 0
    for q in range(len(queries)):
        query = queries[q]
        total = 0.0
        stack[0], bits[0] = 0, sides_inside(tree.box[0], query)
        top = 1 if bits[0] >= 0 else 0
        while top:
            top -= 1
            v, sides = stack[top], bits[top]
            if sides == 0:
                total += tree.number[v]
                continue
            a, axis, at, table = tree.link[v, 0], tree.link[v, 1], tree.link[v, 2], tree.link[v, 3]
            k = axis_of(sides) if table >= 0 else -1
            if k >= 0:
                place = table * axes + k
                total += estimate_below(tree, place, query[k + axes]) if sides >> 2 * k & 2 else tree.number[v]
                total -= estimate_below(tree, place, query[k]) if sides >> 2 * k & 1 else 0.0
            elif axis == LEAF:
                total += count_inside(tree.box[v], query, tree.number[v], level if flat else tree.tilt[v])
            elif axis == BLOCK:
                look_into_block(tree.blocks, at, query, entries, weight, cells)
                start = tree.blocks.shape[at, 2 * axes]
                total += count_block(tree.block_number, tree.block_tilt, start, entries, weight)
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
def box_errors(
    tree: Marginals, errors: Errors, queries: Floats, out: Floats, uneven_out: Floats, cut_out: Floats
) -> None:
    """The variance of least-squares answers, opening no node that a marginal can answer for.

    With A the covered fraction of a leaf and, upward, A_v = Σ V_c A_c / Σ V_c:
    Var = V_root A_root² + Σ_v [ Σ V_c A_c² − (Σ V_c A_c)² / Σ V_c ].
    A node that a query covers from a place on, not up to it, has 1 − A in place of A; its terms stay the same.
    Beside it, the sum of f (1 − f) q over leaves of which the query covers a part f, and how many those are.
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
            # depth 0 stands above the root, so that the root is met like any other node
            one = two = 0.0
            axis, table, v = tree.link[c, 1], tree.link[c, 3], errors.number[c, 0]
            if sides == 0:
                one = two = v
            elif sides > 0 and table >= 0 and sides & (sides - 1) == 0:
                k = axis_of(sides)
                up_to = sides >> 2 * k == 2
                end = query[k + axes] if up_to else query[k]
                one, two, more, leaves = errors_below(tree, errors, table * axes + k, end)
                if not up_to:
                    one, two = v - one, two - 2 * one + v
                uneven += more
                cut += leaves
            elif sides > 0 and axis == LEAF:
                part = part_inside(tree.box[c], query)
                one, two = v * part, v * part * part
                if known and 0 < part < 1:
                    uneven += part * (1 - part) * errors.number[c, 1]
                    cut += 1
            elif sides > 0 and axis == BLOCK:
                look_into_block(tree.blocks, tree.link[c, 2], query, entries, weight, cells)
                start = tree.blocks.shape[tree.link[c, 2], 2 * axes]
                one = sum_block(errors.block_variance, start, entries, weight[0])
                two = sum_block(errors.block_variance, start, entries, weight[1])
                part = one / errors.number[c, 2] if errors.number[c, 2] > 0 else 0.0
                one, two = v * part, two - one * part + v * part * part
                if known:
                    more, some = cut_block(errors.block_uneven, start, entries, weight, cells)
                    uneven += more
                    cut += some
            elif sides > 0 and axis != HOLLOW:
                depth += 1
                node[depth], child[depth], bits[depth] = c, tree.link[c, 0], sides
                last[depth] = tree.link[c, 2] if axis == FAN else tree.link[c, 0] + 2
                once[depth] = twice[depth] = 0.0
            once[depth] += one
            twice[depth] += two
            while depth > 0 and child[depth] == last[depth]:
                u = node[depth]
                part = once[depth] / errors.number[u, 2] if errors.number[u, 2] > 0 else 0.0
                one = errors.number[u, 0] * part
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
        out[q], uneven_out[q], cut_out[q] = max(twice[0], 0.0), max(uneven, 0.0), cut

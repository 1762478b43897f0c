"""Cumulative counts of a tree's nodes along each axis, for box counts on trees that are no grids."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from veilmap.kernels.halves import BLOCK, FAN, FEWEST, Halved, add_children, add_groups, find_grid, halve

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MANY = 1 << 19  # nodes of a tree that keeps fewer marginals


class Blocks(NamedTuple):
    """Nodes whose children are leaves on a grid: a summed-area table each, as of a small regular tree."""

    shape: Ints  # of each block: cells along each axis, where its edges start along each axis, where its table starts
    edge: Floats
    estimate: Floats  # tables, one longer than the block along each axis
    variance: Floats


class Marginals(NamedTuple):
    """All that answers boxes on one tree.

    Of some nodes, and for each axis, it holds three curves along that axis: what a query takes from the node when it
    covers it below a place, and all of it along the other axes. With A and V as in :func:`box_variances` these are
    the estimate, V·A (both linear between knots, the edges of leaves), and V·A² plus the terms of all nodes below
    (between knots a parabola: the chord, less ``bend`` times the distances from both knots).
    """

    link: Ints  # of each node: first child; axis and at as in Halved, for a FAN its last child + 1; table or -1
    number: Floats  # of each node: estimate, V, the sum of its children's V
    box: Floats
    blocks: Blocks
    start: Ints  # (tables * axes, 2): where the knots of a table along an axis start, and how many there are
    knot: Floats
    estimate: Floats  # at each knot
    spread: Floats  # at each knot: V·A, V·A² and more, bend up to the next knot
    levels: int


# Blocks


@njit(cache=True, nogil=True)
def shape_blocks(tree: Halved, first_child: Ints, lo: Ints, hi: Ints, shape: Ints) -> tuple[int, int]:
    """Fill the shapes of all blocks; how many edges and how many entries of tables they have."""
    axes = lo.shape[1]
    edges = entries = 0
    for v in np.flatnonzero(tree.axis == BLOCK):
        mine, u = shape[tree.at[v]], tree.origin[v]
        find_grid(first_child[u], first_child[u + 1], lo, hi, mine)
        mine[2 * axes] = entries
        size = 1
        for k in range(axes):
            mine[axes + k] = edges
            edges += mine[k] + 1
            size *= mine[k] + 1
        entries += size
    return edges, entries


@njit(cache=True, nogil=True)
def fill_blocks(
    tree: Halved, first_child: Ints, lo: Ints, hi: Ints, values: Floats, blocks: Blocks, out: Floats
) -> None:
    """Edges of all blocks, and their summed-area tables of these values, which begin as zeros."""
    axes = lo.shape[1]
    for v in np.flatnonzero(tree.axis == BLOCK):
        mine, a, b = blocks.shape[tree.at[v]], first_child[tree.origin[v]], first_child[tree.origin[v] + 1]
        for i in range(b - a):
            place, rest, stride = mine[2 * axes], i, 1
            for k in range(axes - 1, -1, -1):
                j = rest % mine[k]
                blocks.edge[mine[axes + k] + j] = lo[a + i, k]
                blocks.edge[mine[axes + k] + j + 1] = hi[a + i, k]
                place += (j + 1) * stride
                rest //= mine[k]
                stride *= mine[k] + 1
            out[place] = values[a + i]
        size = stride
        stride = 1
        for k in range(axes - 1, -1, -1):
            for i in range(size):
                if i // stride % (mine[k] + 1):
                    out[mine[2 * axes] + i] += out[mine[2 * axes] + i - stride]
            stride *= mine[k] + 1


def make_blocks(tree: Halved, first_child: Ints, lo: Ints, hi: Ints, estimate: Floats, variance: Floats) -> Blocks:
    shape = np.empty((np.count_nonzero(tree.axis == BLOCK), 2 * lo.shape[1] + 1), np.int64)
    edges, entries = shape_blocks(tree, first_child, lo, hi, shape)
    blocks = Blocks(shape, np.empty(edges), np.zeros(entries), np.zeros(entries))
    fill_blocks(tree, first_child, lo, hi, estimate, blocks, blocks.estimate)
    fill_blocks(tree, first_child, lo, hi, variance, blocks, blocks.variance)
    return blocks


@njit(cache=True, nogil=True)
def curve_block(blocks: Blocks, b: int, k: int, knot: Floats, curve: Floats) -> int:
    """The curves of a block's children along axis k; how many knots they have."""
    axes = blocks.shape.shape[1] // 2
    mine = blocks.shape[b]
    place, stride, step = mine[2 * axes], 1, 1
    for j in range(axes - 1, -1, -1):
        if j == k:
            step = stride
        else:
            place += mine[j] * stride
        stride *= mine[j] + 1
    count = mine[k] + 1
    for i in range(count):
        knot[i] = blocks.edge[mine[axes + k] + i]
        curve[i, 0] = blocks.estimate[place + i * step]
        curve[i, 1] = curve[i, 2] = blocks.variance[place + i * step]
        curve[i, 3] = 0.0
        if i:
            width = knot[i] - knot[i - 1]
            curve[i - 1, 3] = (curve[i, 1] - curve[i - 1, 1]) / (width * width)
    return int(count)


# Marginals


@njit(cache=True, nogil=True)
def choose_tables(tree: Halved, first_child: Ints, shrink: float, table: Ints) -> tuple[int, int, int]:
    """The table of each node, -1 for none; how many tables, how many knots they may have along an axis, and leaves.

    A table is worth its memory when it has clearly fewer leaves than the one above it. A node with children left
    out below it gets none: what those hold counts where their parent is inside a query, which no curve can say.
    """
    size = len(table)
    leaves, whole = np.empty(size, np.int64), tree.whole.copy()
    for v in range(size - 1, -1, -1):
        a, b = tree.first[v], tree.last[v]
        leaves[v] = leaves[a:b].sum()
        if a == b:
            leaves[v] = max(1, first_child[tree.origin[v] + 1] - first_child[tree.origin[v]])
        for c in range(a, b):
            whole[v] = whole[v] and whole[c]
    tables = knots = 0
    most = np.full(size, np.inf)  # leaves that a table at this node may have
    for v in range(size):
        table[v] = -1
        if whole[v] and FEWEST <= leaves[v] <= most[v]:
            table[v] = tables
            most[v] = shrink * leaves[v]
            tables += 1
            knots += 2 * leaves[v]
        most[tree.first[v] : tree.last[v]] = most[v]
    return tables, knots, leaves[0]


@njit(cache=True, nogil=True)
def find_levels(tree: Halved) -> Ints:
    """Where each level of a tree starts, and where the last one ends."""
    starts = [0, 1]
    while starts[-1] < len(tree.first):
        starts.append(tree.last[starts[-1] - 1])
    return np.array(starts)


@njit(cache=True, nogil=True)
def add_curves(knot: Floats, curve: Floats, span: Ints, here: Ints, new_knot: Floats, new_curve: Floats) -> int:
    """The sum of curves, at all their knots; how many those are.

    Curve c is ``span[c, 0] : span[c, 1]``: three heights at each knot and the bend up to the next. Below its first
    knot it is zero, above its last one constant. ``here`` is room for the last knot reached of each.
    """
    count, x = 0, np.inf
    for c in range(len(span)):
        here[c] = span[c, 0] - 1
        x = min(x, knot[span[c, 0]])
    while x < np.inf:
        f, w, s, bend, following = 0.0, 0.0, 0.0, 0.0, np.inf
        for c in range(len(span)):
            i, last = here[c], span[c, 1] - 1
            if i < last and knot[i + 1] == x:
                i += 1
                here[c] = i
            if i >= span[c, 0]:
                f += curve[i, 0]
                w += curve[i, 1]
                s += curve[i, 2]
                bend += curve[i, 3]
                past = x - knot[i]
                if past > 0 and i < last:
                    ahead = knot[i + 1] - x
                    t = past / (past + ahead)
                    f += t * (curve[i + 1, 0] - curve[i, 0])
                    w += t * (curve[i + 1, 1] - curve[i, 1])
                    s += t * (curve[i + 1, 2] - curve[i, 2]) - curve[i, 3] * past * ahead
            if i < last:
                following = min(following, knot[i + 1])
        new_knot[count] = x
        new_curve[count, 0], new_curve[count, 1], new_curve[count, 2], new_curve[count, 3] = f, w, s, bend
        count += 1
        x = following
    return count


@njit(cache=True, nogil=True)
def measure_curve(knot: Floats, curve: Floats, variance: float, below: float) -> None:
    """In place: from the sum of the children's curves to that of a node whose own count was measured.

    A = Σ V_c A_c / Σ V_c turns Σ V_c A_c into V·A, and V_c A_c² and more into itself + (V − Σ V_c)·A².
    """
    scale = 1 / below if below > 0 else 0.0
    for i in range(len(knot)):
        a = curve[i, 1] * scale
        if i + 1 < len(knot):
            slope = (curve[i + 1, 1] * scale - a) / (knot[i + 1] - knot[i])
            curve[i, 3] += (variance - below) * slope * slope
        curve[i, 1] = variance * a
        curve[i, 2] += (variance - below) * a * a


@njit(cache=True, nogil=True)
def sweep_axis(
    tree: Halved,
    blocks: Blocks,
    number: Floats,
    table: Ints,
    k: int,
    room: int,
    start: Ints,
    knots: Floats,
    estimate: Floats,
    spread: Floats,
) -> int:
    """The curves of all tables along axis k, from the lowest level up; how many knots they have."""
    used = 0
    levels, axes = find_levels(tree), tree.box.shape[1] // 2
    knot, curve = np.empty((2, room)), np.empty((2, room, 4))  # of this level and the one below, in turns
    span, here = np.empty((len(table), 2), np.int64), np.empty(len(table), np.int64)
    for level in range(len(levels) - 2, -1, -1):
        new, old, end = level & 1, 1 - (level & 1), 0
        for v in range(levels[level], levels[level + 1]):
            a, b = tree.first[v], tree.last[v]
            my_knot, my_curve = knot[new, end:], curve[new, end:]
            if tree.axis[v] == BLOCK:
                count = curve_block(blocks, tree.at[v], k, my_knot, my_curve)
            elif a == b:
                count = 2
                lo, hi = tree.box[v, 2 * k], tree.box[v, 2 * k + 1]
                my_knot[0], my_knot[1] = lo, hi
                for j in range(3):
                    my_curve[0, j], my_curve[1, j] = 0.0, number[v, min(j, 1)]
                my_curve[0, 3], my_curve[1, 3] = number[v, 1] / ((hi - lo) * (hi - lo)), 0.0
            else:
                count = add_curves(knot[old], curve[old], span[a:b], here, my_knot, my_curve)
            if (a < b or tree.axis[v] == BLOCK) and number[v, 1] != number[v, 2]:
                measure_curve(my_knot[:count], my_curve[:count], number[v, 1], number[v, 2])
            span[v, 0], span[v, 1] = end, end + count
            end += count
            if table[v] >= 0:
                start[table[v] * axes + k, 0], start[table[v] * axes + k, 1] = used, count
                for i in range(count):
                    knots[used + i], estimate[used + i] = my_knot[i], my_curve[i, 0]
                    for j in range(3):
                        spread[used + i, j] = my_curve[i, 1 + j]
                used += count
    return used


@njit(cache=True, nogil=True)
def order_by_descent(tree: Halved, order: Ints, rank: Ints) -> None:
    """Nodes in the order in which they are met: siblings, then all below the last of them, and so on to the first.

    ``rank`` is where each node stands in it. What a query opens then lies close together in memory.
    """
    stack = np.empty(len(order), np.int64)
    stack[0] = order[0] = rank[0] = 0
    top = placed = 1
    while top:
        top -= 1
        v = stack[top]
        for c in range(tree.first[v], tree.last[v]):
            order[placed], rank[c], stack[top] = c, placed, c
            placed += 1
            top += 1


def add_up(first_child: Ints, lo: Ints, hi: Ints, estimate: Floats, variance: Floats) -> Marginals:
    """Marginals of a tree whose estimates add up: every inner node has the sum of its children's."""
    tree, axes = halve(first_child, lo, hi, (estimate != 0) | (variance != 0)), lo.shape[1]
    blocks, size = make_blocks(tree, first_child, lo, hi, estimate, variance), len(tree.first)
    number, table = np.empty((3, size)), np.empty(size, np.int64)
    add_groups(tree, estimate, number[0])
    add_groups(tree, variance, number[1])
    add_children(tree, first_child, variance, number[2])
    number = np.ascontiguousarray(number.T)
    tables, most, leaves = choose_tables(tree, first_child, 0.75 if size <= MANY else 0.3, table)
    start, curves = np.empty((tables * axes, 2), np.int64), list[list[Floats]]()
    for k in range(axes):
        room = np.empty(most), np.empty(most), np.empty((most, 3))  # more than is needed, so what is used is copied
        used = sweep_axis(tree, blocks, number, table, k, 2 * leaves, start, *room)
        start[k::axes, 0] += sum(len(knots) for knots, _, _ in curves)
        curves.append([array[:used].copy() for array in room])
    order, rank = np.empty((2, size), np.int64)
    order_by_descent(tree, order, rank)
    first = rank[np.minimum(tree.first, size - 1)]
    link = np.stack(
        [first, tree.axis, np.where(tree.axis == FAN, first + tree.last - tree.first, tree.at), table], axis=1
    )
    knot, below, spread = (np.concatenate(parts) for parts in zip(*curves, strict=True))
    levels = len(find_levels(tree)) - 1
    return Marginals(link[order], number[order], tree.box[order], blocks, start, knot, below, spread, levels)

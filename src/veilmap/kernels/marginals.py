"""Cumulative counts of a tree's nodes along each axis, for box counts on trees that are no grids."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from veilmap.arrays import Flags, Floats, Ints
from veilmap.kernels.grid_shape import grid_shape
from veilmap.kernels.sibling_index import BLOCK, FAN, FEWEST, Halved, add_children, add_groups, halve

MANY = 1 << 19  # nodes of a tree that keeps fewer marginals


class Blocks(NamedTuple):
    """Nodes whose children are leaves on a grid; of their numbers there are summed-area tables, one after another."""

    shape: Ints  # of each block: cells along each axis, where its edges start along each axis, where its tables start
    edge: Floats


class Grouped(NamedTuple):
    """What all tables of one tree have in common."""

    tree: Halved
    first_child: Ints
    blocks: Blocks
    table: Ints  # of each node, -1 for none
    tables: int
    room: tuple[int, int]  # knots that all tables may have along an axis, and those of one level
    order: Ints  # of nodes in Marginals and Errors


class Marginals(NamedTuple):
    """All that answers boxes on one tree.

    Of some nodes, and for each axis, it holds a curve along that axis: what a query takes from the node when it covers
    it below a place, and all of it along the other axes. Between knots, the edges of leaves, it is a line, or where
    leaves have slopes a parabola: the chord, less ``bend`` times the distances from both knots.
    """

    link: Ints  # of each node: first child; axis and at as in Halved, for a FAN its last child + 1; table or -1
    number: Floats  # the estimate of each node
    tilt: Floats  # half the slopes of each node; without rows where leaves are flat, as the other two of them
    box: Floats
    blocks: Blocks
    block_number: Floats  # tables of estimates
    block_tilt: Floats  # (axes, entries): tables of half the slopes
    start: Ints  # (tables * axes, 2): where the knots of a table along an axis start, and how many there are
    knot: Floats
    estimate: Floats  # at each knot
    bend: Floats  # from each knot to the next
    levels: int


class Errors(NamedTuple):
    """All that tells the errors of answers, beside :class:`Marginals`.

    With A and V as in :func:`box_errors` and f the covered part of a leaf, its curves are V·A (a line between knots);
    V·A² plus the terms of all nodes below, and the sum of f (1 − f) q over leaves, q their unevenness (parabolas);
    and how many leaves are cut (the same between two knots, and another number on a knot).
    """

    number: Floats  # of each node: V, unevenness, the sum of its children's V
    block_variance: Floats
    block_uneven: Floats  # empty when unevenness is not known
    spread: Floats  # at each knot: V·A, V·A² and more, its bend up to the next knot
    uneven: Floats  # at each knot: the sum, its bend, leaves cut on the knot, and after it; empty when not known


# Blocks


@njit(cache=True, nogil=True)
def shape_blocks(tree: Halved, first_child: Ints, lo: Ints, hi: Ints, shape: Ints) -> tuple[int, int]:
    """Fill the shapes of all blocks; how many edges and how many entries of tables they have."""
    axes = lo.shape[1]
    edges = entries = 0
    for v in np.flatnonzero(tree.axis == BLOCK):
        mine, u = shape[tree.at[v]], tree.origin[v]
        grid_shape(first_child[u], first_child[u + 1], lo, mine)
        mine[2 * axes] = entries
        size = 1
        for k in range(axes):
            mine[axes + k] = edges
            edges += mine[k] + 1
            size *= mine[k] + 1
        entries += size
    return edges, entries


@njit(cache=True, nogil=True)
def place_edges(tree: Halved, first_child: Ints, lo: Ints, hi: Ints, blocks: Blocks) -> None:
    axes = lo.shape[1]
    for v in np.flatnonzero(tree.axis == BLOCK):
        mine, a, stride = blocks.shape[tree.at[v]], first_child[tree.origin[v]], 1
        for k in range(axes - 1, -1, -1):
            edge = blocks.edge[mine[axes + k] :]
            edge[0] = lo[a, k]
            for i in range(mine[k]):
                edge[i + 1] = hi[a + i * stride, k]
            stride *= mine[k]


@njit(cache=True, nogil=True)
def fill_blocks(tree: Halved, first_child: Ints, blocks: Blocks, values: Floats, out: Floats) -> None:
    """Summed-area tables of these values, which begin as zeros."""
    axes = blocks.shape.shape[1] // 2
    for v in np.flatnonzero(tree.axis == BLOCK):
        mine, a, b = blocks.shape[tree.at[v]], first_child[tree.origin[v]], first_child[tree.origin[v] + 1]
        for i in range(b - a):
            place, rest, stride = mine[2 * axes], i, 1
            for k in range(axes - 1, -1, -1):
                place += (rest % mine[k] + 1) * stride
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


def find_blocks(tree: Halved, first_child: Ints, lo: Ints, hi: Ints) -> Blocks:
    shape = np.empty((np.count_nonzero(tree.axis == BLOCK), 2 * lo.shape[1] + 1), np.int64)
    edges, _ = shape_blocks(tree, first_child, lo, hi, shape)
    blocks = Blocks(shape, np.empty(edges))
    place_edges(tree, first_child, lo, hi, blocks)
    return blocks


def block_table(grouped: Grouped, values: Floats) -> Floats:
    """The tables of all blocks, one after another."""
    axes = grouped.tree.box.shape[1] // 2
    out = np.zeros(int(np.prod(grouped.blocks.shape[:, :axes] + 1, axis=1).sum()))
    fill_blocks(grouped.tree, grouped.first_child, grouped.blocks, values, out)
    return out


# Curves

LINE, PARABOLA, STEP, AFTER = range(4)
ESTIMATE = np.array([PARABOLA, AFTER])
SPREAD = np.array([LINE, PARABOLA, AFTER])
UNEVEN = np.array([*SPREAD, PARABOLA, AFTER, STEP, AFTER])
"""Columns of curves. AFTER a knot, up to the next one, holds what the column before needs there: the bend of a
parabola, or the value of a step, which on the knot itself has another one."""


@njit(cache=True, nogil=True)
def lay_leaves(
    kinds: Ints, one: float, two: float, leaves: float, i: int, end: float, knot: Floats, curve: Floats
) -> None:
    """Go on with curves from knot i to the ``end`` of leaves that lie side by side.

    ``one`` and ``two`` are what they have together: estimate and half the slope, or V and unevenness.
    """
    knot[i + 1] = end
    squared = (end - knot[i]) * (end - knot[i])
    curve[i + 1, :] = 0.0
    if len(kinds) == 2:
        curve[i, 1] = two / squared
        curve[i + 1, 0] = curve[i, 0] + one
    else:
        curve[i, 2] = one / squared
        curve[i + 1, 0] = curve[i + 1, 1] = curve[i, 0] + one
    if len(kinds) > 3:
        curve[i, 4] = -two / squared
        curve[i, 6] = leaves


@njit(cache=True, nogil=True)
def curve_block(
    blocks: Blocks, b: int, k: int, kinds: Ints, one: Floats, two: Floats, knot: Floats, curve: Floats
) -> int:
    """The curves of a block's children along axis k, from its tables of two numbers; how many knots they have."""
    axes = blocks.shape.shape[1] // 2
    mine = blocks.shape[b]
    place, stride, step, leaves = mine[2 * axes], 1, 1, 1
    for j in range(axes - 1, -1, -1):
        if j == k:
            step = stride
        else:
            place += mine[j] * stride
            leaves *= mine[j]
        stride *= mine[j] + 1
    edge = blocks.edge[mine[axes + k] :]
    knot[0], curve[0, :] = edge[0], 0.0
    for i in range(mine[k]):
        here, there = place + i * step, place + (i + 1) * step
        twos = two[there] - two[here] if len(two) else 0.0
        lay_leaves(kinds, one[there] - one[here], twos, leaves, i, edge[i + 1], knot, curve)
    return int(mine[k]) + 1


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
def add_curves(
    kinds: Ints, knot: Floats, curve: Floats, span: Ints, here: Ints, new_knot: Floats, new_curve: Floats
) -> int:
    """The sum of curves, at all their knots; how many those are.

    Curve c is ``span[c, 0] : span[c, 1]``. Below its first knot it is zero, above its last one constant. ``here`` is
    room for the last knot reached of each.
    """
    count, x = 0, np.inf
    for c in range(len(span)):
        here[c] = span[c, 0] - 1
        x = min(x, knot[span[c, 0]])
    while x < np.inf:
        following = np.inf
        new_knot[count], new_curve[count, :] = x, 0.0
        for c in range(len(span)):
            i, last = here[c], span[c, 1] - 1
            if i < last and knot[i + 1] == x:
                i += 1
                here[c] = i
            past = x - knot[i] if i >= span[c, 0] else -1.0
            if past == 0 or (past > 0 and i == last):
                for j in range(len(kinds)):
                    new_curve[count, j] += curve[i, j]
            elif past > 0:
                ahead = knot[i + 1] - x
                t = past / (past + ahead)
                for j in range(len(kinds)):
                    y = curve[i, j]
                    if kinds[j] == STEP:
                        y = curve[i, j + 1]
                    elif kinds[j] != AFTER:
                        y += t * (curve[i + 1, j] - y)
                    if kinds[j] == PARABOLA:
                        y -= curve[i, j + 1] * past * ahead
                    new_curve[count, j] += y
            if i < last:
                following = min(following, knot[i + 1])
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
        a = curve[i, 0] * scale
        if i + 1 < len(knot):
            slope = (curve[i + 1, 0] * scale - a) / (knot[i + 1] - knot[i])
            curve[i, 2] += (variance - below) * slope * slope
        curve[i, 0] = variance * a
        curve[i, 1] += (variance - below) * a * a


@njit(cache=True, nogil=True)
def sweep_axis(
    tree: Halved,
    blocks: Blocks,
    kinds: Ints,
    number: Floats,
    one: Floats,
    two: Floats,
    table: Ints,
    k: int,
    room: int,
    start: Ints,
    knots: Floats,
    curves: Floats,
) -> int:
    """The curves of all tables along axis k, from the lowest level up; how many knots they have.

    ``number`` has two columns for each node as in :func:`lay_leaves`, of which blocks have the tables ``one`` and
    ``two``, and for V a third one with the sum of its children's.
    """
    used = 0
    levels, axes = find_levels(tree), tree.box.shape[1] // 2
    knot, curve = np.empty((2, room)), np.empty((2, room, len(kinds)))  # of this level and the one below, in turns
    span, here = np.empty((len(table), 2), np.int64), np.empty(len(table), np.int64)
    for level in range(len(levels) - 2, -1, -1):
        new, old, end = level & 1, 1 - (level & 1), 0
        for v in range(levels[level], levels[level + 1]):
            a, b = tree.first[v], tree.last[v]
            my_knot, my_curve = knot[new, end:], curve[new, end:]
            if tree.axis[v] == BLOCK:
                count = curve_block(blocks, tree.at[v], k, kinds, one, two, my_knot, my_curve)
            elif a == b:
                count = 2
                my_knot[0], my_curve[0, :] = tree.box[v, 2 * k], 0.0
                lay_leaves(kinds, number[v, 0], number[v, 1], 1.0, 0, tree.box[v, 2 * k + 1], my_knot, my_curve)
            else:
                count = add_curves(kinds, knot[old], curve[old], span[a:b], here, my_knot, my_curve)
            inner = a < b or tree.axis[v] == BLOCK
            if len(kinds) > 2 and inner and number[v, 0] != number[v, 2]:
                measure_curve(my_knot[:count], my_curve[:count], number[v, 0], number[v, 2])
            span[v, 0], span[v, 1] = end, end + count
            end += count
            if table[v] >= 0:
                start[table[v] * axes + k, 0], start[table[v] * axes + k, 1] = used, count
                for i in range(count):
                    knots[used + i] = my_knot[i]
                    for j in range(len(kinds)):
                        curves[used + i, j] = my_curve[i, j]
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


# All of it


def group(first_child: Ints, lo: Ints, hi: Ints, carries: Flags) -> Grouped:
    """What the tables of a tree will look like. ``carries``: nodes that have an estimate or a variance."""
    tree = halve(first_child, lo, hi, carries)
    size = len(tree.first)
    table, (order, rank) = np.empty(size, np.int64), np.empty((2, size), np.int64)
    tables, most, leaves = choose_tables(tree, first_child, 0.75 if size <= MANY else 0.3, table)
    order_by_descent(tree, order, rank)
    blocks = find_blocks(tree, first_child, lo, hi)
    return Grouped(tree, first_child, blocks, table, tables, (most, 2 * leaves), order)


def sweep(
    grouped: Grouped, kinds: Ints, numbers: list[Floats], ones: Floats, twos: list[Floats]
) -> tuple[Ints, Floats, Floats]:
    """Where tables start, knots and curves of all of them, axis after axis, each axis with its own second number."""
    (most, room), parts = grouped.room, list[tuple[Floats, Floats]]()
    start = np.empty((grouped.tables * len(numbers), 2), np.int64)
    for k, (number, two) in enumerate(zip(numbers, twos, strict=True)):
        knots, curves = np.empty(most), np.empty((most, len(kinds)))  # more than is needed: what is used is copied
        used = sweep_axis(
            grouped.tree, grouped.blocks, kinds, number, ones, two, grouped.table, k, room, start, knots, curves
        )
        start[k :: len(numbers), 0] += sum(len(before) for before, _ in parts)
        parts.append((knots[:used].copy(), curves[:used].copy()))
    return start, np.concatenate([knots for knots, _ in parts]), np.concatenate([curves for _, curves in parts])


def add_up(grouped: Grouped, estimate: Floats, slope: Floats | None = None) -> Marginals:
    """Marginals of a tree whose estimates add up: every inner node has the sum of its children's."""
    tree, order = grouped.tree, grouped.order
    size, axes = len(tree.first), tree.box.shape[1] // 2
    number, tilt, block_number = np.empty(size), np.empty((0, axes)), block_table(grouped, estimate)
    add_groups(tree, estimate, number)
    block_tilt = np.empty((0, 0))
    if slope is not None:
        tilt = np.where(tree.origin[:, None] >= 0, slope[tree.origin] / 2, 0.0)
        block_tilt = np.stack([block_table(grouped, slope[:, k] / 2) for k in range(axes)])
    flat = slope is None
    columns = [np.stack([number, np.zeros(size) if flat else tilt[:, k]], axis=1) for k in range(axes)]
    twos = [np.empty(0) if flat else block_tilt[k] for k in range(axes)]
    start, knot, curves = sweep(grouped, ESTIMATE, columns, block_number, twos)
    rank = np.empty(size, np.int64)
    rank[order] = np.arange(size)
    first = rank[np.minimum(tree.first, size - 1)]
    link = np.stack(
        [first, tree.axis, np.where(tree.axis == FAN, first + tree.last - tree.first, tree.at), grouped.table], axis=1
    )
    return Marginals(
        link[order],
        number[order],
        tilt if flat else tilt[order],
        tree.box[order],
        grouped.blocks,
        block_number,
        block_tilt,
        start,
        knot,
        curves[:, 0].copy(),
        np.empty(0) if flat else curves[:, 1].copy(),
        len(find_levels(tree)) - 1,
    )


def add_errors(grouped: Grouped, variance: Floats, unevenness: Floats | None = None) -> Errors:
    """What the errors of answers are made of: V, and the unevenness of leaves."""
    tree, axes, known = grouped.tree, grouped.tree.box.shape[1] // 2, unevenness is not None
    number = np.zeros((3, len(tree.first)))
    add_groups(tree, variance, number[0])
    add_children(tree, grouped.first_child, variance, number[2])
    block_uneven = np.empty(0)
    if unevenness is not None:
        number[1] = np.where(tree.origin >= 0, unevenness[tree.origin], 0.0)
        block_uneven = block_table(grouped, unevenness)
    columns, block_variance = np.ascontiguousarray(number.T), block_table(grouped, variance)
    *_, curves = sweep(grouped, UNEVEN if known else SPREAD, [columns] * axes, block_variance, [block_uneven] * axes)
    return Errors(columns[grouped.order], block_variance, block_uneven, curves[:, :3].copy(), curves[:, 3:].copy())

"""Marginals of a tree's nodes: cumulative counts along each axis, for fast box counts on irregular trees.

A marginal of a node along axis k is a curve over x: the count of the part of the node below x on that axis. A query
that cuts a node along one axis only is answered by two lookups in the curve, without visiting the node's children.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from veilmap.arrays import Flags, Floats, Ints
from veilmap.kernels.grid_shape import grid_shape
from veilmap.kernels.sibling_index import (
    GRID_OF_LEAVES,
    MIN_LEAVES_PER_GRID,
    NO_SINGLE_CUT,
    SiblingIndex,
    add_children,
    add_groups,
    index_siblings,
)

LARGE_TREE_NODES = 1 << 19
MAX_LEAVES_RATIO = 0.75
"""A node has marginals only if it has at most this many times the leaves of the next node above that has some."""
MAX_LEAVES_RATIO_OF_LARGE_TREES = 0.3
"""The same for trees with more than LARGE_TREE_NODES nodes, to limit memory."""


class Blocks(NamedTuple):
    """Nodes whose children are leaves that form a grid. Their values are stored as summed-area tables."""

    shape: Ints  # per block: leaves along each axis, start of the edges of each axis, start of the table
    edge: Floats


class TablePlan(NamedTuple):
    """The layout that all tables of one tree share."""

    tree: SiblingIndex
    first_child: Ints
    blocks: Blocks
    table: Ints  # per node: the number of its table, -1 for none
    tables: int
    room: tuple[int, int]  # maximum number of knots per axis: of all tables, and of one level of the tree
    order: Ints  # order of nodes in Marginals and ErrorMarginals


class Marginals(NamedTuple):
    """The tables that answer box counts on one tree.

    For some nodes it holds one curve per axis: the count of the part of the node below x along that axis. Knots are the
    edges of leaves. Between knots the curve is a line, or a parabola if leaves have slopes: the chord minus
    bend · (x − left knot) · (right knot − x).
    """

    link: Ints  # per node: first child; axis and at as in SiblingIndex (NO_SINGLE_CUT: last child + 1); table or -1
    node_estimate: Floats
    half_slope: Floats  # half the slopes of each node; this and the two other arrays of slopes are empty without slopes
    box: Floats
    blocks: Blocks
    block_estimate: Floats  # summed-area tables of estimates
    block_half_slope: Floats  # (axes, entries): summed-area tables of half the slopes
    start: Ints  # (tables * axes, 2): first knot of a table along an axis, and its number of knots
    knot: Floats
    estimate: Floats  # at each knot
    bend: Floats  # from each knot to the next
    levels: int


class ErrorMarginals(NamedTuple):
    """The tables that answer the errors of box counts, in addition to :class:`Marginals`.

    With A and V as in :func:`box_errors`, f the covered fraction of a leaf and q its unevenness, the curves are V·A
    (linear between knots); V·A² plus the variance terms of all nodes below (parabolas); Σ f (1 − f) q over leaves
    (parabolas); and the number of cut leaves (constant between knots, with another value on each knot).
    """

    node: Floats  # per node: V, unevenness, the sum of the children's V
    block_variance: Floats
    block_uneven: Floats  # empty if unevenness is not known
    spread: Floats  # at each knot: V·A; V·A² plus terms below; the bend of the latter up to the next knot
    uneven: (
        Floats  # at each knot: Σ f (1 − f) q; its bend; leaves cut on the knot; leaves cut after it; empty if unknown
    )


# Blocks


@njit(cache=True, nogil=True)
def shape_blocks(tree: SiblingIndex, first_child: Ints, lo: Ints, shape: Ints) -> tuple[int, int]:
    """Write the shapes of all blocks; return the numbers of their edges and of their table entries."""
    axes = lo.shape[1]
    edges = entries = 0
    for v in np.flatnonzero(tree.axis == GRID_OF_LEAVES):
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
def fill_block_edges(tree: SiblingIndex, first_child: Ints, lo: Ints, hi: Ints, blocks: Blocks) -> None:
    """Write the edges of the leaves of all blocks, axis by axis."""
    axes = lo.shape[1]
    for v in np.flatnonzero(tree.axis == GRID_OF_LEAVES):
        mine, a, stride = blocks.shape[tree.at[v]], first_child[tree.origin[v]], 1
        for k in range(axes - 1, -1, -1):
            edge = blocks.edge[mine[axes + k] :]
            edge[0] = lo[a, k]
            for i in range(mine[k]):
                edge[i + 1] = hi[a + i * stride, k]
            stride *= mine[k]


@njit(cache=True, nogil=True)
def fill_block_tables(tree: SiblingIndex, first_child: Ints, blocks: Blocks, values: Floats, out: Floats) -> None:
    """Write the summed-area tables of values for all blocks; ``out`` must be zeros at the start."""
    axes = blocks.shape.shape[1] // 2
    for v in np.flatnonzero(tree.axis == GRID_OF_LEAVES):
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


def find_blocks(tree: SiblingIndex, first_child: Ints, lo: Ints, hi: Ints) -> Blocks:
    """Return the shapes and edges of all blocks of a tree."""
    shape = np.empty((np.count_nonzero(tree.axis == GRID_OF_LEAVES), 2 * lo.shape[1] + 1), np.int64)
    edges, _ = shape_blocks(tree, first_child, lo, shape)
    blocks = Blocks(shape, np.empty(edges))
    fill_block_edges(tree, first_child, lo, hi, blocks)
    return blocks


def block_tables(plan: TablePlan, values: Floats) -> Floats:
    """Return the summed-area tables of all blocks, one after another."""
    axes = plan.tree.box.shape[1] // 2
    out = np.zeros(int(np.prod(plan.blocks.shape[:, :axes] + 1, axis=1).sum()))
    fill_block_tables(plan.tree, plan.first_child, plan.blocks, values, out)
    return out


# Curves

LINE_COLUMN = 0
PARABOLA_COLUMN = 1
STEP_COLUMN = 2  # constant between knots, with another value on each knot
AFTER_KNOT_COLUMN = (
    3  # belongs to the column before: the bend of a parabola, or the value of a step, up to the next knot
)
ESTIMATE_COLUMNS = np.array([PARABOLA_COLUMN, AFTER_KNOT_COLUMN])
SPREAD_COLUMNS = np.array([LINE_COLUMN, PARABOLA_COLUMN, AFTER_KNOT_COLUMN])
UNEVEN_COLUMNS = np.array([*SPREAD_COLUMNS, PARABOLA_COLUMN, AFTER_KNOT_COLUMN, STEP_COLUMN, AFTER_KNOT_COLUMN])
"""The kinds of the columns of a curve."""


@njit(cache=True, nogil=True)
def append_leaves(
    kinds: Ints, one: float, two: float, leaves: float, i: int, end: float, knot: Floats, curve: Floats
) -> None:
    """Extend curves from knot i to knot i + 1 at ``end``, across leaves with the same extent along the axis.

    ``one`` and ``two`` are sums over these leaves: estimate and half the slope, or V and unevenness.
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
def block_curves(
    blocks: Blocks, b: int, k: int, kinds: Ints, one: Floats, two: Floats, knot: Floats, curve: Floats
) -> int:
    """Write the curves of a block along axis k from its two summed-area tables; return the number of knots."""
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
        append_leaves(kinds, one[there] - one[here], twos, leaves, i, edge[i + 1], knot, curve)
    return int(mine[k]) + 1


# Marginals


@njit(cache=True, nogil=True)
def choose_tables(tree: SiblingIndex, first_child: Ints, shrink: float, table: Ints) -> tuple[int, int, int]:
    """Choose the nodes with tables; return the numbers of tables, of knots per axis at most, and of leaves.

    ``table`` is the number of each node's table, -1 for none. A table is worth its memory if it has at most ``shrink``
    times the leaves of the next table above it. A node below which children were left out gets none: their values
    count if their parent is inside a query, which a curve cannot express.
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
    most = np.full(size, np.inf)  # maximum number of leaves of a table at this node
    for v in range(size):
        table[v] = -1
        if whole[v] and MIN_LEAVES_PER_GRID <= leaves[v] <= most[v]:
            table[v] = tables
            most[v] = shrink * leaves[v]
            tables += 1
            knots += 2 * leaves[v]
        most[tree.first[v] : tree.last[v]] = most[v]
    return tables, knots, leaves[0]


@njit(cache=True, nogil=True)
def level_starts(tree: SiblingIndex) -> Ints:
    """Return the first node of each level, and the end of the last level."""
    starts = [0, 1]
    while starts[-1] < len(tree.first):
        starts.append(tree.last[starts[-1] - 1])
    return np.array(starts)


@njit(cache=True, nogil=True)
def sum_curves(
    kinds: Ints, knot: Floats, curve: Floats, span: Ints, here: Ints, new_knot: Floats, new_curve: Floats
) -> int:
    """Write the sum of curves at the union of their knots; return the number of knots.

    Curve c has the knots ``span[c, 0] : span[c, 1]``. It is zero below its first knot and constant above its last one.
    ``here`` is scratch memory for the last knot reached of each curve.
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
                    if kinds[j] == STEP_COLUMN:
                        y = curve[i, j + 1]
                    elif kinds[j] != AFTER_KNOT_COLUMN:
                        y += t * (curve[i + 1, j] - y)
                    if kinds[j] == PARABOLA_COLUMN:
                        y -= curve[i, j + 1] * past * ahead
                    new_curve[count, j] += y
            if i < last:
                following = min(following, knot[i + 1])
        count += 1
        x = following
    return count


@njit(cache=True, nogil=True)
def include_own_measurement(knot: Floats, curve: Floats, variance: float, below: float) -> None:
    """Turn the sum of the children's curves into the curves of a node whose own count was measured (in place).

    With A = Σ V_c A_c / Σ V_c over the children, the line Σ V_c A_c becomes V·A, and (V − Σ V_c)·A² is added to the
    parabola of V·A² and the terms below. ``variance`` is V, ``below`` is Σ V_c.
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
    tree: SiblingIndex,
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
    """Write the curves of all tables along axis k, from the lowest level up; return the number of knots.

    ``number`` has two columns per node, ``one`` and ``two`` of :func:`append_leaves`; for V, a third one is the sum of
    the children's V. ``one`` and ``two`` are the tables of blocks for the same two numbers.
    """
    used = 0
    levels, axes = level_starts(tree), tree.box.shape[1] // 2
    knot, curve = np.empty((2, room)), np.empty((2, room, len(kinds)))  # of this level and the one below, alternating
    span, here = np.empty((len(table), 2), np.int64), np.empty(len(table), np.int64)
    for level in range(len(levels) - 2, -1, -1):
        new, old, end = level & 1, 1 - (level & 1), 0
        for v in range(levels[level], levels[level + 1]):
            a, b = tree.first[v], tree.last[v]
            my_knot, my_curve = knot[new, end:], curve[new, end:]
            if tree.axis[v] == GRID_OF_LEAVES:
                count = block_curves(blocks, tree.at[v], k, kinds, one, two, my_knot, my_curve)
            elif a == b:
                count = 2
                my_knot[0], my_curve[0, :] = tree.box[v, 2 * k], 0.0
                append_leaves(kinds, number[v, 0], number[v, 1], 1.0, 0, tree.box[v, 2 * k + 1], my_knot, my_curve)
            else:
                count = sum_curves(kinds, knot[old], curve[old], span[a:b], here, my_knot, my_curve)
            inner = a < b or tree.axis[v] == GRID_OF_LEAVES
            if len(kinds) > 2 and inner and number[v, 0] != number[v, 2]:
                include_own_measurement(my_knot[:count], my_curve[:count], number[v, 0], number[v, 2])
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
def order_by_descent(tree: SiblingIndex, order: Ints, rank: Ints) -> None:
    """Write nodes in the order of a depth-first walk: siblings together, then all nodes below the last of them, etc.

    ``rank`` is the position of each node in that order. The nodes that a query visits are then close in memory.
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


# Building the tables


def plan_tables(first_child: Ints, lo: Ints, hi: Ints, carries: Flags) -> TablePlan:
    """Return the layout of a tree's tables. ``carries`` marks the nodes that have an estimate or a variance."""
    tree = index_siblings(first_child, lo, hi, carries)
    size = len(tree.first)
    table, (order, rank) = np.empty(size, np.int64), np.empty((2, size), np.int64)
    ratio = MAX_LEAVES_RATIO if size <= LARGE_TREE_NODES else MAX_LEAVES_RATIO_OF_LARGE_TREES
    tables, most, leaves = choose_tables(tree, first_child, ratio, table)
    order_by_descent(tree, order, rank)
    blocks = find_blocks(tree, first_child, lo, hi)
    return TablePlan(tree, first_child, blocks, table, tables, (most, 2 * leaves), order)


def sweep(
    plan: TablePlan, kinds: Ints, numbers: list[Floats], ones: Floats, twos: list[Floats]
) -> tuple[Ints, Floats, Floats]:
    """Return the starts of tables, their knots and their curves, axis after axis; ``twos`` has one array per axis."""
    (most, room), parts = plan.room, list[tuple[Floats, Floats]]()
    start = np.empty((plan.tables * len(numbers), 2), np.int64)
    for k, (number, two) in enumerate(zip(numbers, twos, strict=True)):
        knots, curves = np.empty(most), np.empty((most, len(kinds)))  # upper bounds: the used part is copied
        used = sweep_axis(plan.tree, plan.blocks, kinds, number, ones, two, plan.table, k, room, start, knots, curves)
        start[k :: len(numbers), 0] += sum(len(before) for before, _ in parts)
        parts.append((knots[:used].copy(), curves[:used].copy()))
    return start, np.concatenate([knots for knots, _ in parts]), np.concatenate([curves for _, curves in parts])


def build_marginals(plan: TablePlan, estimate: Floats, slope: Floats | None = None) -> Marginals:
    """Return the marginals of consistent estimates: the estimate of every inner node is the sum of its children's."""
    tree, order = plan.tree, plan.order
    size, axes = len(tree.first), tree.box.shape[1] // 2
    node_estimate, half_slope, block_estimate = np.empty(size), np.empty((0, axes)), block_tables(plan, estimate)
    add_groups(tree, estimate, node_estimate)
    block_half_slope = np.empty((0, 0))
    if slope is not None:
        half_slope = np.where(tree.origin[:, None] >= 0, slope[tree.origin] / 2, 0.0)
        block_half_slope = np.stack([block_tables(plan, slope[:, k] / 2) for k in range(axes)])
    flat = slope is None
    columns = [np.stack([node_estimate, np.zeros(size) if flat else half_slope[:, k]], axis=1) for k in range(axes)]
    twos = [np.empty(0) if flat else block_half_slope[k] for k in range(axes)]
    start, knot, curves = sweep(plan, ESTIMATE_COLUMNS, columns, block_estimate, twos)
    rank = np.empty(size, np.int64)
    rank[order] = np.arange(size)
    first = rank[np.minimum(tree.first, size - 1)]
    link = np.stack(
        [first, tree.axis, np.where(tree.axis == NO_SINGLE_CUT, first + tree.last - tree.first, tree.at), plan.table],
        axis=1,
    )
    return Marginals(
        link[order],
        node_estimate[order],
        half_slope if flat else half_slope[order],
        tree.box[order],
        plan.blocks,
        block_estimate,
        block_half_slope,
        start,
        knot,
        curves[:, 0].copy(),
        np.empty(0) if flat else curves[:, 1].copy(),
        len(level_starts(tree)) - 1,
    )


def build_error_marginals(plan: TablePlan, variance: Floats, unevenness: Floats | None = None) -> ErrorMarginals:
    """Return the marginals of errors, from the subtree variances V of nodes and the unevenness of leaves."""
    tree, axes, known = plan.tree, plan.tree.box.shape[1] // 2, unevenness is not None
    number = np.zeros((3, len(tree.first)))
    add_groups(tree, variance, number[0])
    add_children(tree, plan.first_child, variance, number[2])
    block_uneven = np.empty(0)
    if unevenness is not None:
        number[1] = np.where(tree.origin >= 0, unevenness[tree.origin], 0.0)
        block_uneven = block_tables(plan, unevenness)
    columns, block_variance = np.ascontiguousarray(number.T), block_tables(plan, variance)
    kinds = UNEVEN_COLUMNS if known else SPREAD_COLUMNS
    *_, curves = sweep(plan, kinds, [columns] * axes, block_variance, [block_uneven] * axes)
    return ErrorMarginals(columns[plan.order], block_variance, block_uneven, curves[:, :3].copy(), curves[:, 3:].copy())

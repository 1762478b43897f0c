"""Box counts on trees that are no grids: siblings grouped by cuts, and cumulative counts along each axis.

A query is a row of ``[lo of each axis, hi of each axis]`` in cells (fractions allowed), inside the domain.
While a tree is walked, the sides of the query that lie inside a node are bits of an integer: ``1 << 2k`` for the
low side of axis k, ``2 << 2k`` for the high one. A node without such a side is inside the query, and one whose
sides are all of one axis is answered from its marginal along that axis. Only the others are opened.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

LEAF, FAN, HOLLOW, BLOCK = -1, -2, -3, -4  # in place of the axis of a cut
LOW_SIDES = 0x5555
CANDIDATES = 64  # lines tried when siblings are not cut by the obvious one
FEWEST = 8  # leaves below a node with marginals: below that, opening it is as quick
MANY = 1 << 19  # nodes of a tree that keeps fewer marginals
MOST_AXES = 3  # of blocks: looking into one takes 4^axes steps


class Halved(NamedTuple):
    """A tree whose siblings were grouped, cut after cut, so that nearly every inner node has two children.

    Nodes without volume are left out: they meet no query. Groups of siblings are nodes of their own.
    """

    first: Ints  # children of node v are first[v] : last[v]
    last: Ints
    axis: Ints  # of the cut between two children, or FAN (no one cut parts them), LEAF, BLOCK, HOLLOW (all left out)
    at: Ints  # where that cut is; the number of a block
    origin: Ints  # the node of the tree, -1 for a group of siblings
    box: Floats  # (nodes, 2 * axes): lo and hi of each axis in turn
    whole: Flags  # whether no child was left out that has an estimate or a variance


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


# The tree


@njit(cache=True, nogil=True)
def has_volume(lo: Ints, hi: Ints, v: int) -> bool:
    narrowest = 1
    for k in range(lo.shape[1]):
        narrowest = min(narrowest, hi[v, k] - lo[v, k])
    return narrowest > 0


@njit(cache=True, nogil=True)
def part(member: Ints, spare: Ints, a: int, b: int, lo: Ints, k: int, at: int) -> int:
    """Move the members a : b that begin before ``at`` to the front, in order; where the others begin."""
    front, back = a, 0
    for i in range(a, b):
        if lo[member[i], k] < at:
            member[front] = member[i]
            front += 1
        else:
            spare[back] = member[i]
            back += 1
    for i in range(back):
        member[front + i] = spare[i]
    return front


@njit(cache=True, nogil=True)
def smaller_side(member: Ints, a: int, b: int, lo: Ints, hi: Ints, k: int, at: int) -> int:
    """Of the members a : b, those on the smaller side of a cut; 0 when it goes through one."""
    before = 0
    for i in range(a, b):
        if hi[member[i], k] <= at:
            before += 1
        elif lo[member[i], k] < at:
            return 0
    return min(before, b - a - before)


@njit(cache=True, nogil=True)
def find_cut(member: Ints, a: int, b: int, lo: Ints, hi: Ints) -> tuple[int, int]:
    """Axis and place of a cut that parts the members a : b; FAN when none is found.

    Siblings that were written row by row are parted by an edge of the one in the middle.
    """
    axis, at, best = FAN, 0, 0
    step = max(1, (b - a) // CANDIDATES)
    for turn in range(0, b - a, step):
        middle = a + (turn + (b - a) // 2) % (b - a)
        for k in range(lo.shape[1]):
            line = lo[member[middle], k]
            side = smaller_side(member, a, b, lo, hi, k, line)
            if side > best:
                axis, at, best = k, line, side
        if best:
            break
    return axis, at


@njit(cache=True, nogil=True)
def find_grid(a: int, b: int, lo: Ints, hi: Ints, shape: Ints) -> bool:
    """Whether the boxes a : b are a grid, written row by row; fills how many there are along each axis."""
    axes = lo.shape[1]
    stride = 1
    for k in range(axes - 1, -1, -1):
        n = 1
        while a + n * stride < b and lo[a + n * stride, k] > lo[a + (n - 1) * stride, k]:
            n += 1
        shape[k] = n
        stride *= n
    if stride != b - a:
        return False
    for i in range(b - a):
        stride = 1
        for k in range(axes - 1, -1, -1):
            place = i // stride % shape[k]
            if lo[a + i, k] != lo[a + place * stride, k] or hi[a + i, k] != hi[a + place * stride, k]:
                return False
            if place and lo[a + i, k] != hi[a + (place - 1) * stride, k]:
                return False
            stride *= shape[k]
    return True


@njit(cache=True, nogil=True)
def grow_halves(
    first_child: Ints,
    lo: Ints,
    hi: Ints,
    carries: Flags,
    first: Ints,
    last: Ints,
    axis: Ints,
    at: Ints,
    box: Floats,
    origin: Ints,
    whole: Flags,
) -> int:
    """Fill the arrays of :class:`Halved`, level by level; how many nodes."""
    size, axes = lo.shape
    member, spare = np.arange(size), np.empty(size, np.int64)
    begin, end = np.empty(len(first), np.int64), np.empty(len(first), np.int64)  # the siblings a group stands for
    begin[0], end[0], nodes, blocks = 0, 1, 1, 0
    shape = np.empty(axes, np.int64)
    v = 0
    while v < nodes:
        a, b = begin[v], end[v]
        for k in range(axes):
            box[v, 2 * k], box[v, 2 * k + 1] = lo[member[a], k], hi[member[a], k]
            for i in range(a + 1, b):
                box[v, 2 * k] = min(box[v, 2 * k], lo[member[i], k])
                box[v, 2 * k + 1] = max(box[v, 2 * k + 1], hi[member[i], k])
        origin[v], whole[v], all_full = -1, True, True
        if b - a == 1:
            origin[v] = member[a]
            a, b = first_child[origin[v]], first_child[origin[v] + 1]
            full, all_full = a, True
            for c in range(a, b):
                if has_volume(lo, hi, c):
                    member[full] = c
                    full += 1
                else:
                    whole[v], all_full = whole[v] and not carries[c], False
            b = full
        first[v], axis[v] = nodes, FAN
        if a == b:
            axis[v] = LEAF if all_full else HOLLOW
        leaves = origin[v] >= 0 and all_full and b - a >= FEWEST and first_child[a] == first_child[b]
        if leaves and axes <= MOST_AXES and find_grid(a, b, lo, hi, shape):
            axis[v], at[v] = BLOCK, blocks
            blocks += 1
            a = b
        elif b - a > 1:
            axis[v], line = find_cut(member, a, b, lo, hi)
            at[v] = line
        if axis[v] >= 0:
            middle = part(member, spare, a, b, lo, axis[v], line)
            begin[nodes], end[nodes], begin[nodes + 1], end[nodes + 1] = a, middle, middle, b
            nodes += 2
        else:
            for i in range(a, b):
                begin[nodes], end[nodes] = i, i + 1
                nodes += 1
        last[v] = nodes
        v += 1
    return nodes


def halve(first_child: Ints, lo: Ints, hi: Ints, carries: Flags) -> Halved:
    """Group the siblings of a tree by cuts. ``carries``: nodes that have an estimate or a variance."""
    most, axes = 2 * len(lo), lo.shape[1]
    first, last, axis, at, origin = np.empty((5, most), np.int64)
    box, whole = np.empty((most, 2 * axes)), np.empty(most, np.bool_)
    nodes = grow_halves(first_child, lo, hi, carries, first, last, axis, at, box, origin, whole)
    first, last, axis, at, origin = (array[:nodes].copy() for array in (first, last, axis, at, origin))
    return Halved(first, last, axis, at, origin, box[:nodes].copy(), whole[:nodes].copy())


@njit(cache=True, nogil=True)
def add_groups(tree: Halved, values: Floats, out: Floats) -> None:
    """The value of each node: its own, or that of all siblings in a group."""
    for v in range(len(out) - 1, -1, -1):
        if tree.origin[v] >= 0:
            out[v] = values[tree.origin[v]]
        else:
            out[v] = out[tree.first[v] : tree.last[v]].sum()


@njit(cache=True, nogil=True)
def add_children(tree: Halved, first_child: Ints, values: Floats, out: Floats) -> None:
    """The sum of each node's children, also of those that were left out."""
    add_groups(tree, values, out)
    for v in range(len(out)):
        u = tree.origin[v]
        if u >= 0:
            out[v] = values[first_child[u] : first_child[u + 1]].sum()


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


# Answers


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

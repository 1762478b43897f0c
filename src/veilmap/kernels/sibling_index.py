"""An index over siblings: they are grouped by cuts, so that a query visits only those that it meets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from veilmap.arrays import Flags, Floats, Ints
from veilmap.kernels.grid_shape import is_grid

# in place of the axis of a cut:
LEAF_NODE = -1
NO_SINGLE_CUT = -2  # no cut separates the children
NO_CHILDREN_LEFT = -3  # all children are empty boxes
GRID_OF_LEAVES = -4

MAX_CANDIDATE_CUTS = 64  # tried where the edge of the middle sibling separates nothing
MIN_LEAVES_PER_GRID = 8  # with fewer leaves, walking them is as fast as a table
MAX_GRID_AXES = 3  # a look-up in a table takes 4^axes steps


class SiblingIndex(NamedTuple):
    """A tree whose siblings are grouped by successive cuts, so that nearly every inner node has two children.

    Nodes without volume are left out, since they meet no query. Groups of siblings are nodes of their own.
    """

    first: Ints  # children of node v are first[v] : last[v]
    last: Ints
    axis: Ints  # of the cut between two children, or one of the constants above
    at: Ints  # where that cut is; the number of a block
    origin: Ints  # the node of the tree, -1 for a group of siblings
    box: Floats  # (nodes, 2 * axes): lo and hi of each axis in turn
    whole: Flags  # whether no child was left out that has an estimate or a variance


@njit(cache=True, nogil=True)
def has_volume(lo: Ints, hi: Ints, v: int) -> bool:
    narrowest = 1
    for k in range(lo.shape[1]):
        narrowest = min(narrowest, hi[v, k] - lo[v, k])
    return narrowest > 0


@njit(cache=True, nogil=True)
def part(member: Ints, spare: Ints, a: int, b: int, lo: Ints, k: int, at: int) -> int:
    """Move the members a : b that begin before ``at`` to the front, in order. Return where the others begin."""
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
    """Return how many of the members a : b lie on the smaller side of a cut; 0 when it goes through one."""
    before = 0
    for i in range(a, b):
        if hi[member[i], k] <= at:
            before += 1
        elif lo[member[i], k] < at:
            return 0
    return min(before, b - a - before)


@njit(cache=True, nogil=True)
def find_cut(member: Ints, a: int, b: int, lo: Ints, hi: Ints) -> tuple[int, int]:
    """Return axis and position of a cut that separates the members a : b; NO_SINGLE_CUT when none is found.

    Siblings in row-major order are separated by an edge of the one in the middle.
    """
    axis, at, best = NO_SINGLE_CUT, 0, 0
    step = max(1, (b - a) // MAX_CANDIDATE_CUTS)
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
def fill_index(
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
    """Fill the arrays of :class:`SiblingIndex`, level by level. Return the number of nodes."""
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
        first[v], axis[v] = nodes, NO_SINGLE_CUT
        if a == b:
            axis[v] = LEAF_NODE if all_full else NO_CHILDREN_LEFT
        leaves = origin[v] >= 0 and all_full and b - a >= MIN_LEAVES_PER_GRID and first_child[a] == first_child[b]
        if leaves and axes <= MAX_GRID_AXES and is_grid(a, b, lo, hi, shape):
            axis[v], at[v] = GRID_OF_LEAVES, blocks
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


def index_siblings(first_child: Ints, lo: Ints, hi: Ints, carries: Flags) -> SiblingIndex:
    """Build the index. ``carries`` flags the nodes that have an estimate or a variance."""
    most, axes = 2 * len(lo), lo.shape[1]
    first, last, axis, at, origin = np.empty((5, most), np.int64)
    box, whole = np.empty((most, 2 * axes)), np.empty(most, np.bool_)
    nodes = fill_index(first_child, lo, hi, carries, first, last, axis, at, box, origin, whole)
    first, last, axis, at, origin = (array[:nodes].copy() for array in (first, last, axis, at, origin))
    return SiblingIndex(first, last, axis, at, origin, box[:nodes].copy(), whole[:nodes].copy())


@njit(cache=True, nogil=True)
def add_groups(tree: SiblingIndex, values: Floats, out: Floats) -> None:
    """Compute the value of each node: its own, or the sum over the siblings of a group."""
    for v in range(len(out) - 1, -1, -1):
        if tree.origin[v] >= 0:
            out[v] = values[tree.origin[v]]
        else:
            out[v] = out[tree.first[v] : tree.last[v]].sum()


@njit(cache=True, nogil=True)
def add_children(tree: SiblingIndex, first_child: Ints, values: Floats, out: Floats) -> None:
    """Compute the sum over each node's children, including those that were left out."""
    add_groups(tree, values, out)
    for v in range(len(out)):
        u = tree.origin[v]
        if u >= 0:
            out[v] = values[first_child[u] : first_child[u + 1]].sum()

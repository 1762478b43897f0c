"""A tree whose siblings are grouped by cuts, so that a query finds the ones it meets without trying all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from veilmap.arrays import Flags, Floats, Ints
from veilmap.kernels.grid_shape import is_grid

LEAF, FAN, HOLLOW, BLOCK = -1, -2, -3, -4  # in place of the axis of a cut
CANDIDATES = 64  # lines tried when siblings are not cut by the obvious one
FEWEST = 8  # leaves below a node with marginals: below that, opening it is as quick
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
        if leaves and axes <= MOST_AXES and is_grid(a, b, lo, hi, shape):
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

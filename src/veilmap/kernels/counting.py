"""Find the cell of a coordinate, the part of a box that contains a row, and the number of rows per node."""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Floats, Ints, SmallInts

Places = SmallInts


@njit(cache=True, nogil=True)
def cell_of(x: float, lo: float, scale: float, last: float) -> int:
    """Return the cell of a value that is not below ``lo``. The upper end of the domain lies in the last cell."""
    return int(min((x - lo) * scale, last))


@njit(cache=True, nogil=True)
def find_cells(values: Floats, lo: float, hi: float, scale: float, bits: int, cells: Ints) -> None:
    """Set cells to min(floor((value - lo) * scale), 2^bits - 1), or -1 for a value that is NaN or outside [lo, hi]."""
    last = 2.0**bits - 1.0
    for i in range(len(values)):
        x = values[i]
        cells[i] = cell_of(x, lo, scale, last) if lo <= x <= hi else -1


@njit(cache=True, nogil=True)
def add_axis(values: Floats, lo: float, hi: float, scale: float, bits: int, parts: int, index: Places) -> None:
    """Add one coordinate's digit to each point's place in a grid, row-major; -1 marks a point that is dropped.

    The cell is that of ``find_cells``. Part k of an axis has the cells from k * 2^bits // parts on, so the part of a
    cell is ((cell + 1) * parts - 1) >> bits. There are no branches, and 32-bit numbers where these suffice, so that
    the compiler vectorises the loop.
    """
    last, times, shift, base = 2.0**bits - 1.0, np.uint64(np.uint32(parts)), np.uint64(bits), np.int32(parts)
    for i in range(len(values)):
        x = values[i]
        kept = (lo <= x) & (x <= hi) & (index[i] >= 0)
        cell = np.uint32(np.int32(min(((x if kept else lo) - lo) * scale, last)))
        part = np.int32((np.uint64(cell + np.uint32(1)) * times - np.uint64(1)) >> shift)
        index[i] = np.int32(index[i] * base + part) if kept else np.int32(-1)


@njit(cache=True, nogil=True)
def tally(index: Ints | Places, counts: Ints) -> None:
    """Add 1 to the count of each index. -1 is not counted."""
    for i in range(len(index)):
        if index[i] >= 0:
            counts[index[i]] += 1


@njit(cache=True, nogil=True)
def tally_grid(cells: tuple[Ints, ...], parts: Ints, bits: int, counts: Ints) -> None:
    """Count each row once, in its cell of a grid, row-major. Its part of an axis is that of ``add_axis``."""
    for i in range(len(cells[0])):
        index = 0
        for axis in range(len(cells)):
            index = index * parts[axis] + (((cells[axis][i] + 1) * parts[axis] - 1) >> bits)
        counts[index] += 1


@njit(cache=True, nogil=True)
def split_boxes(lo: Ints, hi: Ints, parts: Ints, low: Ints, high: Ints) -> None:
    """List the parts of boxes, row-major. Part k of an axis begins at lo + k * width // parts, where part k-1 ends."""
    axes, child = parts.shape[1], 0
    edge, k = np.empty((axes, parts.max() + 1 if len(parts) else 1), np.int64), np.zeros(axes, np.int64)
    for box in range(len(parts)):
        fanout = 1
        for axis in range(axes):
            fanout *= parts[box, axis]
            for i in range(parts[box, axis] + 1):
                edge[axis, i] = lo[box, axis] + i * (hi[box, axis] - lo[box, axis]) // max(parts[box, axis], 1)
        for _ in range(fanout):
            for axis in range(axes):
                low[child, axis], high[child, axis] = edge[axis, k[axis]], edge[axis, k[axis] + 1]
            child += 1
            for axis in range(axes - 1, -1, -1):  # advance to the next part: k counts up, last digit first
                k[axis] = (k[axis] + 1) % parts[box, axis]
                if k[axis]:
                    break


@njit(cache=True, nogil=True)
def pack_boxes(lo: Ints, hi: Ints, parts: Ints, start: Ints, boxes: Ints) -> None:
    """Pack the numbers that ``part_of`` needs of each box into one row of ``boxes``."""
    for j in range(len(boxes)):
        boxes[j, 0], boxes[j, 1] = start[j], 1
        for axis in range(parts.shape[1]):
            boxes[j, 1] *= parts[j, axis]
            boxes[j, 2 + 3 * axis] = lo[j, axis]
            boxes[j, 3 + 3 * axis] = hi[j, axis] - lo[j, axis]
            boxes[j, 4 + 3 * axis] = parts[j, axis]


@njit(cache=True, nogil=True)
def sum_children(first_child: Ints, counts: Ints, leaves_from: int) -> None:
    """Add to every node before ``leaves_from`` the counts of its children, last node first."""
    for v in range(leaves_from - 1, -1, -1):
        for c in range(first_child[v], first_child[v + 1]):
            counts[v] += counts[c]


@njit(cache=True, nogil=True)
def follow_cuts(cells: Ints, at: Ints, first: int, first_child: Ints, node: Ints) -> None:
    """Move rows of nodes v ≥ ``first`` with children to one of the two, by the cut ``at[v - first]``; in place."""
    for i in range(len(node)):
        v = node[i]
        if v >= first and first_child[v] < first_child[v + 1]:
            node[i] = first_child[v] + (cells[i] >= at[v - first])


@njit(cache=True, nogil=True, error_model="numpy")
def part_of(cells: tuple[Ints, ...], i: int, boxes: Ints, j: int) -> int:
    """Return the index of the part of box ``j`` that contains row ``i``: the first part's index, plus a digit per axis.

    A row of ``boxes`` holds the index of the box's first part, its number of parts (0 if it is not cut), and its lo,
    width and parts along each axis. Part k of an axis has the cells from k * width // parts on, so the part of a cell
    is the largest k with k * width < (cell - lo + 1) * parts. The float quotient is half a cell away from any border,
    which is more than its rounding error while width * parts is below 2^52.
    """
    index = 0
    for axis in range(len(cells)):
        lo, width, parts = boxes[j, 2 + 3 * axis], boxes[j, 3 + 3 * axis], boxes[j, 4 + 3 * axis]
        index = index * parts + int(((cells[axis][i] - lo + 1) * parts - 0.5) / width)
    return int(boxes[j, 0] + index)


@njit(cache=True, nogil=True, error_model="numpy")
def follow_parts(cells: tuple[Ints, ...], boxes: Ints, first: int, node: Ints) -> None:
    """Move rows of node ``first + j`` to the child that is their part of box ``j``, if it was cut; in place."""
    cut = boxes[:, 1] > 0  # a small copy that stays in the cache
    for i in range(len(node)):
        j = node[i] - first
        if j >= 0 and cut[j]:
            node[i] = part_of(cells, i, boxes, j)


@njit(cache=True, nogil=True, error_model="numpy")
def tally_parts(cells: tuple[Ints, ...], boxes: Ints, first: int, node: Ints, counts: Ints) -> None:
    """Count each row of node ``first + j`` once, in its part of box ``j``, if the box has parts."""
    cut = boxes[:, 1] > 0  # a small copy that stays in the cache
    for i in range(len(node)):
        j = node[i] - first
        if j >= 0 and cut[j]:
            counts[part_of(cells, i, boxes, j)] += 1

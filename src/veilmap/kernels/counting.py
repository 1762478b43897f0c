"""Which cell a coordinate falls in, and how many points fall in each node."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def cell_of(x: float, lo: float, scale: float, last: float) -> int:
    """The cell of a value that is not below ``lo``; the domain's upper end lies in the last cell."""
    return int(min((x - lo) * scale, last))


@njit(cache=True, nogil=True)
def find_cells(
    values: NDArray[np.float64], lo: float, hi: float, scale: float, bits: int, cells: NDArray[np.int64]
) -> None:
    """cell = min(floor((value - lo) * scale), 2^bits - 1); -1 for a value that is NaN or outside [lo, hi]."""
    last = 2.0**bits - 1.0
    for i in range(len(values)):
        x = values[i]
        cells[i] = cell_of(x, lo, scale, last) if lo <= x <= hi else -1


@njit(cache=True, nogil=True)
def add_axis(
    values: NDArray[np.float64],
    lo: float,
    hi: float,
    scale: float,
    bits: int,
    parts: int,
    offsets: NDArray[np.int64],
    index: NDArray[np.int64],
) -> None:
    """Add one coordinate's share to each point's node index; -1 marks a point that is dropped.

    The cell is that of ``find_cells``. Part k of an axis has the cells from k * 2^bits // parts on, so the
    part of a cell is ((cell + 1) * parts - 1) >> bits.
    """
    last = 2.0**bits - 1.0
    for i in range(len(values)):
        x = values[i]
        if lo <= x <= hi and index[i] >= 0:
            cell = cell_of(x, lo, scale, last)
            index[i] += offsets[((cell + 1) * parts - 1) >> bits]
        else:
            index[i] = -1


@njit(cache=True, nogil=True)
def tally(index: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
    """Count each index once; -1 counts nowhere."""
    for i in range(len(index)):
        if index[i] >= 0:
            counts[index[i]] += 1


@njit(cache=True, nogil=True)
def sum_children(first_child: NDArray[np.int64], counts: NDArray[np.int64], leaves_from: int) -> None:
    """Add to every node before ``leaves_from`` what its children have, last node first."""
    for v in range(leaves_from - 1, -1, -1):
        for c in range(first_child[v], first_child[v + 1]):
            counts[v] += counts[c]


@njit(cache=True, nogil=True)
def follow_cuts(
    cells: NDArray[np.int64],
    at: NDArray[np.int64],
    first: int,
    first_child: NDArray[np.int64],
    node: NDArray[np.int64],
) -> None:
    """In place: rows of a node v ≥ ``first`` that has children go to one of its two, by the cut ``at[v - first]``."""
    for i in range(len(node)):
        v = node[i]
        if v >= first and first_child[v] < first_child[v + 1]:
            node[i] = first_child[v] + (cells[i] >= at[v - first])


@njit(cache=True, nogil=True)
def part_of(
    cells: tuple[NDArray[np.int64], ...],
    i: int,
    lo: NDArray[np.int64],
    width: NDArray[np.int64],
    parts: NDArray[np.int64],
    j: int,
) -> int:
    """Which part of box ``j``, row-major, row ``i`` lies in: part k of an axis has the cells from k * width // parts on.

    So it is the largest k with k * width < (cell - lo + 1) * parts. A float guesses it, whole numbers decide.
    """
    index = 0
    for axis in range(parts.shape[1]):
        w, n = width[j, axis], parts[j, axis]
        x = (cells[axis][i] - lo[j, axis] + 1) * n
        k = min(int(float(x) / w), n - 1)
        while k * w >= x:
            k -= 1
        while (k + 1) * w < x:
            k += 1
        index = index * n + k
    return index


@njit(cache=True, nogil=True)
def follow_parts(
    cells: tuple[NDArray[np.int64], ...],
    lo: NDArray[np.int64],
    width: NDArray[np.int64],
    parts: NDArray[np.int64],
    first: int,
    first_child: NDArray[np.int64],
    node: NDArray[np.int64],
) -> None:
    """In place: rows of node ``first + j``, if it has children, go to the one whose part of the box they lie in."""
    for i in range(len(node)):
        j = node[i] - first
        if j >= 0 and first_child[j] < first_child[j + 1]:
            node[i] = first_child[j] + part_of(cells, i, lo, width, parts, j)


@njit(cache=True, nogil=True)
def tally_parts(
    cells: tuple[NDArray[np.int64], ...],
    lo: NDArray[np.int64],
    width: NDArray[np.int64],
    parts: NDArray[np.int64],
    first: int,
    start: NDArray[np.int64],
    node: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Count each row of node ``first + j``, if that has parts, once: in its part, from ``start[j]`` on."""
    for i in range(len(node)):
        j = node[i] - first
        if j >= 0 and start[j] < start[j + 1]:
            counts[start[j] + part_of(cells, i, lo, width, parts, j)] += 1

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
def follow_parts(
    cells: NDArray[np.int64],
    lo: NDArray[np.int64],
    hi: NDArray[np.int64],
    parts: NDArray[np.int64],
    first: int,
    node: NDArray[np.int64],
    index: NDArray[np.int64],
) -> None:
    """Append one axis's digit to each row's ``index``: the part of its node that its cell is in.

    Node ``first + j`` is [lo[j], hi[j]) and has ``parts[j]`` parts (0: it is left alone, as are nodes before
    ``first``); part k has the cells from lo + k * width // parts on.
    """
    for i in range(len(node)):
        j = node[i] - first
        if j < 0 or parts[j] == 0:
            continue
        a, width, n = lo[j], hi[j] - lo[j], parts[j]
        k = int(float(cells[i] - a) * n / width)
        while k > 0 and cells[i] < a + k * width // n:
            k -= 1
        while k < n - 1 and cells[i] >= a + (k + 1) * width // n:
            k += 1
        index[i] = index[i] * n + k

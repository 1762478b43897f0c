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
    """Fill in every node before ``leaves_from`` with the sum of its children, last node first."""
    for v in range(leaves_from - 1, -1, -1):
        total = np.int64(0)
        for c in range(first_child[v], first_child[v + 1]):
            total += counts[c]
        counts[v] = total


@njit(cache=True, nogil=True)
def read_points(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], x: NDArray[np.float64], y: NDArray[np.float64]
) -> None:
    """The coordinates of WKB points; NaN for whatever is not a point (or is an empty one).

    WKB: one byte of byte order, four of type (1, with flags for Z, M and SRID), then x and y.
    """
    eight = np.empty(8, np.uint8)
    as_float = eight.view(np.float64)
    for i in range(len(x)):
        x[i] = y[i] = np.nan
        start, stop = offsets[i], offsets[i + 1]
        if start < 0 or stop > len(data) or stop - start < 21 or data[start] > 1:
            continue
        little = data[start] == 1
        kind = np.uint32(0)
        for k in range(4):
            kind = (kind << np.uint32(8)) | np.uint32(data[start + (4 - k if little else 1 + k)])
        has_srid = (kind & np.uint32(0x20000000)) != 0
        if (kind & np.uint32(0x0FFFFFFF)) % np.uint32(1000) != 1:
            continue
        at = start + 5 + (4 if has_srid else 0)
        if stop - at < 16:
            continue
        for k in range(8):
            eight[k] = data[at + (k if little else 7 - k)]
        x[i] = as_float[0]
        for k in range(8):
            eight[k] = data[at + 8 + (k if little else 7 - k)]
        y[i] = as_float[0]


@njit(cache=True, nogil=True)
def cut_rows(cells: NDArray[np.int64], at: NDArray[np.int64], node: NDArray[np.int64]) -> None:
    """In place: rows of node v go to node 2v if their cell is below the cut of v, else to 2v + 1."""
    for i in range(len(node)):
        v = node[i]
        node[i] = 2 * v + (cells[i] >= at[v])


@njit(cache=True, nogil=True)
def part_rows(
    cells: NDArray[np.int64],
    lo: NDArray[np.int64],
    hi: NDArray[np.int64],
    parts: int,
    node: NDArray[np.int64],
    index: NDArray[np.int64],
) -> None:
    """Append one axis's digit to each row's ``index``: the part of its node [lo, hi) that its cell is in.

    Part k of a node has the cells from lo + k * width // parts on.
    """
    for i in range(len(node)):
        a, width = lo[node[i]], hi[node[i]] - lo[node[i]]
        k = int(float(cells[i] - a) * parts / width)
        while k > 0 and cells[i] < a + k * width // parts:
            k -= 1
        while k < parts - 1 and cells[i] >= a + (k + 1) * width // parts:
            k += 1
        index[i] = index[i] * parts + k


@njit(cache=True, nogil=True)
def blank_open_quotes(text: NDArray[np.uint8], separator: int) -> None:
    """Blank every line of separated text that ends inside a quoted field: each line stands for itself.

    A field is quoted when it begins with a quote; inside, two quotes are one and a single one closes.
    """
    quote, line_feed, carriage_return, space = 34, 10, 13, 32
    begin, at_start, quoted = 0, True, False
    i = 0
    while i <= len(text):
        here = text[i] if i < len(text) else line_feed
        if here in (line_feed, carriage_return):
            if quoted:
                text[begin:i] = space
            begin, at_start, quoted = i + 1, True, False
        elif quoted and here == quote:
            if i + 1 < len(text) and text[i + 1] == quote:
                i += 1
            else:
                quoted = False
        elif not quoted:
            quoted = at_start and here == quote
            at_start = here == separator
        i += 1

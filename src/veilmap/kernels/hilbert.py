"""The Hilbert curve through a grid of 2^order cells a side, in 2 to 8 axes with axes * order ≤ 62.

A cube of the grid has 2^axes parts, half as long a side: bit k of a part's number says which half along axis k.
The curve enters a cube at the corner ``entry`` (numbered likewise), leaves it at ``entry ^ (1 << way)``, and takes
its parts in turn along a Gray code. A key is made of a cell's turns, an ``axes``-bit digit a level, coarsest
first: keys that begin with the same digits fill a cube. The curve starts at cell 0 and ends at the far end of axis 0.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Ints


@njit(cache=True, nogil=True)
def rotate(bits: int, by: int, axes: int) -> int:
    """``axes`` bits, turned left by 0 to ``axes`` places."""
    return ((bits << by) | (bits >> (axes - by))) & ((1 << axes) - 1)


@njit(cache=True, nogil=True)
def gray(turn: int) -> int:
    """Numbers in an order in which each differs from the next in one bit."""
    return turn ^ (turn >> 1)


@njit(cache=True, nogil=True)
def enter(turn: int, axes: int) -> tuple[int, int]:
    """The ``entry`` and ``way`` of the part that has this turn, in a cube with entry 0 and way ``axes - 1``.

    Parts 2j - 1 and 2j lie side by side along the one axis where their Gray codes differ. Both are crossed along
    it, so both are entered at the same corner: the one with the number of part 2j - 2. The first and the last part
    have no such neighbour and are crossed along axis 0.
    """
    if turn == 0:
        return 0, 0
    pair = (turn - 1) & ~1
    way = 0
    while ((pair | 1) >> way) & 1:  # the Gray codes of m and m + 1 differ in the bit above m's lowest ones
        way += 1
    return gray(pair), way % axes


@njit(cache=True, nogil=True)
def turns(axes: int) -> tuple[Ints, Ints]:
    """Tables for a walk from a cube to its part.

    A cube's state is (way << axes) | entry. An entry other than 0 only mirrors the cube, so the tables have
    entry 0. Row (way << axes) | part of the first has the part's state << axes | its turn; row
    (way << axes) | turn of the second the part's state << axes | the part.
    """
    of_part = np.empty(axes << axes, np.int64)
    of_turn = np.empty(axes << axes, np.int64)
    for way in range(axes):
        for turn in range(1 << axes):
            part = rotate(gray(turn), way + 1, axes)
            entry, onward = enter(turn, axes)
            state = ((way + 1 + onward) % axes << axes) | rotate(entry, way + 1, axes)
            of_part[(way << axes) | part] = (state << axes) | turn
            of_turn[(way << axes) | turn] = (state << axes) | part
    return of_part, of_turn


@njit(cache=True, nogil=True)
def descend(of_turn: Ints, state: int, turn: int, axes: int) -> tuple[int, int]:
    """The part that has this turn in a cube of this state, and the part's own state."""
    entry = state & ((1 << axes) - 1)
    found = of_turn[(state ^ entry) | turn]
    return entry ^ (found & ((1 << axes) - 1)), entry ^ (found >> axes)


@njit(cache=True, nogil=True)
def hilbert_keys(cells: Ints, order: int, keys: Ints) -> None:
    """The key of each column of ``cells`` (axes, n)."""
    axes = len(cells)
    of_part, _ = turns(axes)
    digit = (1 << axes) - 1
    for i in range(len(keys)):
        key, state = 0, 0
        for level in range(order - 1, -1, -1):
            part = 0
            for k in range(axes):
                part |= ((cells[k, i] >> level) & 1) << k
            found = of_part[state ^ part]
            key = (key << axes) | (found & digit)
            state = (state & digit) ^ (found >> axes)
        keys[i] = key


@njit(cache=True, nogil=True)
def hilbert_cells(keys: Ints, order: int, cells: Ints) -> None:
    """The cell of each key, as a column of ``cells`` (axes, n)."""
    axes = len(cells)
    _, of_turn = turns(axes)
    digit = (1 << axes) - 1
    for i in range(len(keys)):
        cells[:, i] = 0
        state = 0
        for level in range(order - 1, -1, -1):
            part, state = descend(of_turn, state, (keys[i] >> (level * axes)) & digit, axes)
            for k in range(axes):
                cells[k, i] |= ((part >> k) & 1) << level


@njit(cache=True, nogil=True)
def widen(cell: Ints, level: int, every: int, some: int, lo: Ints, hi: Ints) -> None:
    """Widen a box to hold some parts, 2^level cells a side, of the cube at ``cell``.

    ``every`` has the bits that all these parts have, ``some`` those that any of them has.
    """
    for k in range(len(cell)):
        lo[k] = min(lo[k], cell[k] + (((every >> k) & 1) << level))
        hi[k] = max(hi[k], cell[k] + ((((some >> k) & 1) + 1) << level))


@njit(cache=True, nogil=True)
def widen_to_end(
    of_turn: Ints, first: int, last: int, at_last: bool, order: int, cell: Ints, lo: Ints, hi: Ints
) -> None:
    """Widen a box to hold what a walk to one end of the keys ``first`` to ``last`` meets.

    On the way from the whole grid down to the first cell, the parts whose turn is later are in the range, and on
    the way to the last cell the parts whose turn is earlier; while the two ways are one, the parts between them.
    """
    axes = len(cell)
    digit = (1 << axes) - 1
    cell[:] = 0
    state, together = 0, True
    for level in range(order - 1, -1, -1):
        low, high = (first >> (level * axes)) & digit, (last >> (level * axes)) & digit
        after = low if together or not at_last else -1
        before = high if together or at_last else digit + 1
        every, some = digit, 0
        for turn in range(after + 1, before):
            part, _ = descend(of_turn, state, turn, axes)
            every &= part
            some |= part
        if after + 1 < before:
            widen(cell, level, every, some, lo, hi)
        together = together and low == high
        part, state = descend(of_turn, state, high if at_last else low, axes)
        for k in range(axes):
            cell[k] |= ((part >> k) & 1) << level
    widen(cell, 0, 0, 0, lo, hi)


@njit(cache=True, nogil=True)
def range_boxes(first: Ints, last: Ints, axes: int, order: int, lo: Ints, hi: Ints) -> None:
    """The smallest box [lo[i], hi[i]) that holds all cells with keys in [first[i], last[i]); 0 for no keys."""
    _, of_turn = turns(axes)
    cell = np.empty(axes, np.int64)
    for i in range(len(first)):
        if first[i] >= last[i]:
            lo[i], hi[i] = 0, 0
            continue
        lo[i], hi[i] = 1 << order, 0
        for at_last in (False, True):
            widen_to_end(of_turn, first[i], last[i] - 1, at_last, order, cell, lo[i], hi[i])

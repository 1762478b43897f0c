"""The Hilbert curve through a grid of 2^order cells per axis, in 2 to 8 axes with axes * order ≤ 62.

A cube of the grid has 2^axes parts of half its width. Bit k of a part's number says which half along axis k it is. The
curve enters a cube at the corner ``entry`` (numbered in the same way), leaves it at ``entry ^ (1 << way)``, and visits
its parts in the order of a Gray code: the position of a part in this order is its ``turn``. The key of a cell consists
of the turns of the parts that contain it, one ``axes``-bit digit per level, coarsest first. So keys with the same
leading digits fill a cube. The curve starts at cell 0 and ends at the far end of axis 0.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Ints


@njit(cache=True, nogil=True)
def rotate(bits: int, by: int, axes: int) -> int:
    """Rotate ``axes`` bits to the left by 0 to ``axes`` places."""
    return ((bits << by) | (bits >> (axes - by))) & ((1 << axes) - 1)


@njit(cache=True, nogil=True)
def gray(turn: int) -> int:
    """Return the Gray code of ``turn``. The codes of consecutive turns differ in one bit."""
    return turn ^ (turn >> 1)


@njit(cache=True, nogil=True)
def enter(turn: int, axes: int) -> tuple[int, int]:
    """Return the ``entry`` and ``way`` of the part with this turn, in a cube with entry 0 and way ``axes - 1``.

    The parts with turns 2j - 1 and 2j are adjacent along the axis in which their Gray codes differ. Both are crossed
    along that axis and entered at the same corner, whose number is that of the part with turn 2j - 2. The first and
    the last part have no such neighbour and are crossed along axis 0.
    """
    if turn == 0:
        return 0, 0
    pair = (turn - 1) & ~1
    way = 0
    while ((pair | 1) >> way) & 1:  # the Gray codes of m and m + 1 differ in the bit above the trailing ones of m
        way += 1
    return gray(pair), way % axes


@njit(cache=True, nogil=True)
def turns(axes: int) -> tuple[Ints, Ints]:
    """Return tables for descending from a cube to one of its parts.

    The state of a cube is (way << axes) | entry. An entry other than 0 only mirrors the cube, so the tables are for
    entry 0. The first table holds at (way << axes) | part the value (the part's state << axes) | its turn. The second
    holds at (way << axes) | turn the value (the part's state << axes) | the part.
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
    """Return the part with this turn in a cube of this state, and the state of that part."""
    entry = state & ((1 << axes) - 1)
    found = of_turn[(state ^ entry) | turn]
    return entry ^ (found & ((1 << axes) - 1)), entry ^ (found >> axes)


@njit(cache=True, nogil=True)
def hilbert_keys(cells: Ints, order: int, keys: Ints) -> None:
    """Compute the key of each column of ``cells`` (axes, n)."""
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
    """Compute the cell of each key, as a column of ``cells`` (axes, n)."""
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
def widen(cell: Ints, level: int, common: int, any_set: int, lo: Ints, hi: Ints) -> None:
    """Widen a box to contain parts, of 2^level cells per axis, of the cube at ``cell``.

    ``common`` has the bits that are set in all of these parts, ``any_set`` the bits that are set in at least one.
    """
    for k in range(len(cell)):
        lo[k] = min(lo[k], cell[k] + (((common >> k) & 1) << level))
        hi[k] = max(hi[k], cell[k] + ((((any_set >> k) & 1) + 1) << level))


@njit(cache=True, nogil=True)
def widen_to_end(
    of_turn: Ints, first: int, last: int, at_last: bool, order: int, cell: Ints, lo: Ints, hi: Ints
) -> None:
    """Widen a box to contain the cubes found on the descent to one end of the keys ``first`` to ``last``.

    On the descent from the whole grid to the first cell, the parts with later turns are in the range. On the descent
    to the last cell, the parts with earlier turns are. While both descents coincide, the parts between them are.
    """
    axes = len(cell)
    digit = (1 << axes) - 1
    cell[:] = 0
    state, together = 0, True
    for level in range(order - 1, -1, -1):
        low, high = (first >> (level * axes)) & digit, (last >> (level * axes)) & digit
        after = low if together or not at_last else -1
        before = high if together or at_last else digit + 1
        common, any_set = digit, 0
        for turn in range(after + 1, before):
            part, _ = descend(of_turn, state, turn, axes)
            common &= part
            any_set |= part
        if after + 1 < before:
            widen(cell, level, common, any_set, lo, hi)
        together = together and low == high
        part, state = descend(of_turn, state, high if at_last else low, axes)
        for k in range(axes):
            cell[k] |= ((part >> k) & 1) << level
    widen(cell, 0, 0, 0, lo, hi)


@njit(cache=True, nogil=True)
def range_boxes(first: Ints, last: Ints, axes: int, order: int, lo: Ints, hi: Ints) -> None:
    """Find the smallest box [lo[i], hi[i]) with all cells of the keys [first[i], last[i]); zeros if there are none."""
    _, of_turn = turns(axes)
    cell = np.empty(axes, np.int64)
    for i in range(len(first)):
        if first[i] >= last[i]:
            lo[i], hi[i] = 0, 0
            continue
        lo[i], hi[i] = 1 << order, 0
        for at_last in (False, True):
            widen_to_end(of_turn, first[i], last[i] - 1, at_last, order, cell, lo[i], hi[i])

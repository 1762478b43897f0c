"""How unlike the two halves of cells are, on grids of counts, at one scale after another."""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Ints


@njit(cache=True, nogil=True)
def halve_grid(grid: Ints, side: int, axes: int, signed: Ints) -> None:
    """In place: a grid of ``side`` cells an axis, row-major, becomes one of half as many, of twice their size.

    ``signed[k, c]`` is the first half less the second half of the new cell c along axis k.
    """
    half = side // 2
    offset = np.zeros(1 << axes, np.int64)  # of the parts of a new cell from its first one
    for bits in range(1 << axes):
        for k in range(axes):
            offset[bits] = offset[bits] * side + (bits >> k & 1)
    for line in range(half ** (axes - 1)):
        rest, corner, stride = line, 0, side
        for _ in range(axes - 1):
            corner += 2 * (rest % half) * stride
            rest //= half
            stride *= side
        for c in range(line * half, (line + 1) * half):
            total = 0
            for k in range(axes):
                signed[k, c] = 0
            for bits in range(1 << axes):
                part = grid[corner + offset[bits]]
                total += part
                for k in range(axes):
                    signed[k, c] += -part if bits >> k & 1 else part
            grid[c] = total  # no cell of a later c lies this far to the front
            corner += 2


@njit(cache=True, nogil=True)
def sum_runs(signed: Ints, side: int, axes: int, axis: int, run: int) -> int:
    """Σ |sum over a run|, a run being up to ``run`` cells in a row beside ``axis``; along it they would not border."""
    along = axes - 1 if axis < axes - 1 else axes - 2
    stride = side ** (axes - 1 - along) if axes > 1 else 1
    length = run if axes > 1 else 1
    total = 0
    for block in range(0, side**axes, side * stride):
        for place in range(0, side, length):
            for c in range(block + place * stride, block + (place + 1) * stride):
                one = 0
                for i in range(min(length, side - place)):
                    one += signed[c + i * stride]
                total += abs(one)
    return total


@njit(cache=True, nogil=True)
def sum_contrasts(grid: Ints, side: Ints, axes: int, run: int, out: Ints) -> None:
    """Add up the contrasts of all boxes by scale: ``out[0]`` of cells of two parts a side, ``out[1]`` of four, …

    Box j has ``side[j]`` parts an axis, a power of 2 or 0; ``grid`` has their counts, box after box, and is used up.
    """
    start = 0
    for j in range(len(side)):
        n = side[j]
        size = n**axes if n else 0
        mine = grid[start : start + size]
        signed = np.empty((axes, max(size >> axes, 1)), np.int64)
        scale = 0
        while n >= 2 and scale < len(out):
            halve_grid(mine, n, axes, signed)
            n //= 2
            for k in range(axes):
                out[scale] += sum_runs(signed[k], n, axes, k, run)
            scale += 1
        start += size

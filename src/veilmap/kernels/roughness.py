"""Roughness of grids of counts: differences between the two halves of cells, at one scale after another."""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Ints


@njit(cache=True, nogil=True)
def halve_grid(grid: Ints, side: int, axes: int, signed: Ints) -> None:
    """Replace a row-major grid of ``side`` cells per axis by the grid of cells of twice the size, in place.

    ``signed[k, c]`` becomes the count of the first half of the new cell c along axis k, minus that of the second half.
    """
    half = side // 2
    offset = np.zeros(1 << axes, np.int64)  # of each part of a new cell from its first part
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
            grid[c] = total  # parts of later cells lie further back, so nothing unread is overwritten
            corner += 2


@njit(cache=True, nogil=True)
def sum_runs(signed: Ints, side: int, axes: int, axis: int, run: int) -> int:
    """Return Σ |sum over a run|: up to ``run`` adjacent cells along an axis other than ``axis``, one cell if none."""
    along = axes - 1 if axis < axes - 1 else axes - 2
    stride = side ** (axes - 1 - along) if axes > 1 else 1
    length = run if axes > 1 else 1
    total = 0
    for block in range(0, side**axes, side * stride):
        for place in range(0, side, length):
            for c in range(block + place * stride, block + (place + 1) * stride):
                run_sum = 0
                for i in range(min(length, side - place)):
                    run_sum += signed[c + i * stride]
                total += abs(run_sum)
    return total


@njit(cache=True, nogil=True)
def sum_contrasts(grid: Ints, side: Ints, axes: int, run: int, out: Ints) -> None:
    """Add the contrasts of all boxes to ``out`` by scale: ``out[0]`` for cells of 2 parts per axis, ``out[1]`` for 4, …

    Box j has ``side[j]`` parts per axis, a power of 2 or 0. ``grid`` holds their counts, box after box, and is
    overwritten.
    """
    start = 0
    for j in range(len(side)):
        n = side[j]
        size = n**axes if n else 0
        box_grid = grid[start : start + size]
        signed = np.empty((axes, max(size >> axes, 1)), np.int64)
        scale = 0
        while n >= 2 and scale < len(out):
            halve_grid(box_grid, n, axes, signed)
            n //= 2
            for k in range(axes):
                out[scale] += sum_runs(signed[k], n, axes, k, run)
            scale += 1
        start += size

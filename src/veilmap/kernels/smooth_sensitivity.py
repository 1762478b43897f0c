"""The smooth sensitivity of the median of sorted values, in log space."""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Floats, Ints

MAX_LOG_ERROR = 1e-11  # bound on the error of the logarithm of a sensitivity


@njit(cache=True, nogil=True)
def value_of_rank(values: Ints, lo: int, hi: int, k: int) -> int:
    """Return x_k of the sorted ``values`` x_1 … x_n, with lo before them and hi after them."""
    if k < 1:
        return lo
    return hi if k > len(values) else values[k - 1]


@njit(cache=True, nogil=True)
def log_smooth(values: Ints, lo: int, hi: int, xi: float, least: float) -> float:
    """Return the largest ln(x_j − x_i) − (j − i − 1) ξ over i ≤ m ≤ j with m = ceil(n/2), and at least ``least``.

    ln(x_j − x_i) + ln(x_j' − x_i') ≥ ln(x_j' − x_i) + ln(x_j − x_i') for i < i' and j < j', so the best j does not
    decrease as i increases. Rows i are processed in ever smaller steps, each between the best j of its neighbours.
    """
    n = len(values)
    m = (n + 1) // 2
    widest = np.log(float(hi - lo))
    if xi <= 0:
        return float(max(widest, least))  # the same number for all values, to the last bit
    # Skip pairs of ranks so far apart that even the full width would score below ``least``.
    reach = n + 1
    spread = max(widest - least, 0.0)
    if xi * reach > spread:
        reach = min(reach, int(spread / xi) + 2)
    first, rows = max(m - reach, 0), min(reach, m) + 1
    best_j = np.empty(rows + 2, np.int64)
    best_j[0], best_j[rows + 1] = m, min(m + reach, n + 1)
    best = least
    step = 1
    while step <= rows:
        step *= 2
    while step >= 1:
        for row in range(step, rows + 1, 2 * step):
            i = first + row - 1
            x = value_of_rank(values, lo, hi, i)
            last = best_j[min(row + step, rows + 1)]
            row_best_j, row_best = last, -np.inf
            for j in range(best_j[row - step], last + 1):
                distance = value_of_rank(values, lo, hi, j) - x
                if distance > 0:
                    score = np.log(float(distance)) - (j - i - 1) * xi
                    if score > row_best:
                        row_best_j, row_best = j, score
            best_j[row] = row_best_j
            best = max(best, row_best)
        step //= 2
    return best


@njit(cache=True, nogil=True)
def find_smooth(
    values: Ints, start: Ints, lo: Ints, hi: Ints, xi: float, least: float, median: Ints, smooth: Floats
) -> None:
    """Find the median x_m of each box and an upper bound of its smooth sensitivity, 1 for a box below two cells."""
    for v in range(len(lo)):
        run = values[start[v] : start[v + 1]]
        median[v] = value_of_rank(run, lo[v], hi[v], (len(run) + 1) // 2)
        smooth[v] = np.exp(log_smooth(run, lo[v], hi[v], xi, least) + 2 * MAX_LOG_ERROR) if hi[v] - lo[v] > 1 else 1.0

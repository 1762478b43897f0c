"""The smooth sensitivity of the median of sorted values, in log space."""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Floats, Ints

ERROR = 1e-11  # more than the logarithm of a sensitivity may be off


@njit(cache=True, nogil=True)
def value_of_rank(values: Ints, lo: int, hi: int, k: int) -> int:
    """x_k of the sorted ``values`` x_1 … x_n, with lo before them and hi after them."""
    if k < 1:
        return lo
    return hi if k > len(values) else values[k - 1]


@njit(cache=True, nogil=True)
def log_smooth(values: Ints, lo: int, hi: int, xi: float, least: float) -> float:
    """The largest ln(x_j − x_i) − (j − i − 1) ξ over i ≤ m ≤ j with m = ceil(n/2), or ``least`` if that is larger.

    ln(x_j − x_i) + ln(x_j' − x_i') ≥ ln(x_j' − x_i) + ln(x_j − x_i') for i < i' and j < j', so the best j never
    falls as i rises. Rows i are taken at ever smaller steps, each between the best j of its two neighbours.
    """
    n = len(values)
    m = (n + 1) // 2
    widest = np.log(float(hi - lo))
    if xi <= 0:
        return float(max(widest, least))  # the same for all values, to the last bit
    # Pairs so far apart that even the whole width is below the least need no look.
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
            chosen, top = last, -np.inf
            for j in range(best_j[row - step], last + 1):
                apart = value_of_rank(values, lo, hi, j) - x
                if apart > 0:
                    score = np.log(float(apart)) - (j - i - 1) * xi
                    if score > top:
                        chosen, top = j, score
            best_j[row] = chosen
            best = max(best, top)
        step //= 2
    return best


@njit(cache=True, nogil=True)
def find_smooth(
    values: Ints, start: Ints, lo: Ints, hi: Ints, xi: float, least: float, median: Ints, smooth: Floats
) -> None:
    """Of each box: x_m, and its smooth sensitivity or a little more. A box of fewer than two cells gets 1."""
    for v in range(len(lo)):
        run = values[start[v] : start[v + 1]]
        median[v] = value_of_rank(run, lo[v], hi[v], (len(run) + 1) // 2)
        smooth[v] = np.exp(log_smooth(run, lo[v], hi[v], xi, least) + 2 * ERROR) if hi[v] - lo[v] > 1 else 1.0

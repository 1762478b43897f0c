"""Bytes of files, read as they are: points in WKB, quotes in separated text."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


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

"""Parsers of raw bytes: points in WKB, records of separated text, and the structure of JSON."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from veilmap.arrays import Floats, Ints


@njit(cache=True, nogil=True)
def read_points(data: NDArray[np.uint8], offsets: Ints, x: Floats, y: Floats) -> None:
    """Read the coordinates of WKB points; NaN for a geometry that is not a point, or is an empty point.

    WKB has one byte for the byte order, four for the type (1, with flags for Z, M and SRID), then x and y.
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
def settle_records(text: NDArray[np.uint8], separator: int, max_bytes: int, final: bool) -> int:
    """Put every record of separated text on one line, blank malformed lines, and return the end of complete records.

    A field is quoted if it begins with a quote. Inside it, two quotes stand for one, and a single quote closes it. A
    quoted field that is not closed on its line continues if the next single quote ends a field; line ends in it become
    spaces. Otherwise the quote is a stray quote, and its line is blanked. The same holds if no quote follows within
    ``max_bytes`` bytes.
    """
    quote, line_feed, carriage_return, space = 34, 10, 13, 32
    begin, at_start, quoted = 0, True, False
    i = 0
    while i < len(text):
        here = text[i]
        if here in (line_feed, carriage_return):
            if quoted:
                close = i + 1
                while close < len(text):
                    if text[close] == quote:
                        if close + 1 < len(text) and text[close + 1] == quote:
                            close += 1
                        else:
                            break
                    close += 1
                if close + 1 >= len(text) and not final and len(text) - begin <= max_bytes:
                    return begin  # more text is needed
                follows = text[close + 1] if close + 1 < len(text) else line_feed
                if close < len(text) and follows in (separator, line_feed, carriage_return):
                    for k in range(i, close):
                        if text[k] in (line_feed, carriage_return):
                            text[k] = space
                    i, quoted = close + 1, False
                    continue
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
    if not final:
        return begin
    if quoted:
        text[begin:] = space
    return len(text)


@njit(cache=True, nogil=True)
def scan_json(text: NDArray[np.uint8], state: Ints, marks: Ints, depths: Ints) -> int:
    """Find the brackets, commas and colons of the two outer levels of a JSON text, and return their number.

    ``state`` is kept from block to block: the number of open brackets, and whether a string is open (2 after a
    backslash). A bracket has the depth of what it encloses. Inside the second level only commas are marked.
    """
    quote, backslash, comma, colon = 34, 92, 44, 58
    depth, string, found = state[0], state[1], 0
    for i in range(len(text)):
        here = text[i]
        if string == 2:
            string = 1
        elif string == 1:
            if here == quote:
                string = 0
            elif here == backslash:
                string = 2
        elif here == quote:
            string = 1
        else:
            opens = here in (123, 91)
            closes = here in (125, 93)
            depth += opens
            if depth <= 2 and (opens or closes or here == comma or (here == colon and depth < 2)):
                marks[found], depths[found] = i, depth
                found += 1
            depth -= closes
    state[0], state[1] = depth, string
    return found

"""How much a Parquet file holds, before any of it is unpacked.

64 KiB can unpack to 2 GiB, and what a footer says of that binds nobody: only the headers of pages do. pyarrow does not
show them, and some of its own views of a footer end the process when that was crafted. So both are read here: they are
structs of Thrift's compact protocol.
"""

from __future__ import annotations

from typing import Any

DEEPEST = 16  # values inside values; a footer has eight
TRUTHS, BYTE, I32, I64, DOUBLE, TEXT, LISTS, STRUCT = (1, 2), 3, 5, 6, 7, 8, (9, 10), 12
BITS = {4: 16, I32: 32, I64: 64}

# Fields, with the types that a reader believes them in
ROWS, GROUPS = (3, I64), (4, 9)  # of a footer
COLUMNS, GROUP_ROWS = (1, 9), (3, I64)  # of a row group
ABOUT = (3, STRUCT)  # of a column
VALUES, PACKED, PAGES, DICTIONARY = (5, I64), (7, I64), (9, I64), (11, I64)  # of what is said about it
PAGE_UNPACKED, PAGE_PACKED = (2, I32), (3, I32)  # of a page


def must_hold_little(data: bytes, most_rows: int, bytes_a_value: int, bytes_a_column: int) -> None:
    """ValueError if a file says that it has more rows, or pages that unpack to more for each value, or says nothing."""
    try:
        footer, _ = _struct(data, len(data) - 8 - int.from_bytes(data[-8:-4], "little"), DEEPEST)
        if not 0 <= footer[ROWS] == sum(group[GROUP_ROWS] for group in footer[GROUPS]) <= most_rows:
            raise ValueError("A file has the rows of its groups, and not so many.")
        for group in footer[GROUPS]:
            for column in (column[ABOUT] for column in group[COLUMNS]):
                start = min(column[PAGES], column.get(DICTIONARY, column[PAGES]))
                size = _unpacked_size(data, start, start + column[PACKED])
                rows = group[GROUP_ROWS]
                if rows < 0 or column[VALUES] != rows or size > bytes_a_value * rows + bytes_a_column:
                    raise ValueError("A column holds more than its rows need.")
    except (IndexError, KeyError, TypeError):
        raise ValueError("A Parquet file says what it holds.") from None


def _unpacked_size(data: bytes, start: int, stop: int) -> int:
    """Bytes that the pages of a column unpack to."""
    if not 0 <= start <= stop <= len(data):
        raise ValueError("There are no such bytes.")
    total, at = 0, start
    while at < stop:
        page, at = _struct(data, at, DEEPEST)
        if page[PAGE_UNPACKED] < 0 or page[PAGE_PACKED] < 0:
            raise ValueError("A page has no such size.")
        total, at = total + page[PAGE_UNPACKED], at + page[PAGE_PACKED]
    return total


def _struct(data: bytes, at: int, deepest: int) -> tuple[dict[tuple[int, int], Any], int]:
    """The fields of a struct, by number and type; and where it ends."""
    out: dict[tuple[int, int], Any] = {}
    number = 0
    if at < 0 or deepest == 0:
        raise ValueError("There is no such struct.")
    while head := data[at]:
        at, kind = at + 1, head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, at = _signed(data, at, 16)
        if (number, kind) in out:  # readers differ in which one they believe
            raise ValueError("A field is there twice.")
        out[number, kind], at = (None, at) if kind in TRUTHS else _value(data, at, kind, deepest - 1)
    return out, at + 1


def _value(data: bytes, at: int, kind: int, deepest: int) -> tuple[Any, int]:
    """What is there, as far as anyone here asks for it; and where it ends."""
    if kind in BITS:
        return _signed(data, at, BITS[kind])
    if kind == STRUCT:
        return _struct(data, at, deepest)
    if kind == TEXT:
        length, at = _unsigned(data, at)
        return None, at + length
    if kind in LISTS and deepest:
        size, inner, at = data[at] >> 4, data[at] & 15, at + 1
        if size == 15:
            size, at = _unsigned(data, at)
        out = []
        for _ in range(min(size, len(data) + 1)):  # each takes a byte at least
            value, at = _value(data, at, BYTE if inner in TRUTHS else inner, deepest - 1)
            out.append(value)
        return out, at
    if kind in (BYTE, DOUBLE) and at < len(data):
        return None, at + (1 if kind == BYTE else 8)
    raise ValueError("No Parquet file has that.")


def _signed(data: bytes, at: int, bits: int) -> tuple[int, int]:
    """0, -1, 1, -2, … as 0, 1, 2, 3, …"""
    number, at = _unsigned(data, at)
    if number >= 1 << bits:
        raise ValueError("A number is too long.")
    return (number >> 1) ^ -(number & 1), at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first."""
    number = 0
    for k in range(10):
        number |= (data[at + k] & 127) << (7 * k)
        if data[at + k] < 128:
            return number, at + k + 1
    raise ValueError("A number is too long.")

"""How much a Parquet file holds, before any of it is unpacked.

64 KiB can unpack to 2 GiB, and what a footer says of that binds nobody: only the headers of pages do. pyarrow does not
show them, and some of its own views of a footer end the process when that was crafted. So both are read here: they are
structs of Thrift's compact protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DEEPEST = 16  # values inside values; a footer has eight
MOST_VALUES, BYTES_A_VALUE = 1 << 17, 16
"""In all headers together: so many, and one more for so many bytes of the file. 10^6 nodes need 15,000."""
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
    reader = Reader(data, left=MOST_VALUES + len(data) // BYTES_A_VALUE)
    try:
        footer = reader.footer()
        if not 0 <= footer[ROWS] == sum(group[GROUP_ROWS] for group in footer[GROUPS]) <= most_rows:
            raise ValueError("A file has the rows of its groups, and not so many.")
        for group in footer[GROUPS]:
            for column in (column[ABOUT] for column in group[COLUMNS]):
                rows, size = group[GROUP_ROWS], reader.unpacked_size(column)
                if rows < 0 or column[VALUES] != rows or size > bytes_a_value * rows + bytes_a_column:
                    raise ValueError("A column holds more than its rows need.")
    except (IndexError, KeyError, TypeError):
        raise ValueError("A Parquet file says what it holds.") from None


@dataclass(slots=True)
class Reader:
    """Reads values one after the other, and no more of them than a file needs."""

    data: bytes
    at: int = 0
    left: int = MOST_VALUES

    def footer(self) -> dict[tuple[int, int], Any]:
        """Before the last 8 bytes, which begin with its length."""
        self.at = len(self.data) - 8 - int.from_bytes(self.data[-8:-4], "little")
        if self.at < 0:
            raise ValueError("There is no such footer.")
        return self.struct(DEEPEST)

    def unpacked_size(self, column: dict[tuple[int, int], Any]) -> int:
        """Bytes that the pages of a column unpack to."""
        self.at = start = min(column[PAGES], column.get(DICTIONARY, column[PAGES]))
        total, stop = 0, start + column[PACKED]
        if not 0 <= start <= stop <= len(self.data):
            raise ValueError("There are no such pages.")
        while self.at < stop:
            page = self.struct(DEEPEST)
            if page[PAGE_UNPACKED] < 0 or page[PAGE_PACKED] < 0:
                raise ValueError("A page has no such size.")
            total, self.at = total + page[PAGE_UNPACKED], self.at + page[PAGE_PACKED]
        return total

    def struct(self, deepest: int) -> dict[tuple[int, int], Any]:
        """Fields by number and type."""
        out: dict[tuple[int, int], Any] = {}
        number = 0
        while head := self._byte():
            kind = head & 15
            number = number + (head >> 4) if head >> 4 else self._signed(16)
            if (number, kind) in out:  # readers differ in which one they believe
                raise ValueError("A field is there twice.")
            out[number, kind] = None if kind in TRUTHS else self._value(kind, deepest - 1)
        return out

    def _value(self, kind: int, deepest: int) -> Any:
        """What is next, if anyone here asks for it."""
        self.left -= 1
        if self.left < 0 or deepest < 0:
            raise ValueError("No Parquet file has so much to say.")
        if kind in BITS:
            return self._signed(BITS[kind])
        if kind == STRUCT:
            return self.struct(deepest)
        if kind in LISTS:
            head = self._byte()
            size = self._unsigned() if head >> 4 == 15 else head >> 4
            inner = BYTE if head & 15 in TRUTHS else head & 15
            return [self._value(inner, deepest - 1) for _ in range(size)]
        if kind not in (BYTE, DOUBLE, TEXT):
            raise ValueError("No Parquet file has that.")
        length = self._unsigned() if kind == TEXT else 1 if kind == BYTE else 8
        self.at += length
        return None

    def _signed(self, bits: int) -> int:
        """0, -1, 1, -2, … as 0, 1, 2, 3, …"""
        number = self._unsigned()
        if number >= 1 << bits:
            raise ValueError("A number is too long.")
        return (number >> 1) ^ -(number & 1)

    def _unsigned(self) -> int:
        """Seven bits a byte, the lowest first."""
        number = 0
        for k in range(10):
            byte = self._byte()
            number |= (byte & 127) << (7 * k)
            if byte < 128:
                return number
        raise ValueError("A number is too long.")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

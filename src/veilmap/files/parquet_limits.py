"""Check how much data a Parquet file holds before any of it is decompressed.

A file of 64 KiB can decompress to 2 GiB. The sizes in its footer do not limit this; only those in the page headers do.
pyarrow does not expose page headers, and some of its functions crash the process on a crafted footer. So this module
reads both itself: they are structs of Thrift's compact protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 16  # of nested values; a real footer has eight
MIN_VALUE_LIMIT = 1 << 17  # values in all headers together; a file of 10^6 nodes needs 15,000
FILE_BYTES_PER_VALUE = 16  # the limit grows by one value per this many bytes of the file

# Types of Thrift's compact protocol
BOOL_TYPES = (1, 2)
BYTE_TYPE = 3
I16_TYPE = 4
I32_TYPE = 5
I64_TYPE = 6
DOUBLE_TYPE = 7
BINARY_TYPE = 8
LIST_TYPE = 9
LIST_TYPES = (LIST_TYPE, 10)  # lists and sets
STRUCT_TYPE = 12
INTEGER_BITS = {I16_TYPE: 16, I32_TYPE: 32, I64_TYPE: 64}

# Fields by number and type. A field with another type is ignored.
FOOTER_ROWS = (3, I64_TYPE)
FOOTER_ROW_GROUPS = (4, LIST_TYPE)
GROUP_COLUMNS = (1, LIST_TYPE)
GROUP_ROWS = (3, I64_TYPE)
COLUMN_METADATA = (3, STRUCT_TYPE)
COLUMN_VALUES = (5, I64_TYPE)
COLUMN_COMPRESSED_SIZE = (7, I64_TYPE)
COLUMN_DATA_OFFSET = (9, I64_TYPE)
COLUMN_DICTIONARY_OFFSET = (11, I64_TYPE)
PAGE_UNCOMPRESSED_SIZE = (2, I32_TYPE)
PAGE_COMPRESSED_SIZE = (3, I32_TYPE)


def must_be_within_limits(data: bytes, max_rows: int, bytes_per_value: int, bytes_per_column: int) -> None:
    """Raise ValueError if a file declares too many rows, decompresses to too much data, or cannot be understood.

    A column may decompress to ``bytes_per_value`` bytes per row, and ``bytes_per_column`` more.
    """
    reader = Reader(data, values_left=MIN_VALUE_LIMIT + len(data) // FILE_BYTES_PER_VALUE)
    try:
        footer = reader.footer()
        if not 0 <= footer[FOOTER_ROWS] == sum(group[GROUP_ROWS] for group in footer[FOOTER_ROW_GROUPS]) <= max_rows:
            raise ValueError("The number of rows is too large, or differs from that of the row groups.")
        for group in footer[FOOTER_ROW_GROUPS]:
            for column in (column[COLUMN_METADATA] for column in group[GROUP_COLUMNS]):
                rows, size = group[GROUP_ROWS], reader.uncompressed_size(column)
                if rows < 0 or column[COLUMN_VALUES] != rows or size > bytes_per_value * rows + bytes_per_column:
                    raise ValueError("A column holds more data than its rows need.")
    except (IndexError, KeyError, TypeError):
        raise ValueError("The footer or a page header lacks a required field.") from None


@dataclass(slots=True)
class Reader:
    """A reader of consecutive values, which stops after more values than a file needs."""

    data: bytes
    position: int = 0
    values_left: int = MIN_VALUE_LIMIT

    def footer(self) -> dict[tuple[int, int], Any]:
        """Return the footer. It ends before the last 8 bytes, which begin with its length."""
        self.position = len(self.data) - 8 - int.from_bytes(self.data[-8:-4], "little")
        if self.position < 0:
            raise ValueError("The footer is longer than the file.")
        return self.struct(MAX_DEPTH)

    def uncompressed_size(self, column: dict[tuple[int, int], Any]) -> int:
        """Return the number of bytes to which the pages of a column decompress."""
        data_offset = column[COLUMN_DATA_OFFSET]
        self.position = start = min(data_offset, column.get(COLUMN_DICTIONARY_OFFSET, data_offset))
        total, stop = 0, start + column[COLUMN_COMPRESSED_SIZE]
        if not 0 <= start <= stop <= len(self.data):
            raise ValueError("The pages of a column are outside the file.")
        while self.position < stop:
            page = self.struct(MAX_DEPTH)
            if page[PAGE_UNCOMPRESSED_SIZE] < 0 or page[PAGE_COMPRESSED_SIZE] < 0:
                raise ValueError("A page has a negative size.")
            total += page[PAGE_UNCOMPRESSED_SIZE]
            self.position += page[PAGE_COMPRESSED_SIZE]
        return total

    def struct(self, max_depth: int) -> dict[tuple[int, int], Any]:
        """Return the fields of a struct by number and type."""
        fields: dict[tuple[int, int], Any] = {}
        number = 0
        while head := self._byte():
            kind = head & 15
            number = number + (head >> 4) if head >> 4 else self._signed(16)
            if (number, kind) in fields:  # readers differ in which of two they use
                raise ValueError("A field occurs twice.")
            fields[number, kind] = None if kind in BOOL_TYPES else self._value(kind, max_depth - 1)
        return fields

    def _value(self, kind: int, max_depth: int) -> Any:
        """Return the next value; None for types that are not needed here."""
        self.values_left -= 1
        if self.values_left < 0 or max_depth < 0:
            raise ValueError("There are too many values, or they are nested too deeply.")
        if kind in INTEGER_BITS:
            return self._signed(INTEGER_BITS[kind])
        if kind == STRUCT_TYPE:
            return self.struct(max_depth)
        if kind in LIST_TYPES:
            head = self._byte()
            size = self._unsigned() if head >> 4 == 15 else head >> 4
            inner = BYTE_TYPE if head & 15 in BOOL_TYPES else head & 15
            return [self._value(inner, max_depth - 1) for _ in range(size)]
        if kind not in (BYTE_TYPE, DOUBLE_TYPE, BINARY_TYPE):
            raise ValueError("A value has a type that Parquet does not use.")
        length = self._unsigned() if kind == BINARY_TYPE else 1 if kind == BYTE_TYPE else 8
        self.position += length
        return None

    def _signed(self, bits: int) -> int:
        """Return a zigzag-encoded integer: 0, 1, 2, 3, … stand for 0, -1, 1, -2, …"""
        number = self._unsigned()
        if number >= 1 << bits:
            raise ValueError("A number is too long.")
        return (number >> 1) ^ -(number & 1)

    def _unsigned(self) -> int:
        """Return an integer with seven bits per byte, the lowest bits first."""
        number = 0
        for k in range(10):
            byte = self._byte()
            number |= (byte & 127) << (7 * k)
            if byte < 128:
                return number
        raise ValueError("A number is too long.")

    def _byte(self) -> int:
        self.position += 1
        return self.data[self.position - 1]

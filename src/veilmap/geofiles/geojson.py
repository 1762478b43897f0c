"""Split GeoJSON into records, so that the content of one record, even if malformed, does not affect other records.

A ``.geojson`` or ``.json`` file is one FeatureCollection, and a record is a member of its ``features``. A ``.geojsonl``
file has one record per line. Records are separated by brackets, quotes and commas, or by line ends, before any of them
is parsed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum, auto
from typing import IO, Any

import numpy as np

from veilmap.kernels.parsing import scan_json

BLOCK_BYTES = 1 << 22
MAX_MEMBER_BYTES = 1 << 24  # of the collection, other than its features
MAX_RECORD_BYTES = 1 << 22  # a point needs far less
NOT_JSON = b"!"  # replaces a record that is too long
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
RECORD_SEPARATOR = b"\x1e"  # before each line of a file that follows RFC 8142

# Marks of JSON, as bytes
OPEN_OBJECT = ord("{")
CLOSE_OBJECT = ord("}")
OPEN_ARRAY = ord("[")
CLOSE_ARRAY = ord("]")
COLON_MARK = ord(":")
COMMA_MARK = ord(",")


class NotACollection(ValueError):
    """The file is not a FeatureCollection. The message gives the reason and quotes nothing."""


class _Place(Enum):
    """The position of the reader in the document."""

    START = auto()
    KEY = auto()
    VALUE = auto()
    FEATURES = auto()
    AFTER_FEATURES = auto()
    END = auto()


class Collection:
    """A FeatureCollection, read front to back."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.members: dict[str, Any] = {}  # all but its features; complete after all blocks are read
        self._place, self._key, self._records = _Place.START, "", list[bytes]()
        self._is_list = False  # whether features were found, and are a list
        self._parts: list[bytes] = []  # the text since the last record, key or value

    def blocks(self) -> Iterator[list[bytes]]:
        """Yield all records, block by block."""
        state, marks, depths = np.zeros(2, np.int64), np.empty(BLOCK_BYTES, np.int64), np.empty(BLOCK_BYTES, np.int64)
        block = self.stream.read(BLOCK_BYTES).removeprefix(BYTE_ORDER_MARK)
        while block:
            count = scan_json(np.frombuffer(block, np.uint8), state, marks, depths)
            begin = 0
            for mark, depth in zip(marks[:count].tolist(), depths[:count].tolist(), strict=True):
                self._parts.append(block[begin:mark])
                self._take(block[mark], depth)
                begin = mark + 1
            self._parts.append(block[begin:])
            if self._place is _Place.FEATURES:
                self._parts = [_limited(self._text)]
            elif sum(map(len, self._parts)) > MAX_MEMBER_BYTES:
                raise NotACollection("its members other than features are too long")
            records, self._records = self._records, []
            yield records
            block = self.stream.read(BLOCK_BYTES)
        if self._place is not _Place.END or self._text.strip():
            raise NotACollection("it is truncated, or text follows its end")
        if self.members.get("type") != "FeatureCollection" or not self._is_list:
            raise NotACollection("it is another kind of JSON")

    @property
    def _text(self) -> bytes:
        return b"".join(self._parts)

    def _take(self, mark: int, depth: int) -> None:
        """Process one mark, which follows ``_text``."""
        place = self._place
        if place is _Place.FEATURES:
            self._record(mark)
        elif place is _Place.START and mark == OPEN_OBJECT:
            self._go(_Place.KEY, blank=True)
        elif place is _Place.KEY and mark == COLON_MARK:
            self._key = _parsed(self._text)
            self._go(_Place.VALUE)
        elif place is _Place.KEY and mark == CLOSE_OBJECT and not self.members:
            self._go(_Place.END, blank=True)
        elif place is _Place.VALUE and mark == OPEN_ARRAY and self._key == "features":
            if self._is_list:
                raise NotACollection("it has two members named features")
            self._is_list = True
            self._go(_Place.FEATURES, blank=True)
        elif place is _Place.VALUE and depth == 2:
            self._parts.append(bytes([mark]))  # within the value
        elif place in (_Place.VALUE, _Place.AFTER_FEATURES) and mark in (COMMA_MARK, CLOSE_OBJECT):
            if place is _Place.VALUE:
                self.members[self._key] = _parsed(self._text)
            self._go(_Place.KEY if mark == COMMA_MARK else _Place.END, blank=place is _Place.AFTER_FEATURES)
        else:
            raise NotACollection("its brackets and commas are not valid JSON")

    def _record(self, mark: int) -> None:
        if mark == COMMA_MARK or (mark == CLOSE_ARRAY and self._text.strip()):
            self._records.append(_limited(self._text))
        self._go(_Place.FEATURES if mark == COMMA_MARK else _Place.AFTER_FEATURES)
        if mark not in (COMMA_MARK, CLOSE_ARRAY):
            raise NotACollection("its features are not a list")

    def _go(self, place: _Place, *, blank: bool = False) -> None:
        if blank and self._text.strip():
            raise NotACollection("there is text where JSON allows none")
        self._place, self._parts = place, []


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text.decode())
    except (ValueError, RecursionError):
        raise NotACollection("its members other than features are not JSON") from None


def line_blocks(stream: IO[bytes]) -> Iterator[list[bytes]]:
    """Yield all lines, block by block."""
    rest = b""
    block = stream.read(BLOCK_BYTES).removeprefix(BYTE_ORDER_MARK)
    while block:
        *lines, rest = (rest + block).split(b"\n")
        yield [_limited(line) for line in lines]
        rest = _limited(rest)
        block = stream.read(BLOCK_BYTES)
    yield [rest]


def _limited(text: bytes) -> bytes:
    """Return a record, or the part of it read so far; a text with which no JSON begins if it is too long to keep.

    The result for a whole record does not depend on where blocks of the file end.
    """
    return text if len(text) <= MAX_RECORD_BYTES else NOT_JSON


def parse_members(texts: list[bytes]) -> list[Any]:
    """Parse records of a collection; None for a record that is not JSON. The result for a record depends only on it.

    Quotes and brackets are closed within each record. So if all records together are valid JSON, the commas between its
    members are those that separate the records. If they are not, records are parsed one by one.
    """
    try:
        records: list[Any] = json.loads(b"".join([b"[", b",".join(texts), b"]"]).decode(errors="replace"))
    except (ValueError, RecursionError):
        return [parse_record(text) for text in texts]
    return records


def parse_record(text: bytes) -> Any:
    """Parse one record; None if it is not JSON."""
    try:
        return json.loads(text.removeprefix(RECORD_SEPARATOR).decode(errors="replace"))
    except (ValueError, RecursionError):
        return None

"""GeoJSON, record by record: what one record says, or how it is broken, does not touch the others.

A ``.geojson`` or ``.json`` file is one FeatureCollection, and a record is a member of its ``features``. A ``.geojsonl``
file has one record per line. Records are told apart by brackets, quotes and commas, or by line ends, before any of them
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
LONGEST_MEMBER = 1 << 24  # of the collection, beside its features
LONGEST_RECORD, NOT_JSON = 1 << 22, b"!"  # a point takes far less
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
RECORD_SEPARATOR = b"\x1e"  # before each line, where RFC 8142 is followed

OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY, COLON, COMMA = b"{}[]:,"


class NotACollection(ValueError):
    """The file is not a FeatureCollection. The text says why, and quotes nothing."""


class _Place(Enum):
    """Where in the document the reader is."""

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
        self.members: dict[str, Any] = {}  # all but its features; complete once these are read
        self._place, self._key, self._records = _Place.START, "", list[bytes]()
        self._is_list = False  # whether features were found, and are a list
        self._parts: list[bytes] = []  # of the text since the last record, key or value

    def blocks(self) -> Iterator[list[bytes]]:
        """Read all records, some at a time."""
        state, marks, depths = np.zeros(2, np.int64), np.empty(BLOCK_BYTES, np.int64), np.empty(BLOCK_BYTES, np.int64)
        block = self.stream.read(BLOCK_BYTES).removeprefix(BYTE_ORDER_MARK)
        while block:
            found = scan_json(np.frombuffer(block, np.uint8), state, marks, depths)
            begin = 0
            for mark, depth in zip(marks[:found].tolist(), depths[:found].tolist(), strict=True):
                self._parts.append(block[begin:mark])
                self._take(block[mark], depth)
                begin = mark + 1
            self._parts.append(block[begin:])
            if self._place is _Place.FEATURES:
                self._parts = [_not_too_long(self._text)]
            elif sum(map(len, self._parts)) > LONGEST_MEMBER:
                raise NotACollection("what it says beside its features is too long")
            records, self._records = self._records, []
            yield records
            block = self.stream.read(BLOCK_BYTES)
        if self._place is not _Place.END or self._text.strip():
            raise NotACollection("it is cut short, or more text follows its end")
        if self.members.get("type") != "FeatureCollection" or not self._is_list:
            raise NotACollection("it is JSON of another kind")

    @property
    def _text(self) -> bytes:
        return b"".join(self._parts)

    def _take(self, mark: int, depth: int) -> None:
        """Go on by one mark, which stands behind ``_text``."""
        place = self._place
        if place is _Place.FEATURES:
            self._record(mark)
        elif place is _Place.START and mark == OPEN_OBJECT:
            self._go(_Place.KEY, blank=True)
        elif place is _Place.KEY and mark == COLON:
            self._key = _parsed(self._text)
            self._go(_Place.VALUE)
        elif place is _Place.KEY and mark == CLOSE_OBJECT and not self.members:
            self._go(_Place.END, blank=True)
        elif place is _Place.VALUE and mark == OPEN_ARRAY and self._key == "features":
            if self._is_list:
                raise NotACollection("it has features twice")
            self._is_list = True
            self._go(_Place.FEATURES, blank=True)
        elif place is _Place.VALUE and depth == 2:
            self._parts.append(bytes([mark]))  # within the value
        elif place in (_Place.VALUE, _Place.AFTER_FEATURES) and mark in (COMMA, CLOSE_OBJECT):
            if place is _Place.VALUE:
                self.members[self._key] = _parsed(self._text)
            self._go(_Place.KEY if mark == COMMA else _Place.END, blank=place is _Place.AFTER_FEATURES)
        else:
            raise NotACollection("its brackets and commas are not those of JSON")

    def _record(self, mark: int) -> None:
        if mark == COMMA or (mark == CLOSE_ARRAY and self._text.strip()):
            self._records.append(_not_too_long(self._text))
        self._go(_Place.FEATURES if mark == COMMA else _Place.AFTER_FEATURES)
        if mark not in (COMMA, CLOSE_ARRAY):
            raise NotACollection("its features are not a list")

    def _go(self, place: _Place, *, blank: bool = False) -> None:
        if blank and self._text.strip():
            raise NotACollection("there is text where JSON has none")
        self._place, self._parts = place, []


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text.decode())
    except (ValueError, RecursionError):
        raise NotACollection("what it says beside its features is not JSON") from None


def line_blocks(stream: IO[bytes]) -> Iterator[list[bytes]]:
    """Read all lines, some at a time."""
    rest = b""
    block = stream.read(BLOCK_BYTES).removeprefix(BYTE_ORDER_MARK)
    while block:
        *lines, rest = (rest + block).split(b"\n")
        yield [_not_too_long(line) for line in lines]
        rest = _not_too_long(rest)
        block = stream.read(BLOCK_BYTES)
    yield [rest]


def _not_too_long(text: bytes) -> bytes:
    """The record so far; what no JSON begins with if it is too long to keep, wherever blocks of the file end."""
    return text if len(text) <= LONGEST_RECORD else NOT_JSON


def parse_members(texts: list[bytes]) -> list[Any]:
    """Parse records of a collection; None for what is not JSON. What one becomes does not depend on the others.

    Each has its quotes and brackets closed. So if they are JSON together, the commas between them are those they were
    told apart by; and if they are not, they are parsed one by one.
    """
    try:
        found: list[Any] = json.loads(b"".join([b"[", b",".join(texts), b"]"]).decode(errors="replace"))
    except (ValueError, RecursionError):
        return [parse_record(text) for text in texts]
    return found


def parse_record(text: bytes) -> Any:
    """Parse one record; None for what is not JSON."""
    try:
        return json.loads(text.removeprefix(RECORD_SEPARATOR).decode(errors="replace"))
    except (ValueError, RecursionError):
        return None

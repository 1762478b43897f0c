"""What the pages of a Parquet file say of their size, before any of them is unpacked.

64 KiB can unpack to 2 GiB, and a footer need not tell: only the header of a page binds who unpacks it.
Headers are structs of Thrift's compact protocol.
"""

from __future__ import annotations

DEEPEST = 8  # structs inside structs; a page has three
BYTE, DOUBLE, TEXT, STRUCT = 3, 7, 8, 12
TRUTHS, WHOLE_NUMBERS, LISTS = (1, 2), (4, 5, 6), (9, 10)
UNPACKED, PACKED = 2, 3  # fields of a page's header


def unpacked_size(data: bytes, start: int, stop: int) -> int:
    """Bytes that the pages from ``start`` to ``stop`` unpack to; ValueError if these are no pages."""
    if not 0 <= start <= stop <= len(data):
        raise ValueError("There are no such bytes.")
    total, at = 0, start
    try:
        while at < stop:
            at, unpacked, packed = _sizes(data, at)
            total, at = total + unpacked, at + packed
    except IndexError:
        raise ValueError("A page ends before it should.") from None
    return total


def _sizes(data: bytes, at: int) -> tuple[int, int, int]:
    """Where a page begins, how large it unpacks, and how large it is."""
    sizes, field = {}, 0
    while head := data[at]:
        kind, more, at = head & 15, head >> 4, at + 1
        if not more:  # numbers out of order, perhaps twice: no program writes these
            raise ValueError("A page's header is out of order.")
        field += more
        if field in (UNPACKED, PACKED) and kind in WHOLE_NUMBERS:
            number, at = _varint(data, at)
            if number & 1 or number >= 2**32:  # negative, or more than a reader would believe
                raise ValueError("A page has no such size.")
            sizes[field] = number >> 1
        else:
            at = _skip(data, at, kind, DEEPEST)
    if len(sizes) < 2:
        raise ValueError("A page does not say how large it is.")
    return at + 1, sizes[UNPACKED], sizes[PACKED]


def _skip(data: bytes, at: int, kind: int, deepest: int) -> int:
    """Behind a value."""
    if deepest == 0:
        raise ValueError("A page's header is too deep.")
    if kind in TRUTHS:
        return at
    if kind in WHOLE_NUMBERS:
        return _varint(data, at)[1]
    if kind in (BYTE, DOUBLE):
        return at + (1 if kind == BYTE else 8)
    if kind == TEXT:
        length, at = _varint(data, at)
        return at + length
    if kind in LISTS:
        head, at = data[at], at + 1
        size, at = _varint(data, at) if head >> 4 == 15 else (head >> 4, at)
        if size > len(data):
            raise ValueError("A page's header holds more than the file.")
        for _ in range(size):
            at = at + 1 if head & 15 in TRUTHS else _skip(data, at, head & 15, deepest - 1)
        return at
    if kind != STRUCT:
        raise ValueError("A page's header holds what no page has.")
    while head := data[at]:
        at = at + 1 if head >> 4 else _varint(data, at + 1)[1]
        at = _skip(data, at, head & 15, deepest - 1)
    return at + 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first; and where it ends."""
    number = 0
    for k in range(10):
        number |= (data[at + k] & 127) << (7 * k)
        if data[at + k] < 128:
            return number, at + k + 1
    raise ValueError("A number in a page's header is too long.")

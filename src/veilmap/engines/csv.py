"""Points in text files with fields separated by commas, semicolons, tabs or bars."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from veilmap.arrays import Floats
from veilmap.domain import Domain
from veilmap.engines.batches import Piece, Share
from veilmap.engines.columns import lay_out
from veilmap.engines.geometry import DECIMAL_NUMBER_PATTERN, column_to_floats
from veilmap.engines.redaction import guard, guard_each
from veilmap.engines.units import read_ids
from veilmap.errors import UnreadableInput
from veilmap.kernels.parsing import settle_records

SEPARATORS = ",;\t|"
MAX_RECORD_BYTES = 1 << 26
MAX_HEADER_CHARACTERS = 1 << 20
BLOCK_BYTES = 1 << 22
NULL_TEXTS = pa.array(pacsv.ConvertOptions().null_values)


@dataclass(frozen=True, slots=True)
class Header:
    """The first line that is not blank."""

    names: tuple[str, ...]
    separator: str
    lines: int  # to skip before the rows
    rows_follow: bool


@dataclass(frozen=True, slots=True)
class TextSource:
    """One file, read block by block."""

    path: str
    header: Header
    axes: tuple[str, ...]
    unit: str | None
    damaged_message: str

    @property
    def id_type(self) -> Any:
        return None if self.unit is None else pa.large_string()

    def shares(self) -> Iterator[Share]:
        if not self.header.rows_follow:
            return
        with guard(lambda: pa.OSFile(self.path), self.damaged_message) as file:
            done_before, size, first = 0.0, file.size(), True
            text = pa.CompressedInputStream(file, "gzip") if self.path.lower().endswith(".gz") else file
            for lines in guard_each(whole_records(text, self.header.separator), self.damaged_message):
                done = min(file.tell() / size, 1.0)
                yield done - done_before, partial(self._read, lines, first)
                done_before, first = done, False

    def _read(self, lines: bytes, first: bool) -> Iterator[Piece]:
        rows = guard(lambda: self._parse(lines, self.header.lines if first else 0), self.damaged_message)
        axes = [self._column(rows, axis) for axis in self.axes]
        if self.unit is not None:
            axes = [_without_nulls(texts) for texts in axes]
        columns = [_parse_numbers(texts) for texts in axes]
        yield Piece(columns, None if self.unit is None else _ids(self._column(rows, self.unit)))

    def _column(self, rows: pa.Table, name: str) -> pa.ChunkedArray:
        return rows.column(str(self.header.names.index(name)))

    def _parse(self, lines: bytes, skip: int) -> pa.Table:
        """Return the columns that are needed, as text."""
        # Bytes that are not UTF-8 are escaped: the parser would raise an error that quotes the line.
        data = np.frombuffer(lines.decode(errors="backslashreplace").encode(), np.uint8)
        # Columns are addressed by position, since names may be blank, duplicated or padded.
        needed = dict.fromkeys((*self.axes, *([] if self.unit is None else [self.unit])))
        wanted = [str(self.header.names.index(name)) for name in needed]
        positions = [str(position) for position in range(len(self.header.names))]
        if not data[data > ord(" ")].size:
            return pa.table({name: pa.array([], pa.string()) for name in wanted})
        return pacsv.read_csv(
            pa.BufferReader(pa.py_buffer(data)),
            pacsv.ReadOptions(skip_rows=skip, column_names=positions, use_threads=False, block_size=len(data) + 1),
            pacsv.ParseOptions(delimiter=self.header.separator, invalid_row_handler=lambda row: "skip"),
            pacsv.ConvertOptions(
                check_utf8=False,
                include_columns=wanted,
                column_types=dict.fromkeys(wanted, pa.string()),
                strings_can_be_null=self.unit is None,  # an id may be the text NA
            ),
        )


def open_text(path: str, domain: Domain, unit: str | None, input_name: str, damaged_message: str) -> TextSource:
    needed = domain.names if unit is None or unit in domain.names else (*domain.names, unit)
    header = guard(lambda: _read_header(path, needed, input_name), damaged_message)
    schema = pa.schema([(name, pa.float64()) for name in header.names])
    return TextSource(path, header, lay_out(domain, input_name, schema, None, unit).names, unit, damaged_message)


def _read_header(path: str, needed: tuple[str, ...], input_name: str) -> Header:
    opener = gzip.open if path.lower().endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as text:
        lines = iter(lambda: text.readline(MAX_HEADER_CHARACTERS), "")
        for number, line in enumerate(lines, 1):
            if "\0" in line:
                raise UnreadableInput(
                    f"{input_name} is not UTF-8 text. Save it as UTF-8, or rename it if it has another format."
                )
            if line.strip():
                fields = {mark: _fields(line, mark) for mark in SEPARATORS}
                best = max(SEPARATORS, key=lambda mark: (len({*needed} & {*fields[mark]}), line.count(mark)))
                return Header(fields[best], best, number, any(rest.strip() for rest in lines))
    raise UnreadableInput(f"{input_name} is empty. Its first line must name the columns {', '.join(needed)}.")


def whole_records(text: pa.NativeFile, separator: str) -> Iterator[bytes]:
    """Yield blocks of complete records, each record on one line.

    A malformed record does not affect other records. A record of more than ``MAX_RECORD_BYTES`` is made invalid.
    """
    rest = b""
    while block := text.read(BLOCK_BYTES):
        complete, rest = _split_complete(rest + block, separator, final=False)
        if complete:
            yield complete
        if len(rest) > MAX_RECORD_BYTES:
            rest = b"!"  # no number begins with this; the rest of the line still belongs to this record
    if rest:
        yield _split_complete(rest, separator, final=True)[0]


def _split_complete(text: bytes, separator: str, *, final: bool) -> tuple[bytes, bytes]:
    """Return the complete records at the beginning of the text, and the rest."""
    if b'"' not in text:
        end = len(text) if final else max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        return text[:end], text[end:]
    data = np.frombuffer(text, np.uint8).copy()
    end = settle_records(data, ord(separator), MAX_RECORD_BYTES, final)
    return data[:end].tobytes(), text[end:]


def _fields(line: str, separator: str) -> tuple[str, ...]:
    return tuple(field.strip() for field in next(csv.reader([line], delimiter=separator)))


def _without_nulls(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Replace texts such as NA by null, as pyarrow does with ``strings_can_be_null``."""
    return pc.if_else(pc.is_in(texts, NULL_TEXTS), pa.scalar(None, texts.type), texts)


def _ids(texts: pa.ChunkedArray) -> pa.Array:
    texts = pc.ascii_trim_whitespace(texts)
    return read_ids(pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts))


def _parse_numbers(texts: pa.ChunkedArray) -> Floats:
    """Return the numbers that texts spell, NaN for any other text. The result for a cell depends on that cell only."""
    try:
        return column_to_floats(texts)
    except pa.ArrowInvalid:  # its message quotes the cell
        pass
    texts = pc.ascii_trim_whitespace(texts)
    is_number = pc.match_substring_regex(texts, DECIMAL_NUMBER_PATTERN)
    return column_to_floats(pc.if_else(is_number, texts, pa.scalar(None, pa.string())))

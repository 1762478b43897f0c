"""Points in comma-, semicolon- or tab-separated text."""

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
from veilmap.engines.geometry import NUMBER, numbers
from veilmap.engines.redaction import guard, guard_each
from veilmap.engines.units import read_ids
from veilmap.errors import UnreadableInput
from veilmap.kernels.parsing import settle_records

SEPARATORS = ",;\t|"
LONGEST_RECORD = 1 << 26
LONGEST_HEADER = 1 << 20
BLOCK_BYTES = 1 << 22
NULLS = pa.array(pacsv.ConvertOptions().null_values)


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
    where: str
    damaged: str

    @property
    def id_type(self) -> Any:
        return None if self.unit is None else pa.large_string()

    def shares(self) -> Iterator[Share]:
        if not self.header.rows_follow:
            return
        with guard(lambda: pa.OSFile(self.path), self.damaged) as file:
            seen, size, first = 0.0, file.size(), True
            text = pa.CompressedInputStream(file, "gzip") if self.path.lower().endswith(".gz") else file
            for lines in guard_each(whole_records(text, self.header.separator), self.damaged):
                now = min(file.tell() / size, 1.0)
                yield now - seen, partial(self._read, lines, first)
                seen, first = now, False

    def _read(self, lines: bytes, first: bool) -> Iterator[Piece]:
        rows = guard(lambda: self._parse(lines, self.header.lines if first else 0), self.damaged)
        axes = [self._column(rows, axis) for axis in self.axes]
        if self.unit is not None:
            axes = [_without_nulls(texts) for texts in axes]
        columns = [_numbers(texts) for texts in axes]
        yield Piece(columns, None if self.unit is None else _ids(self._column(rows, self.unit)))

    def _column(self, rows: pa.Table, name: str) -> pa.ChunkedArray:
        return rows.column(str(self.header.names.index(name)))

    def _parse(self, lines: bytes, skip: int) -> pa.Table:
        """The columns as text."""
        # Bytes that are not UTF-8 are written out: the parser would complain of them, and quote the line.
        data = np.frombuffer(lines.decode(errors="backslashreplace").encode(), np.uint8)
        # Columns go by their places: names may be blank, doubled or padded.
        needed = dict.fromkeys((*self.axes, *([] if self.unit is None else [self.unit])))
        wanted = [str(self.header.names.index(name)) for name in needed]
        places = [str(place) for place in range(len(self.header.names))]
        if not data[data > ord(" ")].size:
            return pa.table({name: pa.array([], pa.string()) for name in wanted})
        return pacsv.read_csv(
            pa.BufferReader(pa.py_buffer(data)),
            pacsv.ReadOptions(skip_rows=skip, column_names=places, use_threads=False, block_size=len(data) + 1),
            pacsv.ParseOptions(delimiter=self.header.separator, invalid_row_handler=lambda row: "skip"),
            pacsv.ConvertOptions(
                check_utf8=False,
                include_columns=wanted,
                column_types=dict.fromkeys(wanted, pa.string()),
                strings_can_be_null=self.unit is None,  # a person may be called NA
            ),
        )


def open_text(path: str, domain: Domain, unit: str | None, where: str, damaged: str) -> TextSource:
    needed = domain.names if unit is None or unit in domain.names else (*domain.names, unit)
    header = guard(lambda: _read_header(path, needed, where), damaged)
    schema = pa.schema([(name, pa.float64()) for name in header.names])
    return TextSource(path, header, lay_out(domain, where, schema, None, unit).names, unit, where, damaged)


def _read_header(path: str, needed: tuple[str, ...], where: str) -> Header:
    opener = gzip.open if path.lower().endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as text:
        lines = iter(lambda: text.readline(LONGEST_HEADER), "")
        for number, line in enumerate(lines, 1):
            if "\0" in line:
                raise UnreadableInput(f"{where} is not text in UTF-8: save it as UTF-8, or rename it by what it is.")
            if line.strip():
                fields = {mark: _fields(line, mark) for mark in SEPARATORS}
                best = max(SEPARATORS, key=lambda mark: (len({*needed} & {*fields[mark]}), line.count(mark)))
                return Header(fields[best], best, number, any(rest.strip() for rest in lines))
    raise UnreadableInput(f"{where} is empty: its first line must name the columns {', '.join(needed)}.")


def whole_records(text: pa.NativeFile, separator: str) -> Iterator[bytes]:
    """Read blocks of whole records, each on one line. A record that is broken spoils no other, if none is too long."""
    rest = b""
    while block := text.read(BLOCK_BYTES):
        settled, rest = _settled(rest + block, separator, final=False)
        if settled:
            yield settled
        if len(rest) > LONGEST_RECORD:
            rest = b"!"  # no number begins like this; what follows on the line is still of this record
    if rest:
        yield _settled(rest, separator, final=True)[0]


def _settled(text: bytes, separator: str, *, final: bool) -> tuple[bytes, bytes]:
    """What is whole, and what is not yet."""
    if b'"' not in text:
        end = len(text) if final else max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        return text[:end], text[end:]
    data = np.frombuffer(text, np.uint8).copy()
    end = settle_records(data, ord(separator), LONGEST_RECORD, final)
    return data[:end].tobytes(), text[end:]


def _fields(line: str, separator: str) -> tuple[str, ...]:
    return tuple(field.strip() for field in next(csv.reader([line], delimiter=separator)))


def _without_nulls(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """What pyarrow does to numbers when text can be null: there is a list of texts that say so."""
    return pc.if_else(pc.is_in(texts, NULLS), pa.scalar(None, texts.type), texts)


def _ids(texts: pa.ChunkedArray) -> pa.Array:
    texts = pc.ascii_trim_whitespace(texts)
    return read_ids(pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts))


def _numbers(texts: pa.ChunkedArray) -> Floats:
    """Numbers from text, NaN from anything else. What a cell becomes does not depend on other cells."""
    try:
        return numbers(texts)
    except pa.ArrowInvalid:  # it quotes the cell
        pass
    texts = pc.ascii_trim_whitespace(texts)
    return numbers(pc.if_else(pc.match_substring_regex(texts, NUMBER), texts, pa.scalar(None, pa.string())))

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

from veilmap.domain import Domain
from veilmap.engines.batches import Piece, Share
from veilmap.engines.columns import lay_out
from veilmap.engines.geometry import Floats, numbers
from veilmap.engines.guard import guard, guard_each
from veilmap.engines.units import read_ids
from veilmap.errors import UnreadableInput
from veilmap.kernels.reading import blank_open_quotes

SEPARATORS = ",;\t|"
LONGEST_LINE = 1 << 26
LONGEST_HEADER = 1 << 20
BLOCK_BYTES = 1 << 22
NULLS = pa.array(pacsv.ConvertOptions().null_values)
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


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
            for lines in guard_each(_whole_lines(text), self.damaged):
                now = min(file.tell() / size, 1.0)
                yield now - seen, partial(self._read, lines, first)
                seen, first = now, False

    def _read(self, lines: bytes, first: bool) -> Iterator[Piece]:
        rows = guard(lambda: self._parse(lines, self.header.lines if first else 0), self.damaged)
        axes = [self._column(rows, axis) for axis in self.axes]
        if self.unit is not None:
            axes = [_without_nulls(texts) for texts in axes]
        columns = [_numbers(texts) for texts in axes]
        if first and not rows.num_rows:
            raise UnreadableInput(
                f"{self.where} must have as many fields in each line as in its header, which names "
                f"{len(self.header.names)}, separated by {self.header.separator!r}: mend the header."
            )
        if first:
            self._must_be_numbers(axes, columns)
        yield Piece(columns, None if self.unit is None else _ids(self._column(rows, self.unit)))

    def _column(self, rows: pa.Table, name: str) -> pa.ChunkedArray:
        return rows.column(str(self.header.names.index(name)))

    def _parse(self, lines: bytes, skip: int) -> pa.Table:
        """The columns as text. A row is a line: a quote that is not closed spoils its own line and no other."""
        # Bytes that are not UTF-8 are written out: the parser would complain of them, and quote the line.
        data = np.frombuffer(lines.decode(errors="backslashreplace").encode(), np.uint8).copy()
        blank_open_quotes(data, ord(self.header.separator))
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

    def _must_be_numbers(self, axes: list[pa.ChunkedArray], columns: list[Floats]) -> None:
        for axis, texts, values in zip(self.axes, axes, columns, strict=True):
            if np.isnan(values).all() and pc.any(pc.not_equal(pc.ascii_trim_whitespace(texts), "")).as_py():
                raise UnreadableInput(
                    f"{self.where} must have numbers in column {axis!r}, which is an axis of the domain, and that "
                    "column is not numeric: convert it to decimal numbers, with a point and without units."
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


def _whole_lines(text: pa.NativeFile) -> Iterator[bytes]:
    """Blocks of the file that end where a line does."""
    rest = b""
    while block := text.read(BLOCK_BYTES):
        end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        if end:
            yield rest + block[:end]
            rest = b""
        rest += block[end:]
        if len(rest) > LONGEST_LINE:
            raise UnreadableInput(f"A line is longer than {LONGEST_LINE >> 20} MiB: this is no table of text.")
    if rest:
        yield rest


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

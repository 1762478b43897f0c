"""Points in Parquet and GeoParquet files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow.parquet as pq

from veilmap.domain import Domain
from veilmap.engines.batches import Piece, Share
from veilmap.engines.columns import Layout, lay_out
from veilmap.engines.geometry import find_geometry
from veilmap.engines.redaction import guard, guard_each
from veilmap.errors import UnreadableInput

MAGIC = b"PAR1"
PIECE_BYTES = 1 << 24  # of numbers: counts that many rows in a row look up stay in the cache
MOST_WIDE_ROWS = 1 << 17  # of geometries and ids, which may be long
BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """One file, read a row group at a time and each in small pieces."""

    path: str
    layout: Layout
    damaged: str

    @property
    def id_type(self) -> Any:
        return self.layout.id_type

    def shares(self) -> Iterator[Share]:
        metadata = guard(lambda: pq.read_metadata(self.path), self.damaged)
        for group in range(metadata.num_row_groups):
            yield 1 / metadata.num_row_groups, partial(self._read, metadata, group)

    def _read(self, metadata: pq.FileMetaData, group: int) -> Iterator[Piece]:
        # A handle of its own for each worker; and a buffer, or pyarrow holds whole column chunks in memory.
        with guard(self._open(metadata), self.damaged) as file:
            needed = self.layout.needed
            rows = PIECE_BYTES // (8 * len(needed))
            if self.layout.geometry is not None or self.layout.unit is not None:
                rows = min(rows, MOST_WIDE_ROWS)
            pieces = file.iter_batches(rows, [group], needed, use_threads=False)
            for rows in guard_each(pieces, self.damaged):
                yield self.layout.read(rows)

    def _open(self, metadata: pq.FileMetaData) -> partial[pq.ParquetFile]:
        return partial(pq.ParquetFile, self.path, metadata=metadata, buffer_size=BUFFER_BYTES, pre_buffer=False)


def open_parquet(path: str, domain: Domain, unit: str | None, where: str, damaged: str) -> ParquetSource:
    with open(path, "rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise UnreadableInput(
                f"{where} is named like a Parquet file and is none (it does not begin with PAR1): "
                "rename it by what it is, such as .csv."
            )
    schema = guard(lambda: pq.read_schema(path), damaged)
    return ParquetSource(path, lay_out(domain, where, schema, find_geometry(schema), unit), damaged)

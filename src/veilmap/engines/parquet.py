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

PARQUET_MAGIC = b"PAR1"
PIECE_BYTES = 1 << 24  # of numbers: the counters that consecutive rows use stay in the cache
MAX_WIDE_ROWS_PER_PIECE = 1 << 17  # rows with geometries or ids, which may be long
BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """One file, read by row groups, each in small pieces."""

    path: str
    layout: Layout
    damaged_message: str

    @property
    def id_type(self) -> Any:
        return self.layout.id_type

    def shares(self) -> Iterator[Share]:
        metadata = guard(lambda: pq.read_metadata(self.path), self.damaged_message)
        for group in range(metadata.num_row_groups):
            yield 1 / metadata.num_row_groups, partial(self._read, metadata, group)

    def _read(self, metadata: pq.FileMetaData, group: int) -> Iterator[Piece]:
        # Every worker has its own handle. Without a buffer, pyarrow would keep whole column chunks in memory.
        with guard(self._open(metadata), self.damaged_message) as file:
            needed = self.layout.needed
            rows = PIECE_BYTES // (8 * len(needed))
            if self.layout.geometry is not None or self.layout.unit is not None:
                rows = min(rows, MAX_WIDE_ROWS_PER_PIECE)
            batches = file.iter_batches(rows, [group], needed, use_threads=False)
            for batch in guard_each(batches, self.damaged_message):
                yield self.layout.read(batch)

    def _open(self, metadata: pq.FileMetaData) -> partial[pq.ParquetFile]:
        return partial(pq.ParquetFile, self.path, metadata=metadata, buffer_size=BUFFER_BYTES, pre_buffer=False)


def open_parquet(path: str, domain: Domain, unit: str | None, input_name: str, damaged_message: str) -> ParquetSource:
    with open(path, "rb") as file:
        if file.read(len(PARQUET_MAGIC)) != PARQUET_MAGIC:
            raise UnreadableInput(
                f"{input_name} has the name of a Parquet file but is not one (it does not begin with PAR1). "
                "Rename it according to its format, for example to .csv."
            )
    schema = guard(lambda: pq.read_schema(path), damaged_message)
    return ParquetSource(path, lay_out(domain, input_name, schema, find_geometry(schema), unit), damaged_message)

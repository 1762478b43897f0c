"""Rows that do not fit in memory, kept on disk while a release is made.

Their cells are stored encrypted in a temporary file without a name. The key exists only in memory, so data that remains
on the disk cannot be read.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import IO, TYPE_CHECKING, Any
from weakref import finalize

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from veilmap.arrays import SmallInts
from veilmap.domain import Domain
from veilmap.engines.batches import MAX_THREADS, LocalEngine, Piece, Share, Worker, joined, work_through
from veilmap.engines.tally import Cells, cells_of, select_rows
from veilmap.errors import TooLarge
from veilmap.memory import MAX_CELL_BYTES_IN_MEMORY

if TYPE_CHECKING:
    from veilmap.engines import HeldRows

ROWS_PER_PIECE = 1 << 17
"""A thread has several copies of a piece in memory."""
CIPHER_BLOCK_BYTES = 16


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Spilled(LocalEngine):
    """The cells of rows in a file, in pieces; read as points of ``domain.of_cells()``."""

    axes: int
    file: IO[bytes] = field(repr=False)
    key: bytes = field(repr=False)
    pieces: tuple[tuple[int, int], ...] = field(repr=False)  # offset in the file and number of rows of each
    id_type: Any = None

    def shares(self) -> Iterator[Share]:
        for start, rows in self.pieces:
            yield 1 / len(self.pieces), partial(self._read, start, rows)

    def _read(self, start: int, rows: int) -> Iterator[Piece]:
        data = os.pread(self.file.fileno(), 4 * self.axes * rows, start)
        cells = np.frombuffer(_cipher(self.key, start).decryptor().update(data), np.int32)
        yield Piece(list(cells.reshape(self.axes, rows)))


def hold(domain: Domain, shares: Iterable[Share], progress: Callable[[float], None]) -> HeldRows:
    """Return the cells of all rows that are not dropped, in memory, or on disk if they are too many for memory."""
    in_memory: list[tuple[int, Cells]] = []
    on_disk: list[tuple[int, int, int]] = []  # of each piece: the number of its share, its offset, its rows
    file: IO[bytes] | None = None
    key, size, end = os.urandom(32), 0, 0

    def start() -> Worker:
        own: list[tuple[int, Cells]] = []

        def take(share_number: int, piece: Piece) -> bool:
            own.append((share_number, select_rows(*cells_of(domain, piece.columns))))
            return True

        def give() -> None:
            nonlocal file, size, end
            in_memory.extend(own)
            size += sum(8 * len(cells) * len(cells[0]) for _, cells in own)
            own.clear()
            if size <= MAX_CELL_BYTES_IN_MEMORY:
                return
            try:
                file = file or tempfile.TemporaryFile()  # noqa: SIM115 - stays open as long as rows are counted
                for share_number, cells in in_memory:
                    for first in range(0, len(cells[0]), ROWS_PER_PIECE):
                        piece = np.array([axis[first : first + ROWS_PER_PIECE] for axis in cells], np.int32)
                        on_disk.append((share_number, end, piece.shape[1]))
                        end += _write(file, key, end, piece)
            except OSError:
                raise TooLarge(
                    f"The folder {tempfile.gettempdir()!r} has no room for rows that do not fit in memory. "
                    "Set TMPDIR to a folder on a larger disk."
                ) from None
            in_memory.clear()

        return take, give

    work_through(shares, start, MAX_THREADS, progress)
    if file is not None:
        pa.default_memory_pool().release_unused()  # the buffers of the readers are not needed again
        on_disk.sort()
        spilled = Spilled(domain.dimensions, file, key, tuple((offset, rows) for _, offset, rows in on_disk))
        finalize(spilled, file.close)
        return spilled, domain.of_cells()
    in_memory.sort(key=lambda piece: piece[0])  # stable: pieces of one share are in order already
    return joined((cells for _, cells in in_memory), domain.dimensions)


def _write(file: IO[bytes], key: bytes, start: int, cells: SmallInts) -> int:
    """Write cells and return the number of bytes: whole cipher blocks, so that no block number is used twice."""
    data = cells.tobytes()
    data += bytes(-len(data) % CIPHER_BLOCK_BYTES)
    file.seek(start)
    file.write(_cipher(key, start).encryptor().update(data))
    file.flush()
    return len(data)


def _cipher(key: bytes, start: int) -> Cipher[Any]:
    return Cipher(algorithms.AES(key), modes.CTR((start // CIPHER_BLOCK_BYTES).to_bytes(CIPHER_BLOCK_BYTES, "big")))

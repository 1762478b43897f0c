"""Rows that are too many for memory, kept on disk while a release is made.

They lie in a temporary file without a name, as cells, and encrypted: the key is in memory alone, so that nobody can
read what is left on the disk.
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
from veilmap.engines.batches import MOST_THREADS, LocalEngine, Piece, Share, Worker, joined, work_through
from veilmap.engines.tally import Cells, cells_of, only
from veilmap.errors import TooLarge
from veilmap.memory import HELD_BYTES

if TYPE_CHECKING:
    from veilmap.engines import Held

ROWS_A_PIECE = 1 << 17
"""At once in the memory of a thread, several times over."""
BLOCK = 16  # bytes of the cipher


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Spilled(LocalEngine):
    """The cells of rows in a file, piece by piece; asked as points of ``domain.of_cells()``."""

    axes: int
    file: IO[bytes] = field(repr=False)
    key: bytes = field(repr=False)
    pieces: tuple[tuple[int, int], ...] = field(repr=False)  # where each begins, and its rows
    id_type: Any = None

    def shares(self) -> Iterator[Share]:
        for start, rows in self.pieces:
            yield 1 / len(self.pieces), partial(self._read, start, rows)

    def _read(self, start: int, rows: int) -> Iterator[Piece]:
        data = os.pread(self.file.fileno(), 4 * self.axes * rows, start)
        cells = np.frombuffer(_cipher(self.key, start).decryptor().update(data), np.int32)
        yield Piece(list(cells.reshape(self.axes, rows)))


def hold(domain: Domain, shares: Iterable[Share], progress: Callable[[float], None]) -> Held:
    """The cells of all rows that are not dropped: in memory, or on disk if they are many."""
    found: list[tuple[int, Cells]] = []
    pieces: list[tuple[int, int, int]] = []  # in the file: of which share, where, how many rows
    file: IO[bytes] | None = None
    key, size, end = os.urandom(32), 0, 0

    def start() -> Worker:
        mine: list[tuple[int, Cells]] = []

        def take(place: int, piece: Piece) -> bool:
            mine.append((place, only(*cells_of(domain, piece.columns))))
            return True

        def give() -> None:
            nonlocal file, size, end
            found.extend(mine)
            size += sum(8 * len(cells) * len(cells[0]) for _, cells in mine)
            mine.clear()
            if size <= HELD_BYTES:
                return
            try:
                file = file or tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as rows are asked
                for place, cells in found:
                    for first in range(0, len(cells[0]), ROWS_A_PIECE):
                        some = np.array([axis[first : first + ROWS_A_PIECE] for axis in cells], np.int32)
                        pieces.append((place, end, some.shape[1]))
                        end += _write(file, key, end, some)
            except OSError:
                raise TooLarge(
                    f"There is no room in the folder {tempfile.gettempdir()!r} for rows that do not fit in memory: "
                    "set TMPDIR to a folder on a larger disk."
                ) from None
            found.clear()

        return take, give

    work_through(shares, start, MOST_THREADS, progress)
    if file is not None:
        pa.default_memory_pool().release_unused()  # what was read with is not needed again
        pieces.sort()
        spilled = Spilled(domain.dimensions, file, key, tuple((at, rows) for _, at, rows in pieces))
        finalize(spilled, file.close)
        return spilled, domain.of_cells()
    found.sort(key=lambda piece: piece[0])  # stable: pieces of one share are in order already
    return joined((cells for _, cells in found), domain.dimensions)


def _write(file: IO[bytes], key: bytes, start: int, cells: SmallInts) -> int:
    """Bytes written, in whole blocks of the cipher: so no block's number is used twice."""
    data = cells.tobytes()
    data += bytes(-len(data) % BLOCK)
    file.seek(start)
    file.write(_cipher(key, start).encryptor().update(data))
    file.flush()
    return len(data)


def _cipher(key: bytes, start: int) -> Cipher[Any]:
    return Cipher(algorithms.AES(key), modes.CTR((start // BLOCK).to_bytes(BLOCK, "big")))

"""Points in memory as numbers without column names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilmap.domain import Domain
from veilmap.engines.batches import LocalEngine, Piece, Share, equal_slices
from veilmap.engines.redaction import guard
from veilmap.engines.tally import Columns
from veilmap.errors import BadInput, UnreadableInput


@dataclass(frozen=True, slots=True)
class ArrayEngine(LocalEngine):
    """One array per axis, all of the same length, and optionally a column of ids of that length."""

    columns: Columns = field(repr=False)
    ids: Any = field(default=None, repr=False)  # an Arrow array
    id_type: Any = field(default=None, repr=False)

    def shares(self) -> Iterator[Share]:
        for fraction, rows in equal_slices(len(self.columns[0])):
            yield fraction, partial(self._read, rows)

    def _read(self, rows: slice) -> list[Piece]:
        columns = [column[rows] for column in self.columns]
        if self.ids is None:
            return [Piece(columns)]
        from veilmap.engines.units import read_ids

        return [Piece(columns, read_ids(self.ids[rows]))]


def open_array(points: object, domain: Domain, unit: object = None) -> ArrayEngine:
    """Open an (n, d) array or nested list of numbers, or a flat one for a single axis; ``unit`` has one id per row."""
    array = _as_numbers(points)
    if array.ndim == 1 and (domain.dimensions == 1 or not array.size):
        array = array.reshape(-1, domain.dimensions)
    if array.ndim != 2 or array.shape[1] != domain.dimensions:
        columns = array.shape[1] if array.ndim == 2 else f"{array.ndim} dimensions instead of 2"
        names = ", ".join(domain.names)
        raise BadInput(f"Points for {domain.dimensions} axes ({names}) must have one column per axis, got {columns}.")
    columns = [array[:, a] for a in range(domain.dimensions)]
    return ArrayEngine(columns) if unit is None else ArrayEngine(columns, *_read_unit(unit, len(array)))


def _read_unit(unit: object, rows: int) -> tuple[Any, Any]:
    """Return a column of ids, and the type in which they are compared."""
    if isinstance(unit, str):
        raise BadInput(
            f"The points have no column names, so there is no column {unit!r}. Give the unit as a list of ids, one per "
            "row, or give the points as a data frame."
        )
    # Arrays without a unit do not need pyarrow.
    from veilmap.engines.units import SIMPLE_ID_TYPES, as_column, id_type

    message = f"The unit must be a list of ids, one per row, that are {SIMPLE_ID_TYPES}. Convert them to text."
    ids = guard(lambda: as_column(unit), message)
    if (kind := id_type(ids.type)) is None:
        raise UnreadableInput(message)
    if len(ids) != rows:
        raise BadInput("The unit must have one id per row of points, but has more or fewer. Make the lengths match.")
    return ids, kind


def _as_numbers(points: object) -> NDArray[np.generic]:
    array = _convert(points)
    if array is not None and array.dtype.kind in "iuf":
        return array
    if isinstance(points, list | tuple):
        raise BadInput("A list of points must hold one list of numbers per point, all of one length, or only paths.")
    if isinstance(points, np.ndarray):
        kind = points.dtype.type.__name__.rstrip("_")  # numpy's other names for text types reveal the longest text
        raise BadInput(f"Points must be numbers, got an array of type {kind}. Convert it to float.")
    raise BadInput(
        f"Points must be an array, a data frame, the path of a file or a list of paths, got {type(points).__name__}."
    )


def _convert(points: object) -> NDArray[np.generic] | None:
    """Return an array, or None on failure: numpy's error may quote a value or reveal the number of rows."""
    try:
        with np.errstate(all="ignore"):
            if isinstance(points, np.ma.MaskedArray):
                points = np.ma.filled(points.astype(float), np.nan)
            array = np.asarray(points)
            # None becomes NaN, Decimal a float
            return array.astype(float) if array.dtype.kind == "O" and 1 <= array.ndim <= 2 else array
    except MemoryError:
        raise
    except Exception:
        return None

"""Points that are already in memory as numbers without names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilmap.domain import Domain
from veilmap.engines.batches import LocalEngine, Piece, Share, equal_parts
from veilmap.engines.redaction import guard
from veilmap.engines.tally import Columns
from veilmap.errors import BadInput, UnreadableInput


@dataclass(frozen=True, slots=True)
class ArrayEngine(LocalEngine):
    """One array an axis, all of one length; and perhaps a column of ids as long."""

    columns: Columns = field(repr=False)
    ids: Any = field(default=None, repr=False)  # an Arrow array
    id_type: Any = field(default=None, repr=False)

    def shares(self) -> Iterator[Share]:
        for part, rows in equal_parts(len(self.columns[0])):
            yield part, partial(self._read, rows)

    def _read(self, rows: slice) -> list[Piece]:
        columns = [column[rows] for column in self.columns]
        if self.ids is None:
            return [Piece(columns)]
        from veilmap.engines.units import read_ids

        return [Piece(columns, read_ids(self.ids[rows]))]


def open_array(points: object, domain: Domain, unit: object = None) -> ArrayEngine:
    """An (n, d) array or nested list of numbers, or a flat one for a single axis; ``unit`` has an id for each."""
    array = _as_numbers(points)
    if array.ndim == 1 and (domain.dimensions == 1 or not array.size):
        array = array.reshape(-1, domain.dimensions)
    if array.ndim != 2 or array.shape[1] != domain.dimensions:
        columns = array.shape[1] if array.ndim == 2 else f"{array.ndim} dimensions and not 2"
        names = ", ".join(domain.names)
        raise BadInput(f"Points for {domain.dimensions} axes ({names}) must have a column for each, got {columns}.")
    columns = [array[:, a] for a in range(domain.dimensions)]
    return ArrayEngine(columns) if unit is None else ArrayEngine(columns, *_read_unit(unit, len(array)))


def _read_unit(unit: object, rows: int) -> tuple[Any, Any]:
    """A column of ids, and the type they are compared in."""
    if isinstance(unit, str):
        raise BadInput(
            f"Points without named columns have no column {unit!r}: give the unit as a list of ids, one a row, "
            "or the points as a data frame."
        )
    # Arrays without a unit need no pyarrow.
    from veilmap.engines.units import SIMPLE, as_column, id_type

    sentence = f"The unit must be a list of ids, one a row, that are {SIMPLE}: convert them to text."
    ids = guard(lambda: as_column(unit), sentence)
    if (kind := id_type(ids.type)) is None:
        raise UnreadableInput(sentence)
    if len(ids) != rows:
        raise BadInput("The unit must have one id for each row of the points, and has more or fewer: make them match.")
    return ids, kind


def _as_numbers(points: object) -> NDArray[np.generic]:
    array = _convert(points)
    if array is not None and array.dtype.kind in "iuf":
        return array
    if isinstance(points, list | tuple):
        raise BadInput("A list of points must hold one list of numbers a point, all equally long, or only paths.")
    if isinstance(points, np.ndarray):
        kind = points.dtype.type.__name__.rstrip("_")  # without the length of the longest text
        raise BadInput(f"Points must be numbers, got an array of type {kind}: convert it to float.")
    raise BadInput(
        f"Points are an array, a data frame, or the path of a file or a list of paths; got {type(points).__name__}."
    )


def _convert(points: object) -> NDArray[np.generic] | None:
    """An array, None if it cannot be: what numpy says then may quote a value, or how many rows there are."""
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

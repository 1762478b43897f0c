"""Points that are already in memory as numbers without names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from veilmap.domain import Domain
from veilmap.engines.batches import Columns, LocalEngine, Share, equal_parts
from veilmap.errors import BadInput


@dataclass(frozen=True, slots=True)
class ArrayEngine(LocalEngine):
    """One array an axis, all of one length."""

    columns: Columns = field(repr=False)

    def _shares(self) -> Iterator[Share]:
        for part, rows in equal_parts(len(self.columns[0])):
            yield part, partial(self._read, rows)

    def _read(self, rows: slice) -> list[Columns]:
        return [[column[rows] for column in self.columns]]


def open_array(points: object, domain: Domain) -> ArrayEngine:
    """An (n, d) array or nested list of numbers, or a flat one for a single axis."""
    array = _as_numbers(points)
    if array.ndim == 1 and (domain.dimensions == 1 or not array.size):
        array = array.reshape(-1, domain.dimensions)
    if array.ndim != 2 or array.shape[1] != domain.dimensions:
        columns = array.shape[1] if array.ndim == 2 else f"{array.ndim} dimensions and not 2"
        names = ", ".join(domain.names)
        raise BadInput(f"Points for {domain.dimensions} axes ({names}) must have a column for each, got {columns}.")
    return ArrayEngine([array[:, a] for a in range(domain.dimensions)])


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

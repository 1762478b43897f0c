"""Points that are already in memory as numpy arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veilmap.domain import Domain
from veilmap.engines.batches import Columns, count_batches
from veilmap.errors import BadInput
from veilmap.tree import RegularTree

ROWS_A_BATCH = 1 << 18


@dataclass(frozen=True, slots=True)
class ArrayEngine:
    """One array an axis, all of one length."""

    columns: Columns = field(repr=False)

    def count_leaves(self, domain: Domain, tree: RegularTree, progress: Callable[[float], None]) -> NDArray[np.int64]:
        rows = len(self.columns[0])
        starts = range(0, rows, ROWS_A_BATCH)
        batches = (lambda s=s: [c[s : s + ROWS_A_BATCH] for c in self.columns] for s in starts)
        return count_batches(domain, tree, batches)


def open_array(points: NDArray[np.generic], domain: Domain) -> ArrayEngine:
    """An (n, d) array, or a flat one for a single axis."""
    if points.dtype.kind not in "iuf":
        raise BadInput(f"Points must be numbers, got an array of type {points.dtype}: convert it to float.")
    if points.ndim == 1 and domain.dimensions == 1:
        points = points[:, None]
    if points.ndim != 2 or points.shape[1] != domain.dimensions:
        columns = points.shape[1] if points.ndim == 2 else f"{points.ndim} dimensions and not 2"
        raise BadInput(
            f"Points for {domain.dimensions} axes ({', '.join(domain.names)}) must have a column for each, got {columns}."
        )
    return ArrayEngine([points[:, a] for a in range(domain.dimensions)])

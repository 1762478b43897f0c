"""The table that an export writes: one row per leaf or hexagon, with its estimate and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilmap.answers.leaf_table import leaf_table
from veilmap.arrays import Floats
from veilmap.geography.crs import Ground
from veilmap.releases.release import Release
from veilmap.releases.release_file import rectangles

ROWS_PER_BATCH = 1 << 16


@dataclass(frozen=True, eq=False)
class ExportTable:
    """Columns that locate each area, its numbers, and its polygon if the release has two axes."""

    location: dict[str, NDArray[Any]]
    count: Floats
    stderr: Floats
    low: Floats
    high: Floats
    density: Floats
    polygons: Callable[[slice], pa.Array]  # makes the WKB of some rows, when their batch is written
    geometry_type: str = "Polygon"

    def batches(self, private: bool, geometry: bool, progress: Callable[[float], None]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches; if the release is not private, a column says so in every row."""
        for start in range(0, max(len(self.count), 1), ROWS_PER_BATCH):
            rows = slice(start, start + ROWS_PER_BATCH)
            columns: dict[str, Any] = {} if geometry else {name: part[rows] for name, part in self.location.items()}
            if geometry and "h3" in self.location:
                columns["h3"] = self.location["h3"][rows]
            for name in ("count", "stderr", "low", "high", "density"):
                columns[name] = getattr(self, name)[rows]
            if not private:
                columns["private"] = np.zeros(len(columns["count"]), np.bool_)
            if geometry:
                columns["geometry"] = self.polygons(rows)
            yield pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()})
            progress(min(1.0, (start + ROWS_PER_BATCH) / max(len(self.count), 1)))


def leaf_rows(release: Release, confidence: float) -> ExportTable:
    """Return the leaves, without those whose box is empty. Boxes of a Hilbert R-tree may overlap."""
    domain = release.domain
    table = leaf_table(
        domain, release.estimates, consistent=release.consistent, gaussian=release.gaussian, skip_empty_boxes=True
    )
    lo, hi = table.lo, table.hi
    location = {f"{name}_low": lo[:, a] for a, name in enumerate(domain.names)}
    location |= {f"{name}_high": hi[:, a] for a, name in enumerate(domain.names)}
    size = Ground(domain).areas(lo, hi) if domain.dimensions == 2 else np.prod(hi - lo, axis=1)

    def polygons(rows: slice) -> pa.Array:
        return rectangles(lo[rows, 0], lo[rows, 1], hi[rows, 0], hi[rows, 1])

    intervals = table.intervals(confidence)
    return ExportTable(location, table.estimate, table.stderr, *intervals, table.estimate / size, polygons)


def layer_description(release: Release) -> str:
    """Return the privacy statement, followed by what the numbers mean."""
    domain = release.domain
    unit = Ground(domain).area_unit if domain.dimensions == 2 else f"unit of {' × '.join(domain.names)}"
    return f"{release.privacy.statement()} Counts are estimates of rows; density is per {unit}."

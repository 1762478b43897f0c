"""The cells of a release, with their estimates and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilmap.answers.answerer import noise_intervals
from veilmap.arrays import Floats
from veilmap.estimate.least_squares import standard_errors
from veilmap.geography.crs import Ground
from veilmap.releases.release import Release
from veilmap.releases.release_file import rectangles

A_BATCH = 1 << 16


@dataclass(frozen=True, eq=False)
class Cells:
    """Columns that say where cells are, numbers of each, and their polygons where there is a map."""

    places: dict[str, NDArray[Any]]
    count: Floats
    stderr: Floats
    low: Floats
    high: Floats
    density: Floats
    shapes: Callable[[slice], pa.Array] | None
    kind: str = "Polygon"

    def batches(self, private: bool, geometry: bool, progress: Callable[[float], None]) -> Iterator[pa.RecordBatch]:
        """Tables of some cells each. What is not private says so in every row."""
        for start in range(0, max(len(self.count), 1), A_BATCH):
            some = slice(start, start + A_BATCH)
            columns: dict[str, Any] = {} if geometry else {name: place[some] for name, place in self.places.items()}
            if geometry and "h3" in self.places:
                columns["h3"] = self.places["h3"][some]
            for name in ("count", "stderr", "low", "high", "density"):
                columns[name] = getattr(self, name)[some]
            if not private:
                columns["private"] = np.zeros(len(columns["count"]), np.bool_)
            if geometry and self.shapes is not None:
                columns["geometry"] = self.shapes(some)
            yield pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()})
            progress(min(1.0, (start + A_BATCH) / max(len(self.count), 1)))


def cells_of(release: Release, confidence: float) -> Cells:
    """Of leaves; those without room are left out. Boxes of a Hilbert R-tree may overlap."""
    tree, domain, nodes = release.estimates.tree, release.domain, release.estimates
    leaves = np.flatnonzero(tree.is_leaf & np.all(tree.lo < tree.hi, axis=1))
    count, stderr = nodes.estimate[leaves], standard_errors(nodes, release.consistent)[leaves]
    axes = range(domain.dimensions)
    lo, hi = (np.stack([domain.edges(ends[leaves, a], a) for a in axes], axis=1) for ends in (tree.lo, tree.hi))
    places = {f"{name}_low": lo[:, a] for a, name in enumerate(domain.names)}
    places |= {f"{name}_high": hi[:, a] for a, name in enumerate(domain.names)}
    size = Ground(domain).areas(lo, hi) if domain.dimensions == 2 else np.prod(hi - lo, axis=1)

    def shapes(some: slice) -> pa.Array:
        return rectangles(lo[some, 0], lo[some, 1], hi[some, 0], hi[some, 1])

    ends = noise_intervals(count, stderr, confidence, release.gaussian)
    return Cells(places, count, stderr, *ends, count / size, shapes)


def meaning(release: Release) -> str:
    """What the numbers are, after what is promised of them."""
    domain = release.domain
    unit = Ground(domain).area_unit if domain.dimensions == 2 else f"unit of {' × '.join(domain.names)}"
    return f"{release.privacy.statement()} Counts are estimates of rows; density is per {unit}."

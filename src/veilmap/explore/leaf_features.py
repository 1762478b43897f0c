"""The leaves of a release as GeoJSON features in longitude and latitude, for OGC API - Features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from veilmap.answers.leaf_table import LeafTable, Rows, leaf_table
from veilmap.arrays import Floats, Ints
from veilmap.errors import BadInput
from veilmap.explore.projection import Plane
from veilmap.releases.release import Release

CONFIDENCE = 0.95  # of the intervals: a request for features has no parameter for it


@dataclass(frozen=True, eq=False)
class LeafFeatures:
    """Every leaf: its polygon in degrees, and the estimate of its count. A feature's id is its row in the table."""

    release: Release
    plane: Plane

    def __len__(self) -> int:
        return int(self.release.estimates.tree.is_leaf.sum())  # cheaper than the table, which may not exist yet

    @cached_property
    def _table(self) -> LeafTable:
        release = self.release
        return leaf_table(release.domain, release.estimates, consistent=release.consistent, gaussian=release.gaussian)

    def _rings(self, rows: Rows) -> Floats:
        """Return (rows, 5, 2): longitudes and latitudes of the corners, counter-clockwise and closed."""
        (west, south), (east, north) = (ends[rows].T for ends in (self._table.lo, self._table.hi))
        x, y = np.stack([west, east, east, west, west], axis=1), np.stack([south, south, north, north, south], axis=1)
        if not self.plane.globe:
            degrees = self.plane.ground.from_lon_lat().transform(x.ravel(), y.ravel(), direction="INVERSE")
            x, y = (np.asarray(coordinates).reshape(x.shape) for coordinates in degrees)
        return np.stack([x, y], axis=2)

    @cached_property
    def _bounds(self) -> tuple[Floats, Floats]:
        """The low and the high corner of each leaf's bounding box, in degrees."""
        if self.plane.globe:
            return self._table.lo, self._table.hi
        rings = self._rings(slice(None))
        return rings.min(axis=1), rings.max(axis=1)

    @property
    def extent(self) -> list[float]:
        """The bounding box of all leaves: west, south, east, north."""
        low, high = self._bounds
        return [*low.min(axis=0).tolist(), *high.max(axis=0).tolist()]

    def touching(self, bounds: tuple[float, float, float, float] | None) -> Ints:
        """Return the ids of the leaves that touch a bounding box in degrees; one with west > east crosses 180°."""
        if bounds is None:
            return np.arange(len(self))
        west, south, east, north = bounds
        low, high = self._bounds
        if west <= east:
            overlaps = (low[:, 0] <= east) & (high[:, 0] >= west)
        else:
            overlaps = (low[:, 0] <= east) | (high[:, 0] >= west)
        return np.flatnonzero(overlaps & (low[:, 1] <= north) & (high[:, 1] >= south))

    def features(self, ids: Ints) -> list[dict[str, Any]]:
        """Return these leaves as GeoJSON features."""
        table = self._table
        columns = (table.estimate[ids], table.stderr[ids], *table.intervals(CONFIDENCE, ids))
        rows = zip(ids.tolist(), self._rings(ids).tolist(), *map(_json_numbers, columns), strict=True)
        return [
            {
                "type": "Feature",
                "id": leaf,
                "geometry": {"type": "Polygon", "coordinates": [ring]},
                "properties": {"cell": leaf, "estimate": estimate, "stderr": stderr, "low": low, "high": high},
            }
            for leaf, ring, estimate, stderr, low, high in rows
        ]


def leaf_features(release: Release, plane: Plane | None) -> LeafFeatures:
    """Return the leaves of a release with two axes whose place on the globe is known."""
    domain = release.domain
    if plane is None or domain.dimensions != 2:
        raise BadInput(f"Leaves on a map need a release with two axes; this one has {domain.dimensions}.")
    if not plane.globe and plane.ground.from_lon_lat() is None:
        raise BadInput(
            "GIS programs need coordinates in degrees, and it is not known where on the globe these axes lie. "
            "Make the release with --crs, and install veilmap[geo]."
        )
    return LeafFeatures(release, plane)


def _json_numbers(values: Floats) -> list[float | None]:
    """Return the values as a list with null for those that JSON cannot hold: infinite or not a number."""
    return [value if math.isfinite(value) else None for value in values.tolist()]

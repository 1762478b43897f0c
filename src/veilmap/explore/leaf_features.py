"""The leaves of a release as features, page by page, for programs that speak OGC API - Features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from veilmap.answers.answerer import noise_intervals
from veilmap.arrays import Floats, Ints
from veilmap.errors import BadInput
from veilmap.estimate.least_squares import standard_errors
from veilmap.explore.projection import Plane
from veilmap.releases.release import Release

CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
CONFORMS = tuple(
    f"http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/{part}" for part in ("core", "geojson", "oas30")
)
NAME = "cells"
CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class Cells:
    """Every leaf: its box, and the answer to the question how many points it holds."""

    release: Release
    plane: Plane

    @cached_property
    def leaves(self) -> Ints:
        return np.flatnonzero(self.release.estimates.tree.is_leaf)

    @cached_property
    def _ends(self) -> tuple[Floats, Floats]:
        """(leaves, 2) each: from where to where they reach, in the release's own plane."""
        tree, domain = self.release.estimates.tree, self.release.domain
        low, high = (
            np.stack([domain.edges(ends[self.leaves, a], a) for a in (0, 1)], axis=1) for ends in (tree.lo, tree.hi)
        )
        return low, high

    def _rings(self, chosen: Ints | slice) -> Floats:
        """(cells, 5, 2): longitudes and latitudes of the corners, counter-clockwise and closed."""
        (west, south), (east, north) = (ends[chosen].T for ends in self._ends)
        x, y = np.stack([west, east, east, west, west], axis=1), np.stack([south, south, north, north, south], axis=1)
        if not self.plane.globe:
            degrees = self.plane.ground.from_lon_lat().transform(x.ravel(), y.ravel(), direction="INVERSE")
            x, y = (np.asarray(part).reshape(x.shape) for part in degrees)
        return np.stack([x, y], axis=2)

    @cached_property
    def _bounds(self) -> tuple[Floats, Floats]:
        """The same as ``_ends`` in degrees."""
        if self.plane.globe:
            return self._ends
        rings = self._rings(slice(None))
        return rings.min(axis=1), rings.max(axis=1)

    @cached_property
    def _stderr(self) -> Floats:
        return standard_errors(self.release.estimates, self.release.consistent)

    @property
    def extent(self) -> list[float]:
        low, high = self._bounds
        return [*low.min(axis=0).tolist(), *high.max(axis=0).tolist()]

    def near(self, bounds: tuple[float, float, float, float] | None) -> Ints:
        """The numbers of the cells that touch a box of longitudes and latitudes; one with west > east crosses 180°."""
        if bounds is None:
            return np.arange(len(self.leaves))
        west, south, east, north = bounds
        low, high = self._bounds
        if west <= east:
            across = (low[:, 0] <= east) & (high[:, 0] >= west)
        else:
            across = (low[:, 0] <= east) | (high[:, 0] >= west)
        return np.flatnonzero(across & (low[:, 1] <= north) & (high[:, 1] >= south))

    def features(self, chosen: Ints) -> list[dict[str, Any]]:
        nodes, leaf = self.release.estimates, self.leaves[chosen]
        estimate, stderr = nodes.estimate[leaf], self._stderr[leaf]
        columns = (estimate, stderr, *noise_intervals(estimate, stderr, CONFIDENCE, self.release.gaussian))
        rows = zip(chosen.tolist(), self._rings(chosen).tolist(), *map(_listed, columns), strict=True)
        return [
            {
                "type": "Feature",
                "id": number,
                "geometry": {"type": "Polygon", "coordinates": [ring]},
                "properties": {"cell": number, "estimate": held, "stderr": error, "low": low, "high": high},
            }
            for number, ring, held, error, low, high in rows
        ]


def cells_of(release: Release, plane: Plane | None) -> Cells:
    """The cells, if they can be put on a globe."""
    domain = release.domain
    if plane is None or domain.dimensions != 2:
        raise BadInput(f"Cells on a map need a release with two axes, this one has {domain.dimensions}.")
    if not plane.globe and plane.ground.from_lon_lat() is None:
        raise BadInput(
            "Other programs are told places in degrees, and nobody knows where on the globe these axes lie: "
            "release with --crs, and install veilmap[geo]."
        )
    return Cells(release, plane)


def _listed(values: Floats) -> list[float | None]:
    """JSON has no word for what is infinite or unknown."""
    return [value if math.isfinite(value) else None for value in values.tolist()]

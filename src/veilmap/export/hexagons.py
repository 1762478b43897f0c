"""Counts in the hexagons of H3."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilmap.arrays import Floats, Ints
from veilmap.domain import Domain
from veilmap.errors import BadInput, need
from veilmap.export.leaves import ExportTable
from veilmap.geography.crs import Ground
from veilmap.releases.release import Release

MAX_RESOLUTION = 15  # the finest that H3 has
MAX_HEXAGONS = 200_000
MAX_DEGREES_PER_PIECE = 30.0  # H3 takes a polygon that is wider than 180° for what lies outside it
POLYGON_TYPE_ID = 3  # of shapely
FULL_TURNS_DEGREES = (-720, -360, 0, 360)


def hexagon_rows(release: Release, resolution: int, confidence: float) -> ExportTable:
    """Return every hexagon that meets the domain, clipped to the domain so that counts add up to the total."""
    h3 = need("h3", "h3", "Counting in hexagons")
    shapely = need("shapely", "geo", "Counting in hexagons")
    ground, domain = Ground(release.domain), release.domain
    if domain.dimensions != 2 or not ground.lon_lat:
        raise BadInput("Hexagons of H3 need two axes that are longitude and latitude. Export leaves instead.")
    if not (isinstance(resolution, int) and 0 <= resolution <= MAX_RESOLUTION):
        raise BadInput(f"A resolution of H3 must be a whole number from 0 to {MAX_RESOLUTION}, got {resolution!r}.")
    domain_km2 = float(ground.areas(domain.lo[None], domain.hi[None])[0])
    expected = domain_km2 / h3.average_hexagon_area(resolution, "km^2")
    if expected > MAX_HEXAGONS:
        raise BadInput(
            f"Resolution {resolution} would make about {expected:,.0f} hexagons; the limit is {MAX_HEXAGONS:,}. "
            "Choose a coarser resolution."
        )
    names = np.array(sorted(_hexagon_names(h3, domain, resolution)))
    whole = np.array([shapely.Polygon(_ring(h3, name)) for name in names], dtype=object)
    clipped, kept = _clip(shapely, whole, domain)
    names, fraction = names[kept], shapely.area(clipped) / shapely.area(whole[kept])
    answers = release.count(clipped, confidence)
    km2 = fraction * np.array([h3.cell_area(name, "km^2") for name in names])
    numbers = answers.estimate, answers.stderr, answers.low, answers.high, answers.estimate / km2
    wkb = shapely.to_wkb(clipped)
    return ExportTable({"h3": names}, *numbers, lambda rows: pa.array(wkb[rows]), "MultiPolygon")


def _hexagon_names(h3: Any, domain: Domain, resolution: int) -> set[str]:
    """Return the names of the hexagons that meet the domain, found piece by piece."""
    names: set[str] = set()
    x, y = (np.linspace(a.lo, a.hi, int((a.hi - a.lo) / MAX_DEGREES_PER_PIECE) + 2) for a in domain.axes)
    for west, east in pairwise(x.tolist()):
        for south, north in pairwise(y.tolist()):
            corners = [(south, west), (south, east), (north, east), (north, west)]
            wrapped = [(lat, (lon + 180) % 360 - 180 if abs(lon) > 180 else lon) for lat, lon in corners]
            names.update(h3.h3shape_to_cells_experimental(h3.LatLngPoly(wrapped), resolution, contain="overlap"))
    return names


def _ring(h3: Any, name: str) -> Floats:
    """Return a hexagon's corners as (longitude, latitude).

    Longitudes continue beyond 180° if the hexagon crosses the date line. A hexagon around a pole gets an edge along it.
    """
    ring = np.array(h3.cell_to_boundary(name))[:, ::-1]
    if np.ptp(ring[:, 0]) < 180:
        return ring
    longitudes = np.unwrap(np.append(ring[:, 0], ring[0, 0]), period=360)
    ring = np.column_stack([longitudes[:-1], ring[:, 1]])
    if abs(longitudes[-1] - longitudes[0]) < 180:
        return ring
    pole = 90.0 if ring[:, 1].mean() > 0 else -90.0
    return np.vstack([ring, [longitudes[-1], ring[0, 1]], [longitudes[-1], pole], [longitudes[0], pole]])


def _clip(shapely: Any, whole: NDArray[Any], domain: Domain) -> tuple[NDArray[Any], Ints]:
    """Clip hexagons to the domain, also after full turns around the Earth.

    Returns the clipped hexagons that have an area, and their indices in ``whole``.
    """
    turned = [
        shapely.transform(whole, lambda corners, turn=turn: corners + np.array([turn, 0.0]))
        for turn in FULL_TURNS_DEGREES
    ]
    pieces, source = shapely.get_parts(
        shapely.clip_by_rect(np.concatenate(turned), *domain.lo, *domain.hi), return_index=True
    )
    has_area = (shapely.get_type_id(pieces) == POLYGON_TYPE_ID) & (shapely.area(pieces) > 0)
    pieces, source = pieces[has_area], source[has_area] % len(whole)
    order = np.argsort(source, kind="stable")
    kept, index = np.unique(source[order], return_inverse=True)
    clipped = shapely.multipolygons(pieces[order], indices=index)
    for k in np.flatnonzero(shapely.get_num_geometries(clipped) > 1):  # around a pole, pieces share an edge
        clipped[k] = shapely.multipolygons(shapely.get_parts(shapely.union_all(clipped[k])))
    return clipped, kept

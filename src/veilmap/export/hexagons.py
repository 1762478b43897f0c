"""Hexagons of H3, counted as polygons."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilmap.arrays import Floats, Ints
from veilmap.domain import Domain
from veilmap.errors import BadInput, need
from veilmap.export.leaves import Cells
from veilmap.geography.crs import Ground
from veilmap.releases.release import Release

FINEST = 15
MOST_HEXAGONS = 200_000
A_PIECE = 30.0  # degrees: H3 takes boxes that are too wide for what is outside them


def hexagons_of(release: Release, resolution: int, confidence: float) -> Cells:
    """Every hexagon that meets the domain; what lies outside is not counted, so that counts add up."""
    h3 = need("h3", "h3", "Counting in hexagons")
    shapely = need("shapely", "geo", "Counting in hexagons")
    ground, domain = Ground(release.domain), release.domain
    if domain.dimensions != 2 or not ground.lon_lat:
        raise BadInput("Hexagons of H3 need axes that are longitude and latitude: export cells instead.")
    if not (isinstance(resolution, int) and 0 <= resolution <= FINEST):
        raise BadInput(f"A resolution of H3 is a number from 0 to {FINEST}, got {resolution!r}.")
    about = float(ground.areas(domain.lo[None], domain.hi[None])[0]) / h3.average_hexagon_area(resolution, "km^2")
    if about > MOST_HEXAGONS:
        raise BadInput(
            f"Resolution {resolution} makes about {about:,.0f} hexagons, and there may be {MOST_HEXAGONS:,}: "
            "choose a coarser one."
        )
    names = np.array(sorted(_covering(h3, domain, resolution)))
    whole = np.array([shapely.Polygon(_ring(h3, name)) for name in names], dtype=object)
    inside, of = _clipped(shapely, whole, domain)
    names, part = names[of], shapely.area(inside) / shapely.area(whole[of])
    answers = release.count(inside, confidence)
    size = part * np.array([h3.cell_area(name, "km^2") for name in names])
    numbers = answers.estimate, answers.stderr, answers.low, answers.high
    shapes = shapely.to_wkb(inside)
    return Cells({"h3": names}, *numbers, answers.estimate / size, lambda some: pa.array(shapes[some]), "MultiPolygon")


def _covering(h3: Any, domain: Domain, resolution: int) -> set[str]:
    """The names of hexagons that meet the domain, a piece after the other."""
    found: set[str] = set()
    x, y = (np.linspace(a.lo, a.hi, int((a.hi - a.lo) / A_PIECE) + 2) for a in domain.axes)
    for west, east in pairwise(x.tolist()):
        for south, north in pairwise(y.tolist()):
            corners = [(south, west), (south, east), (north, east), (north, west)]
            turned = [(lat, (lon + 180) % 360 - 180 if abs(lon) > 180 else lon) for lat, lon in corners]
            found.update(h3.h3shape_to_cells_experimental(h3.LatLngPoly(turned), resolution, contain="overlap"))
    return found


def _ring(h3: Any, name: str) -> Floats:
    """Its corners, longitude first: beyond 180 degrees where it lies across, and along the pole that it lies around."""
    ring = np.array(h3.cell_to_boundary(name))[:, ::-1]
    if np.ptp(ring[:, 0]) < 180:
        return ring
    around = np.unwrap(np.append(ring[:, 0], ring[0, 0]), period=360)
    ring = np.column_stack([around[:-1], ring[:, 1]])
    if abs(around[-1] - around[0]) < 180:
        return ring
    pole = 90.0 if ring[:, 1].mean() > 0 else -90.0
    return np.vstack([ring, [around[-1], ring[0, 1]], [around[-1], pole], [around[0], pole]])


def _clipped(shapely: Any, whole: NDArray[Any], domain: Domain) -> tuple[NDArray[Any], Ints]:
    """What of each lies in the domain, once around the Earth or not; and which they are, where something does."""
    turned = [shapely.transform(whole, lambda at, by=by: at + np.array([by, 0.0])) for by in (-720, -360, 0, 360)]
    pieces, of = shapely.get_parts(
        shapely.clip_by_rect(np.concatenate(turned), *domain.lo, *domain.hi), return_index=True
    )
    solid = (shapely.get_type_id(pieces) == 3) & (shapely.area(pieces) > 0)
    pieces, of = pieces[solid], of[solid] % len(whole)
    order = np.argsort(of, kind="stable")
    which, place = np.unique(of[order], return_inverse=True)
    inside = shapely.multipolygons(pieces[order], indices=place)
    for k in np.flatnonzero(shapely.get_num_geometries(inside) > 1):  # around a pole, pieces meet
        inside[k] = shapely.multipolygons(shapely.get_parts(shapely.union_all(inside[k])))
    return inside, which

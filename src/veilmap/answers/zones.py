"""Check the polygons of a query and express them as edges in cells of the domain."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from veilmap.arrays import Floats, Ints
from veilmap.domain import Domain
from veilmap.errors import BadInput, UnreadableInput, need
from veilmap.geography.crs import Ground, crs_of
from veilmap.kernels import box_walks as kernel

T = TypeVar("T")

POLYGON_TYPE_ID = 3
MULTIPOLYGON_TYPE_ID = 6
MISSING_TYPE_ID = -1  # None, which counts as an empty zone
ZONE_TYPE_IDS = (POLYGON_TYPE_ID, MULTIPOLYGON_TYPE_ID, MISSING_TYPE_ID)
"""The type ids, as shapely numbers them, that a zone may have."""


@dataclass(frozen=True, slots=True)
class Zones:
    """Polygons as directed edges in cells of the domain, with the interior on the right of each edge.

    Zones are clipped to the domain.
    """

    edges: Floats  # (edges, 4): x and y from, x and y to
    start: Ints  # zone q has the edges start[q] : start[q + 1]
    faces: Floats  # (zones, axes): length of the border across each axis, as a fraction; without the domain's border


def are_zones(query: object) -> bool:
    """Return whether a query is a geometry, or a list, array, GeoSeries or GeoDataFrame of geometries."""
    if hasattr(query, "geom_type"):
        return True
    is_many = isinstance(query, (list, tuple)) or getattr(query, "dtype", None) == np.dtype(object)
    items: Any = query if is_many else ()
    return hasattr(next((item for item in items if item is not None), None), "geom_type")


def checked_zones(query: Any, domain: Domain) -> Zones:
    """Check the polygons of a query and return their edges: x along the first axis of the domain, y along the second.

    Raises ``BadInput`` if the domain does not have two axes, or if a zone is not a valid polygon.
    """
    shapely = need("shapely", "geo", "Counting in polygons")
    if domain.dimensions != 2:
        raise BadInput(
            f"Polygon queries need a release with two axes, but this one has {domain.dimensions}. Query boxes instead."
        )
    geometry = getattr(query, "geometry", query)  # the active geometry column of a GeoDataFrame
    if getattr(geometry, "crs", None) is not None:
        geometry = reprojected(geometry, domain)
    zones = np.asarray(geometry, dtype=object).ravel()
    with np.errstate(all="ignore"):  # GEOS triggers numpy warnings about NaN
        _must_be_polygons(shapely, zones)
        return _edges(shapely, _clipped(shapely, zones, domain), domain)


def _clipped(shapely: Any, zones: NDArray[Any], domain: Domain) -> NDArray[Any]:
    """Return the zones clipped to the domain."""
    bounds = shapely.bounds(zones)
    sticks_out = np.any(bounds[:, :2] < domain.lo, axis=1) | np.any(bounds[:, 2:] > domain.hi, axis=1)
    if not sticks_out.any():
        return zones
    out = zones.copy()
    exact = shapely.set_precision(zones[sticks_out], 0)  # a zone's own precision would round the new corners
    out[sticks_out] = quietly(
        lambda: shapely.intersection(exact, shapely.box(*domain.lo, *domain.hi)),
        "The zones cannot be clipped to the domain. Give them in the coordinates of the domain.",
    )
    return out


def _must_be_polygons(shapely: Any, zones: NDArray[Any]) -> None:
    for q, zone in enumerate(zones):
        if not (zone is None or hasattr(zone, "geom_type")):
            raise BadInput(f"Zone {q} is not a geometry but a {type(zone).__name__}. Give polygons only.")
    bad = np.flatnonzero(~np.isin(shapely.get_type_id(zones), ZONE_TYPE_IDS))
    if len(bad):
        kind = zones[bad[0]].geom_type
        raise BadInput(f"Zones must be Polygons or MultiPolygons, but zone {bad[0]} is a {kind}. Leave it out.")
    bad = np.flatnonzero(~(shapely.is_valid(zones) | shapely.is_missing(zones)))
    if len(bad):
        raise BadInput(
            f"Zone {bad[0]} is not a valid polygon ({shapely.is_valid_reason(zones[bad[0]])}). "
            "Repair it with shapely.make_valid or the option --make-valid."
        )


def reprojected(zones: Any, domain: Domain) -> Any:
    """Return zones in the domain's coordinate system, x before y. Corners are moved; edges between them stay straight.

    The zones are returned unchanged if the domain's coordinate system is not known.
    """
    crs = "OGC:CRS84" if domain.crs is None and Ground(domain).lon_lat else domain.crs
    if crs is None:
        return zones
    target = crs_of(crs)
    if target.equals(zones.crs, ignore_axis_order=True):
        return zones
    moved = quietly(
        lambda: zones.to_crs(target), f"The zones cannot be reprojected to {crs}, the domain's coordinate system."
    )
    has_place = np.isfinite(moved.bounds.to_numpy()).all(axis=1) | (moved.is_empty | moved.isna()).to_numpy()
    if not has_place.all():
        lost = int(np.argmin(has_place))
        raise BadInput(
            f"Zone {lost} has corners that do not exist in {crs}, the domain's coordinate system. Leave it out."
        )
    return moved


def quietly(work: Callable[[], T], message: str) -> T:
    """Return the result of a library call without its warnings; raise ``UnreadableInput(message)`` if it fails.

    Errors and warnings of libraries may quote the file's content, so they are never shown.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work()
    except MemoryError:
        raise
    except Exception:
        raise UnreadableInput(message) from None


def _edges(shapely: Any, zones: NDArray[Any], domain: Domain) -> Zones:
    """Return the edges of zones that lie in the domain. Outer rings run clockwise, holes the other way."""
    polygons, zone = shapely.get_parts(zones, return_index=True)
    polygons, again = shapely.get_parts(polygons, return_index=True)  # clipping may nest parts in a collection
    zone = zone[again]
    has_area = shapely.get_dimensions(polygons) == 2
    polygons, zone = polygons[has_area], zone[has_area]
    rings, polygon = shapely.get_rings(polygons, return_index=True)
    corners, ring = shapely.get_coordinates(rings, return_index=True)
    outer = np.diff(polygon, prepend=-1) > 0
    places = np.empty(corners.shape)
    kernel.place_points(corners, domain.lo, domain.hi, domain.side, places)
    edge_starts = np.flatnonzero(ring[1:] == ring[:-1])
    edges, ring = np.concatenate([places[edge_starts], places[edge_starts + 1]], axis=1), ring[edge_starts]
    to_reverse = (shapely.is_ccw(rings) == outer)[ring]
    edges[to_reverse] = edges[to_reverse][:, [2, 3, 0, 1]]
    zone, number = zone[polygon[ring]], len(zones)
    start = np.concatenate([[0], np.cumsum(np.bincount(zone, minlength=number))])
    lo, hi = np.minimum(edges[:, :2], edges[:, 2:]), np.maximum(edges[:, :2], edges[:, 2:])
    inside = (hi > 0) & (lo < 1)  # edges on the domain's own border cut no leaf
    faces = [np.bincount(zone, (hi - lo)[:, 1 - k] * inside[:, k], number) for k in range(2)]
    return Zones(edges * domain.side, start, np.stack(faces, axis=1))

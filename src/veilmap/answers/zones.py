"""The polygons that people ask, checked and put in their place."""

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

POLYGON, MULTIPOLYGON, NONE = 3, 6, -1
"""What shapely calls the kinds of geometry that are zones; nothing at all is an empty one."""


@dataclass(frozen=True, slots=True)
class Zones:
    """Polygons as edges in cells of the domain, what they hold on the right; those of zone q are start[q]:start[q+1].

    Zones are cut off where the domain ends.
    """

    edges: Floats
    start: Ints
    faces: Floats  # how long the borders of each are across each axis; those on the domain's own border cut nothing


def are_zones(asked: object) -> bool:
    """Whether someone asks for geometries: one, or a list, an array, a GeoSeries or a GeoDataFrame of them."""
    if hasattr(asked, "geom_type"):
        return True
    is_many = isinstance(asked, (list, tuple)) or getattr(asked, "dtype", None) == np.dtype(object)
    some: Any = asked if is_many else ()
    return hasattr(next((one for one in some if one is not None), None), "geom_type")


def checked_zones(asked: Any, domain: Domain) -> Zones:
    """Where the polygons of someone's question lie: x along the first axis of the domain, y along the second."""
    shapely = need("shapely", "geo", "Counting in polygons")
    if domain.dimensions != 2:
        raise BadInput(
            f"Polygons need a release with two axes, and this one has {domain.dimensions}: ask for boxes instead."
        )
    geometry = getattr(asked, "geometry", asked)  # of a GeoDataFrame, the column that holds its zones
    if getattr(geometry, "crs", None) is not None:
        geometry = reprojected(geometry, domain)
    zones = np.asarray(geometry, dtype=object).ravel()
    with np.errstate(all="ignore"):  # GEOS makes numpy warn of NaN
        _must_be_polygons(shapely, zones)
        return _edges(shapely, _cut_off(shapely, zones, domain), domain)


def _cut_off(shapely: Any, zones: NDArray[Any], domain: Domain) -> NDArray[Any]:
    """Zones without what lies outside the domain."""
    bounds = shapely.bounds(zones)
    sticks_out = np.any(bounds[:, :2] < domain.lo, axis=1) | np.any(bounds[:, 2:] > domain.hi, axis=1)
    if not sticks_out.any():
        return zones
    out = zones.copy()
    exact = shapely.set_precision(zones[sticks_out], 0)  # new corners are not rounded, though old ones were
    out[sticks_out] = quietly(
        lambda: shapely.intersection(exact, shapely.box(*domain.lo, *domain.hi)),
        "The zones cannot be cut off at the domain's border: give them in its own coordinates.",
    )
    return out


def _must_be_polygons(shapely: Any, zones: NDArray[Any]) -> None:
    for q, zone in enumerate(zones):
        if not (zone is None or hasattr(zone, "geom_type")):
            raise BadInput(f"Zone {q} is no geometry but {type(zone).__name__}: give polygons only.")
    bad = np.flatnonzero(~np.isin(shapely.get_type_id(zones), (POLYGON, MULTIPOLYGON, NONE)))
    if len(bad):
        kind = zones[bad[0]].geom_type
        raise BadInput(f"A zone is a Polygon or a MultiPolygon, and zone {bad[0]} is a {kind}: leave it out.")
    bad = np.flatnonzero(~(shapely.is_valid(zones) | shapely.is_missing(zones)))
    if len(bad):
        raise BadInput(
            f"Zone {bad[0]} is no valid polygon ({shapely.is_valid_reason(zones[bad[0]])}): mend it, as "
            "shapely.make_valid or the option --make-valid does."
        )


def reprojected(zones: Any, domain: Domain) -> Any:
    """Zones in the domain's coordinates, x before y: corner by corner, with straight lines between.

    As they are, if nobody knows what coordinates the domain has.
    """
    crs = "OGC:CRS84" if domain.crs is None and Ground(domain).lon_lat else domain.crs
    if crs is None:
        return zones
    wanted = crs_of(crs)
    if wanted.equals(zones.crs, ignore_axis_order=True):
        return zones
    moved = quietly(lambda: zones.to_crs(wanted), f"The zones cannot be brought into the domain's coordinates, {crs}.")
    there = np.isfinite(moved.bounds.to_numpy()).all(axis=1) | (moved.is_empty | moved.isna()).to_numpy()
    if not there.all():
        lost = int(np.argmin(there))
        raise BadInput(f"Zone {lost} has corners that are nowhere in {crs}, the domain's coordinates: leave it out.")
    return moved


def quietly(work: Callable[[], T], sentence: str) -> T:
    """What a library does; or, if it fails, a sentence. What it warns of is nobody's concern."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work()
    except MemoryError:
        raise
    except Exception:
        raise UnreadableInput(sentence) from None


def _edges(shapely: Any, zones: NDArray[Any], domain: Domain) -> Zones:
    parts, zone = shapely.get_parts(zones, return_index=True)
    parts, again = shapely.get_parts(parts, return_index=True)  # what was cut off may have come in a collection
    zone = zone[again]
    flat = shapely.get_dimensions(parts) == 2
    parts, zone = parts[flat], zone[flat]
    rings, part = shapely.get_rings(parts, return_index=True)
    corners, ring = shapely.get_coordinates(rings, return_index=True)
    outer = np.diff(part, prepend=-1) > 0
    places = np.empty(corners.shape)
    kernel.place_points(corners, domain.lo, domain.hi, domain.side, places)
    follows = np.flatnonzero(ring[1:] == ring[:-1])
    edges, ring = np.concatenate([places[follows], places[follows + 1]], axis=1), ring[follows]
    turned = (shapely.is_ccw(rings) == outer)[ring]
    edges[turned] = edges[turned][:, [2, 3, 0, 1]]
    zone, number = zone[part[ring]], len(zones)
    start = np.concatenate([[0], np.cumsum(np.bincount(zone, minlength=number))])
    lo, hi = np.minimum(edges[:, :2], edges[:, 2:]), np.maximum(edges[:, :2], edges[:, 2:])
    cuts = (hi > 0) & (lo < 1)
    faces = [np.bincount(zone, (hi - lo)[:, 1 - k] * cuts[:, k], number) for k in range(2)]
    return Zones(edges * domain.side, start, np.stack(faces, axis=1))

"""What two axes are on the ground: degrees, lengths, or units that nobody knows."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from veilmap.arrays import Floats
from veilmap.domain import Domain
from veilmap.errors import BadInput, need

LON_LAT = {"OGC:CRS84", "EPSG:4326"}  # what GeoParquet takes for granted
LONGITUDES = {"lon", "lng", "long", "longitude"}
LATITUDES = {"lat", "latitude"}
RADIUS = 6371.0072  # kilometres, of a sphere with the surface of the Earth
KNOTS = 33  # a side of the grid on which a projection's scale is looked up


def crs_of(name: str) -> Any:
    """The coordinate system of this name, as pyproj knows it."""
    pyproj = need("pyproj", "geo", f"The coordinate system {name}")
    try:
        return pyproj.CRS.from_user_input(name)
    except pyproj.exceptions.CRSError:
        raise BadInput(f"There is no coordinate system {name!r}: give a code like EPSG:3857, or none.") from None


def projjson(name: str) -> Any:
    return json.loads(crs_of(name).to_json())


@dataclass(frozen=True)
class Ground:
    """Where the first two axes of a domain lie.

    They are longitude and latitude if the domain's coordinate system is geographic, or if it has none and they are
    called so (``lon`` or ``longitude``, ``lat`` or ``latitude``, in this order); and if their ranges can be.
    """

    domain: Domain

    @cached_property
    def _crs(self) -> Any:
        """None where there is none, or nobody knows it."""
        try:
            return None if self.domain.crs is None else crs_of(self.domain.crs)
        except (BadInput, ImportError):
            return None

    @cached_property
    def lon_lat(self) -> bool:
        if self.domain.dimensions < 2:
            return False
        x, y = self.domain.axes[:2]
        named = x.name.lower() in LONGITUDES and y.name.lower() in LATITUDES
        turned = x.name.lower() in LATITUDES and y.name.lower() in LONGITUDES
        known = self.domain.crs in LON_LAT or (self._crs is not None and self._crs.is_geographic)
        can_be = max(-x.lo, x.hi, x.hi - x.lo) <= 360 and max(-y.lo, y.hi) <= 90
        return can_be and not turned and (named if self.domain.crs is None else known)

    @cached_property
    def kilometres(self) -> float | None:
        """In one unit of the plane, if that is a length."""
        if self.domain.dimensions < 2 or self._crs is None or not self._crs.is_projected:
            return None
        factors = {axis.unit_conversion_factor for axis in self._crs.axis_info[:2]}
        return factors.pop() / 1000 if len(factors) == 1 else None

    @property
    def unit(self) -> str | None:
        """Of both axes."""
        if self.lon_lat:
            return "degree"
        return None if self.kilometres is None else str(self._crs.axis_info[0].unit_name)

    @property
    def crs_name(self) -> str | None:
        """The coordinate system that other programs are told: longitude and latitude have one, named or not."""
        if self.lon_lat and (self.domain.crs is None or self.domain.crs in LON_LAT):
            return "EPSG:4326"
        # a file may say anything, and GDAL would fetch an address
        return None if self.domain.crs is None else str(crs_of(self.domain.crs).to_wkt())

    @property
    def area_unit(self) -> str:
        """Of ``areas``."""
        known = self.lon_lat or self.kilometres is not None
        return "km²" if known else f"unit of {' × '.join(self.domain.names[:2])}"

    def areas(self, lo: Floats, hi: Floats) -> Floats:
        """Of boxes from ``lo`` to ``hi``: square kilometres where that can be told, else the product of their sides."""
        sides = hi - lo
        if self.lon_lat:
            middle, half = np.radians((hi + lo)[:, 1] / 2), np.radians(sides[:, 1] / 2)
            return np.asarray(RADIUS**2 * np.radians(sides[:, 0]) * 2 * np.cos(middle) * np.sin(half))
        plane = sides[:, 0] * sides[:, 1]
        if self.kilometres is None:
            return np.asarray(plane)
        return np.asarray(plane * self.kilometres**2 / self._enlarged((lo + hi) / 2))

    def length(self) -> float | None:
        """Kilometres on the ground of one unit along the first axis, in the middle of the domain; None if unknown."""
        middle = (self.domain.lo + self.domain.hi)[:2] / 2
        if self.lon_lat:
            return math.radians(1) * RADIUS * math.cos(math.radians(middle[1]))
        if self.kilometres is None:
            return None
        return self.kilometres / math.sqrt(float(self._enlarged(middle[None])[0]))

    def from_lon_lat(self) -> Any:
        """How longitude and latitude come to lie on the plane; None if nobody knows."""
        if self.kilometres is None:
            return None
        pyproj = need("pyproj", "geo", "A base map")
        return pyproj.Transformer.from_crs("OGC:CRS84", self._crs, always_xy=True)

    def _enlarged(self, places: Floats) -> Floats:
        """How many times larger areas are on the plane than on the ground, by a coarse grid."""
        lo, width = self.domain.lo[:2], (self.domain.hi - self.domain.lo)[:2]
        at = np.clip((places - lo) / width, 0, 1) * (KNOTS - 1)
        k = np.minimum(at.astype(np.int64), KNOTS - 2)
        (x, y), (a, b) = k.T, (at - k).T
        table = self._scales
        low, high = (table[x, y + up] * (1 - a) + table[x + 1, y + up] * a for up in (0, 1))
        return np.asarray(low * (1 - b) + high * b)

    @cached_property
    def _scales(self) -> Floats:
        """Areas on the plane over areas on the ground, at the knots; 1 where the projection ends."""
        projection = need("pyproj", "geo", "The scale of a projection").Proj(self._crs)
        grid = np.meshgrid(*np.linspace(self.domain.lo[:2], self.domain.hi[:2], KNOTS).T, indexing="ij")
        there = projection(*(part.ravel() for part in grid), inverse=True)
        scale = np.asarray(projection.get_factors(*there, errcheck=False).areal_scale, np.float64).reshape(KNOTS, KNOTS)
        return np.where(np.isfinite(scale) & (scale > 0) & (scale < 1e6), scale, 1.0)

"""The units of the first two axes on the ground: degrees, lengths, or unknown."""

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

LON_LAT_CRS = {"OGC:CRS84", "EPSG:4326"}  # known without pyproj; the first is the default of GeoParquet
LONGITUDE_NAMES = {"lon", "lng", "long", "longitude"}
LATITUDE_NAMES = {"lat", "latitude"}
EARTH_RADIUS_KM = 6371.0072  # of a sphere with the surface area of the Earth
SCALE_KNOTS_PER_AXIS = 33  # of the grid at which a projection's scale is computed
MAX_AREAL_SCALE = 1e6  # a larger one lies beyond the edge of the projection


def crs_of(name: str) -> Any:
    """Return the coordinate system of this name as an object of pyproj."""
    pyproj = need("pyproj", "geo", f"The coordinate system {name}")
    try:
        return pyproj.CRS.from_user_input(name)
    except pyproj.exceptions.CRSError:
        raise BadInput(
            f"There is no coordinate system {name!r}. Give a code such as EPSG:3857, or leave it out."
        ) from None


def projjson(name: str) -> Any:
    """Return the coordinate system of this name as PROJJSON."""
    return json.loads(crs_of(name).to_json())


@dataclass(frozen=True)
class Ground:
    """The place of the first two axes of a domain on Earth.

    They are longitude and latitude if the domain's coordinate system is geographic, or if it has none and they are
    named so (``lon`` or ``longitude``, then ``lat`` or ``latitude``). Their ranges must be possible for such axes.
    """

    domain: Domain

    @cached_property
    def _crs(self) -> Any:
        """The coordinate system; None if there is none or pyproj does not know it."""
        try:
            return None if self.domain.crs is None else crs_of(self.domain.crs)
        except (BadInput, ImportError):
            return None

    @cached_property
    def lon_lat(self) -> bool:
        """Whether the first two axes are longitude and latitude."""
        if self.domain.dimensions < 2:
            return False
        x, y = self.domain.axes[:2]
        named = x.name.lower() in LONGITUDE_NAMES and y.name.lower() in LATITUDE_NAMES
        swapped = x.name.lower() in LATITUDE_NAMES and y.name.lower() in LONGITUDE_NAMES
        geographic = self.domain.crs in LON_LAT_CRS or (self._crs is not None and self._crs.is_geographic)
        possible = max(-x.lo, x.hi, x.hi - x.lo) <= 360 and max(-y.lo, y.hi) <= 90
        return possible and not swapped and (named if self.domain.crs is None else geographic)

    @cached_property
    def kilometres(self) -> float | None:
        """The length of one unit of the axes in kilometres; None if it is not a length."""
        if self.domain.dimensions < 2 or self._crs is None or not self._crs.is_projected:
            return None
        factors = {axis.unit_conversion_factor for axis in self._crs.axis_info[:2]}
        return factors.pop() / 1000 if len(factors) == 1 else None

    @property
    def unit(self) -> str | None:
        """The name of the unit of both axes; None if it is not known."""
        if self.lon_lat:
            return "degree"
        return None if self.kilometres is None else str(self._crs.axis_info[0].unit_name)

    @property
    def crs_name(self) -> str | None:
        """The coordinate system for exports; longitude and latitude have one even if the domain names none."""
        if self.lon_lat and (self.domain.crs is None or self.domain.crs in LON_LAT_CRS):
            return "EPSG:4326"
        # As WKT, not as the name in the file: that may be a URL, which GDAL would fetch.
        return None if self.domain.crs is None else str(crs_of(self.domain.crs).to_wkt())

    @property
    def area_unit(self) -> str:
        """The unit of ``areas``."""
        on_earth = self.lon_lat or self.kilometres is not None
        return "km²" if on_earth else f"unit of {' × '.join(self.domain.names[:2])}"

    def areas(self, lo: Floats, hi: Floats) -> Floats:
        """Return the areas of boxes: in square kilometres of ground if possible, else the products of their sides."""
        sides = hi - lo
        if self.lon_lat:
            middle, half = np.radians((hi + lo)[:, 1] / 2), np.radians(sides[:, 1] / 2)
            return np.asarray(EARTH_RADIUS_KM**2 * np.radians(sides[:, 0]) * 2 * np.cos(middle) * np.sin(half))
        plane = sides[:, 0] * sides[:, 1]
        if self.kilometres is None:
            return np.asarray(plane)
        return np.asarray(plane * self.kilometres**2 / self._areal_scale((lo + hi) / 2))

    def length(self) -> float | None:
        """Return the kilometres per unit of the first axis, in the middle of the domain; None if unknown."""
        middle = (self.domain.lo + self.domain.hi)[:2] / 2
        if self.lon_lat:
            return math.radians(1) * EARTH_RADIUS_KM * math.cos(math.radians(middle[1]))
        if self.kilometres is None:
            return None
        return self.kilometres / math.sqrt(float(self._areal_scale(middle[None])[0]))

    def from_lon_lat(self) -> Any:
        """Return the transformation from longitude and latitude to the axes; None if it is not known."""
        if self.kilometres is None:
            return None
        pyproj = need("pyproj", "geo", "A base map")
        return pyproj.Transformer.from_crs("OGC:CRS84", self._crs, always_xy=True)

    def _areal_scale(self, points: Floats) -> Floats:
        """Return the ratio of areas on the plane to areas on the ground, interpolated on a coarse grid."""
        lo, width = self.domain.lo[:2], (self.domain.hi - self.domain.lo)[:2]
        position = np.clip((points - lo) / width, 0, 1) * (SCALE_KNOTS_PER_AXIS - 1)
        k = np.minimum(position.astype(np.int64), SCALE_KNOTS_PER_AXIS - 2)
        (x, y), (a, b) = k.T, (position - k).T
        table = self._scale_table
        low, high = (table[x, y + up] * (1 - a) + table[x + 1, y + up] * a for up in (0, 1))
        return np.asarray(low * (1 - b) + high * b)

    @cached_property
    def _scale_table(self) -> Floats:
        """The ratio of areas on the plane to areas on the ground at the knots; 1 beyond the edge of the projection."""
        projection = need("pyproj", "geo", "The scale of a projection").Proj(self._crs)
        grid = np.meshgrid(*np.linspace(self.domain.lo[:2], self.domain.hi[:2], SCALE_KNOTS_PER_AXIS).T, indexing="ij")
        degrees = projection(*(axis.ravel() for axis in grid), inverse=True)
        factors = projection.get_factors(*degrees, errcheck=False)
        scale = np.asarray(factors.areal_scale, np.float64).reshape(grid[0].shape)
        return np.where(np.isfinite(scale) & (scale > 0) & (scale < MAX_AREAL_SCALE), scale, 1.0)

"""How two axes of a domain lie on the map: a square of side 1, one number to the east, one to the south."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilmap.domain import Domain

Floats = NDArray[np.float64]

LONGITUDE_LATITUDE = {"EPSG:4326", "OGC:CRS84"}
EAST, NORTH = {"lon", "lng", "long", "longitude"}, {"lat", "latitude"}
MOST_NORTH = math.degrees(math.atan(math.sinh(math.pi)))  # where the square ends
EARTH = 6371.0088  # km, the mean radius
ROOM = 1.25  # of a square round a plane that is no globe


@dataclass(frozen=True)
class Plane:
    """The axes that are drawn, and where they lie."""

    domain: Domain
    axes: tuple[int, int]  # to the east, to the north
    globe: bool  # longitudes and latitudes, in Web Mercator; else as they are

    @cached_property
    def origin(self) -> tuple[float, float]:
        """The values at the corner of the square in the north-west, when it is no globe."""
        x, y = (self.domain.axes[a] for a in self.axes)
        return (x.lo + x.hi - self.side) / 2, (y.lo + y.hi + self.side) / 2

    @cached_property
    def side(self) -> float:
        """The width of the square in units of the axes, when it is no globe."""
        return ROOM * max(self.domain.axes[a].hi - self.domain.axes[a].lo for a in self.axes)

    def east(self, x: Floats) -> Floats:
        return (x + 180) / 360 if self.globe else (x - self.origin[0]) / self.side

    def south(self, y: Floats) -> Floats:
        if not self.globe:
            return (self.origin[1] - y) / self.side
        up = np.radians(np.clip(y, -MOST_NORTH, MOST_NORTH))
        return np.asarray(0.5 - np.arcsinh(np.tan(up)) / (2 * math.pi))

    @property
    def area_unit(self) -> str:
        """What an area is measured in."""
        x, y = (self.domain.axes[a].name for a in self.axes)
        return "km²" if self.globe or self._metres else f"unit of {x} × {y}"

    def areas(self, x0: Floats, x1: Floats, y0: Floats, y1: Floats) -> Floats:
        """Of boxes."""
        if self.globe:
            tall = np.sin(np.radians(y1)) - np.sin(np.radians(y0))
            return np.asarray(EARTH**2 * np.radians(x1 - x0) * tall)
        return np.asarray((x1 - x0) * (y1 - y0) / (1e6 if self._metres else 1))

    @cached_property
    def _metres(self) -> bool:
        system = known_system(self.domain.crs)
        return system is not None and {axis.unit_name for axis in system.axis_info} == {"metre"}

    def to_json(self) -> dict[str, Any]:
        """What the page needs to draw in the same places."""
        drawn = [self.domain.axes[a] for a in self.axes]
        place = {} if self.globe else {"origin": self.origin, "side": self.side}
        return {"axes": [a.name for a in drawn], "globe": self.globe, **place}


def plane_of(domain: Domain) -> Plane | None:
    """Longitude and latitude where there are such axes, else the only two axes, else nothing to draw a map of."""
    names = [name.lower() for name in domain.names]
    east = next((k for k, name in enumerate(names) if name in EAST), None)
    north = next((k for k, name in enumerate(names) if name in NORTH), None)
    named = east is not None and north is not None
    pair = (east, north) if east is not None and north is not None else (0, 1)
    if (named and domain.crs is None) or (is_geographic(domain.crs) and (named or domain.dimensions == 2)):
        (west, east_end), (south, north_end) = ((domain.axes[a].lo, domain.axes[a].hi) for a in pair)
        inside = west >= -180 and east_end <= 180 and south >= -90 and north_end <= 90
        if inside and south < MOST_NORTH and north_end > -MOST_NORTH:
            return Plane(domain, pair, globe=True)
    return Plane(domain, (0, 1), globe=False) if domain.dimensions == 2 else None


def is_geographic(crs: str | None) -> bool:
    """Whether a coordinate system is known to be of longitudes and latitudes."""
    system = known_system(crs)
    return (crs or "").upper() in LONGITUDE_LATITUDE or (system is not None and bool(system.is_geographic))


def known_system(crs: str | None) -> Any:
    """What pyproj knows of a coordinate system; None where nobody knows, or there is no pyproj."""
    if crs is None or find_spec("pyproj") is None:
        return None
    from pyproj import CRS
    from pyproj.exceptions import CRSError

    try:
        return CRS.from_user_input(crs)
    except CRSError:
        return None

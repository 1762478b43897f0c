"""How two axes of a domain lie on the map: a square of side 1, one number to the east, one to the south."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from veilmap.arrays import Floats
from veilmap.domain import Domain
from veilmap.geography.crs import Ground

MOST_NORTH = math.degrees(math.atan(math.sinh(math.pi)))  # where the square ends
ROOM = 8  # times a plane that is no globe, so that it can be seen from afar


@dataclass(frozen=True)
class Plane:
    """The first two axes of a domain, and where they lie."""

    ground: Ground
    globe: bool  # longitudes and latitudes, in Web Mercator; else as they are

    @cached_property
    def origin(self) -> tuple[float, float]:
        """The values at the corner of the square in the north-west, when it is no globe."""
        x, y = self.ground.domain.axes[:2]
        return (x.lo + x.hi - self.side) / 2, (y.lo + y.hi + self.side) / 2

    @cached_property
    def side(self) -> float:
        """The width of the square in units of the axes, when it is no globe."""
        return ROOM * max(axis.hi - axis.lo for axis in self.ground.domain.axes[:2])

    def east(self, x: Floats) -> Floats:
        return (x + 180) / 360 if self.globe else (x - self.origin[0]) / self.side

    def south(self, y: Floats) -> Floats:
        if not self.globe:
            return (self.origin[1] - y) / self.side
        up = np.radians(np.clip(y, -MOST_NORTH, MOST_NORTH))
        return np.asarray(0.5 - np.arcsinh(np.tan(up)) / (2 * math.pi))

    def to_json(self) -> dict[str, Any]:
        """What the page needs to draw in the same places."""
        place = {} if self.globe else {"origin": self.origin, "side": self.side}
        return {"axes": self.ground.domain.names[:2], "globe": self.globe, **place}


def plane_of(domain: Domain) -> Plane | None:
    """Longitude and latitude where the first axes are, else the only two axes, else nothing to draw a map of."""
    ground = Ground(domain)
    if ground.lon_lat:
        x, y = domain.axes[:2]
        if max(-x.lo, x.hi) <= 180 and y.lo < MOST_NORTH and y.hi > -MOST_NORTH:
            return Plane(ground, globe=True)
    return Plane(ground, globe=False) if domain.dimensions == 2 else None

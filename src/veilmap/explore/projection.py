"""The projection of two axes onto the map: a square of side 1, with x to the east and y to the south."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from veilmap.arrays import Floats
from veilmap.domain import Domain
from veilmap.geography.crs import Ground

MAX_MERCATOR_LATITUDE = math.degrees(math.atan(math.sinh(math.pi)))  # degrees; the edge of the square
SQUARE_PER_DOMAIN = 8  # width of the square over that of a domain that is not on the globe, so that one can zoom out


@dataclass(frozen=True)
class Plane:
    """The first two axes of a domain and their projection."""

    ground: Ground
    globe: bool  # whether they are longitude and latitude, drawn in Web Mercator; other axes are drawn as they are

    @cached_property
    def origin(self) -> tuple[float, float]:
        """The coordinates of the square's north-western corner; not used on the globe."""
        x, y = self.ground.domain.axes[:2]
        return (x.lo + x.hi - self.side) / 2, (y.lo + y.hi + self.side) / 2

    @cached_property
    def side(self) -> float:
        """The side of the square in units of the axes; not used on the globe."""
        return SQUARE_PER_DOMAIN * max(axis.hi - axis.lo for axis in self.ground.domain.axes[:2])

    def east(self, x: Floats) -> Floats:
        """Return the distance from the west side of the square."""
        return (x + 180) / 360 if self.globe else (x - self.origin[0]) / self.side

    def south(self, y: Floats) -> Floats:
        """Return the distance from the north side of the square."""
        if not self.globe:
            return (self.origin[1] - y) / self.side
        latitude = np.radians(np.clip(y, -MAX_MERCATOR_LATITUDE, MAX_MERCATOR_LATITUDE))
        return np.asarray(0.5 - np.arcsinh(np.tan(latitude)) / (2 * math.pi))

    def to_json(self) -> dict[str, Any]:
        """Return what the page needs to use the same projection."""
        square = {} if self.globe else {"origin": self.origin, "side": self.side}
        return {"axes": self.ground.domain.names[:2], "globe": self.globe, **square}


def plane_of(domain: Domain) -> Plane | None:
    """Return the projection: Web Mercator for longitude and latitude, a plane for two other axes, else None."""
    ground = Ground(domain)
    if ground.lon_lat:
        x, y = domain.axes[:2]
        if max(-x.lo, x.hi) <= 180 and y.lo < MAX_MERCATOR_LATITUDE and y.hi > -MAX_MERCATOR_LATITUDE:
            return Plane(ground, globe=True)
    return Plane(ground, globe=False) if domain.dimensions == 2 else None

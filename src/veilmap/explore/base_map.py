"""Coasts and borders as GeoJSON, in the coordinates of the map."""

from __future__ import annotations

import json

import numpy as np

from veilmap.explore.projection import Plane
from veilmap.geography import basemap

NO_LINES = b'{"type":"FeatureCollection","features":[]}'
POINTS_PER_EDGE = 51  # at which the edges of the view are unprojected to find its bounds in degrees


def base_map(plane: Plane | None) -> bytes:
    """Return coasts and borders in the release's own coordinates; none if its place on Earth is not known."""
    if plane is None:
        return NO_LINES
    if plane.globe:
        return basemap.geojson()
    if (projection := plane.ground.from_lon_lat()) is None:
        return NO_LINES
    lo, hi = plane.ground.domain.lo, plane.ground.domain.hi
    low, high = 2 * lo - hi, 2 * hi - lo  # as wide a margin as the domain on every side
    box = projection.transform_bounds(*low, *high, POINTS_PER_EDGE, direction="INVERSE")
    if not np.all(np.isfinite(box)):
        return NO_LINES
    if box[0] > box[2]:  # it crosses 180°
        box = (-180, box[1], 180, box[3])
    features = []
    for name, lines in basemap.lines(box).items():
        projected = [np.stack(projection.transform(*line.T), axis=1) for line in lines]
        visible = [
            line.tolist() for line in projected if np.isfinite(line).all() and np.any((line > low) & (line < high))
        ]
        shape = {"type": "MultiLineString", "coordinates": visible}
        features.append({"type": "Feature", "properties": {"layer": name}, "geometry": shape})
    return json.dumps({"type": "FeatureCollection", "features": features}, separators=(",", ":")).encode()

"""The base map in the plane that is drawn."""

from __future__ import annotations

import json

import numpy as np

from veilmap.explore.projection import Plane
from veilmap.geography import basemap

EMPTY = b'{"type":"FeatureCollection","features":[]}'


def base_map(plane: Plane | None) -> bytes:
    """Coasts and borders as GeoJSON in the release's own coordinates; nothing where nobody knows where it lies."""
    if plane is None:
        return EMPTY
    if plane.globe:
        return basemap.geojson()
    if (into := plane.ground.from_lon_lat()) is None:
        return EMPTY
    lo, hi = plane.ground.domain.lo, plane.ground.domain.hi
    low, high = 2 * lo - hi, 2 * hi - lo  # some of what lies round it
    box = into.transform_bounds(*low, *high, 51, direction="INVERSE")
    if not np.all(np.isfinite(box)):
        return EMPTY
    if box[0] > box[2]:  # across 180°
        box = (-180, box[1], 180, box[3])
    features = []
    for name, lines in basemap.lines(box).items():
        placed = [np.stack(into.transform(*line.T), axis=1) for line in lines]
        near = [line.tolist() for line in placed if np.isfinite(line).all() and np.any((line > low) & (line < high))]
        shape = {"type": "MultiLineString", "coordinates": near}
        features.append({"type": "Feature", "properties": {"layer": name}, "geometry": shape})
    return json.dumps({"type": "FeatureCollection", "features": features}, separators=(",", ":")).encode()

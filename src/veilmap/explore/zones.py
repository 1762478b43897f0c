"""Zones that can be clicked on the map, each with its count."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veilmap.answers.zone_files import read_zones
from veilmap.answers.zones import reprojected
from veilmap.errors import need
from veilmap.releases.release import Release

MAX_NAME_CHARACTERS = 200
DRAWING_TOLERANCE = 1e-5  # fraction of the domain's width; borders are simplified for drawing, not for counting


@dataclass(frozen=True, eq=False)
class Zones:
    """The shapes of zones to count in, and the same zones as GeoJSON to draw, in the release's coordinates."""

    shapes: Any
    collection: dict[str, Any]


def zones_of(release: Release, path: str | Path, layer: str | None = None, make_valid: bool = False) -> Zones:
    """Read zones from a file, reproject them to the release's coordinates, and count in them."""
    shapely = need("shapely", "geo", "Zones")
    frame = read_zones(path, layer, make_valid)
    geometry = frame.geometry
    if geometry.crs is not None:
        geometry = reprojected(geometry, release.domain)
    shapes = geometry.to_numpy().copy()
    shapes[shapely.is_missing(shapes)] = shapely.Polygon()
    answers = release.count(shapes)
    columns = (answers.estimate, answers.stderr, answers.low, answers.high)
    tolerance = float((release.domain.hi - release.domain.lo).max()) * DRAWING_TOLERANCE
    digits = math.ceil(-math.log10(tolerance)) + 1
    drawn = shapely.transform(shapely.simplify(shapes, tolerance), lambda corners: corners.round(digits))
    rows = zip(_names(frame), shapely.to_geojson(drawn), *(c.tolist() for c in columns), strict=True)
    features = [
        {
            "type": "Feature",
            "id": k,
            "properties": {"name": name, "estimate": estimate, "stderr": stderr, "low": low, "high": high},
            "geometry": json.loads(shape),
        }
        for k, (name, shape, estimate, stderr, low, high) in enumerate(rows)
    ]
    return Zones(shapes, {"type": "FeatureCollection", "features": features})


def _names(frame: Any) -> list[str]:
    """Return the names of zones: from the column ``name``, else the first column of text, else their numbers."""
    columns = [column for column in frame.columns if column != frame.geometry.name]
    texts = [c for c in columns if frame[c].map(lambda value: isinstance(value, str)).any()]
    column = next((c for c in texts if str(c).lower() == "name"), texts[0] if texts else None)
    values = range(1, len(frame) + 1) if column is None else frame[column]
    names = (value if isinstance(value, str) else f"Zone {k + 1}" for k, value in enumerate(values))
    return ["".join(c if c.isprintable() else " " for c in name)[:MAX_NAME_CHARACTERS] for name in names]

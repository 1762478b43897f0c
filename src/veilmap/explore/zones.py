"""Zones to click on, with what is counted in each."""

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

LONGEST_NAME = 200
FINE = 1e-5  # of the domain: borders are drawn no finer, and counted as they are


@dataclass(frozen=True, eq=False)
class Zones:
    """The zones of a file: their shapes, and all of them as GeoJSON in the release's coordinates, to be drawn."""

    shapes: Any
    collection: dict[str, Any]


def zones_of(release: Release, path: str | Path, layer: str | None = None, make_valid: bool = False) -> Zones:
    """Read zones, put them in the release's plane, and count."""
    shapely = need("shapely", "geo", "Zones")
    frame = read_zones(path, layer, make_valid)
    places = frame.geometry
    if places.crs is not None:
        places = reprojected(places, release.domain)
    shapes = places.to_numpy().copy()
    shapes[shapely.is_missing(shapes)] = shapely.Polygon()
    answers = release.count(shapes)
    columns = (answers.estimate, answers.stderr, answers.low, answers.high)
    step = float((release.domain.hi - release.domain.lo).max()) * FINE
    digits = math.ceil(-math.log10(step)) + 1
    drawn = shapely.transform(shapely.simplify(shapes, step), lambda places: places.round(digits))
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
    """What zones are called: the column ``name``, or the first of texts, or their number."""
    columns = [column for column in frame.columns if column != frame.geometry.name]
    texts = [c for c in columns if frame[c].map(lambda value: isinstance(value, str)).any()]
    found = next((c for c in texts if str(c).lower() == "name"), texts[0] if texts else None)
    values = range(1, len(frame) + 1) if found is None else frame[found]
    named = (value if isinstance(value, str) else f"Zone {k + 1}" for k, value in enumerate(values))
    return ["".join(c if c.isprintable() else " " for c in name)[:LONGEST_NAME] for name in named]

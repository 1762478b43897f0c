"""The points of the study: generated towns and roads like the paper's, or points of a file, and their skew."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from veilmap.arrays import Flags, Floats
from veilmap.domain import Domain
from veilmap.errors import BadInput, UnreadableInput
from veilmap.reproduce.figures import LINE_COLOURS, drawing, pictures
from veilmap.reproduce.tiger import TIGER_SUFFIXES, is_tiger, must_exist, read_tiger

PAPER_BOX = Domain({"lon": (-124.82, -103.00), "lat": (31.33, 49.00)}, crs="OGC:CRS84")
GENERATED_SOURCE = "generated towns and roads of Washington and New Mexico"

DEGREES_PER_KM = 1 / 111.32  # of latitude
KM_PER_MILE = 1.609  # country roads are a mile apart, as laid out by the public land survey
TOWN_SHARE = 0.60  # fraction of a state's points
HIGHWAY_SHARE = 0.16  # fraction of a state's points; the rest is country
BENDS_PER_HIGHWAY = 12
SKEW_CELLS_PER_AXIS = 64
MAP_WIDTH_PIXELS = 320
QUARTER_SIDE_KM = 0.9  # size of a town's quarters
TABLE_SUFFIXES = (".parquet", ".pq", ".csv", ".tsv", ".txt")
COORDINATE_NAMES = [("lon", "lat"), ("longitude", "latitude"), ("lng", "lat"), ("long", "lat"), ("x", "y")]
NUMBER_PATTERN = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
STREET_GRID_OFFSET = 1 << 19  # makes street indices positive; no street is this far from the centre of its town


@dataclass(frozen=True, slots=True)
class State:
    """A rough model of a state: its outline, its cities and its nearly uninhabited areas."""

    share: float  # fraction of all points
    towns: int  # number of towns in addition to the cities
    cities: Floats  # longitude, latitude, thousands of people
    wild: Floats  # ellipses: longitude and latitude of the centre, then both half-axes in degrees
    outline: Floats  # corners of the polygon


def _rows(text: str) -> Floats:
    return np.array([row.split() for row in text.split("|")], np.float64)


WASHINGTON = State(
    share=0.61,
    towns=420,
    cities=_rows("""
        -122.33 47.63 560 | -122.17 47.61 130 | -122.22 47.46 170 | -122.33 47.31 110 | -122.46 47.24 205 |
        -122.29 47.17 120 | -122.20 47.93 110 | -122.23 47.80 140 | -122.65 47.57 80 | -122.89 47.03 90 |
        -122.48 48.75 80 | -122.33 48.42 50 | -122.63 45.66 210 | -122.93 46.14 45 | -122.96 46.68 25 |
        -123.82 46.97 30 | -117.41 47.66 230 | -117.24 47.66 90 | -120.51 46.60 95 | -119.95 46.30 30 |
        -119.17 46.23 75 | -119.28 46.29 50 | -119.10 46.24 60 | -118.34 46.06 40 | -120.31 47.42 55 |
        -119.28 47.13 35 | -117.17 46.73 30 | -120.55 47.00 20 | -123.43 48.11 25 | -119.52 48.40 8 |
        -117.05 46.41 10 | -118.00 48.50 8
    """),
    wild=_rows("""
        -123.50 47.75 0.55 0.33 | -121.15 48.35 0.65 0.62 | -121.35 47.40 0.30 0.45 | -121.55 46.55 0.40 0.55 |
        -118.50 48.55 0.35 0.40 | -119.55 46.60 0.30 0.18
    """),
    outline=_rows("""
        -124.71 48.38 | -123.95 48.17 | -123.10 48.15 | -122.76 48.14 | -122.60 47.90 | -122.52 47.65 |
        -122.53 47.35 | -122.85 47.14 | -122.72 47.10 | -122.56 47.24 | -122.44 47.29 | -122.34 47.35 |
        -122.40 47.55 | -122.40 47.75 | -122.24 47.97 | -122.38 48.25 | -122.52 48.45 | -122.51 48.75 |
        -122.76 49.00 | -117.03 49.00 | -117.04 46.42 | -116.92 45.99 | -118.98 46.00 | -119.60 45.92 |
        -121.20 45.65 | -122.25 45.55 | -122.76 45.65 | -122.81 46.00 | -123.20 46.15 | -124.05 46.27 |
        -124.10 46.90 | -124.38 47.60 | -124.71 48.00
    """),
)
NEW_MEXICO = State(
    share=0.39,
    towns=260,
    cities=_rows("""
        -106.62 35.10 420 | -106.52 35.13 150 | -106.66 35.26 75 | -106.74 34.80 55 | -105.95 35.67 80 |
        -106.30 35.88 18 | -106.07 36.00 25 | -105.57 36.41 20 | -106.77 32.32 115 | -106.60 32.00 40 |
        -104.52 33.39 48 | -103.14 32.71 40 | -104.23 32.42 28 | -104.40 32.84 15 | -103.20 34.41 40 |
        -103.33 34.19 14 | -105.96 32.90 45 | -108.21 36.74 65 | -108.68 36.79 15 | -108.74 35.53 30 |
        -107.85 35.15 15 | -108.28 32.77 18 | -107.76 32.27 16 | -106.89 34.06 11 | -105.22 35.59 16 |
        -103.72 35.17 7 | -104.44 36.90 8 | -105.64 33.35 14
    """),
    wild=_rows("""
        -108.30 33.40 0.65 0.50 | -106.45 33.10 0.30 0.75 | -107.30 33.20 0.45 0.40 | -108.60 31.90 0.45 0.45 |
        -105.60 32.30 0.45 0.28 | -104.30 35.95 0.55 0.30
    """),
    outline=_rows("""
        -109.05 37.00 | -103.00 37.00 | -103.06 32.00 | -106.62 32.00 | -106.53 31.78 | -108.21 31.78 |
        -108.21 31.33 | -109.05 31.33
    """),
)


def two_states(n: int = 1_630_000, seed: int = 2012) -> Floats:
    """Return generated road intersections of Washington and New Mexico, as many as in the paper and in the same areas.

    They describe no real people, so an ordinary random number generator is enough.
    """
    if n < 1:
        raise BadInput(f"The number of points must be at least 1, got {n}.")
    rng = np.random.default_rng(seed)
    north = round(n * WASHINGTON.share)
    parts = [_state(rng, WASHINGTON, north), _state(rng, NEW_MEXICO, n - north)]
    points = np.round(rng.permutation(np.concatenate(parts)), 6)  # TIGER/Line has six decimals
    return np.clip(points, PAPER_BOX.lo, PAPER_BOX.hi)


def _state(rng: np.random.Generator, state: State, n: int) -> Floats:
    centres, people = _towns(rng, state)
    towns, roads = round(n * TOWN_SHARE), round(n * HIGHWAY_SHARE)
    return np.concatenate(
        [
            _inside(state, towns, _streets(rng, centres, people, towns)),
            _inside(state, roads, _highways(rng, centres, people)),
            _inside(state, n - towns - roads, _country(rng, state)),
        ]
    )


def _inside(state: State, n: int, draw: Callable[[int], Floats]) -> Floats:
    """Return ``n`` points in the state, drawing until there are enough."""
    found = np.empty((0, 2))
    while len(found) < n:
        more = draw(n - len(found))
        found = np.concatenate([found, more[_in_outline(more, state.outline)]])
    return found[:n]


def _in_outline(points: Floats, outline: Floats) -> Flags:
    """Return which points are inside: a ray to the east crosses the outline an odd number of times."""
    x, y = np.ascontiguousarray(points.T)
    inside = np.zeros(len(points), np.bool_)
    for (x0, y0), (x1, y1) in zip(outline, np.roll(outline, -1, axis=0), strict=True):
        if y0 != y1:
            near = np.flatnonzero((y > min(y0, y1)) & (y <= max(y0, y1)))
            inside[near] ^= x[near] < x0 + (y[near] - y0) * (x1 - x0) / (y1 - y0)
    return inside


def _anywhere(rng: np.random.Generator, state: State, n: int) -> Floats:
    """Return points spread uniformly over the state, with few in its nearly uninhabited areas."""

    def draw(m: int) -> Floats:
        points = rng.uniform(state.outline.min(0), state.outline.max(0), (2 * m + 8, 2))
        away = (points[:, None] - state.wild[:, :2]) / state.wild[:, 2:]
        lonely = ((away**2).sum(2) < 1).any(1)
        return np.asarray(points[~lonely | (rng.random(len(points)) < 0.05)])

    return _inside(state, n, draw)


def _towns(rng: np.random.Generator, state: State) -> tuple[Floats, Floats]:
    """Return centres and thousands of people of cities, suburbs around them, and towns anywhere, with Pareto sizes."""
    suburbs = state.towns // 2
    city = rng.choice(len(state.cities), suburbs, p=state.cities[:, 2] / state.cities[:, 2].sum())
    km = 4 + rng.gamma(1.5, 3 + np.sqrt(state.cities[city, 2]) / 2)
    around = state.cities[city, :2] + _offset(km, rng.uniform(0, 2 * np.pi, suburbs), state.cities[city, 1])
    centres = np.concatenate([state.cities[:, :2], around, _anywhere(rng, state, state.towns - suburbs)])
    people = np.concatenate([state.cities[:, 2], np.minimum(0.8 * (1 + rng.pareto(0.95, state.towns)), 40)])
    return centres, people


def _offset(km: Floats, angle: Floats, latitude: Floats) -> Floats:
    return np.stack([km * np.cos(angle) / np.cos(np.radians(latitude)), km * np.sin(angle)], axis=1) * DEGREES_PER_KM


def _streets(rng: np.random.Generator, centres: Floats, people: Floats, n: int) -> Callable[[int], Floats]:
    """Return a function that draws corners of street grids, whose blocks get wider with the distance from the centre.

    The density falls as exp(-distance / radius), and varies between quarters: old quarters have half blocks, parks and
    rail yards hardly any corners. Each corner is used once, so the centre of a town is filled.
    """
    share = people / people.sum()
    block = rng.uniform(0.10, 0.15, len(people))  # km
    radius = block * np.sqrt(n * share / 11) + 0.05
    turn = np.where(rng.random(len(people)) < 0.6, 0, rng.uniform(0, np.pi / 2, len(people)))
    quarters = rng.beta(0.7, 0.6, 1 << 12)

    def draw(m: int) -> Floats:
        town = np.repeat(np.arange(len(people)), rng.multinomial(3 * m + 16, share))
        away, angle = rng.gamma(2, 1, len(town)), rng.uniform(0, 2 * np.pi, len(town))
        at = np.stack([np.cos(angle), np.sin(angle)]) * (away * radius[town])
        mark = np.floor(at / QUARTER_SIDE_KM).astype(np.int64)
        liked = quarters[(mark[0] * 73 + mark[1] * 1021 + town * 331) & 0xFFF]
        level = np.clip(1 + away * rng.uniform(0.7, 1.4, len(town)) / 1.5 - (liked > 0.85), 0, 3).astype(np.int64)
        taken = rng.random(len(town)) < liked
        town, level = town[taken], level[taken]
        east, north = np.rint(at[:, taken] / (block[town] * 2.0 ** (level - 1))).astype(np.int64) + STREET_GRID_OFFSET
        key = rng.permutation(
            np.unique((town * 4 + level) * 4 * STREET_GRID_OFFSET**2 + east * 2 * STREET_GRID_OFFSET + north)
        )
        town, level = np.divmod(key // (4 * STREET_GRID_OFFSET**2), 4)
        step = block[town] * 2.0 ** (level - 1)
        corner = (
            np.stack([key // (2 * STREET_GRID_OFFSET), key]) % (2 * STREET_GRID_OFFSET) - STREET_GRID_OFFSET
        ) * step
        corner += rng.normal(0, 0.07, corner.shape) * step
        bearing = np.arctan2(corner[1], corner[0]) + turn[town]
        return np.asarray(centres[town] + _offset(np.hypot(*corner), bearing, centres[town, 1]))

    return draw


def _highways(rng: np.random.Generator, centres: Floats, people: Floats) -> Callable[[int], Floats]:
    """Return a function that draws crossings along winding roads from each town to the two nearest larger towns."""
    order = np.argsort(-people)
    centres, people = centres[order], people[order]
    stretch = np.array([np.cos(np.radians(centres[:, 1].mean())), 1])
    far = np.hypot(*np.moveaxis((centres[:, None] - centres) * stretch, 2, 0)) / DEGREES_PER_KM
    far[np.triu_indices(len(far))] = np.inf  # excludes smaller towns and the town itself
    smaller = np.repeat(np.arange(1, len(far)), 2)
    larger = np.argsort(far[1:], axis=1)[:, :2].ravel()
    real = np.isfinite(far[smaller, larger])
    smaller, larger = smaller[real], larger[real]
    length = far[smaller, larger]
    across = (centres[larger] - centres[smaller]) @ np.array([[0, 1.0], [-1.0, 0]])
    walk = np.cumsum(rng.normal(0, 0.05, (len(length), BENDS_PER_HIGHWAY + 1)), axis=1)
    part = np.linspace(0, 1, BENDS_PER_HIGHWAY + 1)
    walk -= walk[:, :1] * (1 - part) + walk[:, -1:] * part  # makes the road end at the towns
    busy = length**0.9 * people[smaller] ** 0.2
    busy /= busy.sum()

    def draw(n: int) -> Floats:
        road = np.repeat(np.arange(len(length)), rng.multinomial(n + n // 8 + 16, busy))
        along = rng.beta(0.7, 0.7, len(road))  # more crossings near towns
        bend = np.minimum((along * BENDS_PER_HIGHWAY).astype(np.int64), BENDS_PER_HIGHWAY - 1)
        within = along * BENDS_PER_HIGHWAY - bend
        sway = walk[road, bend] * (1 - within) + walk[road, bend + 1] * within
        on_it = centres[smaller[road]] + along[:, None] * (centres[larger] - centres[smaller])[road]
        on_it += sway[:, None] * across[road]
        aside = np.where(rng.random(len(road)) < 0.6, 0.02, 1.2) * rng.laplace(0, 1, len(road))  # km: farm roads
        return rng.permutation(on_it + _offset(aside, rng.uniform(0, 2 * np.pi, len(road)), on_it[:, 1]))

    return draw


def _country(rng: np.random.Generator, state: State) -> Callable[[int], Floats]:
    """Return a function that draws tracks in clusters, half of them on the survey's mile grid, and scattered points."""
    clumps = _anywhere(rng, state, 700)
    share = rng.pareto(1.1, len(clumps)) + 0.2
    share = np.minimum(share, 30) / np.minimum(share, 30).sum()
    width = rng.uniform(4, 22, len(clumps))  # km

    def draw(n: int) -> Floats:
        clump = np.repeat(np.arange(len(clumps)), rng.multinomial(n, share))
        near = clumps[clump] + _offset(
            width[clump] * np.sqrt(rng.gamma(1, 2, len(clump))),
            rng.uniform(0, 2 * np.pi, len(clump)),
            clumps[clump, 1],
        )
        points = np.concatenate([near, _anywhere(rng, state, n // 5 + 8)])
        mile = np.array(
            [
                KM_PER_MILE * DEGREES_PER_KM / math.cos(math.radians(state.outline[:, 1].mean())),
                KM_PER_MILE * DEGREES_PER_KM,
            ]
        )
        ruled = rng.random(len(points)) < 0.5
        points[ruled] = np.rint(points[ruled] / mile) * mile + rng.normal(0, 0.04, (ruled.sum(), 2)) * mile
        return rng.permutation(points)

    return draw


@dataclass(frozen=True, slots=True)
class Skew:
    """The skew of points over ``SKEW_CELLS_PER_AXIS`` × ``SKEW_CELLS_PER_AXIS`` cells."""

    points: int
    empty: float  # fraction of cells without a point
    fullest: float  # fraction of points in the fullest 1 % of cells
    half: float  # fraction of cells, fullest first, that contain half of the points
    gini: float  # 0 if all cells have the same count, 1 if one cell contains all points


def skew(points: Floats, domain: Domain) -> Skew:
    """Return the skew of the points inside the domain."""
    held = _held(points, domain)
    total = held.sum()
    if not total:
        raise BadInput(f"No point lies in the domain {domain}. Give another domain.")
    part = np.cumsum(held) / total  # fraction of points in the fullest 1, 2, 3 ... cells
    return Skew(
        points=int(total),
        empty=float((held == 0).mean()),
        fullest=float(part[round(len(held) / 100) - 1]),
        half=float((np.searchsorted(part, 0.5) + 1) / len(held)),
        gini=float(2 * part.mean() - 1 - 1 / len(held)),
    )


def _held(points: Floats, domain: Domain) -> Floats:
    """Return the number of points in each cell, fullest first."""
    return np.sort(_count(points, domain, SKEW_CELLS_PER_AXIS, SKEW_CELLS_PER_AXIS).ravel())[::-1]


def _count(points: Floats, domain: Domain, across: int, up: int) -> Floats:
    ranges = list(zip(domain.lo, domain.hi, strict=True))
    return np.histogram2d(points[:, 0], points[:, 1], bins=(across, up), range=ranges)[0]


def describe(points: Floats, domain: Domain) -> str:
    """Return a short description of the points and their skew."""
    found = skew(points, domain)
    return (
        f"{found.points:,} points in {domain}. Of {SKEW_CELLS_PER_AXIS} × {SKEW_CELLS_PER_AXIS} cells, "
        f"{found.empty:.1%} are empty. The fullest 1 % of the cells contain {found.fullest:.1%} of the points, and the "
        f"fullest {found.half:.2%} contain half of them. The Gini coefficient is {found.gini:.3f}."
    )


def draw_points(points: Floats, domain: Domain, folder: Path, source: str) -> list[Path]:
    """Draw a density map and the cumulative share of the fullest cells, as ``data.png`` and ``data.svg``."""
    with drawing(folder, "data", columns=2) as (where, how_much):
        _draw_density(where, points, domain)
        _draw_share(how_much, points, domain)
        where.figure.suptitle(f"{len(points):,} points: {source}", fontsize=9, parse_math=False)
    return pictures(folder, "data")


def _draw_density(axes: Any, points: Floats, domain: Domain) -> None:
    from matplotlib.colors import LogNorm

    (x, y), (west, south), (east, north) = domain.names, domain.lo, domain.hi
    on_earth = domain.crs == PAPER_BOX.crs
    aspect = 1 / math.cos(math.radians((south + north) / 2)) if on_earth else 1.0
    up = int(
        np.clip(
            MAP_WIDTH_PIXELS * aspect * (north - south) / (east - west), MAP_WIDTH_PIXELS // 4, MAP_WIDTH_PIXELS * 4
        )
    )
    held = _count(points, domain, MAP_WIDTH_PIXELS, up).T
    axes.set_facecolor("#f4f4f1")
    axes.grid(False)
    drawn = axes.imshow(
        np.where(held > 0, held, np.nan),
        origin="lower",
        extent=(west, east, south, north),
        norm=LogNorm(1, max(float(held.max()), 10)),
        cmap="magma_r",
        interpolation="none",
        aspect=aspect if MAP_WIDTH_PIXELS / 4 < up < MAP_WIDTH_PIXELS * 4 else "auto",
    )
    axes.set(xlabel=x, ylabel=y)
    axes.locator_params(nbins=5)
    axes.figure.colorbar(drawn, ax=axes, pad=0.02).set_label("points per pixel")


def _draw_share(axes: Any, points: Floats, domain: Domain) -> None:
    from matplotlib.ticker import PercentFormatter

    held = _held(points, domain)
    cells = np.arange(1, len(held) + 1) / len(held)
    part = np.cumsum(held) / held.sum()
    axes.plot(cells, part, color=LINE_COLOURS[0], linewidth=2)
    axes.plot(cells, cells, color="#666666", linestyle="--")
    for text, height, at, colour in (
        ("these points", 0.75, cells[np.searchsorted(part, 0.75)], LINE_COLOURS[0]),
        ("spread evenly", 0.25, 0.25, "#666666"),
    ):
        left = at > math.sqrt(cells[0])  # there is more room to the left of the line
        axes.text(at * (0.8 if left else 1.25), height, text, color=colour, ha="right" if left else "left", va="center")
    axes.set(xscale="log", xlim=(cells[0], 1), ylim=(0, 1.02), ylabel="fraction of the points")
    axes.set_xlabel(f"fraction of the {SKEW_CELLS_PER_AXIS} × {SKEW_CELLS_PER_AXIS} cells, fullest first")
    axes.xaxis.set_major_formatter(lambda part, _: f"{part:.3%}".rstrip("0%").rstrip(".") + " %")
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))


def read_points(path: str | os.PathLike[str], domain: Domain | None = None) -> tuple[Floats, Domain, str]:
    """Return the points of a file or a folder of files, their domain, and a description of their source.

    CSV and Parquet tables need columns lon and lat, longitude and latitude, x and y, or the domain's names, or exactly
    two numeric columns. TIGER/Line files are read too. The default domain is the bounding box of the points. That is
    acceptable for public data in a study whose releases are marked as not private, but never for data about people.
    """
    place = Path(path)
    must_exist(place)
    if domain is not None and domain.dimensions != 2:
        raise BadInput(f"The study needs a domain with two axes, got {domain.dimensions}: {domain}.")
    if is_tiger(place) or (place.is_dir() and any(map(is_tiger, place.rglob("*")))):
        points, names, source = (
            read_tiger(place),
            ("lon", "lat"),
            f"road intersections of TIGER/Line, {place.name}",
        )
    else:
        points, names, source = *_read_tables(place, domain), place.name
    points = points[np.isfinite(points).all(axis=1)]
    domain = _box(points, names, place) if domain is None else domain
    points = points[((points >= domain.lo) & (points <= domain.hi)).all(axis=1)]
    if not len(points):
        raise BadInput(f"No point of {str(path)!r} lies in the domain {domain}. Give another domain, or none.")
    return points, domain, source


def _box(points: Floats, names: tuple[str, str], place: Path) -> Domain:
    if not len(points):
        raise UnreadableInput(f"{str(place)!r} contains no points: it has no rows, or every row lacks a coordinate.")
    lo, hi = points.min(axis=0), points.max(axis=0)
    if not (lo < hi).all():
        raise BadInput(f"The points of {str(place)!r} lie on one line, so they have no bounding box. Give a domain.")
    on_earth = names[1].lower().startswith("lat") and (np.abs([lo, hi]) <= (180, 90)).all()
    ranges = {name: (float(lo[axis]), float(hi[axis])) for axis, name in enumerate(names)}
    return Domain(ranges, crs=PAPER_BOX.crs if on_earth else None)


def _read_tables(place: Path, domain: Domain | None) -> tuple[Floats, tuple[str, str]]:
    files = [place]
    if place.is_dir():
        files = sorted(file for file in place.iterdir() if file.suffix.lower() in TABLE_SUFFIXES)
    if not files:
        raise UnreadableInput(
            f"The folder {str(place)!r} contains no table of points. Such files end in {', '.join(TABLE_SUFFIXES)}."
        )
    tables = [_read_table(file) for file in files]
    names = [_coordinates(table, file, domain) for table, file in zip(tables, files, strict=True)]
    both = [[_numbers(table.column(name)) for name in two] for table, two in zip(tables, names, strict=True)]
    return np.concatenate([np.stack(columns, axis=1) for columns in both]), names[0]


def _read_table(file: Path) -> pa.Table:
    try:
        if file.suffix.lower() in TABLE_SUFFIXES[:2]:
            return pq.read_table(file)
        if file.suffix.lower() in TABLE_SUFFIXES:
            return _read_text(file)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise UnreadableInput(f"The file {str(file)!r} cannot be read: it is empty, damaged or not a table.") from None
    raise UnreadableInput(
        f"The suffix of {str(file)!r} is unknown, and the file format follows from it. Use one of "
        f"{', '.join((*TABLE_SUFFIXES, *TIGER_SUFFIXES))}."
    )


def _read_text(file: Path) -> pa.Table:
    """Return a text table. Its first line has the column names, unless it contains only numbers."""
    with open(file, encoding="utf-8-sig") as lines:
        first = lines.readline().strip()
    mark = max(" ,;\t|", key=lambda mark: (first.count(mark), mark != " "))
    unnamed = all(NUMBER_PATTERN.fullmatch(field) for field in first.split(mark))
    return pacsv.read_csv(
        file, pacsv.ReadOptions(autogenerate_column_names=unnamed), pacsv.ParseOptions(delimiter=mark)
    )


def _coordinates(table: pa.Table, file: Path, domain: Domain | None) -> tuple[str, str]:
    """Return the names of the two coordinate columns."""
    numeric = [field.name for field in table.schema if _is_number(field.type)]
    lower = {name.strip().lower(): name for name in numeric}
    pairs = ([] if domain is None else [domain.names]) + COORDINATE_NAMES
    known = ([lower[x.lower()], lower[y.lower()]] for x, y in pairs if {x.lower(), y.lower()} <= lower.keys())
    found = next(known, numeric)
    if len(found) != 2 or any(table.column_names.count(name) > 1 for name in found):
        raise UnreadableInput(
            f"The file {str(file)!r} must have numeric columns lon and lat, or x and y, or exactly two numeric "
            f"columns, with distinct names. Its numeric columns are: {', '.join(numeric) or 'none'}."
        )
    return found[0], found[1]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _numbers(column: pa.ChunkedArray) -> Floats:
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)  # a null becomes NaN

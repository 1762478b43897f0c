"""The points of the study: generated towns and roads like the paper's, or a file of one's own, and their skew."""

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
from veilmap.reproduce.figures import COLOURS, drawing, pictures
from veilmap.reproduce.tiger import ENDINGS as TIGER
from veilmap.reproduce.tiger import is_tiger, must_exist, read_tiger

PAPER_BOX = Domain({"lon": (-124.82, -103.00), "lat": (31.33, 49.00)}, crs="OGC:CRS84")
GENERATED = "generated towns and roads of Washington and New Mexico"

KM = 1 / 111.32  # in degrees of latitude
MILE = 1.609  # km: the public land survey laid country roads a mile apart
IN_TOWNS, ON_HIGHWAYS = 0.60, 0.16  # of a state's points; the rest is country
BENDS = 12  # of a highway
CELLS = 64  # along each axis, where skew is measured
PIXELS = 320  # across a map
QUARTER = 0.9  # km: of a town
TABLES = (".parquet", ".pq", ".csv", ".tsv", ".txt")
PAIRS = [("lon", "lat"), ("longitude", "latitude"), ("lng", "lat"), ("long", "lat"), ("x", "y")]
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
MIDDLE = 1 << 19  # of the street grid of a town, which no street is that far from


@dataclass(frozen=True, slots=True)
class State:
    """A state, roughly: where it ends, where its people live and where hardly anyone does."""

    share: float  # of all points
    towns: int  # beside its cities
    cities: Floats  # longitude, latitude, thousands of people
    wild: Floats  # ellipses: longitude, latitude, and half an axis of each in degrees
    outline: Floats  # corners


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
    """Made-up road intersections of Washington and New Mexico, as many as the paper has and in the same two corners.

    Public by nature: nobody lives in them, so that a plain generator of random numbers will do.
    """
    if n < 1:
        raise BadInput(f"A set of points needs one or more, got {n}.")
    rng = np.random.default_rng(seed)
    north = round(n * WASHINGTON.share)
    parts = [_state(rng, WASHINGTON, north), _state(rng, NEW_MEXICO, n - north)]
    points = np.round(rng.permutation(np.concatenate(parts)), 6)  # decimals of TIGER/Line
    return np.clip(points, PAPER_BOX.lo, PAPER_BOX.hi)


def _state(rng: np.random.Generator, state: State, n: int) -> Floats:
    centres, people = _towns(rng, state)
    towns, roads = round(n * IN_TOWNS), round(n * ON_HIGHWAYS)
    return np.concatenate(
        [
            _inside(state, towns, _streets(rng, centres, people, towns)),
            _inside(state, roads, _highways(rng, centres, people)),
            _inside(state, n - towns - roads, _country(rng, state)),
        ]
    )


def _inside(state: State, n: int, draw: Callable[[int], Floats]) -> Floats:
    """Draw until ``n`` points lie in the state."""
    found = np.empty((0, 2))
    while len(found) < n:
        more = draw(n - len(found))
        found = np.concatenate([found, more[_in_outline(more, state.outline)]])
    return found[:n]


def _in_outline(points: Floats, outline: Floats) -> Flags:
    """Inside where a ray to the east crosses the outline an odd number of times."""
    x, y = np.ascontiguousarray(points.T)
    inside = np.zeros(len(points), np.bool_)
    for (x0, y0), (x1, y1) in zip(outline, np.roll(outline, -1, axis=0), strict=True):
        if y0 != y1:
            near = np.flatnonzero((y > min(y0, y1)) & (y <= max(y0, y1)))
            inside[near] ^= x[near] < x0 + (y[near] - y0) * (x1 - x0) / (y1 - y0)
    return inside


def _anywhere(rng: np.random.Generator, state: State, n: int) -> Floats:
    """Even over the state, but for the wild parts."""

    def draw(m: int) -> Floats:
        points = rng.uniform(state.outline.min(0), state.outline.max(0), (2 * m + 8, 2))
        away = (points[:, None] - state.wild[:, :2]) / state.wild[:, 2:]
        lonely = ((away**2).sum(2) < 1).any(1)
        return np.asarray(points[~lonely | (rng.random(len(points)) < 0.05)])

    return _inside(state, n, draw)


def _towns(rng: np.random.Generator, state: State) -> tuple[Floats, Floats]:
    """Centres and thousands of people: the cities, suburbs around them, and towns anywhere, of Pareto sizes."""
    suburbs = state.towns // 2
    city = rng.choice(len(state.cities), suburbs, p=state.cities[:, 2] / state.cities[:, 2].sum())
    km = 4 + rng.gamma(1.5, 3 + np.sqrt(state.cities[city, 2]) / 2)
    around = state.cities[city, :2] + _offset(km, rng.uniform(0, 2 * np.pi, suburbs), state.cities[city, 1])
    centres = np.concatenate([state.cities[:, :2], around, _anywhere(rng, state, state.towns - suburbs)])
    people = np.concatenate([state.cities[:, 2], np.minimum(0.8 * (1 + rng.pareto(0.95, state.towns)), 40)])
    return centres, people


def _offset(km: Floats, angle: Floats, latitude: Floats) -> Floats:
    return np.stack([km * np.cos(angle) / np.cos(np.radians(latitude)), km * np.sin(angle)], axis=1) * KM


def _streets(rng: np.random.Generator, centres: Floats, people: Floats, n: int) -> Callable[[int], Floats]:
    """Corners of street grids, in blocks that are twice as wide for every so many radii from the centre.

    People thin out as exp(-distance / radius), and from one quarter to the next: old ones have half blocks, parks
    and rail yards hardly any. A corner is taken once, so that the middle of a town is full.
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
        mark = np.floor(at / QUARTER).astype(np.int64)
        liked = quarters[(mark[0] * 73 + mark[1] * 1021 + town * 331) & 0xFFF]
        level = np.clip(1 + away * rng.uniform(0.7, 1.4, len(town)) / 1.5 - (liked > 0.85), 0, 3).astype(np.int64)
        taken = rng.random(len(town)) < liked
        town, level = town[taken], level[taken]
        east, north = np.rint(at[:, taken] / (block[town] * 2.0 ** (level - 1))).astype(np.int64) + MIDDLE
        key = rng.permutation(np.unique((town * 4 + level) * 4 * MIDDLE**2 + east * 2 * MIDDLE + north))
        town, level = np.divmod(key // (4 * MIDDLE**2), 4)
        step = block[town] * 2.0 ** (level - 1)
        corner = (np.stack([key // (2 * MIDDLE), key]) % (2 * MIDDLE) - MIDDLE) * step
        corner += rng.normal(0, 0.07, corner.shape) * step
        bearing = np.arctan2(corner[1], corner[0]) + turn[town]
        return np.asarray(centres[town] + _offset(np.hypot(*corner), bearing, centres[town, 1]))

    return draw


def _highways(rng: np.random.Generator, centres: Floats, people: Floats) -> Callable[[int], Floats]:
    """Crossings along winding roads from each town to the two nearest that are larger."""
    order = np.argsort(-people)
    centres, people = centres[order], people[order]
    stretch = np.array([np.cos(np.radians(centres[:, 1].mean())), 1])
    far = np.hypot(*np.moveaxis((centres[:, None] - centres) * stretch, 2, 0)) / KM
    far[np.triu_indices(len(far))] = np.inf  # of the smaller ones, and of itself
    smaller = np.repeat(np.arange(1, len(far)), 2)
    larger = np.argsort(far[1:], axis=1)[:, :2].ravel()
    real = np.isfinite(far[smaller, larger])
    smaller, larger = smaller[real], larger[real]
    length = far[smaller, larger]
    across = (centres[larger] - centres[smaller]) @ np.array([[0, 1.0], [-1.0, 0]])
    walk = np.cumsum(rng.normal(0, 0.05, (len(length), BENDS + 1)), axis=1)
    part = np.linspace(0, 1, BENDS + 1)
    walk -= walk[:, :1] * (1 - part) + walk[:, -1:] * part  # ends where the towns are
    busy = length**0.9 * people[smaller] ** 0.2
    busy /= busy.sum()

    def draw(n: int) -> Floats:
        road = np.repeat(np.arange(len(length)), rng.multinomial(n + n // 8 + 16, busy))
        along = rng.beta(0.7, 0.7, len(road))  # more crossings near towns
        bend = np.minimum((along * BENDS).astype(np.int64), BENDS - 1)
        within = along * BENDS - bend
        sway = walk[road, bend] * (1 - within) + walk[road, bend + 1] * within
        on_it = centres[smaller[road]] + along[:, None] * (centres[larger] - centres[smaller])[road]
        on_it += sway[:, None] * across[road]
        aside = np.where(rng.random(len(road)) < 0.6, 0.02, 1.2) * rng.laplace(0, 1, len(road))  # km: farm roads
        return rng.permutation(on_it + _offset(aside, rng.uniform(0, 2 * np.pi, len(road)), on_it[:, 1]))

    return draw


def _country(rng: np.random.Generator, state: State) -> Callable[[int], Floats]:
    """Tracks in clumps of all sizes, half of them on the mile grid of the land survey, and a thin scatter."""
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
        mile = np.array([MILE * KM / math.cos(math.radians(state.outline[:, 1].mean())), MILE * KM])
        ruled = rng.random(len(points)) < 0.5
        points[ruled] = np.rint(points[ruled] / mile) * mile + rng.normal(0, 0.04, (ruled.sum(), 2)) * mile
        return rng.permutation(points)

    return draw


@dataclass(frozen=True, slots=True)
class Skew:
    """How unevenly points lie over ``CELLS`` × ``CELLS`` cells."""

    points: int
    empty: float  # share of cells without a point
    fullest: float  # share of points in the fullest 1 % of cells
    half: float  # share of cells, fullest first, that hold half of the points
    gini: float  # 0 where all cells hold the same, 1 where one holds all


def skew(points: Floats, domain: Domain) -> Skew:
    """The points outside of the domain do not count."""
    held = _held(points, domain)
    total = held.sum()
    if not total:
        raise BadInput(f"No point lies in the domain {domain}: give another domain.")
    part = np.cumsum(held) / total  # of the fullest 1, 2, 3 ... cells
    return Skew(
        points=int(total),
        empty=float((held == 0).mean()),
        fullest=float(part[round(len(held) / 100) - 1]),
        half=float((np.searchsorted(part, 0.5) + 1) / len(held)),
        gini=float(2 * part.mean() - 1 - 1 / len(held)),
    )


def _held(points: Floats, domain: Domain) -> Floats:
    """Points in each cell, the fullest first."""
    return np.sort(_count(points, domain, CELLS, CELLS).ravel())[::-1]


def _count(points: Floats, domain: Domain, across: int, up: int) -> Floats:
    ranges = list(zip(domain.lo, domain.hi, strict=True))
    return np.histogram2d(points[:, 0], points[:, 1], bins=(across, up), range=ranges)[0]


def describe(points: Floats, domain: Domain) -> str:
    """A sentence."""
    seen = skew(points, domain)
    return (
        f"{seen.points:,} points in {domain}: of {CELLS} × {CELLS} cells {seen.empty:.1%} are empty, the fullest 1 % "
        f"hold {seen.fullest:.1%} of the points and the fullest {seen.half:.2%} half of them; Gini {seen.gini:.3f}."
    )


def draw_points(points: Floats, domain: Domain, folder: Path, source: str) -> list[Path]:
    """A map of density, and which part of the points the fullest cells hold, as ``data.png`` and ``data.svg``."""
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
    up = int(np.clip(PIXELS * aspect * (north - south) / (east - west), PIXELS // 4, PIXELS * 4))
    held = _count(points, domain, PIXELS, up).T
    axes.set_facecolor("#f4f4f1")
    axes.grid(False)
    drawn = axes.imshow(
        np.where(held > 0, held, np.nan),
        origin="lower",
        extent=(west, east, south, north),
        norm=LogNorm(1, max(float(held.max()), 10)),
        cmap="magma_r",
        interpolation="none",
        aspect=aspect if PIXELS / 4 < up < PIXELS * 4 else "auto",
    )
    axes.set(xlabel=x, ylabel=y)
    axes.locator_params(nbins=5)
    axes.figure.colorbar(drawn, ax=axes, pad=0.02).set_label("points a pixel")


def _draw_share(axes: Any, points: Floats, domain: Domain) -> None:
    from matplotlib.ticker import PercentFormatter

    held = _held(points, domain)
    cells = np.arange(1, len(held) + 1) / len(held)
    part = np.cumsum(held) / held.sum()
    axes.plot(cells, part, color=COLOURS[0], linewidth=2)
    axes.plot(cells, cells, color="#666666", linestyle="--")
    for text, height, at, colour in (
        ("these points", 0.75, cells[np.searchsorted(part, 0.75)], COLOURS[0]),
        ("spread evenly", 0.25, 0.25, "#666666"),
    ):
        left = at > math.sqrt(cells[0])  # of the line is more room
        axes.text(at * (0.8 if left else 1.25), height, text, color=colour, ha="right" if left else "left", va="center")
    axes.set(xscale="log", xlim=(cells[0], 1), ylim=(0, 1.02), ylabel="of the points")
    axes.set_xlabel(f"of {CELLS} × {CELLS} cells, the fullest first")
    axes.xaxis.set_major_formatter(lambda part, _: f"{part:.3%}".rstrip("0%").rstrip(".") + " %")
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))


def read_points(path: str | os.PathLike[str], domain: Domain | None = None) -> tuple[Floats, Domain, str]:
    """Points of a file or a folder of files, their domain, and where they come from in words.

    CSV and Parquet with columns lon and lat, longitude and latitude, x and y, or the domain's names, or with no other
    numbers than two columns; and TIGER/Line. Without a domain it is the box around the points: right for public data
    in a study whose releases are marked as not private, and never for data about people.
    """
    place = Path(path)
    must_exist(place)
    if domain is not None and domain.dimensions != 2:
        raise BadInput(f"The study needs a domain with two axes, got {domain.dimensions}: {domain}.")
    if is_tiger(place) or (place.is_dir() and any(map(is_tiger, place.rglob("*")))):
        points, names, source = read_tiger(place), ("lon", "lat"), f"road intersections of TIGER/Line, {place.name}"
    else:
        points, names, source = *_read_tables(place, domain), place.name
    points = points[np.isfinite(points).all(axis=1)]
    domain = _box(points, names, place) if domain is None else domain
    points = points[((points >= domain.lo) & (points <= domain.hi)).all(axis=1)]
    if not len(points):
        raise BadInput(f"No point of {str(path)!r} lies in the domain {domain}: give another domain, or none.")
    return points, domain, source


def _box(points: Floats, names: tuple[str, str], place: Path) -> Domain:
    if not len(points):
        raise UnreadableInput(f"{str(place)!r} has no point: every row lacks a coordinate, or there is none.")
    lo, hi = points.min(axis=0), points.max(axis=0)
    if not (lo < hi).all():
        raise BadInput(f"The points of {str(place)!r} lie on one line, with no box around them: give a domain.")
    on_earth = names[1].lower().startswith("lat") and (np.abs([lo, hi]) <= (180, 90)).all()
    ranges = {name: (float(lo[axis]), float(hi[axis])) for axis, name in enumerate(names)}
    return Domain(ranges, crs=PAPER_BOX.crs if on_earth else None)


def _read_tables(place: Path, domain: Domain | None) -> tuple[Floats, tuple[str, str]]:
    files = [place]
    if place.is_dir():
        files = sorted(file for file in place.iterdir() if file.suffix.lower() in TABLES)
    if not files:
        raise UnreadableInput(f"The folder {str(place)!r} has no file of points: they end in {', '.join(TABLES)}.")
    tables = [_read_table(file) for file in files]
    names = [_coordinates(table, file, domain) for table, file in zip(tables, files, strict=True)]
    both = [[_numbers(table.column(name)) for name in two] for table, two in zip(tables, names, strict=True)]
    return np.concatenate([np.stack(columns, axis=1) for columns in both]), names[0]


def _read_table(file: Path) -> pa.Table:
    try:
        if file.suffix.lower() in TABLES[:2]:
            return pq.read_table(file)
        if file.suffix.lower() in TABLES:
            return _read_text(file)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise UnreadableInput(f"The file {str(file)!r} cannot be read: it is empty, damaged or no table.") from None
    raise UnreadableInput(
        f"A file's ending says how to read it, and that of {str(file)!r} is not known: use one of "
        f"{', '.join((*TABLES, *TIGER))}."
    )


def _read_text(file: Path) -> pa.Table:
    """A table whose first line names the columns, unless it has numbers only."""
    with open(file, encoding="utf-8-sig") as lines:
        first = lines.readline().strip()
    mark = max(" ,;\t|", key=lambda mark: (first.count(mark), mark != " "))
    unnamed = all(NUMBER.fullmatch(field) for field in first.split(mark))
    return pacsv.read_csv(
        file, pacsv.ReadOptions(autogenerate_column_names=unnamed), pacsv.ParseOptions(delimiter=mark)
    )


def _coordinates(table: pa.Table, file: Path, domain: Domain | None) -> tuple[str, str]:
    """The names of the two columns."""
    numeric = [field.name for field in table.schema if _is_number(field.type)]
    lower = {name.strip().lower(): name for name in numeric}
    pairs = ([] if domain is None else [domain.names]) + PAIRS
    known = ([lower[x.lower()], lower[y.lower()]] for x, y in pairs if {x.lower(), y.lower()} <= lower.keys())
    found = next(known, numeric)
    if len(found) != 2 or any(table.column_names.count(name) > 1 for name in found):
        raise UnreadableInput(
            f"The file {str(file)!r} must have numbers in columns lon and lat, or x and y, or in two columns only, "
            f"each with a name of its own; it has numbers in: {', '.join(numeric) or 'none'}."
        )
    return found[0], found[1]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _numbers(column: pa.ChunkedArray) -> Floats:
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)  # null becomes NaN

"""Coasts, borders of countries and states of the USA, for maps without a network.

Public domain: Natural Earth at 1:50 million, and the US Census Bureau; see ``tools/make_basemap.py``.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from veilmap.arrays import Flags, Floats

Line = Floats

FILE = Path(__file__).with_name("lines.npz")
STEPS = 200  # a degree
LAYERS = "coast", "borders", "states"


def lines(box: ArrayLike) -> dict[str, list[Line]]:
    """Longitudes and latitudes of the lines in a box (west, south, east, north), by layer.

    Lines end where they leave the box, at the next point outside it.
    """
    west, south, east, north = np.asarray(box, np.float64).tolist()
    found: dict[str, list[Line]] = {name: [] for name in LAYERS}
    for name in LAYERS:
        for line in _layer(name):
            low, high = np.minimum(line[:-1], line[1:]), np.maximum(line[:-1], line[1:])
            near = np.all((low <= [east, north]) & (high >= [west, south]), axis=1)
            found[name] += _runs(line, near)
    return found


@cache
def land() -> list[list[Line]]:
    """Of each polygon its rings, the outer one first."""
    with np.load(FILE) as parts:
        polygon = np.cumsum(~parts["holes"]) - 1
    found: list[list[Line]] = [[] for _ in range(polygon[-1] + 1)]
    for of, ring in zip(polygon, _read("land"), strict=True):
        found[of].append(ring)
    return found


@cache
def geojson() -> bytes:
    """All of it, as one FeatureCollection: a feature a layer, by its ``layer``, and one of polygons, ``land``."""
    layers = {name: {"type": "MultiLineString", "coordinates": _listed(_layer(name))} for name in LAYERS}
    polygons = {"type": "MultiPolygon", "coordinates": [_listed(rings) for rings in land()]}
    features = [
        {"type": "Feature", "properties": {"layer": name}, "geometry": shape}
        for name, shape in {"land": polygons, **layers}.items()
    ]
    return json.dumps({"type": "FeatureCollection", "features": features}, separators=(",", ":")).encode()


def _listed(lines: list[Line]) -> list[list[list[float]]]:
    return [line.round(3).tolist() for line in lines]


@cache
def _layer(name: str) -> list[Line]:
    return [run for ring in _read("land") for run in _runs(ring, _wet(ring))] if name == "coast" else _read(name)


def _wet(ring: Line) -> Flags:
    """Of each step of a ring, whether it is a coast: not where the map was cut open, nor at the pole."""
    a, b = ring[:-1], ring[1:]
    cut = (np.abs(a[:, 0]) == 180) & (a[:, 0] == b[:, 0])
    return np.asarray(~cut & ~((a[:, 1] <= -89.9) & (b[:, 1] <= -89.9)))


def _runs(line: Line, kept: Flags) -> list[Line]:
    """The pieces of a line whose steps are kept."""
    ends = np.flatnonzero(np.diff(kept, prepend=False, append=False))
    return [line[start : end + 1] for start, end in ends.reshape(-1, 2)]


@cache
def _read(name: str) -> list[Line]:
    with np.load(FILE) as parts:
        places, sizes = np.cumsum(parts[f"{name}_steps"].T, axis=0) / STEPS, parts[f"{name}_sizes"]
    return np.split(places, np.cumsum(sizes)[:-1])

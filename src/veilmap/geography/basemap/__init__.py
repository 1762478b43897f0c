"""Coasts, borders of countries and borders of US states, included so that maps need no network.

The data are in the public domain: Natural Earth at 1:50 million and the US Census Bureau. ``tools/make_basemap.py``
builds the file.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from veilmap.arrays import Flags, Floats

Line = Floats

LINES_FILE = Path(__file__).with_name("lines.npz")
STEPS_PER_DEGREE = 200  # coordinates are stored as whole numbers of steps
LAYERS = "coast", "borders", "states"


def lines(box: ArrayLike) -> dict[str, list[Line]]:
    """Return the lines in a box (west, south, east, north) by layer, as arrays of longitudes and latitudes.

    A line ends at its first point outside the box.
    """
    west, south, east, north = np.asarray(box, np.float64).tolist()
    layers: dict[str, list[Line]] = {name: [] for name in LAYERS}
    for name in LAYERS:
        for line in _layer(name):
            low, high = np.minimum(line[:-1], line[1:]), np.maximum(line[:-1], line[1:])
            inside = np.all((low <= [east, north]) & (high >= [west, south]), axis=1)
            layers[name] += _runs(line, inside)
    return layers


@cache
def land() -> list[list[Line]]:
    """Return the rings of each polygon of land, the outer ring first."""
    with np.load(LINES_FILE) as arrays:
        polygon = np.cumsum(~arrays["holes"]) - 1
    polygons: list[list[Line]] = [[] for _ in range(polygon[-1] + 1)]
    for index, ring in zip(polygon, _read("land"), strict=True):
        polygons[index].append(ring)
    return polygons


@cache
def geojson() -> bytes:
    """Return the whole base map as a FeatureCollection: one feature per layer of lines, and ``land`` as polygons."""
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
    return [run for ring in _read("land") for run in _runs(ring, _is_coast(ring))] if name == "coast" else _read(name)


def _is_coast(ring: Line) -> Flags:
    """Return which segments of a ring are coast, and not the cut of the map at 180° or its edge at the South Pole."""
    a, b = ring[:-1], ring[1:]
    cut = (np.abs(a[:, 0]) == 180) & (a[:, 0] == b[:, 0])
    return np.asarray(~cut & ~((a[:, 1] <= -89.9) & (b[:, 1] <= -89.9)))


def _runs(line: Line, kept: Flags) -> list[Line]:
    """Return the pieces of a line whose segments are kept."""
    ends = np.flatnonzero(np.diff(kept, prepend=False, append=False))
    return [line[start : end + 1] for start, end in ends.reshape(-1, 2)]


@cache
def _read(name: str) -> list[Line]:
    """Read the lines of a layer, which are stored as differences of points."""
    with np.load(LINES_FILE) as arrays:
        points, sizes = np.cumsum(arrays[f"{name}_steps"].T, axis=0) / STEPS_PER_DEGREE, arrays[f"{name}_sizes"]
    return np.split(points, np.cumsum(sizes)[:-1])

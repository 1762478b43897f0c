"""Write the bundled base map from public-domain data: python tools/make_basemap.py FOLDER

FOLDER is a node_modules with world-atlas 2.0.2 (Natural Earth, 1:50 million) and us-atlas 3.0.1 (US Census Bureau):

    npm install --no-package-lock --prefix /tmp/atlas world-atlas@2.0.2 us-atlas@3.0.1
    python tools/make_basemap.py /tmp/atlas/node_modules

Both are TopoJSON: lines between two countries, or two states, are in it once, and are found by being used twice. The
states' layer also has the shores of the Great Lakes, which the world's land has not.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from veilmap.geography.basemap import LINES_FILE, STEPS_PER_DEGREE

Line = NDArray[np.float64]
NEAR = 0.15  # degrees, in which two atlases may differ
WORLD = shapely.box(-180, -90, 180, 90)


def main(folder: Path) -> None:
    world = json.loads((folder / "world-atlas" / "countries-50m.json").read_text(encoding="utf-8"))
    states = json.loads((folder / "us-atlas" / "states-10m.json").read_text(encoding="utf-8"))
    polygons, borders = land(world), used(world, "countries", twice=True)
    inner = inland(polygons, borders)
    lakes = [line for line in used(states, "states", twice=False) for line in pieces(line, inner)]
    layers = {
        "land": [ring for polygon in polygons for ring in polygon],
        "borders": borders,
        "states": used(states, "states", twice=True) + lakes,
    }
    parts = {"holes": np.array([k > 0 for polygon in polygons for k, _ in enumerate(polygon)])}
    for name, lines in layers.items():
        steps = [line for line in map(quantised, lines) if len(line) > 1]
        parts[f"{name}_sizes"] = np.array([len(line) for line in steps], np.int32)
        parts[f"{name}_steps"] = np.diff(np.concatenate(steps), axis=0, prepend=0).T.astype(np.int32)
    np.savez_compressed(LINES_FILE, allow_pickle=False, **parts)


def arcs_of(topology: Any) -> list[Line]:
    scale, origin = (np.array(topology["transform"][name]) for name in ("scale", "translate"))
    return [np.cumsum(arc, axis=0) * scale + origin for arc in topology["arcs"]]


def rings_of(geometry: Any) -> Iterator[list[list[int]]]:
    """Of each polygon, its rings: numbers of arcs, ~k for arc k backwards."""
    if geometry["type"] == "Polygon":
        yield geometry["arcs"]
    elif geometry["type"] == "MultiPolygon":
        yield from geometry["arcs"]


def used(topology: Any, name: str, twice: bool) -> list[Line]:
    """The arcs that two or more of these have, or the others."""
    users = defaultdict(set)
    for k, geometry in enumerate(topology["objects"][name]["geometries"]):
        for polygon in rings_of(geometry):
            for arc in np.concatenate(polygon):
                users[max(arc, ~arc)].add(k)
    arcs = arcs_of(topology)
    return [arcs[arc] for arc in sorted(users) if (len(users[arc]) > 1) == twice]


def inland(polygons: list[list[Line]], borders: list[Line]) -> Any:
    """Away from coasts and borders: what ends a state there, and no other state, is the shore of a lake."""
    here = shapely.box(-130, 20, -60, 52)
    dry = shapely.union_all([shapely.make_valid(shapely.Polygon(rings[0], rings[1:])) for rings in polygons])
    dry = shapely.buffer(shapely.intersection(dry, here), -NEAR)
    return shapely.difference(dry, shapely.buffer(shapely.MultiLineString(borders), NEAR))


def pieces(line: Line, inside: Any) -> list[Line]:
    parts = shapely.get_parts(shapely.line_merge(shapely.intersection(shapely.LineString(line), inside)))
    return [np.array(part.coords) for part in parts if len(part.coords) > 1]


def land(topology: Any) -> list[list[Line]]:
    """The rings of each polygon of land, the outer one first."""
    arcs, whole = arcs_of(topology), []
    for geometry in topology["objects"]["land"]["geometries"]:
        for polygon in rings_of(geometry):
            rings = [around([arcs[k] if k >= 0 else arcs[~k][::-1] for k in ring]) for ring in polygon]
            shape = shapely.make_valid(shapely.Polygon(rings[0], rings[1:]))
            copies = [shapely.transform(shape, lambda at, by=by: np.add(at, [by, 0])) for by in (-360, 0, 360)]
            whole += shapely.get_parts(shapely.intersection(copies, WORLD)).tolist()
    whole = [shape for shape in whole if shape.geom_type == "Polygon" and not shape.is_empty]
    return [[np.array(ring.coords) for ring in (shape.exterior, *shape.interiors)] for shape in whole]


def around(arcs: list[Line]) -> Line:
    """One ring of arcs. It goes on beyond 180 degrees, where the atlas jumps, and around the South Pole."""
    ring = np.concatenate([arcs[0][:1], *(arc[1:] for arc in arcs)])
    ring[:, 0] = np.unwrap(ring[:, 0], period=360)
    if abs(ring[-1, 0] - ring[0, 0]) > 180:
        ring = np.vstack([ring, [ring[-1, 0], -90], [ring[0, 0], -90], ring[:1]])
    return ring


def quantised(line: Line) -> NDArray[np.int64]:
    steps = np.rint(line * STEPS_PER_DEGREE).astype(np.int64)
    new = np.any(np.diff(steps, axis=0, prepend=steps[:1] - 1), axis=1)
    return steps[new]


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""What people and programs may ask over HTTP, read with care: anything else is refused in a sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from veilmap.boxes import boxes_from_json, parse_box
from veilmap.domain import Axis, Domain
from veilmap.errors import BadInput, TooLarge, near_misses, need
from veilmap.explore.tiles import MOST_ZOOM, RAMPS

MOST_BYTES = 2_000_000  # of a request
MOST_BOXES = 10_000  # in one
MOST_POLYGONS = 1_000
MOST_BINS = 500
MOST_ITEMS = 10_000
FEW_ITEMS = 1_000


def record(body: bytes) -> dict[str, Any]:
    """A JSON object."""
    try:
        found = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise BadInput('The body of a request is a JSON object, like {"boxes": [[...]]}; this is not JSON.') from None
    if not isinstance(found, dict):
        raise BadInput(f'The body of a request is a JSON object, like {{"boxes": [[...]]}}; got {_kind(found)}.')
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def only(given: Mapping[str, Any], *known: str) -> None:
    """Refuse what nobody reads: it was meant as something else."""
    for name in given:
        if name not in known:
            raise BadInput(f"Nothing here is called {name[:40]!r}. {near_misses(name[:40], known)}")


def boxes(given: object, domain: Domain) -> list[Any]:
    """A list of boxes, or one; what is in them is checked when they are counted."""
    rows = boxes_from_json(given, domain)
    if len(rows) > MOST_BOXES:
        raise TooLarge(f"A request asks for at most {MOST_BOXES:,} boxes, got {len(rows):,}: ask in several.")
    return rows


def typed_boxes(texts: Sequence[str], domain: Domain) -> list[Any]:
    """Boxes as they are typed in an address: numbers with commas."""
    return boxes([parse_box(text, domain) for text in texts], domain)


def confidence(given: object) -> float:
    if not isinstance(given, float) or not 0 < given < 1:
        got = given if isinstance(given, float) else _kind(given)
        raise BadInput(f"A confidence is a number between 0 and 1, like 0.95; got {got}.")
    return given


def polygons(given: object) -> Any:
    """GeoJSON: a geometry, a feature or a collection of them."""
    shapely = need("shapely", "geo", "Counting in polygons")
    found = _geometries(given)
    if not found:
        raise BadInput("There is no polygon in what was asked: give GeoJSON with one or more.")
    if len(found) > MOST_POLYGONS:
        raise TooLarge(f"A request asks for at most {MOST_POLYGONS:,} polygons, got {len(found):,}: ask in several.")
    try:
        out = [shapely.from_geojson(json.dumps(geometry)) for geometry in found]
    except (shapely.errors.ShapelyError, ValueError, TypeError):
        out = [None]
    if any(shape is None for shape in out):
        raise BadInput(
            'Polygons are GeoJSON, like {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}.'
        )
    return out


def _geometries(given: object) -> list[dict[str, Any]]:
    if not isinstance(given, dict):
        raise BadInput(f"Polygons are GeoJSON objects; got {_kind(given)}.")
    kind = given.get("type")
    if kind == "FeatureCollection":
        features = given.get("features")
        if not isinstance(features, list):
            raise BadInput("A FeatureCollection has a list of features.")
        return [geometry for feature in features for geometry in _geometries(feature)]
    if kind == "Feature":
        return _geometries(given.get("geometry"))
    if kind not in ("Polygon", "MultiPolygon"):
        raise BadInput(f"Only a Polygon or MultiPolygon has points inside; got {str(kind)[:40]!r}.")
    return [given]


def numbers(given: object, most: int) -> list[int]:
    """Of zones."""
    if not isinstance(given, list) or not 0 < len(given) <= MOST_POLYGONS:
        raise BadInput(f"Zones are a list of 1 to {MOST_POLYGONS:,} numbers.")
    if not all(type(k) is int and 0 <= k < most for k in given):
        raise BadInput(f"The numbers of zones are whole, from 0 to {most - 1}.")
    return given


# What is typed in an address


def number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{what} is a number, got {text[:40]!r}.") from None


def whole(text: str, what: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most):
        raise BadInput(f"{what} is a whole number from {least:,} to {most:,}, got {text[:40]!r}.")
    return int(text)


def axis(text: str, domain: Domain) -> int:
    if text not in domain.names:
        raise BadInput(f"This release has no axis {text[:40]!r}. {near_misses(text[:40], domain.names)}")
    return domain.names.index(text)


def ends(low: str | None, high: str | None, of: Axis) -> tuple[float, float]:
    """Of a part of an axis; all of it where none are given."""
    start = of.lo if low is None else number(low, "The start of a histogram")
    stop = of.hi if high is None else number(high, "The end of a histogram")
    if not of.lo <= start < stop <= of.hi:
        raise BadInput(f"A histogram along {of.name} goes from a lower to a higher place in {of.lo:g} to {of.hi:g}.")
    return start, stop


def tile(zoom: str, x: str, y: str, theme: str) -> tuple[int, int, int, str]:
    if theme not in RAMPS:
        raise BadInput(f"A theme is {' or '.join(RAMPS)}, got {theme[:40]!r}.")
    z = whole(zoom, "A zoom", 0, MOST_ZOOM)
    return z, whole(x, "The column of a tile", 0, 2**z - 1), whole(y, "The row of a tile", 0, 2**z - 1), theme


def bounds(text: str) -> tuple[float, float, float, float]:
    """West, south, east, north; of six numbers, the heights are left out."""
    parts = [number(part, "A side of a bbox") for part in text.split(",")]
    if len(parts) not in (4, 6) or not all(map(math.isfinite, parts)):
        raise BadInput(f"A bbox is west,south,east,north in degrees, got {text[:80]!r}.")
    half = len(parts) // 2
    return parts[0], parts[1], parts[half], parts[half + 1]

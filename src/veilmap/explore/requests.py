"""Validation of HTTP requests: each function returns a checked value, or raises an error that names the rule."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from veilmap.boxes import boxes_from_json, parse_box
from veilmap.domain import Axis, Domain
from veilmap.errors import BadInput, TooLarge, near_misses, need
from veilmap.explore.tiles import COLOUR_RAMPS, MAX_ZOOM

MAX_BODY_BYTES = 2_000_000
MAX_BOXES = 10_000  # per request
MAX_POLYGONS = 1_000  # per request, and zones
MAX_BINS = 500
MAX_ITEMS = 10_000  # features per page
DEFAULT_ITEMS = 1_000  # features per page
MAX_QUOTED_CHARACTERS = 40  # of a client's text in an error message
BODY_RULE = 'The body of a request must be a JSON object, like {"boxes": [[...]]}'


def record(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body."""
    try:
        parsed = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise BadInput(f"{BODY_RULE}; this is not JSON.") from None
    if not isinstance(parsed, dict):
        raise BadInput(f"{BODY_RULE}; got {_kind(parsed)}.")
    return parsed


def _refuse(constant: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(constant)


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def must_be_known(values: Mapping[str, Any], *known: str) -> None:
    """Refuse a key that is not used here: it is likely a misspelling of another."""
    for name in values:
        if name not in known:
            quoted = name[:MAX_QUOTED_CHARACTERS]
            raise BadInput(f"There is no parameter {quoted!r} here. {near_misses(quoted, known)}")


def boxes(value: object, domain: Domain) -> list[Any]:
    """Return a list of boxes with the right number of sides. Their sides are checked when they are counted."""
    rows = boxes_from_json(value, domain)
    if len(rows) > MAX_BOXES:
        raise TooLarge(f"A request may have at most {MAX_BOXES:,} boxes, got {len(rows):,}. Send several requests.")
    return rows


def boxes_from_text(texts: Sequence[str], domain: Domain) -> list[Any]:
    """Return boxes that an address gives as numbers with commas between them."""
    return boxes([parse_box(text, domain) for text in texts], domain)


def confidence(value: object) -> float:
    """Return a confidence level between 0 and 1."""
    if not isinstance(value, float) or not 0 < value < 1:
        got = value if isinstance(value, float) else _kind(value)
        raise BadInput(f"A confidence must be a number between 0 and 1, like 0.95; got {got}.")
    return value


def polygons(value: object) -> Any:
    """Return the shapes of GeoJSON: of a geometry, a feature or a collection of features."""
    shapely = need("shapely", "geo", "Counting in polygons")
    geometries = _geometries(value)
    if not geometries:
        raise BadInput("The request has no polygon. Send GeoJSON with at least one.")
    if len(geometries) > MAX_POLYGONS:
        raise TooLarge(
            f"A request may have at most {MAX_POLYGONS:,} polygons, got {len(geometries):,}. Send several requests."
        )
    try:
        shapes = [shapely.from_geojson(json.dumps(geometry)) for geometry in geometries]
    except (shapely.errors.ShapelyError, ValueError, TypeError):
        shapes = [None]
    if any(shape is None for shape in shapes):
        raise BadInput(
            'Polygons must be GeoJSON, like {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}.'
        )
    return shapes


def _geometries(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, dict):
        raise BadInput(f"Polygons must be GeoJSON objects; got {_kind(value)}.")
    kind = value.get("type")
    if kind == "FeatureCollection":
        features = value.get("features")
        if not isinstance(features, list):
            raise BadInput("A FeatureCollection must have a list of features.")
        return [geometry for feature in features for geometry in _geometries(feature)]
    if kind == "Feature":
        return _geometries(value.get("geometry"))
    if kind not in ("Polygon", "MultiPolygon"):
        quoted = str(kind)[:MAX_QUOTED_CHARACTERS]
        raise BadInput(f"Only a Polygon or a MultiPolygon can be counted in; got {quoted!r}.")
    return [value]


def zone_numbers(value: object, zones: int) -> list[int]:
    """Return a list of zone numbers, each below the number of zones."""
    if not isinstance(value, list) or not 0 < len(value) <= MAX_POLYGONS:
        raise BadInput(f"zones must be a list of 1 to {MAX_POLYGONS:,} numbers.")
    if not all(type(k) is int and 0 <= k < zones for k in value):
        raise BadInput(f"The number of a zone must be a whole number from 0 to {zones - 1}.")
    return value


# Parameters in an address


def number(text: str, name: str) -> float:
    """Return a number; ``name`` begins the error message."""
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{name} must be a number, got {text[:MAX_QUOTED_CHARACTERS]!r}.") from None


def whole_number(text: str, name: str, least: int, most: int) -> int:
    """Return a whole number in a range; ``name`` begins the error message."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most):
        quoted = text[:MAX_QUOTED_CHARACTERS]
        raise BadInput(f"{name} must be a whole number from {least:,} to {most:,}, got {quoted!r}.")
    return int(text)


def axis(text: str, domain: Domain) -> int:
    """Return the index of an axis by its name."""
    if text not in domain.names:
        quoted = text[:MAX_QUOTED_CHARACTERS]
        raise BadInput(f"This release has no axis {quoted!r}. {near_misses(quoted, domain.names)}")
    return domain.names.index(text)


def histogram_range(low: str | None, high: str | None, axis: Axis) -> tuple[float, float]:
    """Return the ends of a histogram; by default those of the axis."""
    start = axis.lo if low is None else number(low, "The start of a histogram")
    stop = axis.hi if high is None else number(high, "The end of a histogram")
    if not axis.lo <= start < stop <= axis.hi:
        raise BadInput(
            f"A histogram along {axis.name} must start below its end, and both must lie in {axis.lo:g} to {axis.hi:g}."
        )
    return start, stop


def tile(zoom: str, x: str, y: str, theme: str) -> tuple[int, int, int, str]:
    """Return the zoom, column, row and theme of a tile."""
    if theme not in COLOUR_RAMPS:
        raise BadInput(f"A theme must be {' or '.join(COLOUR_RAMPS)}, got {theme[:MAX_QUOTED_CHARACTERS]!r}.")
    z = whole_number(zoom, "The zoom of a tile", 0, MAX_ZOOM)
    column = whole_number(x, "The column of a tile", 0, 2**z - 1)
    return z, column, whole_number(y, "The row of a tile", 0, 2**z - 1), theme


def bounding_box(text: str) -> tuple[float, float, float, float]:
    """Return west, south, east and north; of six numbers, the two heights are ignored."""
    sides = [number(side, "A side of a bbox") for side in text.split(",")]
    if len(sides) not in (4, 6) or not all(map(math.isfinite, sides)):
        raise BadInput(f"A bbox must be west,south,east,north in degrees, got {text[: 2 * MAX_QUOTED_CHARACTERS]!r}.")
    half = len(sides) // 2
    return sides[0], sides[1], sides[half], sides[half + 1]

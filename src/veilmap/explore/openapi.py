"""The description of the HTTP interface: OpenAPI 3.0 for programs, and an HTML page made from it for people."""

from __future__ import annotations

from html import escape
from typing import Any

from veilmap.boxes import box_order
from veilmap.domain import Domain
from veilmap.explore.requests import DEFAULT_ITEMS, MAX_BINS, MAX_BOXES, MAX_ITEMS, MAX_POLYGONS
from veilmap.explore.tiles import MAX_ZOOM

Record = dict[str, Any]

GEOJSON_TYPE = "application/geo+json"
OPENAPI_TYPE = "application/vnd.oai.openapi+json;version=3.0"
DEFAULT_CONFIDENCE = 0.95
ERROR: Record = {
    "description": "The request breaks a rule; the message says which.",
    "content": {
        "application/json": {
            "schema": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
        }
    },
}
NUMBERS: Record = {"type": "array", "items": {"type": "number"}}
ANSWERS: Record = {
    "type": "object",
    "properties": {
        "confidence": {"type": "number"},
        "private": {"type": "boolean", "description": "false: this release is not private and must not be published"},
        "estimate": NUMBERS,
        "stderr": NUMBERS,
        "low": NUMBERS,
        "high": NUMBERS,
    },
}
HISTOGRAM: Record = {
    "type": "object",
    "properties": {"axis": {"type": "string"}, "edges": NUMBERS, **ANSWERS["properties"]},
}
CONFIDENCE_TEXT = "Confidence level of the intervals."
CONFIDENCE: Record = {
    "type": "number",
    "minimum": 0,
    "maximum": 1,
    "exclusiveMinimum": True,
    "exclusiveMaximum": True,
    "default": DEFAULT_CONFIDENCE,
}


def _query(name: str, text: str, schema: Record, **more: Any) -> Record:
    return {"name": name, "in": "query", "description": text, "schema": schema, **more}


def _path(name: str, text: str) -> Record:
    schema = {"type": "integer", "minimum": 0}
    return {"name": name, "in": "path", "description": text, "required": True, "schema": schema}


def _get(summary: str, *parameters: Record, kind: str = "application/json", schema: Record | None = None) -> Record:
    answer = {"description": "The answer.", "content": {kind: {"schema": schema or {"type": "object"}}}}
    responses = {"200": answer, "4XX": ERROR}
    return {"summary": summary, **({"parameters": list(parameters)} if parameters else {}), "responses": responses}


def description(domain: Domain, version: str) -> Record:
    """Return the OpenAPI description of all routes."""
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "veilmap explore",
            "version": version,
            "description": "Counts with error bars from one release. The server has no access to the original data, "
            "and no request changes anything.",
        },
        "paths": {
            "/api/info": {"get": _get("The domain, the method and the privacy statement of the release.")},
            "/api/count": _count_methods(domain),
            "/api/histogram": {"get": _histogram(domain)},
            "/api/zones": {"get": _get("The zones of this server, with their borders and counts.", kind=GEOJSON_TYPE)},
            "/tiles/{z}/{x}/{y}.png": {"get": _tile()},
            **_ogc_paths(),
        },
    }


def _whole_domain(domain: Domain) -> list[float]:
    return [*domain.lo.tolist(), *domain.hi.tolist()]


def _box_text(domain: Domain) -> str:
    """Return an example of a box as it is written in an address."""
    return ",".join(f"{side:g}" for side in _whole_domain(domain))


def _confidence_parameter() -> Record:
    return _query("confidence", CONFIDENCE_TEXT, CONFIDENCE)


def _count_methods(domain: Domain) -> Record:
    box = _query(
        "box",
        f"{2 * domain.dimensions} numbers separated by commas: {box_order(domain)}. May be repeated.",
        {"type": "array", "items": {"type": "string"}},
        example=[_box_text(domain)],
    )
    post = {
        **_get("Count points in many boxes, in polygons, or in zones of this server.", schema=ANSWERS),
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": _count_body(domain), "example": {"boxes": [_whole_domain(domain)]}}
            },
        },
    }
    return {"get": _get("Count points in boxes.", box, _confidence_parameter(), schema=ANSWERS), "post": post}


def _count_body(domain: Domain) -> Record:
    sides = 2 * domain.dimensions
    box = {"type": "array", "items": {"type": "number"}, "minItems": sides, "maxItems": sides}
    return {
        "type": "object",
        "properties": {
            "boxes": {
                "type": "array",
                "items": box,
                "maxItems": MAX_BOXES,
                "description": f"At most {MAX_BOXES:,} boxes, each {sides} numbers: {box_order(domain)}.",
            },
            "polygons": {
                "type": "object",
                "description": f"Instead of boxes: GeoJSON with at most {MAX_POLYGONS:,} polygons.",
            },
            "zones": {
                "type": "array",
                "items": {"type": "integer", "minimum": 0},
                "description": "Instead of boxes: ids of zones, as /api/zones lists them.",
            },
            "confidence": {**CONFIDENCE, "description": CONFIDENCE_TEXT},
        },
    }


def _histogram(domain: Domain) -> Record:
    return _get(
        "Count points in equal bins along one axis.",
        _query("axis", "Name of the axis.", {"type": "string", "enum": list(domain.names)}, required=True),
        _query("bins", "Number of bins.", {"type": "integer", "minimum": 1, "maximum": MAX_BINS, "default": 60}),
        _query(
            "box",
            "Count only points inside this box. Its sides along the histogram's own axis are ignored.",
            {"type": "string"},
            example=_box_text(domain),
        ),
        _query("from", "Start of the first bin; by default the low end of the axis.", {"type": "number"}),
        _query("to", "End of the last bin; by default the high end of the axis.", {"type": "number"}),
        _confidence_parameter(),
        schema=HISTOGRAM,
    )


def _tile() -> Record:
    place = [
        _path("z", f"Zoom level, at most {MAX_ZOOM}."),
        _path("x", "Column of the tile, counted from the west."),
        _path("y", "Row of the tile, counted from the north."),
    ]
    theme = _query("theme", "Colour theme.", {"type": "string", "enum": ["light", "dark"], "default": "light"})
    return _get("One tile of the density map, as a PNG image.", *place, theme, kind="image/png")


def _ogc_paths() -> Record:
    bbox = _query("bbox", "west,south,east,north in degrees.", NUMBERS, style="form", explode=False)
    limit = _query(
        "limit", "Leaves per page.", {"type": "integer", "minimum": 1, "maximum": MAX_ITEMS, "default": DEFAULT_ITEMS}
    )
    offset = _query("offset", "Number of leaves to skip.", {"type": "integer", "minimum": 0, "default": 0})
    leaf = _path("cell", "Id of the leaf.")
    return {
        "/ogc": {"get": _get("OGC API - Features: the landing page.")},
        "/ogc/conformance": {"get": _get("The conformance classes of the standard that this server implements.")},
        "/ogc/collections": {"get": _get("The collections of features.")},
        "/ogc/collections/cells": {"get": _get("The collection of the leaves of the release.")},
        "/ogc/collections/cells/items": {
            "get": _get("The leaves, page by page.", bbox, limit, offset, kind=GEOJSON_TYPE)
        },
        "/ogc/collections/cells/items/{cell}": {"get": _get("One leaf.", leaf, kind=GEOJSON_TYPE)},
    }


def page(description: Record) -> str:
    """Return the description as an HTML page."""
    info = description["info"]
    sections = [
        _section(method.upper(), path, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    return PAGE_TEMPLATE.format(
        title=escape(info["title"]), about=escape(info["description"]), sections="\n".join(sections)
    )


def _section(method: str, path: str, operation: Record) -> str:
    rows = [(p["name"], _type(p["schema"]), p.get("description", "")) for p in operation.get("parameters", [])]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    rows += [
        (name, _type(schema), schema.get("description", ""))
        for name, schema in body.get("schema", {}).get("properties", {}).items()
    ]
    lines = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(kind)}</td><td>{escape(text)}</td></tr>"
        for name, kind, text in rows
    )
    head = "<thead><tr><th>Parameter</th><th>Type</th><th>Description</th></tr></thead>"
    table = f"<table>{head}<tbody>{lines}</tbody></table>" if lines else ""
    title = f"<h2><span>{method}</span> <code>{escape(path)}</code></h2>"
    return f"<section>{title}<p>{escape(operation['summary'])}</p>{table}</section>"


def _type(schema: Record) -> str:
    """Return the type of a parameter in words, with its maximum and default."""
    maximum = f", at most {schema['maximum']:,}" if "maximum" in schema else ""
    default = f", default {schema['default']}" if "default" in schema else ""
    return " or ".join(schema.get("enum", [schema["type"]])) + maximum + default


PAGE_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}: HTTP API</title>
<link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/app.css">
</head>
<body class="manual">
<main>
<p><a href="/">Back to the map</a></p>
<h1>{title}: HTTP API</h1>
<p>{about} For programs, the same description is available as <a href="/openapi.json">OpenAPI</a>.</p>
{sections}
</main>
</body>
</html>
"""

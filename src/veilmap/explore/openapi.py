"""The description of the interface, for programs (OpenAPI 3.0) and for people (a page made of it)."""

from __future__ import annotations

from html import escape
from typing import Any

from veilmap.boxes import box_order
from veilmap.domain import Domain
from veilmap.explore.requests import FEW_ITEMS, MOST_BINS, MOST_BOXES, MOST_ITEMS, MOST_POLYGONS

Record = dict[str, Any]

ERROR: Record = {
    "description": "What was asked breaks a rule; the sentence says which.",
    "content": {
        "application/json": {
            "schema": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
        }
    },
}


def _query(name: str, what: str, schema: Record, **more: Any) -> Record:
    return {"name": name, "in": "query", "description": what, "schema": schema, **more}


def _path(name: str, schema: Record) -> Record:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _get(summary: str, *parameters: Record, kind: str = "application/json", schema: Record | None = None) -> Record:
    answer = {"description": "The answer.", "content": {kind: {"schema": schema or {"type": "object"}}}}
    responses = {"200": answer, "4XX": ERROR}
    return {"summary": summary, **({"parameters": list(parameters)} if parameters else {}), "responses": responses}


NUMBERS: Record = {"type": "array", "items": {"type": "number"}}
ANSWERS: Record = {
    "type": "object",
    "properties": {
        "confidence": {"type": "number"},
        "private": {"type": "boolean", "description": "false: do not publish what this release says"},
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


def description(domain: Domain, version: str) -> Record:
    """All that can be asked."""
    numbers = 2 * domain.dimensions
    box = {"type": "array", "items": {"type": "number"}, "minItems": numbers, "maxItems": numbers}
    example = [*domain.lo.tolist(), *domain.hi.tolist()]
    confidence = {"type": "number", "minimum": 0, "maximum": 1, "exclusiveMinimum": True, "exclusiveMaximum": True}
    typed = _query(
        "box",
        f"{numbers} numbers with commas: {box_order(domain)}. May be repeated.",
        {"type": "array", "items": {"type": "string"}},
        example=[",".join(f"{n:g}" for n in example)],
    )
    sure = _query("confidence", "Of the intervals.", {**confidence, "default": 0.95})
    asked = {
        "type": "object",
        "properties": {
            "boxes": {"type": "array", "items": box, "maxItems": MOST_BOXES, "description": box_order(domain)},
            "polygons": {
                "type": "object",
                "description": f"Instead of boxes: GeoJSON with at most {MOST_POLYGONS:,} polygons.",
            },
            "zones": {
                "type": "array",
                "items": {"type": "integer", "minimum": 0},
                "description": "Instead of boxes: numbers of the zones of /api/zones.",
            },
            "confidence": {**confidence, "default": 0.95},
        },
    }
    post = {
        **_get("Count points in many boxes, in polygons, or in zones that were given.", schema=ANSWERS),
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": asked, "example": {"boxes": [example]}}},
        },
    }
    axis = _query("axis", "Its name.", {"type": "string", "enum": list(domain.names)}, required=True)
    bins = _query("bins", "How many.", {"type": "integer", "minimum": 1, "maximum": MOST_BINS, "default": 60})
    parts = [
        _query(name, f"Where it {what}.", {"type": "number"}) for name, what in {"from": "starts", "to": "ends"}.items()
    ]
    within = {**typed, "description": "Count only what lies in this box, as far as other axes go."}
    within["schema"] = {"type": "string"}
    within["example"] = typed["example"][0]
    tile = [_path(name, {"type": "integer", "minimum": 0}) for name in "zxy"]
    theme = _query("theme", "Its colours.", {"type": "string", "enum": ["light", "dark"], "default": "light"})
    bbox = _query("bbox", "west,south,east,north in degrees.", {"type": "array", "items": {"type": "number"}})
    bbox |= {"style": "form", "explode": False}
    limit = _query(
        "limit", "Cells a page.", {"type": "integer", "minimum": 1, "maximum": MOST_ITEMS, "default": FEW_ITEMS}
    )
    offset = _query("offset", "Cells to pass over.", {"type": "integer", "minimum": 0, "default": 0})
    features = "application/geo+json"
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "veilmap explore",
            "version": version,
            "description": "Counts with error bars from one release. Nothing here sees the data, or changes anything.",
        },
        "paths": {
            "/api/info": {"get": _get("What the release is, and what it promises.")},
            "/api/count": {"get": _get("Count points in boxes.", typed, sure, schema=ANSWERS), "post": post},
            "/api/histogram": {
                "get": _get("Counts along one axis.", axis, bins, within, *parts, sure, schema=HISTOGRAM)
            },
            "/api/zones": {
                "get": _get("The zones that were given, as they are drawn, with their counts.", kind=features)
            },
            "/tiles/{z}/{x}/{y}.png": {"get": _get("A picture of the density.", *tile, theme, kind="image/png")},
            "/ogc": {"get": _get("OGC API - Features: where to begin.")},
            "/ogc/conformance": {"get": _get("What of that standard is kept.")},
            "/ogc/collections": {"get": _get("The collections of features.")},
            "/ogc/collections/cells": {"get": _get("The leaves of the release.")},
            "/ogc/collections/cells/items": {"get": _get("Leaves, page by page.", bbox, limit, offset, kind=features)},
            "/ogc/collections/cells/items/{cell}": {
                "get": _get("One leaf.", _path("cell", {"type": "integer", "minimum": 0}), kind=features)
            },
        },
    }


def page(description: Record) -> str:
    """The same for people."""
    info, parts = description["info"], []
    for path, methods in description["paths"].items():
        for method, what in methods.items():
            parts.append(_section(method.upper(), path, what))
    return PAGE.format(title=escape(info["title"]), about=escape(info["description"]), parts="\n".join(parts))


def _section(method: str, path: str, what: Record) -> str:
    rows = [(p["name"], _type(p["schema"]), p.get("description", ""), p) for p in what.get("parameters", [])]
    body = what.get("requestBody", {}).get("content", {}).get("application/json", {})
    rows += [
        (name, _type(schema), schema.get("description", ""), {})
        for name, schema in body.get("schema", {}).get("properties", {}).items()
    ]
    lines = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(kind)}</td><td>{escape(text)}</td></tr>"
        for name, kind, text, _ in rows
    )
    head = "<thead><tr><th>name</th><th>type</th><th>what</th></tr></thead>"
    table = f"<table>{head}<tbody>{lines}</tbody></table>" if lines else ""
    title = f"<h2><span>{method}</span> <code>{escape(path)}</code></h2>"
    return f"<section>{title}<p>{escape(what['summary'])}</p>{table}</section>"


def _type(schema: Record) -> str:
    most = f", at most {schema['maximum']:,}" if "maximum" in schema else ""
    default = f", {schema['default']} if not given" if "default" in schema else ""
    return " or ".join(schema.get("enum", [schema["type"]])) + most + default


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}: interface</title>
<link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/app.css">
</head>
<body class="manual">
<main>
<p><a href="/">Back to the map</a></p>
<h1>{title}: interface</h1>
<p>{about} The same <a href="/openapi.json">for programs</a>.</p>
{parts}
</main>
</body>
</html>
"""

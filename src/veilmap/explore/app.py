"""The web application: the page, its files, and the JSON interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from veilmap.answers.answerer import Answers
from veilmap.errors import BadInput
from veilmap.explore import openapi, requests
from veilmap.explore.ogc_api import ogc_routes
from veilmap.explore.openapi import GEOJSON_TYPE, OPENAPI_TYPE
from veilmap.explore.responses import (
    as_json,
    catch_errors,
    confidence_of,
    get,
    http_error,
    internal_error,
    read_body,
    run_where_fastest,
)
from veilmap.explore.security import Guard
from veilmap.explore.session import Session, answer_columns

CONTENT_TYPES = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}
AREA_KEYS = ("boxes", "polygons", "zones")
NO_ZONES = "This server has no zones. Start it with --zones FILE."


def make_app(session: Session, files: Mapping[str, bytes], host: str = "127.0.0.1") -> Guard:
    """Return the application with all routes, behind the checks of every request."""

    async def tile(request: Request) -> Response:
        place = request.path_params
        requests.must_be_known(request.query_params, "theme", "v")
        address = requests.tile(place["z"], place["x"], place["y"], request.query_params.get("theme", "light"))
        body = await run_in_threadpool(lambda: session.tile(*address))
        return Response(body, media_type="image/png", headers={"cache-control": "private, max-age=86400"})

    async def zones(_: Request) -> Response:
        if session.zones is None:
            raise HTTPException(404, NO_ZONES)
        return as_json(session.zones.collection, kind=GEOJSON_TYPE)

    async def info(_: Request) -> Response:
        return as_json(await run_in_threadpool(lambda: session.info))

    async def base_map(_: Request) -> Response:
        return Response(await run_in_threadpool(lambda: session.base_map), media_type=GEOJSON_TYPE)

    async def describe(_: Request) -> Response:
        return as_json(session.description, kind=OPENAPI_TYPE)

    async def manual(_: Request) -> Response:
        return Response(openapi.page(session.description), media_type="text/html")

    async def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in files:  # files are in memory: no request opens a path
            raise HTTPException(404)
        kind = CONTENT_TYPES.get(name.rpartition(".")[2], "application/octet-stream")
        return Response(files[name], media_type=kind, headers={"cache-control": "no-cache"})

    routes = [
        get("/", file),
        get("/static/{name}", file),
        get("/api/info", info),
        get("/api/zones", zones),
        get("/tiles/{z}/{x}/{y}.png", tile),
        get("/basemap.json", base_map),
        get("/openapi.json", describe),
        get("/api", manual),
        *count_routes(session),
        *ogc_routes(session),
    ]
    handlers: Any = {HTTPException: http_error, 500: internal_error}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), host)


def count_routes(session: Session) -> list[Route]:
    """Return the routes that count in boxes, polygons and zones."""
    api = CountApi(session)
    return [
        get("/api/count", api.count_in_query),
        Route("/api/count", catch_errors(api.count_in_body), methods=["POST"]),
        get("/api/histogram", api.histogram),
    ]


@dataclass(frozen=True)
class CountApi:
    """The handlers that count."""

    session: Session

    async def count_in_query(self, request: Request) -> Response:
        """Count in the boxes that the address names."""
        query = request.query_params
        requests.must_be_known(query, "box", "confidence")
        boxes = requests.boxes_from_text(query.getlist("box"), self.session.release.domain)
        return await run_where_fastest(len(boxes), self._count, boxes, confidence_of(request))

    async def count_in_body(self, request: Request) -> Response:
        """Count in the boxes, polygons or zones of a JSON body."""
        session = self.session
        record = requests.record(await read_body(request))
        requests.must_be_known(record, *AREA_KEYS, "confidence")
        if sum(key in record for key in AREA_KEYS) != 1:
            raise BadInput("A request must have exactly one of boxes, polygons and zones.")
        confidence = requests.confidence(record.get("confidence", 0.95))
        if "boxes" in record:
            boxes = requests.boxes(record["boxes"], session.release.domain)
            return await run_where_fastest(len(boxes), self._count, boxes, confidence)
        if "polygons" in record:
            shapes = await run_in_threadpool(requests.polygons, record["polygons"])
        elif session.zones is None:
            raise BadInput(NO_ZONES)
        else:
            shapes = session.zones.shapes[requests.zone_numbers(record["zones"], len(session.zones.shapes))]
        return await run_in_threadpool(self._count, shapes, confidence)

    async def histogram(self, request: Request) -> Response:
        """Count in equal bins along one axis."""
        query, domain = request.query_params, self.session.release.domain
        requests.must_be_known(query, "axis", "bins", "box", "from", "to", "confidence")
        axis = requests.axis(query.get("axis", ""), domain)
        bins = requests.whole_number(query.get("bins", "60"), "The number of bins", 1, requests.MAX_BINS)
        texts = query.getlist("box") or [",".join(map(repr, [*domain.lo.tolist(), *domain.hi.tolist()]))]
        boxes = np.repeat(np.array(requests.boxes_from_text(texts[:1], domain), np.float64), bins, axis=0)
        edges = np.linspace(*requests.histogram_range(query.get("from"), query.get("to"), domain.axes[axis]), bins + 1)
        boxes[:, axis], boxes[:, axis + domain.dimensions] = edges[:-1], edges[1:]
        more = {"axis": domain.names[axis], "edges": edges.tolist()}
        return await run_in_threadpool(lambda: self._count(boxes, confidence_of(request), **more))

    def _count(self, areas: Any, confidence: float, **more: Any) -> Response:
        release = self.session.release
        answers: Answers = release.count(areas, confidence)
        head = {"confidence": answers.confidence, "private": release.privacy.private}
        return as_json({**more, **head, **answer_columns(answers)})

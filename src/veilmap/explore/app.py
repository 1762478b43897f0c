"""The server's answers."""

from __future__ import annotations

from collections.abc import Mapping
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
from veilmap.explore.ogc_api import features
from veilmap.explore.responses import GEOJSON, as_json, body_of, failure, get, http_error, safely, soon, sureness
from veilmap.explore.security import Guard
from veilmap.explore.session import Explored, answered

KINDS = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}
WHERE = ("boxes", "polygons", "zones")
NO_ZONES = "No zones were given: start with --zones FILE."


def make_app(explored: Explored, files: Mapping[str, bytes], host: str = "127.0.0.1") -> Guard:
    """All of it: the page, its files, and the answers."""

    async def tile(request: Request) -> Response:
        part = request.path_params
        requests.only(request.query_params, "theme", "v")
        place = requests.tile(part["z"], part["x"], part["y"], request.query_params.get("theme", "light"))
        body = await run_in_threadpool(lambda: explored.tile(*place))
        return Response(body, media_type="image/png", headers={"cache-control": "private, max-age=86400"})

    async def zones(_: Request) -> Response:
        if explored.zones is None:
            raise HTTPException(404, NO_ZONES)
        return as_json(explored.zones.collection, kind=GEOJSON)

    async def info(_: Request) -> Response:
        return as_json(await run_in_threadpool(lambda: explored.info))

    async def lines(_: Request) -> Response:
        return Response(await run_in_threadpool(lambda: explored.base_map), media_type=GEOJSON)

    async def describe(_: Request) -> Response:
        return as_json(explored.description, kind="application/vnd.oai.openapi+json;version=3.0")

    async def manual(_: Request) -> Response:
        return Response(openapi.page(explored.description), media_type="text/html")

    async def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in files:  # what is not there, is not looked for
            raise HTTPException(404)
        kind = KINDS.get(name.rpartition(".")[2], "application/octet-stream")
        return Response(files[name], media_type=kind, headers={"cache-control": "no-cache"})

    routes = [
        get("/", file),
        get("/static/{name}", file),
        get("/api/info", info),
        get("/api/zones", zones),
        get("/tiles/{z}/{x}/{y}.png", tile),
        get("/basemap.json", lines),
        get("/openapi.json", describe),
        get("/api", manual),
        *counting(explored),
        *features(explored),
    ]
    handlers: Any = {HTTPException: http_error, 500: failure}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), host)


def counting(explored: Explored) -> list[Route]:
    """Everything that is counted when someone asks."""
    release, domain = explored.release, explored.release.domain

    def reply(answers: Answers, **more: Any) -> Response:
        told = {"confidence": answers.confidence, "private": release.privacy.private}
        return as_json({**more, **told, **answered(answers)})

    def count(boxes: list[Any], confidence: float) -> Response:
        return reply(release.count(boxes, confidence))

    async def count_typed(request: Request) -> Response:
        query = request.query_params
        requests.only(query, "box", "confidence")
        boxes = requests.typed_boxes(query.getlist("box"), domain)
        return await soon(len(boxes), count, boxes, sureness(request))

    async def count_posted(request: Request) -> Response:
        record = requests.record(await body_of(request))
        requests.only(record, *WHERE, "confidence")
        if sum(name in record for name in WHERE) != 1:
            raise BadInput("Ask for boxes, or polygons, or zones by their numbers: one of them.")
        confidence = requests.confidence(record.get("confidence", 0.95))
        if "boxes" in record:
            boxes = requests.boxes(record["boxes"], domain)
            return await soon(len(boxes), count, boxes, confidence)
        if "polygons" in record:
            shapes = await run_in_threadpool(requests.polygons, record["polygons"])
        elif explored.zones is None:
            raise BadInput(NO_ZONES)
        else:
            shapes = explored.zones.shapes[requests.numbers(record["zones"], len(explored.zones.shapes))]
        return await run_in_threadpool(lambda: reply(release.count(shapes, confidence)))

    async def histogram(request: Request) -> Response:
        query = request.query_params
        requests.only(query, "axis", "bins", "box", "from", "to", "confidence")
        axis = requests.axis(query.get("axis", ""), domain)
        bins = requests.whole(query.get("bins", "60"), "A number of bins", 1, requests.MOST_BINS)
        texts = query.getlist("box") or [",".join(map(repr, [*domain.lo.tolist(), *domain.hi.tolist()]))]
        boxes = np.repeat(np.array(requests.typed_boxes(texts[:1], domain), np.float64), bins, axis=0)
        edges = np.linspace(*requests.ends(query.get("from"), query.get("to"), domain.axes[axis]), bins + 1)
        boxes[:, axis], boxes[:, axis + domain.dimensions] = edges[:-1], edges[1:]
        more = {"axis": domain.names[axis], "edges": edges.tolist()}
        return await run_in_threadpool(lambda: reply(release.count(boxes, sureness(request)), **more))

    return [
        get("/api/count", count_typed),
        Route("/api/count", safely(count_posted), methods=["POST"]),
        get("/api/histogram", histogram),
    ]

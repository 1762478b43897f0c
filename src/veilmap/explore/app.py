"""The server's answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from http import HTTPStatus
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from veilmap.answer import Answers
from veilmap.errors import BadInput, TooLarge, VeilmapError
from veilmap.explore import asked, openapi
from veilmap.explore.base import base_map
from veilmap.explore.cells import CONFORMS, CRS84, NAME, Cells, cells_of
from veilmap.explore.guard import Guard
from veilmap.explore.plane import plane_of
from veilmap.explore.shown import MOST_ZOOM, RAMPS, Shown, shown
from veilmap.published import Release

Handler = Callable[[Request], Awaitable[Response]]

MOST_TILES = 512  # kept
SECONDS_A_BODY = 20
DIRECTLY = 200  # boxes that are counted sooner than a thread is found for them
KINDS = {
    "js": "text/javascript",
    "css": "text/css",
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
GEOJSON = "application/geo+json"


@dataclass(frozen=True, eq=False)
class Explored:
    """A release, and what is worked out of it once."""

    release: Release
    name: str
    version: str
    stamp: str  # in the addresses of tiles, so that no browser mistakes old ones for new ones
    zones: Mapping[str, Any] | None = None  # GeoJSON in the release's plane, with counts

    @cached_property
    def plane(self) -> Any:
        return plane_of(self.release.domain)

    @cached_property
    def shown(self) -> Shown:
        if self.plane is None:
            raise BadInput("There is no map of this release: its axes are not longitude and latitude, nor two.")
        return shown(self.release, self.plane)

    @cached_property
    def cells(self) -> Cells:
        return cells_of(self.release, self.plane)

    @cached_property
    def tile(self) -> Callable[[int, int, int, str], bytes]:
        return lru_cache(MOST_TILES)(self.shown.tile)

    @cached_property
    def base_map(self) -> bytes:
        return base_map(self.plane)

    @cached_property
    def description(self) -> dict[str, Any]:
        return openapi.description(self.release.domain, self.version)

    @cached_property
    def info(self) -> dict[str, Any]:
        """What the page shows before anyone asks."""
        release, domain = self.release, self.release.domain
        privacy, tree = release.privacy, release.estimates.tree
        whole = release.count([*domain.lo, *domain.hi])
        drawn = {}
        if self.plane is not None:
            colours = {theme: [*ramp] for theme, ramp in RAMPS.items()}
            legend = {"low": self.shown.low, "high": self.shown.high, "unit": self.plane.area_unit, "colours": colours}
            drawn = {"map": {**self.plane.to_json(), "legend": legend, "most_zoom": MOST_ZOOM}}
        return {
            "name": self.name,
            "stamp": self.stamp,
            "version": self.version,
            "domain": domain.to_json(),
            "private": privacy.private,
            "epsilon": float(privacy.epsilon),
            "delta": float(privacy.delta),
            "unit": privacy.unit,
            "statement": privacy.statement(),
            "method": release.method["name"],
            "height": tree.height,
            "nodes": tree.size,
            "leaves": int(tree.is_leaf.sum()),
            "created": release.provenance["created"],
            "zones": self.zones is not None,
            "whole": {name: values[0] for name, values in answered(whole).items()},
            **drawn,
        }

    def warm_up(self) -> None:
        """Make the tables that answers are made with: a server is asked often."""
        domain = self.release.domain
        enough = self.release.estimates.tree.size // 64 + 1
        boxes = np.repeat([[*domain.lo, *domain.hi]], enough, axis=0)
        _ = self.release.count(boxes).high
        _ = self.info


def answered(answers: Answers) -> dict[str, list[float]]:
    return {name: getattr(answers, name).tolist() for name in ("estimate", "stderr", "low", "high")}


def make_app(explored: Explored, files: Mapping[str, bytes], host: str = "127.0.0.1") -> Guard:
    """All of it: the page, its files, and the answers."""
    release, domain = explored.release, explored.release.domain

    def reply(answers: Answers, **more: Any) -> Response:
        told = {"confidence": answers.confidence, "private": release.privacy.private}
        return as_json({**more, **told, **answered(answers)})

    def count(boxes: list[Any], confidence: float, **more: Any) -> Response:
        return reply(release.count(boxes, confidence), **more)

    async def count_typed(request: Request) -> Response:
        query = request.query_params
        asked.only(query, "box", "confidence")
        boxes = asked.typed_boxes(query.getlist("box"), domain)
        return await soon(len(boxes), count, boxes, sureness(request))

    async def count_posted(request: Request) -> Response:
        record = asked.record(await body_of(request))
        asked.only(record, "boxes", "polygons", "confidence")
        if ("boxes" in record) == ("polygons" in record):
            raise BadInput("Ask for either boxes or polygons.")
        confidence = asked.confidence(record.get("confidence", 0.95))
        if "boxes" in record:
            boxes = asked.boxes(record["boxes"], domain)
            return await soon(len(boxes), count, boxes, confidence)
        return await run_in_threadpool(lambda: reply(release.count(asked.polygons(record["polygons"]), confidence)))

    async def histogram(request: Request) -> Response:
        query = request.query_params
        asked.only(query, "axis", "bins", "box", "confidence")
        axis = asked.axis(query.get("axis", ""), domain)
        bins = asked.whole(query.get("bins", "60"), "A number of bins", 1, asked.MOST_BINS)
        texts = query.getlist("box") or [",".join(map(repr, [*domain.lo.tolist(), *domain.hi.tolist()]))]
        boxes = np.repeat(np.array(asked.typed_boxes(texts[:1], domain), np.float64), bins, axis=0)
        edges = np.linspace(domain.axes[axis].lo, domain.axes[axis].hi, bins + 1)
        boxes[:, axis], boxes[:, axis + domain.dimensions] = edges[:-1], edges[1:]
        more = {"axis": domain.names[axis], "edges": edges.tolist()}
        return await run_in_threadpool(lambda: reply(release.count(boxes, sureness(request)), **more))

    async def tile(request: Request) -> Response:
        part = request.path_params
        asked.only(request.query_params, "theme", "v")
        place = asked.tile(part["z"], part["x"], part["y"], request.query_params.get("theme", "light"))
        body = await run_in_threadpool(lambda: explored.tile(*place))
        return Response(body, media_type="image/png", headers={"cache-control": "private, max-age=86400"})

    async def zones(_: Request) -> Response:
        if explored.zones is None:
            raise HTTPException(404, "No zones were given: start with --zones FILE.")
        return as_json(explored.zones, kind=GEOJSON)

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
        _get("/", file),
        _get("/static/{name}", file),
        _get("/api/info", info),
        _get("/api/count", count_typed),
        Route("/api/count", safely(count_posted), methods=["POST"]),
        _get("/api/histogram", histogram),
        _get("/api/zones", zones),
        _get("/tiles/{z}/{x}/{y}.png", tile),
        _get("/basemap.json", lines),
        _get("/openapi.json", describe),
        _get("/api", manual),
        *features(explored),
    ]
    handlers: Any = {HTTPException: _http_error, 500: _failure}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), host)


# OGC API - Features


def features(explored: Explored) -> list[Route]:
    """The leaves as a collection of features; links are to wherever the one who asks has found this."""

    def link(request: Request, path: str, rel: str, kind: str = "application/json", **query: Any) -> dict[str, str]:
        url = request.base_url.replace(path=path).include_query_params(**query)
        return {"href": str(url), "rel": rel, "type": kind}

    def collection(request: Request) -> dict[str, Any]:
        unit = explored.release.privacy.unit
        return {
            "id": NAME,
            "title": f"Cells of {explored.name}",
            "description": f"{explored.release.privacy.statement()} Counts are of rows; protected: {unit}.",
            "itemType": "feature",
            "crs": [CRS84],
            "extent": {"spatial": {"bbox": [explored.cells.extent], "crs": CRS84}},
            "links": [
                link(request, f"/ogc/collections/{NAME}", "self"),
                link(request, f"/ogc/collections/{NAME}/items", "items", GEOJSON),
            ],
        }

    async def landing(request: Request) -> Response:
        links = [
            link(request, "/ogc", "self"),
            link(request, "/openapi.json", "service-desc", "application/vnd.oai.openapi+json;version=3.0"),
            link(request, "/api", "service-doc", "text/html"),
            link(request, "/ogc/conformance", "conformance"),
            link(request, "/ogc/collections", "data"),
        ]
        title = f"veilmap: {explored.name}"
        return as_json({"title": title, "description": explored.release.privacy.statement(), "links": links})

    async def conformance(_: Request) -> Response:
        return as_json({"conformsTo": list(CONFORMS)})

    async def collections(request: Request) -> Response:
        one = await run_in_threadpool(lambda: collection(request))
        return as_json({"links": [link(request, "/ogc/collections", "self")], "collections": [one]})

    async def one_collection(request: Request) -> Response:
        return as_json(await run_in_threadpool(lambda: collection(request)))

    async def items(request: Request) -> Response:
        query = request.query_params
        asked.only(query, "bbox", "limit", "offset", "f")
        limit = min(asked.whole(query.get("limit", str(asked.FEW_ITEMS)), "A limit", 1, 10**9 - 1), asked.MOST_ITEMS)
        offset = asked.whole(query.get("offset", "0"), "An offset", 0, 10**9 - 1)
        bounds = asked.bounds(query["bbox"]) if "bbox" in query else None

        def page() -> Response:
            found = explored.cells.near(bounds)
            some = explored.cells.features(found[offset : offset + limit])
            path, kept = f"/ogc/collections/{NAME}/items", {n: query[n] for n in ("bbox",) if n in query}
            links = [link(request, path, "self", GEOJSON, **query)]
            if offset + limit < len(found):
                links.append(link(request, path, "next", GEOJSON, **kept, limit=limit, offset=offset + limit))
            if offset:
                links.append(link(request, path, "prev", GEOJSON, **kept, limit=limit, offset=max(offset - limit, 0)))
            told = {"numberMatched": len(found), "numberReturned": len(some), "links": links}
            return as_json({"type": "FeatureCollection", "features": some, **told}, kind=GEOJSON)

        return await run_in_threadpool(page)

    async def item(request: Request) -> Response:
        most = len(explored.cells.leaves) - 1
        try:
            cell = asked.whole(request.path_params["cell"], "A cell", 0, most)
        except BadInput as error:
            raise HTTPException(404, str(error)) from None
        found = (await run_in_threadpool(lambda: explored.cells.features(np.array([cell]))))[0]
        links = [
            link(request, f"/ogc/collections/{NAME}/items/{cell}", "self", GEOJSON),
            link(request, f"/ogc/collections/{NAME}", "collection"),
        ]
        return as_json({**found, "links": links}, kind=GEOJSON)

    return [
        _get("/ogc", landing),
        _get("/ogc/conformance", conformance),
        _get("/ogc/collections", collections),
        _get(f"/ogc/collections/{NAME}", one_collection),
        _get(f"/ogc/collections/{NAME}/items", items),
        _get(f"/ogc/collections/{NAME}/items/{{cell}}", item),
    ]


# How requests are read and replies written


def as_json(record: Mapping[str, Any], status: int = 200, kind: str = "application/json") -> Response:
    body = json.dumps(record, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return Response(body, status, headers={"cache-control": "no-store"}, media_type=kind)


async def soon(boxes: int, work: Callable[..., Response], *given: Any) -> Response:
    return work(*given) if boxes <= DIRECTLY else await run_in_threadpool(work, *given)


def sureness(request: Request) -> float:
    return asked.number(request.query_params.get("confidence", "0.95"), "A confidence")


async def body_of(request: Request) -> bytes:
    """No more of it than anyone may send, and no longer than anyone may take."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(SECONDS_A_BODY):
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                if size > asked.MOST_BYTES:
                    raise TooLarge(f"A request has at most {asked.MOST_BYTES:,} bytes: ask in several.")
    except TimeoutError:
        raise HTTPException(408, f"A request must arrive within {SECONDS_A_BODY} seconds.") from None
    return b"".join(parts)


def _get(path: str, handler: Handler) -> Route:
    return Route(path, safely(handler), methods=["GET"])


def safely(handler: Handler) -> Handler:
    """What breaks a rule is answered with the sentence that says so."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except VeilmapError as error:
            return as_json({"error": str(error)}, 413 if isinstance(error, TooLarge) else 400)
        except ClientDisconnect:
            return Response(status_code=400)

    return answer


SAID = {
    404: "There is nothing here: see /api for what can be asked.",
    405: "This can be read but not written: see /api for what can be asked.",
}


async def _http_error(_: Request, error: Exception) -> Response:
    status, detail = getattr(error, "status_code", 400), str(getattr(error, "detail", ""))
    plain = detail == HTTPStatus(status).phrase
    return as_json({"error": SAID.get(status, detail) if plain else detail}, status)


async def _failure(_: Request, error: Exception) -> Response:
    return as_json({"error": f"This should not happen ({type(error).__name__}): please report it."}, 500)

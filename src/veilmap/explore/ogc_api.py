"""OGC API - Features: the leaves of a release as a collection."""

from __future__ import annotations

from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from veilmap.errors import BadInput
from veilmap.explore import requests
from veilmap.explore.leaf_features import CONFORMS, CRS84, NAME
from veilmap.explore.responses import GEOJSON, as_json, get
from veilmap.explore.session import Explored


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
        requests.only(query, "bbox", "limit", "offset", "f")
        limit = min(
            requests.whole(query.get("limit", str(requests.FEW_ITEMS)), "A limit", 1, 10**9 - 1), requests.MOST_ITEMS
        )
        offset = requests.whole(query.get("offset", "0"), "An offset", 0, 10**9 - 1)
        bounds = requests.bounds(query["bbox"]) if "bbox" in query else None

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
            cell = requests.whole(request.path_params["cell"], "A cell", 0, most)
        except BadInput as error:
            raise HTTPException(404, str(error)) from None
        found = (await run_in_threadpool(lambda: explored.cells.features(np.array([cell]))))[0]
        links = [
            link(request, f"/ogc/collections/{NAME}/items/{cell}", "self", GEOJSON),
            link(request, f"/ogc/collections/{NAME}", "collection"),
        ]
        return as_json({**found, "links": links}, kind=GEOJSON)

    return [
        get("/ogc", landing),
        get("/ogc/conformance", conformance),
        get("/ogc/collections", collections),
        get(f"/ogc/collections/{NAME}", one_collection),
        get(f"/ogc/collections/{NAME}/items", items),
        get(f"/ogc/collections/{NAME}/items/{{cell}}", item),
    ]

"""OGC API - Features: the leaves of a release as one collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from veilmap.errors import BadInput
from veilmap.explore import requests
from veilmap.explore.openapi import GEOJSON_TYPE, OPENAPI_TYPE
from veilmap.explore.responses import as_json, get
from veilmap.explore.session import Session

CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
CONFORMANCE_CLASSES = tuple(
    f"http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/{name}" for name in ("core", "geojson", "oas30")
)
COLLECTION_PATH = "/ogc/collections/cells"
ITEMS_PATH = f"{COLLECTION_PATH}/items"
MAX_OFFSET = 10**9 - 1


def ogc_routes(session: Session) -> list[Route]:
    """Return the routes of the standard."""
    api = FeaturesApi(session)
    return [
        get("/ogc", api.landing),
        get("/ogc/conformance", api.conformance),
        get("/ogc/collections", api.collections),
        get(COLLECTION_PATH, api.collection),
        get(ITEMS_PATH, api.items),
        get(f"{ITEMS_PATH}/{{cell}}", api.item),
    ]


@dataclass(frozen=True)
class FeaturesApi:
    """The handlers of the standard's routes."""

    session: Session

    async def landing(self, request: Request) -> Response:
        links = [
            _link(request, "/ogc", "self"),
            _link(request, "/openapi.json", "service-desc", OPENAPI_TYPE),
            _link(request, "/api", "service-doc", "text/html"),
            _link(request, "/ogc/conformance", "conformance"),
            _link(request, "/ogc/collections", "data"),
        ]
        statement = self.session.release.privacy.statement()
        return as_json({"title": f"veilmap: {self.session.name}", "description": statement, "links": links})

    async def conformance(self, _: Request) -> Response:
        return as_json({"conformsTo": list(CONFORMANCE_CLASSES)})

    async def collections(self, request: Request) -> Response:
        collection = await run_in_threadpool(self._describe, request)
        return as_json({"links": [_link(request, "/ogc/collections", "self")], "collections": [collection]})

    async def collection(self, request: Request) -> Response:
        return as_json(await run_in_threadpool(self._describe, request))

    async def items(self, request: Request) -> Response:
        query = request.query_params
        requests.must_be_known(query, "bbox", "limit", "offset", "f")
        limit = requests.whole_number(query.get("limit", str(requests.DEFAULT_ITEMS)), "A limit", 1, MAX_OFFSET)
        offset = requests.whole_number(query.get("offset", "0"), "An offset", 0, MAX_OFFSET)
        bounds = requests.bounding_box(query["bbox"]) if "bbox" in query else None
        return await run_in_threadpool(self._page, request, bounds, min(limit, requests.MAX_ITEMS), offset)

    async def item(self, request: Request) -> Response:
        last = len(self.session.leaves) - 1
        try:
            leaf = requests.whole_number(request.path_params["cell"], "The id of a leaf", 0, last)
        except BadInput as error:
            raise HTTPException(404, str(error)) from None
        (feature,) = await run_in_threadpool(self.session.leaves.features, np.array([leaf]))
        links = [
            _link(request, f"{ITEMS_PATH}/{leaf}", "self", GEOJSON_TYPE),
            _link(request, COLLECTION_PATH, "collection"),
        ]
        return as_json({**feature, "links": links}, kind=GEOJSON_TYPE)

    def _describe(self, request: Request) -> dict[str, Any]:
        """Return the description of the collection."""
        privacy = self.session.release.privacy
        return {
            "id": "cells",
            "title": f"Leaves of {self.session.name}",
            "description": f"{privacy.statement()} Counts are of rows; protected: {privacy.unit}.",
            "itemType": "feature",
            "crs": [CRS84],
            "extent": {"spatial": {"bbox": [self.session.leaves.extent], "crs": CRS84}},
            "links": [_link(request, COLLECTION_PATH, "self"), _link(request, ITEMS_PATH, "items", GEOJSON_TYPE)],
        }

    def _page(
        self, request: Request, bounds: tuple[float, float, float, float] | None, limit: int, offset: int
    ) -> Response:
        """Return one page of features, with links to the pages before and after it."""
        query = request.query_params
        matched = self.session.leaves.touching(bounds)
        features = self.session.leaves.features(matched[offset : offset + limit])
        same_box = {"bbox": query["bbox"]} if "bbox" in query else {}
        links = [_link(request, ITEMS_PATH, "self", GEOJSON_TYPE, **query)]
        if offset + limit < len(matched):
            links.append(
                _link(request, ITEMS_PATH, "next", GEOJSON_TYPE, **same_box, limit=limit, offset=offset + limit)
            )
        if offset:
            previous = max(offset - limit, 0)
            links.append(_link(request, ITEMS_PATH, "prev", GEOJSON_TYPE, **same_box, limit=limit, offset=previous))
        numbers = {"numberMatched": len(matched), "numberReturned": len(features)}
        return as_json(
            {"type": "FeatureCollection", "features": features, **numbers, "links": links}, kind=GEOJSON_TYPE
        )


def _link(request: Request, path: str, rel: str, kind: str = "application/json", **query: Any) -> dict[str, str]:
    """Return a link to a path on this server, under the address by which the client has reached it."""
    url = request.base_url.replace(path=path).include_query_params(**query)
    return {"href": str(url), "rel": rel, "type": kind}

"""How requests are read and replies written."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from veilmap.errors import TooLarge, VeilmapError
from veilmap.explore import requests

Handler = Callable[[Request], Awaitable[Response]]

DIRECTLY = 200  # boxes that are counted sooner than a thread is found for them
GEOJSON = "application/geo+json"


def as_json(record: Mapping[str, Any], status: int = 200, kind: str = "application/json") -> Response:
    body = json.dumps(record, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    sent = body.encode(errors="replace")  # the name of a file need not be text
    return Response(sent, status, headers={"cache-control": "no-store"}, media_type=kind)


async def soon(boxes: int, work: Callable[..., Response], *given: Any) -> Response:
    return work(*given) if boxes <= DIRECTLY else await run_in_threadpool(work, *given)


def sureness(request: Request) -> float:
    return requests.number(request.query_params.get("confidence", "0.95"), "A confidence")


async def body_of(request: Request) -> bytes:
    """Return the body, and refuse one that is too large. The connection limits how long it may take."""
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > requests.MOST_BYTES:
            raise TooLarge(f"A request has at most {requests.MOST_BYTES:,} bytes: ask in several.")
    return b"".join(parts)


def get(path: str, handler: Handler) -> Route:
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


async def http_error(_: Request, error: Exception) -> Response:
    status, detail = getattr(error, "status_code", 400), str(getattr(error, "detail", ""))
    plain = detail == HTTPStatus(status).phrase
    return as_json({"error": SAID.get(status, detail) if plain else detail}, status)


async def failure(_: Request, error: Exception) -> Response:
    return as_json({"error": f"This should not happen ({type(error).__name__}): please report it."}, 500)

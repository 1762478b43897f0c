"""Reading of request bodies, and writing of replies and errors."""

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

MAX_BOXES_WITHOUT_THREAD = 200  # so few are counted faster than a thread takes over


def as_json(record: Mapping[str, Any], status: int = 200, kind: str = "application/json") -> Response:
    """Return a reply that no browser stores."""
    text = json.dumps(record, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    body = text.encode(errors="replace")  # a file name on disk need not be valid Unicode
    return Response(body, status, headers={"cache-control": "no-store"}, media_type=kind)


async def run_where_fastest(boxes: int, work: Callable[..., Response], *arguments: Any) -> Response:
    """Run work on a few boxes at once, and work on many boxes in a thread."""
    if boxes <= MAX_BOXES_WITHOUT_THREAD:
        return work(*arguments)
    return await run_in_threadpool(work, *arguments)


def confidence_of(request: Request) -> float:
    """Return the confidence that an address gives, or the default."""
    return requests.number(request.query_params.get("confidence", "0.95"), "A confidence")


async def read_body(request: Request) -> bytes:
    """Return the body, and refuse one that is too large. The connection limits how long it may take."""
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > requests.MAX_BODY_BYTES:
            raise TooLarge(
                f"The body of a request may have at most {requests.MAX_BODY_BYTES:,} bytes. Send several requests."
            )
    return b"".join(parts)


def get(path: str, handler: Handler) -> Route:
    """Return a route for GET requests."""
    return Route(path, catch_errors(handler), methods=["GET"])


def catch_errors(handler: Handler) -> Handler:
    """Return a handler that replies to errors of veilmap with their message."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except VeilmapError as error:
            return as_json({"error": str(error)}, 413 if isinstance(error, TooLarge) else 400)
        except ClientDisconnect:
            return Response(status_code=400)

    return answer


HTTP_ERROR_MESSAGES = {
    404: "This address does not exist. See /api for the addresses that do.",
    405: "This address does not accept that method. See /api for what it accepts.",
}


async def http_error(_: Request, error: Exception) -> Response:
    """Reply to an error of the HTTP layer: with its own detail if it has one, else with the message for its status."""
    status, detail = getattr(error, "status_code", 400), str(getattr(error, "detail", ""))
    no_detail = detail == HTTPStatus(status).phrase
    return as_json({"error": HTTP_ERROR_MESSAGES.get(status, detail) if no_detail else detail}, status)


async def internal_error(_: Request, error: Exception) -> Response:
    """Reply to an error that is a defect of veilmap: with its type only."""
    return as_json({"error": f"Internal error ({type(error).__name__}). Please report it."}, 500)

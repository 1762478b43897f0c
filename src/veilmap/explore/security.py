"""Checks before every request, and security headers on every reply.

A page of another website must not read a release through the browser of someone who explores one. So a request must
name this machine by an address as its host, which a website under a name of its own cannot do (DNS rebinding), and it
must not come from a page of another origin.
"""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any

HOST_PATTERN = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?", re.ASCII)
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "worker-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "geolocation=(), camera=(), microphone=()",
}
OTHER_ORIGIN = "Requests from pages of other websites are not permitted."


class Guard:
    """An ASGI application that passes permitted requests on to another one."""

    def __init__(self, app: Any, host: str) -> None:
        self.app, self.permitted_names = app, {"localhost", host.lower()}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                added = [(n.encode(), v.encode()) for n, v in SECURITY_HEADERS.items() if n.encode() not in present]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        if refusal := self._refusal(scope["headers"]):
            body = json.dumps({"error": refusal}).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await send_with_headers({"type": "http.response.start", "status": 403, "headers": headers})
            await send_with_headers({"type": "http.response.body", "body": body})
        else:
            await self.app(scope, receive, send_with_headers)

    def _refusal(self, headers: list[tuple[bytes, bytes]]) -> str | None:
        """Return the reason to refuse a request, or None if it is permitted."""
        values: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            values.setdefault(name.lower(), []).append(value)
        hosts = [value.decode("latin-1") for value in values.get(b"host", [])]
        if len(hosts) != 1 or not self._is_permitted(hosts[0]):
            return "The Host header must be an address of this machine or localhost. Use the address that was printed."
        origins = [value.decode("latin-1") for value in values.get(b"origin", [])]
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
            return OTHER_ORIGIN
        site, mode = (values.get(name, [b""])[0] for name in (b"sec-fetch-site", b"sec-fetch-mode"))
        if site in (b"cross-site", b"same-site") and mode != b"navigate":
            return OTHER_ORIGIN
        return None

    def _is_permitted(self, host: str) -> bool:
        """Return whether a host is an address or a permitted name: anyone can point another name at this machine."""
        if (match := HOST_PATTERN.fullmatch(host.lower())) is None:
            return False
        name = match[1].strip("[]")
        if name in self.permitted_names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

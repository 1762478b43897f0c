"""What stands before every request: who may ask, and what browsers may do with the answer.

A page from elsewhere must not read a release through the browser of someone who looks at one. So a request has to name
this machine as its host, which a page whose name was bent to this address cannot do (DNS rebinding), and it must not
come from another page.
"""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any

HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?", re.ASCII)
POLICY = "; ".join(
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
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "geolocation=(), camera=(), microphone=()",
}


class Guard:
    """An ASGI application in front of another."""

    def __init__(self, app: Any, host: str) -> None:
        self.app, self.names = app, {"localhost", host.lower()}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                told = {name for name, _ in message["headers"]}
                more = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in told]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        if fault := self._fault(scope["headers"]):
            body = json.dumps({"error": fault}).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await guarded({"type": "http.response.start", "status": 403, "headers": headers})
            await guarded({"type": "http.response.body", "body": body})
        else:
            await self.app(scope, receive, guarded)

    def _fault(self, headers: list[tuple[bytes, bytes]]) -> str | None:
        """Why a request is refused."""
        values: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            values.setdefault(name.lower(), []).append(value)
        hosts = [value.decode("latin-1") for value in values.get(b"host", [])]
        if len(hosts) != 1 or not self._is_here(hosts[0]):
            return "The host of a request must be an address of this machine: use the one that was printed."
        origins = [value.decode("latin-1") for value in values.get(b"origin", [])]
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
            return "A page from elsewhere may not ask here."
        site, mode = (values.get(name, [b""])[0] for name in (b"sec-fetch-site", b"sec-fetch-mode"))
        if site in (b"cross-site", b"same-site") and mode != b"navigate":
            return "A page from elsewhere may not ask here."
        return None

    def _is_here(self, host: str) -> bool:
        """Whether a host is an address and not a name, which someone else may have given to this machine."""
        if (found := HOST.fullmatch(host.lower())) is None:
            return False
        name = found[1].strip("[]")
        if name in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

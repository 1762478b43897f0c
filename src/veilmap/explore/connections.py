"""Limits on connections: how long the server waits for a client, and how many connections a client may hold.

A connection is either waiting for its client, which has not yet sent a whole request or received a whole reply, or its
request is being answered. Every wait has a time limit that bytes from the client do not extend. If there are too many
connections, the one that has waited longest is closed, so that clients that send only half of a request cannot keep
others out. A connection whose request is being answered is never closed in favour of another.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS_TO_CLOSE = 1.0
"""Time to send the last reply before the connection is cut."""


@dataclass(frozen=True)
class Limits:
    """Limits on waiting times, bytes and connections."""

    header_seconds: float = 10.0  # from the connection, or the last reply, to the end of a request's header
    body_seconds: float = 20.0  # from the end of the header to the end of the body
    reply_seconds: float = 60.0  # to receive a reply that is larger than the send buffers
    header_bytes: int = 16 * 1024
    connections_per_client: int = 200
    connections: int = 400

    def seconds(self, awaited: str) -> float:
        """Return how long a client may take to send a header or a body, or to receive a reply."""
        return {"header": self.header_seconds, "body": self.body_seconds, "reply": self.reply_seconds}[awaited]


class OpenConnections:
    """The connections of one server, ordered by when they last changed between waiting and being answered."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._open: dict[LimitedProtocol, None] = {}
        self._per_client: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, newcomer: LimitedProtocol) -> bool:
        """Add a connection; return False if there are too many and none is waiting.

        If there are too many, the connection that has waited longest is closed: one of the same client if that client
        has too many, else of any client.
        """
        host = newcomer.host
        too_many_of_client = self._per_client[host] >= self.limits.connections_per_client
        if too_many_of_client or len(self) >= self.limits.connections:
            waiting = (one for one in self._open if one.waits and (one.host == host or not too_many_of_client))
            longest = next(waiting, None)
            if longest is None:
                return False
            self.remove(longest)
            longest.transport.abort()
        self._open[newcomer] = None
        self._per_client[host] += 1
        return True

    def remove(self, gone: LimitedProtocol) -> None:
        if gone in self._open:
            del self._open[gone]
            self._per_client[gone.host] -= 1
            if not self._per_client[gone.host]:
                del self._per_client[gone.host]

    def move_last(self, changed: LimitedProtocol) -> None:
        if changed in self._open:
            self._open[changed] = self._open.pop(changed)


class LimitedProtocol(H11Protocol):
    """One connection, with a timer that runs while it waits for its client."""

    open_connections: OpenConnections

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.host = ""
        self._timer: asyncio.TimerHandle | None = None
        self._state: tuple[str, object] = ("new", None)

    @property
    def waits(self) -> bool:
        """Whether the server is waiting for the client."""
        return self._state[0] != "work"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self.host = self.client[0] if self.client else ""
        if self.open_connections.admit(self):
            self._update_state()
        else:
            self._close(503, "All connections are busy. Try again soon.")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.open_connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_state()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_state()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._update_state()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._update_state()

    def shutdown(self) -> None:
        """Stop without waiting for the body of a request."""
        if self._state[0] == "body":
            self.transport.abort()
        else:
            super().shutdown()

    def _update_state(self) -> None:
        """Start the timer of a new state. An unchanged state keeps its timer, even if bytes arrive."""
        state = (self._awaited(), self.cycle)
        if state == self._state:
            return
        self._state = state
        self.open_connections.move_last(self)
        self._stop_timer()
        if self.waits:
            self._timer = self.loop.call_later(self.open_connections.limits.seconds(state[0]), self._end_wait)

    def _awaited(self) -> str:
        """Return what the client has to send or receive next; "work" if a request is being answered."""
        if self.flow.write_paused:
            return "reply"
        if self.cycle is None or self.cycle.response_complete:
            return "header"
        return "body" if self.cycle.more_body else "work"

    def _end_wait(self) -> None:
        awaited = self._state[0]
        if self.transport.is_closing() or awaited == "reply":
            self.transport.abort()
        elif awaited == "header" and not self.conn.trailing_data[0]:
            self._close()  # no request has begun
        elif awaited == "body" and self.cycle.response_started:
            self._close()
        else:
            seconds = self.open_connections.limits.seconds(awaited)
            self._close(408, f"The {awaited} of a request must arrive within {seconds:g} seconds.")

    def _close(self, status: int = 0, error: str = "") -> None:
        if status:
            body = json.dumps({"error": error}).encode()
            head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nconnection: close\r\n"
            kind = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            self.transport.write((head + kind).encode() + body)
        self._stop_timer()
        self.transport.close()
        self._timer = self.loop.call_later(SECONDS_TO_CLOSE, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def limited_protocol(limits: Limits) -> type[LimitedProtocol]:
    """Return the protocol of one server: its connections are counted together."""
    return type("LimitedProtocol", (LimitedProtocol,), {"open_connections": OpenConnections(limits)})

"""Starting the server: a release, a port of this machine, and a browser."""

from __future__ import annotations

import errno
import ipaddress
import math
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilmap.errors import BadInput, MissingExtra, need
from veilmap.explore.zones import Zones
from veilmap.releases.release import Release

if TYPE_CHECKING:
    from veilmap.explore.connections import Limits

PORT = 8417
STATIC = Path(__file__).with_name("static")
BACKLOG = 128
"""Connections that are accepted at once: fewer than one client may have, or new ones would close others of the same
moment whose requests are not read yet."""
MOST_REQUESTS = 600
"""Requests at work, with those whose clients have gone: more than connections and backlog."""


def explore(
    release: Release,
    name: str,
    host: str = "127.0.0.1",
    port: int | None = None,
    zones: Zones | None = None,
    ready: Callable[[str], None] = lambda url: None,
    browse: bool = False,
) -> None:
    """Serve a release until someone interrupts; ``ready`` is told the address."""
    need("starlette", "explore", "Exploring a release")
    uvicorn = need("uvicorn", "explore", "Exploring a release")
    from veilmap.explore.app import make_app
    from veilmap.explore.session import Explored

    files = built_files()
    explored = Explored(release, name, version("veilmap"), secrets.token_hex(4), zones)
    with listening(host, port) as at:
        url = f"http://{_in_address(host)}:{at.getsockname()[1]}/"
        threading.Thread(target=explored.warm_up, daemon=True).start()
        ready(url)
        if browse:
            webbrowser.open(url)
        with suppress(KeyboardInterrupt):
            uvicorn.Server(server_config(make_app(explored, files, host))).run(sockets=[at])


def server_config(app: Any, limits: Limits | None = None) -> Any:
    """Return uvicorn's configuration, with limits on what a client may take."""
    import uvicorn

    from veilmap.explore.connections import Limits, limited_protocol

    limits = limits or Limits()
    return uvicorn.Config(
        app,
        http=limited_protocol(limits),
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        limit_concurrency=MOST_REQUESTS,
        h11_max_incomplete_event_size=limits.header_bytes,
        timeout_keep_alive=math.ceil(limits.header_seconds),
        timeout_graceful_shutdown=1,
    )


def built_files() -> dict[str, bytes]:
    """The page and its parts, all in memory: no request ever opens a file."""
    found = {path.name: path.read_bytes() for path in STATIC.glob("*") if path.is_file()}
    if "index.html" not in found:
        raise MissingExtra(
            "The web page is not built in this checkout: run make web, which gets what it needs, or install a wheel."
        )
    return found


def listening(host: str, port: int | None) -> socket.socket:
    """A socket at the port that is asked for; if none is, at the usual one, or any that is free."""
    not_here = BadInput(f"There is no host {host!r} here: use 127.0.0.1, or an address of this machine.")
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise not_here from None
    for number in (PORT, 0) if port is None else (port,):
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((place[0], number, *place[2:]))
        except OSError as error:
            found.close()
            if error.errno == errno.EADDRNOTAVAIL:
                raise not_here from None
            if number == PORT and port is None:
                continue
            raise BadInput(f"Cannot listen at {host} port {number}: {error.strerror}. Choose another --port.") from None
        found.listen(BACKLOG)
        return found
    raise AssertionError


def is_loopback(host: str) -> bool:
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _in_address(host: str) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host

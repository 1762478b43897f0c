"""Starting the server on a port of this machine, and opening a browser."""

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

DEFAULT_PORT = 8417
STATIC_FOLDER = Path(__file__).with_name("static")
MAX_QUEUED_CONNECTIONS = 128
"""Connections that may be accepted together. This is fewer than one client may have: else new connections would close
others that arrived at the same time and whose requests have not been read yet."""
MAX_RUNNING_REQUESTS = 600
"""Requests being answered, including those whose clients have disconnected: more than open and queued connections."""


def explore(
    release: Release,
    name: str,
    host: str = "127.0.0.1",
    port: int | None = None,
    zones: Zones | None = None,
    ready: Callable[[str], None] = lambda url: None,
    browse: bool = False,
) -> None:
    """Serve a release until interrupted. ``ready`` is called with the address."""
    need("starlette", "explore", "Exploring a release")
    uvicorn = need("uvicorn", "explore", "Exploring a release")
    from veilmap.explore.app import make_app
    from veilmap.explore.session import Session

    files = built_files()
    session = Session(release, name, version("veilmap"), secrets.token_hex(4), zones)
    with listening(host, port) as listener:
        url = f"http://{_host_in_url(host)}:{listener.getsockname()[1]}/"
        threading.Thread(target=session.warm_up, daemon=True).start()
        ready(url)
        if browse:
            webbrowser.open(url)
        with suppress(KeyboardInterrupt):
            uvicorn.Server(server_config(make_app(session, files, host))).run(sockets=[listener])


def server_config(app: Any, limits: Limits | None = None) -> Any:
    """Return the configuration of uvicorn, with limits per client."""
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
        backlog=MAX_QUEUED_CONNECTIONS,
        limit_concurrency=MAX_RUNNING_REQUESTS,
        h11_max_incomplete_event_size=limits.header_bytes,
        timeout_keep_alive=math.ceil(limits.header_seconds),
        timeout_graceful_shutdown=1,
    )


def built_files() -> dict[str, bytes]:
    """Read the page and its parts into memory, so that no request opens a file."""
    files = {path.name: path.read_bytes() for path in STATIC_FOLDER.glob("*") if path.is_file()}
    if "index.html" not in files:
        raise MissingExtra(
            "The web page is not built in this checkout. Run make web, which downloads what it needs, "
            "or install veilmap from a wheel."
        )
    return files


def listening(host: str, port: int | None) -> socket.socket:
    """Return a listening socket: at the given port, else at the default port, else at any free one."""
    no_such_host = BadInput(f"{host!r} is not an address of this machine. Use 127.0.0.1, or one of its addresses.")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise no_such_host from None
    for number in (DEFAULT_PORT, 0) if port is None else (port,):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address[0], number, *address[2:]))
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRNOTAVAIL:
                raise no_such_host from None
            if number == DEFAULT_PORT and port is None:
                continue
            raise BadInput(f"Cannot listen at {host} port {number}: {error.strerror}. Choose another --port.") from None
        listener.listen(MAX_QUEUED_CONNECTIONS)
        return listener
    raise AssertionError


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to a host."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_in_url(host: str) -> str:
    """Return a host as a URL of this machine writes it."""
    if host in ("0.0.0.0", "::"):  # noqa: S104
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host

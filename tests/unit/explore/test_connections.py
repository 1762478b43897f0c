"""Clients that hold connections to `veilmap explore` without asking anything: others are still answered."""

from __future__ import annotations

import http.client
import json
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

pytest.importorskip("starlette", reason="there is no starlette: pip install 'veilmap[explore]'")
pytest.importorskip("uvicorn", reason="there is no uvicorn: pip install 'veilmap[explore]'")

from tests.unit.explore.test_explore import FILES, Server, released, serving
from veilmap.explore import server as serve
from veilmap.explore.connections import Limits
from veilmap.explore.session import Session

HALF_HEADER = b"GET /api/info HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: "
HALF_BODY = b'POST /api/count HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{"boxes": '
WHOLE = b"GET /api/info HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HALVES = pytest.mark.parametrize("half", [HALF_HEADER, HALF_BODY], ids=["header", "body"])
PATIENCE = 30.0
"""Seconds that a test waits before it fails: far longer than anything here takes."""


@contextmanager
def holding(port: int, number: int, sent: bytes, host: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    """Hold connections open that have sent some bytes."""
    with ExitStack() as stack:
        links = []
        for _ in range(number):
            link = socket.create_connection(("127.0.0.1", port), PATIENCE, source_address=(host, 0))
            links.append(stack.enter_context(link))
            with suppress(ConnectionError):  # it may be closed already, for a newer one
                link.sendall(sent)
        yield links


def received(link: socket.socket) -> bytes:
    """Return all that comes until the other side closes."""
    found = b""
    with suppress(ConnectionError):
        while part := link.recv(1 << 16):
            found += part
    return found


def is_open(link: socket.socket) -> bool:
    return not select.select([link], [], [], 0)[0]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def reply_of(link: socket.socket) -> tuple[int, bytes]:
    """Return the status and the body of one reply."""
    reply = http.client.HTTPResponse(link)
    reply.begin()
    return reply.status, reply.read()


@pytest.fixture
def second_address() -> str:
    """An address of this machine besides 127.0.0.1."""
    try:
        with socket.create_server(("127.0.0.2", 0)):
            return "127.0.0.2"
    except OSError:
        pytest.skip("this system has one loopback address")


# Others are answered


@HALVES
def test_the_command_answers_while_300_clients_have_sent_half_of_a_request(half, tmp_path):
    if not (serve.STATIC_FOLDER / "index.html").exists():
        pytest.skip("the page is not built: make web")
    released().save(tmp_path / "homes.parquet")
    command = [sys.executable, "-c", "from veilmap.cli import main; main()", "explore", str(tmp_path / "homes.parquet")]
    with subprocess.Popen(
        [*command, "--no-open"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            line = running.stdout.readline()  # type: ignore[union-attr]
            port = int(line.split(" at ")[1].split()[0].split("/")[2].split(":")[1])
            with holding(port, 300, half):
                for _ in range(3):
                    link = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
                    link.request("POST", "/api/count", b'{"boxes": [[-123, 47, -121, 48]]}')
                    assert link.getresponse().status == 200
                    link.close()
        finally:
            running.send_signal(2)
            running.communicate(timeout=20)


def test_connections_that_are_accepted_at_once_do_not_close_each_other():
    limits = Limits()
    assert serve.MAX_QUEUED_CONNECTIONS < limits.connections_per_client < limits.connections
    assert limits.connections + serve.MAX_QUEUED_CONNECTIONS < serve.MAX_RUNNING_REQUESTS


@HALVES
def test_others_are_answered_while_half_a_request_is_held_on_every_connection(half):
    limits = Limits(PATIENCE, PATIENCE, connections_per_client=10)
    with serving(released(), limits=limits) as server, holding(server.port, 40, half):
        for _ in range(20):
            assert server.ask("/api/count", {"boxes": [[-123, 47, -121, 48]]}).status == 200
            assert len(server.open_connections) <= 10


def test_the_connection_that_has_waited_longest_is_closed_for_a_new_one():
    limits = Limits(PATIENCE, PATIENCE, connections_per_client=3)
    with ExitStack() as stack:
        server = stack.enter_context(serving(released(), limits=limits))
        (idle,) = stack.enter_context(holding(server.port, 1, WHOLE))
        assert reply_of(idle)[0] == 200
        first, second = stack.enter_context(holding(server.port, 2, HALF_HEADER))
        wait_until(lambda: len(server.open_connections) == 3)
        idle.sendall(WHOLE)
        assert reply_of(idle)[0] == 200  # and now it has waited less than the others
        assert server.ask("/api/info").status == 200
        assert received(first) == b""
        assert is_open(second)
        assert is_open(idle)


def test_a_client_with_too_many_connections_closes_its_own_and_no_others(second_address):
    limits = Limits(PATIENCE, PATIENCE, connections_per_client=5)
    with ExitStack() as stack:
        server = stack.enter_context(serving(released(), limits=limits))
        (mine,) = stack.enter_context(holding(server.port, 1, HALF_HEADER))
        wait_until(lambda: len(server.open_connections) == 1)
        links = stack.enter_context(holding(server.port, 30, HALF_HEADER, second_address))
        assert received(links[24]) == b""
        assert len(server.open_connections) == 6
        mine.sendall(b"\r\n\r\n")
        assert reply_of(mine)[0] == 200


def test_many_clients_together_have_a_limit(second_address):
    limits = Limits(PATIENCE, PATIENCE, connections_per_client=5, connections=7)
    with ExitStack() as stack:
        server = stack.enter_context(serving(released(), limits=limits))
        for host in ("127.0.0.1", second_address):
            stack.enter_context(holding(server.port, 5, HALF_HEADER, host))
        wait_until(lambda: len(server.open_connections) == 7)
        assert server.ask("/api/info").status == 200
        assert len(server.open_connections) <= 7


def test_a_request_at_work_is_never_closed_for_another(monkeypatch):
    begun, end = threading.Semaphore(0), threading.Event()

    def slow(*_: object) -> bytes:
        begun.release()
        assert end.wait(PATIENCE)
        return b"tile"

    monkeypatch.setattr(Session, "tile", slow)
    tile = b"GET /tiles/0/0/0.png HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    limits = Limits(PATIENCE, PATIENCE, connections_per_client=2)
    with serving(released(), limits=limits) as server, holding(server.port, 2, tile) as links:
        for _ in links:
            assert begun.acquire(timeout=PATIENCE)
        with holding(server.port, 1, b"") as (refused,):
            status, body = reply_of(refused)
            assert status == 503
            assert json.loads(body)["error"] == "All connections are busy. Try again soon."
        end.set()
        for link in links:
            assert reply_of(link) == (200, b"tile")


# Time limits


LARGE = {**FILES, "large.js": bytes(50_000_000)}
ASK_LARGE = b"GET /static/large.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture(scope="module")
def hasty() -> Iterator[Server]:
    with serving(released(), LARGE, Limits(header_seconds=1, body_seconds=1, reply_seconds=1)) as running:
        yield running


@HALVES
def test_half_a_request_is_closed_after_its_time(hasty, half):
    with holding(hasty.port, 20, half) as links:
        for link in links:
            said = received(link)
            assert said.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
            assert b"must arrive within 1 seconds." in said
    wait_until(lambda: len(hasty.open_connections) == 0)


def test_a_connection_that_asks_nothing_is_closed_after_its_time(hasty):
    with holding(hasty.port, 1, b"") as (silent,):
        assert received(silent) == b""
    with holding(hasty.port, 1, WHOLE) as (idle,):
        assert received(idle).startswith(b"HTTP/1.1 200")  # all of it, and the end


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        (HALF_HEADER, b"a"),
        (WHOLE + HALF_HEADER, b"a"),
        (HALF_BODY, b" "),
        (HALF_BODY.replace(b"/api/count", b"/nothing"), b" "),  # answered at once, with the body still to come
    ],
    ids=["header", "second header", "body", "body of an answered request"],
)
def test_bytes_that_drip_in_do_not_extend_the_time(hasty, first, drop):
    end = time.monotonic() + PATIENCE
    with holding(hasty.port, 1, first) as (link,), suppress(ConnectionError):
        while not select.select([link], [], [], 0.05)[0] or link.recv(1 << 16):
            assert time.monotonic() < end
            link.sendall(drop)


def test_a_reply_that_nobody_takes_is_dropped_after_its_time(hasty):
    with holding(hasty.port, 1, ASK_LARGE) as (link,):
        assert select.select([link], [], [], PATIENCE)[0]  # it has begun to arrive
        wait_until(lambda: len(hasty.open_connections) == 0)
        assert len(received(link)) < 50_000_000


@pytest.fixture(scope="module")
def usual() -> Iterator[Server]:
    with serving(released(), LARGE) as running:
        yield running


def test_a_long_reply_is_sent_whole(usual):
    assert len(usual.ask("/static/large.js").body) == 50_000_000


def test_requests_that_are_sent_at_once_are_answered_one_after_another(usual):
    last = WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with holding(usual.port, 1, WHOLE + WHOLE + last) as (link,):
        assert received(link).count(b"HTTP/1.1 200") == 3


def test_a_header_has_a_limit(usual):
    with holding(usual.port, 1, b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000) as (link,):
        assert received(link).startswith(b"HTTP/1.1 400")

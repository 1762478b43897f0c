"""The two parties' conversation: nothing crosses but what they agreed on, private releases and ciphertexts.

Left and right tell each other the rule and a release each. Then the left party sends, for every slot of every box that
is near a box of the other, its encrypted lists; the right party answers with one ciphertext for each slot of each of
these boxes. Who sends how much follows from the releases alone: dummies are on the wire like anybody else.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from veilmap.errors import BadInput, VeilmapError
from veilmap.matching import secure
from veilmap.matching.agreement import Agreement
from veilmap.matching.blocks import Side, read_blocks
from veilmap.matching.rule import Rule
from veilmap.published import Release, load

Ints = NDArray[np.int64]

CORES = os.cpu_count() or 1
PROTOCOL = "veilmap-match/1"
RULE, RELEASE, KEY, LISTS, ANSWERS = b"HRKLA"
MOST_BYTES = {RULE: 1 << 16, RELEASE: 1 << 30}


class Wire:
    """Messages over a socket, each of a kind. What crosses is also written to ``transcript``, if there is one."""

    def __init__(self, stream: socket.socket, transcript: BinaryIO | None = None) -> None:
        self._stream, self._transcript = stream, transcript

    def send(self, kind: int, data: bytes) -> None:
        self._keep(b">", kind, data)
        try:
            self._stream.sendall(struct.pack("<BQ", kind, len(data)) + data)
        except OSError:
            raise BadInput(GONE) from None

    def receive(self, kind: int, size: int | None = None) -> bytes:
        """The next message, which must be of this kind, and of this size where that is known."""
        found, length = struct.unpack("<BQ", self._read(9))
        if found != kind or (length > MOST_BYTES[kind] if size is None else length != size):
            raise BadInput("The other party does not speak this protocol: both need the same version of veilmap.")
        data = self._read(length)
        self._keep(b"<", kind, data)
        return data

    def close(self) -> None:
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self._stream.recv(min(size - len(parts), 1 << 20))
            except OSError:
                part = b""
            if not part:
                raise BadInput(GONE)
            parts += part
        return bytes(parts)

    def _keep(self, way: bytes, kind: int, data: bytes) -> None:
        if self._transcript is None:
            return
        try:
            self._transcript.write(way + struct.pack("<BQ", kind, len(data)) + data)
        except OSError as error:
            raise BadInput(f"Cannot write the transcript: {error.strerror}.") from None


GONE = (
    "The other party has gone: see what it says. What has crossed is spent; with --release a party starts again "
    "from the release it has made."
)


def meet(wire: Wire, side: Side, rule: Rule, *, left: bool) -> Agreement:
    """Exchange rules and releases."""
    wire.send(RULE, json.dumps(_hello(rule, left), sort_keys=True).encode())
    theirs = wire.receive(RULE)
    if theirs != json.dumps(_hello(rule, not left), sort_keys=True).encode():
        raise BadInput(_difference(_hello(rule, not left), theirs))
    if left:  # one after the other: two that both only send would wait for ever
        wire.send(RELEASE, _to_bytes(side.release))
    theirs = wire.receive(RELEASE)
    if not left:
        wire.send(RELEASE, _to_bytes(side.release))
    other = _from_bytes(theirs)
    if other.domain != rule.domain:
        raise BadInput("The other party's release has another domain than agreed.")
    blocks = (side.blocks, read_blocks(other, rule))
    met = Agreement.of(rule, *(blocks if left else blocks[::-1]))
    met.must_be_short()
    return met


def find_matches(wire: Wire, side: Side, met: Agreement, progress: Callable[[float], None]) -> Ints:
    """The left party's part: (k, 2), its own row and the other's slot, for every match among the candidates."""
    key, found, done, work = secure.make_key(), [], 0, met.work
    wire.send(KEY, key.public)
    with _pool() as pool, ThreadPoolExecutor(1) as post:  # lists go out while answers come in
        sending = post.submit(_send_lists, wire, side, met, key, pool)
        try:
            for seats, slots, _, _ in met.batches():
                ciphers = _cut(wire.receive(ANSWERS, secure.SIZE * len(seats) * len(slots)))
                rows = [ciphers[k : k + len(slots)] for k in range(0, len(ciphers), len(slots))]
                zero = np.array(list(pool.map(lambda row: [secure.is_zero(c, key) for c in row], rows)))
                i, j = np.nonzero(zero)
                found.append(np.stack([side.seats[seats[i]], slots[j]], axis=1))
                done += zero.size
                progress(done / work)
        except BaseException:
            wire.close()  # or the lists that nobody reads would be waited for
            why = sending.exception()  # it ends with the batch it is at
            if why is not None and str(why) != GONE:
                raise why from None  # the reason lies there
            raise
        sending.result()
    return np.concatenate([np.zeros((0, 2), np.int64), *found])


def compare_both(
    left: Side, right: Side, rule: Rule, progress: Callable[[float], None], transcript: BinaryIO | None = None
) -> Ints:
    """Both parties at one table: (k, 2), the rows that match, left and right. ``transcript`` is what the left kept."""
    here, there = socket.socketpair()
    with here, there, ThreadPoolExecutor(1) as other:
        answering = other.submit(_be_right, there, right, rule)
        try:
            wire = Wire(here, transcript)
            found = find_matches(wire, left, meet(wire, left, rule, left=True), progress)
        except BaseException:
            here.close()  # and the other party does not wait for ever
            raise
        answering.result()
    return np.stack([found[:, 0], right.seats[found[:, 1]]], axis=1)


def _be_right(stream: socket.socket, side: Side, rule: Rule) -> None:
    with stream:  # or the left party would wait for ever if this one fails
        wire = Wire(stream)
        answer_all(wire, side, meet(wire, side, rule, left=False), lambda part: None)


def measure_speed(rule: Rule, seconds: float = 1.0) -> tuple[float, float]:
    """Comparisons and listed ciphertexts a second on all cores, both parties' parts together, tried out shortly."""
    key = secure.make_key()
    picked = secure.veil([0] * rule.domain.dimensions, key)
    jobs = (lambda: secure.is_zero(secure.compare(picked, 0, key.public), key), lambda: secure.veil([1], key))
    with _pool() as pool:
        pairs, lists = (sum(pool.map(_repeat, [job] * CORES, [seconds / 2] * CORES)) for job in jobs)
    return 2 * pairs / seconds, 2 * lists / seconds


def expected_seconds(met: Agreement, speed: tuple[float, float]) -> float:
    """Of the secure step, both parties on this machine."""
    return met.work / speed[0] + met.listed / speed[1]


def _repeat(job: Callable[[], object], seconds: float) -> int:
    late, done = time.perf_counter() + seconds, 0
    while time.perf_counter() < late:
        job()
        done += 1
    return done


def _send_lists(wire: Wire, side: Side, met: Agreement, key: secure.Key, pool: ThreadPoolExecutor) -> None:
    try:
        for seats, _, low, high in met.batches():
            bits = [_bits(side, seat, met.rule, low, high) for seat in side.seats[seats].tolist()]
            wire.send(LISTS, b"".join(pool.map(lambda flags: b"".join(secure.veil(flags, key)), bits)))
    except BaseException:
        wire.close()  # or both parties would wait for more
        raise


def answer_all(wire: Wire, side: Side, met: Agreement, progress: Callable[[float], None]) -> None:
    """The right party's part."""
    public, done, work = wire.receive(KEY, 32), 0, met.work
    with _pool() as pool:
        for seats, slots, low, high in met.batches():
            size = secure.SIZE * int(np.sum(high - low + 1))
            lists = wire.receive(LISTS, size * len(seats))
            place, misses = _places(side, side.seats[slots], low, high)
            jobs = [
                partial(_answers, lists[k * size : (k + 1) * size], place, misses, public) for k in range(len(seats))
            ]
            wire.send(ANSWERS, b"".join(pool.map(lambda job: job(), jobs)))
            done += len(seats) * len(slots)
            progress(done / work)


def _answers(lists: bytes, place: Ints, misses: Ints, public: bytes) -> bytes:
    """To one slot of the left, from each of these slots of the right."""
    ciphers = _cut(lists)
    return b"".join(
        secure.compare([ciphers[p] for p in picked], miss, public)
        for picked, miss in zip(place.tolist(), misses.tolist(), strict=True)
    )


def _cut(ciphers: bytes) -> list[bytes]:
    return [ciphers[k : k + secure.SIZE] for k in range(0, len(ciphers), secure.SIZE)]


def _bits(side: Side, seat: int, rule: Rule, low: Ints, high: Ints) -> list[int]:
    """For each value in the lists, 0 if it is within the threshold of this record. A dummy is far from all."""
    values = [np.arange(a, b + 1) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    if seat < 0:
        return [1] * sum(map(len, values))
    far = [abs(v - x) > t for v, x, t in zip(values, side.records[seat], rule.apart, strict=True)]
    return np.concatenate(far).astype(int).tolist()  # type: ignore[no-any-return]


def _places(side: Side, seats: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Which ciphertext of the lists each record picks along each axis, and how many values are not listed at all."""
    values = np.full((len(seats), len(low)), -1)
    values[seats >= 0] = side.records[seats[seats >= 0]]
    inside = (low <= values) & (values <= high)
    first = np.concatenate([[0], np.cumsum(high - low + 1)[:-1]])
    return first + np.where(inside, values - low, 0), np.sum(~inside, axis=1)


def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(CORES)  # libsodium works without the interpreter's lock


def _hello(rule: Rule, left: bool) -> dict[str, object]:
    return {"protocol": PROTOCOL, "party": "left" if left else "right", **rule.to_json()}


def _difference(expected: dict[str, object], theirs: bytes) -> str:
    try:
        said = json.loads(theirs)
        names = [name for name, value in expected.items() if said.get(name) != value] or ["protocol"]
    except (ValueError, AttributeError, RecursionError):
        names = ["protocol"]
    words = {
        "apart": "thresholds",
        "lost": "part that may be lost (--lost)",
        "steps": "steps (--step)",
        "party": "party: one listens, the other connects",
    }
    return f"The parties do not agree on the {words.get(names[0], names[0])}: give both the same."


def _to_bytes(made: Release) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "release.parquet"
        made.save(path)
        return path.read_bytes()


def _from_bytes(data: bytes) -> Release:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "release.parquet"
        path.write_bytes(data)
        try:
            return load(path)
        except VeilmapError:
            raise BadInput("What the other party sent is not a whole release of this version of veilmap.") from None

"""The two parties' conversation: nothing crosses but what they agreed on, private releases and ciphertexts.

Left and right tell each other the rule and a release each. Then the left party sends, for every slot of every box that
is near a box of the other, its encrypted lists; the right party answers with one ciphertext for each slot of each of
these boxes. Who sends how much follows from the releases alone: dummies are on the wire like anybody else.

Neither party trusts the other to keep to this. What is more, longer, slower or other than agreed ends the conversation.
"""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from veilmap.arrays import Ints
from veilmap.domain import Domain
from veilmap.errors import BadInput, VeilmapError
from veilmap.matching import secure_comparison
from veilmap.matching.agreement import Agreement, list_bytes
from veilmap.matching.blocks import MOST_SLOTS, Side
from veilmap.matching.limits import most_bytes, must_be_as_agreed, must_state_what_was_agreed
from veilmap.matching.list_proof import check, prove
from veilmap.matching.rule import Rule
from veilmap.releases.release import Release, release_of
from veilmap.releases.release_file import parsed, stated

CORES = os.cpu_count() or 1
USUAL_LIST = 16  # values in a list that the speed is measured with
PROTOCOL = "veilmap-match/2"
RULE, RELEASE, KEY, LISTS, ANSWERS = b"HRKLA"
MOST_BYTES_OF_A_RULE = 1 << 16
PIECE = 1 << 20  # bytes that are sent or received at once
SLOWEST = 1 << 14  # bytes per second: whoever is slower counts as silent


class Wire:
    """Messages over a socket, each of a kind. What crosses is also written to ``transcript``, if there is one.

    The socket's timeout is how long the other party may be silent before a message, or in the middle of one.
    """

    def __init__(self, stream: socket.socket, transcript: BinaryIO | None = None) -> None:
        self._stream, self._transcript = stream, transcript

    def wait(self, seconds: float) -> None:
        """Set how long the other party may be silent from now on."""
        self._stream.settimeout(seconds)

    def send(self, kind: int, data: bytes) -> None:
        self._keep(b">", kind, data)
        message = struct.pack("<BQ", kind, len(data)) + data
        late = self._late(len(message))
        for k in range(0, len(message), PIECE):
            try:
                self._stream.sendall(message[k : k + PIECE])
            except TimeoutError:
                raise BadInput(self._silent()) from None
            except OSError:
                raise BadInput(GONE) from None
            if time.monotonic() > late:
                raise BadInput(self._silent())

    def receive(self, kind: int, size: int) -> bytes:
        """Return the next message, which must be of this kind and size."""
        return self._receive(kind, lambda length: length == size)

    def receive_at_most(self, kind: int, most: int) -> bytes:
        """Return the next message, which must be of this kind and no longer than so many bytes."""
        return self._receive(kind, lambda length: length <= most)

    def _receive(self, kind: int, fits: Callable[[int], bool]) -> bytes:
        found, length = struct.unpack("<BQ", self._read(9))
        if found != kind or not fits(length):  # before any memory is taken for it
            raise BadInput("The other party does not speak this protocol: both need the same version of veilmap.")
        data = self._read(length)
        self._keep(b"<", kind, data)
        return data

    def close(self) -> None:
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)

    def _read(self, size: int) -> bytes:
        parts, late = bytearray(), self._late(size)
        while len(parts) < size:
            try:
                part = self._stream.recv(min(size - len(parts), PIECE))
            except TimeoutError:
                raise BadInput(self._silent()) from None
            except OSError:
                part = b""
            if not part:
                raise BadInput(GONE)
            parts += part
            if time.monotonic() > late:  # a byte now and then is silence too
                raise BadInput(self._silent())
        return bytes(parts)

    def _late(self, size: int) -> float:
        """Return when a message of this size is overdue."""
        patience = self._stream.gettimeout()
        return math.inf if patience is None else time.monotonic() + patience + size / SLOWEST

    def _silent(self) -> str:
        return (
            f"The other party has been silent for too long ({self._stream.gettimeout():,.0f} seconds): see whether it "
            f"still runs. {SPENT}"
        )

    def _keep(self, way: bytes, kind: int, data: bytes) -> None:
        if self._transcript is None:
            return
        try:
            self._transcript.write(way + struct.pack("<BQ", kind, len(data)) + data)
        except OSError as error:
            raise BadInput(f"Cannot write the transcript: {error.strerror}.") from None


SPENT = "What has crossed is spent; with --release a party starts again from the release it has made."
GONE = f"The other party has gone: see what it says. {SPENT}"


def meet(wire: Wire, side: Side, rule: Rule, *, left: bool) -> Agreement:
    """Exchange what was agreed on, and releases. Refuse a release that does not fit it."""
    wire.send(RULE, json.dumps(_hello(side, rule, left), sort_keys=True).encode())
    said = wire.receive_at_most(RULE, MOST_BYTES_OF_A_RULE)
    if said != json.dumps(_hello(side, rule, not left), sort_keys=True).encode():
        raise BadInput(_difference(_hello(side, rule, not left), said))
    if left:  # one after the other: two that both only send would wait for ever
        wire.send(RELEASE, to_bytes(side.release))
    file = wire.receive_at_most(RELEASE, most_bytes(side))
    theirs = must_be_as_agreed(side, _from_bytes(file, partial(must_state_what_was_agreed, side, rule)), rule)
    if not left:  # once the other's is found to be as agreed
        wire.send(RELEASE, to_bytes(side.release))
    met = Agreement.of(rule, *((side.blocks, theirs) if left else (theirs, side.blocks)))
    met.must_be_short()
    return met


def find_matches(wire: Wire, side: Side, met: Agreement, progress: Callable[[float], None]) -> Ints:
    """The left party's part: (k, 2), its own row and the other's slot, for every match among the candidates."""
    key, found, done, work = secure_comparison.make_key(), [], 0, met.work
    wire.send(KEY, key.public)
    with _pool() as pool, ThreadPoolExecutor(1) as post:  # lists go out while answers come in
        sending = post.submit(_send_lists, wire, side, met, key, pool)
        try:
            for seats, slots, _, _ in met.batches():
                ciphers = _cut(wire.receive(ANSWERS, secure_comparison.SIZE * len(seats) * len(slots)))
                rows = [ciphers[k : k + len(slots)] for k in range(0, len(ciphers), len(slots))]
                zero = np.array(list(pool.map(lambda row: [secure_comparison.is_zero(c, key) for c in row], rows)))
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
    left, right = (replace(side, rows=MOST_SLOTS) for side in (left, right))  # no limit: nobody here is a stranger
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
    key = secure_comparison.make_key()
    ciphers = _cut(_list_of(0, USUAL_LIST, key))[:USUAL_LIST]
    picked = [ciphers[0]] * rule.domain.dimensions

    def compare() -> None:
        secure_comparison.is_zero(secure_comparison.compare(picked, 0, key.public), key)

    def make_list() -> None:
        made = _list_of(0, USUAL_LIST, key)
        check(_cut(made)[:USUAL_LIST], made[-secure_comparison.PROOF_SIZE :], key.public)
        secure_comparison.far_from(ciphers, 0, range(USUAL_LIST), 1)

    with _pool() as pool:
        pairs, lists = (sum(pool.map(_repeat, [job] * CORES, [seconds / 2] * CORES)) for job in (compare, make_list))
    return 2 * pairs / seconds, 2 * USUAL_LIST * lists / seconds


def expected_seconds(met: Agreement, speed: tuple[float, float]) -> float:
    """Of the secure step, both parties on this machine."""
    return met.work / speed[0] + met.listed / speed[1]


def _repeat(job: Callable[[], object], seconds: float) -> int:
    late, done = time.perf_counter() + seconds, 0
    while time.perf_counter() < late:
        job()
        done += 1
    return done


def _send_lists(wire: Wire, side: Side, met: Agreement, key: secure_comparison.Key, pool: ThreadPoolExecutor) -> None:
    try:
        for seats, _, low, high in met.batches():
            places = [_places_in_lists(side, seat, low, high) for seat in side.seats[seats].tolist()]
            make = partial(_lists, sizes=(high - low + 1).tolist(), key=key)
            wire.send(LISTS, b"".join(pool.map(make, places)))
    except BaseException:
        wire.close()  # or both parties would wait for more
        raise


def answer_all(wire: Wire, side: Side, met: Agreement, progress: Callable[[float], None]) -> None:
    """The right party's part. It answers lists that are proved to be of one value, and no others."""
    public, done, work = wire.receive(KEY, 32), 0, met.work
    secure_comparison.times(public, 1)  # refused at once if it is no point
    with _pool() as pool:
        for seats, slots, low, high in met.batches():
            size = list_bytes(low, high)
            message = wire.receive(LISTS, size * len(seats))
            lists = [message[k * size : (k + 1) * size] for k in range(len(seats))]
            far = list(pool.map(partial(_far, low=low, high=high, met=met, public=public), lists))  # all are checked
            place, misses = _places(side, side.seats[slots], *met.widened(low, high))
            jobs = [partial(_answers, ciphers, place, misses, public) for ciphers in far]
            wire.send(ANSWERS, b"".join(pool.map(lambda job: job(), jobs)))
            done += len(seats) * len(slots)
            progress(done / work)


def _far(lists: bytes, low: Ints, high: Ints, met: Agreement, public: bytes) -> list[bytes]:
    """Check the lists of one slot, and return for each value of its windows whether it is far, encrypted."""
    out, start = [], 0
    ends = (end.tolist() for end in (low, high, *met.widened(low, high)))
    for a, b, first, last, apart in zip(*ends, met.rule.apart, strict=True):
        end = start + secure_comparison.SIZE * (b - a + 1)
        ciphers = _cut(lists[start:end])
        check(ciphers, lists[end : end + secure_comparison.PROOF_SIZE], public)
        out += secure_comparison.far_from(ciphers, a, range(first, last + 1), apart)
        start = end + secure_comparison.PROOF_SIZE
    return out


def _answers(ciphers: list[bytes], place: Ints, misses: Ints, public: bytes) -> bytes:
    """To one slot of the left, from each of these slots of the right."""
    return b"".join(
        secure_comparison.compare([ciphers[p] for p in picked], miss, public)
        for picked, miss in zip(place.tolist(), misses.tolist(), strict=True)
    )


def _cut(ciphers: bytes) -> list[bytes]:
    return [ciphers[k : k + secure_comparison.SIZE] for k in range(0, len(ciphers), secure_comparison.SIZE)]


def _places_in_lists(side: Side, seat: int, low: Ints, high: Ints) -> list[int | None]:
    """Where a record is in the list of each axis. A dummy is nowhere, like a number outside the box."""
    values = np.full(len(low), -1) if seat < 0 else side.records[seat]
    return [int(x - a) if a <= x <= b else None for x, a, b in zip(values, low, high, strict=True)]


def _lists(places: Sequence[int | None], sizes: Sequence[int], key: secure_comparison.Key) -> bytes:
    return b"".join(_list_of(place, size, key) for place, size in zip(places, sizes, strict=True))


def _list_of(place: int | None, size: int, key: secure_comparison.Key) -> bytes:
    """One encrypted list with its proof."""
    randomness = [secure_comparison.random_scalar() for _ in range(size)]
    ciphers = secure_comparison.encrypt([int(k == place) for k in range(size)], randomness, key)
    return b"".join(ciphers) + prove(ciphers, place, randomness, key)


def _places(side: Side, seats: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Which ciphertext of the lists each record picks along each axis, and how many values are not listed at all."""
    values = np.full((len(seats), len(low)), -1)
    values[seats >= 0] = side.records[seats[seats >= 0]]
    inside = (low <= values) & (values <= high)
    first = np.concatenate([[0], np.cumsum(high - low + 1)[:-1]])
    return first + np.where(inside, values - low, 0), np.sum(~inside, axis=1)


def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(CORES)  # libsodium works without the interpreter's lock


def _hello(side: Side, rule: Rule, left: bool) -> dict[str, object]:
    """All that the two must have typed alike."""
    return {
        "protocol": PROTOCOL,
        "party": "left" if left else "right",
        **rule.to_json(),
        "epsilon": str(side.release.privacy.epsilon),
        "rows": side.rows,
        "method": dict(side.release.method),
    }


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
        "epsilon": "epsilon (--epsilon)",
        "rows": "number of rows (--rows)",
        "method": "method (--method, --height, or those of a release that was kept)",
    }
    return f"The parties do not agree on the {words.get(names[0], names[0])}: give both the same."


def to_bytes(made: Release) -> bytes:
    """The file of a release."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "release.parquet"
        made.save(path)
        return path.read_bytes()


def _from_bytes(data: bytes, check: Callable[[Domain, int], None] = lambda domain, nodes: None) -> Release:
    """Read a release once ``check`` has seen its domain and how many nodes it has: no memory is taken before that."""
    place = Path("the other party's release")
    try:
        said = stated(place, data)
    except VeilmapError:
        raise BadInput(NOT_SOUND) from None
    check(*said)
    try:
        return release_of(place, *parsed(place, data))
    except VeilmapError:
        raise BadInput(NOT_SOUND) from None


NOT_SOUND = "What the other party sent is not a sound release of this version of veilmap."

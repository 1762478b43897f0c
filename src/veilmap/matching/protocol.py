"""The messages between the two parties: the agreed rule, the private releases and ciphertexts, and nothing else.

The parties first exchange the rule and their releases. Then, for every slot of every box within the thresholds of a
box of the right party, the left party sends encrypted lists, and the right party answers with one ciphertext for each
of its slots in those boxes. The number of messages and their sizes depend on the releases only, because dummies are
sent like records.

Neither party trusts the other to follow the protocol. A message that is unexpected, too long or too slow ends the
connection.
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
from veilmap.matching.blocks import MAX_SLOTS, Side
from veilmap.matching.limits import max_file_bytes, must_be_as_agreed, must_state_what_was_agreed
from veilmap.matching.list_proof import check, prove
from veilmap.matching.rule import Rule
from veilmap.releases.release import Release, release_of
from veilmap.releases.release_file import parsed, stated

CPU_CORES = os.cpu_count() or 1
SPEED_TEST_VALUES = 16  # length of the lists that the speed is measured with
PROTOCOL_VERSION = "veilmap-match/2"
RULE_MESSAGE = ord("H")
RELEASE_MESSAGE = ord("R")
KEY_MESSAGE = ord("K")
LISTS_MESSAGE = ord("L")
ANSWERS_MESSAGE = ord("A")
MAX_RULE_BYTES = 1 << 16
MAX_BYTES_PER_CALL = 1 << 20  # per call of the socket, so that the deadline is checked often
MIN_BYTES_PER_SECOND = 1 << 14  # a slower party is treated as silent


class Wire:
    """A connection that sends and receives messages of given kinds, and copies them to ``transcript`` if given.

    The timeout of the socket limits how long the other party may be silent before or within a message.
    """

    def __init__(self, stream: socket.socket, transcript: BinaryIO | None = None) -> None:
        self._stream, self._transcript = stream, transcript

    def wait(self, seconds: float) -> None:
        """Set the number of seconds that the other party may be silent from now on."""
        self._stream.settimeout(seconds)

    def send(self, kind: int, data: bytes) -> None:
        """Send a message, or raise ``BadInput`` if the other party does not accept it in time."""
        self._record(b">", kind, data)
        message = struct.pack("<BQ", kind, len(data)) + data
        deadline = self._deadline(len(message))
        for k in range(0, len(message), MAX_BYTES_PER_CALL):
            try:
                self._stream.sendall(message[k : k + MAX_BYTES_PER_CALL])
            except TimeoutError:
                raise BadInput(self._silence_message()) from None
            except OSError:
                raise BadInput(CONNECTION_LOST) from None
            if time.monotonic() > deadline:
                raise BadInput(self._silence_message())

    def receive(self, kind: int, size: int) -> bytes:
        """Return the next message, which must have this kind and exactly ``size`` bytes."""
        return self._receive(kind, lambda length: length == size)

    def receive_at_most(self, kind: int, limit: int) -> bytes:
        """Return the next message, which must have this kind and at most ``limit`` bytes."""
        return self._receive(kind, lambda length: length <= limit)

    def _receive(self, kind: int, fits: Callable[[int], bool]) -> bytes:
        received_kind, length = struct.unpack("<BQ", self._read(9))
        if received_kind != kind or not fits(length):  # checked before any memory is allocated
            raise BadInput("The other party sent an unexpected message. Both parties need the same version of veilmap.")
        data = self._read(length)
        self._record(b"<", kind, data)
        return data

    def close(self) -> None:
        """Close the connection in both directions, so that neither party waits for more."""
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)

    def _read(self, size: int) -> bytes:
        parts, deadline = bytearray(), self._deadline(size)
        while len(parts) < size:
            try:
                part = self._stream.recv(min(size - len(parts), MAX_BYTES_PER_CALL))
            except TimeoutError:
                raise BadInput(self._silence_message()) from None
            except OSError:
                part = b""
            if not part:
                raise BadInput(CONNECTION_LOST)
            parts += part
            if time.monotonic() > deadline:  # single bytes in time do not keep the connection alive
                raise BadInput(self._silence_message())
        return bytes(parts)

    def _deadline(self, size: int) -> float:
        """Return the time by which a message of this size must have been transferred."""
        patience = self._stream.gettimeout()
        return math.inf if patience is None else time.monotonic() + patience + size / MIN_BYTES_PER_SECOND

    def _silence_message(self) -> str:
        return (
            f"The other party has been silent for too long ({self._stream.gettimeout():,.0f} seconds). Check whether "
            f"it is still running. {BUDGET_SPENT}"
        )

    def _record(self, direction: bytes, kind: int, data: bytes) -> None:
        if self._transcript is None:
            return
        try:
            self._transcript.write(direction + struct.pack("<BQ", kind, len(data)) + data)
        except OSError as error:
            raise BadInput(f"Cannot write the transcript: {error.strerror}.") from None


BUDGET_SPENT = "The budget of a release that was sent is spent. Use --release to start again from the same release."
CONNECTION_LOST = f"The other party closed the connection. Check its error message. {BUDGET_SPENT}"


def meet(wire: Wire, side: Side, rule: Rule, *, left: bool) -> Agreement:
    """Exchange the rule and the releases, check the other party's release, and return the comparison plan."""
    wire.send(RULE_MESSAGE, json.dumps(_hello(side, rule, left), sort_keys=True).encode())
    received = wire.receive_at_most(RULE_MESSAGE, MAX_RULE_BYTES)
    if received != json.dumps(_hello(side, rule, not left), sort_keys=True).encode():
        raise BadInput(_difference(_hello(side, rule, not left), received))
    if left:  # one party after the other: if both sent at the same time, both could block
        wire.send(RELEASE_MESSAGE, to_bytes(side.release))
    file = wire.receive_at_most(RELEASE_MESSAGE, max_file_bytes(side))
    theirs = must_be_as_agreed(side, _from_bytes(file, partial(must_state_what_was_agreed, side, rule)), rule)
    if not left:  # only after the left party's release has been accepted
        wire.send(RELEASE_MESSAGE, to_bytes(side.release))
    met = Agreement.of(rule, *((side.blocks, theirs) if left else (theirs, side.blocks)))
    met.must_be_short()
    return met


def find_matches(wire: Wire, side: Side, met: Agreement, progress: Callable[[float], None]) -> Ints:
    """Run the left party's part and return the matches among the candidates: (k, 2), own row and right slot."""
    key, found, done, work = secure_comparison.make_key(), [], 0, met.work
    wire.send(KEY_MESSAGE, key.public)
    with _pool() as pool, ThreadPoolExecutor(1) as sender:  # lists are sent while answers are received
        sending = sender.submit(_send_lists, wire, side, met, key, pool)
        try:
            for seats, slots, _, _ in met.batches():
                ciphers = _cut(
                    wire.receive(ANSWERS_MESSAGE, secure_comparison.CIPHERTEXT_BYTES * len(seats) * len(slots))
                )
                rows = [ciphers[k : k + len(slots)] for k in range(0, len(ciphers), len(slots))]
                zero = np.array(list(pool.map(lambda row: [secure_comparison.is_zero(c, key) for c in row], rows)))
                i, j = np.nonzero(zero)
                found.append(np.stack([side.seats[seats[i]], slots[j]], axis=1))
                done += zero.size
                progress(done / work)
        except BaseException:
            wire.close()  # stops the sender, which would otherwise wait until its lists are read
            cause = sending.exception()  # waits until the sender has ended
            if cause is not None and str(cause) != CONNECTION_LOST:
                raise cause from None  # the sender failed first
            raise
        sending.result()
    return np.concatenate([np.zeros((0, 2), np.int64), *found])


def compare_both(
    left: Side, right: Side, rule: Rule, progress: Callable[[float], None], transcript: BinaryIO | None = None
) -> Ints:
    """Run both parties in this process and return the rows that match: (k, 2), left and right row.

    ``transcript`` receives the messages as the left party sees them.
    """
    left, right = (replace(side, rows=MAX_SLOTS) for side in (left, right))  # no limit: both parties are trusted here
    here, there = socket.socketpair()
    with here, there, ThreadPoolExecutor(1) as other:
        answering = other.submit(_be_right, there, right, rule)
        try:
            wire = Wire(here, transcript)
            found = find_matches(wire, left, meet(wire, left, rule, left=True), progress)
        except BaseException:
            here.close()  # ends the other party, which would otherwise wait for ever
            raise
        answering.result()
    return np.stack([found[:, 0], right.seats[found[:, 1]]], axis=1)


def _be_right(stream: socket.socket, side: Side, rule: Rule) -> None:
    with stream:  # closed on failure, so that the left party does not wait for ever
        wire = Wire(stream)
        answer_all(wire, side, meet(wire, side, rule, left=False), lambda part: None)


def measure_speed(rule: Rule, seconds: float = 1.0) -> tuple[float, float]:
    """Measure the comparisons and listed ciphertexts per second on all cores, for both parties together."""
    key = secure_comparison.make_key()
    ciphers = _cut(_list_of(0, SPEED_TEST_VALUES, key))[:SPEED_TEST_VALUES]
    picked = [ciphers[0]] * rule.domain.dimensions

    def compare() -> None:
        secure_comparison.is_zero(secure_comparison.compare(picked, 0, key.public), key)

    def make_list() -> None:
        made = _list_of(0, SPEED_TEST_VALUES, key)
        check(_cut(made)[:SPEED_TEST_VALUES], made[-secure_comparison.PROOF_BYTES :], key.public)
        secure_comparison.far_from(ciphers, 0, range(SPEED_TEST_VALUES), 1)

    with _pool() as pool:
        pairs, lists = (
            sum(pool.map(_repeat, [job] * CPU_CORES, [seconds / 2] * CPU_CORES)) for job in (compare, make_list)
        )
    return 2 * pairs / seconds, 2 * SPEED_TEST_VALUES * lists / seconds


def expected_seconds(met: Agreement, speed: tuple[float, float]) -> float:
    """Return the expected duration of the secure step in seconds, with both parties on this machine."""
    return met.work / speed[0] + met.listed / speed[1]


def _repeat(job: Callable[[], object], seconds: float) -> int:
    """Return how often a job runs in the given time."""
    end, done = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        job()
        done += 1
    return done


def _send_lists(wire: Wire, side: Side, met: Agreement, key: secure_comparison.Key, pool: ThreadPoolExecutor) -> None:
    try:
        for seats, _, low, high in met.batches():
            places = [_places_in_lists(side, seat, low, high) for seat in side.seats[seats].tolist()]
            make = partial(_lists, sizes=(high - low + 1).tolist(), key=key)
            wire.send(LISTS_MESSAGE, b"".join(pool.map(make, places)))
    except BaseException:
        wire.close()  # both parties would otherwise wait for more lists
        raise


def answer_all(wire: Wire, side: Side, met: Agreement, progress: Callable[[float], None]) -> None:
    """Run the right party's part. It answers only lists that are proved to stand for one value."""
    public, done, work = wire.receive(KEY_MESSAGE, 32), 0, met.work
    secure_comparison.times(public, 1)  # raises BadInput if the key is not a point of the group
    with _pool() as pool:
        for seats, slots, low, high in met.batches():
            size = list_bytes(low, high)
            message = wire.receive(LISTS_MESSAGE, size * len(seats))
            lists = [message[k * size : (k + 1) * size] for k in range(len(seats))]
            # Every list of the batch is checked before any answer is sent.
            far = list(pool.map(partial(_far, low=low, high=high, met=met, public=public), lists))
            place, misses = _places(side, side.seats[slots], *met.widened(low, high))
            jobs = [partial(_answers, ciphers, place, misses, public) for ciphers in far]
            wire.send(ANSWERS_MESSAGE, b"".join(pool.map(lambda job: job(), jobs)))
            done += len(seats) * len(slots)
            progress(done / work)


def _far(lists: bytes, low: Ints, high: Ints, met: Agreement, public: bytes) -> list[bytes]:
    """Check the lists of one slot and return, for each value of its windows, an encryption of 0 if near, else of 1."""
    out, start = [], 0
    ends = (end.tolist() for end in (low, high, *met.widened(low, high)))
    for a, b, first, last, apart in zip(*ends, met.rule.apart, strict=True):
        end = start + secure_comparison.CIPHERTEXT_BYTES * (b - a + 1)
        ciphers = _cut(lists[start:end])
        check(ciphers, lists[end : end + secure_comparison.PROOF_BYTES], public)
        out += secure_comparison.far_from(ciphers, a, range(first, last + 1), apart)
        start = end + secure_comparison.PROOF_BYTES
    return out


def _answers(ciphers: list[bytes], place: Ints, misses: Ints, public: bytes) -> bytes:
    """Return the answers to one left slot, one from each right slot."""
    return b"".join(
        secure_comparison.compare([ciphers[p] for p in picked], miss, public)
        for picked, miss in zip(place.tolist(), misses.tolist(), strict=True)
    )


def _cut(ciphers: bytes) -> list[bytes]:
    return [
        ciphers[k : k + secure_comparison.CIPHERTEXT_BYTES]
        for k in range(0, len(ciphers), secure_comparison.CIPHERTEXT_BYTES)
    ]


def _places_in_lists(side: Side, seat: int, low: Ints, high: Ints) -> list[int | None]:
    """Return a record's position in the list of each axis: None for a dummy or a number outside the box."""
    values = np.full(len(low), -1) if seat < 0 else side.records[seat]
    return [int(x - a) if a <= x <= b else None for x, a, b in zip(values, low, high, strict=True)]


def _lists(places: Sequence[int | None], sizes: Sequence[int], key: secure_comparison.Key) -> bytes:
    return b"".join(_list_of(place, size, key) for place, size in zip(places, sizes, strict=True))


def _list_of(place: int | None, size: int, key: secure_comparison.Key) -> bytes:
    """Return one encrypted list with its proof."""
    randomness = [secure_comparison.random_scalar() for _ in range(size)]
    ciphers = secure_comparison.encrypt([int(k == place) for k in range(size)], randomness, key)
    return b"".join(ciphers) + prove(ciphers, place, randomness, key)


def _places(side: Side, seats: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Return which ciphertext each record picks along each axis, and the number of its values outside the lists."""
    values = np.full((len(seats), len(low)), -1)
    values[seats >= 0] = side.records[seats[seats >= 0]]
    inside = (low <= values) & (values <= high)
    first = np.concatenate([[0], np.cumsum(high - low + 1)[:-1]])
    return first + np.where(inside, values - low, 0), np.sum(~inside, axis=1)


def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(CPU_CORES)  # libsodium releases the interpreter's lock


def _hello(side: Side, rule: Rule, left: bool) -> dict[str, object]:
    """Return the parameters that both parties must have given identically."""
    return {
        "protocol": PROTOCOL_VERSION,
        "party": "left" if left else "right",
        **rule.to_json(),
        "epsilon": str(side.release.privacy.epsilon),
        "rows": side.rows,
        "method": dict(side.release.method),
    }


def _difference(expected: dict[str, object], received: bytes) -> str:
    """Return a message that names the first parameter on which the parties differ."""
    try:
        stated = json.loads(received)
        names = [name for name, value in expected.items() if stated.get(name) != value] or ["protocol"]
    except (ValueError, AttributeError, RecursionError):
        names = ["protocol"]
    words = {
        "apart": "thresholds",
        "lost": "fraction of records that may be lost (--lost)",
        "steps": "steps (--step)",
        "epsilon": "epsilon (--epsilon)",
        "rows": "number of rows (--rows)",
        "method": "method (--method, --height, or those of a release given by --release)",
    }
    if names[0] == "party":
        return "Both parties have the same role. One must listen (--listen) and the other connect (--connect)."
    return f"The parties do not agree on the {words.get(names[0], names[0])}. Use the same for both."


def to_bytes(made: Release) -> bytes:
    """Return the content of a release's file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "release.parquet"
        made.save(path)
        return path.read_bytes()


def _from_bytes(data: bytes, check: Callable[[Domain, int], None] = lambda domain, nodes: None) -> Release:
    """Read a release after ``check`` has accepted its domain and number of nodes, before memory is allocated."""
    place = Path("the other party's release")
    try:
        header = stated(place, data)
    except VeilmapError:
        raise BadInput(INVALID_RELEASE) from None
    check(*header)
    try:
        return release_of(place, *parsed(place, data))
    except VeilmapError:
        raise BadInput(INVALID_RELEASE) from None


INVALID_RELEASE = "The other party sent a file that is not a valid release of this version of veilmap."

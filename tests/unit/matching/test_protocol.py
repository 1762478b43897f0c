"""Two parties who match records: they find the right pairs, and nothing of a record is ever on the wire."""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import veilmap as vm
from tests.unit.matching.test_match import as_pairs, forged, naive_pairs
from veilmap.errors import BadInput
from veilmap.matching import agreement, protocol, secure_comparison
from veilmap.matching.agreement import Agreement
from veilmap.matching.blocks import Side, leaves_only, open_side, read_blocks
from veilmap.matching.local_match import Match
from veilmap.matching.protocol import (
    ANSWERS_MESSAGE,
    KEY_MESSAGE,
    LISTS_MESSAGE,
    PROTOCOL_VERSION,
    RELEASE_MESSAGE,
    RULE_MESSAGE,
    Wire,
    answer_all,
    find_matches,
    meet,
)
from veilmap.matching.rule import Rule
from veilmap.testing import fixed_entropy

bindings = pytest.importorskip("nacl.bindings", reason="the extra 'match' is not installed")

BOARD = vm.Domain({"x": (0, 11), "y": (0, 7)})
PATIENCE = 10  # seconds, before a party counts as stuck
Frame = tuple[bytes, int, bytes]


def open_board(n: int, seed: int, rule: Rule, method: str = "quad-baseline", epsilon: float = 3) -> Side:
    points = np.random.default_rng(seed).integers(0, [11, 8], (n, 2)).astype(float)
    with fixed_entropy(seed):
        return open_side(
            points, rule, epsilon, leaves_only(method, None if method == "privtree" else 1, rule, epsilon, None)
        )


RULES = Rule.of(BOARD, (1, 2))
LEFT, RIGHT = open_board(9, 1, RULES), open_board(7, 2, RULES)


class Party(threading.Thread):
    """One party's part, and how it ended. It closes its socket when it leaves, as a process does."""

    def __init__(self, stream: socket.socket, part: Callable[[socket.socket], object]) -> None:
        super().__init__(daemon=True)
        self.stream, self.part = stream, part
        self.result: object = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.part(self.stream)
        except BaseException as error:
            self.error = error
        finally:
            self.stream.close()


def run_both(
    left: Callable[[socket.socket], object], right: Callable[[socket.socket], object], room: int | None = None
) -> tuple[Party, Party]:
    """Over a pair of sockets, with so much room for bytes on the way."""
    both = tuple(Party(stream, part) for stream, part in zip(socket.socketpair(), (left, right), strict=True))
    for party in both if room else ():
        party.stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
    for party in both:
        party.start()
    for party in both:
        party.join(PATIENCE)
    stuck = [party.is_alive() for party in both]
    for party in both:
        party.stream.close()
    assert stuck == [False, False]
    return both  # type: ignore[return-value]


def be_left(side: Side = LEFT, rule: Rule = RULES, book: io.BytesIO | None = None) -> Callable[[socket.socket], object]:
    def part(stream: socket.socket) -> object:
        wire = Wire(stream, book)
        return find_matches(wire, side, meet(wire, side, rule, left=True), lambda done: None)

    return part


def be_right(
    side: Side = RIGHT, rule: Rule = RULES, book: io.BytesIO | None = None
) -> Callable[[socket.socket], object]:
    def part(stream: socket.socket) -> object:
        wire = Wire(stream, book)
        return answer_all(wire, side, meet(wire, side, rule, left=False), lambda done: None)

    return part


def say(*frames: tuple[int, bytes], listen: int = 0) -> Callable[[socket.socket], object]:
    """A party with a script: it says these frames, reads so many of the other's, and goes."""

    def part(stream: socket.socket) -> None:
        for kind, data in frames:
            stream.sendall(struct.pack("<BQ", kind, len(data)) + data)
        for _ in range(listen):
            _, size = struct.unpack("<BQ", stream.recv(9, socket.MSG_WAITALL))
            stream.recv(size, socket.MSG_WAITALL)

    return part


def hello(rule: Rule, left: bool, made: vm.Release = LEFT.release, **changed: object) -> bytes:
    agreed = {"epsilon": str(made.privacy.epsilon), "rows": 10_000, "method": dict(made.method)}
    said = {"protocol": PROTOCOL_VERSION, "party": "left" if left else "right", **rule.to_json(), **agreed} | changed
    return json.dumps(said, sort_keys=True).encode()


def to_bytes(made: vm.Release, folder: Path) -> bytes:
    made.save(folder / "some.parquet")
    return (folder / "some.parquet").read_bytes()


def refused(party: Party, sentence: str) -> None:
    assert isinstance(party.error, BadInput), party.error
    assert sentence in str(party.error)
    assert "\n" not in str(party.error)


# What they find


def expected(left: Side, right: Side, rule: Rule) -> list[tuple[int, ...]]:
    """Matches among records that both have a slot, counted out."""
    return [
        (i, j) for i, j in naive_pairs(left.records, right.records, rule.apart) if i in left.seats and j in right.seats
    ]


@pytest.mark.parametrize("method", ["kd-standard", "quad-baseline", "privtree"])
@pytest.mark.parametrize("thresholds", [(0, 0), (1, 2), (0, 7)])
def test_the_secure_step_finds_the_matches_among_the_candidates(method: str, thresholds: tuple) -> None:
    rule = Rule.of(BOARD, thresholds)
    left, right = open_board(12, 3, rule, method), open_board(9, 4, rule, method)
    left.records[2] = -1
    left = replace(left, seats=np.where(left.seats == 2, -1, left.seats))  # a record outside the domain
    told: list[float] = []
    found = Match(left, right, Agreement.of(rule, left.blocks, right.blocks))
    pairs = as_pairs(found.compare(told.append))
    assert pairs == expected(left, right, rule)
    assert set(pairs) == set(as_pairs(found.truth)) & set(as_pairs(found.candidates))
    assert told == sorted(told)
    assert told[-1] == 1


def test_steps_that_are_not_whole_are_compared_exactly() -> None:
    domain = vm.Domain({"x": (0, 2)})
    x = np.array([[0.0], [0.3], [0.7], [1.0], [1.96]])
    found = vm.match(x, x + 0.04, ["0.3"], 50, "quad-baseline", domain=domain, steps=["0.1"], height=1)
    assert as_pairs(found.compare()) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (2, 3), (3, 2), (3, 3), (4, 4)]


def test_parties_who_have_nobody_or_nothing_near_find_nothing() -> None:
    rule, far = Rule.of(BOARD, (0, 0), lost=1), np.array([[11.0, 7.0]])
    for left, right in itertools.product((np.zeros((0, 2)), np.zeros((2, 2)), far), repeat=2):
        sides = [
            open_side(points, rule, 50, leaves_only("quad-baseline", 1, rule, 50, None)) for points in (left, right)
        ]
        both = run_both(be_left(sides[0], rule), be_right(sides[1], rule))
        assert [party.error for party in both] == [None, None]
        assert len(both[0].result) == (len(left) * len(right) if np.array_equal(left, right) else 0)  # type: ignore[arg-type]


def test_a_party_of_dummies_alone_matches_nobody() -> None:
    nobody = replace(RIGHT, records=RIGHT.records[:0], seats=np.full_like(RIGHT.seats, -1))
    left, right = run_both(be_left(), be_right(nobody))
    assert left.error is right.error is None
    assert len(left.result) == 0  # type: ignore[arg-type]


def test_releases_larger_than_the_buffers_of_a_socket_cross_too() -> None:
    rule = Rule.of(vm.Domain({"x": (0, 99), "y": (0, 99)}), (0, 0))
    side = open_side(np.zeros((0, 2)), rule, 1, leaves_only("quad-baseline", 5, rule, 1, None))
    assert len(protocol.to_bytes(side.release)) > 20_000

    def part(left: bool) -> Callable[[socket.socket], object]:
        return lambda stream: meet(Wire(stream), side, rule, left=left)

    for party in run_both(part(True), part(False), room=4096):
        assert party.error is None


def test_a_ticket_is_a_slot_that_the_right_party_knows() -> None:
    left, right = run_both(be_left(), be_right())
    assert left.error is right.error is right.result is None
    rows = np.stack([left.result[:, 0], RIGHT.seats[left.result[:, 1]]], axis=1)  # type: ignore[index]
    assert as_pairs(rows) == expected(LEFT, RIGHT, RULES)
    assert len(rows) > 3


def test_the_size_of_messages_changes_nothing_but_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "BYTES_PER_BATCH", 1500)
    book = io.BytesIO()
    left, _ = run_both(be_left(book=book), be_right())
    assert len(left.result) == len(expected(LEFT, RIGHT, RULES))  # type: ignore[arg-type]
    assert sum(kind == LISTS_MESSAGE for _, kind, _ in frames_of(book)) > len(LEFT.blocks.slots)


# What crosses


def frames_of(book: io.BytesIO) -> list[Frame]:
    """A transcript, frame by frame, to its last byte."""

    def read() -> Iterator[Frame]:
        book.seek(0)
        while head := book.read(10):
            way, kind, size = struct.unpack("<cBQ", head)
            data = book.read(size)
            assert way in (b">", b"<")
            assert len(data) == size
            yield way, kind, data

    return list(read())


def boxes_of(made: vm.Release, rule: Rule) -> list[list[set[int]]]:
    """The steps in each leaf along each axis, one by one; leaves without any are left out."""
    tree = made.estimates.tree
    every = [
        [{k for k, cell in enumerate(rule.cells[a]) if tree.lo[v, a] <= cell < tree.hi[v, a]} for a in range(2)]
        for v in np.flatnonzero(tree.is_leaf)
    ]
    return [box for box in every if all(box)]


def lists_of(left: vm.Release, right: vm.Release, rule: Rule) -> tuple[list[int], int]:
    """Values in each list and the number of answers, as they follow from two releases: a list an axis for every slot
    of every box that is near another, an answer for every pair of slots."""
    slots = [read_blocks(made, rule).slots.tolist() for made in (left, right)]
    lists, answers = [], 0
    for n, box in zip(slots[0], boxes_of(left, rule), strict=True):
        near = [
            {y for x in steps for y in range(x - t, x + t + 1)} & set(range(len(cells)))
            for steps, t, cells in zip(box, rule.apart, rule.cells, strict=True)
        ]
        others = zip(slots[1], boxes_of(right, rule), strict=True)
        met = sum(m for m, other in others if all(a & b for a, b in zip(near, other, strict=True)))
        lists += n * list(map(len, box)) if met else []
        answers += n * met
    return lists, answers


def ciphers_and_proofs(data: bytes, lists: list[int]) -> tuple[bytes, list[bytes]]:
    """All lists one after the other, apart from their proofs."""
    ciphers, proofs, start = b"", [], 0
    for values in lists:
        ciphers += data[start : start + 64 * values]
        start += 64 * values + 128
        proofs += [data[start - k : start - k + 32] for k in (128, 96, 64, 32)]
    return ciphers, proofs


def check_transcript(frames: list[Frame], rule: Rule, left: vm.Release, right: vm.Release, folder: Path) -> None:
    """All that may be in what the left party kept: two rules, two releases, a key, and fresh ciphertexts."""
    ours, theirs = ([(kind, data) for way, kind, data in frames if way == which] for which in (b">", b"<"))
    assert [kind for kind, _ in ours[:3]] == [RULE_MESSAGE, RELEASE_MESSAGE, KEY_MESSAGE], "kinds"
    assert {kind for kind, _ in ours[3:]} == {LISTS_MESSAGE}, "kinds"
    assert [kind for kind, _ in theirs[:2]] == [RULE_MESSAGE, RELEASE_MESSAGE], "kinds"
    assert {kind for kind, _ in theirs[2:]} == {ANSWERS_MESSAGE}, "kinds"
    for (_, data), is_left in ((ours[0], True), (theirs[0], False)):
        assert data == hello(rule, is_left, left), "rules"
    for (_, data), made in ((ours[1], left), (theirs[1], right)):
        assert data == to_bytes(made, folder), "releases"
        assert vm.load(folder / "some.parquet").nodes.equals(made.nodes), "releases"
    lists, answers = (b"".join(data for _, data in part) for part in (ours[3:], theirs[2:]))
    values, pairs = lists_of(left, right, rule)
    assert (len(lists), len(answers)) == (sum(64 * n + 128 for n in values), 64 * pairs), "sizes"
    ciphers, proofs = ciphers_and_proofs(lists, values)
    crossed = ours[2][1] + ciphers + answers
    points = [crossed[k : k + 32] for k in range(0, len(crossed), 32)]
    assert all(bindings.crypto_core_ed25519_is_valid_point(point) for point in points), "points"
    assert all(int.from_bytes(number, "little") < secure_comparison.GROUP_ORDER for number in proofs), "proofs"
    assert len({*points, *proofs}) == len(points) + len(proofs), "fresh"


def transcript(left: Side = LEFT, right: Side = RIGHT, rule: Rule = RULES) -> list[Frame]:
    book = io.BytesIO()
    for party in run_both(be_left(left, rule, book), be_right(right, rule)):
        assert party.error is None, party.error
    return frames_of(book)


def test_a_transcript_holds_rules_releases_a_key_and_fresh_ciphertexts_only(tmp_path: Path) -> None:
    check_transcript(transcript(), RULES, LEFT.release, RIGHT.release, tmp_path)
    rule = Rule.of(BOARD, (0, 3), lost=1)  # boxes without slots, and boxes that are far from each other
    left, right = open_board(8, 5, rule, "privtree"), open_board(8, 6, rule, "privtree")
    check_transcript(transcript(left, right, rule), rule, left.release, right.release, tmp_path)


def test_both_keep_the_same_of_each_other() -> None:
    books = io.BytesIO(), io.BytesIO()
    run_both(be_left(book=books[0]), be_right(book=books[1]))
    kept = [frames_of(book) for book in books]
    for way, back in ((b">", b"<"), (b"<", b">")):
        assert [f[1:] for f in kept[0] if f[0] == way] == [f[1:] for f in kept[1] if f[0] == back]


def without_dummies(frames: list[Frame]) -> list[Frame]:
    """What a left party would send that leaves its dummies out. All of a box has lists of the same size."""
    out = []
    met = meet_in_memory()
    batches = iter(met.batches())
    for way, kind, data in frames:
        if kind == LISTS_MESSAGE:
            seats, _, low, high = next(batches)
            size = 64 * int(np.sum(high - low + 1)) + 128 * len(low)
            data = b"".join(data[k * size : (k + 1) * size] for k, s in enumerate(seats) if LEFT.seats[s] >= 0)  # noqa: PLW2901
        out.append((way, kind, data))
    return out


def meet_in_memory() -> Agreement:
    return Agreement.of(RULES, LEFT.blocks, RIGHT.blocks)


def changed(frames: list[Frame], kind: int, change: Callable[[bytes], bytes]) -> list[Frame]:
    """With the last frame of this kind changed."""
    last = max(k for k, frame in enumerate(frames) if frame[1] == kind)
    way, _, data = frames[last]
    return [*frames[:last], (way, kind, change(data)), *frames[last + 1 :]]


NEAR_MISSES: dict[str, tuple[Callable[[list[Frame]], list[Frame]], str]] = {
    "dummies left out": (without_dummies, "sizes"),
    "a bit in the clear": (lambda f: changed(f, LISTS_MESSAGE, lambda data: bytes([1]) * 64 + data[64:]), "points"),
    "a ciphertext sent twice": (
        lambda f: changed(f, LISTS_MESSAGE, lambda data: data[:64] + data[:64] + data[128:]),
        "fresh",
    ),
    "an answer that is not blinded": (
        lambda f: changed(f, ANSWERS_MESSAGE, lambda d: f[-2][2][:64] * (len(d) // 64)),
        "fresh",
    ),
    "an answer too many": (
        lambda f: changed(f, ANSWERS_MESSAGE, lambda data: data + secure_comparison.times_base(77) * 2),
        "fresh|sizes",
    ),
    "a message of another kind": (lambda f: [*f, (b">", RULE_MESSAGE, b"{}")], "kinds"),
    "a second release": (lambda f: [*f[:2], f[2], *f[2:]], "kinds"),
    "more in the rule": (lambda f: changed(f, RULE_MESSAGE, lambda data: data[:-1] + b', "true_rows": 9}'), "rules"),
    "a proof sent twice": (lambda f: changed(f, LISTS_MESSAGE, lambda data: data[:-32] + data[-64:-32]), "fresh"),
    "another release": (lambda f: changed(f, RELEASE_MESSAGE, lambda data: data + b" "), "releases"),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_transcript_with_anything_else_is_seen(name: str, tmp_path: Path) -> None:
    change, what = NEAR_MISSES[name]
    frames = transcript()
    with pytest.raises(AssertionError, match=what):
        check_transcript(change(frames), RULES, LEFT.release, RIGHT.release, tmp_path)


def test_a_protocol_in_the_clear_finds_the_same_and_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def far_from(ciphers: list[bytes], low: int, values: range, apart: int) -> list[bytes]:
        at = {low + k for k, cipher in enumerate(ciphers) if cipher[0]}
        return [bytes([not any(abs(v - x) <= apart for x in at)]) * 64 for v in values]

    monkeypatch.setattr(secure_comparison, "encrypt", lambda bits, randomness, key: [bytes([bit]) * 64 for bit in bits])
    monkeypatch.setattr(secure_comparison, "far_from", far_from)
    monkeypatch.setattr(protocol, "check", lambda *_: None)
    monkeypatch.setattr(
        secure_comparison, "compare", lambda picked, miss, key: bytes([miss + sum(c[0] for c in picked)]) * 64
    )
    monkeypatch.setattr(secure_comparison, "is_zero", lambda cipher, key: cipher[0] == 0)
    book = io.BytesIO()
    left, _ = run_both(be_left(book=book), be_right())
    assert len(left.result) == len(expected(LEFT, RIGHT, RULES))  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="points"):
        check_transcript(frames_of(book), RULES, LEFT.release, RIGHT.release, tmp_path)


def shape(frames: list[Frame]) -> list[tuple[bytes, int, int]]:
    """Each way in its own order: how they interleave is a matter of timing."""
    return sorted(((way, kind, len(data)) for way, kind, data in frames), key=lambda frame: frame[0])


def test_who_sits_behind_a_slot_does_not_show_in_what_crosses() -> None:
    """The same releases, but records moved, left out, or where a dummy was: the same frames of the same sizes."""
    usual = transcript()
    moved = [replace(side, records=side.records[::-1].copy()) for side in (LEFT, RIGHT)]
    mixed = [replace(side, seats=np.roll(side.seats, 3)) for side in (LEFT, RIGHT)]
    empty = [replace(side, seats=np.full_like(side.seats, -1)) for side in (LEFT, RIGHT)]
    full = [replace(side, seats=np.zeros_like(side.seats)) for side in (LEFT, RIGHT)]
    for left, right in (moved, mixed, empty, full, (LEFT, empty[1]), (full[0], RIGHT)):
        frames = transcript(left, right)
        assert shape(frames) == shape(usual)
        clear = (RULE_MESSAGE, RELEASE_MESSAGE)
        assert [f for f in frames if f[1] in clear] == [f for f in usual if f[1] in clear]


# When they do not agree


OTHERS = {
    "thresholds": Rule.of(BOARD, (1, 3)),
    "domain": Rule.of(vm.Domain({"x": (0, 11), "z": (0, 7)}), (1, 2)),
    "steps (--step)": Rule.of(BOARD, (1, 2), ("0.5", 1)),  # the same thresholds, in more steps
    "fraction of records that may be lost (--lost)": Rule.of(BOARD, (1, 2), lost="0.02"),
}
OTHER_SIDES = {
    "epsilon (--epsilon)": open_board(7, 2, RULES, epsilon=2),
    "number of rows (--rows)": replace(RIGHT, rows=9),
    "method (--method, --height, or those of a release given by --release)": open_board(7, 2, RULES, "kd-standard"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_parties_who_do_not_agree_are_both_told_on_what(what: str) -> None:
    for party in run_both(be_left(), be_right(rule=OTHERS[what])):
        refused(party, f"The parties do not agree on the {what}. Use the same for both.")


@pytest.mark.parametrize("what", OTHER_SIDES)
def test_parties_who_made_their_releases_otherwise_are_both_told_on_what(what: str) -> None:
    for party in run_both(be_left(), be_right(OTHER_SIDES[what])):
        refused(party, f"The parties do not agree on the {what}. Use the same for both.")


@pytest.mark.parametrize("be", [be_left, be_right])
def test_two_parties_of_the_same_side_are_both_told(be: Callable) -> None:
    for party in run_both(be(), be()):
        refused(party, "Both parties have the same role. One must listen (--listen) and the other connect (--connect).")


@pytest.mark.parametrize(
    "said",
    [
        hello(RULES, False, protocol="veilmap-match/9"),
        b"\xff\x00",
        b"[1]",
        b"7",
        b"{}",
        b"",
        b"null",
        hello(RULES, False, more=9),
        hello(RULES, False) + b" ",
    ],
)
def test_another_protocol_is_named(said: bytes) -> None:
    left, _ = run_both(be_left(), say((RULE_MESSAGE, said), listen=1))
    refused(left, "The parties do not agree on the protocol. Use the same for both.")


# When the other goes away or talks nonsense


MET = (RULE_MESSAGE, hello(RULES, False)), (RELEASE_MESSAGE, protocol.to_bytes(RIGHT.release))
MET_LEFT = (RULE_MESSAGE, hello(RULES, True)), (RELEASE_MESSAGE, protocol.to_bytes(LEFT.release))
POINT = secure_comparison.times_base(5)
STRANGE = "The other party sent an unexpected message. Both parties need the same version of veilmap."


@pytest.mark.parametrize("said", range(3))
def test_a_left_party_whose_other_goes_is_told_so(said: int) -> None:
    """At once, or when it has heard what the left party had to say."""
    for listen in (0, said + 1):
        left, _ = run_both(be_left(), say(*MET[:said], listen=listen))
        refused(left, "The other party closed the connection. Check its error message. The budget of a release that")


@pytest.mark.parametrize("said", range(4))
def test_a_right_party_whose_other_goes_is_told_so(said: int) -> None:
    right = run_both(say(*[*MET_LEFT, (KEY_MESSAGE, POINT)][:said], listen=1 if said < 2 else 2), be_right())[1]
    refused(right, "The other party closed the connection")


def test_a_party_that_goes_in_the_middle_of_a_frame_has_gone() -> None:
    def part(stream: socket.socket) -> None:
        stream.sendall(struct.pack("<BQ", RULE_MESSAGE, 1000) + b"{")

    refused(run_both(be_left(), part)[0], "The other party closed the connection")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("<BQ", RULE_MESSAGE, 2**63),
        struct.pack("<BQ", RULE_MESSAGE, 2**16 + 1),
        struct.pack("<BQ", KEY_MESSAGE, 0),
        struct.pack("<BQ", ANSWERS_MESSAGE, 0),
    ],
    ids=["http", "absurd", "a byte too long", "another kind", "a kind of later on"],
)
def test_what_is_not_the_protocol_is_refused_at_its_head(data: bytes) -> None:
    def part(stream: socket.socket) -> None:
        stream.sendall(data)
        stream.recv(9)

    refused(run_both(be_left(), part)[0], STRANGE)


def test_a_hello_may_be_as_long_as_is_allowed() -> None:
    refused(run_both(be_left(), say((RULE_MESSAGE, bytes(1 << 16)), listen=1))[0], "do not agree on the protocol")


def cut_after(*frames: tuple[int, bytes], kind: int, size: int, listen: int) -> Callable[[socket.socket], object]:
    """A party that announces a message at the end and never sends it, but stays."""

    def part(stream: socket.socket) -> None:
        say(*frames, listen=listen)(stream)
        stream.sendall(struct.pack("<BQ", kind, size))
        while stream.recv(1 << 16):
            pass

    return part


def sizes_of_first() -> tuple[int, int]:
    """Bytes of the first lists and of the answers to them."""
    seats, slots, low, high = next(meet_in_memory().batches())
    return len(seats) * (64 * int(np.sum(high - low + 1)) + 128 * len(low)), 64 * len(seats) * len(slots)


@pytest.mark.parametrize("wrong", [-64, -1, 1, 64, 1 << 40])
def test_a_message_of_another_size_is_refused_before_it_is_read(wrong: int) -> None:
    """The rest of it never comes: who waits for it is stuck."""
    lists, answers = sizes_of_first()
    talk = cut_after(*MET, kind=ANSWERS_MESSAGE, size=answers + wrong, listen=3)
    refused(run_both(be_left(), talk)[0], STRANGE)
    talk = cut_after(*MET_LEFT, (KEY_MESSAGE, POINT), kind=LISTS_MESSAGE, size=lists + wrong, listen=2)
    refused(run_both(talk, be_right())[1], STRANGE)
    if 32 + wrong >= 0:
        refused(run_both(cut_after(*MET_LEFT, kind=KEY_MESSAGE, size=32 + wrong, listen=2), be_right())[1], STRANGE)


@pytest.mark.parametrize("said", range(3))
def test_a_silent_partner_is_given_up(said: int) -> None:
    """Where the socket has a limit of patience. The silent one stays until it is told to go."""
    done = threading.Event()

    def silent(frames: tuple) -> Callable[[socket.socket], object]:
        def part(stream: socket.socket) -> None:
            say(*frames[:said])(stream)
            done.wait(PATIENCE)

        return part

    def hurried(be: Callable[[socket.socket], object]) -> Callable[[socket.socket], object]:
        def part(stream: socket.socket) -> object:
            stream.settimeout(0.1)
            try:
                return be(stream)
            finally:
                done.set()

        return part

    refused(run_both(hurried(be_left()), silent(MET))[0], "The other party has been silent for too long")
    done.clear()
    refused(run_both(silent(MET_LEFT), hurried(be_right()))[1], "The other party has been silent for too long")


# When the transcript cannot be written


class FullBook(io.BytesIO):
    """A disk that is full when the first frame of a kind comes."""

    def __init__(self, kind: int) -> None:
        super().__init__()
        self.kind = kind

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if data[1] == self.kind:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


@pytest.mark.parametrize(
    "kind", [RULE_MESSAGE, RELEASE_MESSAGE, KEY_MESSAGE, LISTS_MESSAGE, ANSWERS_MESSAGE], ids=list("HRKLA")
)
@pytest.mark.parametrize("batch", [1500, 1 << 21])
def test_a_transcript_that_cannot_be_written_ends_both(monkeypatch: pytest.MonkeyPatch, kind: int, batch: int) -> None:
    """Whoever keeps it is told the reason; also where lists go out from a thread of their own."""
    monkeypatch.setattr(agreement, "BYTES_PER_BATCH", batch)
    for _ in range(4):  # who notices first is a matter of timing
        left, right = run_both(be_left(book=FullBook(kind)), be_right())
        refused(left, "Cannot write the transcript: No space left on device.")
        refused(right, "The other party closed the connection")
        left, right = run_both(be_left(), be_right(book=FullBook(kind)))
        refused(left, "The other party closed the connection")
        refused(right, "Cannot write the transcript: No space left on device.")


def test_a_transcript_that_cannot_be_written_ends_both_at_one_table() -> None:
    def together(stream: socket.socket) -> object:
        return protocol.compare_both(LEFT, RIGHT, RULES, lambda part: None, FullBook(LISTS_MESSAGE))

    refused(run_both(together, lambda stream: None)[0], "Cannot write the transcript")


def test_a_left_party_whose_lists_fail_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(protocol, "_places_in_lists", fail)
    left, right = run_both(be_left(), be_right())
    assert isinstance(left.error, MemoryError), left.error
    refused(right, "The other party closed the connection")


NO_RELEASE = "The other party sent a file that is not a valid release of this version of veilmap."


def releases(folder: Path) -> dict[str, tuple[bytes, str]]:
    other = Rule.of(OTHERS["domain"].domain, (1, 2))
    good = MET[1][1]
    curve = vm.release(np.zeros((5, 2)), BOARD, 1, "hilbert-r", height=1)
    private = replace(RIGHT.release, privacy=replace(RIGHT.release.privacy, private=True))
    return {
        "nothing": (b"", NO_RELEASE),
        "garbage": (b"PAR1" + bytes(range(256)), NO_RELEASE),
        "cut short": (good[:-50], NO_RELEASE),
        "a byte changed": (
            good[:300] + bytes([good[300] ^ 1]) + good[301:],
            NO_RELEASE,
        ),
        "another domain": (to_bytes(open_board(5, 1, other).release, folder), "is not the agreed domain"),
        "overlapping boxes": (
            to_bytes(curve, folder),
            "its epsilon, method or privacy guarantee is not the agreed one",
        ),
        "absurd counts": (
            to_bytes(forged(RIGHT.release, 2.0**40, 1.0), folder),
            "must add up to fewer than 67,108,864 slots",
        ),
        "too little noise": (to_bytes(forged(private, 1, 1e-3), folder), NO_RELEASE),
    }


@pytest.mark.parametrize(
    "name",
    [
        "nothing",
        "garbage",
        "cut short",
        "a byte changed",
        "another domain",
        "overlapping boxes",
        "absurd counts",
        "too little noise",
    ],
)
def test_what_is_no_release_for_matching_is_refused(name: str, tmp_path: Path) -> None:
    data, sentence = releases(tmp_path)[name]
    left, _ = run_both(be_left(), say(MET[0], (RELEASE_MESSAGE, data), listen=2))
    refused(left, sentence)
    assert str(tmp_path) not in str(left.error)


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        (lambda n: b"", STRANGE),
        (lambda n: POINT * 2, STRANGE),
        (bytes, "not a point of the group"),
        (lambda n: b"\xff" * n, "not a point of the group"),
    ],
)
def test_a_left_party_refuses_answers_that_are_none(answers: Callable[[int], bytes], sentence: str) -> None:
    left, _ = run_both(be_left(), say(*MET, (ANSWERS_MESSAGE, answers(sizes_of_first()[1])), listen=3))
    refused(left, sentence)


def test_a_left_party_that_refuses_an_answer_does_not_wait_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lists are more than a socket holds, and the other, who talks nonsense, does not read them."""
    monkeypatch.setattr(agreement, "BYTES_PER_BATCH", 1 << 17)
    rule = Rule.of(vm.Domain({"x": (0, 4000)}), [0])
    side = open_side(np.zeros((6, 1)), rule, 50, leaves_only("quad-baseline", 1, rule, 50, None))

    def part(stream: socket.socket) -> None:
        wire = Wire(stream)
        seats, slots, _, _ = next(meet(wire, side, rule, left=False).batches())
        wire.receive(KEY_MESSAGE, 32)
        wire.send(ANSWERS_MESSAGE, bytes(64 * len(seats) * len(slots)))
        gone = select.poll()
        gone.register(stream, 0)
        assert gone.poll(1000 * PATIENCE)

    left, right = run_both(be_left(side, rule), part)
    refused(left, "not a point of the group")
    assert right.error is None


@pytest.mark.parametrize(
    ("key", "lists", "sentence"),
    [
        (POINT, lambda n: b"", STRANGE),
        (POINT, lambda n: POINT * (n // 32 + 2), STRANGE),
        (POINT, lambda n: bytes([7]) * n, "not a point of the group"),
        (bytes(32), lambda n: POINT * (n // 32), "not a point of the group"),
        (b"short", lambda n: POINT * (n // 32), STRANGE),
    ],
)
def test_a_right_party_refuses_lists_that_are_none(key: bytes, lists: Callable[[int], bytes], sentence: str) -> None:
    data = lists(sizes_of_first()[0])
    refused(run_both(say(*MET_LEFT, (KEY_MESSAGE, key), (LISTS_MESSAGE, data), listen=2), be_right())[1], sentence)


def test_boxes_too_wide_for_lists_are_refused_on_both_sides() -> None:
    rule = Rule.of(vm.Domain({"x": (0, 100_000)}), [20_000])
    side = open_side(np.zeros((3, 1)), rule, 5, leaves_only("quad-baseline", 1, rule, 5, None))
    for party in run_both(be_left(side, rule), be_right(side, rule)):
        refused(
            party,
            "steps wide along x, which is too wide for the secure step. Use steps larger than 1 on that axis (--step)",
        )


def test_both_at_one_table_fail_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of the left party ends the right one too."""

    def stop(part: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        protocol.compare_both(LEFT, RIGHT, RULES, stop)


def test_the_speed_is_measured_in_a_moment() -> None:
    started = time.perf_counter()
    pairs, lists = protocol.measure_speed(RULES, 0.05)
    assert pairs > 10
    assert lists > 10
    assert time.perf_counter() - started < 5


def test_lists_take_their_time_too() -> None:
    """What is expected follows from how much crosses, lists and answers: a guess from answers alone is short."""
    values, answers = lists_of(LEFT.release, RIGHT.release, RULES)
    lists = sum(values)
    met = meet_in_memory()
    assert (met.listed, met.work) == (lists, answers)
    assert protocol.expected_seconds(met, (100.0, 400.0)) == answers / 100 + lists / 400 > answers / 100
    wide = Rule.of(vm.Domain({"x": (0, 4000)}), [0])
    side = open_side(np.zeros((6, 1)), wide, 50, leaves_only("quad-baseline", 1, wide, 50, None))
    met = Agreement.of(wide, side.blocks, side.blocks)
    assert met.listed > 200 * met.work
    assert protocol.expected_seconds(met, (100.0, 400.0)) > 50 * met.work / 100


def test_boxes_that_are_too_wide_are_named_before_anybody_meets() -> None:
    rule = Rule.of(vm.Domain({"x": (0, 9), "y": (0, 30_000)}), [0, 0], [1, "1"])
    side = open_side(np.zeros((3, 2)), rule, 5, leaves_only("quad-baseline", 1, rule, 5, None))
    Agreement.of(rule, side.blocks, side.blocks).must_be_short()  # halves of 15,000
    whole = replace(side.blocks, lo=side.blocks.lo[:1] * 0, hi=np.array([[9, 30_000]]), slots=np.array([1]))
    with pytest.raises(BadInput, match="A box is 30,001 steps wide along y, which is too wide for the secure step"):
        Agreement.of(rule, whole, side.blocks).must_be_short()
    Agreement.of(rule, side.blocks, whole).must_be_short()  # only the left party makes lists


def test_batches_are_every_pair_of_slots_once() -> None:
    met = meet_in_memory()
    seen = [pair for seats, slots, _, _ in met.batches() for pair in itertools.product(seats.tolist(), slots.tolist())]
    assert len(set(seen)) == len(seen) == met.work

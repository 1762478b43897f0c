"""A party that does not keep to the protocol of matching: what it asks for, and that it is refused."""

from __future__ import annotations

import io
import json
import math
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilmap as vm
from tests.unit.matching.test_protocol import (
    LEFT,
    MET,
    MET_LEFT,
    RIGHT,
    RULES,
    STRANGE,
    be_left,
    be_right,
    frames_of,
    refused,
    run_both,
)
from veilmap.errors import BadInput
from veilmap.matching import limits, protocol, secure_comparison
from veilmap.matching.agreement import Agreement
from veilmap.matching.blocks import Side, leaves_only, noise_scales, open_side, read_blocks
from veilmap.matching.list_proof import INVALID_LIST, prove
from veilmap.matching.protocol import ANSWERS_MESSAGE, KEY_MESSAGE, LISTS_MESSAGE, RELEASE_MESSAGE, RULE_MESSAGE, Wire
from veilmap.matching.rule import Rule

pytest.importorskip("nacl.bindings", reason="the extra 'match' is not installed")

SQUARE = vm.Domain({"x": (0, 15), "y": (0, 15)})
EXACT = Rule.of(SQUARE, (0, 0))
ROWS = 12
QUARTERS = leaves_only("quad-baseline", 1, EXACT, 2, None)
VICTIM = open_side(np.random.default_rng(4).integers(0, 16, (ROWS, 2)).astype(float), EXACT, 2, QUARTERS, rows=ROWS)


def forged(made: vm.Release, count: float, variance: float | None = None) -> vm.Release:
    """A release that says this of each of its leaves."""
    nodes = made.estimates
    leaf = nodes.tree.is_leaf
    return replace(
        made,
        estimates=replace(
            nodes,
            noisy_count=np.where(leaf, count, nodes.noisy_count).astype(nodes.noisy_count.dtype),
            noise_variance=nodes.noise_variance if variance is None else np.where(leaf, variance, nodes.noise_variance),
        ),
    )


# Lists that ask for bits


class Cheat:
    """A left party with an invented release and lists of its own. It notes which answers are 0."""

    def __init__(self, made: vm.Release, numbers: Callable[[int, np.ndarray, int], list[int]]) -> None:
        self.made, self.numbers = made, numbers
        self.answers: dict[tuple[int, int], bool] = {}  # by slot of its own and of the other
        self.crossed = io.BytesIO()

    def __call__(self, stream: socket.socket) -> None:
        wire, key = Wire(stream, self.crossed), secure_comparison.make_key()
        wire.send(RULE_MESSAGE, json.dumps(protocol._hello(VICTIM, EXACT, True), sort_keys=True).encode())
        wire.receive_at_most(RULE_MESSAGE, 1 << 16)
        wire.send(RELEASE_MESSAGE, protocol.to_bytes(self.made))
        theirs = protocol._from_bytes(wire.receive_at_most(RELEASE_MESSAGE, 1 << 20))
        wire.send(KEY_MESSAGE, key.public)
        for seats, slots, low, high in Agreement.of(
            EXACT, read_blocks(self.made, EXACT), read_blocks(theirs, EXACT)
        ).batches():
            wire.send(LISTS_MESSAGE, b"".join(self._lists(seat - seats[0], low, high, key) for seat in seats.tolist()))
            found = protocol._cut(wire.receive(ANSWERS_MESSAGE, 64 * len(seats) * len(slots)))
            pairs = [(seat - int(seats[0]), slot) for seat in seats.tolist() for slot in slots.tolist()]
            self.answers |= {
                pair: secure_comparison.is_zero(answer, key) for pair, answer in zip(pairs, found, strict=True)
            }

    def _lists(self, slot: int, low: np.ndarray, high: np.ndarray, key: secure_comparison.Key) -> bytes:
        out = b""
        for axis in range(2):
            numbers = self.numbers(slot, np.arange(low[axis], high[axis] + 1), axis)
            randomness = [secure_comparison.random_scalar() for _ in numbers]
            ciphers = secure_comparison.encrypt(numbers, randomness, key)
            out += b"".join(ciphers) + prove(ciphers, numbers.index(1) if 1 in numbers else None, randomness, key)
        return out


def ask_bits(slot: int, values: np.ndarray, axis: int) -> list[int]:
    """Slots 0 to 3 ask for a bit of x, 4 to 7 for one of y; others ask whether there is anybody at all."""
    asked, bit = divmod(slot, 4)
    return (values >> bit & 1).tolist() if asked == axis else [1] * len(values)


def recovered(cheat: Cheat) -> int:
    """How many of the victim's records the answers spell out."""
    right = 0
    for slot in np.flatnonzero(VICTIM.seats >= 0).tolist():
        told = [sum(cheat.answers.get((4 * axis + bit, slot), False) << bit for bit in range(4)) for axis in range(2)]
        right += told == VICTIM.records[VICTIM.seats[slot]].tolist()
    return right


def invent(slots: int) -> vm.Release:
    """As many slots in each box, with the noise of the agreed epsilon."""
    made = forged(VICTIM.release, 0)
    spare = int(read_blocks(forged(made, slots), EXACT).slots[0]) - slots
    made = forged(made, slots - spare)
    assert set(read_blocks(made, EXACT).slots.tolist()) == {slots}
    return made


def test_lists_that_ask_for_bits_would_tell_every_value_if_nobody_checked_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "check", lambda *_: None)
    cheat = Cheat(invent(8), ask_bits)
    for party in run_both(cheat, be_right(VICTIM, EXACT)):
        assert party.error is None, party.error
    assert recovered(cheat) == np.sum(VICTIM.seats >= 0) > 0  # all that have a slot


def test_lists_that_ask_for_bits_get_no_answer() -> None:
    cheat = Cheat(invent(8), ask_bits)
    _, right = run_both(cheat, be_right(VICTIM, EXACT))
    refused(right, INVALID_LIST)
    assert cheat.answers == {}
    assert recovered(cheat) == 0


def test_one_list_that_is_none_among_many_ends_it_before_any_of_its_message_is_answered() -> None:
    def ask(slot: int, values: np.ndarray, axis: int) -> list[int]:
        return [int(k == 0) for k in range(len(values))] if slot < 7 else ask_bits(0, values, axis)

    cheat = Cheat(invent(8), ask)
    refused(run_both(cheat, be_right(VICTIM, EXACT))[1], INVALID_LIST)
    assert cheat.answers == {}


def test_a_party_that_cheats_with_proved_lists_learns_who_is_near_the_points_it_chose() -> None:
    """This is left to it: invented records. Each slot tells of one point."""

    def ask(slot: int, values: np.ndarray, axis: int) -> list[int]:
        return [int(k == slot) for k in range(len(values))]

    cheat = Cheat(invent(8), ask)
    for party in run_both(cheat, be_right(VICTIM, EXACT)):
        assert party.error is None, party.error
    seated = VICTIM.records[VICTIM.seats[VICTIM.seats >= 0]]
    on_the_diagonal = int(np.sum(seated[:, 0] % 8 == seated[:, 1] % 8))
    assert sum(cheat.answers.values()) == on_the_diagonal
    met = Agreement.of(EXACT, read_blocks(cheat.made, EXACT), VICTIM.blocks)
    assert (met.points, met.near_one, met.reach) == (32, 8, 32 / 256)


# Releases that claim more than was agreed


def other_promise(**changed: object) -> vm.Release:
    return replace(VICTIM.release, privacy=replace(VICTIM.release.privacy, **changed))


def deeper() -> vm.Release:
    """A taller tree that says it is of the agreed height."""
    made = vm.release(np.zeros((0, 2)), SQUARE, 2, leaves_only("quad-baseline", 3, EXACT, 2, None))
    return replace(made, method=VICTIM.release.method)


INVENTED: dict[str, tuple[Callable[[], vm.Release], str]] = {
    "many slots": (lambda: forged(VICTIM.release, 1000), "but the agreed 12 rows allow at most {most}."),
    "a few slots too many": (
        lambda: forged(VICTIM.release, 12),
        "but the agreed 12 rows allow at most {most}.",
    ),
    "much noise": (lambda: forged(VICTIM.release, 1, 1e6), "its noise does not correspond to the agreed epsilon"),
    "counts far below 0": (lambda: forged(VICTIM.release, -10_000_000), "has counts too low to be explained by noise"),
    "little noise": (lambda: forged(VICTIM.release, 1, 1e-3), "is not a valid release"),
    "another epsilon": (
        lambda: vm.release(np.zeros((0, 2)), SQUARE, 1, QUARTERS),
        "its epsilon, method or privacy guarantee is not the agreed one",
    ),
    "not private": (
        lambda: other_promise(private=False),
        "its epsilon, method or privacy guarantee is not the agreed one",
    ),
    "another unit": (
        lambda: other_promise(unit="one person (1 rows at most)"),
        "its epsilon, method or privacy guarantee is not the agreed one",
    ),
    "another method": (
        lambda: vm.release(np.zeros((0, 2)), SQUARE, 2, leaves_only("kd-standard", 1, EXACT, 2, None)),
        "its epsilon, method or privacy guarantee is not the agreed one",
    ),
    "a taller tree": (deeper, "has 85 nodes, but the agreed method and 12 rows allow at most 11."),
}


@pytest.mark.parametrize("name", INVENTED)
def test_a_release_that_is_not_as_agreed_is_refused_before_anything_is_answered(name: str) -> None:
    make, sentence = INVENTED[name]
    cheat = Cheat(made := make(), ask_bits)
    _, right = run_both(cheat, be_right(VICTIM, EXACT))
    most = limits.max_slots(VICTIM, made, read_blocks(made, EXACT), EXACT)
    refused(right, sentence.format(most=f"{most:,}"))
    assert cheat.answers == {}
    assert [kind for way, kind, _ in frames_of(cheat.crossed) if way == b"<"] == [RULE_MESSAGE]  # not even a release


def test_a_left_party_refuses_an_invented_release_too() -> None:
    claim = protocol.to_bytes(forged(VICTIM.release, 1000))

    def part(stream: socket.socket) -> None:
        wire = Wire(stream)
        wire.send(RULE_MESSAGE, json.dumps(protocol._hello(VICTIM, EXACT, False), sort_keys=True).encode())
        wire.receive_at_most(RULE_MESSAGE, 1 << 16)
        wire.receive_at_most(RELEASE_MESSAGE, 1 << 20)
        wire.send(RELEASE_MESSAGE, claim)

    left = run_both(be_left(VICTIM, EXACT), part)[0]
    refused(left, "The other party's release is refused: ")
    refused(left, "slots, but the agreed 12 rows allow at most ")


@pytest.mark.parametrize("changed", ["nodes", "domain"])
def test_nothing_is_read_of_a_file_that_states_more_than_was_agreed(
    changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file of very many nodes, or of another domain: its header is enough to refuse it."""
    box = SQUARE if changed == "nodes" else vm.Domain({"x": (0, 15), "y": (0, 31)})
    made = vm.release(
        np.zeros((0, 2)), box, 2, leaves_only("quad-baseline", 4 if changed == "nodes" else 1, EXACT, 2, None)
    )
    claim = protocol.to_bytes(made)
    for name in ("read", "iter_batches"):
        monkeypatch.setattr(pq.ParquetFile, name, lambda *_, **__: pytest.fail("It is read."))

    def part(stream: socket.socket) -> None:
        wire = Wire(stream)
        wire.send(RULE_MESSAGE, json.dumps(protocol._hello(VICTIM, EXACT, False), sort_keys=True).encode())
        wire.receive_at_most(RULE_MESSAGE, 1 << 16)
        wire.receive_at_most(RELEASE_MESSAGE, 1 << 20)
        wire.send(RELEASE_MESSAGE, claim)

    nodes, domain = "has 341 nodes, but the agreed method and 12 rows allow at most 11.", "is not the agreed domain"
    why = nodes if changed == "nodes" else domain
    refused(run_both(be_left(VICTIM, EXACT), part)[0], why)


# Honest parties


def sides_of(points: np.ndarray, rule: Rule, epsilon: float, method: str, height: int | None, rows: int) -> Side:
    return open_side(points, rule, epsilon, leaves_only(method, height, rule, epsilon, rows), rows=rows)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 400),
    st.sampled_from([0.1, 1.0, 20.0]),
    st.sampled_from(
        ["kd-standard", "quad-baseline", "kd-hybrid", "kd-cell", "privtree", "uniform-grid", "adaptive-grid", "best"]
    ),
    st.sampled_from(["0.01", "0.2", "1"]),
    st.data(),
)
def test_honest_parties_are_never_refused(
    axes: int, rows: int, epsilon: float, method: str, lost: str, data: st.DataObject
) -> None:
    """Whatever they have, as long as it is not more than agreed: by chance in less than one of 10^10 cases."""
    domain = vm.Domain(dict.fromkeys("xyz"[:axes], (0, 99)))
    rule = Rule.of(domain, [2] * axes, lost=lost)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    both = []
    for _ in range(2):
        n = data.draw(st.sampled_from([0, 1, rows // 2, rows]))
        spread = data.draw(st.sampled_from([0, 3, 100]))
        both.append(sides_of(np.clip(rng.normal(50, spread, (n, axes)), 0, 99), rule, epsilon, method, None, rows))
    for ours, theirs in (both, both[::-1]):
        limits.must_fit_rows(ours, rule)
        file = protocol.to_bytes(theirs.release)
        assert len(file) <= limits.max_file_bytes(ours)
        found = limits.must_be_as_agreed(ours, protocol._from_bytes(file), rule)
        assert np.array_equal(found.slots, theirs.blocks.slots)


@pytest.mark.parametrize("leaves", [1, 2, 16, 1000, 100_000])
@pytest.mark.parametrize("scale", [0.02, 0.5, 1.0, 14.0, 500.0])
def test_noise_exceeds_what_is_allowed_for_it_less_than_once_in_ten_thousand_million(leaves: int, scale: float) -> None:
    """By the Chernoff bound, with the moments of the discrete Laplace noise itself where it is above 0."""
    allowed = scale * (math.sqrt(leaves) + math.sqrt(limits.NOISE_TAIL_EXPONENT)) ** 2
    q = math.exp(-1 / scale)
    chances = []
    for tilt in np.linspace(0.001, 0.999, 999) / scale:
        p = math.exp(tilt)
        above = q * p / (1 - q * p) * (1 - q) / (1 + q)
        chances.append(leaves * math.log(1 / (1 + q) + above) - tilt * math.ceil(allowed))
    assert min(chances) < math.log(1e-10)


def test_most_slots_are_rows_losses_and_noise() -> None:
    made, blocks = VICTIM.release, VICTIM.blocks
    scale = float(noise_scales(made, blocks.leaf)[0])
    assert scale == pytest.approx(0.5)
    total = max(blocks.total, 1)
    spare = 4 * math.ceil(scale * math.log(max(scale * 4 / (2 * 0.01 * total), 1)))
    noise = scale * (math.sqrt(4) + 5) ** 2
    assert limits.max_slots(VICTIM, made, blocks, EXACT) == ROWS + spare + math.ceil(noise)


def test_the_leaves_of_a_tree_with_a_height_are_known() -> None:
    for method, leaves in (("kd-standard", 64), ("kd-hybrid", 64), ("quad-baseline", 85), ("kd-cell", 65)):
        side = sides_of(np.zeros((0, 2)), EXACT, 1, method, 3, 10)
        assert int(side.release.estimates.tree.is_leaf.sum()) <= limits.max_leaves(side) <= leaves
    grown = sides_of(np.zeros((0, 2)), EXACT, 2, "privtree", None, 10)
    assert limits.max_leaves(grown) == 4 * (256 + 10 * 2)


# Sizes and silence


def announce(*frames: tuple[int, bytes], kind: int, size: int) -> Callable[[socket.socket], object]:
    """A party that announces a message and never sends it, but stays."""

    def part(stream: socket.socket) -> None:
        for sent, data in frames:
            stream.sendall(struct.pack("<BQ", sent, len(data)) + data)
        stream.sendall(struct.pack("<BQ", kind, size))
        while stream.recv(1 << 16):
            pass

    return part


def test_a_release_longer_than_the_agreed_method_makes_is_refused_at_its_head() -> None:
    most = limits.max_file_bytes(RIGHT)
    assert len(MET_LEFT[1][1]) < most < 1 << 18
    for size in (most + 1, 1 << 30, 2**63):
        refused(run_both(announce(MET_LEFT[0], kind=RELEASE_MESSAGE, size=size), be_right())[1], STRANGE)
        refused(run_both(be_left(), announce(MET[0], kind=RELEASE_MESSAGE, size=size))[0], STRANGE)


def trickle(pieces: Sequence[bytes], done: threading.Event) -> Callable[[socket.socket], object]:
    """A party that sends a byte now and then, for as long as anyone listens."""

    def part(stream: socket.socket) -> None:
        for byte in b"".join(pieces):
            if done.wait(0.01):
                return
            stream.sendall(bytes([byte]))

    return part


def test_a_byte_now_and_then_is_silence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MIN_BYTES_PER_SECOND", 1 << 40)
    done = threading.Event()

    def hurried(stream: socket.socket) -> object:
        stream.settimeout(0.2)
        try:
            return be_left()(stream)
        finally:
            done.set()

    started = time.monotonic()
    left, _ = run_both(hurried, trickle([struct.pack("<BQ", RULE_MESSAGE, 5000), bytes(5000)], done))
    refused(left, "The other party has been silent for too long")
    assert time.monotonic() - started < 10  # all of it would take 50 seconds


def test_a_party_that_does_not_take_what_is_sent_is_given_up() -> None:
    done = threading.Event()

    def full(stream: socket.socket) -> None:
        stream.settimeout(0.1)
        try:
            Wire(stream).send(LISTS_MESSAGE, bytes(1 << 24))
        finally:
            done.set()

    left, _ = run_both(full, lambda stream: done.wait(10))
    refused(left, "The other party has been silent for too long")


def test_parties_are_waited_for_as_long_as_their_work_takes_on_a_slow_computer() -> None:
    met = Agreement.of(RULES, LEFT.blocks, RIGHT.blocks)
    batch = (1 << 21) // 64
    assert met.patience == 600 + batch * 40 / 1000
    many = replace(RIGHT.blocks, slots=RIGHT.blocks.slots * 100_000)
    wide = Agreement.of(RULES, LEFT.blocks, many)
    most = max(len(slots) for _, slots, _, _ in wide.batches())
    assert wide.patience == 600 + most * 40 / 1000
    none = Agreement.of(RULES, LEFT.blocks, replace(RIGHT.blocks, slots=RIGHT.blocks.slots * 0))
    assert none.patience == met.patience
    assert (none.points, none.near_one, none.reach) == (0, 0, 0.0)


def test_a_party_at_its_own_table_needs_no_limit() -> None:
    crowd = np.random.default_rng(1).integers(0, 16, (30, 2)).astype(float)
    side = open_side(crowd, EXACT, 50, leaves_only("quad-baseline", 1, EXACT, 50, None), rows=1)
    with pytest.raises(BadInput, match="larger than the agreed 1 rows allow"):
        limits.must_fit_rows(side, EXACT)
    assert len(protocol.compare_both(side, side, EXACT, lambda part: None)) >= 30

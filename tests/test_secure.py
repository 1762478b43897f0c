"""The secure comparison tells matches from the rest, and nothing else crosses."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

pytest.importorskip("nacl.bindings", reason="the extra 'match' is not installed")

from veilmap import secure
from veilmap.errors import BadInput

KEY = secure.make_key()


def within(x: Sequence[int], y: Sequence[int], thresholds: Sequence[int]) -> bool:
    return all(abs(a - b) <= t for a, b, t in zip(x, y, thresholds, strict=True))


def said(x: Sequence[int], y: Sequence[int], thresholds: Sequence[int]) -> secure.Cipher:
    powers = secure.encrypt_record(x, thresholds, KEY.public)
    return secure.compare(powers, y, thresholds, KEY.public)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_it_finds_the_numbers_within_a_threshold_and_no_others(limit: int) -> None:
    for x in range(7):
        powers = secure.encrypt_record([x], [limit], KEY.public)
        for y in range(7):
            answer = secure.compare(powers, [y], [limit], KEY.public)
            assert secure.is_match(answer, KEY) == (abs(x - y) <= limit)


def test_every_number_of_a_record_must_be_near() -> None:
    thresholds = (1, 0, 2)
    grid = list(itertools.product((0, 1, 2), (5, 6), (40, 42, 43)))
    for x in grid[::4]:
        powers = secure.encrypt_record(x, thresholds, KEY.public)
        for y in grid:
            assert secure.is_match(secure.compare(powers, y, thresholds, KEY.public), KEY) == within(x, y, thresholds)


def test_large_numbers_are_compared_exactly() -> None:
    for x, y in ((10**9, 10**9 + 2), (10**9, 10**9 + 3), (0, 10**12)):
        assert secure.is_match(said([x], [y], [2]), KEY) == (abs(x - y) <= 2)


def test_only_points_of_the_group_cross() -> None:
    powers = secure.encrypt_record([7, 3], [1, 2], KEY.public)
    assert [len(number) for number in powers] == [3, 5]
    answer = secure.compare(powers, [7, 4], [1, 2], KEY.public)
    assert secure.are_points([*itertools.chain(*powers), answer])
    assert not secure.are_points([(bytes(32), answer[1])])
    assert not secure.are_points([(b"7", answer[1])])


def test_the_same_numbers_look_different_every_time() -> None:
    """Ciphertexts and answers repeat nothing, also for equal records: what they encrypt cannot be read off them."""
    sent = [secure.encrypt_record([5], [1], KEY.public) for _ in range(5)]
    halves = [half for record in sent for cipher in record[0] for half in cipher]
    assert len(set(halves)) == len(halves)
    for y in (5, 9):
        answers = [secure.compare(sent[0], [y], [1], KEY.public) for _ in range(5)]
        assert len({half for answer in answers for half in answer}) == 10


def test_an_answer_that_is_no_match_says_nothing_of_how_far_it_is() -> None:
    """What the left party can decrypt of it is a new random point each time."""
    from nacl import bindings

    seen = set()
    for y in (4, 4, 90, 90, 90):
        first, second = said([1], [y], [1])
        seen.add(bytes(bindings.crypto_core_ed25519_sub(second, secure._times(first, KEY.secret))))
    assert len(seen) == 5


def test_another_key_opens_nothing() -> None:
    assert not secure.is_match(said([5], [5], [1]), secure.make_key())
    assert "secret" not in repr(KEY)


@pytest.mark.parametrize(
    ("record", "thresholds"), [([1.5], [1]), ([-1], [1]), ([1, 2], [1]), ([True], [1]), ([1], [-1]), ([1], [2000])]
)
def test_what_is_no_record_is_refused(record: list, thresholds: list) -> None:
    with pytest.raises(BadInput, match=r"whole numbers of 0 or more|at most 1000"):
        secure.encrypt_record(record, thresholds, KEY.public)

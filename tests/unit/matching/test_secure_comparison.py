"""The secure comparison tells matches from the rest, and what it says of the rest is chance."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest

from veilmap.domain import MAX_AXES
from veilmap.errors import BadInput
from veilmap.matching import list_proof, secure_comparison

bindings = pytest.importorskip("nacl.bindings", reason="the extra 'match' is not installed")


def veil(bits: Sequence[int], key: secure_comparison.Key) -> list[secure_comparison.Cipher]:
    return secure_comparison.encrypt(bits, [secure_comparison.random_scalar() for _ in bits], key)


KEY = secure_comparison.make_key()
ZERO, ONE = veil([0, 1], KEY)
POINT = secure_comparison.times_base(5)


def lists(record: Sequence[int], apart: Sequence[int], values: range) -> list[list[secure_comparison.Cipher]]:
    """What the right party makes of a record's lists: an axis each, of one ciphertext a value, 0 if it is near."""
    return [veil([int(abs(v - x) > t) for v in values], KEY) for x, t in zip(record, apart, strict=True)]


def plain(cipher: secure_comparison.Cipher) -> secure_comparison.Point:
    """What the left party can see of a ciphertext: the number, times the base point."""
    return bytes(bindings.crypto_core_ed25519_sub(cipher[32:], secure_comparison.times(cipher[:32], KEY.secret)))


def halves(ciphers: Sequence[secure_comparison.Cipher]) -> list[secure_comparison.Point]:
    return [half for cipher in ciphers for half in (cipher[:32], cipher[32:])]


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_it_finds_the_numbers_within_a_threshold_and_no_others(limit: int) -> None:
    for x in range(6):
        (sent,) = lists([x], [limit], range(6))
        for y in range(6):
            answer = secure_comparison.compare([sent[y]], 0, KEY.public)
            assert secure_comparison.is_zero(answer, KEY) == (abs(x - y) <= limit)


def test_every_number_of_a_record_must_be_near() -> None:
    apart, grid = (1, 0, 2), list(itertools.product(range(3), range(2), range(4)))
    for x in grid[::7]:
        sent = lists(x, apart, range(4))
        for y in grid:
            answer = secure_comparison.compare([sent[k][y[k]] for k in range(3)], 0, KEY.public)
            near = all(abs(a - b) <= t for a, b, t in zip(x, y, apart, strict=True))
            assert secure_comparison.is_zero(answer, KEY) == near


def test_a_miss_is_never_a_match_whatever_was_picked() -> None:
    most = range(1, MAX_AXES + 1)
    for picked, misses in itertools.product(([ZERO], [ONE], [ZERO, ZERO, ZERO], [ZERO, ONE]), most):
        assert not secure_comparison.is_zero(secure_comparison.compare(picked, misses, KEY.public), KEY)


class Counted:
    """The library, with a count of what is asked of it."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> object:
        self.calls[name] += 1
        return getattr(bindings, name)


def operations(monkeypatch: pytest.MonkeyPatch, axes: int, misses: int) -> Counter[str]:
    secure_comparison._multiples()
    library = Counted()
    with monkeypatch.context() as patch:
        patch.setattr(secure_comparison, "_bindings", lambda: library)
        secure_comparison.compare([ZERO, ONE, ZERO][:axes], misses, KEY.public)
    return library.calls


class OnDemand:
    """A table that is worked out when it is needed, and where there is nothing to add, is not."""

    def __getitem__(self, k: int) -> secure_comparison.Point:
        return secure_comparison.times_base(k) if k else bytes([1]) + bytes(31)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_miss_takes_the_same_steps_as_none(monkeypatch: pytest.MonkeyPatch, axes: int) -> None:
    """Or how long an answer takes would tell a dummy from a record."""
    seen = [operations(monkeypatch, axes, misses) for misses in range(MAX_AXES + 1)]
    assert all(calls == seen[0] for calls in seen)
    assert sum(calls for name, calls in seen[0].items() if "scalarmult" in name) == 4
    monkeypatch.setattr(secure_comparison, "_multiples", OnDemand)
    assert operations(monkeypatch, axes, 0) != operations(monkeypatch, axes, 1)


def test_as_many_misses_as_a_domain_has_axes_are_ready() -> None:
    table = secure_comparison._multiples()
    assert len(table) == MAX_AXES + 1
    assert table[1:] == [secure_comparison.times_base(k) for k in range(1, MAX_AXES + 1)]
    assert secure_comparison.add(POINT, table[0]) == POINT


def test_what_is_sent_are_encryptions_of_the_bits() -> None:
    base = secure_comparison.times_base(1)
    for bit, cipher in zip([0, 1, 1, 0], veil([0, 1, 1, 0], KEY), strict=True):
        assert secure_comparison.is_zero(cipher, KEY) == (bit == 0)
        assert bit == 0 or plain(cipher) == base
    assert veil([], KEY) == []


def test_nothing_that_crosses_is_ever_seen_twice() -> None:
    """Equal bits, equal picks, matches and others: ciphertexts and answers are new each time."""
    sent = veil([0, 1] * 20, KEY)
    answers = [
        secure_comparison.compare([picked], misses, KEY.public)
        for picked in (ZERO, ONE)
        for misses in (0, 1)
        for _ in range(8)
    ]
    crossed = halves([*sent, *answers, ZERO, ONE])
    assert len(set(crossed)) == len(crossed)
    assert all(bindings.crypto_core_ed25519_is_valid_point(point) for point in crossed)


def blinded(answers: Sequence[secure_comparison.Cipher]) -> bool:
    """What the left party sees of answers that are no match never repeats, nor is it a number it could guess."""
    seen = [plain(answer) for answer in answers]
    small = {secure_comparison.times_base(k) for k in range(1, 30)}
    return len(set(seen)) == len(seen) and not small & set(seen)


def test_an_answer_that_is_no_match_says_nothing_of_how_far_it_is() -> None:
    far = [
        secure_comparison.compare(picked, misses, KEY.public)
        for picked in ([ONE], [ONE, ONE])
        for misses in (0, 1, 5)
        for _ in range(3)
    ]
    assert blinded(far)
    assert not blinded(far[:1] * 2)


def test_a_near_miss_that_forgets_the_factor_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers look new each time, but the left party reads off them how many numbers differ."""
    true, turn = secure_comparison.random_scalar, itertools.count()
    monkeypatch.setattr(secure_comparison, "random_scalar", lambda: true() if next(turn) % 2 else 1)
    answers = [secure_comparison.compare([ONE], misses, KEY.public) for misses in (1, 1, 4)]
    assert len(set(halves(answers))) == 6
    assert not blinded(answers[:2])
    assert not blinded(answers[2:])


def test_a_list_is_summed_within_the_threshold_of_every_value() -> None:
    for size, apart in itertools.product((1, 4), (0, 1, 2, 9)):
        for place in (None, *range(size)):
            sent = veil([int(k == place) for k in range(size)], KEY)
            values = range(7 - min(apart, 4), 7 + size + min(apart, 4))
            for value, far in zip(values, secure_comparison.far_from(sent, 7, values, apart), strict=True):
                near = place is not None and abs(7 + place - value) <= apart
                assert secure_comparison.is_zero(secure_comparison.compare([far], 0, KEY.public), KEY) == near


def test_randomness_that_cancels_out_does_not_make_some_answers_fail() -> None:
    """A party that fails for some of its records and not for others tells which it has."""
    r = secure_comparison.random_scalar()
    sent = secure_comparison.encrypt([0, 0, 0], [r, secure_comparison.GROUP_ORDER - r, r], KEY)
    far = secure_comparison.far_from(sent, 0, [0, 1, 2], 1)
    assert far[0][:32] == secure_comparison.IDENTITY_POINT
    for picked in (far[:1], far[1:2], far):
        assert not secure_comparison.is_zero(secure_comparison.compare(picked, 0, KEY.public), KEY)


# Proofs of lists


def proved(
    numbers: Sequence[int], place: int | None, key: secure_comparison.Key = KEY
) -> tuple[list[secure_comparison.Cipher], bytes]:
    randomness = [secure_comparison.random_scalar() for _ in numbers]
    ciphers = secure_comparison.encrypt([n % secure_comparison.GROUP_ORDER for n in numbers], randomness, key)
    return ciphers, list_proof.prove(ciphers, place, randomness, key)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_lists_of_one_value_or_none_are_accepted(size: int) -> None:
    for place in (None, *range(size)):
        ciphers, proof = proved([int(k == place) for k in range(size)], place)
        assert len(proof) == secure_comparison.PROOF_BYTES
        list_proof.check(ciphers, proof, KEY.public)


@pytest.mark.parametrize(
    "numbers",
    [[1, 1, 0], [0, 1, 1], [1, 1, 1], [2, 0, 0], [-1, 0, 0], [1, 0, -1], [1, -1, 1], [0, 2, -1], [1, 0, 5]],
)
def test_any_other_list_is_refused_whatever_its_maker_claims(numbers: list[int]) -> None:
    for place in (None, 0, 1, 2):
        with pytest.raises(BadInput, match="deviates from the protocol"):
            list_proof.check(*proved(numbers, place), KEY.public)


def test_only_what_was_claimed_is_proved() -> None:
    for numbers, place in (([1, 0], 1), ([1, 0], None), ([0, 0], 0)):
        with pytest.raises(BadInput, match="deviates from the protocol"):
            list_proof.check(*proved(numbers, place), KEY.public)


def test_a_proof_holds_for_its_own_list_and_key_only() -> None:
    ciphers, proof = proved([0, 1, 0], 1)
    others = [
        (proved([0, 1, 0], 1)[0], proof, KEY.public),
        (ciphers[::-1], proof, KEY.public),
        (ciphers[:2], proof, KEY.public),
        (ciphers, proof, secure_comparison.make_key().public),
        (ciphers, bytes(128), KEY.public),
        (ciphers, b"\xff" * 128, KEY.public),
        *((ciphers, proof[:k] + bytes([proof[k] ^ 1]) + proof[k + 1 :], KEY.public) for k in (0, 33, 70, 100)),
    ]
    for other in others:
        with pytest.raises(BadInput, match="deviates from the protocol"):
            list_proof.check(*other)


def test_two_proofs_of_the_same_list_have_nothing_in_common() -> None:
    randomness = [secure_comparison.random_scalar() for _ in range(3)]
    ciphers = secure_comparison.encrypt([0, 1, 0], randomness, KEY)
    both = [list_proof.prove(ciphers, 1, randomness, KEY) for _ in range(2)]
    assert not {both[0][k : k + 32] for k in range(0, 128, 32)} & {both[1][k : k + 32] for k in range(0, 128, 32)}


def test_a_list_with_a_point_of_another_order_is_refused() -> None:
    """It would tell by how an answer fails who picks it."""
    order_two = (2**255 - 20).to_bytes(32, "little")
    ciphers, proof = proved([0, 1, 0], 1)
    for half in (0, 32):
        mixed = secure_comparison.add(ciphers[2][half : half + 32], order_two)
        bad = ciphers[2][:half] + mixed + ciphers[2][half + 32 :]
        with pytest.raises(BadInput, match="not a point of the group"):
            list_proof.check([*ciphers[:2], bad], proof, KEY.public)


def test_another_key_opens_nothing() -> None:
    match = secure_comparison.compare([ZERO], 0, KEY.public)
    assert secure_comparison.is_zero(match, KEY)
    for _ in range(5):
        assert not secure_comparison.is_zero(match, secure_comparison.make_key())


def test_a_key_does_not_show_its_secret() -> None:
    assert str(KEY.secret) not in repr(KEY)
    assert 0 < KEY.secret < secure_comparison.GROUP_ORDER
    assert secure_comparison.make_key() != secure_comparison.make_key()
    assert KEY.public == secure_comparison.times_base(KEY.secret)


NOT_POINTS = [bytes(32), b"\xff" * 32, bytes([2]) + bytes(31)]  # of small order, not canonical, not on the curve


@pytest.mark.parametrize("bad", NOT_POINTS, ids=["small order", "not canonical", "not on the curve"])
def test_bytes_that_are_no_points_are_refused(bad: bytes) -> None:
    good = ZERO[:32]
    for cipher in (bad + good, good + bad):
        with pytest.raises(BadInput, match="contains a value that is not a point of the group"):
            secure_comparison.compare([cipher], 0, KEY.public)
        with pytest.raises(BadInput, match="contains a value that is not a point of the group"):
            secure_comparison.compare([ZERO, cipher], 0, KEY.public)
    with pytest.raises(BadInput, match="contains a value that is not a point of the group"):
        secure_comparison.compare([ZERO], 0, bad)
    with pytest.raises(BadInput, match="contains a value that is not a point of the group"):
        secure_comparison.is_zero(bad + good, KEY)


@pytest.mark.parametrize("size", [0, 32, 63, 65])
def test_ciphertexts_cut_short_are_refused(size: int) -> None:
    cut = (ZERO * 2)[:size]
    for use in (lambda: secure_comparison.compare([cut], 0, KEY.public), lambda: secure_comparison.is_zero(cut, KEY)):
        with pytest.raises(BadInput, match="wrong length"):
            use()
    with pytest.raises(BadInput, match="wrong length"):
        secure_comparison.compare([ZERO, cut], 0, KEY.public)


def test_without_the_library_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from veilmap.errors import MissingExtra

    secure_comparison._bindings.cache_clear()
    monkeypatch.setitem(sys.modules, "nacl.bindings", None)
    with pytest.raises(MissingExtra, match=r"veilmap\[match\]"):
        secure_comparison.make_key()
    monkeypatch.undo()
    assert secure_comparison.is_zero(ZERO, KEY)

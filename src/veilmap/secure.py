"""Whether two parties' records lie within thresholds of each other, and nothing else: a protocol on ciphertexts.

Exponential ElGamal on the prime-order group of edwards25519. The left party sends encryptions of the powers of its
numbers. For numbers y of its own the right party evaluates Σ_k ρ_k Π_t (x_k − y_k − t), t from −θ_k to θ_k, on these
ciphertexts, with secret random ρ: 0 exactly when all x_k lie within θ_k of y_k, and a random number otherwise. The left
party can tell a 0 from anything else and no more; the right party sees ciphertexts only. Both are taken to follow the
protocol. A value of ρ that makes a sum 0 by chance has probability 2^-252.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from veilmap.errors import BadInput, need

if TYPE_CHECKING:
    from types import ModuleType

ORDER = 2**252 + 27742317777372353535851937790883648493  # of the group
MOST_THRESHOLD = 1000  # a number's powers go up to twice this and one

Point: TypeAlias = bytes
Cipher: TypeAlias = tuple[Point, Point]  # r·G, m·G + r·A


@dataclass(frozen=True, slots=True)
class Key:
    """The left party's: the public half goes along with what it sends."""

    secret: int = field(repr=False)
    public: Point


def make_key() -> Key:
    secret = _random()
    return Key(secret, _times_base(secret))


def encrypt_record(record: Sequence[int], thresholds: Sequence[int], public: Point) -> list[list[Cipher]]:
    """What the left party sends of a record: for each number its powers from 1 to 2θ + 1, encrypted."""
    _must_fit(record, thresholds)
    return [
        [_encrypt(pow(x, power, ORDER), public) for power in range(1, 2 * limit + 2)]
        for x, limit in zip(_shifted(record, thresholds), thresholds, strict=True)
    ]


def compare(
    powers: Sequence[Sequence[Cipher]], record: Sequence[int], thresholds: Sequence[int], public: Point
) -> Cipher:
    """What the right party answers to one record of the left, for one of its own."""
    _must_fit(record, thresholds)
    constant, total = 0, None
    for ciphers, y, limit in zip(powers, _shifted(record, thresholds), thresholds, strict=True):
        blind = _random()
        lowest, *others = _polynomial([y + t for t in range(-limit, limit + 1)])
        constant += blind * lowest
        for coefficient, cipher in zip(others, ciphers, strict=True):
            part = _scaled(cipher, blind * coefficient % ORDER)
            total = part if total is None else _added(total, part)
    fresh = _encrypt(constant % ORDER, public)
    return fresh if total is None else _added(total, fresh)


def are_points(ciphers: Sequence[Cipher]) -> bool:
    """Whether what came from the other side are ciphertexts at all: both halves in the group."""
    valid = _bindings().crypto_core_ed25519_is_valid_point
    return all(len(half) == 32 and valid(half) for cipher in ciphers for half in cipher)


def is_match(answer: Cipher, key: Key) -> bool:
    """Whether an answer is an encryption of 0."""
    return _times(answer[0], key.secret) == answer[1]


def _polynomial(roots: Sequence[int]) -> list[int]:
    """The coefficients of Π (X − root), lowest first."""
    out = [1]
    for root in roots:
        out = [(low - root * high) % ORDER for low, high in zip([0, *out], [*out, 0], strict=True)]
    return out


def _shifted(record: Sequence[int], thresholds: Sequence[int]) -> list[int]:
    """Above their thresholds, so that no root, power or coefficient is 0: the group has no ciphertext of 0 times."""
    return [x + limit + 1 for x, limit in zip(record, thresholds, strict=True)]


def _must_fit(record: Sequence[int], thresholds: Sequence[int]) -> None:
    numbers = (*record, *thresholds)
    if len(record) != len(thresholds) or not all(type(x) is int and x >= 0 for x in numbers):
        raise BadInput("Records and thresholds for the secure step are whole numbers of 0 or more, one for each axis.")
    if max(thresholds, default=0) > MOST_THRESHOLD:
        raise BadInput(f"A threshold of the secure step is at most {MOST_THRESHOLD}: measure in larger units.")


def _encrypt(message: int, public: Point) -> Cipher:
    chance = _random()
    mask = _times(public, chance)
    return _times_base(chance), _bindings().crypto_core_ed25519_add(_times_base(message), mask) if message else mask


def _added(one: Cipher, other: Cipher) -> Cipher:
    add = _bindings().crypto_core_ed25519_add
    return add(one[0], other[0]), add(one[1], other[1])


def _scaled(cipher: Cipher, factor: int) -> Cipher:
    return _times(cipher[0], factor), _times(cipher[1], factor)


def _times(point: Point, factor: int) -> Point:
    return bytes(_bindings().crypto_scalarmult_ed25519_noclamp(factor.to_bytes(32, "little"), point))


def _times_base(factor: int) -> Point:
    return bytes(_bindings().crypto_scalarmult_ed25519_base_noclamp(factor.to_bytes(32, "little")))


def _random() -> int:
    return 1 + secrets.randbelow(ORDER - 1)


def _bindings() -> ModuleType:
    return need("nacl.bindings", "match", "Comparing records securely")

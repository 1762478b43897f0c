"""Whether two parties' records lie within thresholds of each other, and nothing else: a protocol on ciphertexts.

Exponential ElGamal on the prime-order group of edwards25519, from libsodium. Of each of its numbers x the left party
sends an encrypted list: for every value y that the other might have, 0 if y is within the threshold of x, else 1. For
numbers of its own the right party picks one ciphertext from each list, adds them up, multiplies the sum by a secret
random factor and blinds the result anew. It is an encryption of 0 exactly when all numbers lie within their thresholds,
and of a uniformly random number otherwise, whatever the records are. The left party can tell 0 from anything else and
no more; the right party sees ciphertexts only. Both are taken to follow the protocol.

A comparison takes the right party four multiplications of points and the left one, however many numbers there are and
however wide the thresholds.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from veilmap.domain import MOST_AXES
from veilmap.errors import BadInput, need

if TYPE_CHECKING:
    from types import ModuleType

ORDER = 2**252 + 27742317777372353535851937790883648493  # of the group
SIZE = 64  # bytes of a ciphertext

Point: TypeAlias = bytes
Cipher: TypeAlias = bytes  # r·G and then m·G + r·A


@dataclass(frozen=True, slots=True)
class Key:
    """The left party's: the public half A goes along with what it sends."""

    secret: int = field(repr=False)
    public: Point


def make_key() -> Key:
    secret = _random()
    return Key(secret, _times_base(secret))


def veil(bits: Iterable[int], key: Key) -> list[Cipher]:
    """Encryptions of 0 and 1."""
    chances = ((bit, _random()) for bit in bits)
    return [_times_base(r) + _times_base((bit + r * key.secret) % ORDER) for bit, r in chances]


def compare(picked: Sequence[Cipher], misses: int, public: Point) -> Cipher:
    """The right party's answer: of 0 if all it picked is, and there are no further misses; else of a random number.

    Dummies and values outside the lists are ``misses``, and take the same steps.
    """
    first, second = _halves(picked[0])
    for cipher in picked[1:]:
        one, other = _halves(cipher)
        first, second = _add(first, one), _add(second, other)
    second = _add(second, _multiples()[misses])
    factor, fresh = _random(), _random()
    return _add(_times(first, factor), _times_base(fresh)) + _add(_times(second, factor), _times(public, fresh))


def is_zero(cipher: Cipher, key: Key) -> bool:
    first, second = _halves(cipher)
    return _times(first, key.secret) == second


def _halves(cipher: Cipher) -> tuple[Point, Point]:
    if len(cipher) != SIZE:
        raise BadInput("What the other party sent is no ciphertext: it is cut short.")
    return cipher[:32], cipher[32:]


def _add(one: Point, other: Point) -> Point:
    try:
        return bytes(_bindings().crypto_core_ed25519_add(one, other))
    except Exception:
        raise BadInput(NOT_A_POINT) from None


def _times(point: Point, factor: int) -> Point:
    try:
        return bytes(_bindings().crypto_scalarmult_ed25519_noclamp(factor.to_bytes(32, "little"), point))
    except Exception:
        raise BadInput(NOT_A_POINT) from None


def _times_base(factor: int) -> Point:
    return bytes(_bindings().crypto_scalarmult_ed25519_base_noclamp(factor.to_bytes(32, "little")))


@cache
def _multiples() -> list[Point]:
    """0·G, 1·G and so on: adding what was not missed takes as long as what was."""
    return [bytes([1]) + bytes(31), *(_times_base(k) for k in range(1, MOST_AXES + 1))]


def _random() -> int:
    return 1 + secrets.randbelow(ORDER - 1)


@cache
def _bindings() -> ModuleType:
    return need("nacl.bindings", "match", "Comparing records securely")


NOT_A_POINT = "What the other party sent is no ciphertext: some of it is not a point of the group."

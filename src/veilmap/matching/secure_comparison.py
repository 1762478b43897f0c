"""Whether two parties' records lie within thresholds of each other, and nothing else: a protocol on ciphertexts.

Exponential ElGamal on the prime-order group of edwards25519, from libsodium. Of each of its numbers x the left party
sends an encrypted list: 1 at x and 0 at every other value of its box, with a proof that it is such a list
(``list_proof``). The right party adds up the ciphertexts within the threshold of each value, which gives encryptions of
0 for values near x and of 1 for others. For numbers of its own it picks one of these per axis, adds them up, blinds the
sum and multiplies it by a secret random factor. It is an encryption of 0 exactly when all numbers lie within their
thresholds, and of a uniformly random number otherwise, whatever the records are. The left party can tell 0 from
anything else and no more; the right party sees ciphertexts only.

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
PROOF_SIZE = 128  # bytes of the proof of a list: a challenge and three responses
IDENTITY = bytes([1]) + bytes(31)  # 0·G

Point: TypeAlias = bytes
Cipher: TypeAlias = bytes  # r·G and then m·G + r·A


@dataclass(frozen=True, slots=True)
class Key:
    """The left party's: the public half A goes along with what it sends."""

    secret: int = field(repr=False)
    public: Point


def make_key() -> Key:
    secret = random_scalar()
    return Key(secret, times_base(secret))


def encrypt(bits: Iterable[int], randomness: Iterable[int], key: Key) -> list[Cipher]:
    """Return an encryption of each bit, with the random number given for it."""
    return [times_base(r) + times_base((bit + r * key.secret) % ORDER) for bit, r in zip(bits, randomness, strict=True)]


def far_from(ciphers: Sequence[Cipher], low: int, values: Sequence[int], apart: int) -> list[Cipher]:
    """For each value, add up the list within the threshold: 0 if its one entry is there, else 1.

    The list begins at ``low``. Every value takes the same steps: how long it takes says nothing of who picks which.
    """
    sums = [(IDENTITY, IDENTITY)]
    for first, second in map(_halves, ciphers):
        sums.append((add(sums[-1][0], first), add(sums[-1][1], second)))
    out = []
    for value in values:
        below = sums[max(value - apart - low, 0)]
        upto = sums[min(value + apart - low + 1, len(ciphers))]
        out.append(subtract(below[0], upto[0]) + add(subtract(below[1], upto[1]), _multiples()[1]))
    return out


def compare(picked: Sequence[Cipher], misses: int, public: Point) -> Cipher:
    """The right party's answer: of 0 if all it picked is, and there are no further misses; else of a random number.

    Dummies and values outside the lists are ``misses``, and take the same steps.
    """
    first, second = _halves(picked[0])
    for cipher in picked[1:]:
        one, other = _halves(cipher)
        first, second = add(first, one), add(second, other)
    second = add(second, _multiples()[misses])
    factor, fresh = random_scalar(), random_scalar()
    # Blinded first: a sum that is 0·G cannot be multiplied, and must not fail for some picks only.
    first, second = add(first, times_base(fresh)), add(second, times(public, fresh))
    return times(first, factor) + times(second, factor)


def is_zero(cipher: Cipher, key: Key) -> bool:
    first, second = _halves(cipher)
    return times(first, key.secret) == second


def _halves(cipher: Cipher) -> tuple[Point, Point]:
    if len(cipher) != SIZE:
        raise BadInput("What the other party sent is no ciphertext: it is cut short.")
    return cipher[:32], cipher[32:]


def add(one: Point, other: Point) -> Point:
    try:
        return bytes(_bindings().crypto_core_ed25519_add(one, other))
    except Exception:
        raise BadInput(NOT_A_POINT) from None


def subtract(one: Point, other: Point) -> Point:
    try:
        return bytes(_bindings().crypto_core_ed25519_sub(one, other))
    except Exception:
        raise BadInput(NOT_A_POINT) from None


def times(point: Point, factor: int) -> Point:
    try:
        return bytes(_bindings().crypto_scalarmult_ed25519_noclamp(factor.to_bytes(32, "little"), point))
    except Exception:
        raise BadInput(NOT_A_POINT) from None


def times_base(factor: int) -> Point:
    return bytes(_bindings().crypto_scalarmult_ed25519_base_noclamp(factor.to_bytes(32, "little")))


@cache
def _multiples() -> list[Point]:
    """0·G, 1·G and so on: adding what was not missed takes as long as what was."""
    return [IDENTITY, *(times_base(k) for k in range(1, MOST_AXES + 1))]


def random_scalar() -> int:
    return 1 + secrets.randbelow(ORDER - 1)


@cache
def _bindings() -> ModuleType:
    return need("nacl.bindings", "match", "Comparing records securely")


NOT_A_POINT = "What the other party sent is no ciphertext: some of it is not a point of the group."

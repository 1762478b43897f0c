"""A protocol on ciphertexts that reveals whether two records lie within the thresholds, and nothing else.

It uses exponential ElGamal on the prime-order group of edwards25519, from libsodium. For each of its numbers x the left
party sends an encrypted list: 1 at x and 0 at every other value of its box, with a proof that it is such a list
(``list_proof``). For each value, the right party subtracts the sum of the ciphertexts within the threshold from 1,
which gives an encryption of 0 if x is within the threshold of the value and of 1 otherwise. It picks one of these
ciphertexts per axis, at its own numbers, adds them, blinds the sum and multiplies it by a secret random factor. The
result is an encryption of 0 exactly if all numbers lie within their thresholds, and otherwise an encryption of a
uniformly random number that does not depend on the records. The left party can only distinguish these two cases; the
right party sees only ciphertexts.

A comparison takes four point multiplications for the right party and one for the left party, for any number of axes and
any thresholds.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from veilmap.domain import MAX_AXES
from veilmap.errors import BadInput, need

if TYPE_CHECKING:
    from types import ModuleType

GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493
CIPHERTEXT_BYTES = 64
PROOF_BYTES = 128  # the proof of a list: a challenge and three responses
IDENTITY_POINT = bytes([1]) + bytes(31)  # 0·G

Point: TypeAlias = bytes
Cipher: TypeAlias = bytes  # r·G followed by m·G + r·A


@dataclass(frozen=True, slots=True)
class Key:
    """The left party's key pair. The public key A is sent to the right party."""

    secret: int = field(repr=False)
    public: Point


def make_key() -> Key:
    secret = random_scalar()
    return Key(secret, times_base(secret))


def encrypt(bits: Iterable[int], randomness: Iterable[int], key: Key) -> list[Cipher]:
    """Return an encryption of each bit with the given random numbers."""
    return [
        times_base(r) + times_base((bit + r * key.secret) % GROUP_ORDER)
        for bit, r in zip(bits, randomness, strict=True)
    ]


def far_from(ciphers: Sequence[Cipher], low: int, values: Sequence[int], apart: int) -> list[Cipher]:
    """Return, for each value, an encryption of 0 if the list's single 1 is within the threshold, else of 1.

    The list begins at value ``low``. Every value takes the same number of operations, so that the running time does
    not reveal which values are picked later.
    """
    sums = [(IDENTITY_POINT, IDENTITY_POINT)]
    for first, second in map(_halves, ciphers):
        sums.append((add(sums[-1][0], first), add(sums[-1][1], second)))
    out = []
    for value in values:
        below = sums[max(value - apart - low, 0)]
        upto = sums[min(value + apart - low + 1, len(ciphers))]
        out.append(subtract(below[0], upto[0]) + add(subtract(below[1], upto[1]), _multiples()[1]))
    return out


def compare(picked: Sequence[Cipher], misses: int, public: Point) -> Cipher:
    """Return the right party's answer: an encryption of 0 if all picked ciphertexts are and ``misses`` is 0.

    Otherwise it is an encryption of a random number. ``misses`` counts the values that are outside the lists; for a
    dummy, all of them. They take the same number of operations.
    """
    first, second = _halves(picked[0])
    for cipher in picked[1:]:
        one, other = _halves(cipher)
        first, second = add(first, one), add(second, other)
    second = add(second, _multiples()[misses])
    factor, fresh = random_scalar(), random_scalar()
    # Blind before multiplying: libsodium refuses to multiply 0·G, so an unblinded sum would fail for some picks only.
    first, second = add(first, times_base(fresh)), add(second, times(public, fresh))
    return times(first, factor) + times(second, factor)


def is_zero(cipher: Cipher, key: Key) -> bool:
    first, second = _halves(cipher)
    return times(first, key.secret) == second


def _halves(cipher: Cipher) -> tuple[Point, Point]:
    if len(cipher) != CIPHERTEXT_BYTES:
        raise BadInput("The other party sent an invalid ciphertext: it has the wrong length.")
    return cipher[:32], cipher[32:]


def add(one: Point, other: Point) -> Point:
    try:
        return bytes(_bindings().crypto_core_ed25519_add(one, other))
    except Exception:
        raise BadInput(INVALID_POINT) from None


def subtract(one: Point, other: Point) -> Point:
    try:
        return bytes(_bindings().crypto_core_ed25519_sub(one, other))
    except Exception:
        raise BadInput(INVALID_POINT) from None


def times(point: Point, factor: int) -> Point:
    try:
        return bytes(_bindings().crypto_scalarmult_ed25519_noclamp(factor.to_bytes(32, "little"), point))
    except Exception:
        raise BadInput(INVALID_POINT) from None


def times_base(factor: int) -> Point:
    return bytes(_bindings().crypto_scalarmult_ed25519_base_noclamp(factor.to_bytes(32, "little")))


@cache
def _multiples() -> list[Point]:
    """Return 0·G, 1·G and so on, so that adding 0 misses takes as long as adding any other number."""
    return [IDENTITY_POINT, *(times_base(k) for k in range(1, MAX_AXES + 1))]


def random_scalar() -> int:
    return 1 + secrets.randbelow(GROUP_ORDER - 1)


@cache
def _bindings() -> ModuleType:
    return need("nacl.bindings", "match", "Comparing records securely")


INVALID_POINT = "The other party sent an invalid ciphertext: it contains a value that is not a point of the group."

"""A proof that an encrypted list contains at most one 1 and otherwise only 0, without revealing where the 1 is.

Without the proof, a left party could encrypt any list, and each of its slots would answer a question of its choice
about every record it is compared with ("is bit 3 of the age set?"). With the proof, a slot stands for one point, or for
a dummy.

Let e be the numbers in the list. With a random t, both parties compute encryptions of z = sum of t^k e_k and of
z' = sum of t^2k e_k: as polynomials in t, z^2 = z' holds only if e has at most one entry that is not 0, and that is 1
(Boneh, Gilboa and Ishai, CCS 2016, check shared vectors in this way). With n entries, any other list passes with
probability 2n / 2^252. The left party then proves z^2 = z' by a Schnorr proof of the linear relations (Maurer 2009)

    A = a G,   C = z G + a R,   0 = z A - w G,   C' = a R' + z C - w R

where (R, C) and (R', C') encrypt z and z', a is the secret key, A the public key, and w = a z. The random t and the
challenge are hashes of all preceding values (Fiat and Shamir).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from veilmap.errors import BadInput
from veilmap.matching.secure_comparison import (
    CIPHERTEXT_BYTES,
    GROUP_ORDER,
    PROOF_BYTES,
    Cipher,
    Key,
    Point,
    add,
    random_scalar,
    subtract,
    times,
    times_base,
)

INVALID_LIST = (
    "The other party deviates from the protocol: one of its encrypted lists does not stand for a single value. "
    "No answer to that list was sent."
)


def prove(ciphers: Sequence[Cipher], place: int | None, randomness: Sequence[int], key: Key) -> bytes:
    """Return the proof for a list encrypted with ``randomness``; its single 1 is at ``place``, or it has no 1."""
    powers = _powers(ciphers, key.public)
    z = powers[place] if place is not None else 0
    r = sum(t * x for t, x in zip(powers, randomness, strict=True)) % GROUP_ORDER  # randomness of the encrypted z
    s = sum(t * t * x for t, x in zip(powers, randomness, strict=True)) % GROUP_ORDER  # randomness of the encrypted z'
    a, w = key.secret, key.secret * z % GROUP_ORDER
    ka, kz, kw = random_scalar(), random_scalar(), random_scalar()
    logarithms = (ka, kz + ka * r, kz * a - kw, ka * s + kz * (z + r * a) - kw * r)
    challenge = _challenge(ciphers, key.public, [times_base(n % GROUP_ORDER) for n in logarithms])
    numbers = (challenge, ka + challenge * a, kz + challenge * z, kw + challenge * w)
    return b"".join((n % GROUP_ORDER).to_bytes(32, "little") for n in numbers)


def check(ciphers: Sequence[Cipher], proof: bytes, public: Point) -> None:
    """Raise ``BadInput`` if the proof of a list fails. A valid proof implies that its points are in the group."""
    powers = _powers(ciphers, public)
    r, c = (_combine([cipher[half] for cipher in ciphers], powers) for half in (FIRST_HALF, SECOND_HALF))
    squares = [t * t % GROUP_ORDER for t in powers]
    r2, c2 = (_combine([cipher[half] for cipher in ciphers], squares) for half in (FIRST_HALF, SECOND_HALF))
    challenge, a, z, w = (int.from_bytes(proof[k : k + 32], "little") for k in range(0, PROOF_BYTES, 32))
    if len(proof) != PROOF_BYTES or not all(0 < n < GROUP_ORDER for n in (challenge, a, z, w)):
        raise BadInput(INVALID_LIST)
    commitments = [
        subtract(times_base(a), times(public, challenge)),
        subtract(add(times_base(z), times(r, a)), times(c, challenge)),
        subtract(times(public, z), times_base(w)),
        subtract(add(times(r2, a), times(c, z)), add(times(r, w), times(c2, challenge))),
    ]
    if _challenge(ciphers, public, commitments) != challenge:
        raise BadInput(INVALID_LIST)


FIRST_HALF, SECOND_HALF = slice(0, CIPHERTEXT_BYTES // 2), slice(CIPHERTEXT_BYTES // 2, CIPHERTEXT_BYTES)


def _combine(points: Sequence[Point], factors: Sequence[int]) -> Point:
    total, *rest = (times(point, factor) for point, factor in zip(points, factors, strict=True))
    for point in rest:
        total = add(total, point)
    return total


def _powers(ciphers: Sequence[Cipher], public: Point) -> list[int]:
    """Return the powers t, t^2, t^3 and so on, one per ciphertext."""
    t = _hash(b"veilmap-match/2 sketch", public, *ciphers)
    powers = [t]
    for _ in ciphers[1:]:
        powers.append(powers[-1] * t % GROUP_ORDER)
    return powers


def _challenge(ciphers: Sequence[Cipher], public: Point, commitments: Sequence[Point]) -> int:
    return _hash(b"veilmap-match/2 challenge", public, *ciphers, *commitments)


def _hash(label: bytes, *parts: bytes) -> int:
    """Return a hash below the group order. All parts have fixed sizes, so different inputs give different bytes."""
    return int.from_bytes(hashlib.sha512(label + b"\0" + b"".join(parts)).digest(), "little") % GROUP_ORDER

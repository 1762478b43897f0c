"""A proof that an encrypted list holds a single 1 and otherwise 0, or only 0, without telling where.

Without it a left party could encrypt any list, and each of its slots would answer a question of its choice about every
record it is compared with ("is bit 3 of the age set?"). With it, a slot stands for one point or for nobody.

Let e be the numbers in the list. With a random t, both parties compute encryptions of z = sum of t^k e_k and of
z' = sum of t^2k e_k: as polynomials in t, z^2 = z' holds only if e has at most one entry that is not 0, and that is 1
(Boneh, Gilboa and Ishai, CCS 2016, check shared vectors in this way). With n entries, any other list passes with
probability 2n / 2^252. The left party then proves z^2 = z' by a Schnorr proof of the linear relations (Maurer 2009)

    A = a G,   C = z G + a R,   0 = z A - w G,   C' = a R' + z C - w R

where (R, C) and (R', C') encrypt z and z', a is the secret key, A the public one, and w = a z. The random t and the
challenge are hashes of all that came before (Fiat and Shamir).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from veilmap.errors import BadInput
from veilmap.matching.secure_comparison import (
    ORDER,
    PROOF_SIZE,
    SIZE,
    Cipher,
    Key,
    Point,
    add,
    random_scalar,
    subtract,
    times,
    times_base,
)

DEVIATES = (
    "The other party deviates from the protocol: a list of its values holds something else than one value. "
    "No answer to it was sent."
)


def prove(ciphers: Sequence[Cipher], place: int | None, randomness: Sequence[int], key: Key) -> bytes:
    """Prove the list, whose single 1 is at ``place`` or nowhere, encrypted with ``randomness``."""
    powers = _powers(ciphers, key.public)
    z = powers[place] if place is not None else 0
    r = sum(t * x for t, x in zip(powers, randomness, strict=True)) % ORDER  # of the encryption of z
    s = sum(t * t * x for t, x in zip(powers, randomness, strict=True)) % ORDER  # and of its square
    a, w = key.secret, key.secret * z % ORDER
    ka, kz, kw = random_scalar(), random_scalar(), random_scalar()
    logarithms = (ka, kz + ka * r, kz * a - kw, ka * s + kz * (z + r * a) - kw * r)
    challenge = _challenge(ciphers, key.public, [times_base(n % ORDER) for n in logarithms])
    numbers = (challenge, ka + challenge * a, kz + challenge * z, kw + challenge * w)
    return b"".join((n % ORDER).to_bytes(32, "little") for n in numbers)


def check(ciphers: Sequence[Cipher], proof: bytes, public: Point) -> None:
    """Refuse a list that is not proved. Afterwards each of its points is known to be of the group."""
    powers = _powers(ciphers, public)
    r, c = (_combine([cipher[half] for cipher in ciphers], powers) for half in (FIRST, SECOND))
    squares = [t * t % ORDER for t in powers]
    r2, c2 = (_combine([cipher[half] for cipher in ciphers], squares) for half in (FIRST, SECOND))
    challenge, a, z, w = (int.from_bytes(proof[k : k + 32], "little") for k in range(0, PROOF_SIZE, 32))
    if len(proof) != PROOF_SIZE or not all(0 < n < ORDER for n in (challenge, a, z, w)):
        raise BadInput(DEVIATES)
    commitments = [
        subtract(times_base(a), times(public, challenge)),
        subtract(add(times_base(z), times(r, a)), times(c, challenge)),
        subtract(times(public, z), times_base(w)),
        subtract(add(times(r2, a), times(c, z)), add(times(r, w), times(c2, challenge))),
    ]
    if _challenge(ciphers, public, commitments) != challenge:
        raise BadInput(DEVIATES)


FIRST, SECOND = slice(0, SIZE // 2), slice(SIZE // 2, SIZE)


def _combine(points: Sequence[Point], factors: Sequence[int]) -> Point:
    total, *rest = (times(point, factor) for point, factor in zip(points, factors, strict=True))
    for point in rest:
        total = add(total, point)
    return total


def _powers(ciphers: Sequence[Cipher], public: Point) -> list[int]:
    """Return t, t^2 and so on, one per ciphertext."""
    t = _hash(b"veilmap-match/2 sketch", public, *ciphers)
    powers = [t]
    for _ in ciphers[1:]:
        powers.append(powers[-1] * t % ORDER)
    return powers


def _challenge(ciphers: Sequence[Cipher], public: Point, commitments: Sequence[Point]) -> int:
    return _hash(b"veilmap-match/2 challenge", public, *ciphers, *commitments)


def _hash(label: bytes, *parts: bytes) -> int:
    """Return a number below the order of the group. Parts have fixed sizes: no two inputs are the same bytes."""
    return int.from_bytes(hashlib.sha512(label + b"\0" + b"".join(parts)).digest(), "little") % ORDER

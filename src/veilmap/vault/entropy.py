"""The source of all random bits. Proof: proofs/noise.md."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray


class Keys(Protocol):
    """A source of fresh 256-bit keys."""

    @property
    def private(self) -> bool: ...

    def fresh(self) -> bytes: ...


class SystemKeys:
    """Keys from the operating system. They have no state that a fork, a pickle or a thread could copy."""

    private = True

    def fresh(self) -> bytes:
        return os.urandom(32)


class FixedKeys:
    """Keys derived from a seed. Anyone who knows the seed can compute them, so noise drawn from them is not private."""

    private = False

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._drawn = 0

    def fresh(self) -> bytes:
        self._drawn += 1
        return hashlib.sha256(f"{self._seed}/{self._drawn}".encode()).digest()


_fixed: ContextVar[FixedKeys | None] = ContextVar("fixed_keys", default=None)


def current_keys() -> Keys:
    """Return the operating system's keys, or fixed ones inside :func:`fixed_entropy`."""
    return _fixed.get() or SystemKeys()


@contextmanager
def fixed_entropy(seed: int) -> Iterator[None]:
    """Draw the same noise in every run, for tests and studies. Releases made inside are marked *not private*."""
    token = _fixed.set(FixedKeys(seed))
    try:
        yield
    finally:
        _fixed.reset(token)


class RandomBits:
    """The ChaCha20 keystream of one fresh key."""

    def __init__(self, key: bytes) -> None:
        self._stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    def words(self, shape: int | tuple[int, ...], kind: str) -> NDArray[Any]:
        """Return uniform random integers of a type like ``<u2`` or ``<i8``."""
        size = math.prod(shape if isinstance(shape, tuple) else (shape,)) * np.dtype(kind).itemsize
        out = self._stream.update(bytes(size))
        return np.frombuffer(out, dtype=kind).reshape(shape)

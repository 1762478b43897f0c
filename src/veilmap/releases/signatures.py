"""Detached Ed25519 signatures of release files, stored beside them."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from veilmap.errors import BadInput
from veilmap.files.atomic_writes import write_atomically
from veilmap.releases.release import load
from veilmap.releases.release_file import bytes_of

SIGNATURE_KIND = "veilmap release signature 1"
SIGNED_PREFIX = SIGNATURE_KIND.encode() + b"\0"
"""Precedes the signed bytes, so that a signature made for another purpose is not valid for a release."""
MAX_KEY_FILE_BYTES = 4096  # also of a signature file; more than either needs
FIELD_PRIME = 2**255 - 19
_ORDER_8_Y = 2707385501144840649318225287225658788936804267575313519463743609750303402022  # y of a point of order 8
SMALL_ORDER_YS = frozenset({0, 1, FIELD_PRIME - 1, _ORDER_8_Y, FIELD_PRIME - _ORDER_8_Y})
"""The y of all eight points of Ed25519 whose order divides 8. Anyone can sign for such a key without a private key."""

Place = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of verifying a signature. It is true in an ``if`` only if the signature is valid."""

    verified: bool
    statement: str

    def __bool__(self) -> bool:
        return self.verified


def make_key(path: Place) -> Path:
    """Create a key pair: a private key file that only its owner can read, and a public key file beside it.

    Returns
    -------
    Path
        The public key file: the path of the private key with ``.pub`` appended.

    Examples
    --------
    >>> vm.make_key("office.key").name
    'office.key.pub'
    """
    public = public_place(path)
    for place in (Path(path), public):
        if place.exists():
            raise BadInput(f"{place} exists already, and keys are never overwritten. Choose another name.")
    key = Ed25519PrivateKey.generate()
    write_atomically(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), False, mode=0o600)
    try:
        write_atomically(public, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), False)
    except BaseException:
        os.unlink(path)
        raise
    return public


def sign(path: Place, key: Place, overwrite: bool = False) -> Path:
    """Sign a release file, after checking that it is valid.

    Parameters
    ----------
    path
        The release file.
    key
        The private key file.
    overwrite
        Replace an existing signature.

    Returns
    -------
    Path
        The signature file: the path of the release with ``.sig`` appended.

    Examples
    --------
    >>> public_key = vm.make_key("office.key")
    >>> vm.release(points, domain, epsilon=1, method="quad-opt", height=3).save("homes.parquet")
    >>> vm.sign("homes.parquet", "office.key").name
    'homes.parquet.sig'
    """
    private, place = read_private(key), signature_place(path)
    load(path)
    parts = (private.public_key().public_bytes_raw(), private.sign(SIGNED_PREFIX + bytes_of(path)))
    lines = [SIGNATURE_KIND, *(base64.b64encode(part).decode() for part in parts)]
    write_atomically(place, "".join(f"{line}\n" for line in lines).encode(), overwrite)
    return place


def verify(path: Place, key: Place) -> Verification:
    """Check that a release file was signed with a key and not changed since.

    Parameters
    ----------
    path
        The release file. Its signature is beside it.
    key
        The public key file. Get it from a source that you trust, not from where the release came from.

    Examples
    --------
    >>> public_key = vm.make_key("office.key")
    >>> vm.release(points, domain, epsilon=1, method="quad-opt", height=3).save("homes.parquet")
    >>> signature = vm.sign("homes.parquet", "office.key")
    >>> vm.verify("homes.parquet", public_key).verified
    True
    """
    public = _read_public(key)
    try:
        data = bytes_of(path)
    except (OSError, ValueError) as error:
        raise BadInput(f"Cannot read {path}: {getattr(error, 'strerror', None) or 'not a valid file name'}.") from None
    if not signature_place(path).exists():
        return Verification(False, f"no signature, since there is no {signature_place(path)}")
    try:
        signer, signature = _read_signature(signature_place(path))
    except (OSError, ValueError):
        return Verification(False, f"NOT verified: {signature_place(path)} is cut short, altered or of another kind")
    try:
        public.verify(signature, SIGNED_PREFIX + data)
    except InvalidSignature:
        if signer != public.public_bytes_raw():
            return Verification(False, f"NOT verified: it was signed with another key than {key}")
        return Verification(False, "NOT verified: the file was altered, or the signature is that of another file")
    return Verification(True, f"verified: this file was signed with the key of {key}")


def signature_place(path: Place) -> Path:
    return Path(f"{os.fspath(path)}.sig")


def public_place(path: Place) -> Path:
    return Path(f"{os.fspath(path)}.pub")


def read_private(path: Place) -> Ed25519PrivateKey:
    """Read a private key."""
    try:
        key = load_pem_private_key(_read(path), password=None)
        if isinstance(key, Ed25519PrivateKey):
            return key
    except (ValueError, TypeError, UnsupportedAlgorithm):
        pass
    raise BadInput(f"{path} is not a private key made by 'veilmap key'. Give such a key to sign.")


def _read_public(path: Place) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(_read(path))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if isinstance(key, Ed25519PublicKey):
        if _is_weak(key.public_bytes_raw()):
            raise BadInput(
                f"{path} is a public key of small order or not in canonical form: signatures for it can be made "
                f"without a private key. Ask its owner for the .pub file made by 'veilmap key'."
            )
        return key
    raise BadInput(f"{path} is not a public key made by 'veilmap key'. Give its .pub file to verify.")


def _is_weak(key: bytes) -> bool:
    """Return whether a public key has small order or is not in canonical form (RFC 8032: y is below the prime)."""
    y = int.from_bytes(key, "little") % 2**255  # the last bit is the sign of x
    return y >= FIELD_PRIME or y in SMALL_ORDER_YS


def _read(path: Place) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_KEY_FILE_BYTES)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a valid file name"
        raise BadInput(f"Cannot read the key {path}: {why}.") from None


def _read_signature(place: Path) -> tuple[bytes, bytes]:
    """Read the stated public key and the signature. Raise ``ValueError`` if the file is not a signature."""
    if not place.is_file():  # reading a pipe might never end
        raise ValueError
    with open(place, encoding="ascii") as file:
        kind, *lines = file.read(MAX_KEY_FILE_BYTES).splitlines()
    signer, signature = (base64.b64decode(line, validate=True) for line in lines)
    if (kind, len(signer), len(signature)) != (SIGNATURE_KIND, 32, 64):
        raise ValueError
    return signer, signature

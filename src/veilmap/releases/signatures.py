"""Who made a release: a detached Ed25519 signature of its file, in a file of its own beside it."""

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

KIND = "veilmap release signature 1"
PREFIX = KIND.encode() + b"\0"
"""Before the bytes that are signed: a signature made for something else is none of a release."""
LONGEST = 4096  # bytes of a key or a signature, and more than they need
FIELD = 2**255 - 19
_EIGHTH = 2707385501144840649318225287225658788936804267575313519463743609750303402022  # y of a point of order 8
SMALL_ORDER = frozenset({0, 1, FIELD - 1, _EIGHTH, FIELD - _EIGHTH})
"""The y of all eight points of Ed25519 whose order divides 8: anyone can sign for such a key, without a private one."""

Place = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether a file is as the owner of a key signed it. True in an ``if`` only when it is."""

    verified: bool
    statement: str

    def __bool__(self) -> bool:
        return self.verified


def make_key(path: Place) -> Path:
    """Make a key pair: the private key, which only its owner can read, and beside it the public one, for everyone.

    Returns
    -------
    Path
        Of the public key: that of the private one, and ``.pub``.
    """
    public = public_place(path)
    for place in (Path(path), public):
        if place.exists():
            raise BadInput(f"{place} exists already, and a key is never overwritten: choose another name.")
    key = Ed25519PrivateKey.generate()
    write_atomically(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), False, mode=0o600)
    try:
        write_atomically(public, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), False)
    except BaseException:
        os.unlink(path)
        raise
    return public


def sign(path: Place, key: Place, overwrite: bool = False) -> Path:
    """Sign a release file, once it is known to be sound.

    Parameters
    ----------
    path
        The release.
    key
        The file of the private key.
    overwrite
        Replace a signature that is there.

    Returns
    -------
    Path
        Of the signature: that of the release, and ``.sig``.
    """
    private, place = read_private(key), signature_place(path)
    load(path)
    parts = (private.public_key().public_bytes_raw(), private.sign(PREFIX + bytes_of(path)))
    lines = [KIND, *(base64.b64encode(part).decode() for part in parts)]
    write_atomically(place, "".join(f"{line}\n" for line in lines).encode(), overwrite)
    return place


def verify(path: Place, key: Place) -> Verification:
    """Whether a release file is as the owner of a key signed it.

    Parameters
    ----------
    path
        The release; its signature is beside it.
    key
        The file of the public key, from someone you trust: not from where the release came.
    """
    public = _read_public(key)
    try:
        data = bytes_of(path)
    except (OSError, ValueError) as error:
        raise BadInput(f"Cannot read {path}: {getattr(error, 'strerror', None) or 'not a name for a file'}.") from None
    if not signature_place(path).exists():
        return Verification(False, f"no signature, since there is no {signature_place(path)}")
    try:
        signer, signature = _read_signature(signature_place(path))
    except (OSError, ValueError):
        return Verification(False, f"NOT verified: {signature_place(path)} is cut short, altered or of another kind")
    try:
        public.verify(signature, PREFIX + data)
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
    """The key of one who signs."""
    try:
        key = load_pem_private_key(_read(path), password=None)
        if isinstance(key, Ed25519PrivateKey):
            return key
    except (ValueError, TypeError, UnsupportedAlgorithm):
        pass
    raise BadInput(f"{path} is not the private key that 'veilmap key' makes: to sign, give that.")


def _read_public(path: Place) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(_read(path))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if isinstance(key, Ed25519PublicKey):
        if _belongs_to_anyone(key.public_bytes_raw()):
            raise BadInput(
                f"{path} is a public key of small order or not in its usual form: signatures for it can be made "
                f"without a private key. Ask its owner for the .pub file that 'veilmap key' made."
            )
        return key
    raise BadInput(f"{path} is not the public key that 'veilmap key' makes: to verify, give its .pub file.")


def _belongs_to_anyone(key: bytes) -> bool:
    """Whether a public key is of small order, or written as no honest one is (RFC 8032: y is below the field)."""
    y = int.from_bytes(key, "little") % 2**255  # the last bit is the sign of x
    return y >= FIELD or y in SMALL_ORDER


def _read(path: Place) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(LONGEST)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a name for a file"
        raise BadInput(f"Cannot read the key {path}: {why}.") from None


def _read_signature(place: Path) -> tuple[bytes, bytes]:
    """Who says that they signed, and the signature; ValueError if it is none."""
    if not place.is_file():  # a pipe would never end
        raise ValueError
    with open(place, encoding="ascii") as file:
        kind, *lines = file.read(LONGEST).splitlines()
    signer, signature = (base64.b64decode(line, validate=True) for line in lines)
    if (kind, len(signer), len(signature)) != (KIND, 32, 64):
        raise ValueError
    return signer, signature

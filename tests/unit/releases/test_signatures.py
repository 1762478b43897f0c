"""Signed releases: whatever is not exactly what the owner of the key signed is not verified, and says so."""

from __future__ import annotations

import base64
import json
import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from hypothesis import given
from hypothesis import strategies as st

import veilmap as vm
from veilmap.files import atomic_writes
from veilmap.releases.signatures import SIGNED_PREFIX

POINTS = np.random.default_rng(8).random((200, 1))
LINE = vm.Domain({"x": (0, 1)})


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Two signed releases, and the keys of two owners."""
    for name in ("ours", "theirs"):
        vm.make_key(tmp_path / name)
    for name in ("a.parquet", "b.parquet"):
        vm.release(POINTS, LINE, 1, "quad-opt", height=2).save(tmp_path / name)
        vm.sign(tmp_path / name, tmp_path / "ours")
    return tmp_path


def statement(house: Path, key: str = "ours.pub") -> str:
    found = vm.verify(house / "a.parquet", house / key)
    assert bool(found) == found.verified == found.statement.startswith("verified")
    return found.statement


def test_what_was_signed_is_verified(house: Path) -> None:
    assert statement(house).startswith("verified: this file was signed with the key of")


def test_other_keys_do_not_verify(house: Path) -> None:
    assert "NOT verified: it was signed with another key" in statement(house, "theirs.pub")


def test_a_signature_that_names_our_key_but_is_not_by_it_does_not_verify(house: Path) -> None:
    ours = (house / "a.parquet.sig").read_text().splitlines()
    vm.sign(house / "a.parquet", house / "theirs", overwrite=True)
    theirs = (house / "a.parquet.sig").read_text().splitlines()
    (house / "a.parquet.sig").write_text("\n".join([ours[0], ours[1], theirs[2]]))
    assert "NOT verified: the file was altered" in statement(house)
    (house / "a.parquet.sig").write_text("\n".join([ours[0], theirs[1], ours[2]]))
    assert statement(house).startswith("verified")  # the key that is asked with decides, not who says they signed


def test_the_signature_of_another_release_does_not_verify(house: Path) -> None:
    shutil.copy(house / "b.parquet.sig", house / "a.parquet.sig")
    assert "NOT verified: the file was altered, or the signature is that of another file" in statement(house)


def test_an_altered_file_does_not_verify_even_if_its_checksum_fits(house: Path) -> None:
    shutil.copy(house / "b.parquet", house / "a.parquet")
    assert vm.load(house / "a.parquet") is not None  # sound, but not what was signed
    assert "NOT verified: the file was altered" in statement(house)


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_any_byte_matters(tmp_path_factory: pytest.TempPathFactory, where: int, change: int) -> None:
    folder = tmp_path_factory.getbasetemp() / "one-signed"
    if not folder.exists():
        folder.mkdir()
        vm.make_key(folder / "ours")
        vm.release(POINTS, LINE, 1, "quad-opt", height=1).save(folder / "sound.parquet")
        vm.sign(folder / "sound.parquet", folder / "ours")
        shutil.copy(folder / "sound.parquet.sig", folder / "a.parquet.sig")
    data = bytearray((folder / "sound.parquet").read_bytes())
    data[where % len(data)] ^= change
    (folder / "a.parquet").write_bytes(data)
    assert not vm.verify(folder / "a.parquet", folder / "ours.pub")


@pytest.mark.parametrize("size", [0, 1, 20, 28, 60, 100, 150, 160])
def test_a_signature_that_was_cut_short_says_so(house: Path, size: int) -> None:
    data = (house / "a.parquet.sig").read_bytes()
    assert size < len(data) - 1
    (house / "a.parquet.sig").write_bytes(data[:size])
    assert "is cut short, altered or of another kind" in statement(house)


@pytest.mark.parametrize("text", [b"\xff\xfe", b"[" * 5000, b"veilmap release signature 2\nAAAA\nAAAA\n", b"\n" * 99])
def test_what_is_no_signature_says_so(house: Path, text: bytes) -> None:
    (house / "a.parquet.sig").write_bytes(text)
    assert "is cut short, altered or of another kind" in statement(house)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_signature_that_never_ends_is_none(house: Path) -> None:
    (house / "a.parquet.sig").unlink()
    os.mkfifo(house / "a.parquet.sig")
    assert "NOT verified" in statement(house)


def test_without_a_signature_there_is_none(house: Path) -> None:
    (house / "a.parquet.sig").unlink()
    assert statement(house).startswith("no signature")


def test_a_signature_of_the_bare_bytes_is_none_of_a_release(house: Path) -> None:
    """What the key signs elsewhere cannot be passed off as a release: the prefix tells them apart."""
    key = load_pem_private_key((house / "ours").read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)
    lines, data = (house / "a.parquet.sig").read_text().splitlines(), (house / "a.parquet").read_bytes()
    for message, verdict in ((data, "NOT verified"), (SIGNED_PREFIX + data, "verified")):
        lines[2] = base64.b64encode(key.sign(message)).decode()
        (house / "a.parquet.sig").write_text("\n".join(lines) + "\n")
        assert statement(house).startswith(verdict)


def test_only_the_owner_can_read_a_private_key(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        public = vm.make_key(tmp_path / "k")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "k").stat().st_mode) == 0o600
    assert public == tmp_path / "k.pub"
    assert b"PRIVATE" not in public.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["k", "k.pub"]


def test_keys_are_never_overwritten(tmp_path: Path) -> None:
    vm.make_key(tmp_path / "k")
    kept = (tmp_path / "k").read_bytes()
    with pytest.raises(vm.BadInput, match="never overwritten"):
        vm.make_key(tmp_path / "k")
    (tmp_path / "other.pub").write_text("someone's")
    with pytest.raises(vm.BadInput, match=r"other.pub exists already"):
        vm.make_key(tmp_path / "other")
    assert (tmp_path / "k").read_bytes() == kept
    assert not (tmp_path / "other").exists()


def test_a_key_of_which_only_half_could_be_written_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_for_public(path: object, *rest: object, **more: object) -> None:
        if str(path).endswith(".pub"):
            raise vm.BadInput("no room")
        atomic_writes.write_atomically(path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("veilmap.releases.signatures.write_atomically", fail_for_public)
    with pytest.raises(vm.BadInput, match="no room"):
        vm.make_key(tmp_path / "k")
    assert list(tmp_path.iterdir()) == []


def test_only_what_is_a_sound_release_is_signed(house: Path) -> None:
    (house / "a.parquet").write_bytes((house / "a.parquet").read_bytes()[:-1])
    with pytest.raises(vm.ReleaseFileError, match="is truncated"):
        vm.sign(house / "a.parquet", house / "ours", overwrite=True)
    with pytest.raises(vm.BadInput, match="Cannot write"):
        vm.sign(house / "b.parquet", house / "ours")  # its signature is there


def test_keys_that_are_none_are_refused_in_a_sentence(house: Path) -> None:
    other = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (house / "x25519").write_bytes(other)
    (house / "text").write_text("a key")
    for name in ("x25519", "text", "nowhere", "ours.pub", "."):
        with pytest.raises(vm.BadInput, match="key"):
            vm.sign(house / "a.parquet", house / name)
    for name in ("x25519", "text", "nowhere", "ours", "."):
        with pytest.raises(vm.BadInput, match="key"):
            vm.verify(house / "a.parquet", house / name)
    with pytest.raises(vm.BadInput, match="Cannot read"):
        vm.verify(house / "c.parquet", house / "ours.pub")


# Keys that are nobody's

FIELD = 2**255 - 19
CURVE = -121665 * pow(121666, -1, FIELD) % FIELD


def doubled(x: int, y: int) -> tuple[int, int]:
    """Twice a point of the curve -x² + y² = 1 + d x² y², by its group law."""
    t = CURVE * x * x * y * y
    return 2 * x * y * pow(1 + t, -1, FIELD) % FIELD, (y * y + x * x) * pow(1 - t, -1, FIELD) % FIELD


def small_order() -> set[tuple[int, int]]:
    """All points of which 8 make the identity: halves of halves of halves of it."""
    root = pow(2, (FIELD - 1) // 4, FIELD)  # of -1

    def roots(square: int) -> set[int]:
        x = pow(square, (FIELD + 3) // 8, FIELD)
        return {c for r in (x, x * root) for c in (r % FIELD, -r % FIELD) if c * c % FIELD == square % FIELD}

    found = {(0, 1), (0, FIELD - 1), *((x, 0) for x in roots(-1))}
    # doubled, a point of order 8 has y = 0: so y² = -x², and -x² + y² = 1 + d x² y² makes d y⁴ + 2 y² - 1 = 0
    for r in roots(1 + CURVE):
        for y in roots((r - 1) * pow(CURVE, -1, FIELD)):
            found |= {(x, y) for x in roots(-y * y)}
    return found


def encoded(y: int, sign: int) -> bytes:
    return (y + (sign << 255)).to_bytes(32, "little")


NOBODYS = {(y % FIELD, x & 1, y) for x, y in small_order()}
# written otherwise: y + p where that fits, and a sign of x = 0
NOBODYS |= {(y, sign, y + FIELD) for y, sign, _ in NOBODYS if y + FIELD < 2**255} | {
    (1, 1, 1),
    (FIELD - 1, 1, FIELD - 1),
}


def test_there_are_eight_points_of_small_order() -> None:
    points = small_order()
    assert len(points) == 8
    for x, y in points:
        assert (y * y - x * x - 1 - CURVE * x * x * y * y) % FIELD == 0
        assert doubled(*doubled(*doubled(x, y))) == (0, 1)


def public_file(path: Path, key: bytes) -> Path:
    prefix = bytes.fromhex("302a300506032b6570032100")  # SubjectPublicKeyInfo of Ed25519
    path.write_text(
        f"-----BEGIN PUBLIC KEY-----\n{base64.b64encode(prefix + key).decode()}\n-----END PUBLIC KEY-----\n"
    )
    return path


@pytest.mark.parametrize(("written", "sign"), sorted({(written, sign) for _, sign, written in NOBODYS}))
def test_a_public_key_of_small_order_is_refused(house: Path, written: int, sign: int) -> None:
    key = public_file(house / "nobody.pub", encoded(written, sign))
    with pytest.raises(vm.BadInput, match=r"nobody.pub is (a public key of small order|not a public key)"):
        vm.verify(house / "a.parquet", key)


@pytest.mark.parametrize("excess", [2, 3, 18])
def test_a_public_key_that_is_not_in_its_usual_form_is_refused(house: Path, excess: int) -> None:
    key = public_file(house / "odd.pub", encoded(FIELD + excess, 0))
    with pytest.raises(vm.BadInput, match=r"odd.pub is (a public key of small order|not a public key)"):
        vm.verify(house / "a.parquet", key)


def test_a_signature_that_needs_no_private_key_does_not_verify(house: Path) -> None:
    """For the identity as a key, the identity and 0 are a signature of anything."""
    identity = encoded(1, 0)
    key = public_file(house / "nobody.pub", identity)
    lines = ["veilmap release signature 1", *(base64.b64encode(b).decode() for b in (identity, identity + bytes(32)))]
    (house / "a.parquet.sig").write_text("\n".join(lines) + "\n")
    raw = load_pem_public_key(key.read_bytes())
    assert isinstance(raw, Ed25519PublicKey)
    raw.verify(identity + bytes(32), b"anything")  # so a library may well say yes
    with pytest.raises(vm.BadInput, match=r"small order .* without a private key"):
        vm.verify(house / "a.parquet", key)


# --- the command line -------------------------------------------------------------------------------------------


@pytest.fixture
def run(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return run


def test_a_signed_release_on_the_command_line(run) -> None:  # type: ignore[no-untyped-def]
    np.savetxt("points.csv", POINTS, header="x", comments="")
    assert run("key", "office.key")[0] == 0
    words = ("release", "points.csv", "-o", "a.parquet", "--epsilon", "1", "--domain", "x=0:1", "--method", "quad-opt")
    status, out, _ = run(*words, "--height", "2", "--sign", "office.key")
    assert (status, "Wrote a.parquet.sig" in out) == (0, True)
    status, out, _ = run("info", "a.parquet", "--key", "office.key.pub")
    assert (status, "verified: this file was signed with the key of office.key.pub" in out) == (0, True)
    status, out, _ = run("info", "a.parquet")
    assert (status, "not checked: give --key" in out) == (0, True)
    _, out, _ = run("info", "a.parquet", "--key", "office.key.pub", "--format", "json")
    assert json.loads(out)["signature"].startswith("verified")
    run("key", "other.key")
    for output in ("table", "csv", "json"):
        status, out, err = run("info", "a.parquet", "--key", "other.key.pub", "--format", output)
        assert (status, err.count("\n"), "NOT verified: it was signed with another key" in err) == (2, 1, True)
    assert run("sign", "a.parquet", "--key", "other.key")[0] == 2
    assert run("sign", "a.parquet", "--key", "other.key", "--overwrite")[0] == 0
    assert run("info", "a.parquet", "--key", "other.key.pub")[0] == 0
    Path("a.parquet.sig").unlink()
    status, out, err = run("info", "a.parquet", "--key", "office.key.pub")
    assert (status, "no signature" in out, "no signature" in err) == (2, True, True)
    assert "Signature  none" in run("info", "a.parquet")[1]

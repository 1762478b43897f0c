"""Write a file whole or not at all: a process that is killed leaves nothing behind that looks like a result.

Where the system can, such a file has no name, and is gone with its process. Where it needs a name, it is in a hidden
folder that its process holds a lock on: the next one to write there removes folders that nobody holds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from veilmap.errors import BadInput, VeilmapError

FOLDER = re.compile(r"\.veilmap-[0-9a-f]{32}\.tmp")
LOCKS = find_spec("fcntl") is not None  # not on Windows: there, nobody can tell which process is dead, and folders stay
UNABLE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)  # of file systems and old kernels without unnamed files


def write_atomically(
    path: str | os.PathLike[str], data: bytes | bytearray, overwrite: bool = True, mode: int = 0o666
) -> None:
    """Write a file and put it in its place: a reader sees the old file, the new one, or none.

    A process that is killed on the way leaves nothing behind, where the system has files without a name. To replace a
    file, the new one needs a name for a moment: if it is left behind then, the next file that is written there
    removes it.
    """
    place = Path(path)
    with _one_sentence(path):
        file = unnamed_file(place.parent, mode)
        if file is None:
            with staged_file(path, overwrite) as written:
                _write_named(written, data, mode)
            return
        with open(file, "wb") as out:
            remove_leftovers(place.parent)
            out.write(data)
            out.flush()
            os.fsync(file)
            try:
                give_name(file, place)
                return
            except FileExistsError:
                if not overwrite:
                    raise
            except OSError:  # a system may have files without a name, and no way to give them one
                pass
            with staged_file(path, overwrite) as written:
                try:
                    give_name(file, written)
                except OSError:
                    _write_named(written, data, mode)


def _write_named(place: Path, data: bytes | bytearray, mode: int) -> None:
    with open(place, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as out:
        out.write(data)


@contextlib.contextmanager
def staged_file(path: str | os.PathLike[str], overwrite: bool = True) -> Iterator[Path]:
    """Where a file of this name is written, in a folder of its own: moved to its place once it is whole."""
    place = Path(path)
    with _one_sentence(path):
        remove_leftovers(place.parent)
        with hidden_folder(place.parent) as folder:
            written = folder / place.name
            yield written
            with open(written, "rb+") as out:
                os.fsync(out.fileno())
            if overwrite:
                os.replace(written, place)
            else:
                os.link(written, place)  # fails if another has put a file there in the meantime


@contextlib.contextmanager
def _one_sentence(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say in one sentence why a file cannot be written."""
    try:
        yield
    except VeilmapError:
        raise
    except (OSError, ValueError) as error:
        other = "not a name for a file" if isinstance(error, ValueError) else "writing failed"
        why = getattr(error, "strerror", None) or other
        raise BadInput(
            f"Cannot write {str(path)!r}: {why}. Choose a file in a folder that exists and is yours."
        ) from None


def unnamed_file(folder: Path, mode: int) -> int | None:
    """Open a new file without a name, to be written; None where the system has no such files."""
    if not hasattr(os, "O_TMPFILE") or not Path("/proc/self/fd").is_dir():
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, mode)
    except OSError as error:
        if error.errno in UNABLE:
            return None
        raise


def give_name(file: int, place: Path) -> None:
    """Give an unnamed file its name; FileExistsError if another file has it."""
    # Without a folder to start from, Python would link the entry of /proc, and not what it stands for.
    os.link(f"/proc/self/fd/{file}", place, src_dir_fd=file, follow_symlinks=True)


@contextlib.contextmanager
def hidden_folder(parent: Path) -> Iterator[Path]:
    """Make a folder for one file that needs a name, and remove it with all that is still in it."""
    folder, lock = _make_folder(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _make_folder(parent: Path) -> tuple[Path, int | None]:
    while True:
        folder = parent / f".veilmap-{uuid.uuid4().hex}.tmp"
        folder.mkdir(mode=0o700)
        lock = _lock(folder, wait=True)
        if folder.exists():
            return folder, lock
        if lock is not None:  # another process took it for a leftover before it was locked
            os.close(lock)


def remove_leftovers(parent: Path) -> None:
    """Remove the hidden folders of processes that were killed."""
    names: list[str] = []
    with contextlib.suppress(PermissionError):  # a folder may be for writing only
        names = os.listdir(parent)
    for name in names:
        if FOLDER.fullmatch(name) and (lock := _lock(parent / name, wait=False)) is not None:
            shutil.rmtree(parent / name, ignore_errors=True)
            os.close(lock)


def _lock(folder: Path, wait: bool) -> int | None:
    """Return what holds the lock on a folder until it is closed; None if another has it, or there are no locks here."""
    if not LOCKS:
        return None
    import fcntl

    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(handle)
        return None
    return handle

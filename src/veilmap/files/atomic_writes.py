"""Write files atomically: a process that is killed leaves no incomplete file that looks like a result.

If the system supports files without a name, the file gets its name only when it is complete, and disappears if its
process is killed before. Otherwise it is written in a hidden folder that its process locks. The next process that
writes to the same place removes hidden folders without a lock.
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

HIDDEN_FOLDER_NAME = re.compile(r"\.veilmap-[0-9a-f]{32}\.tmp")
HAS_FILE_LOCKS = find_spec("fcntl") is not None  # not on Windows, where folders of killed processes remain
NO_UNNAMED_FILE_ERRORS = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)  # from file systems and old kernels


def write_atomically(
    path: str | os.PathLike[str], data: bytes | bytearray, overwrite: bool = True, mode: int = 0o666
) -> None:
    """Write a file atomically: a reader sees the old file, the new one, or none.

    If the system supports files without a name, a process that is killed leaves no file behind, with one exception: to
    replace a file, the new one needs a temporary name for a moment. If it is left behind then, the next write to that
    folder removes it.
    """
    place = Path(path)
    with _explain_write_errors(path):
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
            except OSError:  # a system may support files without a name, but not naming them later
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
    """Return a context manager with a path in a hidden folder. A file written there is moved to ``path`` at the end."""
    place = Path(path)
    with _explain_write_errors(path):
        remove_leftovers(place.parent)
        with hidden_folder(place.parent) as folder:
            written = folder / place.name
            yield written
            with open(written, "rb+") as out:
                os.fsync(out.fileno())
            if overwrite:
                os.replace(written, place)
            else:
                os.link(written, place)  # fails if another process has created the file in the meantime


@contextlib.contextmanager
def _explain_write_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Replace an error by one that says in one sentence why a file cannot be written."""
    try:
        yield
    except VeilmapError:
        raise
    except (OSError, ValueError) as error:
        other = "not a valid file name" if isinstance(error, ValueError) else "writing failed"
        reason = getattr(error, "strerror", None) or other
        raise BadInput(
            f"Cannot write {str(path)!r}: {reason}. Choose a file in an existing folder to which you may write."
        ) from None


def unnamed_file(folder: Path, mode: int) -> int | None:
    """Open a new file without a name for writing; None if the system does not support such files."""
    if not hasattr(os, "O_TMPFILE") or not Path("/proc/self/fd").is_dir():
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, mode)
    except OSError as error:
        if error.errno in NO_UNNAMED_FILE_ERRORS:
            return None
        raise


def give_name(file: int, place: Path) -> None:
    """Give an unnamed file its name. Raise FileExistsError if another file has that name."""
    # Without src_dir_fd, Python would link the entry in /proc itself, not the file behind it.
    os.link(f"/proc/self/fd/{file}", place, src_dir_fd=file, follow_symlinks=True)


@contextlib.contextmanager
def hidden_folder(parent: Path) -> Iterator[Path]:
    """Create a hidden folder for one file, and remove it with its content at the end."""
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
        if lock is not None:  # another process removed the folder as a leftover before it was locked
            os.close(lock)


def remove_leftovers(parent: Path) -> None:
    """Remove the hidden folders of processes that were killed."""
    names: list[str] = []
    with contextlib.suppress(PermissionError):  # a folder may be writable but not readable
        names = os.listdir(parent)
    for name in names:
        if HIDDEN_FOLDER_NAME.fullmatch(name) and (lock := _lock(parent / name, wait=False)) is not None:
            shutil.rmtree(parent / name, ignore_errors=True)
            os.close(lock)


def _lock(folder: Path, wait: bool) -> int | None:
    """Lock a folder and return the handle that holds the lock; None if it is locked already or locks do not exist."""
    if not HAS_FILE_LOCKS:
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

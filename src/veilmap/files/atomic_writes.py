"""Files that are not finished yet: a process that is killed must not leave one behind that looks like a result.

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

FOLDER = re.compile(r"\.veilmap-[0-9a-f]{32}\.tmp")
LOCKS = find_spec("fcntl") is not None  # not on Windows: there, nobody can tell which process is dead, and folders stay
UNABLE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)  # of file systems and old kernels without unnamed files


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

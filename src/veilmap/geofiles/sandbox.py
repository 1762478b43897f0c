"""Confine this process to some files, by Landlock: Linux 5.13 or later has it, and no other system.

It stands behind the rule that names choose parsers, for the day a library has a fault: then there is nothing to open.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from contextlib import suppress

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = (1 << bit for bit in range(4))
ALL_FILE_ACCESS = (1 << 13) - 1  # what the first version knows: to read, write, execute, make and remove
ALL_TCP = 0b11  # bind and connect
READ_ALL = EXECUTE | READ_FILE | READ_DIR
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, the same on every processor
ASK_VERSION, PATH_BENEATH, NO_NEW_PRIVILEGES = 1, 1, 38
FIRST_VERSION_WITH_TCP = 4


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """Return which version of Landlock this system has, 0 for none."""
    if not sys.platform.startswith("linux"):
        return 0
    found: int = _system().syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(ASK_VERSION))
    return max(found, 0)


def confine(readable: Iterable[str], writable: Iterable[str] = ()) -> bool:
    """Leave this process these files and folders, and those that Python and its libraries are in; return if it could.

    Nothing else is opened from now on, and no TCP connection made.
    """
    if not (known := version()):
        return False
    libc = _system()
    rules = _Ruleset(ALL_FILE_ACCESS, ALL_TCP if known >= FIRST_VERSION_WITH_TCP else 0)
    size = ctypes.sizeof(rules) if known >= FIRST_VERSION_WITH_TCP else 8
    ruleset = libc.syscall(CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    for path in (*_libraries(), *readable):
        _allow(libc, ruleset, path, READ_ALL)
    for path in (os.devnull, *writable):
        _allow(libc, ruleset, path, ALL_FILE_ACCESS)
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    done: int = libc.syscall(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    os.close(ruleset)
    return done == 0


def _libraries() -> list[str]:
    """Where code is loaded from, and devices that give random bits."""
    system = ["/usr", "/lib", "/lib64", "/opt", "/etc/ld.so.cache", "/dev/urandom", "/dev/random", "/sys"]
    return [*system, sys.prefix, sys.base_prefix, *filter(None, sys.path)]


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, access: int) -> None:
    with suppress(OSError):  # what is not there needs no rule
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not os.path.isdir(path):
            access &= READ_FILE | WRITE_FILE | EXECUTE
        rule = _PathRule(access, place)
        libc.syscall(
            ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0)
        )
        os.close(place)


def _system() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)

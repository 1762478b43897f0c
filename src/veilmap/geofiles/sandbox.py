"""Restrict this process to some files by Landlock, which only Linux has, from version 5.13 on.

This is a second line of defence behind the rule that file names choose parsers: if a library has a vulnerability, there
are no other files that it could open.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from contextlib import suppress

# Access rights
EXECUTE_FILE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
READ_ALL = EXECUTE_FILE | READ_FILE | READ_DIR
ALL_FILE_ACCESS = (1 << 13) - 1  # all rights of the first version: to read, write, execute, create and remove
ALL_TCP = 0b11  # to bind and to connect

# Numbers of system calls, the same on every processor
CREATE_RULESET = 444
ADD_RULE = 445
RESTRICT_SELF = 446

# Arguments of system calls
ASK_VERSION = 1
PATH_BENEATH = 1
NO_NEW_PRIVILEGES = 38

FIRST_VERSION_WITH_TCP = 4


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """Return the version of Landlock that this system has, 0 for none."""
    if not sys.platform.startswith("linux"):
        return 0
    result: int = _libc().syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(ASK_VERSION))
    return max(result, 0)


def confine(readable: Iterable[str], writable: Iterable[str] = ()) -> bool:
    """Restrict this process to these files and folders, and those of Python and its libraries.

    From then on it can open no other file and make no TCP connection. Return whether the system could do so.
    """
    if not (known := version()):
        return False
    libc = _libc()
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
    """Return the folders from which code is loaded, and the devices that provide random bits."""
    system = ["/usr", "/lib", "/lib64", "/opt", "/etc/ld.so.cache", "/dev/urandom", "/dev/random", "/sys"]
    return [*system, sys.prefix, sys.base_prefix, *filter(None, sys.path)]


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, access: int) -> None:
    with suppress(OSError):  # a path that does not exist needs no rule
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not os.path.isdir(path):
            access &= READ_FILE | WRITE_FILE | EXECUTE_FILE
        rule = _PathRule(access, handle)
        libc.syscall(
            ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0)
        )
        os.close(handle)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)

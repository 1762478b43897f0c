"""How much memory is there, and giving some back."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

CONTAINER = Path("/sys/fs/cgroup")
HELD_BYTES = 1 << 27
"""Rows with more bytes than this, as cells in memory, go to the disk."""


def free_memory() -> int:
    """Bytes that can be had without swapping; a cautious guess where the system does not say."""
    try:
        with open("/proc/meminfo") as lines:
            free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = 4 * 2**30
    with contextlib.suppress(OSError, ValueError):  # no container, or one without a limit
        limit, used = (int((CONTAINER / name).read_text()) for name in ("memory.max", "memory.current"))
        free = min(free, max(limit - used, 0))
    return free


def give_back() -> None:
    """Memory that is free but kept by this process goes back to the system, where that can be asked for."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)

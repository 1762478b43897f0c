"""Find out how much memory is free, and return unused memory to the system."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

CGROUP_FOLDER = Path("/sys/fs/cgroup")
MAX_CELL_BYTES_IN_MEMORY = 1 << 27
"""If the cells of all rows need more bytes than this, they are written to disk."""


def free_memory() -> int:
    """Return the bytes available without swapping, or a cautious guess if the system does not report them."""
    try:
        with open("/proc/meminfo") as lines:
            free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = 4 * 2**30
    with contextlib.suppress(OSError, ValueError):  # no container, or one without a limit
        limit, used = (int((CGROUP_FOLDER / name).read_text()) for name in ("memory.max", "memory.current"))
        free = min(free, max(limit - used, 0))
    return free


def return_unused_memory() -> None:
    """Return memory that is free but kept by this process to the system, if the C library supports it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)

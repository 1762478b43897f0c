"""How much memory is there."""

from __future__ import annotations


def free_memory() -> int:
    """Bytes that can be had without swapping; a cautious guess where the system does not say."""
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 4 * 2**30

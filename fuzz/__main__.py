"""Fuzz targets one after the other: python -m fuzz [--seconds N] [TARGET ...]. Exit status 1 if a target crashed.

Interesting inputs are kept in .fuzz, where the next run starts. Inputs that crash are kept in .fuzz/crashes. Fix the
bug and move the file to fuzz/corpus/TARGET, which the tests run.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from veilmap.geofiles import GDAL_DRIVERS

WORK_FOLDER = Path(".fuzz")
TARGET_NAMES = (
    "domain", "options", "method", "boxes", "box_values", "box_text", "zones", "zone_file",
    "release_file", "release_parts", "csv", "parquet", "wkb", "geo_metadata", "geojson_points",
    "gpkg", "fgb", "shp", "handshake",
    "http_body", "http_query", "http_headers",
)  # fmt: skip
MAX_BYTES_PER_INPUT = {"domain": 200, "options": 400, "boxes": 400, "box_text": 1000, "csv": 2000, "wkb": 500}
MAX_BYTES_PER_INPUT |= {"http_body": 2000, "http_query": 200, "http_headers": 200}
MAX_SECONDS_PER_CASE = 5
MAX_MEGABYTES = 2048


GDAL_DRIVER_OF_TARGET = {ending.removeprefix("."): driver for ending, driver in GDAL_DRIVERS.items()}
"""Targets that need a process in which GDAL has only this driver."""


def environment(name: str) -> dict[str, str]:
    """Return the environment variables of a process that runs a target."""
    # kernels check their indices only under the fuzzer
    checked = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str((WORK_FOLDER / "numba").resolve())}
    if name not in GDAL_DRIVER_OF_TARGET:
        return {**os.environ, **checked}
    from veilmap.geofiles.process import environment as gdal_environment

    return {**gdal_environment([GDAL_DRIVER_OF_TARGET[name]]), **checked}


def fuzz(name: str, seconds: int) -> tuple[int, bool]:
    """Return the number of executions, and whether one crashed, hung or used too much memory."""
    crashes = WORK_FOLDER / "crashes" / name
    crashes.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-timeout={MAX_SECONDS_PER_CASE}",
        f"-rss_limit_mb={MAX_MEGABYTES}",
        f"-malloc_limit_mb={MAX_MEGABYTES // 2}",
        f"-max_len={MAX_BYTES_PER_INPUT.get(name, 100_000)}",
        f"-artifact_prefix={crashes}/",
        "-print_final_stats=1",
        "-verbosity=0",
        "-len_control=0",
    ]
    command = [sys.executable, "-m", "fuzz.one", name, str(WORK_FOLDER / "corpus" / name), *options]
    done = subprocess.run(command, env=environment(name), capture_output=True, text=True, errors="replace", check=False)
    executed = re.findall(r"number_of_executed_units:\s*(\d+)", done.stderr)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-4000:], sep="\n", flush=True)
    return int(executed[-1]) if executed else 0, done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGET_NAMES))
    parser.add_argument("--seconds", type=int, default=30, help="seconds per target")
    arguments = parser.parse_args()
    total = crashed = 0
    for name in arguments.targets or TARGET_NAMES:
        executed, failed = fuzz(name, arguments.seconds)
        total, crashed = total + executed, crashed + failed
        print(f"{name:<14} {executed:>12,} executions  {'CRASHED' if failed else 'no crash'}", flush=True)
    print(f"{'all':<14} {total:>12,} executions  {crashed} crashed")
    sys.exit(1 if crashed else 0)


if __name__ == "__main__":
    main()

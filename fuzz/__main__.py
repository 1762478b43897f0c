"""Fuzz readers, one after the other: python -m fuzz [--seconds N] [TARGET ...]. Exit status 1 if anything crashed.

What is found interesting stays in .fuzz, and is where the next run begins. What crashed is kept in .fuzz/crashes: mend
it, and put the file into fuzz/corpus/TARGET, which the tests run through.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from veilmap.geofiles import GDAL_DRIVERS

PLACE = Path(".fuzz")
TARGETS = (
    "domain", "options", "method", "boxes", "box_values", "box_text", "zones", "zone_file",
    "release_file", "release_parts", "csv", "parquet", "wkb", "geo_metadata", "geojson_points",
    "gpkg", "fgb", "shp", "handshake",
    "http_body", "http_query", "http_headers",
)  # fmt: skip
MOST_BYTES = {"domain": 200, "options": 400, "boxes": 400, "box_text": 1000, "csv": 2000, "wkb": 500}
MOST_BYTES |= {"http_body": 2000, "http_query": 200, "http_headers": 200}
SECONDS_A_CASE, MOST_MEGABYTES = 5, 2048


SEPARATE = {ending.removeprefix("."): driver for ending, driver in GDAL_DRIVERS.items()}
"""Targets that need a process in which GDAL has one driver."""


def environment(name: str) -> dict[str, str]:
    """The variables of a process that runs a target."""
    # Kernels check their indices here: they do not when they work for people.
    checked = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str((PLACE / "numba").resolve())}
    if name not in SEPARATE:
        return {**os.environ, **checked}
    from veilmap.geofiles.process import environment as only

    return {**only([SEPARATE[name]]), **checked}


def fuzz(name: str, seconds: int) -> tuple[int, bool]:
    """Executions, and whether something crashed, hung or took too much memory."""
    crashes = PLACE / "crashes" / name
    crashes.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-timeout={SECONDS_A_CASE}",
        f"-rss_limit_mb={MOST_MEGABYTES}",
        f"-malloc_limit_mb={MOST_MEGABYTES // 2}",
        f"-max_len={MOST_BYTES.get(name, 100_000)}",
        f"-artifact_prefix={crashes}/",
        "-print_final_stats=1",
        "-verbosity=0",
        "-len_control=0",
    ]
    command = [sys.executable, "-m", "fuzz.one", name, str(PLACE / "corpus" / name), *options]
    done = subprocess.run(command, env=environment(name), capture_output=True, text=True, errors="replace", check=False)
    executed = re.findall(r"number_of_executed_units:\s*(\d+)", done.stderr)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-4000:], sep="\n", flush=True)
    return int(executed[-1]) if executed else 0, done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=int, default=30, help="for each target")
    asked = parser.parse_args()
    total = crashed = 0
    for name in asked.targets or TARGETS:
        executed, bad = fuzz(name, asked.seconds)
        total, crashed = total + executed, crashed + bad
        print(f"{name:<14} {executed:>12,} executions  {'CRASHED' if bad else 'no crash'}", flush=True)
    print(f"{'all':<14} {total:>12,} executions  {crashed} crashed")
    sys.exit(1 if crashed else 0)


if __name__ == "__main__":
    main()

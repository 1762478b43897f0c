"""Measure releases of many rows on a Spark cluster on this machine.

    python -m benchmarks.large_spark [ROWS] [FOLDER]

It compares two workers of one core with one worker, and with a plain ``groupBy`` count of the same cells. Rows are
written once, and kept in FOLDER as Parquet. Releases must be bit-identical to those from the files without Spark, even
if a worker is killed half-way.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from tests.spark.cluster import loopback, why_not

import veilmap as vm
from benchmarks.large import METHODS, TREE_HEIGHT, UNIT_SQUARE, write_rows
from veilmap.testing import fixed_entropy

T = TypeVar("T")
SINGLE_RUN_ROWS = 50_000_000  # from this size on, each job runs once


def made(points: object, **how: Any) -> pa.Table:
    with fixed_entropy(1):
        return vm.release(points, UNIT_SQUARE, 1.0, **how).nodes


def cells(frame: Any) -> int:
    """Count the rows per cell with a plain ``groupBy``, collect the counts, and return the number of cells."""
    side = 2**TREE_HEIGHT
    cell = f"cast(floor(least(x * {side}, {side - 1})) * {side} + floor(least(y * {side}, {side - 1})) as bigint) cell"
    inside = frame.where("x between 0 and 1 and y between 0 and 1").selectExpr(cell)
    return inside.groupBy("cell").count().toArrow().num_rows


def timed(job: Callable[[], T], runs: int) -> tuple[float, T]:
    """Return the shortest time of several runs in seconds, and the result of the last run."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        found = job()
        times.append(time.perf_counter() - start)
    return min(times), found


def say_whether(same: bool, what: str) -> None:
    print(f"{what}: the release is {'identical to' if same else 'DIFFERENT from'} that from the files", flush=True)


def measure(paths: list[str], workers: int, here: dict[str, pa.Table], runs: int) -> dict[str, float]:
    times = {}
    with loopback(workers) as cluster, cluster.session(workers) as spark:
        frame = spark.read.parquet(*paths)
        cells(spark.read.parquet(paths[0]))  # starts the executors and warms up Java
        made(spark.read.parquet(paths[0]), **METHODS["quad-opt"])  # warms up Python on the executors
        times["groupBy"], _ = timed(lambda: cells(frame), runs)
        for name, how in METHODS.items():
            times[name], found = timed(lambda how=how: made(frame, **how), runs)
            say_whether(found.equals(here[name]), f"{name}, workers: {workers}")
        if workers > 1:
            killer = threading.Timer(times["best"] / 2, lambda: cluster.kill(cluster.workers[0]))
            killer.start()
            took, found = timed(lambda: made(frame, **METHODS["best"]), 1)
            killer.join()
            say_whether(found.equals(here["best"]), f"best, a worker killed half-way, {took:.1f} s")
        return times


def main(rows: int, folder: Path) -> None:
    paths = write_rows(rows, folder)
    runs = 2 if rows < SINGLE_RUN_ROWS else 1
    local = {name: timed(lambda how=how: made(paths, **how), runs) for name, how in METHODS.items()}
    here = {name: found for name, (_, found) in local.items()}
    two, one = (measure(paths, workers, here, runs) for workers in (2, 1))
    print(f"{rows:,} rows; seconds, and ratios of two workers")
    print(f"{'':<12}{'two':>8}{'one':>8}{'here':>8}{'/ one':>8}{'/ groupBy':>11}{'/ here':>8}")
    for name in METHODS:
        alone, there = local[name][0], two[name]
        ratios = f"{there / one[name]:8.2f}{there / two['groupBy']:11.2f}{there / alone:8.1f}"
        print(f"{name:<12}{there:8.1f}{one[name]:8.1f}{alone:8.1f}{ratios}")
    print(f"{'groupBy':<12}{two['groupBy']:8.1f}{one['groupBy']:8.1f}")


if __name__ == "__main__":
    if reason := why_not():
        sys.exit(f"Spark is not available: {reason}.")
    count = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10_000_000
    if len(sys.argv) > 2:
        main(count, Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as place:
            main(count, Path(place))

"""Releases of many rows on a Spark cluster of this machine.

    python -m benchmarks.large_spark [ROWS] [FOLDER]

Two workers of one core against one, and against a plain ``groupBy`` count of the same cells. Rows are made once,
and kept in FOLDER as Parquet. Releases must be the same, to the bit, as from the files themselves on one machine.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import veilmap as vm
from benchmarks.cluster import loopback, why_not
from veilmap.testing import fixed_entropy

ROWS_A_FILE = 1_000_000
HEIGHT = 10
DOMAIN = vm.Domain({"x": (0, 1), "y": (0, 1)})
METHODS: dict[str, dict[str, Any]] = {"quad-opt": {"method": "quad-opt", "height": HEIGHT}, "best": {"method": "best"}}


def write_rows(rows: int, folder: Path) -> list[str]:
    """Half of them even, half in towns."""
    paths = [folder / f"{rows}-{k}.parquet" for k in range(-(-rows // ROWS_A_FILE))]
    for k, path in enumerate(paths):
        if not path.exists():
            rng = np.random.default_rng(k)
            n = min(ROWS_A_FILE, rows - k * ROWS_A_FILE)
            towns = np.random.default_rng(0).random((200, 2))[rng.integers(0, 200, n // 2)]
            xy = np.concatenate([rng.random((n - n // 2, 2)), towns + 0.004 * rng.standard_normal((n // 2, 2))])
            pq.write_table(pa.table({"x": xy[:, 0], "y": xy[:, 1]}), path)
    return [str(path) for path in paths]


def seconds(job: Callable[[], object], runs: int = 2) -> float:
    """The better time of two."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return min(times)


def made(points: object, **how: Any) -> pa.Table:
    with fixed_entropy(1):
        return vm.release(points, DOMAIN, 1.0, **how).nodes


def cells(frame: Any) -> int:
    """What anyone would write to count the same cells: rows, by cell, to the driver."""
    side = 2**HEIGHT
    cell = f"cast(floor(least(x * {side}, {side - 1})) * {side} + floor(least(y * {side}, {side - 1})) as bigint) cell"
    inside = frame.where("x between 0 and 1 and y between 0 and 1").selectExpr(cell)
    return inside.groupBy("cell").count().toArrow().num_rows


def measure(paths: list[str], workers: int) -> dict[str, float]:
    with loopback(workers) as cluster, cluster.session(workers) as spark:
        frame = spark.read.parquet(*paths)
        cells(frame)  # executors start, and Java warms up
        made(frame, **METHODS["quad-opt"])  # and so does Python there
        times = {"groupBy": seconds(lambda: cells(frame))}
        for name, how in METHODS.items():
            times[name] = seconds(lambda how=how: made(frame, **how))
            same = made(frame, **how).equals(made(paths, **how))
            print(
                f"{name}, {workers} workers: the release is {'the same' if same else 'ANOTHER'} as from files",
                flush=True,
            )
        return times


def main(rows: int, folder: Path) -> None:
    paths = write_rows(rows, folder)
    here = {name: seconds(lambda how=how: made(paths, **how)) for name, how in METHODS.items()}
    two, one = measure(paths, 2), measure(paths, 1)
    print(f"{rows:,} rows; seconds, and ratios of two workers")
    print(f"{'':<12}{'two':>8}{'one':>8}{'here':>8}{'/ one':>8}{'/ groupBy':>11}{'/ here':>8}")
    for name in METHODS:
        ratios = two[name] / one[name], two[name] / two["groupBy"], two[name] / here[name]
        print(
            f"{name:<12}{two[name]:8.1f}{one[name]:8.1f}{here[name]:8.1f}{ratios[0]:8.2f}{ratios[1]:11.2f}{ratios[2]:8.1f}"
        )
    print(f"{'groupBy':<12}{two['groupBy']:8.1f}{one['groupBy']:8.1f}")


if __name__ == "__main__":
    if reason := why_not():
        sys.exit(f"There is no Spark here: {reason}.")
    count = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10_000_000
    if len(sys.argv) > 2:
        main(count, Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as place:
            main(count, Path(place))

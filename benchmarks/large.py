"""Measure releases of many rows on this machine: time relative to a plain scan, and memory.

    python -m benchmarks.large [ROWS] [FOLDER] [PICTURE.png]

The number of rows goes from 10^5 to ROWS (default 10^8) in powers of ten. The rows are in Parquet files of a million
rows, which are written once and kept in FOLDER. Every number comes from a separate process: the best time of three
runs, and the peak memory including the writing of the release file. A scan reads the same two columns of all files and
does nothing with them.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import veilmap as vm

ROWS_PER_FILE = 1_000_000
TREE_HEIGHT = 10
UNIT_SQUARE = vm.Domain({"x": (0, 1), "y": (0, 1)})
METHODS: dict[str, dict[str, Any]] = {
    "quad-opt": {"method": "quad-opt", "height": TREE_HEIGHT},
    "best": {"method": "best"},
}
MAX_SCAN_RATIO = 2.0
MAX_MEMORY_BYTES = 10**9
LINE_COLOURS = {"scan": "#888888", "quad-opt": "#1b6ca8", "best": "#c8553d"}


def write_rows(rows: int, folder: Path) -> list[str]:
    """Write rows to files if they do not exist, half of them uniform and half in towns, and return the paths."""
    paths = [folder / f"{rows}-{k}.parquet" for k in range(-(-rows // ROWS_PER_FILE))]
    for k, path in enumerate(paths):
        if not path.exists():
            rng = np.random.default_rng(k)
            n = min(ROWS_PER_FILE, rows - k * ROWS_PER_FILE)
            towns = np.random.default_rng(0).random((200, 2))[rng.integers(0, 200, n // 2)]
            xy = np.concatenate([rng.random((n - n // 2, 2)), towns + 0.004 * rng.standard_normal((n // 2, 2))])
            pq.write_table(pa.table({"x": xy[:, 0], "y": xy[:, 1]}), path)
    return [str(path) for path in paths]


def seconds(job: Callable[[], object], runs: int) -> float:
    """Return the shortest time of several runs in seconds."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return min(times)


def by_dataset(paths: list[str]) -> int:
    return sum(batch.num_rows for batch in ds.dataset(paths).to_batches(columns=["x", "y"]))


def by_file(paths: list[str]) -> int:
    with ThreadPoolExecutor() as pool:
        return sum(pool.map(lambda path: pq.ParquetFile(path).read(["x", "y"], use_threads=False).num_rows, paths))


def by_piece(paths: list[str]) -> int:
    def rows(path: str) -> int:
        return sum(batch.num_rows for batch in pq.ParquetFile(path).iter_batches(1 << 17, use_threads=False))

    with ThreadPoolExecutor() as pool:
        return sum(pool.map(rows, paths))


def child(what: str, paths: list[str]) -> None:
    """Run in a separate process, and print the seconds and the peak memory in bytes."""
    if what == "scan":
        took = min(seconds(lambda scan=scan: scan(paths), 3) for scan in (by_dataset, by_file, by_piece))
    else:
        vm.release(np.zeros((1000, 2)), UNIT_SQUARE, 1.0, **METHODS[what])  # loads the kernels
        took = seconds(
            lambda: vm.release(paths, UNIT_SQUARE, 1.0, **METHODS[what]),
            3 if what == "quad-opt" or len(paths) < 100 else 1,
        )
        with tempfile.TemporaryDirectory() as place:
            vm.release(paths, UNIT_SQUARE, 1.0, **METHODS[what]).save(Path(place) / "release.parquet")
    print(json.dumps([took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))


def measure(what: str, paths: list[str]) -> tuple[float, int]:
    command = [sys.executable, "-m", "benchmarks.large", "--child", what]
    done = subprocess.run(command, input=json.dumps(paths), capture_output=True, text=True, check=True)
    took, peak = json.loads(done.stdout)
    return took, peak


def draw(found: dict[int, dict[str, tuple[float, int]]], out: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    times, memory = figure.subplots(1, 2)
    for what, colour in LINE_COLOURS.items():
        rows = list(found)
        times.loglog(rows, [found[n][what][0] for n in rows], "o-", color=colour, label=what)
        if what != "scan":
            memory.semilogx(rows, [found[n][what][1] / 1e9 for n in rows], "o-", color=colour, label=what)
    times.set(xlabel="rows", ylabel="seconds")
    memory.set(xlabel="rows", ylabel="peak memory in GB", ylim=(0, 1.1))
    memory.axhline(MAX_MEMORY_BYTES / 1e9, color="#888888", linestyle="--", linewidth=1)
    for axes in (times, memory):
        axes.legend(frameon=False)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=120)


def main(rows: int, folder: Path, picture: str | None) -> int:
    found: dict[int, dict[str, tuple[float, int]]] = {}
    print(f"{'rows':>12}{'scan s':>9}" + "".join(f"{name + ' s':>12}{'/ scan':>8}{'GB':>7}" for name in METHODS))
    for n in [10**k for k in range(5, 13) if 10**k <= rows]:
        paths = write_rows(n, folder)
        found[n] = {what: measure(what, paths) for what in ("scan", *METHODS)}
        scan = found[n]["scan"][0]
        line = f"{n:>12,}{scan:9.3f}"
        for took, peak in (found[n][name] for name in METHODS):
            line += f"{took:12.2f}{took / scan:8.2f}{peak / 1e9:7.3f}"
        print(line, flush=True)
    if picture is not None:
        draw(found, picture)
    last = found[max(found)]
    ratio, peaks = last["quad-opt"][0] / last["scan"][0], [last[name][1] for name in METHODS]
    met = ratio <= MAX_SCAN_RATIO and max(peaks) < MAX_MEMORY_BYTES
    print(f"quad-opt takes {ratio:.2f} scans (limit {MAX_SCAN_RATIO:g}), the peak memory is {max(peaks) / 1e9:.3f} GB")
    print("met" if met else "MISSED")
    return 0 if met else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], json.load(sys.stdin))
        sys.exit()
    count, out = int(float((sys.argv[1:2] or ["1e8"])[0])), sys.argv[3] if len(sys.argv) > 3 else None
    if len(sys.argv) > 2:
        sys.exit(main(count, Path(sys.argv[2]), out))
    with tempfile.TemporaryDirectory() as place:
        sys.exit(main(count, Path(place), out))

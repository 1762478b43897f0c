"""Measure how long exports and maps of a large release take: python -m benchmarks.exports"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import veilmap as vm
from veilmap.plot import draw

ROW_COUNT = 1_000_000
TREE_HEIGHT = 10


def timed(work: Callable[[], None]) -> float:
    """Return the processor seconds of the second run; the first run compiles."""
    work()
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    domain = vm.Domain({"lon": (-125, -103), "lat": (31, 49)})
    rows = np.random.default_rng(1).normal((-114, 40), 2, (ROW_COUNT, 2))
    release = vm.release(rows, domain, 1, "quad-opt", height=TREE_HEIGHT)
    leaves = int(release.estimates.tree.is_leaf.sum())
    print(f"quad-opt of height {TREE_HEIGHT}, {leaves:,} leaves; processor seconds\n")
    print("| export | seconds | MB |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, look in (
            ("csv", {}),
            ("fgb", {}),
            ("gpkg", {}),
            ("geojson", {}),
            ("tif", {}),
            ("tif", {"value": "stderr"}),
            ("gpkg", {"h3": 5}),
        ):
            path = Path(folder) / f"cells.{name}"
            seconds = timed(lambda path=path, look=look: release.export(path, **look))
            said = "".join(f" --{key} {value}" for key, value in look.items())
            print(f"| `.{name}{said}` | {seconds:.1f} | {path.stat().st_size / 1e6:.0f} |")
        path = Path(folder) / "map.png"
        print(f"| `plot`, PNG | {timed(lambda: draw(release, path)):.1f} | {path.stat().st_size / 1e6:.1f} |")


if __name__ == "__main__":
    main()

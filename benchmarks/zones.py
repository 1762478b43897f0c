"""Measure counts of county-like zones: their time, how often 95 % intervals contain the true count, synthetic points.

    python -m benchmarks.zones [--zones 3000] [--methods best,quad-opt:10] [--releases 20] [FILE …]

The zones divide the whole domain, with irregular borders and as many corners per zone as a county has. Data sets,
methods and files are those of benchmarks.coverage. Only non-empty zones count for coverage.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import shapely

import veilmap as vm
from benchmarks.coverage import DEFAULT_METHODS, MEASURED_EPSILONS, TARGET_COVERAGE, how, sets
from benchmarks.data import roads
from veilmap.reproduce.data import PAPER_BOX

CORNERS_PER_ZONE = 300
SYNTHETIC_POINTS = 10_000_000


def counties(domain: vm.Domain, number: int) -> np.ndarray:
    """Return zones of different sizes that divide the domain, with irregular borders."""
    rng = np.random.default_rng(5)
    square = shapely.box(0, 0, 1, 1)
    cells = shapely.voronoi_polygons(shapely.MultiPoint(rng.beta(0.8, 0.8, (number, 2))), extend_to=square)
    cells = shapely.intersection(shapely.get_parts(cells), square)
    cells = shapely.segmentize(cells, 4 / np.sqrt(number) / CORNERS_PER_ZONE)
    turns = [(wave, *rng.random(2), *rng.standard_normal(2)) for wave in np.sqrt(number) * 2.0 ** np.arange(4)]

    def bend(at: np.ndarray) -> np.ndarray:
        edge = np.prod(at * (1 - at), axis=1) * 16  # keeps the domain's own border straight
        for wave, a, b, x, y in turns:
            along = np.sin(2 * np.pi * (wave * (a * at[:, 0] + b * at[:, 1]) + a))
            at = at + 0.08 / wave * (edge * along)[:, None] * [x, y]
        return domain.lo + (domain.hi - domain.lo) * at

    return shapely.transform(cells, bend)


def truth(points: np.ndarray, zones: np.ndarray) -> np.ndarray:
    """Return the true count of each zone."""
    found = shapely.STRtree(zones).query(shapely.points(points), predicate="intersects")[1]
    return np.bincount(found, minlength=len(zones))


def answer(made: vm.Release, zones: np.ndarray) -> np.ndarray:
    """Return the upper ends of the intervals, which computes the counts with error bars."""
    return made.count(zones).high


def times(job: Callable[[], object]) -> Iterator[float]:
    """Yield the times of three runs, because timings are noisy."""
    for _ in range(3):
        start = time.perf_counter()
        job()
        yield time.perf_counter() - start


def measure_time(number: int) -> None:
    points, source = roads()
    zones = counties(PAPER_BOX, number)
    print(f"{len(zones):,} zones, {shapely.get_num_coordinates(zones).sum():,} corners; points: {source}")
    for method, height in (("quad-opt", 10), ("best", None), ("kd-hybrid", 8), ("hilbert-r", 8)):
        made = vm.release(points, PAPER_BOX, 0.5, method, height)
        answer(made, zones[:1])  # compiles the kernels and builds the tables
        seconds, drawn = (
            min(times(job)) for job in (lambda m=made: answer(m, zones), lambda m=made: m.sample(SYNTHETIC_POINTS))
        )
        size = made.estimates.tree.size
        print(f"{method:<12}{size:>10,} nodes{seconds:8.2f} s with error bars", end="; ")
        print(f"{SYNTHETIC_POINTS:,} synthetic points in {drawn:.2f} s", flush=True)


def covered(points: np.ndarray, method: str, epsilon: float, releases: int, number: int) -> tuple[float, float]:
    """Return the percentage of intervals that contain the true count, and their length relative to noise only."""
    domain = vm.Domain({f"x{k}": (float(axis.min()), float(axis.max())) for k, axis in enumerate(points.T)})
    zones = counties(domain, number)
    exact = truth(points, zones)
    zones, exact = zones[exact > 0], exact[exact > 0]
    held = length = noise = 0.0
    for _ in range(releases):
        answers = vm.release(points, domain, epsilon, **how(method)).count(zones)
        held += np.mean((answers.low <= exact) & (exact <= answers.high))
        length += np.mean(answers.high - answers.low)
        noise += np.mean(2 * 1.96 * np.sqrt(answers.error_parts.noise_variance))
    return 100 * held / releases, length / noise


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("files", nargs="*", type=Path)
    ask.add_argument("--zones", type=int, default=3000)
    ask.add_argument("--methods", default=DEFAULT_METHODS)
    ask.add_argument("--releases", type=int, default=20)
    given = ask.parse_args()
    measure_time(given.zones)
    print(f"{'data':<18}{'method':<16}{'ε':>4}{'covered, %':>12}{'length ÷ noise only':>22}")
    within: dict[str, list[bool]] = {}
    for name, points in sets(given.files, 2):
        for method in given.methods.split(","):
            for epsilon in MEASURED_EPSILONS:
                part, times = covered(points, method, epsilon, given.releases, given.zones)
                within.setdefault(method, []).append(TARGET_COVERAGE[0] <= part <= TARGET_COVERAGE[1])
                print(f"{name:<18}{method:<16}{epsilon:>4}{part:>12.1f}{times:>22.2f}", flush=True)
    for method, cells in within.items():
        print(f"{method}: {sum(cells)} of {len(cells)} in {TARGET_COVERAGE[0]:g}-{TARGET_COVERAGE[1]:g} %")


if __name__ == "__main__":
    main()

"""Measure how often 95 % intervals contain the true count, and how long they are.

    python -m benchmarks.coverage [--methods best,quad-opt:10,kd-hybrid+check] [--axes 3] [--others | FILE …]

For every data set × method × shape × epsilon, it prints the percentage of random non-empty boxes whose interval
contains the true count, and the mean length of the intervals divided by that of intervals for noise only. Shapes are
the paper's, scaled to the domain, which is the bounding box of the points (they are public); with other than two axes,
three cubes and a slab. A method may have a height after a colon, and +check to spend a hundredth of ε on calibration.
Files are .parquet tables, of which the first columns are read, or .npy arrays. Without files, points are generated,
and with two axes road files are used if available. --others uses the sets of
``veilmap reproduce rivals --score --quick``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import veilmap as vm
from benchmarks.data import DATA_FOLDER
from veilmap.reproduce.data import two_states
from veilmap.reproduce.point_sets import default_sets

QUERY_SHAPES = np.array([(1, 1), (5, 5), (10, 10), (15, 0.2)]) / (21.82, 17.67)
CUBE_SIDES = (0.1, 0.25, 0.5)  # as fractions of the domain's sides
SLAB_SIDES = (0.05, 0.8)  # across the slab and along it, as fractions of the domain's sides
MEASURED_EPSILONS = (0.1, 0.5, 1.0)
TARGET_COVERAGE = (93.0, 97.0)  # per cent
DEFAULT_METHODS = "best,quad-opt,quad-opt+check,quad-opt:10,kd-hybrid,kd-hybrid+check"
CHECK_OPTION = {"check": "0.01"}


def towns(n: int = 100_000, axes: int = 2) -> np.ndarray:
    """Return points in towns of different sizes, with a density that falls with the distance from their centres."""
    rng = np.random.default_rng(1)
    size = 1 / np.arange(1, 301)
    at, wide = rng.random((300, axes)), 0.002 + 0.02 * np.sqrt(size)
    town = rng.choice(300, n, p=size / size.sum())
    return at[town] + rng.standard_normal((n, axes)) * wide[town, None]


def sets(files: list[Path], axes: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the points of the given files, or else generated points and the road files if available."""
    paths = files or (sorted(DATA_FOLDER.glob("road_*.parquet")) if axes == 2 else [])
    if not files:
        rng = np.random.default_rng(0)
        if axes == 2:
            yield "two states", two_states(300_000)
        yield "towns", towns(axes=axes)
        yield "even", rng.random((200_000, axes))
        yield "bell", rng.standard_normal((200_000, axes))
    for path in paths:
        if path.suffix == ".npy":
            yield path.stem, np.load(path)[:, :axes]
        else:
            import pyarrow.parquet as pq

            table = pq.read_table(path)
            yield path.stem, np.stack([table[i].to_numpy() for i in range(axes)], axis=1)


def others() -> Iterator[tuple[str, np.ndarray]]:
    """Yield the default sets of the score."""
    for name, setting in default_sets(0, quick=True).items():
        yield name, setting.points


def shapes(axes: int) -> np.ndarray:
    """Return the sides of the query shapes as fractions of the domain's sides."""
    if axes == 2:
        return QUERY_SHAPES
    return np.array([*([side] * axes for side in CUBE_SIDES), [SLAB_SIDES[0], *[SLAB_SIDES[1]] * (axes - 1)]])


def counts(points: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return the number of points in each box."""
    axes = points.shape[1]
    first, *others = points[np.argsort(points[:, 0])].T
    start, stop = np.searchsorted(first, boxes[:, 0]), np.searchsorted(first, boxes[:, axes], side="right")
    inside = np.empty(len(boxes), np.int64)
    for i, (a, b, box) in enumerate(zip(start, stop, boxes, strict=True)):
        within = [(x[a:b] >= box[k]) & (x[a:b] <= box[axes + k]) for k, x in enumerate(others, 1)]
        inside[i] = np.count_nonzero(np.all(within, axis=0)) if within else b - a
    return inside


def questions(points: np.ndarray, domain: vm.Domain, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random non-empty boxes of each shape, and their counts: (shapes, number, …)."""
    rng, lo, wide = np.random.default_rng(2), domain.lo, domain.hi - domain.lo
    axes = domain.dimensions
    boxes, truth = np.empty((len(QUERY_SHAPES), number, 2 * axes)), np.empty((len(QUERY_SHAPES), number))
    for i, shape in enumerate(shapes(axes)):
        found = 0
        while found < number:
            corner = rng.random((number, axes)) * (1 - shape)
            candidates = np.concatenate([lo + corner * wide, lo + (corner + shape) * wide], axis=1)
            exact = counts(points, candidates)
            keep = np.flatnonzero(exact)[: number - found]
            boxes[i, found : found + len(keep)], truth[i, found : found + len(keep)] = candidates[keep], exact[keep]
            found += len(keep)
    return boxes, truth


def how(method: str) -> dict[str, object]:
    """Return the arguments of ``release`` for a method written like quad-opt:10+check."""
    plainly, check, _ = method.partition("+check")
    name, _, height = plainly.partition(":")
    return {"method": name, "height": int(height) if height else None, "options": CHECK_OPTION if check else None}


def covered(points: np.ndarray, method: str, epsilon: float, releases: int, queries: int) -> tuple[list, list]:
    """Return, per shape, the percentage of intervals that contain the true count, and their relative length."""
    domain = vm.Domain({f"x{k}": (float(axis.min()), float(axis.max())) for k, axis in enumerate(points.T)})
    pool, truth = questions(points, domain, 5 * queries)
    rng = np.random.default_rng(3)
    held, length, noise_only = np.zeros((3, len(QUERY_SHAPES)))
    for _ in range(releases):
        made = vm.release(points, domain, epsilon, **how(method))
        plain = replace(made, estimates=replace(made.estimates, unevenness=None, learn=None))
        for i in range(len(QUERY_SHAPES)):
            some = rng.choice(len(truth[i]), queries, replace=False)
            answers, noise = (r.count(pool[i, some], confidence=0.95) for r in (made, plain))
            held[i] += np.count_nonzero((answers.low <= truth[i, some]) & (truth[i, some] <= answers.high))
            length[i] += np.mean(answers.high - answers.low)
            noise_only[i] += np.mean(noise.high - noise.low)
    return (100 * held / (releases * queries)).tolist(), (length / noise_only).tolist()


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("files", nargs="*", type=Path)
    ask.add_argument("--methods", default=DEFAULT_METHODS)
    ask.add_argument("--releases", type=int, default=40)
    ask.add_argument("--queries", type=int, default=100)
    ask.add_argument("--axes", type=int, default=2)
    ask.add_argument("--others", action="store_true")
    given = ask.parse_args()
    print(f"{'data':<18}{'method':<16}{'ε':>4}  {'covered, % (four shapes)':^31}  {'length ÷ noise only':^27}")
    found: dict[str, list[list[float]]] = {}
    for name, points in others() if given.others else sets(given.files, given.axes):
        for method in given.methods.split(","):
            for epsilon in MEASURED_EPSILONS:
                parts, length = covered(points, method, epsilon, given.releases, given.queries)
                found.setdefault(method, []).append(parts)
                print(
                    f"{name:<18}{method:<16}{epsilon:>4}  {' '.join(f'{part:7.2f}' for part in parts)}"
                    f"  {' '.join(f'{times:6.2f}' for times in length)}",
                    flush=True,
                )
    for method, rows in found.items():
        cells = np.array(rows)
        good, means = (
            np.sum((cells >= TARGET_COVERAGE[0]) & (cells <= TARGET_COVERAGE[1])),
            " ".join(f"{m:.1f}" for m in cells.mean(axis=0)),
        )
        print(
            f"{method}: {good} of {cells.size} settings in {TARGET_COVERAGE[0]:g}-{TARGET_COVERAGE[1]:g} %; "
            f"on average {means} %"
        )


if __name__ == "__main__":
    main()

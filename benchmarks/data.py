"""Points for measurements: the two road files where they are at hand, else generated ones like them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import veilmap as vm

DATA = Path(os.environ.get("VEILMAP_DATA", Path(__file__).parents[2] / "shared" / "data"))
PAPER_BOX = {"lon": (-124.82, -103.00), "lat": (31.33, 49.00)}
PAPER_SHAPES = ((1.0, 1.0), (5.0, 5.0), (10.0, 10.0), (15.0, 0.2))


def roads(name: str = "road_west_cities") -> tuple[NDArray[np.float64], str]:
    """The points of a road file in a fixed shuffled order, or generated ones; and what they are."""
    path = DATA / f"{name}.parquet"
    if path.exists():
        import pyarrow.parquet as pq

        table = pq.read_table(path, columns=["lon", "lat"])
        points = np.stack([table["lon"].to_numpy(), table["lat"].to_numpy()], axis=1)
        source = name
    else:
        points, source = towns(1_252_614), "generated towns"
    return np.random.default_rng(0).permutation(points), source


def towns(n: int, seed: int = 1) -> NDArray[np.float64]:
    """Very skewed points in the paper's box: 87 towns, sizes by Zipf's law, each a haze of streets."""
    rng = np.random.default_rng(seed)
    lo, hi = np.array([-124.0, 32.0]), np.array([-104.0, 48.5])
    centre = rng.uniform(lo, hi, (87, 2))
    weight = 1 / np.arange(1, 88)
    town = rng.choice(87, n, p=weight / weight.sum())
    spread = 0.25 * np.sqrt(weight)[town, None] + 0.02
    return np.clip(centre[town] + spread * rng.normal(size=(n, 2)), [-124.82, 31.33], [-103.0, 49.0])


def domain_of(points: NDArray[np.float64], name: str) -> vm.Domain:
    """The paper's box for the western roads; otherwise whole degrees around the data (it is public here)."""
    if name != "road_dimacs_ny":
        return vm.Domain(PAPER_BOX)
    lo, hi = np.floor(points.min(axis=0)), np.ceil(points.max(axis=0))
    return vm.Domain({"lon": (lo[0], hi[0]), "lat": (lo[1], hi[1])})


def non_empty_queries(
    points: NDArray[np.float64], domain: vm.Domain, shape: tuple[float, float], n: int = 600, seed: int = 12345
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Random boxes of one shape that hold at least one point, and how many they hold."""
    rng = np.random.default_rng(seed)
    ordered = points[np.argsort(points[:, 0])]
    size = np.minimum(shape, domain.hi - domain.lo)
    boxes, truths = [], []
    while len(boxes) < n:
        low = rng.uniform(domain.lo, domain.hi - size)
        first, last = np.searchsorted(ordered[:, 0], [low[0], low[0] + size[0]])
        y = ordered[first:last, 1]
        truth = int(np.count_nonzero((y >= low[1]) & (y < low[1] + size[1])))
        if truth:
            boxes.append([*low, *(low + size)])
            truths.append(truth)
    return np.array(boxes), np.array(truths)

"""Points for benchmarks: the road files if available, else generated points like them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilmap.reproduce.data import two_states

DATA_FOLDER = Path(os.environ.get("VEILMAP_DATA", Path(__file__).parents[2] / "shared" / "data"))


def roads(name: str = "road_west_cities") -> tuple[NDArray[np.float64], str]:
    """Return the points of a road file, or generated points, in a fixed random order, and a description of them."""
    path = DATA_FOLDER / f"{name}.parquet"
    if path.exists():
        import pyarrow.parquet as pq

        table = pq.read_table(path, columns=["lon", "lat"])
        points = np.stack([table["lon"].to_numpy(), table["lat"].to_numpy()], axis=1)
        source = name
    else:
        points, source = two_states(1_252_614), "generated towns and roads"
    return np.random.default_rng(0).permutation(points), source

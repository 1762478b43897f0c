"""All engines: the same points, the same exact counts, for every kind of question."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from veilmap.domain import Domain
from veilmap.engines import open_points, spill
from veilmap.engines.tally import BoxParts, Cut, Grid, Grids, Nodes, Place, Question, Walk, parts_of, split_step
from veilmap.trees import CutTree, RegularTree

DOMAIN = Domain({"lon": (-10.0, 20.0), "lat": (0.0, 7.0)})
REGULAR = RegularTree(DOMAIN.side, 2, ((2, 2), (4, 4), (3, 3)))
LEAVES = REGULAR.places(REGULAR.height)


def points() -> np.ndarray:
    """Clusters, odd values, values outside and on every border."""
    rng = np.random.default_rng(5)
    rows = np.concatenate([rng.uniform([-11, -1], [21, 8], (1500, 2)), rng.normal([4, 3], 0.2, (1500, 2))])
    rows[::50, 0], rows[::70, 1], rows[::90, 0] = np.nan, np.inf, -np.inf
    borders = [[x, y] for x in (-10.0, 5.0, 20.0) for y in (0.0, 3.5, 7.0)]
    return np.concatenate([rows, borders])


POINTS = points()
CELLS = [
    np.minimum(np.floor((POINTS[:, a] - axis.lo) * DOMAIN.scale(a)), DOMAIN.side - 1)
    for a, axis in enumerate(DOMAIN.axes)
]
INSIDE = np.all((DOMAIN.lo <= POINTS) & (DOMAIN.hi >= POINTS), axis=1)
CELLS = np.stack(CELLS, axis=1)[INSIDE].astype(np.int64)


def walks() -> dict[str, tuple[Question, np.ndarray]]:
    """Questions down trees, and what the boxes say themselves."""
    side = DOMAIN.side
    root = CutTree.root(side, 2)
    cut = root.cut(0, np.array([side // 3]))
    parts = np.array([[3, 5], [0, 0]], np.int64)
    split = cut.split(parts)
    steps = (Cut(0, np.array([side // 3]), 0, cut.first_child), split_step(split, parts))
    newest = split.level(split.height)
    boxes: BoxParts = parts_of(split, np.full(newest.stop - newest.start, 2))
    finer = split.split(np.full((newest.stop - newest.start, 2), 2))
    grids = Grids(((4, 4), (2, 8)), DOMAIN.bits)
    coarse = [RegularTree(side, 2, (parts,)) for parts in grids.parts]
    return {
        "leaves": (Grid(LEAVES.shape), inside(REGULAR, slice(0, REGULAR.size))[LEAVES].ravel()),
        "placed": (
            Walk((Place(REGULAR, DOMAIN.bits),), Nodes(REGULAR.size), None),
            np.where(REGULAR.is_leaf, inside(REGULAR, slice(0, REGULAR.size)), 0),
        ),
        "nodes": (
            Walk(steps, Nodes(split.size), None),
            np.where(split.is_leaf, inside(split, slice(0, split.size)), 0),
        ),
        "parts": (Walk(steps, boxes, None), inside(finer, finer.level(finer.height))),
        "grids": (Walk((), grids, None), np.concatenate([inside(tree, tree.level(1)) for tree in coarse])),
    }


def inside(tree: Any, nodes: slice) -> np.ndarray:
    return np.array(
        [
            np.all((lo <= CELLS) & (hi > CELLS), axis=1).sum()
            for lo, hi in zip(tree.lo[nodes], tree.hi[nodes], strict=True)
        ]
    )


def table(rows: np.ndarray = POINTS) -> pa.Table:
    """NaN as null in one column, as itself in the other."""
    lon = pa.array(rows[:, 0], mask=np.isnan(rows[:, 0]))
    return pa.table({"name": ["someone"] * len(rows), "lat": rows[:, 1], "lon": lon})


def parquet(folder: Path, files: int = 1) -> list[str]:
    paths = [str(folder / f"{k}.parquet") for k in range(files)]
    for path, rows in zip(paths, np.array_split(POINTS, files), strict=True):
        pq.write_table(table(rows), path)
    return paths


def csv(folder: Path) -> str:
    pa.csv.write_csv(table(), folder / "a.csv")
    return str(folder / "a.csv")


def relation() -> Any:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    kept = table()  # duckdb finds it by its name
    return duckdb.connect().from_arrow(kept)


def skewed(frame: Any) -> Any:
    """Nearly all rows in one partition, and most partitions empty."""
    from pyspark.sql import functions as f

    return frame.repartition(8, f.when(f.col("lat") > 6, 1).otherwise(0)).drop("name")


Kind = Callable[[Path, Callable[[], Any]], object]
KINDS: dict[str, Kind] = {
    "array": lambda folder, spark: POINTS,
    "Arrow table": lambda folder, spark: table(),
    "Arrow stream": lambda folder, spark: pa.RecordBatchReader.from_batches(table().schema, table().to_batches(100)),
    "CSV": lambda folder, spark: csv(folder),
    "Parquet": lambda folder, spark: parquet(folder),
    "many small files": lambda folder, spark: parquet(folder, 60),
    "DuckDB": lambda folder, spark: relation(),
}
SPARK_KINDS: dict[str, Kind] = {
    "Spark, many small files": lambda folder, spark: spark().read.parquet(*parquet(folder, 12)),
    "Spark, skewed and empty partitions": lambda folder, spark: skewed(spark().read.parquet(*parquet(folder))),
}
SPILLS = ["Arrow stream", "CSV", "Parquet", "many small files", "DuckDB"]
ALL = [
    *(pytest.param(kind, False, id=kind) for kind in KINDS),
    *(pytest.param(kind, True, id=f"{kind}, spilled") for kind in SPILLS),
    *(pytest.param(kind, False, id=kind, marks=pytest.mark.xdist_group("spark")) for kind in SPARK_KINDS),
]


@pytest.mark.parametrize(("kind", "spilled"), ALL)
def test_same_points_same_counts(kind: str, spilled: bool, tmp_path: Path, request: Any, monkeypatch: Any) -> None:
    if spilled:
        monkeypatch.setattr(spill, "MAX_CELL_BYTES_IN_MEMORY", 0)
    made = {**KINDS, **SPARK_KINDS}[kind](tmp_path, lambda: request.getfixturevalue("spark"))
    engine, asked = open_points(made, DOMAIN), walks()
    if kind != "Arrow stream":  # which is read once
        question, expected = asked["leaves"]
        np.testing.assert_array_equal(engine.tally(DOMAIN, question, lambda part: None), expected)
    held = engine.hold(DOMAIN, lambda part: None)
    if kind in SPARK_KINDS:  # whose rows are kept: what becomes of their source does not matter
        for path in tmp_path.iterdir():
            path.unlink()
    for question, expected in asked.values():
        if isinstance(held, list):
            counts = np.zeros(question.size, np.int64)
            question.add(DOMAIN.of_cells(), held, counts)
        else:
            counts = held[0].tally(held[1], question, lambda part: None)
        np.testing.assert_array_equal(counts, expected)
    rows = held if isinstance(held, list) else held[0].rows(held[1], lambda part: None)[0]
    np.testing.assert_array_equal(np.sort(rows, axis=1), np.sort(CELLS.T, axis=1))


def test_one_row_twice_is_seen() -> None:
    """The same check tells one row more."""
    question, expected = walks()["nodes"]
    twice = np.concatenate([POINTS, POINTS[INSIDE][:1]])
    assert np.abs(open_points(twice, DOMAIN).tally(DOMAIN, question, lambda part: None) - expected).sum() == 1

"""Releases of Spark frames, on a real cluster: a master and two workers on this machine."""

from __future__ import annotations

import decimal
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import veilmap as vm
from tests.privacy.test_readers import HOSTILE, PEOPLE, as_table, assert_one_unit_apart, units_of
from tests.spark.cluster import Cluster
from veilmap.cli import _spark as cli_spark
from veilmap.cli import main
from veilmap.engines import open_points
from veilmap.engines import spark as engine_module
from veilmap.engines.tally import Grid
from veilmap.errors import BadInput, UnreadableInput
from veilmap.testing import fixed_entropy
from veilmap.vault.entropy import SystemKeys
from veilmap.vault.mechanisms.sampling import poisson

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

DOMAIN = vm.Domain({"x": (0, 1), "y": (0, 1)})
LINE = vm.Domain({"x": (0, 1)})
QUARTERS = Grid((4,))


def quiet(part: float) -> None:
    pass


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.random((20_000, 2)), 0.1 * rng.standard_normal((20_000, 2)) + 0.4])
    rows[::97] = np.nan
    return rows


@pytest.fixture(scope="module")
def frame(spark: Any, points: np.ndarray, tmp_path_factory: Any) -> Any:
    folder = tmp_path_factory.mktemp("points")
    for k, some in enumerate(np.array_split(points, 4)):
        pq.write_table(pa.table({"x": some[:, 0], "y": some[:, 1]}), folder / f"{k}.parquet")
    return spark.read.parquet(str(folder))


def write(spark: Any, path: Path, **columns: Any) -> Any:
    pq.write_table(pa.table(columns), path)
    return spark.read.parquet(str(path))


@pytest.mark.parametrize("method", ["quad-opt", "kd-hybrid"])
def test_same_release_as_of_an_array(frame: Any, points: np.ndarray, method: str) -> None:
    made, left = [], frame.sparkSession.sparkContext._jsc.getPersistentRDDs().size()
    for kind in (frame, points):
        with fixed_entropy(3):
            made.append(vm.release(kind, DOMAIN, 1.0, method=method).nodes)
    assert made[0].equals(made[1])
    assert frame.sparkSession.sparkContext._jsc.getPersistentRDDs().size() == left


# --- units ------------------------------------------------------------------------------------------------------


def test_people_count_with_their_limit(spark: Any, tmp_path: Path) -> None:
    """Each with all rows below it; and rows outside, or of nobody, count for nothing."""
    rows = [("a", 0.1)] * 5 + [("a", None), ("a", 7.0)] + [("b", 0.3)] * 2 + [(None, 0.6)] * 3 + [("A", 0.9)]
    who, x = zip(*rows, strict=True)
    found = write(spark, tmp_path / "a.parquet", who=pa.array(who), x=pa.array(x, pa.float64()))
    engine = open_points(found.repartition(3), LINE, "who", 3)
    np.testing.assert_array_equal(engine.tally(LINE, QUARTERS, quiet), [3, 2, 0, 1])
    held, cells = engine.hold(LINE, quiet)
    np.testing.assert_array_equal(held.tally(cells, QUARTERS, quiet), [3, 2, 0, 1])
    (column,), code = held.rows(cells, quiet)
    assert sorted(np.bincount(code)) == [1, 2, 3]
    assert all(len(np.unique(column[code == k])) == 1 for k in range(3))
    assert "0.1" not in repr(engine)
    made = vm.release(found, LINE, 1.0, unit="who", max_rows_per_unit=3, method="kd-standard", sample=0.5, height=2)
    assert made.privacy.unit == "one who (3 rows at most)"


def test_all_choices_of_rows_are_equally_likely(spark: Any, tmp_path: Path) -> None:
    """Of four rows three are equal: one that is alone stays in a quarter of the cases, and not in half of them."""
    people = 20_000
    who, x = np.repeat(np.arange(people), 4), np.tile([0.1, 0.9, 0.9, 0.9], people)
    found = write(spark, tmp_path / "a.parquet", who=who, x=x)
    alone, _, _, others = open_points(found, LINE, "who", 1).tally(LINE, QUARTERS, quiet)
    assert alone + others == people
    assert abs(alone - people / 4) < 7 * np.sqrt(people * 3 / 16)
    assert abs(alone - people / 2) > 7 * np.sqrt(people / 4)


IDS = {
    "float": pa.array([0.0, -0.0, 1.5, float("nan")]),
    "decimal": pa.array([decimal.Decimal("1.50")] * 2 + [decimal.Decimal("1.51"), None], pa.decimal128(9, 2)),
    "time": pa.array([1, 1, 2, None], pa.timestamp("us", "UTC")),
    "bytes": pa.array([b"a", b"a", b"A", None]),
}


def test_ids_are_compared_exactly(spark: Any, tmp_path: Path) -> None:
    """Two rows of one person, one of another, one of nobody: whatever the type."""
    frames = write(spark, tmp_path / "a.parquet", x=[0.1, 0.1, 0.1, 0.1], **IDS)
    for name in IDS:
        engine = open_points(frames, LINE, name, 1)
        assert engine.tally(LINE, QUARTERS, quiet)[0] == 2, name


def test_a_sample_is_drawn_on_the_executors(spark: Any, tmp_path: Path) -> None:
    """Rows each on their own; people whole or not at all."""
    who = np.repeat(np.arange(10_000), 2)
    found = write(spark, tmp_path / "a.parquet", who=who, x=(who + 0.5) / 10_000).repartition(3)
    keys, rate = SystemKeys(), Fraction(1, 10)
    for unit, n in (((), 20_000), (("who", 2), 10_000)):
        held, cells = open_points(found, LINE, *unit).hold(LINE, quiet)
        (column,), code = held.rows(cells, quiet, lambda rows: poisson(rate, rows, keys))
        taken = len(column) if code is None else int(code.max()) + 1
        assert abs(taken - n / 10) < 7 * np.sqrt(n * 0.09)
        if code is not None:
            assert (np.unique(column, return_counts=True)[1] == 2).all()


# --- the command line -------------------------------------------------------------------------------------------

TEXT = """who,x
a,0.1
b,0.1,too many
b
c,abc
d,
"e ""q"" e","0.6"
g,0.9
"""


def test_text_goes_by_the_rules_of_text(spark: Any, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.csv.parser.columnPruning.enabled", False)  # as the command line does
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(TEXT)
    paths = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    there = open_points(cli_spark._read(spark, paths, LINE.names), LINE).tally(LINE, QUARTERS, quiet)
    np.testing.assert_array_equal(there, open_points(paths, LINE).tally(LINE, QUARTERS, quiet))
    np.testing.assert_array_equal(there, [2, 0, 2, 2])


def test_a_record_of_many_lines_is_one_row(spark: Any, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.csv.parser.columnPruning.enabled", False)
    path = tmp_path / "a.csv"
    for forged in ("", '"' + "\n0.9,b" * 50 + '"'):
        path.write_text(f"x,who\n0.1,a\n0.6,{forged}\n0.1,c\n")
        there = open_points(cli_spark._read(spark, [str(path)], LINE.names), LINE).tally(LINE, QUARTERS, quiet)
        np.testing.assert_array_equal(there, [2, 0, 1, 0])


def test_one_row_of_a_frame_more_changes_one_row(spark: Any, tmp_path: Path) -> None:
    less = units_of(spark.createDataFrame(as_table(PEOPLE)))
    assert less.total() == 5
    for record in HOSTILE:
        assert_one_unit_apart(less, units_of(spark.createDataFrame(as_table([*PEOPLE[:3], record, *PEOPLE[3:]]))))


def test_a_command_that_goes_to_spark(spark: Any, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    pq.write_table(pa.table({"x": np.linspace(0, 1, 999)}), tmp_path / "a.parquet")
    session = SimpleNamespace(sparkContext=spark.sparkContext, read=spark.read, stop=lambda: None)
    monkeypatch.setattr(cli_spark, "_start", lambda build, master: session)
    words = ["--epsilon", "1", "--domain", "x=0:1", "--engine", "spark", "--method", "quad-opt"]
    monkeypatch.setattr(sys, "argv", ["veilmap", "release", f"{tmp_path}/*.parquet", "-o", f"{tmp_path}/r", *words])
    with pytest.raises(SystemExit) as done:
        main()
    assert not done.value.code
    assert vm.load(tmp_path / "r").count([[0.0, 1.0]]).estimate[0] == pytest.approx(999, abs=200)
    for inputs, sentence in (
        ([f"{tmp_path}/none.parquet"], "Spark cannot read"),
        (["a.csv", "a.parquet"], "one kind of input at a time"),
    ):
        monkeypatch.setattr(sys, "argv", ["veilmap", "release", *inputs, "-o", f"{tmp_path}/s", *words])
        with pytest.raises(SystemExit) as done:
            main()
        assert done.value.code == 2
        assert sentence in capsys.readouterr().err
        assert not (tmp_path / "s").exists()


def test_addresses_go_to_spark_and_paths_do_not() -> None:
    auto, local, spark = cli_spark.Engine
    assert cli_spark.goes_to_spark(auto, ["s3://bucket/a.parquet"], None)
    assert cli_spark.goes_to_spark(auto, ["a.parquet"], "local[*]")
    assert cli_spark.goes_to_spark(spark, ["a.parquet"], None)
    assert not cli_spark.goes_to_spark(auto, ["a.parquet", "b/c.csv"], None)
    assert not cli_spark.goes_to_spark(local, ["s3://bucket/a.parquet"], None)
    with pytest.raises(BadInput, match="--master needs --engine spark"):
        cli_spark.goes_to_spark(local, ["a.parquet"], "local[*]")


# --- failures ---------------------------------------------------------------------------------------------------


def test_a_task_that_is_done_again_counts_once(frame: Any, points: np.ndarray, spark: Any) -> None:
    def fails_once(batches: Any) -> Any:
        """The second partition breaks off half-way when it is read for the first time."""
        from pyspark import TaskContext

        task = TaskContext.get()
        for k, batch in enumerate(batches):
            if k == 1 and task.partitionId() == 1 and task.attemptNumber() == 0:
                raise RuntimeError("broken off")
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 1000)
    broken = frame.repartition(3).mapInArrow(fails_once, frame.schema)
    question = Grid((8, 8))
    expected = open_points(points, DOMAIN).tally(DOMAIN, question, quiet)
    np.testing.assert_array_equal(open_points(broken, DOMAIN).tally(DOMAIN, question, quiet), expected)
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_errors_quote_nothing(frame: Any, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = frame.selectExpr("x", "y + raise_error('4.25 is here') y")
    with pytest.raises(UnreadableInput, match="Spark could not read all points") as error:
        vm.release(secret, DOMAIN, 1)
    assert "4.25" not in str(error.value)
    assert error.value.__context__ is None
    with pytest.raises(UnreadableInput, match="has no column 'y', which is an axis"):
        vm.release(frame.select("x"), DOMAIN, 1)
    with pytest.raises(UnreadableInput, match="must have numbers in column 'y'"):
        vm.release(frame.selectExpr("x", "cast(y as string) y"), DOMAIN, 1)
    with pytest.raises(UnreadableInput, match="more than one column 'y'"):
        vm.release(frame.selectExpr("x", "y", "y"), DOMAIN, 1)
    with pytest.raises(BadInput, match="streaming"):
        vm.release(spark.readStream.format("rate").load().selectExpr("value x", "value y"), DOMAIN, 1)
    monkeypatch.setattr(engine_module, "version", lambda name: "9.9.9")
    with pytest.raises(UnreadableInput, match=r"another version of veilmap. Install 9\.9\.9 there"):
        vm.release(frame, DOMAIN, 1)


def test_a_worker_that_dies_loses_and_doubles_nothing(cluster: Cluster, frame: Any, points: np.ndarray) -> None:
    """Killed while a question is asked of rows that are kept; the release is the same, to the bit."""
    told: list[float] = []

    def kill(part: float) -> None:
        told.append(part)
        if part < 1 and told.count(1.0) == 2:
            told.append(1.0)  # once
            cluster.kill(cluster.workers[0])

    with fixed_entropy(4):
        here = vm.release(points, DOMAIN, 1.0).nodes
    for _ in range(10):  # a question may be answered before anything is told of it
        told.clear()
        with fixed_entropy(4):
            there = vm.release(frame, DOMAIN, 1.0, progress=kill).nodes
        if cluster.workers[0].poll() is not None:
            break
    assert cluster.workers[0].poll() is not None
    assert there.equals(here)
    cluster.workers[0] = cluster.add_worker()  # for the tests that come after

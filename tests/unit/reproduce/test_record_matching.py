"""Figure 7(b) of the study: people made up like those of a census, the Adult file, and a run that remembers."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from veilmap.errors import UnreadableInput
from veilmap.reproduce import EXPERIMENTS, record_matching
from veilmap.reproduce.census import ADULT_COLUMN_NAMES, PEOPLE_DOMAIN, PEOPLE_THRESHOLDS, census, read_adult
from veilmap.reproduce.record_matching import (
    LOSS_SETTINGS,
    MATCH_EPSILONS,
    MATCHED_METHODS,
    PAPER_METHODS,
    claims,
    experiment,
    tables,
)
from veilmap.reproduce.study import Row, Setting


@pytest.fixture
def run(run):
    """``veilmap match``, or another command: its status, output and errors."""
    return lambda *words, command="match": run(command, *words)


# The people


def test_people_are_whole_and_inside_their_domain() -> None:
    people = census(5000, 1)
    assert people.shape == (5000, 4)
    assert np.array_equal(people, people.round())
    assert np.all((people >= PEOPLE_DOMAIN.lo) & (people <= PEOPLE_DOMAIN.hi))
    assert np.array_equal(people, census(5000, 1))
    assert not np.array_equal(people, census(5000, 2))
    assert len(PEOPLE_THRESHOLDS) == len(PEOPLE_DOMAIN.names) == 4


def test_people_have_the_ties_and_the_ways_of_a_census() -> None:
    age, education, hours, gain = census(30_000, 2).T
    assert 0.45 < np.mean(hours == 40) < 0.6
    assert 0.85 < np.mean(gain == 0) < 0.97
    assert 35 < age.mean() < 45
    for other in (age, hours, gain):
        assert np.corrcoef(education, other)[0, 1] > 0.05  # a thousandth if they were independent
    assert hours[(age < 23) | (age > 63)].mean() < hours[(age > 25) & (age < 60)].mean() - 2


# The Adult file


def adult_lines(people: np.ndarray) -> list[str]:
    """As the UCI repository has it: fifteen columns, spaces after commas."""
    return [
        f"{a:g}, Private, 77516, Bachelors, {e:g}, Divorced, Sales, Husband, White, Male, {g:g}, 0, {h:g}, Peru, <=50K"
        for a, e, h, g in people
    ]


HEADER = (
    "age,workclass,fnlwgt,education,education_num,marital.status,occupation,relationship,race,sex,"
    "capital_gain,capital.loss,Hours-per-week,native.country,income"
)


@pytest.mark.parametrize("top", [[], [HEADER], ["\ufeff" + HEADER]], ids=["plain", "header", "header after a mark"])
def test_the_adult_file_is_read_with_and_without_a_header(tmp_path: Path, top: list[str]) -> None:
    people = census(60, 3)
    odd = ["", "?, Private", "x, , , , 9, , , , , , 0, , 40, , ", " "]
    path = tmp_path / "adult.data"
    path.write_text("\n".join([*top, *adult_lines(people), *odd]) + "\n", "utf-8")
    assert np.array_equal(read_adult(path), people)


def test_short_names_are_known_in_a_header_too(tmp_path: Path) -> None:
    people = census(40, 4)
    rows = [",".join(map(str, row)) for row in people.tolist()]
    (tmp_path / "short.csv").write_text("\n".join(["age,education,hours,gain", *rows]))
    assert np.array_equal(read_adult(tmp_path / "short.csv"), people)


BAD_FILES = {
    "missing": (None, "Cannot read .*: No such file or directory"),
    "empty": (b"", r"fewer than 30 complete records of age, education, hours, gain\. Is it the Adult file"),
    "short": ("\n".join(adult_lines(census(29, 1))).encode(), "fewer than 30 complete records"),
    "no text": (b"\xff\xfe\x00", r"Cannot read .*: not a text file\."),
    "another table": (
        b"lon,lat\n" + b"1,2\n" * 99,
        rf"no column .*\. The Adult file has {', '.join(ADULT_COLUMN_NAMES.values())}",
    ),
    "too few columns": (b"1,2,3\n" * 99, "fewer than 30 complete records"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_what_is_not_the_adult_file_is_refused(tmp_path: Path, run, name: str) -> None:
    data, sentence = BAD_FILES[name]
    path = tmp_path / "some.data"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UnreadableInput, match=sentence):
        read_adult(path)
    status, out, err = run("--study", "--data", path, "--quick", "-o", tmp_path / "study")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert not (tmp_path / "study").exists()


# The experiment


def made_up_rows(ratio: dict[str, float], first: dict[str, float] | None = None) -> list[Row]:
    """``first`` has other ratios at the first epsilon."""
    at = dict.fromkeys(MATCH_EPSILONS, ratio) | {MATCH_EPSILONS[0]: ratio | (first or {})}
    return [
        {"method": m, "epsilon": e, "lost": lost, "repeat": 0, "reduction_ratio": at[e][m], "recall": 0.99}
        for m in MATCHED_METHODS
        for e in MATCH_EPSILONS
        for lost in LOSS_SETTINGS
    ]


@pytest.mark.parametrize(
    ("ratios", "verdicts"),
    [
        ((0.91, 0.93, 0.95, 0.9, 0.9), ["reproduced", "reproduced", "reproduced"]),
        ((0.7, 0.6, 0.8, 0.9, 0.9), ["reproduced", "not reproduced", "not reproduced"]),
        ((0.9, 0.8, 0.7, 0.9, 0.9), ["not reproduced", "not reproduced", "not reproduced"]),
        ((0.93, 0.93, 0.93, 0.9, 0.9), ["not reproduced", "not reproduced", "reproduced"]),
    ],
)
def test_claims_are_what_the_figures_say(ratios: tuple[float, ...], verdicts: list[str]) -> None:
    rows = made_up_rows(dict(zip(MATCHED_METHODS, ratios, strict=True)))
    said = claims(rows)
    assert [claim.verdict for claim in said] == verdicts
    assert f"kd-standard {ratios[2]:.3f}" in said[0].because
    for table in tables(rows):
        assert [row[0] for row in table.rows] == list(MATCHED_METHODS)
        assert {cell for row in table.rows if row[0] == PAPER_METHODS[0] for cell in row[1:]} == {
            f"{ratios[0]:.3f} (0.990)"
        }


@pytest.mark.parametrize(
    ("first", "verdicts"),
    [
        ({"kd-standard": 0.92}, ["partly reproduced", "reproduced", "reproduced"]),
        ({"kd-noisymean": 0.9}, ["reproduced", "partly reproduced", "reproduced"]),
        ({"kd-standard": 0.89}, ["partly reproduced", "reproduced", "partly reproduced"]),
        ({"privtree": 0.99, "best": 0.99}, ["reproduced", "reproduced", "reproduced"]),  # not of the paper
    ],
)
def test_one_epsilon_makes_a_claim_partly_reproduced(first: dict[str, float], verdicts: list[str]) -> None:
    rows = made_up_rows(dict(zip(MATCHED_METHODS, (0.91, 0.93, 0.95, 0.9, 0.9), strict=True)), first)
    said = claims(rows)
    assert [claim.verdict for claim in said] == verdicts
    for claim in said:
        assert (MATCH_EPSILONS[0] in claim.because.split(";")[0]) == (claim.verdict == "reproduced")


def test_there_is_a_task_for_each_method_and_epsilon() -> None:
    setting = Setting(np.zeros((0, 4)), PEOPLE_DOMAIN, "none", quick=True)
    made = experiment(setting)
    names = [task.name for task in made.tasks]
    assert len(set(names)) == len(names) == len(MATCHED_METHODS) * len(MATCH_EPSILONS)
    assert "2 × 5,000 records" in made.title
    left, right = made.tasks[0].run.args[:2]  # type: ignore[attr-defined]
    assert len(left) == len(right) == 5000
    assert np.array_equal(left[2500:], right[:2500])  # half of them are the other's too


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(folder.iterdir())}


def format_number(out: str) -> list[str]:
    return [" ".join(line.split()) for line in out.splitlines()]


@pytest.mark.parametrize("adult", [False, True], ids=["made up", "adult"])
def test_a_study_runs_through_and_is_not_done_twice(run, tmp_path: Path, monkeypatch, adult: bool) -> None:
    pytest.importorskip("matplotlib", reason="the extra 'plot' is not installed")
    monkeypatch.setattr(record_matching, "RECORDS_PER_PARTY", 1200)
    words = ["--study", "--quick", "-o", tmp_path / "study"]
    if adult:
        (tmp_path / "adult.data").write_text("\n".join(adult_lines(census(450, 5))))
        words += ["--data", tmp_path / "adult.data"]
    status, out, err = run(*words)
    assert (status, err) == (0, "")
    study = tmp_path / "study"
    made = {path.name for path in study.iterdir()}
    assert {"fig7b.csv", "fig7b.md", "fig7b.png", "fig7b.svg", "index.html", "report.md", "rows"} <= made
    rows = list(csv.DictReader((study / "fig7b.csv").read_text().splitlines()))
    assert len(rows) == len(MATCHED_METHODS) * len(MATCH_EPSILONS) * len(LOSS_SETTINGS) * 2
    assert all(float(row["recall"]) <= 1 and float(row["reduction_ratio"]) <= 1 for row in rows)
    spare = [float(row["recall"]) for row in rows if row["lost"] == "0.01"]
    assert np.mean(spare) > 0.97
    report = (study / "report.md").read_text()
    assert "2 × 300 records" in report
    assert ("the people of adult.data" in report) == adult
    assert "not private" in report

    before = contents(study / "rows")
    assert len(before) == len(MATCHED_METHODS) * len(MATCH_EPSILONS)
    monkeypatch.setattr(record_matching, "match_sides", None)  # nothing is computed again
    status, again, _ = run(*words)
    assert status == 0
    assert contents(study / "rows") == before
    assert format_number(again) == format_number(out)
    assert (study / "report.md").read_text() == report


def test_a_study_goes_on_where_it_was(run, tmp_path: Path, monkeypatch) -> None:
    """A task whose rows are cut short or of another setting is done again, and no other."""
    pytest.importorskip("matplotlib", reason="the extra 'plot' is not installed")
    monkeypatch.setattr(record_matching, "RECORDS_PER_PARTY", 400)
    words = ("--study", "--quick", "-o", tmp_path)
    assert run(*words)[0] == 0
    before = contents(tmp_path / "rows")
    cut, other, gone, *_ = sorted(before)
    (tmp_path / "rows" / cut).write_bytes(before[cut][1][:-9])
    record = json.loads(before[other][1])
    record["mark"]["setting"] = "another"
    (tmp_path / "rows" / other).write_text(json.dumps(record))
    (tmp_path / "rows" / gone).unlink()
    assert run(*words)[0] == 0
    after = contents(tmp_path / "rows")
    assert {name for name in after if after[name] != before[name]} == {cut, other, gone}
    for name in (cut, other, gone):
        then, now = (json.loads(side[name][1])["rows"] for side in (before, after))
        assert [row["reduction_ratio"] for row in then] == [row["reduction_ratio"] for row in now]


def results(folder: Path) -> list[dict[str, str]]:
    rows = csv.DictReader((folder / "fig7b.csv").read_text().splitlines())
    return [{name: value for name, value in row.items() if not name.startswith("time_")} for row in rows]


def test_other_people_in_the_same_folder_give_other_rows(run, tmp_path: Path, monkeypatch) -> None:
    """Files of the same name and length: the people themselves are what counts."""
    pytest.importorskip("matplotlib", reason="the extra 'plot' is not installed")
    monkeypatch.setattr(record_matching, "RECORDS_PER_PARTY", 400)
    monkeypatch.setitem(EXPERIMENTS, "fig7", ("record_matching",))  # times are of no use here
    points = np.random.default_rng(0).random((50, 2)).tolist()
    (tmp_path / "points.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in points))
    words = ("fig7", "--quick", "--data", tmp_path / "points.csv", "-o", tmp_path / "study")
    found = {}
    for seed in (None, 1, 2):
        people = []
        if seed is not None:
            (tmp_path / str(seed)).mkdir()
            people = ["--people", tmp_path / str(seed) / "adult.data"]
            people[1].write_text("\n".join(adult_lines(census(150, seed))))
        status, _, err = run(*words, *people, command="reproduce")
        assert (status, err) == (0, "")
        found[seed] = results(tmp_path / "study")
        report = (tmp_path / "study" / "report.md").read_text()
        assert ("people of the given file" in report) == (seed is not None)
        assert ("generated people" in report) == (seed is None)
    ratios = [[row["reduction_ratio"] for row in rows] for rows in found.values()]
    assert ratios[0] != ratios[1] != ratios[2] != ratios[0]
    assert run(*words, command="reproduce")[0] == 0
    assert results(tmp_path / "study") == found[None]


def test_people_given_are_the_parties_records() -> None:
    people = census(90, 6)
    made = experiment(Setting(np.zeros((0, 4)), PEOPLE_DOMAIN, "none", quick=True, people=people))
    left, right = made.tasks[0].run.args[:2]  # type: ignore[attr-defined]
    assert "2 × 60 records (people of the given file)" in made.title
    both = np.vstack([left, right[30:]])
    assert sorted(map(tuple, both)) == sorted(map(tuple, people))
    assert np.array_equal(left[30:], right[:30])


def test_a_folder_that_cannot_be_made_is_refused(run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    status, _, err = run("--study", "--quick", "-o", tmp_path / "file")
    assert status == 2
    assert "Choose another with -o" in err

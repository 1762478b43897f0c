"""The study's runner, report and command: it remembers what is done, and says what it found."""

from __future__ import annotations

import csv
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from veilmap.cli import app
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.reproduce import EXPERIMENTS, prepare
from veilmap.reproduce.runner import run
from veilmap.reproduce.study import Claim, Experiment, Row, Setting, Table, Task, fingerprint, seed_of

BOX = Domain({"x": (0, 1), "y": (0, 1)})
POINTS = np.random.default_rng(0).random((50, 2))


class Diary:
    """An experiment that writes down what it was asked to do."""

    def __init__(self, tasks: int = 3, fails_at: int | None = None) -> None:
        self.done: list[int] = []
        self.tasks, self.fails_at = tasks, fails_at

    def experiment(self) -> Experiment:
        tasks = [Task(f"task {k}/ä", lambda k=k: self.run(k), cost=k + 1) for k in range(self.tasks)]
        return Experiment("diary", "A <diary> & more", tasks, self.tables, self.draw, self.claims)

    def run(self, k: int) -> list[Row]:
        if k == self.fails_at:
            raise KeyboardInterrupt
        self.done.append(k)
        return [{"task": k, "value": k / 4}]

    def tables(self, rows: list[Row]) -> list[Table]:
        return [Table("Values < all", ["task", "value"], [[str(r["task"]), str(r["value"])] for r in rows])]

    def draw(self, rows: list[Row], folder: Path) -> list[Path]:
        path = folder / "diary.png"
        path.write_bytes(b"picture")
        return [path]

    def claims(self, rows: list[Row]) -> list[Claim]:
        return [Claim("It <works>.", "seen", f"{len(rows)} rows & no fewer.")]


def setting(seed: int = 1) -> Setting:
    return Setting(POINTS, BOX, "random points", seed)


def test_what_is_done_is_remembered(tmp_path):
    diary = Diary()
    first = run([diary.experiment()], setting(), tmp_path)
    assert diary.done == [0, 1, 2]
    assert run([diary.experiment()], setting(), tmp_path) == first
    assert diary.done == [0, 1, 2]
    assert run([diary.experiment()], setting(seed=2), tmp_path) == first  # another setting: all of it again
    assert diary.done == [0, 1, 2] * 2


def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run([Diary(fails_at=2).experiment()], setting(), tmp_path)
    diary = Diary()
    rows = run([diary.experiment()], setting(), tmp_path)
    assert diary.done == [2]
    assert [row["task"] for row in rows["diary"]] == [0, 1, 2]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"mark": 1}', b"\xff\xfe"])
def test_a_damaged_memory_is_made_anew(tmp_path, damage):
    diary = Diary(tasks=1)
    run([diary.experiment()], setting(), tmp_path)
    (file,) = (tmp_path / "rows").iterdir()
    file.write_bytes(damage)
    run([diary.experiment()], setting(), tmp_path)
    assert diary.done == [0, 0]
    assert json.loads(file.read_text())["rows"] == [{"task": 0, "value": 0.0}]


def test_progress_goes_by_cost(tmp_path):
    told: list[float] = []
    run([Diary().experiment()], setting(), tmp_path, lambda part, what: told.append(part))
    assert told == pytest.approx([0, 1 / 6, 3 / 6, 1])


def test_the_report_says_it_all(tmp_path):
    run([Diary().experiment()], setting(), tmp_path)
    markdown = (tmp_path / "report.md").read_text()
    assert "![A <diary> & more](diary.png)" in markdown
    assert "| 2 | 0.5 |" in markdown
    assert "- It <works>. **Seen**: 3 rows & no fewer." in markdown
    assert "not private" in markdown
    page = (tmp_path / "index.html").read_text()
    HTMLParser().feed(page)
    assert "<h2 id='diary'>A &lt;diary&gt; &amp; more</h2>" in page
    assert "It &lt;works&gt;. <b>Seen</b>: 3 rows &amp; no fewer." in page
    assert (tmp_path / "diary.md").read_text().startswith("Values < all")
    with open(tmp_path / "diary.csv", newline="") as file:
        assert list(csv.DictReader(file)) == [{"task": str(k), "value": str(k / 4)} for k in range(3)]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="Cannot make the folder"):
        run([Diary().experiment()], setting(), tmp_path / "file" / "below")


def test_fingerprints_change_with_what_matters():
    marks = {
        fingerprint(s)
        for s in (
            setting(),
            setting(2),
            Setting(POINTS + 1e-9, BOX, "random points", 1),
            Setting(POINTS, BOX, "other points", 1),
            Setting(POINTS, BOX, "random points", 1, quick=True),
            Setting(POINTS, Domain({"x": (0, 2), "y": (0, 1)}), "random points", 1),
        )
    }
    assert len(marks) == 6
    assert fingerprint(setting()) == fingerprint(setting())
    assert seed_of(1, "a") != seed_of(1, "b") != seed_of(2, "b")


def test_every_figure_of_the_paper_is_there():
    assert list(EXPERIMENTS) == ["fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "rivals"]
    _, experiments = prepare(list(EXPERIMENTS), None, None, None, 2012, quick=True)
    names = [experiment.name for experiment in experiments]
    assert names == ["fig2", "fig3", "fig4", "fig5", "fig6", "fig7a", "fig7b", "rivals"]
    for experiment in experiments:
        tasks = [task.name for task in experiment.tasks]
        assert tasks
        assert len(set(tasks)) == len(tasks)


def test_the_command_runs_a_figure_on_points_of_ones_own(tmp_path):
    (tmp_path / "points.csv").write_text("lon,lat\n" + "".join(f"{x},{y}\n" for x, y in POINTS.tolist()))
    arguments = ["reproduce", "fig2", "--quick", "--data", str(tmp_path / "points.csv"), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "seen" in result.output
    for name in ("index.html", "report.md", "fig2.csv", "fig2.md", "fig2.png", "fig2.svg"):
        assert (tmp_path / "out" / name).stat().st_size > 100
    assert "points.csv" in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fig8"], "The study has no 'fig8'"),
        (["fig2", "--data", "nowhere.csv"], "nowhere.csv"),
        (["fig2", "--domain", "lon=3:1"], "lon"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(tmp_path, arguments, sentence):
    result = CliRunner().invoke(app, ["reproduce", *arguments, "--quick", "-o", str(tmp_path / "out")])
    assert isinstance(result.exception, BadInput)
    assert sentence in str(result.exception)
    assert not (tmp_path / "out").exists()

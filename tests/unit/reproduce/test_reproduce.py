"""The study's runner, report and command: it remembers what is done, and says what it found."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from veilmap.domain import Domain
from veilmap.errors import BadInput, MissingExtra
from veilmap.reproduce import EXPERIMENTS, budgets, figures, prepare, runner
from veilmap.reproduce.runner import run
from veilmap.reproduce.study import Claim, Experiment, Row, Setting, Table, Task, fingerprint, seed_of

pytest.importorskip("matplotlib", reason="the extra 'plot' is not installed")

BOX = Domain({"x": (0, 1), "y": (0, 1)})
POINTS = np.random.default_rng(0).random((50, 2))


class Diary:
    """An experiment that writes down what it was asked to do."""

    def __init__(self, tasks: int = 3, fails_at: int | None = None, name: str = "diary") -> None:
        self.done: list[int] = []
        self.tasks, self.fails_at, self.name = tasks, fails_at, name

    def experiment(self) -> Experiment:
        tasks = [Task(f"task {k}/ä", lambda k=k: self.run(k), cost=k + 1) for k in range(self.tasks)]
        return Experiment(
            self.name, f"A <{self.name}> & more", tasks, self.tables, self.draw, self.claims, "Set up with < care."
        )

    def run(self, k: int) -> list[Row]:
        if k == self.fails_at:
            raise KeyboardInterrupt
        self.done.append(k)
        return [{"task": k, "value": k / 4}]

    def tables(self, rows: list[Row]) -> list[Table]:
        body = [[f"no. {r['task']}", str(r["task"]), f"{r['value']} (0–1)"] for r in rows]
        return [Table("Values < all", ["name", "task", "value"], body)]

    def draw(self, rows: list[Row], folder: Path) -> list[Path]:
        path = folder / f"{self.name}.png"
        path.write_bytes(b"picture")
        return [path]

    def claims(self, rows: list[Row]) -> list[Claim]:
        return [Claim("It <works>.", "reproduced", f"{len(rows)} rows & no fewer.")]


def setting(seed: int = 1) -> Setting:
    return Setting(POINTS, BOX, "random points", seed)


def no_map(seed: int = 1) -> Setting:
    """Points that take no time to draw."""
    return Setting(POINTS[:, :1], Domain({"x": (0, 1)}), "random points", seed)


def test_what_is_done_is_remembered(tmp_path):
    diary = Diary()
    first = run([diary.experiment()], no_map(), tmp_path)
    assert diary.done == [0, 1, 2]
    assert run([diary.experiment()], no_map(), tmp_path) == first
    assert diary.done == [0, 1, 2]
    assert run([diary.experiment()], no_map(seed=2), tmp_path) == first  # another setting: all of it again
    assert diary.done == [0, 1, 2] * 2


def test_rows_of_other_code_are_not_served(tmp_path, monkeypatch):
    diary, other = Diary(), Diary(name="other")
    run([diary.experiment(), other.experiment()], no_map(), tmp_path)
    monkeypatch.setattr(runner, "_software", lambda: "1.0 other code")
    rows = run([diary.experiment()], no_map(), tmp_path, others=[other.experiment()])
    assert list(rows) == ["diary"]
    assert (diary.done, other.done) == ([0, 1, 2] * 2, [0, 1, 2])
    run([diary.experiment()], no_map(), tmp_path)
    assert diary.done == [0, 1, 2] * 2


def test_software_is_known_by_its_code(tmp_path, monkeypatch):
    (tmp_path / "part").mkdir()
    for name in ("__init__.py", "part/a.py"):
        (tmp_path / name).write_text("a = 1\n")
    monkeypatch.setattr(runner.veilmap, "__file__", str(tmp_path / "__init__.py"))
    mark = runner._software.__wrapped__
    first = mark()
    assert mark() == first
    (tmp_path / "part" / "a.py").write_text("a = 2\n")
    assert mark() != first


def page_of(folder: Path) -> tuple[str, str]:
    return (folder / "index.html").read_text(), (folder / "report.md").read_text()


def test_a_page_keeps_what_the_folder_has_of_the_same_setting(tmp_path):
    first, second, half = Diary(name="first"), Diary(name="second"), Diary(name="half")
    run([second.experiment()], no_map(), tmp_path)
    table = (tmp_path / "second.csv").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        run([Diary(name="half", fails_at=1).experiment()], no_map(), tmp_path)
    others = [second.experiment(), half.experiment()]
    rows = run([first.experiment()], no_map(), tmp_path, others=others)
    assert list(rows) == ["first", "second"]  # what is not there to the end is not shown
    assert (second.done, half.done) == ([0, 1, 2], [])
    for page in page_of(tmp_path):
        assert page.index("first") < page.index("second")
        assert "half" not in page
    assert (tmp_path / "second.csv").read_bytes() == table

    rows = run([first.experiment()], no_map(seed=2), tmp_path, others=others)
    assert list(rows) == ["first"]
    assert second.done == [0, 1, 2]
    for page in page_of(tmp_path):
        assert "first" in page
        assert "second" not in page
    assert list(run([first.experiment()], no_map(), tmp_path, others=others)) == ["first", "second"]


def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run([Diary(fails_at=2).experiment()], no_map(), tmp_path)
    diary = Diary()
    rows = run([diary.experiment()], no_map(), tmp_path)
    assert diary.done == [2]
    assert [row["task"] for row in rows["diary"]] == [0, 1, 2]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"mark": 1}', b"\xff\xfe"])
def test_a_damaged_memory_is_made_anew(tmp_path, damage):
    diary = Diary(tasks=1)
    run([diary.experiment()], no_map(), tmp_path)
    (file,) = (tmp_path / "rows").iterdir()
    file.write_bytes(damage)
    run([diary.experiment()], no_map(), tmp_path)
    assert diary.done == [0, 0]
    assert json.loads(file.read_text())["rows"] == [{"task": 0, "value": 0.0}]


def test_progress_goes_by_cost(tmp_path):
    told: list[float] = []
    run([Diary().experiment()], no_map(), tmp_path, lambda part, what: told.append(part))
    assert told == pytest.approx([0, 1 / 6, 3 / 6, 1])


def test_progress_is_of_what_is_left(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run([Diary(fails_at=1).experiment()], no_map(), tmp_path)
    told: list[tuple[float, str]] = []
    for _ in range(2):
        run([Diary().experiment()], no_map(), tmp_path, lambda part, what: told.append((part, what)))
    done = (1.0, "pictures")
    assert told == [(0.0, "diary task 1/ä"), (pytest.approx(2 / 5), "diary task 2/ä"), done, done]


class Tags(HTMLParser):
    """What is opened must be closed, the last first."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_an_experiment_without_notes_has_no_empty_line_for_them(tmp_path):
    run([replace(Diary().experiment(), notes="")], no_map(), tmp_path)
    page, markdown = page_of(tmp_path)
    assert "<p></p>" not in page
    assert "\n\n\n" not in markdown


def test_the_report_says_it_all(tmp_path):
    run([Diary().experiment()], setting(), tmp_path)
    markdown = (tmp_path / "report.md").read_text()
    assert "![A <diary> & more](diary.png)" in markdown
    assert "|---|---:|---:|\n" in markdown
    assert "| no. 2 | 2 | 0.5 (0–1) |" in markdown
    assert "\n\nSet up with < care.\n\n" in markdown
    assert "- It <works>. **Reproduced**: 3 rows & no fewer." in markdown
    assert "not private" in markdown
    page = (tmp_path / "index.html").read_text()
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert '<meta name="viewport" content="width=device-width">' in page
    assert '<div class="wide"><table><thead><tr><th>name</th><th class="number">task</th>' in page
    assert '<td>no. 2</td><td class="number">2</td><td class="number">0.5 (0–1)</td>' in page
    assert "<p>Set up with &lt; care.</p>" in page
    assert "<h2 id='diary'>A &lt;diary&gt; &amp; more</h2>" in page
    assert "It &lt;works&gt;. <b>Reproduced</b>: 3 rows &amp; no fewer." in page
    assert (tmp_path / "diary.md").read_text().startswith("Values < all")
    with open(tmp_path / "diary.csv", newline="") as file:
        assert list(csv.DictReader(file)) == [{"task": str(k), "value": str(k / 4)} for k in range(3)]


def test_matplotlib_is_asked_for_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    diary = Diary()
    with pytest.raises(MissingExtra, match=r"The study needs the package matplotlib: pip install 'veilmap\[plot\]'"):
        run([diary.experiment()], no_map(), tmp_path / "out")
    assert diary.done == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["some.png", "some.svg"])
def test_a_picture_that_cannot_be_written_is_refused(tmp_path, name):
    (tmp_path / name).mkdir()
    with (
        pytest.raises(BadInput, match=rf"^Cannot write '.*{name}': [^.]*\. [^.]*\.$"),
        figures.drawing(tmp_path, "some", 1) as (axes,),
    ):
        axes.plot([1, 2])
    assert not list(tmp_path.glob(".*"))  # nothing half done is left


def test_a_picture_is_there_as_a_whole_or_as_it_was(tmp_path):
    (tmp_path / "some.png").write_bytes(b"before")
    with pytest.raises(ZeroDivisionError), figures.drawing(tmp_path, "some", 1):
        _ = 1 / 0
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("some.png", b"before")]


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
            Setting(POINTS, BOX, "random points", 1, people=POINTS),
            Setting(POINTS, BOX, "random points", 1, people=POINTS[::-1]),
            Setting(POINTS, BOX, "random points", 1, people=POINTS.reshape(-1, 4)),
            Setting(POINTS[:-1], BOX, "random points", 1, people=POINTS[-1:]),
        )
    }
    assert len(marks) == 10
    assert fingerprint(setting()) == fingerprint(setting())
    assert seed_of(1, "a") != seed_of(1, "b") != seed_of(2, "b")


def test_every_figure_of_the_paper_is_there():
    assert list(EXPERIMENTS) == ["fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "rivals"]
    prepared, found = prepare(None, None, None, 2012, quick=True)
    assert (prepared.seed, prepared.quick, prepared.people) == (2012, True, None)
    names = {name: [experiment.name for experiment in experiments] for name, experiments in found.items()}
    assert names == {name: [name] for name in EXPERIMENTS} | {"fig7": ["fig7a", "fig7b"]}
    for experiment in [experiment for experiments in found.values() for experiment in experiments]:
        tasks = [task.name for task in experiment.tasks]
        assert tasks
        assert len(set(tasks)) == len(tasks)
        assert experiment.notes == "" or experiment.notes.endswith(".")


@pytest.fixture
def reproduce(run, tmp_path, monkeypatch):
    """``veilmap reproduce`` on a few points, quick: its status, output and errors."""
    (tmp_path / "points.csv").write_text("lon,lat\n" + "".join(f"{x},{y}\n" for x, y in POINTS.tolist()))
    monkeypatch.chdir(tmp_path)
    return partial(run, "reproduce", "--quick", "--data", "points.csv", "-o", "out")


def test_the_command_runs_a_figure_on_points_of_ones_own(reproduce, tmp_path, monkeypatch):
    monkeypatch.setattr(budgets, "TREE_HEIGHTS", range(5, 8))
    status, out, err = reproduce("fig2", "fig2")
    assert (status, err) == (0, "")
    assert out.count("Figure 2") == 1
    assert "reproduced" in out
    for name in ("index.html", "report.md", "fig2.csv", "fig2.md", "fig2.png", "fig2.svg"):
        assert (tmp_path / "out" / name).stat().st_size > 100
    assert "points.csv" in (tmp_path / "out" / "report.md").read_text()


def test_a_picture_that_cannot_be_written_is_one_sentence_and_costs_no_rows(reproduce, tmp_path, monkeypatch):
    monkeypatch.setattr(budgets, "TREE_HEIGHTS", range(5, 7))
    (tmp_path / "out" / "fig2.png").mkdir(parents=True)
    status, out, err = reproduce("fig2")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("veilmap: Cannot write 'out/fig2.png': ")
    (tmp_path / "out" / "fig2.png").rmdir()
    monkeypatch.setattr(budgets, "run", interrupted)  # nothing is computed again
    assert reproduce("fig2")[0] == 0


def interrupted(h: int) -> list[Row]:
    raise KeyboardInterrupt


def test_an_interrupted_command_says_how_to_go_on(reproduce, monkeypatch):
    monkeypatch.setattr(budgets, "run", interrupted)
    assert reproduce("fig2") == (
        130,
        "",
        "veilmap: Interrupted. Run the same command with -o out to continue.\n",
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fig8"], "There is no experiment 'fig8'"),
        (["fig2", "--data", "nowhere.csv"], "nowhere.csv"),
        (["fig2", "--domain", "lon=3:1,lat=0:1"], "lon"),
        (["fig2", "--domain", "lon=0:1"], "The study needs a domain with two axes, got 1."),
        (["fig2", "--domain", "a=0:1,b=0:1,c=0:1"], "The study needs a domain with two axes, got 3."),
        (
            ["fig2", "rivals", "--people", "adult.data"],
            "--people is for record matching (fig7), which was not chosen. Leave",
        ),
        (["fig7", "--people", "adult.data"], "Cannot read adult.data: No such file or directory."),
        (["--people", "points.csv"], "points.csv has no column"),
        (["fig2", "--seed", "-1"], "Invalid value for '--seed'"),
        (["fig2", "--seed", "one"], "Invalid value for '--seed'"),
        (["fig2", "-o", "points.csv/below"], "Cannot make the folder points.csv/below: Not a directory."),
    ],
)
def test_bad_input_is_refused_with_a_sentence(reproduce, tmp_path, arguments, sentence):
    status, out, err = reproduce(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("veilmap: ")
    assert sentence in err
    assert [path.name for path in tmp_path.iterdir()] == ["points.csv"]


def test_a_domain_of_one_axis_is_refused_without_data_too():
    with pytest.raises(BadInput, match="The study needs a domain with two axes, got 1"):
        prepare(None, "x=0:1", None, 1, quick=True)

"""Runs experiments into a folder: what is done is remembered, so that an interrupted run goes on where it was."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

import veilmap
from veilmap.errors import BadInput, need
from veilmap.files.atomic_writes import write_atomically
from veilmap.files.csv_cells import safe_cells
from veilmap.reproduce.report import write_report
from veilmap.reproduce.study import Experiment, Row, Setting, Task, fingerprint

__all__ = ["run"]


def run(
    experiments: Sequence[Experiment],
    setting: Setting,
    folder: Path,
    progress: Callable[[float, str], None] = lambda part, what: None,
    others: Sequence[Experiment] = (),
) -> dict[str, list[Row]]:
    """Every task of every experiment; then tables, pictures and one report. Gives the rows of each experiment.

    ``others`` are in the report too, if the folder remembers all of them.
    """
    need("matplotlib", "plot", "The study")  # before hours of work
    try:
        (folder / "rows").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"Cannot make the folder {folder}: {error.strerror}. Choose another with -o.") from None
    memory = Memory(folder / "rows", {"setting": fingerprint(setting), "software": _software()})
    todo = [(e, task) for e in experiments for task in e.tasks if memory.rows(e, task) is None]
    total, done = sum(task.cost for _, task in todo), 0.0
    for experiment, task in todo:
        progress(done / total, f"{experiment.name} {task.name}")
        memory.keep(experiment, task, task.run())
        done += task.cost
    progress(1.0, "pictures")
    remembered = [e for e in others if all(memory.rows(e, task) is not None for task in e.tasks)]
    shown = sorted([*experiments, *remembered], key=lambda e: e.name)
    rows = {e.name: [row for task in e.tasks for row in memory.rows(e, task) or []] for e in shown}
    for experiment in experiments:
        _write_csv(folder / f"{experiment.name}.csv", rows[experiment.name])
    write_report(shown, rows, setting, folder)
    return rows


class Memory:
    """The rows of tasks that are done, each in a file; of no use once something they depend on has changed."""

    def __init__(self, folder: Path, mark: dict[str, str]) -> None:
        self._folder, self._mark = folder, mark

    def rows(self, experiment: Experiment, task: Task) -> list[Row] | None:
        try:
            known = json.loads(self._path(experiment, task).read_text("utf-8"))
            return list(known["rows"]) if known["mark"] == self._mark else None
        except (OSError, ValueError, KeyError, TypeError):
            return None  # not done yet, or not to the end

    def keep(self, experiment: Experiment, task: Task, rows: list[Row]) -> None:
        write_atomically(self._path(experiment, task), json.dumps({"mark": self._mark, "rows": rows}).encode())

    def _path(self, experiment: Experiment, task: Task) -> Path:
        plain = re.sub(r"[^A-Za-z0-9.]+", "-", f"{experiment.name} {task.name}")
        return self._folder / f"{plain}-{hashlib.sha256(task.name.encode()).hexdigest()[:8]}.json"


@cache
def _software() -> str:
    """The version, and what the code is: rows of other code are not mixed with those of this."""
    code = hashlib.sha256()
    for path in sorted(Path(veilmap.__file__).parent.rglob("*.py")):
        code.update(path.read_bytes())
    return f"{version('veilmap')} {code.hexdigest()}"


def _write_csv(path: Path, rows: list[Row]) -> None:
    header = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(map(safe_cells, [header, *([row.get(name, "") for name in header] for row in rows)]))
    write_atomically(path, text.getvalue().encode())

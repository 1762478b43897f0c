"""Run experiments into a folder. Finished tasks are stored there, so that an interrupted run can be resumed."""

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
    progress: Callable[[float, str], None] = lambda fraction, task: None,
    others: Sequence[Experiment] = (),
) -> dict[str, list[Row]]:
    """Run all tasks, write tables, pictures and the report, and return the rows of each experiment.

    Experiments in ``others`` are not run, but are in the report if the folder contains all of their rows.
    """
    need("matplotlib", "plot", "The study")  # checked before the work begins, which may take long
    try:
        (folder / "rows").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"Cannot make the folder {folder}: {error.strerror}. Choose another with -o.") from None
    stored = RowCache(folder / "rows", {"setting": fingerprint(setting), "software": _software()})
    todo = [(e, task) for e in experiments for task in e.tasks if stored.rows(e, task) is None]
    total, done = sum(task.cost for _, task in todo), 0.0
    for experiment, task in todo:
        progress(done / total, f"{experiment.name} {task.name}")
        stored.store(experiment, task, task.run())
        done += task.cost
    progress(1.0, "pictures")
    finished = [e for e in others if all(stored.rows(e, task) is not None for task in e.tasks)]
    reported = sorted([*experiments, *finished], key=lambda e: e.name)
    rows = {e.name: [row for task in e.tasks for row in stored.rows(e, task) or []] for e in reported}
    for experiment in experiments:
        _write_csv(folder / f"{experiment.name}.csv", rows[experiment.name])
    write_report(reported, rows, setting, folder)
    return rows


class RowCache:
    """The rows of finished tasks, one file per task. Rows of another setting or version are ignored."""

    def __init__(self, folder: Path, mark: dict[str, str]) -> None:
        self._folder, self._mark = folder, mark

    def rows(self, experiment: Experiment, task: Task) -> list[Row] | None:
        """Return the rows of a task, or None if it is not finished."""
        try:
            known = json.loads(self._path(experiment, task).read_text("utf-8"))
            return list(known["rows"]) if known["mark"] == self._mark else None
        except (OSError, ValueError, KeyError, TypeError):
            return None  # not started, or written only in part

    def store(self, experiment: Experiment, task: Task, rows: list[Row]) -> None:
        """Store the rows of a finished task."""
        write_atomically(self._path(experiment, task), json.dumps({"mark": self._mark, "rows": rows}).encode())

    def _path(self, experiment: Experiment, task: Task) -> Path:
        safe_name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{experiment.name} {task.name}")
        return self._folder / f"{safe_name}-{hashlib.sha256(task.name.encode()).hexdigest()[:8]}.json"


@cache
def _software() -> str:
    """Return the version and a hash of the code, so that rows made by other code are not reused."""
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

"""Runs experiments into a folder: what is done is remembered, so that an interrupted run goes on where it was."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from veilmap.errors import BadInput
from veilmap.fileformat import put_in_place
from veilmap.reproduce.report import write_report
from veilmap.reproduce.study import Experiment, Row, Setting, Task, fingerprint

__all__ = ["run"]


def run(
    experiments: Sequence[Experiment],
    setting: Setting,
    folder: Path,
    progress: Callable[[float, str], None] = lambda part, what: None,
) -> dict[str, list[Row]]:
    """Every task of every experiment; then tables, pictures and one report. Gives the rows of each experiment."""
    try:
        (folder / "rows").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"Cannot make the folder {folder}: {error.strerror}. Choose another with -o.") from None
    mark = {"setting": fingerprint(setting), "software": version("veilmap")}
    todo = [(experiment, task) for experiment in experiments for task in experiment.tasks]
    total, done = sum(task.cost for _, task in todo), 0.0
    rows: dict[str, list[Row]] = {experiment.name: [] for experiment in experiments}
    for experiment, task in todo:
        progress(done / total, f"{experiment.name} {task.name}")
        rows[experiment.name] += _remembered(experiment, task, mark, folder / "rows")
        done += task.cost
    for experiment in experiments:
        _write_csv(folder / f"{experiment.name}.csv", rows[experiment.name])
    progress(1.0, "pictures")
    write_report(experiments, rows, setting, folder)
    return rows


def _remembered(experiment: Experiment, task: Task, mark: dict[str, str], folder: Path) -> list[Row]:
    """The rows of a task, from the last time if nothing they depend on has changed."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", f"{experiment.name} {task.name}")
    path = folder / f"{plain}-{hashlib.sha256(task.name.encode()).hexdigest()[:8]}.json"
    try:
        known = json.loads(path.read_text("utf-8"))
        if known["mark"] == mark:
            return list(known["rows"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not done yet, or not to the end
    started = time.perf_counter()
    rows = task.run()
    record = {"mark": mark, "seconds": time.perf_counter() - started, "rows": rows}
    put_in_place(path, json.dumps(record).encode())
    return rows


def _write_csv(path: Path, rows: list[Row]) -> None:
    header = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    put_in_place(path, text.getvalue().encode())

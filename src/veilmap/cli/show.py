"""How the commands print: lines, tables, and a bar for work that takes long."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import typer


class Format(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def say(text: str) -> None:
    typer.echo(text)


def print_csv(header: list[str], rows: list[list[Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)


def print_table(header: list[str], rows: list[list[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    for k, name in enumerate(header):
        table.add_column(Text(name), justify="left" if k == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


@contextmanager
def progress(what: str) -> Iterator[Callable[[float], None]]:
    """A bar on standard error for work of more than a second: the part done, never a count."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task, started = bar.add_task(what, total=1.0), time.monotonic()

    def tell(part: float) -> None:
        if bar.console.is_terminal and time.monotonic() - started > 1:
            bar.start()
        bar.update(task, completed=part)

    try:
        yield tell
    finally:
        if bar.live.is_started:
            bar.stop()

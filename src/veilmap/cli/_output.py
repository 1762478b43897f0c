"""How commands print: lines, tables, CSV, and a progress bar for slow work."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

from veilmap.files.csv_cells import safe_cells

if TYPE_CHECKING:
    from veilmap.releases.release import Release

SECONDS_BEFORE_BAR = 1
SECONDS_BETWEEN_LINES = 30  # of progress, where standard error is not a terminal


class Format(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def say(text: str) -> None:
    typer.echo(text)


def warn_if_not_private(release: Release) -> None:
    """Print a warning on standard error if a release is not private."""
    if not release.privacy.private:
        typer.echo(f"veilmap: {release.privacy.statement()}", err=True)


def print_csv(header: list[str], rows: list[list[Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows(map(safe_cells, [header, *rows]))


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
def progress(task_name: str, size: int = 0) -> Iterator[Callable[..., None]]:
    """Show a progress bar on standard error for work of more than a second. Yield the function that advances it.

    The bar shows the fraction done and never a number of rows, which would be a private count. When the fraction falls,
    a new pass over the data has begun. The first pass reads files of ``size`` bytes in all, and the bar shows its speed
    in bytes. Without a terminal, slow work prints a line every 30 seconds.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task, started = bar.add_task(task_name, total=1.0), time.monotonic()
    pass_started = last_line = started
    done, pass_number = 0.0, 1

    def tell(fraction: float, activity: str = "") -> None:
        nonlocal pass_started, last_line, done, pass_number
        now = time.monotonic()
        if fraction < done:
            pass_started, pass_number = now, pass_number + 1
            bar.reset(task)
        done = fraction
        seconds = now - pass_started
        description = f"{task_name} {activity}".rstrip() if pass_number == 1 else f"{task_name}, pass {pass_number}"
        if size and pass_number == 1 and seconds > 0:
            description += f", {size * fraction / seconds / 1e6:,.0f} MB/s"
        if bar.console.is_terminal and now - started > SECONDS_BEFORE_BAR:
            bar.start()
        elif now - last_line > SECONDS_BETWEEN_LINES and fraction > 0:
            last_line = now
            left = seconds * (1 - fraction) / fraction
            time_left = f"{left / 60:.0f} minutes" if left > 120 else f"{left:.0f} seconds"
            typer.echo(f"{description}: {100 * fraction:.0f} % done, about {time_left} left", err=True)
        bar.update(task, completed=fraction, description=description)

    try:
        yield tell
    finally:
        if bar.live.is_started:
            bar.stop()

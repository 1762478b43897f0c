"""How the commands print: lines, tables, and a bar for work that takes long."""

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

SECONDS_A_LINE = 30


class Format(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def say(text: str) -> None:
    typer.echo(text)


def warn(found: Release) -> None:
    """Of a release that is not private."""
    if not found.privacy.private:
        typer.echo(f"veilmap: {found.privacy.statement()}", err=True)


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
def progress(what: str, size: int = 0) -> Iterator[Callable[..., None]]:
    """A bar on standard error for work of more than a second: the part done, never a count.

    Work that begins anew goes through everything once more. The first time is a reading of files of a ``size`` in
    bytes: it shows how fast, in bytes, since a number of rows would be one that is published nowhere. Where there is
    no terminal, work of minutes says now and then how far it is.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task, started = bar.add_task(what, total=1.0), time.monotonic()
    begun = last = started
    done, nth = 0.0, 1

    def tell(part: float, doing: str = "") -> None:
        nonlocal begun, last, done, nth
        now = time.monotonic()
        if part < done:
            begun, nth = now, nth + 1
            bar.reset(task)
        done = part
        where = f"{what} {doing}".rstrip() if nth == 1 else f"{what}, pass {nth}"
        speed = f", {size * part / (now - begun) / 1e6:,.0f} MB a second" if size and nth == 1 and now > begun else ""
        if bar.console.is_terminal and now - started > 1:
            bar.start()
        elif now - last > SECONDS_A_LINE and part > 0:
            last = now
            left = (now - begun) * (1 - part) / part
            time_left = f"{left / 60:.0f} minutes" if left > 120 else f"{left:.0f} seconds"
            typer.echo(f"{where}: {100 * part:.0f} % done{speed}, about {time_left} left", err=True)
        bar.update(task, completed=part, description=where + speed)

    try:
        yield tell
    finally:
        if bar.live.is_started:
            bar.stop()

"""Count the points in zones, for `veilmap query --zones`, and print or write the answers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from veilmap.cli._output import Format, print_csv, print_table, say
from veilmap.errors import BadInput, printable

if TYPE_CHECKING:
    from veilmap.answers.answerer import Answers
    from veilmap.releases.release import Release

MAX_ZONE_COLUMNS_IN_TABLE = 3  # of the zones' own columns; more would not fit on a screen


def query_zones(
    release: Release,
    path: Path,
    layer: str | None,
    make_valid: bool,
    confidence: float,
    output: Format,
    out: Path | None,
    overwrite: bool,
) -> None:
    """Count the points in the zones of a file. Print the answers, or write them with the zones to ``out``."""
    from veilmap.answers.zone_files import add_answers, must_be_writable, read_zones, write_zones

    if out is not None:
        must_be_writable(out)
        if out.exists() and path.exists() and out.samefile(path):
            raise BadInput(f"{out} is the file of zones and would be lost. Choose another name for the counts.")
    zones = read_zones(path, layer, make_valid)
    answers = release.count(zones, confidence)
    frame, added = add_answers(zones, answers)
    if release.privacy.private and len(frame) and not (answers.estimate.any() or answers.stderr.any()):
        typer.echo(
            f"veilmap: warning: No zone overlaps the domain, {release.domain}. Check that x and y are in this order.",
            err=True,
        )
    if out is not None:
        write_zones(frame, out, release.privacy.statement(), overwrite)
        say(f"Wrote {out}: {len(frame):,} zones with {', '.join(added)}.")
        return
    print_zones(frame, added, answers, release.privacy.private, output)


def print_zones(frame: Any, added: list[str], answers: Answers, private: bool, output: Format) -> None:
    """Print the zones' columns and the ``added`` columns of the answers, without geometries."""
    table = frame.drop(columns=frame.geometry.name)
    names = [str(name) for name in table.columns]
    rows = [[_json_value(value) for value in row] for row in table.itertuples(index=False)]
    if output is Format.JSON:
        record = {"confidence": answers.confidence, "private": private}
        typer.echo(json.dumps({**record, "answers": [dict(zip(names, row, strict=True)) for row in rows]}, indent=2))
    elif output is Format.CSV:
        print_csv(names, rows)
    else:
        own = names[: len(names) - len(added)][:MAX_ZONE_COLUMNS_IN_TABLE]
        print_table(
            ["zone", *map(printable, own), "estimate", "standard error", f"{100 * answers.confidence:g} % interval"],
            [
                [
                    str(k),
                    *("" if value is None else printable(str(value)) for value in row[: len(own)]),
                    f"{row[-4]:,.1f}",
                    f"{row[-3]:,.1f}",
                    f"{row[-2]:,.1f} to {row[-1]:,.1f}",
                ]
                for k, row in enumerate(rows)
            ],
        )


def _json_value(value: Any) -> Any:
    """Convert a value of a data frame to JSON: missing values to null, other types than numbers to text."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    text = str(value)
    return None if text in ("NaT", "<NA>") else text

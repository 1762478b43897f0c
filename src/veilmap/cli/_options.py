"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilmap.cli._output import Format
from veilmap.errors import BadInput

DomainOption = Annotated[
    str, typer.Option("--domain", help="The public box: name=low:high for each axis, separated by commas.")
]
EpsilonOption = Annotated[str, typer.Option("--epsilon", help="The privacy budget: how much any one row may matter.")]
MethodOption = Annotated[str | None, typer.Option("--method", help="How to decompose; best by default.")]
NoiseOption = Annotated[
    str | None, typer.Option("--noise", help="discrete-laplace, or discrete-gaussian with a --delta.")
]
EstimateOption = Annotated[
    str | None,
    typer.Option("--estimate", help="noisy-counts, least-squares, shrink or nonnegative: costs no privacy."),
]
DeltaOption = Annotated[
    str | None, typer.Option("--delta", help="The chance that the promise may fail with, for methods that need one.")
]
SampleOption = Annotated[
    str | None, typer.Option("--sample", help="Find medians on a random sample of this rate, like 0.01.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A further option of the method, like switch=2. May be repeated."),
]
WorkloadOption = Annotated[
    Path | None,
    typer.Option("--workload", help="A CSV file of boxes that people will ask: the budget is shared for them."),
]
RowsOption = Annotated[
    int | None, typer.Option("--max-rows-per-unit", help="How many rows of one person are looked at, with --unit.")
]
HeightOption = Annotated[
    int | None,
    typer.Option("--height", help="Levels below the root, for methods that have a height; chosen when not given."),
]
LedgerOption = Annotated[Path, typer.Option("--ledger", envvar="VEILMAP_LEDGER", help="The ledger file.")]
USUAL_LEDGER = Path("veilmap-ledger.db")
OneRowOption = Annotated[
    bool,
    typer.Option(
        "--one-row-per-unit",
        help="State, for the ledger to record, that each unit of the data set has at most one row here.",
    ),
]
DatasetArgument = Annotated[str, typer.Argument(metavar="NAME", help="The data set.", show_default=False)]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print.")]
ReleaseArgument = Annotated[Path, typer.Argument(metavar="RELEASE", help="A release file.", show_default=False)]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace a file that exists.")]
BoxOption = Annotated[
    list[str] | None,
    typer.Option("--box", help="Low end of each axis, then high end of each, with commas. May be repeated."),
]


def must_have_folder(path: Path) -> None:
    """Refuse a place for a file where there is no folder for it."""
    if not path.resolve().parent.is_dir():
        raise BadInput(f"The folder of {path} does not exist: make it first.")


def must_be_free(out: Path, source: Path, overwrite: bool) -> None:
    """Refuse a place for what is made of a release that cannot or should not be written."""
    must_have_folder(out)
    if not out.exists():
        return
    if source.exists() and out.samefile(source):
        raise BadInput(f"{out} is the release itself, and would be lost: choose another name.")
    if not overwrite:
        raise BadInput(f"{out} exists already: choose another name, or add --overwrite.")


def typed_settings(texts: list[str] | None) -> dict[str, object] | None:
    """Options of a structure, as typed: numbers where they look like it."""
    pairs = [text.partition("=") for text in texts or []]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise BadInput(f"An option of a method is name=value, like switch=2; got {name + equals + value!r}.")
    return {name: int(value) if value.isdecimal() and len(value) < 20 else value for name, _, value in pairs} or None

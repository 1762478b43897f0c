"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilmap.cli._output import Format
from veilmap.errors import BadInput

DEFAULT_LEDGER = Path("veilmap-ledger.db")
MAX_DIGITS_OF_INTEGER_SETTING = 19  # longer ones stay text: int() raises on very long ones

DomainOption = Annotated[
    str,
    typer.Option(
        "--domain", help="The public bounding box of the data: name=low:high for each axis, separated by commas."
    ),
]
EpsilonOption = Annotated[
    str, typer.Option("--epsilon", help="The privacy budget. Smaller values protect more and add more noise.")
]
MethodOption = Annotated[
    str | None, typer.Option("--method", help="The decomposition method; 'best' if not given.", show_default=False)
]
NoiseOption = Annotated[
    str | None, typer.Option("--noise", help="discrete-laplace, or discrete-gaussian, which needs --delta.")
]
EstimateOption = Annotated[
    str | None,
    typer.Option(
        "--estimate",
        help="How to post-process the noisy counts: noisy-counts, least-squares, shrink or nonnegative. "
        "This uses no privacy budget.",
    ),
]
DeltaOption = Annotated[
    str | None,
    typer.Option("--delta", help="The probability with which the guarantee may fail. Only some methods need one."),
]
SampleOption = Annotated[
    str | None, typer.Option("--sample", help="Compute medians on a random sample of this rate, for example 0.01.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Another option of the method, for example switch=2. May be repeated."
    ),
]
WorkloadOption = Annotated[
    Path | None,
    typer.Option(
        "--workload", help="A CSV file of the boxes that will be queried. The budget is divided to suit them."
    ),
]
RowsOption = Annotated[
    int | None,
    typer.Option("--max-rows-per-unit", help="The number of rows per person that are used. Goes with --unit."),
]
HeightOption = Annotated[
    int | None,
    typer.Option(
        "--height",
        help="The number of levels below the root, for methods that have a height; chosen automatically if not given.",
    ),
]
LedgerOption = Annotated[Path, typer.Option("--ledger", envvar="VEILMAP_LEDGER", help="The ledger file.")]
OneRowOption = Annotated[
    bool,
    typer.Option(
        "--one-row-per-unit",
        help="Declare that each unit of the data set has at most one row here. The ledger records the declaration.",
    ),
]
DatasetArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the data set in the ledger.", show_default=False)
]
FormatOption = Annotated[Format, typer.Option("--format", help="The output format.")]
ReleaseArgument = Annotated[Path, typer.Argument(metavar="RELEASE", help="A release file.", show_default=False)]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]
BoxOption = Annotated[
    list[str] | None,
    typer.Option(
        "--box",
        help="A box: the low end of every axis, then the high end of every axis, separated by commas. May be repeated.",
    ),
]
ConfidenceOption = Annotated[float, typer.Option("--confidence", help="The confidence level of the intervals.")]
LayerOption = Annotated[
    str | None, typer.Option("--layer", help="The layer of the --zones file, if it has several layers.")
]
MakeValidOption = Annotated[
    bool, typer.Option("--make-valid", help="Repair zones whose borders cross themselves, instead of refusing them.")
]


def must_have_folder(path: Path) -> None:
    """Check that the folder of a file to be written exists."""
    if not path.resolve().parent.is_dir():
        raise BadInput(f"The folder of {path} does not exist. Create it first.")


def must_be_free(out: Path, source: Path, overwrite: bool) -> None:
    """Check that an output may be written: not over the release it is made from, nor over other files unasked."""
    must_have_folder(out)
    if not out.exists():
        return
    if source.exists() and out.samefile(source):
        raise BadInput(f"{out} is the release itself and would be lost. Choose another name.")
    if not overwrite:
        raise BadInput(f"{out} already exists. Choose another name, or add --overwrite.")


def typed_settings(texts: list[str] | None) -> dict[str, object] | None:
    """Parse the --set options of a method. Values that are whole numbers become integers."""
    settings: dict[str, object] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise BadInput(f"--set takes name=value, for example switch=2; got {text!r}.")
        is_integer = value.isdecimal() and len(value) <= MAX_DIGITS_OF_INTEGER_SETTING
        settings[name] = int(value) if is_integer else value
    return settings or None

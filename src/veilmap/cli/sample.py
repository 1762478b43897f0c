"""`veilmap sample`: write synthetic points drawn from a release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilmap.cli._options import OverwriteOption, ReleaseArgument, must_be_free
from veilmap.cli._output import say
from veilmap.errors import BadInput
from veilmap.files.csv_cells import safe_cells

HELP_EXAMPLE = "Example: veilmap sample roads.parquet -n 100000 -o points.parquet --seed 7"
OUTPUT_ENDINGS = (".parquet", ".csv")


def sample(
    path: ReleaseArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: .parquet or .csv.")],
    number: Annotated[
        int | None,
        typer.Option("--number", "-n", help="The number of points; the estimated number of rows if not given."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="A seed of your choice. The same seed draws the same points.")
    ] = None,
    integers: Annotated[
        bool,
        typer.Option(
            "--integers", help="Round the estimate of every leaf to a whole number and draw that many points."
        ),
    ] = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Draw synthetic points from a release, for programs that only accept points.

    The output has one column per axis. Drawing uses no privacy budget, and no point belongs to a person: each is placed
    at random inside a leaf. Counts of synthetic points are less accurate than 'veilmap query' and have no error bars.
    """
    import pyarrow.csv
    import pyarrow.parquet as pq

    import veilmap as vm
    from veilmap.files.atomic_writes import staged_file

    if out.suffix.lower() not in OUTPUT_ENDINGS:
        raise BadInput(f"Points are written to .parquet or .csv files, got {str(out)!r}. Choose one of these endings.")
    must_be_free(out, path, overwrite)
    release = vm.load(path)
    points = release.sample(number, seed, integers)
    with staged_file(out, overwrite) as place, open(place, "xb") as file:  # written in pieces: CSV outgrows the memory
        if out.suffix.lower() == ".csv":
            pyarrow.csv.write_csv(points.rename_columns(safe_cells(points.column_names)), file)
        else:
            pq.write_table(points, file, compression="zstd")
    say(f"Wrote {out}: {points.num_rows:,} synthetic points.")
    say(release.privacy.statement())

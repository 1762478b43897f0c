"""`veilmap sample`: synthetic points in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilmap.cli._options import OverwriteOption, ReleaseArgument, must_be_free
from veilmap.cli._output import say
from veilmap.errors import BadInput
from veilmap.files.csv_cells import safe_cells

EXAMPLE = "Example: veilmap sample roads.parquet -n 100000 -o points.parquet --seed 7"
ENDINGS = (".parquet", ".csv")


def sample(
    path: ReleaseArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: .parquet or .csv.")],
    number: Annotated[
        int | None, typer.Option("--number", "-n", help="How many points; as many as are estimated when not given.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of your own, to draw the same points again.")] = None,
    integers: Annotated[
        bool, typer.Option("--integers", help="Give each leaf its whole number of points, as in tables.")
    ] = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Draw synthetic points from a release: columns as its axes, for programs that take nothing else.

    This costs no privacy, and no point is a person's: each is somewhere in a cell, by chance. Counts of them are less
    accurate than those of veilmap query, and have no error bars.
    """
    import pyarrow.csv
    import pyarrow.parquet as pq

    import veilmap as vm
    from veilmap.files.atomic_writes import staged_file

    if out.suffix.lower() not in ENDINGS:
        raise BadInput(f"Points are written to .parquet or .csv, got {str(out)!r}: choose one of these endings.")
    must_be_free(out, path, overwrite)
    found = vm.load(path)
    points = found.sample(number, seed, integers)
    with staged_file(out, overwrite) as place, open(place, "xb") as file:  # as text, they are larger than in memory
        if out.suffix.lower() == ".csv":
            pyarrow.csv.write_csv(points.rename_columns(safe_cells(points.column_names)), file)
        else:
            pq.write_table(points, file, compression="zstd")
    say(f"Wrote {out}: {points.num_rows:,} synthetic points.")
    say(found.privacy.statement())

"""`veilmap query`: counts in boxes or zones, from a release alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilmap.cli._boxes import box_columns, parse_box, read_boxes
from veilmap.cli._options import BoxOption, FormatOption, OverwriteOption, ReleaseArgument, must_be_free
from veilmap.cli._output import Format, print_csv, print_table, warn
from veilmap.cli._zones import query_zones
from veilmap.errors import BadInput

if TYPE_CHECKING:
    from veilmap.answers.answerer import Answers
    from veilmap.releases.release import Release

EXAMPLE = "Example: veilmap query roads.parquet --box -120,45,-119,46 --format json"


def query(
    path: ReleaseArgument,
    box: BoxOption = None,
    boxes: Annotated[
        Path | None, typer.Option("--boxes", help="A CSV file with a box a row, with or without a header.")
    ] = None,
    zones: Annotated[
        Path | None, typer.Option("--zones", help="Polygons: GeoJSON, GeoPackage, Shapefile, GeoParquet.")
    ] = None,
    layer: Annotated[str | None, typer.Option("--layer", help="Of --zones, where there are several.")] = None,
    make_valid: Annotated[
        bool, typer.Option("--make-valid", help="Mend zones whose borders cross themselves.")
    ] = False,
    confidence: Annotated[float, typer.Option("--confidence", help="Of the intervals.")] = 0.95,
    output: FormatOption = Format.TABLE,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write zones and counts: .gpkg, .geojson, .parquet or .csv."),
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Count points in boxes or zones, with error bars, from a release alone.

    Zones come back as their table with the columns count, stderr, low and high, or veilmap_count and so on where it has
    one of these already. Zones in other coordinates than the release are reprojected.
    """
    import numpy as np

    import veilmap as vm

    found = vm.load(path)
    if (zones is None) == (not box and boxes is None):
        raise BadInput(
            "Ask for at least one box, --box LOW,...,HIGH,... or --boxes FILE.csv; or for --zones FILE, not both."
        )
    if zones is None and (layer is not None or make_valid or out is not None):
        raise BadInput("--layer, --make-valid and --out go with --zones: leave them out, or give a file of zones.")
    if out is not None:
        must_be_free(out, path, overwrite)
    if zones is not None:
        query_zones(found, zones, layer, make_valid, confidence, output, out, overwrite)
        warn(found)
        return
    rows = [parse_box(text, found.domain) for text in box or []]
    if boxes is not None:
        rows += read_boxes(boxes, found.domain)
    asked = np.array(rows, dtype=np.float64)
    _print_answers(found, asked, found.count(asked, confidence), output)


def _print_answers(found: Release, asked: Any, answers: Answers, output: Format) -> None:
    columns = (answers.estimate, answers.stderr, answers.low, answers.high)
    rows = [[*map(float, box), *map(float, row)] for box, *row in zip(asked, *columns, strict=True)]
    header = [*box_columns(found.domain), "estimate", "stderr", "low", "high"]
    if output is Format.JSON:
        record = {"confidence": answers.confidence, "private": found.privacy.private}
        typer.echo(json.dumps({**record, "answers": [dict(zip(header, row, strict=True)) for row in rows]}, indent=2))
    elif output is Format.CSV:
        print_csv(header, rows)
    else:
        print_table(
            ["box", "estimate", "standard error", f"{100 * answers.confidence:g} % interval"],
            [
                [
                    ",".join(f"{v:g}" for v in row[:-4]),
                    f"{row[-4]:,.1f}",
                    f"{row[-3]:,.1f}",
                    f"{row[-2]:,.1f} to {row[-1]:,.1f}",
                ]
                for row in rows
            ],
        )
    warn(found)

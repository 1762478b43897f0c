"""`veilmap query`: count points in boxes or zones, from a release alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilmap.cli._options import (
    BoxOption,
    ConfidenceOption,
    FormatOption,
    LayerOption,
    MakeValidOption,
    OverwriteOption,
    ReleaseArgument,
    must_be_free,
)
from veilmap.cli._output import Format, print_csv, print_table, warn_if_not_private
from veilmap.cli._zones import query_zones
from veilmap.errors import BadInput

if TYPE_CHECKING:
    from veilmap.answers.answerer import Answers
    from veilmap.arrays import Floats
    from veilmap.releases.release import Release

HELP_EXAMPLE = "Example: veilmap query roads.parquet --box -120,45,-119,46 --format json"


def query(
    path: ReleaseArgument,
    box: BoxOption = None,
    boxes: Annotated[
        Path | None, typer.Option("--boxes", help="A CSV file with one box per row, with or without a header.")
    ] = None,
    zones: Annotated[
        Path | None, typer.Option("--zones", help="Polygons: GeoJSON, GeoPackage, Shapefile or GeoParquet.")
    ] = None,
    layer: LayerOption = None,
    make_valid: MakeValidOption = False,
    confidence: ConfidenceOption = 0.95,
    output: FormatOption = Format.TABLE,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Write the zones with their counts to this file: .gpkg, .geojson, .parquet or .csv."
        ),
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Count points in boxes or zones, with error bars, from a release alone.

    With --zones, the output is the table of zones with the added columns count, stderr, low and high (veilmap_count and
    so on if the table already has one of these names). Zones in another coordinate system are reprojected.
    """
    import numpy as np

    import veilmap as vm
    from veilmap.boxes import parse_box, read_boxes

    release = vm.load(path)
    if (zones is None) == (not box and boxes is None):
        raise BadInput(
            "Give at least one box (--box LOW,...,HIGH,... or --boxes FILE.csv), or zones (--zones FILE), but not both."
        )
    if zones is None and (layer is not None or make_valid or out is not None):
        raise BadInput("--layer, --make-valid and --out need --zones. Leave them out, or give a file of zones.")
    if out is not None:
        must_be_free(out, path, overwrite)
    if zones is not None:
        query_zones(release, zones, layer, make_valid, confidence, output, out, overwrite)
        warn_if_not_private(release)
        return
    rows = [parse_box(text, release.domain) for text in box or []]
    if boxes is not None:
        rows += read_boxes(boxes, release.domain)
    queries = np.array(rows, dtype=np.float64)
    _print_answers(release, queries, release.count(queries, confidence), output)


def _print_answers(release: Release, boxes: Floats, answers: Answers, output: Format) -> None:
    from veilmap.boxes import box_columns

    columns = (answers.estimate, answers.stderr, answers.low, answers.high)
    rows = [[*map(float, box), *map(float, row)] for box, *row in zip(boxes, *columns, strict=True)]
    header = [*box_columns(release.domain), "estimate", "stderr", "low", "high"]
    if output is Format.JSON:
        record = {"confidence": answers.confidence, "private": release.privacy.private}
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
    warn_if_not_private(release)

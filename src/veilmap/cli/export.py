"""`veilmap export`: write a release for GIS programs and spreadsheets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilmap.cli._options import ConfidenceOption, OverwriteOption, ReleaseArgument, must_be_free
from veilmap.cli._output import progress, say, warn_if_not_private
from veilmap.errors import BadInput

HELP_EXAMPLE = "Example: veilmap export roads.parquet -o roads.gpkg"


def export(
    path: ReleaseArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: .gpkg, .fgb, .geojson, .tif or .csv.")],
    value: Annotated[
        str | None, typer.Option("--value", help="The value of a .tif: density (if not given), count or stderr.")
    ] = None,
    pixels: Annotated[
        str | None,
        typer.Option(
            "--pixels", metavar="N|WxH", help="The size of a .tif: pixels along its longer side, or columns and rows."
        ),
    ] = None,
    resolution: Annotated[
        float | None, typer.Option("--resolution", help="The side of a pixel of a .tif, in units of the axes.")
    ] = None,
    h3: Annotated[
        int | None,
        typer.Option("--h3", metavar="RES", help="Write H3 hexagons of this resolution (0 to 15) instead of leaves."),
    ] = None,
    confidence: ConfidenceOption = 0.95,
    overwrite: OverwriteOption = False,
) -> None:
    """Write a release for GIS programs and spreadsheets: its leaves as polygons or table rows, or a raster.

    Every leaf has a count, stderr, low, high and density. Densities are per square kilometre if the axes are longitude
    and latitude, or metres. The file states the privacy guarantee.
    """
    must_be_free(out, path, overwrite)
    import veilmap as vm
    from veilmap.export import export as write

    release, shape = vm.load(path), None if pixels is None else _parse_pixels(pixels)
    with progress("Exporting") as tell:
        write(
            release,
            out,
            value=value,
            pixels=shape,
            resolution=resolution,
            h3=h3,
            confidence=confidence,
            overwrite=overwrite,
            progress=tell,
        )
    say(f"Wrote {out}: {out.stat().st_size / 1e6:.1f} MB.")
    warn_if_not_private(release)


def _parse_pixels(text: str) -> int | tuple[int, int]:
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise BadInput(f"--pixels takes a number, or columns and rows such as 800x600; got {text!r}.")
    numbers = [int(part) for part in parts]
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])

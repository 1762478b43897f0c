"""The command that writes for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilmap.cli._options import OverwriteOption, ReleaseArgument, must_be_free
from veilmap.cli._output import progress, say, warn
from veilmap.errors import BadInput

EXAMPLE = "Example: veilmap export roads.parquet -o roads.gpkg"


def export(
    path: ReleaseArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: .gpkg, .fgb, .geojson, .tif or .csv.")],
    value: Annotated[
        str | None, typer.Option("--value", help="What a .tif shows: density, count or stderr; density if not given.")
    ] = None,
    pixels: Annotated[
        str | None,
        typer.Option("--pixels", metavar="N|WxH", help="Of a .tif: along its longer side, or columns and rows."),
    ] = None,
    resolution: Annotated[
        float | None, typer.Option("--resolution", help="Of a .tif: the side of a pixel, in units of the axes.")
    ] = None,
    h3: Annotated[
        int | None, typer.Option("--h3", metavar="RES", help="Hexagons of H3 in the place of cells, 0 to 15.")
    ] = None,
    confidence: Annotated[float, typer.Option("--confidence", help="Of the intervals.")] = 0.95,
    overwrite: OverwriteOption = False,
) -> None:
    """Write a release for GIS programs and spreadsheets: its cells as polygons or rows, or a raster.

    Cells have count, stderr, low, high and density: per square kilometre where the axes are longitude and latitude, or
    metres. The file says what is promised.
    """
    must_be_free(out, path, overwrite)
    import veilmap as vm
    from veilmap.export import export as write

    found, shape = vm.load(path), None if pixels is None else _pixels(pixels)
    with progress("Exporting") as tell:
        write(
            found,
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
    warn(found)


def _pixels(text: str) -> int | tuple[int, int]:
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise BadInput(f"Pixels are a number, or columns and rows like 800x600; got {text!r}.")
    numbers = [int(part) for part in parts]
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])

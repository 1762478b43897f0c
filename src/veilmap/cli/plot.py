"""`veilmap plot`: draw a release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilmap.cli._options import OverwriteOption, ReleaseArgument, must_be_free
from veilmap.cli._output import progress, say
from veilmap.errors import BadInput

HELP_EXAMPLE = "Example: veilmap plot roads.parquet -o roads.png --title 'Road crossings'"


def plot(
    path: ReleaseArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The picture to write: .png, .svg or .pdf.")],
    title: Annotated[str, typer.Option("--title", help="A title above the picture.")] = "",
    uncertainty: Annotated[
        bool, typer.Option("--uncertainty", help="Draw standard errors relative to the estimates.")
    ] = False,
    cells: Annotated[bool, typer.Option("--cells", help="Draw the borders of the leaves.")] = False,
    theme: Annotated[str, typer.Option("--theme", help="light or dark.")] = "light",
    size: Annotated[
        str | None,
        typer.Option(
            "--size", metavar="WxH", help="Width and height in inches, for example 8x6; automatic if not given."
        ),
    ] = None,
    dpi: Annotated[int, typer.Option("--dpi", help="Dots per inch.")] = 160,
    overwrite: OverwriteOption = False,
) -> None:
    """Draw a release: a histogram for one axis, a density map for two, small multiples for more.

    Areas left blank may be empty or hold a few points: the noise hides which. Densities are per square kilometre if the
    axes are longitude and latitude, or metres. The picture states the privacy guarantee.
    """
    must_be_free(out, path, overwrite)
    import veilmap as vm
    from veilmap.plot import draw

    inches = None if size is None else _parse_inches(size)
    with progress("Drawing") as tell:
        release = vm.load(path)
        tell(0.2)
        style = {"title": title, "uncertainty": uncertainty, "cells": cells, "theme": theme, "dpi": dpi}
        draw(release, out, overwrite=overwrite, progress=tell, size=inches, **style)
    say(f"Wrote {out}.")


def _parse_inches(text: str) -> tuple[float, float]:
    try:
        width, height = map(float, text.lower().split("x"))
    except ValueError:
        raise BadInput(f"--size takes width and height in inches, such as 8x6; got {text!r}.") from None
    return width, height

"""The command that draws."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilmap.cli._options import OverwriteOption, ReleaseArgument, must_be_free
from veilmap.cli._output import progress, say
from veilmap.errors import BadInput

EXAMPLE = "Example: veilmap plot roads.parquet -o roads.png --title 'Road crossings'"


def plot(
    path: ReleaseArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The picture to write: .png, .svg or .pdf.")],
    title: Annotated[str, typer.Option("--title", help="A line above the picture.")] = "",
    uncertainty: Annotated[
        bool, typer.Option("--uncertainty", help="Draw standard errors, as parts of the estimates.")
    ] = False,
    cells: Annotated[bool, typer.Option("--cells", help="Draw the borders of cells.")] = False,
    theme: Annotated[str, typer.Option("--theme", help="light or dark.")] = "light",
    size: Annotated[
        str | None, typer.Option("--size", metavar="WxH", help="Inches, like 8x6; as it fits if not given.")
    ] = None,
    dpi: Annotated[int, typer.Option("--dpi", help="Dots an inch.")] = 160,
    overwrite: OverwriteOption = False,
) -> None:
    """Draw a release: a density map of two axes, steps of one, small multiples of more.

    What cannot be told from empty has no colour. Densities are per square kilometre where the axes are longitude and
    latitude, or metres. The picture says what is promised.
    """
    must_be_free(out, path, overwrite)
    import veilmap as vm
    from veilmap.plot import draw

    inches = None if size is None else _inches(size)
    with progress("Drawing") as tell:
        found = vm.load(path)
        tell(0.2)
        look = {"title": title, "uncertainty": uncertainty, "cells": cells, "theme": theme, "dpi": dpi}
        draw(found, out, overwrite=overwrite, progress=tell, size=inches, **look)
    say(f"Wrote {out}.")


def _inches(text: str) -> tuple[float, float]:
    try:
        wide, high = map(float, text.lower().split("x"))
    except ValueError:
        raise BadInput(f"A size is two numbers of inches, like 8x6; got {text!r}.") from None
    return wide, high

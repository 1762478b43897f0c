"""The style of the study's figures: small panels, in colours that colour-blind readers can distinguish."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from veilmap.errors import need
from veilmap.files.atomic_writes import write_atomically

LINE_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#999933",
)
LINE_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
PANEL_WIDTH_INCHES = 3.3
PANEL_HEIGHT_INCHES = 2.7
FIGURE_STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "svg.hashsalt": "veilmap",
}


@contextmanager
def drawing(
    folder: Path, name: str, columns: int, rows: int = 1, *, shared: bool = False, height: float = PANEL_HEIGHT_INCHES
) -> Iterator[list[Any]]:
    """Yield the panels of a figure in reading order, and save it as PNG and SVG when the ``with`` block ends."""
    need("matplotlib", "plot", "Drawing a figure")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(FIGURE_STYLE):
        figure = Figure(figsize=(PANEL_WIDTH_INCHES * columns, height * rows), dpi=200, layout="constrained")
        yield list(figure.subplots(rows, columns, sharey=shared, squeeze=False).ravel())
        for path in pictures(folder, name):
            buffer, kind = io.BytesIO(), path.suffix[1:]
            figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
            write_atomically(path, buffer.getvalue())


def pictures(folder: Path, name: str) -> list[Path]:
    """Return the paths of a figure's files."""
    return [folder / f"{name}.png", folder / f"{name}.svg"]

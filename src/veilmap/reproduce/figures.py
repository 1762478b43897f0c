"""How the study's pictures look: small enough for a column, in colours that everybody can tell apart."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from veilmap.errors import need
from veilmap.files.atomic_writes import write_atomically

COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#999933",
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
WIDTH, HEIGHT = 3.3, 2.7  # inches a panel
STYLE: dict[Any, Any] = {
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
    folder: Path, name: str, columns: int, rows: int = 1, *, shared: bool = False, height: float = HEIGHT
) -> Iterator[list[Any]]:
    """The panels of a figure, in reading order; it is saved as PNG and as SVG when they are drawn."""
    need("matplotlib", "plot", "Drawing a figure")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH * columns, height * rows), dpi=200, layout="constrained")
        yield list(figure.subplots(rows, columns, sharey=shared, squeeze=False).ravel())
        for path in pictures(folder, name):
            buffer, kind = io.BytesIO(), path.suffix[1:]
            figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
            write_atomically(path, buffer.getvalue())


def pictures(folder: Path, name: str) -> list[Path]:
    return [folder / f"{name}.png", folder / f"{name}.svg"]

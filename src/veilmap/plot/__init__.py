"""Plots of releases: maps for two axes, steps for one, and a matrix of pairs for more."""

from __future__ import annotations

import io
import os
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from veilmap.errors import BadInput, near_misses, need
from veilmap.files.atomic_writes import write_atomically
from veilmap.geography.crs import Ground
from veilmap.plot.maps import lay_out, paint, shape
from veilmap.plot.steps import draw_pairs, draw_steps
from veilmap.plot.theme import COLOUR_THEMES, WARNING_COLOUR, Theme, short
from veilmap.releases.release import Release

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
DEFAULT_WIDTH_INCHES = 8.0
MIN_SIDE_INCHES = 2.0
MAX_SIDE_INCHES = 40.0
MIN_DPI = 30
MAX_DPI = 1200
MAX_DOTS = 1e8  # per picture
MAX_TITLE_CHARACTERS = 100
MAX_SMALL_PRINT_CHARACTERS = 1000
SMALL_PRINT_CHARACTERS_PER_INCH = 19.5


def figure(
    release: Release,
    *,
    title: str = "",
    uncertainty: bool = False,
    cells: bool = False,
    theme: str = "light",
    size: tuple[float, float] | None = None,
    dpi: int = 160,
) -> Any:
    """Return a matplotlib figure of any release: see ``Release.plot``."""
    need("matplotlib", "plot", "Drawing a release")
    from matplotlib import rc_context

    if theme not in COLOUR_THEMES:
        raise BadInput(f"There is no theme {theme!r}. {near_misses(str(theme), COLOUR_THEMES)}")
    if cells and release.domain.dimensions != 2:
        raise BadInput(
            f"Only a map can show cells, and a map needs two axes; this release has {release.domain.dimensions}."
        )
    inches = _checked_size(release, size, dpi)
    look = COLOUR_THEMES[theme]
    with rc_context(_style(look)), warnings.catch_warnings():
        _ignore_layout_warnings()
        drawing = _notebook_figure(figsize=inches, dpi=dpi, layout="constrained", facecolor=look.paper)
        drawing.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
        if release.domain.dimensions == 2:
            axes, note = lay_out(drawing, Ground(release.domain), look)
        elif release.domain.dimensions == 1:
            note = draw_steps(drawing, release, uncertainty, look)
        else:
            note = draw_pairs(drawing, release, uncertainty, look)
        _add_text(drawing, release, title, look, note)
        if release.domain.dimensions == 2:
            paint(axes, release, uncertainty, cells, look, trim=size is None)
    return drawing


def draw(
    release: Release,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = True,
    progress: Callable[[float], None] = lambda fraction: None,
    **look: Any,
) -> None:
    """Write a picture as PNG, SVG or PDF, depending on the suffix of the name."""
    suffix = Path(path).suffix.lower()
    if suffix not in PICTURE_SUFFIXES:
        allowed = f"{', '.join(PICTURE_SUFFIXES[:-1])} or {PICTURE_SUFFIXES[-1]}"
        raise BadInput(f"The name of a picture must end in {allowed}, got {str(path)!r}.")
    write_atomically(path, rendered(release, suffix[1:], progress, **look), overwrite)


def rendered(
    release: Release, kind: str, progress: Callable[[float], None] = lambda fraction: None, **look: Any
) -> bytes:
    """Return the bytes of a picture. The same release and options always give the same bytes."""
    drawing = figure(release, **look)
    progress(0.8)
    from matplotlib import rc_context

    buffer = io.BytesIO()
    statement = release.privacy.statement()
    metadata = {
        "png": {"Description": statement},
        "svg": {"Description": statement, "Date": None},
        "pdf": {"Subject": statement, "CreationDate": None},
    }
    with rc_context({"svg.hashsalt": "veilmap"}), warnings.catch_warnings():
        _ignore_layout_warnings()
        drawing.savefig(buffer, format=kind, metadata=metadata[kind])
    return buffer.getvalue()


def _ignore_layout_warnings() -> None:
    """Ignore warnings about characters that the font lacks and about text that does not fit a small picture."""
    for message in ("Glyph", "constrained_layout not applied"):
        warnings.filterwarnings("ignore", message=message)


def _checked_size(release: Release, size: tuple[float, float] | None, dpi: int) -> tuple[float, float]:
    if not (isinstance(dpi, int) and MIN_DPI <= dpi <= MAX_DPI):
        raise BadInput(f"A picture must have {MIN_DPI} to {MAX_DPI} dots per inch, got {dpi!r}.")
    if size is None:
        high = min(max(6.4 * shape(Ground(release.domain)), 2.2), 9.0) if release.domain.dimensions == 2 else 3.4
        return (DEFAULT_WIDTH_INCHES, high + 1.2 if release.domain.dimensions <= 2 else DEFAULT_WIDTH_INCHES)
    if not (len(size) == 2 and all(MIN_SIDE_INCHES <= side <= MAX_SIDE_INCHES for side in size)):
        limits = f"{MIN_SIDE_INCHES:g} to {MAX_SIDE_INCHES:g}"
        raise BadInput(f"A picture must be {limits} inches wide and high, got {size!r}.")
    if size[0] * size[1] * dpi**2 > MAX_DOTS:
        raise BadInput(
            f"A picture may have at most {MAX_DOTS:,.0f} dots. Choose a smaller size or fewer dots per inch."
        )
    return size


def _add_text(drawing: Any, release: Release, title: str, look: Theme, note: str) -> None:
    """Add the title, the small print with the privacy statement, and a warning if the release is not private."""
    private, statement = release.privacy.private, release.privacy.statement()
    title = short(title, MAX_TITLE_CHARACTERS)
    method = f"Method: {release.method['name']}, {release.height} levels."
    sentences = " ".join(sentence for sentence in (statement, note, method) if sentence)
    width = int(drawing.get_figwidth() * SMALL_PRINT_CHARACTERS_PER_INCH)
    small_print = textwrap.fill(short(sentences, MAX_SMALL_PRINT_CHARACTERS), width)
    drawing.supxlabel(small_print, x=0.012, ha="left", fontsize=6.5, color=look.faint if private else WARNING_COLOUR)
    if not private:
        band = {"facecolor": WARNING_COLOUR, "edgecolor": "none", "boxstyle": "round,pad=0.35"}
        warning = f"NOT PRIVATE · {title}" if title else "NOT PRIVATE"
        drawing.suptitle(warning, fontsize=12, fontweight="bold", color="white", bbox=band)
    elif title:
        drawing.suptitle(title, x=0.012, ha="left", fontsize=12, fontweight="bold")


def _style(look: Theme) -> dict[Any, Any]:
    return {
        "font.size": 8,
        "text.usetex": False,
        "text.parse_math": False,  # a dollar sign in the name of an axis is not mathematics
        "text.color": look.ink,
        "axes.labelcolor": look.ink,
        "axes.edgecolor": look.faint,
        "axes.facecolor": look.paper,
        "axes.linewidth": 0.6,
        "xtick.color": look.ink,
        "ytick.color": look.ink,
        "xtick.major.width": 0.5,
        "ytick.major.width": 0.5,
    }


def _notebook_figure(**options: Any) -> Any:
    """Return a figure that a notebook displays. It does not use pyplot, which keeps figures in memory."""
    from matplotlib.figure import Figure

    class Picture(Figure):
        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            with warnings.catch_warnings():
                _ignore_layout_warnings()
                self.savefig(buffer, format="png")
            return buffer.getvalue()

    return Picture(**options)

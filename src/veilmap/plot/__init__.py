"""Pictures of releases: maps, steps and small multiples."""

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
from veilmap.plot.theme import THEMES, WARNING, Theme, short
from veilmap.releases.release import Release

KINDS = (".png", ".svg", ".pdf")
WIDTH = 8.0  # inches
LEAST_SIZE, MOST_SIZE, MOST_DPI = 2.0, 40.0, 1200
MOST_DOTS = 1e8  # of a picture
MOST_TITLE, MOST_PRINT = 100, 1000  # characters


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
    """A figure of matplotlib, of any release: see ``Release.plot``."""
    need("matplotlib", "plot", "Drawing a release")
    from matplotlib import rc_context

    if theme not in THEMES:
        raise BadInput(f"There is no theme {theme!r}. {near_misses(str(theme), THEMES)}")
    if cells and release.domain.dimensions != 2:
        raise BadInput(f"Cells are drawn on maps, of two axes; this release has {release.domain.dimensions}.")
    inches = _checked_size(release, size, dpi)
    look = THEMES[theme]
    with rc_context(_style(look)), warnings.catch_warnings():
        _calm()
        made = _notebook_figure(figsize=inches, dpi=dpi, layout="constrained", facecolor=look.paper)
        made.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
        if release.domain.dimensions == 2:
            axes, note = lay_out(made, Ground(release.domain), look)
        elif release.domain.dimensions == 1:
            note = draw_steps(made, release, uncertainty, look)
        else:
            note = draw_pairs(made, release, uncertainty, look)
        _around(made, release, title, look, note)
        if release.domain.dimensions == 2:
            paint(axes, release, uncertainty, cells, look, trim=size is None)
    return made


def draw(
    release: Release,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = True,
    progress: Callable[[float], None] = lambda part: None,
    **look: Any,
) -> None:
    """Write a picture: PNG, SVG or PDF, by the name."""
    kind = Path(path).suffix.lower()
    if kind not in KINDS:
        raise BadInput(f"A picture is a {', '.join(KINDS[:-1])} or {KINDS[-1]} file, got {str(path)!r}.")
    write_atomically(path, rendered(release, kind[1:], progress, **look), overwrite)


def rendered(release: Release, kind: str, progress: Callable[[float], None] = lambda part: None, **look: Any) -> bytes:
    """The bytes of a picture, the same whenever they are made."""
    made = figure(release, **look)
    progress(0.8)
    from matplotlib import rc_context

    buffer = io.BytesIO()
    said = release.privacy.statement()
    about = {
        "png": {"Description": said},
        "svg": {"Description": said, "Date": None},
        "pdf": {"Subject": said, "CreationDate": None},
    }
    with rc_context({"svg.hashsalt": "veilmap"}), warnings.catch_warnings():
        _calm()
        made.savefig(buffer, format=kind, metadata=about[kind])
    return buffer.getvalue()


def _calm() -> None:
    """Boxes are drawn for scripts that the font lacks, and a small picture may have no room for all words."""
    for message in ("Glyph", "constrained_layout not applied"):
        warnings.filterwarnings("ignore", message=message)


def _checked_size(release: Release, size: tuple[float, float] | None, dpi: int) -> tuple[float, float]:
    if not (isinstance(dpi, int) and 30 <= dpi <= MOST_DPI):
        raise BadInput(f"A picture has 30 to {MOST_DPI} dots an inch, got {dpi!r}.")
    if size is None:
        high = min(max(6.4 * shape(Ground(release.domain)), 2.2), 9.0) if release.domain.dimensions == 2 else 3.4
        return (WIDTH, high + 1.2 if release.domain.dimensions <= 2 else WIDTH)
    if not (len(size) == 2 and all(LEAST_SIZE <= side <= MOST_SIZE for side in size)):
        raise BadInput(f"A picture is {LEAST_SIZE:g} to {MOST_SIZE:g} inches wide and high, got {size!r}.")
    if size[0] * size[1] * dpi**2 > MOST_DOTS:
        raise BadInput(f"A picture has {MOST_DOTS:,.0f} dots at most: choose fewer inches, or fewer dots an inch.")
    return size


def _around(made: Any, release: Release, title: str, look: Theme, note: str) -> None:
    """The title, what is promised, and a mark on what is not private."""
    private, statement, title = release.privacy.private, release.privacy.statement(), short(title, MOST_TITLE)
    method = f"{release.method['name']}, {release.height} levels."
    small = " ".join(part for part in (statement, note, method) if part)
    print_ = textwrap.fill(short(small, MOST_PRINT), int(made.get_figwidth() * 19.5))
    made.supxlabel(print_, x=0.012, ha="left", fontsize=6.5, color=look.faint if private else WARNING)
    if not private:
        band = {"facecolor": WARNING, "edgecolor": "none", "boxstyle": "round,pad=0.35"}
        mark = f"NOT PRIVATE · {title}" if title else "NOT PRIVATE"
        made.suptitle(mark, fontsize=12, fontweight="bold", color="white", bbox=band)
    elif title:
        made.suptitle(title, x=0.012, ha="left", fontsize=12, fontweight="bold")


def _style(look: Theme) -> dict[Any, Any]:
    return {
        "font.size": 8,
        "text.usetex": False,
        "text.parse_math": False,  # names of axes are names
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
    """A figure that shows itself in a notebook, without pyplot and what that keeps."""
    from matplotlib.figure import Figure

    class Picture(Figure):
        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            with warnings.catch_warnings():
                _calm()
                self.savefig(buffer, format="png")
            return buffer.getvalue()

    return Picture(**options)

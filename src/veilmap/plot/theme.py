"""How pictures look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours: dark is more on light paper, and bright is more on dark."""

    paper: str
    ink: str
    faint: str  # of graticules and small print
    sea: str
    land: str
    density: str  # colour maps of matplotlib, even to the eye
    error: str
    line: str  # of steps and bands
    palest: float  # where colour maps begin: paler colours would look like paper

    def colours(self, uncertainty: bool) -> Any:
        import numpy as np
        from matplotlib import colormaps
        from matplotlib.colors import ListedColormap

        chosen = colormaps[self.error if uncertainty else self.density]
        return ListedColormap(chosen(np.linspace(self.palest, 1, 256)))


LONGEST = 60  # characters of a name


def short(text: str, most: int = LONGEST) -> str:
    """Names of axes are anyone's."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


WARNING = "#b3261e"
THEMES = {
    "light": Theme("#ffffff", "#222222", "#6b6b6b", "#e6ebee", "#f6f5f0", "YlGnBu", "YlOrBr", "#225ea8", 0.14),
    "dark": Theme("#16181c", "#e6e6e6", "#a0a4a8", "#1d2127", "#2a2e34", "viridis", "magma", "#5ec8c0", 0.08),
}

"""Colours of pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a theme: higher densities are darker on a light background, and brighter on a dark one."""

    paper: str
    ink: str
    faint: str  # graticule and small print
    sea: str
    land: str
    density: str  # a perceptually uniform colour map of matplotlib
    error: str  # another one
    line: str  # steps and bands
    palest: float  # fraction of the colour map to skip: paler colours would look like the background

    def colours(self, uncertainty: bool) -> Any:
        """Return the colour map of densities or of errors."""
        import numpy as np
        from matplotlib import colormaps
        from matplotlib.colors import ListedColormap

        chosen = colormaps[self.error if uncertainty else self.density]
        return ListedColormap(chosen(np.linspace(self.palest, 1, 256)))


MAX_NAME_CHARACTERS = 60
BLANK_NOTE = "Areas left blank may be empty or hold a few points: the noise hides which."


def short(text: str, characters: int = MAX_NAME_CHARACTERS) -> str:
    """Return a text cut to a number of characters: the names of axes can have any length."""
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


WARNING_COLOUR = "#b3261e"
COLOUR_THEMES = {
    "light": Theme("#ffffff", "#222222", "#6b6b6b", "#e6ebee", "#f6f5f0", "YlGnBu", "YlOrBr", "#225ea8", 0.14),
    "dark": Theme("#16181c", "#e6e6e6", "#a0a4a8", "#1d2127", "#2a2e34", "viridis", "magma", "#5ec8c0", 0.08),
}

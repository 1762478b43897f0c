"""The base map below a density map whose place on Earth is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from veilmap.arrays import Floats
from veilmap.geography import basemap
from veilmap.geography.crs import Ground
from veilmap.plot.theme import Theme

Line = Floats
LINE_WIDTHS_POINTS = {"coast": 0.6, "borders": 0.5, "states": 0.35}


def draw_base(axes: Any, ground: Ground, theme: Theme) -> bool:
    """Draw land below the density and lines above it; return whether there are any lines."""
    from matplotlib.collections import LineCollection

    axes.set_facecolor(theme.sea if ground.lon_lat else theme.land)
    if ground.lon_lat:
        _fill_land(axes, ground, theme)
    layers = _lines(ground)
    for name, lines in layers.items():
        drawn = LineCollection(
            lines, linewidths=LINE_WIDTHS_POINTS[name], colors=theme.ink, alpha=0.55, capstyle="round", zorder=3
        )
        axes.add_collection(drawn, autolim=False)
    return any(layers.values())


def _turns(ground: Ground) -> list[int]:
    """Return by how many degrees to shift the world so that it covers the domain: longitudes may exceed 180."""
    x = ground.domain.axes[0]
    return [turn for turn in (-360, 0, 360) if x.lo < 180 + turn and x.hi > -180 + turn]


def _fill_land(axes: Any, ground: Ground, theme: Theme) -> None:
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    (x0, x1), (y0, y1) = ((axis.lo, axis.hi) for axis in ground.domain.axes[:2])
    for turn in _turns(ground):
        rings = [ring + np.array([turn, 0]) for rings in basemap.land() for ring in rings]
        visible = [ring for ring in rings if np.all((ring.min(axis=0) < (x1, y1)) & (ring.max(axis=0) > (x0, y0)))]
        if visible:
            path = Path.make_compound_path(*(Path(ring, closed=True) for ring in visible))
            drawn = PathCollection([path], facecolors=theme.land, edgecolors="none", zorder=0.5)
            axes.add_collection(drawn, autolim=False)


def _lines(ground: Ground) -> dict[str, list[Line]]:
    (x0, x1), (y0, y1) = ((axis.lo, axis.hi) for axis in ground.domain.axes[:2])
    if ground.lon_lat:
        turned = [(np.array([turn, 0]), basemap.lines((x0 - turn, y0, x1 - turn, y1))) for turn in _turns(ground)]
        return {name: [line + shift for shift, layers in turned for line in layers[name]] for name in basemap.LAYERS}
    projection = ground.from_lon_lat()
    if projection is None:
        return {}
    box = projection.transform_bounds(x0, y0, x1, y1, direction="INVERSE")
    if not np.all(np.isfinite(box)) or box[0] > box[2]:  # around a pole, or across the date line
        return {}
    return {
        name: [np.stack(projection.transform(*line.T), axis=1) for line in lines]
        for name, lines in basemap.lines(box).items()
    }

"""The base map under a map, where the axes say where on Earth they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from veilmap.arrays import Floats
from veilmap.geography import basemap
from veilmap.geography.crs import Ground
from veilmap.plot.theme import Theme

Line = Floats
WIDTHS = {"coast": 0.6, "borders": 0.5, "states": 0.35}


def draw_base(axes: Any, ground: Ground, theme: Theme) -> bool:
    """Land below, lines above what is there; whether there are any."""
    from matplotlib.collections import LineCollection

    axes.set_facecolor(theme.sea if ground.lon_lat else theme.land)
    if ground.lon_lat:
        _fill_land(axes, ground, theme)
    found = _lines(ground)
    for name, lines in found.items():
        drawn = LineCollection(lines, linewidths=WIDTHS[name], colors=theme.ink, alpha=0.55, capstyle="round", zorder=3)
        axes.add_collection(drawn, autolim=False)
    return any(found.values())


def _turns(ground: Ground) -> list[int]:
    """By how many degrees the world is shifted to be seen: longitudes may go on beyond 180."""
    x = ground.domain.axes[0]
    return [by for by in (-360, 0, 360) if x.lo < 180 + by and x.hi > -180 + by]


def _fill_land(axes: Any, ground: Ground, theme: Theme) -> None:
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    (x0, x1), (y0, y1) = ((axis.lo, axis.hi) for axis in ground.domain.axes[:2])
    for by in _turns(ground):
        rings = [ring + np.array([by, 0]) for rings in basemap.land() for ring in rings]
        near = [ring for ring in rings if np.all((ring.min(axis=0) < (x1, y1)) & (ring.max(axis=0) > (x0, y0)))]
        if near:
            path = Path.make_compound_path(*(Path(ring, closed=True) for ring in near))
            drawn = PathCollection([path], facecolors=theme.land, edgecolors="none", zorder=0.5)
            axes.add_collection(drawn, autolim=False)


def _lines(ground: Ground) -> dict[str, list[Line]]:
    (x0, x1), (y0, y1) = ((axis.lo, axis.hi) for axis in ground.domain.axes[:2])
    if ground.lon_lat:
        turned = [(np.array([by, 0]), basemap.lines((x0 - by, y0, x1 - by, y1))) for by in _turns(ground)]
        return {name: [line + by for by, found in turned for line in found[name]] for name in basemap.LAYERS}
    there = ground.from_lon_lat()
    if there is None:
        return {}
    box = there.transform_bounds(x0, y0, x1, y1, direction="INVERSE")
    if not np.all(np.isfinite(box)) or box[0] > box[2]:  # around a pole, or across the date line
        return {}
    return {
        name: [np.stack(there.transform(*line.T), axis=1) for line in lines]
        for name, lines in basemap.lines(box).items()
    }

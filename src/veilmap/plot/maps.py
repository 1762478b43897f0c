"""A density map of a release with two axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from veilmap.arrays import Floats
from veilmap.geography.crs import Ground
from veilmap.plot.base_map import draw_base
from veilmap.plot.density import density_image
from veilmap.plot.theme import BLANK_NOTE, Theme, short
from veilmap.releases.release import Release

MIN_FIGURE_INCHES = 2.6  # per side, so that the text around the map fits
MIN_OUTLINED_PIXELS = 8  # the borders of smaller boxes are not drawn
MAX_ASPECT_RATIO = 6  # with equal units on both axes; beyond it, axes of unknown units are scaled to fit
COLOUR_QUANTILES = (0.02, 0.999)  # of the pixels, between which the colours range


def aspect(ground: Ground) -> float | None:
    """Return the drawn length of a unit of the second axis over that of the first; None if both are scaled to fit."""
    x, y = ground.domain.axes
    if ground.lon_lat:
        return 1 / max(math.cos(math.radians((y.lo + y.hi) / 2)), 0.2)
    ratio = (y.hi - y.lo) / (x.hi - x.lo)
    return 1.0 if ground.unit or 1 / MAX_ASPECT_RATIO <= ratio <= MAX_ASPECT_RATIO else None


def shape(ground: Ground) -> float:
    """Return the height of the drawn map over its width."""
    x, y = ground.domain.axes
    return (aspect(ground) or 0) * (y.hi - y.lo) / (x.hi - x.lo) or 0.7


def lay_out(figure: Any, ground: Ground, theme: Theme) -> tuple[Any, str]:
    """Draw a base map, a graticule and a scale bar; return the axes and a note for the small print."""
    x, y = ground.domain.axes
    axes = figure.subplots()
    has_lines = draw_base(axes, ground, theme)
    axes.set(xlim=(x.lo, x.hi), ylim=(y.lo, y.hi), aspect=aspect(ground) or "auto")
    _label(axes, ground)
    axes.grid(color=theme.faint, alpha=0.25, linewidth=0.4, zorder=2)
    axes.set_axisbelow(False)
    _scale_bar(axes, ground, theme)
    return axes, BLANK_NOTE + (" Base map: Natural Earth, US Census Bureau." * has_lines)


def paint(axes: Any, release: Release, uncertainty: bool, cells: bool, theme: Theme, trim: bool) -> None:
    """Draw the density and its colour bar; with ``trim``, cut off the part of the figure that the map does not fill."""
    from matplotlib.colors import LogNorm

    ground, figure = Ground(release.domain), axes.figure
    x, y = release.domain.axes
    drawn = axes.imshow(
        np.full((2, 2), np.nan),
        origin="lower",
        extent=(x.lo, x.hi, y.lo, y.hi),
        norm=LogNorm(1e3, 1e4),
        cmap=theme.colours(uncertainty),
        interpolation="none",
        aspect=axes.get_aspect(),
        zorder=1,
    )
    bar = figure.colorbar(drawn, cax=axes.inset_axes((1.02, 0, 0.022, 1)), extend="both", extendfrac=0.025)
    bar.outline.set_visible(False)
    _label_bar(bar, uncertainty, ground.area_unit, 1)
    _fit(figure, axes)  # only now is the size of the image known
    if trim:
        _trim(figure, axes)
    room = drawn.get_window_extent()
    # matplotlib would drop pixels of a finer image
    picture = density_image(release, room.height, room.width, ground)
    image = picture.error if uncertainty else picture.density
    times = 1 if uncertainty or ground.unit is None else _area_factor(*limits(image))
    drawn.set_data(image * times)
    drawn.set_clim(*limits(image * times))
    _label_bar(bar, uncertainty, ground.area_unit, times)
    if np.isnan(image).all():
        bar.ax.set_visible(False)
        nothing = "The noise hides whether there are any points."
        axes.text(0.5, 0.5, nothing, transform=axes.transAxes, ha="center", zorder=6)
    if cells:
        _outline(axes, release, room.width, room.height, theme)


def limits(image: Floats) -> tuple[float, float]:
    """Return the values at the ends of the colour bar."""
    finite = image[np.isfinite(image) & (image > 0)]
    low, high = np.quantile(finite, COLOUR_QUANTILES).tolist() if len(finite) else (1.0, 10.0)
    return low, max(high, low * 10)


def _area_factor(low: float, high: float) -> int:
    """Return the number of area units per which densities are given, so that they are not all far below 1."""
    middle = math.sqrt(low) * math.sqrt(high)
    return next((times for times in (1, 100, 10_000) if middle * times >= 0.3), 1_000_000)


def _fit(figure: Any, axes: Any) -> None:
    figure.get_layout_engine().execute(figure)
    axes.apply_aspect()


def _trim(figure: Any, axes: Any) -> None:
    """Cut off the part of the figure that the map does not fill."""
    wide, high = figure.get_size_inches()
    room, used = axes.get_position(original=True), axes.get_position()
    fitting = wide * (1 - room.width + used.width), high * (1 - room.height + used.height)
    figure.set_size_inches(*np.maximum(fitting, MIN_FIGURE_INCHES))
    _fit(figure, axes)


def _label_bar(bar: Any, uncertainty: bool, area_unit: str, times: int) -> None:
    """Put round numbers beside the colours, and say what they are."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    decades = math.log10(bar.norm.vmax / bar.norm.vmin)
    formatted = _percent if uncertainty else _number
    bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0,) if decades > 2.5 else (1.0, 2.0, 5.0)))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: formatted(value)))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    area = f"{times:,} {area_unit}" if times > 1 else area_unit
    bar.set_label("standard error, relative to the estimate" if uncertainty else f"estimated rows per {short(area)}")


def _number(value: float) -> str:
    return f"{value:,.6f}".rstrip("0").rstrip(".") if 1e-5 < value < 1e8 else f"{value:g}"


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def _label(axes: Any, ground: Ground) -> None:
    """Label degrees with compass letters, and other axes with their name and unit."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    x, y = ground.domain.axes
    if ground.lon_lat and min(x.hi - x.lo, y.hi - y.lo) > 1e-4:
        for side, letters in ((axes.xaxis, "EW"), (axes.yaxis, "NS")):
            side.set_major_locator(MaxNLocator(7, steps=[1, 1.5, 2, 3, 4.5, 5, 6, 10]))
            side.set_major_formatter(FuncFormatter(lambda v, _, letters=letters: degrees(v, letters)))
        return
    unit = f" ({ground.unit})" if ground.unit else ""
    axes.set(xlabel=f"{short(x.name)}{unit}", ylabel=f"{short(y.name)}{unit}")
    if ground.unit:
        for side in (axes.xaxis, axes.yaxis):
            side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def degrees(value: float, letters: str) -> str:
    """Return degrees with the letter of their direction, such as 40° N."""
    value = float((value + 180) % 360 - 180 if abs(value) > 180 else value)
    letter = "" if value in (0.0, -180.0, 180.0) else f" {letters[value < 0]}"
    return f"{abs(round(value, 5)):g}°{letter}"


def _scale_bar(axes: Any, ground: Ground, theme: Theme) -> None:
    from matplotlib.patheffects import withStroke

    km_per_unit = ground.length()
    if km_per_unit is None:
        return
    x, y = ground.domain.axes
    wide, high = x.hi - x.lo, y.hi - y.lo
    longest = 0.22 * wide * km_per_unit
    power = 10 ** math.floor(math.log10(longest))
    length = max(step for step in (1, 2, 5) if step * power <= longest) * power
    name = f"{length:,g} km" if length >= 1 else f"{1000 * length:,.3g} m"
    low, top = (math.cos(math.radians(end)) for end in (y.lo, y.hi)) if ground.lon_lat else (1.0, 1.0)
    if ground.lon_lat and (abs(low / top - 1) > 0.05 if top > 0 else True):
        name += f" at {degrees(round((y.lo + y.hi) / 2, 1), 'NS')}"
    ends = x.lo + 0.03 * wide, x.lo + 0.03 * wide + length / km_per_unit
    halo = [withStroke(linewidth=3.5, foreground=theme.paper, alpha=0.8)]
    axes.plot(ends, [y.lo + 0.04 * high] * 2, color=theme.ink, lw=2, zorder=5, path_effects=halo, solid_capstyle="butt")
    place = {"xy": (ends[0], y.lo + 0.04 * high), "xytext": (0, 4), "textcoords": "offset points"}
    axes.annotate(name, fontsize=7, va="bottom", zorder=5, path_effects=halo, **place)


def _outline(axes: Any, release: Release, wide: float, high: float, theme: Theme) -> None:
    """Draw the borders of all nodes that are large enough, among them those of leaves."""
    from matplotlib.collections import PolyCollection

    tree, domain = release.estimates.tree, release.domain
    pixels = (tree.hi - tree.lo) / domain.side * [wide, high]
    nodes = np.flatnonzero(np.all(pixels > 0, axis=1) & np.any(pixels >= MIN_OUTLINED_PIXELS, axis=1))
    (x0, x1), (y0, y1) = ((domain.edges(tree.lo[nodes, a], a), domain.edges(tree.hi[nodes, a], a)) for a in (0, 1))
    corners = np.stack([[x0, y0], [x1, y0], [x1, y1], [x0, y1]]).transpose(2, 0, 1)
    drawn = PolyCollection(list(corners), facecolors="none", edgecolors=theme.faint, linewidths=0.25, zorder=2.5)
    drawn.set_rasterized(True)
    axes.add_collection(drawn, autolim=False)

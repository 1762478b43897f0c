"""Releases along one axis as steps with a band; those of three axes and more along each axis, and each pair."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilmap.domain import Domain
from veilmap.ground import Ground
from veilmap.plot.base import draw_base
from veilmap.plot.density import SURE
from veilmap.plot.maps import limits
from veilmap.plot.theme import Theme
from veilmap.published import Release

Floats = NDArray[np.float64]

MOST_STEPS = 128
PAIR_STEPS = {3: 64, 4: 48}  # a side, by axes; 32 for more


def draw_steps(figure: Any, release: Release, uncertainty: bool, theme: Theme) -> str:
    """One axis: how dense it is, and the band that holds it with 95 %."""
    axes = figure.subplots()
    _draw_axis(axes, release, 0, uncertainty, theme)
    axes.set_xlabel(release.domain.names[0])
    axes.grid(color=theme.faint, alpha=0.25, linewidth=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    return "" if uncertainty else "Band: 95 % intervals, each on its own."


def draw_pairs(figure: Any, release: Release, uncertainty: bool, theme: Theme) -> str:
    """Each axis on the diagonal, each pair of axes below it."""
    names, count = release.domain.names, release.domain.dimensions
    panels = figure.subplots(count, count, squeeze=False)
    for row in range(count):
        for column in range(count):
            axes = panels[row, column]
            if column > row:
                axes.remove()
                continue
            axes.tick_params(labelsize=6, labelbottom=row == count - 1, labelleft=column in (0, row))
            axes.locator_params(nbins=4)
            if column == row:
                _draw_axis(axes, release, row, uncertainty, theme)
                axes.set_ylabel("")
                axes.spines[["top", "right"]].set_visible(False)
            else:
                _draw_pair(axes, release, (column, row), uncertainty, theme)
            if row == count - 1:
                axes.set_xlabel(names[column])
            if column == 0 and row:
                axes.set_ylabel(names[row])
    what = "standard errors, relative" if uncertainty else "rows per unit, with 95 % bands"
    return f"On the diagonal: {what}. Below: pairs, each in its own log scale; no colour: cannot be told from empty."


def _draw_axis(axes: Any, release: Release, axis: int, uncertainty: bool, theme: Theme) -> None:
    edges = _edges(release, axis)
    answers = release.count(_slabs(release.domain, {axis: edges}))
    width = np.diff(edges)
    axes.set_xlim(edges[0], edges[-1])
    if uncertainty:
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(answers.estimate > 0, answers.stderr / answers.estimate, np.nan)
        axes.stairs(100 * np.minimum(error, 1), edges, color=theme.line, baseline=None)
        axes.set(ylim=(0, 103), ylabel="standard error, % of the estimate")
        return
    low, high = (np.append(ends, ends[-1]) / np.append(width, width[-1]) for ends in (answers.low, answers.high))
    axes.fill_between(edges, low, high, step="post", color=theme.line, alpha=0.3, linewidth=0)
    axes.stairs(answers.estimate / width, edges, color=theme.line, baseline=None)
    axes.set_ylabel(f"estimated rows per unit of {release.domain.names[axis]}")
    axes.set_ylim(min(0.0, float((answers.estimate / width).min())), None)


def _draw_pair(axes: Any, release: Release, pair: tuple[int, int], uncertainty: bool, theme: Theme) -> None:
    from matplotlib.colors import LogNorm

    each = PAIR_STEPS.get(release.domain.dimensions, 32)
    x, y = (release.domain.axes[axis] for axis in pair)
    edges = {axis: np.linspace(release.domain.axes[axis].lo, release.domain.axes[axis].hi, each + 1) for axis in pair}
    answers = release.count(_slabs(release.domain, edges))
    estimate, error = (values.reshape(each, each).T for values in (answers.estimate, answers.stderr))
    with np.errstate(divide="ignore", invalid="ignore"):
        image = np.where(estimate > SURE * error, error / estimate if uncertainty else estimate, np.nan)
    image = np.where(image > 0, image, np.nan)
    axes.set_facecolor(theme.land)
    if pair == (0, 1):
        draw_base(axes, Ground(release.domain), theme)
    colours = {"cmap": theme.colours(uncertainty), "norm": LogNorm(*limits(image))}
    place = {"extent": (x.lo, x.hi, y.lo, y.hi), "origin": "lower", "aspect": "auto", "zorder": 1}
    axes.imshow(image, interpolation="none", **colours, **place)


def _edges(release: Release, axis: int) -> Floats:
    """Those of the leaves, if they are few; else of equal steps."""
    tree, domain = release.estimates.tree, release.domain
    cells = np.unique(tree.lo[tree.is_leaf, axis])
    if 1 < len(cells) <= MOST_STEPS and domain.dimensions == 1:
        return domain.edges(np.append(cells, domain.side), axis)
    return np.linspace(domain.axes[axis].lo, domain.axes[axis].hi, min(MOST_STEPS, domain.side) + 1)


def _slabs(domain: Domain, edges: dict[int, Floats]) -> Floats:
    """Boxes between these edges along some axes, the last running fastest, and as wide as the domain along others."""
    places = np.meshgrid(*(np.arange(len(edge) - 1) for edge in edges.values()), indexing="ij")
    boxes = np.tile(np.concatenate([domain.lo, domain.hi]), (places[0].size, 1))
    for place, (axis, edge) in zip(places, edges.items(), strict=True):
        boxes[:, axis], boxes[:, domain.dimensions + axis] = edge[place.ravel()], edge[place.ravel() + 1]
    return boxes

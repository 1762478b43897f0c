"""Releases along one axis as steps with a band; those of three axes and more along each axis, and each pair."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from veilmap.arrays import Floats
from veilmap.domain import Domain
from veilmap.geography.crs import Ground
from veilmap.plot.base_map import draw_base
from veilmap.plot.density import SURE
from veilmap.plot.maps import limits
from veilmap.plot.theme import Theme, short
from veilmap.releases.release import Release

MOST_STEPS, SMALL_STEPS = 128, 64  # of one axis alone, and beside others
PAIR_STEPS = {3: 64, 4: 48, 5: 32, 6: 32}  # a side, by axes
FEWEST_STEPS = 20  # for more


class Numbers(NamedTuple):
    """Of the steps of one panel."""

    estimate: Floats
    stderr: Floats
    low: Floats
    high: Floats


def draw_steps(figure: Any, release: Release, uncertainty: bool, theme: Theme) -> str:
    """One axis: how dense it is, and the band that holds it with 95 %."""
    axes = figure.subplots()
    edges = _edges(release, 0)
    _draw_axis(axes, edges, _asked(release, [{0: edges}])[0], uncertainty, theme)
    if not uncertainty:
        axes.set_ylabel(f"estimated rows per unit of {short(release.domain.names[0])}")
    axes.set_xlabel(short(release.domain.names[0]))
    axes.grid(color=theme.faint, alpha=0.25, linewidth=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    return "" if uncertainty else "Band: 95 % intervals, each on its own."


def draw_pairs(figure: Any, release: Release, uncertainty: bool, theme: Theme) -> str:
    """Each axis on the diagonal, each pair of axes below it."""
    names, count = [short(name) for name in release.domain.names], release.domain.dimensions
    panels = figure.subplots(count, count, squeeze=False)
    for place in zip(*np.triu_indices(count, 1), strict=True):
        panels[place].remove()
    places = [(row, column) for row in range(count) for column in range(row + 1)]
    edges = [_panel_edges(release, place) for place in places]
    for (row, column), edge, found in zip(places, edges, _asked(release, edges), strict=True):
        axes = panels[row, column]
        axes.tick_params(labelsize=6, labelbottom=row == count - 1, labelleft=column in (0, row))
        axes.locator_params(nbins=4 if count < 5 else 2)  # so that their numbers stay apart
        if column == row:
            _draw_axis(axes, edge[row], found, uncertainty, theme)
            axes.set_ylabel("")
            axes.spines[["top", "right"]].set_visible(False)
        else:
            _draw_pair(axes, release, edge, found, uncertainty, theme)
        if row == count - 1:
            axes.set_xlabel(names[column])
        if column == 0 and row:
            axes.set_ylabel(names[row])
    what = "standard errors, relative" if uncertainty else "rows per unit, with 95 % bands"
    return f"On the diagonal: {what}. Below: pairs, each in its own log scale; no colour: cannot be told from empty."


def _asked(release: Release, panels: list[dict[int, Floats]]) -> list[Numbers]:
    """All panels at once: so many boxes are worth tables, which answer faster."""
    boxes = [_slabs(release.domain, edges) for edges in panels]
    answers = release.count(np.concatenate(boxes))
    ends = np.cumsum([len(part) for part in boxes])[:-1]
    parts = (np.split(column, ends) for column in (answers.estimate, answers.stderr, answers.low, answers.high))
    return [Numbers(*columns) for columns in zip(*parts, strict=True)]


def _draw_axis(axes: Any, edges: Floats, found: Numbers, uncertainty: bool, theme: Theme) -> None:
    width = np.diff(edges)
    axes.set_xlim(edges[0], edges[-1])
    if uncertainty:
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(found.estimate > 0, found.stderr / found.estimate, np.nan)
        axes.stairs(100 * np.minimum(error, 1), edges, color=theme.line, baseline=None)
        axes.set(ylim=(0, 103), ylabel="standard error, % of the estimate")
        return
    low, high = (np.append(ends / width, ends[-1] / width[-1]) for ends in (found.low, found.high))
    axes.fill_between(edges, low, high, step="post", color=theme.line, alpha=0.3, linewidth=0)
    axes.stairs(found.estimate / width, edges, color=theme.line, baseline=None)
    axes.set_ylim(min(0.0, float((found.estimate / width).min())), None)


def _draw_pair(
    axes: Any, release: Release, edges: dict[int, Floats], found: Numbers, uncertainty: bool, theme: Theme
) -> None:
    from matplotlib.colors import LogNorm

    x, y = edges
    shape = len(edges[x]) - 1, len(edges[y]) - 1
    estimate, error = (values.reshape(shape).T for values in (found.estimate, found.stderr))
    with np.errstate(divide="ignore", invalid="ignore"):
        image = np.where(estimate > SURE * error, error / estimate if uncertainty else estimate, np.nan)
    image = np.where(image > 0, image, np.nan)
    axes.set_facecolor(theme.land)
    if (x, y) == (0, 1):
        draw_base(axes, Ground(release.domain), theme)
    place = (edges[x][0], edges[x][-1], edges[y][0], edges[y][-1])
    colours = {"cmap": theme.colours(uncertainty), "norm": LogNorm(*limits(image))}
    axes.imshow(image, extent=place, origin="lower", aspect="auto", interpolation="none", zorder=1, **colours)


def _panel_edges(release: Release, place: tuple[int, int]) -> dict[int, Floats]:
    row, column = place
    if row == column:
        return {row: _edges(release, row)}
    each = PAIR_STEPS.get(release.domain.dimensions, FEWEST_STEPS)
    ends = [(axis, release.domain.axes[axis]) for axis in (column, row)]
    return {axis: np.linspace(there.lo, there.hi, each + 1) for axis, there in ends}


def _edges(release: Release, axis: int) -> Floats:
    """Those of the leaves, if they are few; else of equal steps."""
    tree, domain = release.estimates.tree, release.domain
    cells = np.unique(tree.lo[tree.is_leaf, axis])
    if 1 < len(cells) <= MOST_STEPS and domain.dimensions == 1:
        return domain.edges(np.append(cells, domain.side), axis)
    most = MOST_STEPS if domain.dimensions == 1 else SMALL_STEPS
    return np.linspace(domain.axes[axis].lo, domain.axes[axis].hi, min(most, domain.side) + 1)


def _slabs(domain: Domain, edges: dict[int, Floats]) -> Floats:
    """Boxes between these edges along some axes, the last running fastest, and as wide as the domain along others."""
    places = np.meshgrid(*(np.arange(len(edge) - 1) for edge in edges.values()), indexing="ij")
    boxes = np.tile(np.concatenate([domain.lo, domain.hi]), (places[0].size, 1))
    for place, (axis, edge) in zip(places, edges.items(), strict=True):
        boxes[:, axis], boxes[:, domain.dimensions + axis] = edge[place.ravel()], edge[place.ravel() + 1]
    return boxes

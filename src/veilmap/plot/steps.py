"""Plots of releases with one axis, as steps with a band, and with three or more axes, as a matrix of pairs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from veilmap.arrays import Floats
from veilmap.domain import Domain
from veilmap.geography.crs import Ground
from veilmap.plot.base_map import draw_base
from veilmap.plot.density import MIN_STDERRS
from veilmap.plot.maps import limits
from veilmap.plot.theme import BLANK_NOTE, Theme, short
from veilmap.releases.release import Release

MAX_STEPS = 128  # of the only axis
PANEL_STEPS = 64  # of one of several axes
PAIR_STEPS = {3: 64, 4: 48, 5: 32, 6: 32}  # per side of a panel, by the number of axes
MIN_PAIR_STEPS = 20  # per side of a panel, for more axes


class PanelAnswers(NamedTuple):
    """The answers for the steps of one panel."""

    estimate: Floats
    stderr: Floats
    low: Floats
    high: Floats


def draw_steps(figure: Any, release: Release, uncertainty: bool, theme: Theme) -> str:
    """Draw the density along one axis, with 95 % intervals as a band; return a note for the small print."""
    axes = figure.subplots()
    edges = _edges(release, 0)
    _draw_axis(axes, edges, _count_panels(release, [{0: edges}])[0], uncertainty, theme)
    if not uncertainty:
        axes.set_ylabel(f"estimated rows per unit of {short(release.domain.names[0])}")
    axes.set_xlabel(short(release.domain.names[0]))
    axes.grid(color=theme.faint, alpha=0.25, linewidth=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    return "" if uncertainty else "Band: a separate 95 % interval for each step."


def draw_pairs(figure: Any, release: Release, uncertainty: bool, theme: Theme) -> str:
    """Draw each axis on the diagonal and each pair of axes below it; return a note for the small print."""
    names, count = [short(name) for name in release.domain.names], release.domain.dimensions
    panels = figure.subplots(count, count, squeeze=False)
    for place in zip(*np.triu_indices(count, 1), strict=True):
        panels[place].remove()
    places = [(row, column) for row in range(count) for column in range(row + 1)]
    edges = [_panel_edges(release, place) for place in places]
    for (row, column), edge, answers in zip(places, edges, _count_panels(release, edges), strict=True):
        axes = panels[row, column]
        axes.tick_params(labelsize=6, labelbottom=row == count - 1, labelleft=column in (0, row))
        axes.locator_params(nbins=4 if count < 5 else 2)  # few, so that labels do not overlap
        if column == row:
            _draw_axis(axes, edge[row], answers, uncertainty, theme)
            axes.set_ylabel("")
            axes.spines[["top", "right"]].set_visible(False)
        else:
            _draw_pair(axes, release, edge, answers, uncertainty, theme)
        if row == count - 1:
            axes.set_xlabel(names[column])
        if column == 0 and row:
            axes.set_ylabel(names[row])
    diagonal = "standard errors, % of the estimate" if uncertainty else "rows per unit, with 95 % intervals as a band"
    pairs = "relative standard errors" if uncertainty else "estimated rows"
    return f"On the diagonal: {diagonal}. Below: {pairs} for each pair of axes, each on its own log scale. {BLANK_NOTE}"


def _count_panels(release: Release, panels: list[dict[int, Floats]]) -> list[PanelAnswers]:
    """Count for all panels at once: for many boxes, the release builds tables that answer faster."""
    boxes = [_slabs(release.domain, edges) for edges in panels]
    answers = release.count(np.concatenate(boxes))
    ends = np.cumsum([len(panel) for panel in boxes])[:-1]
    split = (np.split(column, ends) for column in (answers.estimate, answers.stderr, answers.low, answers.high))
    return [PanelAnswers(*columns) for columns in zip(*split, strict=True)]


def _draw_axis(axes: Any, edges: Floats, answers: PanelAnswers, uncertainty: bool, theme: Theme) -> None:
    width = np.diff(edges)
    axes.set_xlim(edges[0], edges[-1])
    if uncertainty:
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(answers.estimate > 0, answers.stderr / answers.estimate, np.nan)
        axes.stairs(100 * np.minimum(error, 1), edges, color=theme.line, baseline=None)
        axes.set(ylim=(0, 103), ylabel="standard error, % of the estimate")
        return
    low, high = (np.append(ends / width, ends[-1] / width[-1]) for ends in (answers.low, answers.high))
    axes.fill_between(edges, low, high, step="post", color=theme.line, alpha=0.3, linewidth=0)
    axes.stairs(answers.estimate / width, edges, color=theme.line, baseline=None)
    axes.set_ylim(min(0.0, float((answers.estimate / width).min())), None)


def _draw_pair(
    axes: Any, release: Release, edges: dict[int, Floats], answers: PanelAnswers, uncertainty: bool, theme: Theme
) -> None:
    from matplotlib.colors import LogNorm

    x, y = edges
    shape = len(edges[x]) - 1, len(edges[y]) - 1
    estimate, error = (values.reshape(shape).T for values in (answers.estimate, answers.stderr))
    with np.errstate(divide="ignore", invalid="ignore"):
        image = np.where(estimate > MIN_STDERRS * error, error / estimate if uncertainty else estimate, np.nan)
    image = np.where(image > 0, image, np.nan)
    axes.set_facecolor(theme.land)
    if (x, y) == (0, 1):
        draw_base(axes, Ground(release.domain), theme)
    place = (edges[x][0], edges[x][-1], edges[y][0], edges[y][-1])
    colours = {"cmap": theme.colours(uncertainty), "norm": LogNorm(*limits(image))}
    axes.imshow(image, extent=place, origin="lower", aspect="auto", interpolation="none", zorder=1, **colours)


def _panel_edges(release: Release, place: tuple[int, int]) -> dict[int, Floats]:
    """Return the edges of a panel's steps by axis."""
    row, column = place
    if row == column:
        return {row: _edges(release, row)}
    steps = PAIR_STEPS.get(release.domain.dimensions, MIN_PAIR_STEPS)
    axes = release.domain.axes
    return {axis: np.linspace(axes[axis].lo, axes[axis].hi, steps + 1) for axis in (column, row)}


def _edges(release: Release, axis: int) -> Floats:
    """Return the edges of the leaves if there is one axis and they are few, else of equal steps."""
    tree, domain = release.estimates.tree, release.domain
    cells = np.unique(tree.lo[tree.is_leaf, axis])
    if 1 < len(cells) <= MAX_STEPS and domain.dimensions == 1:
        return domain.edges(np.append(cells, domain.side), axis)
    steps = MAX_STEPS if domain.dimensions == 1 else PANEL_STEPS
    return np.linspace(domain.axes[axis].lo, domain.axes[axis].hi, min(steps, domain.side) + 1)


def _slabs(domain: Domain, edges: dict[int, Floats]) -> Floats:
    """Return boxes between the given edges, the last axis varying fastest, that span the domain along other axes."""
    places = np.meshgrid(*(np.arange(len(edge) - 1) for edge in edges.values()), indexing="ij")
    boxes = np.tile(np.concatenate([domain.lo, domain.hi]), (places[0].size, 1))
    for place, (axis, edge) in zip(places, edges.items(), strict=True):
        boxes[:, axis], boxes[:, domain.dimensions + axis] = edge[place.ravel()], edge[place.ravel() + 1]
    return boxes

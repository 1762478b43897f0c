"""Maps of releases."""

from __future__ import annotations

import io
import math
import os

import numpy as np
from numpy.typing import NDArray

from veilmap.curve import CurveTree
from veilmap.errors import BadInput, need
from veilmap.estimate import standard_errors
from veilmap.fileformat import put_in_place
from veilmap.kernels.curves import hilbert_keys
from veilmap.kernels.painting import paint
from veilmap.published import Release
from veilmap.tree import RegularTree, Tree

FINEST = 11  # a raster never has more than 2^11 pixels a side
SURE = 3.0  # standard errors above zero from which a cell is shown
FAINT = 0.2  # of their parent's density: cells with less are not shown together
WRONG = 0.01  # of the cells that are shown, at most about so many are empty


def density_image(release: Release) -> NDArray[np.float64]:
    """Points per unit area, as finely as the noise allows; NaN where nothing can be told from empty.

    A node is shown when its estimate is well above its error and its parent is shown. The other children of a parent
    share what is left of it, if that is well above its error and not faint beside them. A shown node without shown
    children keeps its own even density.
    """
    tree, domain = release.estimates.tree, release.domain
    pixels = _pixels(tree, domain.side)
    places = tree.keys if isinstance(tree, CurveTree) else tree
    part = np.prod((places.hi - places.lo) / float(places.hi[0, 0]), axis=1)  # of the domain
    held, error = release.estimates.estimate.copy(), standard_errors(release.estimates, release.consistent)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = held / error
    sure = np.zeros(tree.size, np.bool_)
    sure[0] = True
    shown, density = sure.copy(), held / np.where(part > 0, part, np.nan)
    for level in range(1, tree.height + 1):
        nodes = np.arange(tree.level(level).start, tree.level(level).stop)
        nodes = nodes[sure[tree.parent[nodes]]]
        sure[nodes] = _well_above(ratio[nodes])
        shown[nodes] = sure[nodes]
        above = tree.parent[nodes] - tree.level(level - 1).start
        rest, size, variance = (
            np.bincount(above, np.where(sure[nodes], 0.0, of[nodes]))[above] for of in (held, part, error**2)
        )
        some = np.bincount(above, sure[nodes])[above] > 0
        others = some & ~sure[nodes] & (rest > SURE * np.sqrt(variance))
        others &= rest > FAINT * size * density[tree.parent[nodes]]
        shown[nodes[others]] = True
        density[nodes[others]] = rest[others] / size[others]
    density /= float(np.prod(domain.hi - domain.lo))
    image = np.full((pixels, pixels), density[0] if ratio[0] > SURE else np.nan)
    if isinstance(tree, CurveTree):
        _paint_ranges(tree, shown, density, image)
    else:
        lo, hi = tree.lo * pixels // domain.side, tree.hi * pixels // domain.side
        paint(tree.first_child, lo, hi, shown, density, image)
    return image


def _well_above(ratio: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of many estimates are above zero, by their ratios to their errors, such that few of these are wrong.

    Benjamini and Hochberg's rule, as if the noise were Laplace's.
    """
    chance = np.where(ratio > SURE, np.exp(-math.sqrt(2) * np.maximum(ratio, 0)) / 2, 1.0)
    order = np.sort(chance)
    kept = np.flatnonzero(order <= WRONG * np.arange(1, len(order) + 1) / max(len(order), 1))
    return chance <= (order[kept[-1]] if len(kept) else 0.0)


def _pixels(tree: Tree, side: int) -> int:
    """Along each axis: enough for the narrowest leaf."""
    if isinstance(tree, RegularTree):
        narrowest = side / max(tree.grid(tree.height))
    else:
        width = (tree.hi - tree.lo)[tree.is_leaf]
        narrowest = float(width[width > 0].min())
    finest = FINEST - isinstance(tree, CurveTree)  # ranges have no edges to show more finely
    return int(2 ** np.clip(np.ceil(np.log2(side / narrowest)), 1, finest))


def _paint_ranges(
    tree: CurveTree, shown: NDArray[np.bool_], density: NDArray[np.float64], image: NDArray[np.float64]
) -> None:
    """Along a curve every pixel has a key, and is painted like the ranges that hold it."""
    pixels = len(image)
    cell = (np.arange(pixels) * 2 + 1) * 2**tree.order // (2 * pixels)
    cells = np.stack([a.ravel() for a in np.meshgrid(cell, cell)])  # x runs along the rows of an image
    keys, line = np.empty(cells.shape[1], np.int64), image.reshape(-1)
    hilbert_keys(cells, tree.order, keys)
    inside = np.arange(len(keys))  # pixels whose range was shown, down to the level above
    for level in range(1, tree.height + 1):
        nodes = np.arange(tree.level(level).start, tree.level(level).stop)
        nodes = nodes[tree.keys.lo[nodes, 0] < tree.keys.hi[nodes, 0]]
        if not len(nodes):
            break
        node = nodes[np.maximum(np.searchsorted(tree.keys.lo[nodes, 0], keys[inside], side="right") - 1, 0)]
        held = (tree.keys.lo[node, 0] <= keys[inside]) & (keys[inside] < tree.keys.hi[node, 0])
        inside, node = inside[held], node[held]
        some = np.zeros(tree.size, np.bool_)
        some[tree.parent[nodes[shown[nodes]]]] = True  # parents that have shown children
        node, inside = node[some[tree.parent[node]]], inside[some[tree.parent[node]]]
        line[inside] = np.where(shown[node], density[node], np.nan)
        inside = inside[shown[node]]


def draw_map(release: Release, path: str | os.PathLike[str], title: str) -> None:
    """A density map of a release with two axes, as a PNG."""
    if release.domain.dimensions != 2:
        raise BadInput(f"A map needs a release with two axes, this one has {release.domain.dimensions}.")
    need("matplotlib", "plot", "Drawing a map")
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    x_axis, y_axis = release.domain.axes
    ratio = (y_axis.hi - y_axis.lo) / (x_axis.hi - x_axis.lo)
    image = density_image(release)
    finite = image[np.isfinite(image) & (image > 0)]
    low, high = np.quantile(finite, [0.02, 0.999]) if len(finite) else (1.0, 10.0)

    figure = Figure(figsize=(10, np.clip(8.2 * ratio, 2.5, 10) + 1), dpi=130, layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor("#efefea")
    drawn = axes.imshow(
        image,
        origin="lower",
        extent=(x_axis.lo, x_axis.hi, y_axis.lo, y_axis.hi),
        norm=LogNorm(low, max(high, low * 10)),
        cmap="viridis",
        interpolation="none",
    )
    axes.set(xlabel=x_axis.name, ylabel=y_axis.name, title=title)
    bar = figure.colorbar(drawn, ax=axes, fraction=0.046 * min(ratio, 1), pad=0.015, extend="both")
    bar.set_label(f"estimated points per square unit of {x_axis.name} × {y_axis.name}", fontsize=8)
    delta = f", δ = {float(release.privacy.delta):g}" if release.privacy.delta else ""
    promise = f"ε = {float(release.privacy.epsilon):g}{delta} for {release.privacy.unit}"
    promise = promise if release.privacy.private else "NOT PRIVATE"
    notes = f"{promise} · {release.method['name']}, {release.height} levels · grey: cannot be told from empty"
    axes.annotate(notes, (1, -0.09), xycoords="axes fraction", ha="right", va="top", fontsize=8, color="#555555")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    put_in_place(path, buffer.getvalue())

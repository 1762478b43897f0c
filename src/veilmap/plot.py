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
from veilmap.kernels.painting import add_up
from veilmap.published import Release
from veilmap.tree import RegularTree, Tree

FINEST = 2048  # a raster never has more pixels a side
SURE = 3.0  # standard errors above zero from which a cell is shown
FAINT = 0.2  # of their parent's density: cells with less are not shown together
WRONG = 0.01  # of the cells that are shown, at most about so many are empty


def density_image(release: Release, rows: float = FINEST, columns: float = FINEST) -> NDArray[np.float64]:
    """Points per unit area, as finely as the noise and so many pixels allow; NaN where nothing can be told from empty.

    A node is shown when its estimate is well above its error and its parent is shown. The other children of a parent
    share what is left of it, if that is well above its error and not faint beside them. A shown node without shown
    children keeps its own even density, and so does one inside a pixel. A pixel has what such nodes hold in it, however
    small they are: so the image holds all that is shown.
    """
    tree, domain = release.estimates.tree, release.domain
    shape = _pixels(tree, domain.side, rows, columns)
    lo, hi = _in_pixels(tree, shape)
    last, density = shown_nodes(release, np.any(hi - lo > 1, axis=1))
    density /= float(np.prod(domain.hi - domain.lo))
    curve = isinstance(tree, CurveTree)
    image = np.full((1, math.prod(shape)) if curve else shape, np.nan)
    add_up(lo[last], hi[last], density[last], image)
    return image[0, _steps(tree, shape[0])] if isinstance(tree, CurveTree) else image


def shown_nodes(
    release: Release, wide: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Which nodes are shown without shown children, and each node's density, in points a domain.

    Only nodes that are ``wide`` are looked into; all are, when it is not given.
    """
    tree = release.estimates.tree
    places = tree.keys if isinstance(tree, CurveTree) else tree
    part = np.prod((places.hi - places.lo) / float(places.hi[0, 0]), axis=1)  # of the domain
    held, error = release.estimates.estimate.copy(), standard_errors(release.estimates, release.consistent)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = held / error
    sure = np.zeros(tree.size, np.bool_)
    sure[0] = True
    shown, density = sure & (ratio > SURE), held / np.where(part > 0, part, np.nan)
    last = shown.copy()  # shown, without shown children
    for level in range(1, tree.height + 1):
        nodes = np.arange(tree.level(level).start, tree.level(level).stop)
        above = tree.parent[nodes]
        nodes = nodes[(sure[above] if wide is None else (sure & wide)[above]) & (part[nodes] > 0)]
        sure[nodes] = well_above(ratio[nodes])
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
        last[nodes] = shown[nodes]
        last[tree.parent[nodes[some]]] = False
    return last, density


def well_above(ratio: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of many estimates are above zero, by their ratios to their errors, such that few of these are wrong.

    Benjamini and Hochberg's rule, as if the noise were Laplace's.
    """
    chance = np.where(ratio > SURE, np.exp(-math.sqrt(2) * np.maximum(ratio, 0)) / 2, 1.0)
    order = np.sort(chance)
    kept = np.flatnonzero(order <= WRONG * np.arange(1, len(order) + 1) / max(len(order), 1))
    return chance <= (order[kept[-1]] if len(kept) else 0.0)


def _pixels(tree: Tree, side: int, rows: float, columns: float) -> tuple[int, int]:
    """Along the second axis and the first: enough for the narrowest leaf."""
    if isinstance(tree, RegularTree):
        narrowest = side / max(tree.grid(tree.height))
    else:
        width = (tree.hi - tree.lo)[tree.is_leaf]
        narrowest = float(width[width > 0].min())
    wanted = max(2, 2 ** math.ceil(math.log2(side / narrowest)))
    if isinstance(tree, CurveTree):  # its ranges have no edges to show more finely, and a pixel is one of them
        rows = columns = min(rows, columns, FINEST // 2, 2**tree.order)
    tall, wide = (2 ** math.floor(math.log2(np.clip(n, 1, FINEST))) for n in (rows, columns))
    return min(tall, wanted), min(wide, wanted)


def _in_pixels(tree: Tree, shape: tuple[int, int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """From where to where nodes lie in the columns and rows of an image; along a curve, in one row of its steps."""
    if isinstance(tree, CurveTree):
        scale = math.prod(shape) / float(tree.keys.hi[0, 0])
        lo, hi = tree.keys.lo[:, 0] * scale, tree.keys.hi[:, 0] * scale
        return np.stack([lo, np.zeros_like(lo)], axis=1), np.stack([hi, np.ones_like(hi)], axis=1)
    a_cell = np.array(shape[::-1]) / float(tree.hi[0, 0])
    return np.asarray(tree.lo * a_cell), np.asarray(tree.hi * a_cell)


def _steps(tree: CurveTree, pixels: int) -> NDArray[np.int64]:
    """At which of its steps a curve comes through each pixel: a pixel is a run of keys."""
    cell = np.arange(pixels) * (2**tree.order // pixels)
    cells = np.stack([a.ravel() for a in np.meshgrid(cell, cell)])  # x runs along the rows of an image
    keys = np.empty(cells.shape[1], np.int64)
    hilbert_keys(cells, tree.order, keys)
    return np.asarray(keys.reshape(pixels, pixels) // (4**tree.order // pixels**2))


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

    figure = Figure(figsize=(10, np.clip(8.2 * ratio, 2.5, 10) + 1), dpi=130, layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor("#efefea")
    drawn = axes.imshow(
        image,
        origin="lower",
        extent=(x_axis.lo, x_axis.hi, y_axis.lo, y_axis.hi),
        norm=LogNorm(*_limits(image)),
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
    figure.draw_without_rendering()  # now the room for the image is known
    room = drawn.get_window_extent()
    image = density_image(release, room.height, room.width)  # of a finer one, some pixels would not be drawn
    drawn.set_data(image)
    drawn.set_clim(*_limits(image))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    put_in_place(path, buffer.getvalue())


def _limits(image: NDArray[np.float64]) -> tuple[float, float]:
    """Of the colours."""
    finite = image[np.isfinite(image) & (image > 0)]
    low, high = np.quantile(finite, [0.02, 0.999]).tolist() if len(finite) else (1.0, 10.0)
    return low, max(high, low * 10)

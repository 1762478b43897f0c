"""What a map shows of a release: how dense it is where, as finely as the noise allows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from veilmap.arrays import Flags, Floats, Ints
from veilmap.estimate.least_squares import standard_errors
from veilmap.geography.crs import Ground
from veilmap.kernels.hilbert import hilbert_keys
from veilmap.kernels.rasterize import rasterize_boxes
from veilmap.releases.release import Release
from veilmap.trees import CurveTree, RegularTree, Tree

FINEST = 2048  # a raster never has more pixels a side
SURE = 3.0  # standard errors above zero from which a cell is shown
FAINT = 0.2  # of their parent's density: cells with less are not shown together
WRONG = 0.01  # of the cells that are shown, at most about so many are empty


@dataclass(frozen=True, eq=False)
class Picture:
    """An image, the first row lowest. NaN where nothing can be told from empty."""

    density: Floats  # points per unit of area
    error: Floats  # standard errors, as parts of what is there


def density_image(
    release: Release, rows: float = FINEST, columns: float = FINEST, ground: Ground | None = None
) -> Picture:
    """How dense a release with two axes is, as finely as the noise and so many pixels allow.

    A node is shown when its estimate is well above its error and its parent is shown. The other children of a parent
    share what is left of it, if that is well above its error and not faint beside them. A shown node without shown
    children keeps its own even density, and so does one inside a pixel. A pixel has what such nodes hold in it, however
    small they are: so the image holds all that is shown. Where there are many in a pixel, its error is their mean.
    """
    tree, domain = release.estimates.tree, release.domain
    shape = _pixels(tree, domain.side, rows, columns)
    lo, hi = _in_pixels(tree, shape)
    last, density, error = shown_nodes(release, np.any(hi - lo > 1, axis=1))
    lo, hi, density = lo[last], hi[last], density[last] / float(np.prod(domain.hi - domain.lo))
    if ground is not None:
        ends = [np.stack([domain.edges(e[last, a], a) for a in range(2)], axis=1) for e in (tree.lo, tree.hi)]
        density /= ground.areas(*ends) / np.prod(ends[1] - ends[0], axis=1)
    images = []
    for values in (density, density * error[last]):
        image = np.full((1, math.prod(shape)) if isinstance(tree, CurveTree) else shape, np.nan)
        rasterize_boxes(lo, hi, values, image)
        images.append(image[0, _steps(tree, shape[0])] if isinstance(tree, CurveTree) else image)
    return Picture(images[0], images[1] / images[0])


def shown_nodes(release: Release, wide: Flags | None = None) -> tuple[Flags, Floats, Floats]:
    """Which nodes are shown without shown children, each node's density, in points a domain, and its relative error.

    Only nodes that are ``wide`` are looked into; all are, when it is not given.
    """
    tree = release.estimates.tree
    places = tree.keys if isinstance(tree, CurveTree) else tree
    part = np.prod((places.hi - places.lo) / float(places.hi[0, 0]), axis=1)  # of the domain
    held, error = release.estimates.estimate, standard_errors(release.estimates, release.consistent)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = held / error
        density, relative = held / np.where(part > 0, part, np.nan), 1 / ratio
    sure = np.zeros(tree.size, np.bool_)
    sure[0] = True
    shown = sure & (ratio > SURE)
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
        relative[nodes[others]] = np.sqrt(variance[others]) / rest[others]
        last[nodes] = shown[nodes]
        last[tree.parent[nodes[some]]] = False
    return last, density, relative


def well_above(ratio: Floats) -> Flags:
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


def _in_pixels(tree: Tree, shape: tuple[int, int]) -> tuple[Floats, Floats]:
    """From where to where nodes lie in the columns and rows of an image; along a curve, in one row of its steps."""
    if isinstance(tree, CurveTree):
        scale = math.prod(shape) / float(tree.keys.hi[0, 0])
        lo, hi = tree.keys.lo[:, 0] * scale, tree.keys.hi[:, 0] * scale
        return np.stack([lo, np.zeros_like(lo)], axis=1), np.stack([hi, np.ones_like(hi)], axis=1)
    a_cell = np.array(shape[::-1]) / float(tree.hi[0, 0])
    return np.asarray(tree.lo * a_cell), np.asarray(tree.hi * a_cell)


def _steps(tree: CurveTree, pixels: int) -> Ints:
    """At which of its steps a curve comes through each pixel: a pixel is a run of keys."""
    cell = np.arange(pixels) * (2**tree.order // pixels)
    cells = np.stack([a.ravel() for a in np.meshgrid(cell, cell)])  # x runs along the rows of an image
    keys = np.empty(cells.shape[1], np.int64)
    hilbert_keys(cells, tree.order, keys)
    return np.asarray(keys.reshape(pixels, pixels) // (4**tree.order // pixels**2))

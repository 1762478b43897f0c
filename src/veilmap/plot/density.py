"""The density that a map shows, at the finest resolution that the noise allows."""

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

MAX_IMAGE_PIXELS = 2048  # per side
MIN_STDERRS = 3.0  # an estimate is shown only if it is this many standard errors above 0
MIN_REST_DENSITY = 0.2  # fraction of the parent's density; the rest of a parent with less is not shown
MAX_FALSE_DISCOVERIES = 0.01  # fraction of the nodes that are shown although they are empty, about


@dataclass(frozen=True, eq=False)
class Picture:
    """An image, lowest row first. NaN where the estimate cannot be distinguished from 0."""

    density: Floats  # points per unit of area
    error: Floats  # standard error as a fraction of the estimate


def density_image(
    release: Release, rows: float = MAX_IMAGE_PIXELS, columns: float = MAX_IMAGE_PIXELS, ground: Ground | None = None
) -> Picture:
    """Return the density of a release with two axes, as fine as the noise and the number of pixels allow.

    A node is shown if its estimate is significantly above 0 and its parent is shown. The other children of the same
    parent are shown together, with one density, if their total is significantly above 0 and not much less dense than
    the parent. A shown node without shown children, or inside one pixel, has a uniform density. The value of a pixel is
    the sum over all such nodes in it, however small, so the image holds every row that is shown. The relative error of
    a pixel with several nodes is their mean, weighted by density.
    """
    tree, domain = release.estimates.tree, release.domain
    shape = _pixels(tree, domain.side, rows, columns)
    lo, hi = _in_pixels(tree, shape)
    drawn, density, error = visible_nodes(release, np.any(hi - lo > 1, axis=1))
    lo, hi, density = lo[drawn], hi[drawn], density[drawn] / float(np.prod(domain.hi - domain.lo))
    if ground is not None:
        ends = [np.stack([domain.edges(e[drawn, a], a) for a in range(2)], axis=1) for e in (tree.lo, tree.hi)]
        density /= ground.areas(*ends) / np.prod(ends[1] - ends[0], axis=1)
    images = []
    for values in (density, density * error[drawn]):
        image = np.full((1, math.prod(shape)) if isinstance(tree, CurveTree) else shape, np.nan)
        rasterize_boxes(lo, hi, values, image)
        images.append(image[0, _curve_positions(tree, shape[0])] if isinstance(tree, CurveTree) else image)
    return Picture(images[0], images[1] / images[0])


def visible_nodes(release: Release, wide: Flags | None = None) -> tuple[Flags, Floats, Floats]:
    """Return which nodes are shown and have no shown children, and the density and relative error of every node.

    Densities are in rows per domain. Only the children of nodes that are ``wide`` are considered; by default of all.
    """
    tree = release.estimates.tree
    places = tree.keys if isinstance(tree, CurveTree) else tree
    volume = np.prod((places.hi - places.lo) / float(places.hi[0, 0]), axis=1)  # as a fraction of the domain
    estimate, error = release.estimates.estimate, standard_errors(release.estimates, release.consistent)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = estimate / error
        density, relative = estimate / np.where(volume > 0, volume, np.nan), 1 / ratio
    above_zero = np.zeros(tree.size, np.bool_)
    above_zero[0] = True
    shown = above_zero & (ratio > MIN_STDERRS)
    drawn = shown.copy()  # shown, and without shown children
    for level in range(1, tree.height + 1):
        nodes = np.arange(tree.level(level).start, tree.level(level).stop)
        parent = tree.parent[nodes]
        nodes = nodes[(above_zero[parent] if wide is None else (above_zero & wide)[parent]) & (volume[nodes] > 0)]
        above_zero[nodes] = significant(ratio[nodes])
        shown[nodes] = above_zero[nodes]
        parent = tree.parent[nodes] - tree.level(level - 1).start
        rest, rest_volume, variance = (
            np.bincount(parent, np.where(above_zero[nodes], 0.0, values[nodes]))[parent]
            for values in (estimate, volume, error**2)
        )
        has_shown_sibling = np.bincount(parent, above_zero[nodes])[parent] > 0
        others = has_shown_sibling & ~above_zero[nodes] & (rest > MIN_STDERRS * np.sqrt(variance))
        others &= rest > MIN_REST_DENSITY * rest_volume * density[tree.parent[nodes]]
        shown[nodes[others]] = True
        density[nodes[others]] = rest[others] / rest_volume[others]
        relative[nodes[others]] = np.sqrt(variance[others]) / rest[others]
        drawn[nodes] = shown[nodes]
        drawn[tree.parent[nodes[has_shown_sibling]]] = False
    return drawn, density, relative


def significant(ratio: Floats) -> Flags:
    """Return which estimates are significantly above 0, from their ratios to their standard errors.

    The Benjamini-Hochberg procedure bounds the fraction of false discoveries. Its p-values are those of Laplace noise.
    """
    p_value = np.where(ratio > MIN_STDERRS, np.exp(-math.sqrt(2) * np.maximum(ratio, 0)) / 2, 1.0)
    ordered = np.sort(p_value)
    passed = np.flatnonzero(ordered <= MAX_FALSE_DISCOVERIES * np.arange(1, len(ordered) + 1) / max(len(ordered), 1))
    return p_value <= (ordered[passed[-1]] if len(passed) else 0.0)


def _pixels(tree: Tree, side: int, rows: float, columns: float) -> tuple[int, int]:
    """Return the rows and columns of the image: enough for the narrowest leaf, and at most those that fit."""
    if isinstance(tree, RegularTree):
        narrowest = side / max(tree.grid(tree.height))
    else:
        width = (tree.hi - tree.lo)[tree.is_leaf]
        narrowest = float(width[width > 0].min())
    enough = max(2, 2 ** math.ceil(math.log2(side / narrowest)))
    if isinstance(tree, CurveTree):  # its leaves are ranges of the curve, and a pixel is such a range
        rows = columns = min(rows, columns, MAX_IMAGE_PIXELS // 2, 2**tree.order)
    tall, wide = (2 ** math.floor(math.log2(np.clip(n, 1, MAX_IMAGE_PIXELS))) for n in (rows, columns))
    return min(tall, enough), min(wide, enough)


def _in_pixels(tree: Tree, shape: tuple[int, int]) -> tuple[Floats, Floats]:
    """Return the corners of nodes in columns and rows of an image; of ranges of a curve, in one row of pixels."""
    if isinstance(tree, CurveTree):
        scale = math.prod(shape) / float(tree.keys.hi[0, 0])
        lo, hi = tree.keys.lo[:, 0] * scale, tree.keys.hi[:, 0] * scale
        return np.stack([lo, np.zeros_like(lo)], axis=1), np.stack([hi, np.ones_like(hi)], axis=1)
    pixels_per_cell = np.array(shape[::-1]) / float(tree.hi[0, 0])
    return np.asarray(tree.lo * pixels_per_cell), np.asarray(tree.hi * pixels_per_cell)


def _curve_positions(tree: CurveTree, pixels: int) -> Ints:
    """Return the position of each pixel along the curve: a pixel is a run of consecutive keys."""
    cell = np.arange(pixels) * (2**tree.order // pixels)
    cells = np.stack([a.ravel() for a in np.meshgrid(cell, cell)])  # x varies along the rows of an image
    keys = np.empty(cells.shape[1], np.int64)
    hilbert_keys(cells, tree.order, keys)
    return np.asarray(keys.reshape(pixels, pixels) // (4**tree.order // pixels**2))

"""Synthetic points, drawn from the published estimates only: they reveal no more than the release itself."""

from __future__ import annotations

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.domain import Domain
from veilmap.errors import BadInput, TooLarge
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.estimate.nonnegative import nonnegative_estimates
from veilmap.estimate.pipeline import QUANTUM
from veilmap.kernels.hilbert import hilbert_cells
from veilmap.memory import free_memory
from veilmap.trees import CurveTree

POINTS_PER_BATCH = 1 << 18
"""Points that are drawn together; their working arrays fit in the processor's cache."""


def draw(
    domain: Domain, nodes: NodeEstimates, consistent: bool, n: object, seed: object, integers: bool
) -> list[Floats]:
    """Return the coordinates of synthetic points along each axis, in random order."""
    random = np.random.default_rng(_checked_seed(seed))
    estimates = nonnegative_estimates(nodes, consistent, 1.0 if integers else QUANTUM)
    leaves = np.flatnonzero(estimates.tree.is_leaf)
    weight = estimates.estimate[leaves]
    number = _checked_number(n, integers)
    _must_fit(float(weight.sum()) if number is None else number, domain.dimensions)
    leaf = np.repeat(leaves, _points_per_leaf(weight, number, integers, random))
    random.shuffle(leaf)
    out = [np.empty(len(leaf)) for _ in range(domain.dimensions)]
    for start in range(0, len(leaf), POINTS_PER_BATCH):
        batch = slice(start, start + POINTS_PER_BATCH)
        for k, cells in enumerate(_cells_in(estimates, leaf[batch], random)):
            axis = domain.axes[k]
            out[k][batch] = np.minimum(axis.lo + cells * ((axis.hi - axis.lo) / domain.side), axis.hi)
    return out


def _points_per_leaf(weight: Floats, n: int | None, integers: bool, random: np.random.Generator) -> Ints:
    """Return the number of points in each leaf."""
    if integers:
        return weight.astype(np.int64)
    total = float(weight.sum())
    n = round(total) if n is None else n
    if n and not total:
        raise BadInput("This release estimates that there are no rows, so no points can be drawn from it.")
    return random.multinomial(n, weight / total) if n else np.zeros(len(weight), np.int64)


def _cells_in(nodes: NodeEstimates, leaf: Ints, random: np.random.Generator) -> list[Floats]:
    """Return a random position in each given leaf along each axis, in units of cells, with fractions."""
    tree = nodes.tree
    if isinstance(tree, CurveTree):  # a leaf is a range of the curve, not the box around it
        keys, cells = tree.keys, np.empty((tree.axes, len(leaf)), np.int64)
        hilbert_cells(random.integers(keys.lo[leaf, 0], keys.hi[leaf, 0]), tree.order, cells)
        return list((cells + random.random(cells.shape)) * float(1 << (tree.bits - tree.order)))
    place = random.random((tree.lo.shape[1], len(leaf)))
    if nodes.slope is not None:
        _tilt(place, nodes.slope[leaf], nodes.estimate[leaf], random)
    return [tree.lo[leaf, k] + at * (tree.hi[leaf, k] - tree.lo[leaf, k]) for k, at in enumerate(place)]


def _tilt(place: Floats, slope: Floats, estimate: Floats, random: np.random.Generator) -> None:
    """Change uniform positions u in a leaf, 0 to 1 along each axis, to the density estimate + Σ slope · (u − 1/2).

    This density is a mixture of a uniform one and, for each axis with weight |slope| / 2, one that rises linearly from
    0 or falls linearly to 0. The larger of two uniform positions has the rising density, and the smaller the falling.
    """
    which, other = random.random(len(estimate)) * estimate, random.random(len(estimate))
    for k, at in enumerate(place):
        weight = np.abs(slope[:, k]) / 2
        np.maximum(at, other, out=at, where=(which >= 0) & (which < weight) & (slope[:, k] > 0))
        np.minimum(at, other, out=at, where=(which >= 0) & (which < weight) & (slope[:, k] < 0))
        which -= weight


def _checked_seed(seed: object) -> int | None:
    if seed is not None and not (isinstance(seed, (int, np.integer)) and not isinstance(seed, bool) and seed >= 0):
        raise BadInput(f"A seed must be a whole number of 0 or more, got {seed!r}.")
    return None if seed is None else int(seed)


def _checked_number(n: object, integers: bool) -> int | None:
    if n is None:
        return None
    if integers:
        raise BadInput("With integers, the release sets the number of points. Leave the number of points out.")
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 0:
        raise BadInput(f"The number of points must be a whole number of 0 or more, got {n!r}.")
    return int(n)


def _must_fit(n: float, axes: int) -> None:
    if (need := n * 8 * (axes + 2)) > (free := free_memory()):
        raise TooLarge(
            f"{n:,.0f} points would need {need / 2**30:.3g} GiB of memory; {free / 2**30:.3g} GiB are free. Draw fewer."
        )

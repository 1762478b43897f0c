"""Synthetic points, drawn from what is published: they tell no more of anyone than the release does."""

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

AT_ONCE = 1 << 18
"""Points that are drawn together, so that what is needed for them stays in fast memory."""


def draw(
    domain: Domain, nodes: NodeEstimates, consistent: bool, n: object, seed: object, integers: bool
) -> list[Floats]:
    """The coordinates of synthetic points along each axis, in no order."""
    random = np.random.default_rng(_checked_seed(seed))
    made = nonnegative_estimates(nodes, consistent, 1.0 if integers else QUANTUM)
    leaves = np.flatnonzero(made.tree.is_leaf)
    weight = made.estimate[leaves]
    asked = _checked_number(n, integers)
    _must_fit(float(weight.sum()) if asked is None else asked, domain.dimensions)
    leaf = np.repeat(leaves, _numbers(weight, asked, integers, random))
    random.shuffle(leaf)
    out = [np.empty(len(leaf)) for _ in range(domain.dimensions)]
    for start in range(0, len(leaf), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        for k, cells in enumerate(_cells_in(made, leaf[some], random)):
            axis = domain.axes[k]
            out[k][some] = np.minimum(axis.lo + cells * ((axis.hi - axis.lo) / domain.side), axis.hi)
    return out


def _numbers(weight: Floats, n: int | None, integers: bool, random: np.random.Generator) -> Ints:
    """How many points each leaf gets."""
    if integers:
        return weight.astype(np.int64)
    total = float(weight.sum())
    n = round(total) if n is None else n
    if n and not total:
        raise BadInput("This release estimates that there is nobody, and has nothing to draw points from.")
    return random.multinomial(n, weight / total) if n else np.zeros(len(weight), np.int64)


def _cells_in(nodes: NodeEstimates, leaf: Ints, random: np.random.Generator) -> list[Floats]:
    """Where in cells, fractions allowed, points of these leaves lie along each axis."""
    tree = nodes.tree
    if isinstance(tree, CurveTree):  # a range of the curve, not the box around it
        keys, cells = tree.keys, np.empty((tree.axes, len(leaf)), np.int64)
        hilbert_cells(random.integers(keys.lo[leaf, 0], keys.hi[leaf, 0]), tree.order, cells)
        return list((cells + random.random(cells.shape)) * float(1 << (tree.bits - tree.order)))
    place = random.random((tree.lo.shape[1], len(leaf)))
    if nodes.slope is not None:
        _tilt(place, nodes.slope[leaf], nodes.estimate[leaf], random)
    return [tree.lo[leaf, k] + at * (tree.hi[leaf, k] - tree.lo[leaf, k]) for k, at in enumerate(place)]


def _tilt(place: Floats, slope: Floats, estimate: Floats, random: np.random.Generator) -> None:
    """From even places in a leaf, 0 to 1 along each axis, to places as dense as estimate + Σ slope · (u − 1/2).

    That is an even density, and of each axis with weight |slope| / 2 one that rises, or falls, all the way from 0: the
    greater, or the lesser, of two even places has it.
    """
    which, other = random.random(len(estimate)) * estimate, random.random(len(estimate))
    for k, at in enumerate(place):
        weight = np.abs(slope[:, k]) / 2
        np.maximum(at, other, out=at, where=(which >= 0) & (which < weight) & (slope[:, k] > 0))
        np.minimum(at, other, out=at, where=(which >= 0) & (which < weight) & (slope[:, k] < 0))
        which -= weight


def _checked_seed(seed: object) -> int | None:
    if seed is not None and not (isinstance(seed, (int, np.integer)) and not isinstance(seed, bool) and seed >= 0):
        raise BadInput(f"A seed is a whole number, 0 or more, got {seed!r}.")
    return None if seed is None else int(seed)


def _checked_number(n: object, integers: bool) -> int | None:
    if n is None:
        return None
    if integers:
        raise BadInput("Whole numbers of each leaf say how many points there are: leave the number of points out.")
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 0:
        raise BadInput(f"The number of points is a whole number, 0 or more, got {n!r}.")
    return int(n)


def _must_fit(n: float, axes: int) -> None:
    if (need := n * 8 * (axes + 2)) > (free := free_memory()):
        raise TooLarge(
            f"{n:,.0f} points would take {need / 2**30:.3g} GiB of memory; {free / 2**30:.3g} GiB are free: draw fewer."
        )

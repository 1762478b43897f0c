"""How unevenly points lie inside leaves, learned from released numbers alone.

A query that covers a part f of a leaf with c points guesses f·c of them. Were the points placed one by one, the
variance of that guess would be f(1−f)·c; points that keep company make it f(1−f)·(c + ρ·c(c−1)), where ρ is how much
more often than by chance two points of the leaf lie on the same side of a cut. What c and c² are expected to be follows
from noisy counts; ρ is learned from boxes whose halves were counted, which the tree is full of, as log odds that are
linear in the side of a box, its density, and how far it stands out from the box around it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap.curve import CurveTree
from veilmap.estimate.nodes import Estimates
from veilmap.kernels import sweeps
from veilmap.kernels import uneven as kernel
from veilmap.tree import RegularTree, Tree

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

HAZARD, LOGISTIC = kernel.hazards(), kernel.logistics()
POWERS = np.exp2(np.arange(kernel.SMALLEST, kernel.LARGEST + 1) / 4)
USUAL = np.array([-1.9, 0.1, 0.0, 0.3, 0.3])
"""Log odds of ρ before anything is seen: about 0.13; by octaves of side, of density, above and below its surroundings."""
DOUBT = np.array([1.5, 0.6, 0.25, 0.3, 0.3])
"""The standard deviation of each of these, from one set of points to the next."""
MISFIT = 0.3
"""How far, as a part of ρ, the formula may be off in one kind of boxes."""
COARSER = 4.0
"""Boxes more octaves larger than the leaves say nothing of them."""
CELLS_A_LEVEL = 24_000
"""Children that are looked at of each level."""
STEPS = 40


@dataclass(frozen=True, slots=True)
class Correlation:
    """ρ as a function of a box: see ``kernels.uneven.odds``."""

    scale: Floats  # side and density in the middle, least and greatest density, axes
    weight: Floats


def unevenness(full: Estimates, kept: Estimates) -> Floats:
    """q of each leaf of ``kept``, 0 at inner nodes: a query that covers a part f of it is off by f(1−f)·q in variance.

    ``full`` is the whole tree, before pruning. Only noisy counts and their variances are looked at, so that it does not
    matter what estimates were made of them; slopes of ``kept`` are taken for what they explain. Powers of 2^(1/4).
    """
    tree = full.tree.keys if isinstance(full.tree, CurveTree) else full.tree
    volume = volumes(tree)
    z, subtree = full.noisy_count.astype(np.float64), full.noise_variance.copy()
    if not isinstance(tree, RegularTree):
        z[volume == 0] = subtree[volume == 0] = 0.0
    sweeps.combine_up(tree.first_child, z, subtree)
    state = np.empty((tree.size, 5))
    middle, mass = kernel.expect_inner(tree.first_child, volume, z, subtree, HAZARD, state)
    axes = full.tree.axes if isinstance(full.tree, CurveTree) else _axes(tree)
    nodes, parts = split_nodes(tree)
    rows = np.empty((4 * axes * CELLS_A_LEVEL * max(tree.height, 1), kernel.COLUMNS))
    found = kernel.contrasts(nodes, parts, tree.first_child, volume, z, subtree, HAZARD, state, rows)
    learned = learn(rows[:found], axes, middle / (axes * max(mass, 1e-9)))
    out = np.empty(kept.tree.size)
    kernel.unevenness(
        _leaves(full.tree, kept.tree),
        tree.parent,
        tree.first_child,
        volume,
        z,
        subtree,
        HAZARD,
        LOGISTIC,
        state,
        _explained(kept),
        learned.scale,
        learned.weight,
        POWERS,
        out,
    )
    return out


def learn(rows: Floats, axes: int, side: float) -> Correlation:
    """ρ from contrasts of boxes, for leaves of about this side (log2 of the domain's)."""
    volume, mean, square, out_by, seen, noise = rows.T
    size = volume / axes
    use = (mean > 0.3) & (size < min(-1.0, side + COARSER)) & (square > mean)
    size, mean, out_by, noise = size[use], mean[use], out_by[use], noise[use]
    pairs, seen = square[use] - mean, seen[use] - mean  # seen = ρ · pairs, on average
    scale = np.array([side, 0.0, 0.0, 0.0, axes])
    if not len(mean):
        return Correlation(scale, USUAL.copy())
    density = np.log2(mean + 1) - axes * size
    blur = 3 * noise**2
    trust = 1 / (blur + 2 * (mean + 0.15 * pairs) ** 2 + 1e-9)
    order, heavy = np.argsort(density), trust * pairs**2
    heavy /= heavy.sum()
    ends = np.searchsorted(np.cumsum(heavy[order]), [0.005, 0.995])
    scale[1] = density @ heavy
    scale[2:4] = density[order[np.minimum(ends, len(order) - 1)]]
    cell = np.floor(2 * (size - size.min())) * 64 + np.floor(density - density.min())
    cell = cell * 16 + np.floor(np.clip(out_by, -4, 4) + 4)
    _, cell = np.unique(cell, return_inverse=True)
    weighed = trust * pairs

    def total(values: Floats) -> Floats:
        return np.bincount(cell, values)

    pairs_in = total(weighed)
    features = np.stack(
        [
            np.ones(len(pairs_in)),
            np.clip(total(weighed * size) / pairs_in - side, -2.5, 4),
            np.clip(total(weighed * density) / pairs_in, scale[2], scale[3]) - scale[1],
            np.clip(mid := total(weighed * out_by) / pairs_in, 0, 4),
            np.clip(-mid, 0, 4),
        ],
        axis=1,
    )
    chance = total(trust**2 * (blur + 2 * (mean + 0.3 * pairs) ** 2))
    return Correlation(scale, fit(features, total(trust * seen), pairs_in, chance))


def fit(features: Floats, seen: Floats, pairs: Floats, chance: Floats) -> Floats:
    """Weights such that seen ≈ ρ · pairs with variance ``chance``, ρ logistic in features: Gauss and Newton's steps."""
    weight, precision = USUAL.copy(), 1 / DOUBT**2
    for _ in range(STEPS):
        odds = np.clip(features @ weight, kernel.STEEPEST, kernel.FLATTEST)
        rho = 1 / (1 + np.exp(-odds))
        slope = (rho * (1 - rho) * pairs)[:, None] * features
        by = slope.T / (chance + (MISFIT * rho * pairs) ** 2)
        step = np.linalg.solve(
            by @ slope + np.diag(precision), by @ (seen - rho * pairs) - precision * (weight - USUAL)
        )
        step *= min(1.0, 0.7 / max(np.abs(step).max(), 1e-9))
        weight = weight + step
        if np.abs(step).max() < 1e-3:
            break
    return weight


def split_nodes(tree: Tree) -> tuple[Ints, Ints]:
    """Nodes of every level whose children lie on a grid, and its parts; of a large level, every so manieth."""
    some = []
    for level in map(tree.level, range(tree.height)):
        inner = np.flatnonzero(tree.children[level] > 1) + level.start
        some.append(inner[:: max(1, math.ceil(tree.children[inner].sum() / CELLS_A_LEVEL))])
    nodes = np.concatenate(some) if some else np.empty(0, np.int64)
    if isinstance(tree, RegularTree):
        below = np.searchsorted(tree.level_start, nodes, side="right") - 1
        return nodes, np.array(tree.splits, np.int64).reshape(-1, tree.axes)[below]
    parts, grid = np.empty((len(nodes), _axes(tree)), np.int64), np.empty(len(nodes), np.bool_)
    kernel.all_parts(tree.first_child, tree.lo, nodes, parts, grid)
    return nodes[grid], parts[grid]


def volumes(tree: Tree) -> Floats:
    """The part of the domain that each node takes."""
    if isinstance(tree, RegularTree):
        each = np.concatenate([[1.0], 1 / np.cumprod([math.prod(parts) for parts in tree.splits])])
        return np.repeat(each, np.diff(tree.level_start))
    out = np.empty(tree.size)
    kernel.volumes(tree.lo, tree.hi, out)
    return out


def _axes(tree: Tree) -> int:
    return tree.axes if isinstance(tree, RegularTree) else tree.lo.shape[1]


def _explained(kept: Estimates) -> Floats:
    """What slopes take off the variance of half a leaf, over 1/4: the half has slope / 8 more than half the points."""
    return np.empty(0) if kept.slope is None else np.mean(np.square(kept.slope), axis=1) / 16


def _leaves(full: Tree, kept: Tree) -> Ints:
    """The node of the full tree that each leaf of a pruned one is, -1 for inner nodes."""
    node = np.arange(kept.size)
    if kept.size != full.size:
        for i in range(kept.height):
            above = np.flatnonzero(kept.children[kept.level(i)]) + kept.level_start[i]
            first = np.repeat(full.first_child[node[above]] - kept.first_child[above], kept.children[above])
            node[kept.level(i + 1)] = first + np.arange(kept.level_start[i + 1], kept.level_start[i + 2])
    return np.where(kept.is_leaf, node, -1)

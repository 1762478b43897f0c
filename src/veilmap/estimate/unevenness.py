"""How unevenly points lie inside leaves, learned from released numbers alone.

A query that covers a part f of a leaf with c points guesses f·c of them. Were the points placed one by one, the
variance of that guess would be f(1−f)·c; points that keep company make it f(1−f)·(c + ρ·c(c−1)), where ρ is how much
more often than by chance two points of the leaf lie on the same side of a cut. What c and c² are expected to be follows
from noisy counts; ρ is learned from boxes whose halves were counted, which the tree is full of, as log odds that are
linear in the side of a box, its density, and how far it stands out from the box around it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.kernels import tree_sweeps
from veilmap.kernels import unevenness as kernel
from veilmap.trees import CurveTree, RegularTree, Tree

HAZARD, LOGISTIC = kernel.hazards(), kernel.logistics()
POWERS = np.exp2(np.arange(kernel.SMALLEST, kernel.LARGEST + 1) / 4)
USUAL = np.array([-1.9, 0.1, 0.0, 0.3, 0.3])
"""Log odds of ρ before anything is seen, and by octaves of side, of density, above and below what is around."""
DOUBT = np.array([1.5, 0.6, 0.25, 0.3, 0.3])
"""The standard deviation of each of these, from one set of points to the next."""
MISFIT = 0.3
"""How far, as a part of ρ, the formula may be off in one kind of boxes."""
COARSER, ALIKE = 4.0, 2.5
"""Boxes more octaves larger than the leaves say nothing of them: leaves of many sizes, and of one."""
CELLS_A_LEVEL = 24_000
"""Children that are looked at of each level."""
STEPS, ROUNDS = 40, 3
LINES, BOXES, STRETCH = 40, 12_000, 96
"""Lines across each axis along which neighbours are compared, about as many boxes on them as are needed, and boxes of
a line that are weighed together."""
FAR = 48
"""Neighbours further apart are not compared."""
BESIDE = 0.5, 0.45
"""How like the errors of neighbours usually are, and how much less so with each box between them."""
SURE = 0.3
"""The standard deviation of that likeness, from one set of points to the next."""
SHARED, WITH_SLOPES = 0.35, 0.25
"""The part of neighbours' likeness that counts: borders cross leaves anywhere, not in their middles; and slopes take
much of what neighbours have in common."""
PLAIN = 2.5
"""Likeness beyond this is that of many boxes, not of those next to each other, and all of it counts."""
BESIDES = 0.5
"""The part of neighbours' likeness that counts where it is known which of them see the same: see ``cut_often``."""
MOST, MOST_THIN = 10.0, 32.0
"""What likeness makes of unevenness, at most: of neighbours, and of thin boxes side by side."""


class Noisy(Protocol):
    """Anything with the noisy counts of a tree."""

    @property
    def tree(self) -> Tree: ...
    @property
    def noisy_count(self) -> Ints: ...
    @property
    def noise_variance(self) -> Floats: ...


@dataclass(frozen=True, slots=True)
class Correlation:
    """ρ as a function of a box: see ``kernels.uneven.odds``."""

    scale: Floats  # side and density in the middle, least and greatest density, axes
    weight: Floats


@dataclass(frozen=True, slots=True)
class Evidence:
    """Noisy numbers of a tree, as ``kernels.uneven`` takes them."""

    tree: Tree
    axes: int
    volume: Floats
    z: Floats
    subtree: Floats
    state: Floats
    stretch: Floats  # of boxes, as ``stretches`` has it
    side: float  # of leaves, log2

    @classmethod
    def of(cls, nodes: Noisy) -> Evidence:
        tree, axes = nodes.tree, _axes(nodes.tree)
        tree = tree.keys if isinstance(tree, CurveTree) else tree
        volume = volumes(tree)
        z, subtree = nodes.noisy_count.astype(np.float64), nodes.noise_variance.copy()
        if not isinstance(tree, RegularTree):
            z[volume == 0] = subtree[volume == 0] = 0.0
        tree_sweeps.combine_up(tree.first_child, z, subtree)
        state = np.empty((tree.size, 5))
        sides, mass = kernel.expect_inner(tree.first_child, volume, z, subtree, HAZARD, state)
        return cls(tree, axes, volume, z, subtree, state, stretches(tree, axes), sides / (axes * max(mass, 1e-9)))

    @property
    def counts(self) -> tuple[Ints, Floats, Floats, Floats, Floats]:
        return self.tree.first_child, self.volume, self.z, self.subtree, HAZARD


@dataclass(frozen=True, slots=True)
class Learned:
    """What the noisy numbers of a tree say of points inside its leaves."""

    seen: Evidence
    rho: Correlation
    likeness: Floats  # of neighbours, for each direction of a border

    @classmethod
    def of(cls, nodes: Noisy) -> Learned:
        seen = Evidence.of(nodes)
        where, parts = split_nodes(seen.tree)
        rows = np.empty((4 * seen.axes * CELLS_A_LEVEL * max(seen.tree.height, 1), kernel.COLUMNS))
        found = kernel.contrasts(where, parts, *seen.counts, seen.state, seen.stretch, rows)
        rho = learn(rows[:found], seen.axes, seen.side, isinstance(seen.tree, RegularTree))
        return cls(seen, rho, alike(seen, rho))


def unevenness(full: NodeEstimates, kept: NodeEstimates, learned: Callable[[], Learned] | None = None) -> Floats:
    """q of each leaf of ``kept``, 0 at inner nodes: a query that covers a part f of it is off by f(1−f)·q in variance.

    ``full`` is the whole tree, before pruning; ``learned``, what is known of it already. Only noisy counts and their
    variances are looked at, so that it does not matter what estimates were made of them; slopes of ``kept`` are taken
    for what they explain. Powers of 2^(1/4).
    """
    known = Learned.of(full) if learned is None else learned()
    stretch = known.seen.stretch
    company = company_of(known.likeness, kept.slope is not None, len(stretch) > 0)
    where = kept.tree.first_child, _places(full.tree, kept.tree)
    out = np.empty(kept.tree.size)
    how: tuple[Floats, Floats, Floats, Floats, Floats, float, Floats, Floats] = (
        known.seen.state,
        _explained(kept),
        known.rho.scale,
        known.rho.weight,
        POWERS,
        company,
        stretch,
        cut_often(stretch),
    )
    half = int(np.searchsorted(kept.tree.first_child, len(out) // 2))

    def work(begin: int, end: int) -> None:
        kernel.unevenness(*where, *known.seen.counts, LOGISTIC, *how, begin, end, out)  # type: ignore[arg-type]

    with ThreadPoolExecutor(2) as pool:  # of one half of the leaves, and of the other
        list(pool.map(work, (-1, half), (half, len(out))))
    return out


def company_of(likeness: Floats, slopes: bool, stretched: bool = False) -> float:
    """By how much the unevenness of a leaf is more because its neighbours on a query's border err like it.

    A border has one direction less than there are axes. Neighbours in all of them err alike, and those of neighbours.
    """
    if slopes:
        each = 1 + WITH_SLOPES * (likeness - 1)
    else:
        each = 1 + SHARED * (np.minimum(likeness, PLAIN) - 1) + np.maximum(likeness - PLAIN, 0)
    company = float(np.prod(np.minimum(each, MOST)))
    return 1 + BESIDES * (company - 1) if stretched else company


def alike(seen: Evidence, rho: Correlation) -> Floats:
    """The variance of a line's error over the sum of its leaves' variances, because neighbours err alike.

    One for each direction of a border. Learned from pairs of siblings along lines: D of one pair times D of the next is
    free of noise on average.
    """
    axes = _axes(seen.tree)
    if seen.tree.height < 1:
        return np.ones(axes - 1)
    each = [[_alike_across(seen, rho, axis, (axis + k) % axes) for axis in range(axes)] for k in range(1, axes)]
    return np.array([np.mean(of) for of in each])


def _alike_across(seen: Evidence, rho: Correlation, axis: int, along: int) -> float:
    tree = seen.tree
    rows = _grid_pairs(tree, axis, along) if isinstance(tree, RegularTree) else _pairs(tree, axis, along)
    of = np.empty((len(rows), 3))
    pairs = np.ascontiguousarray(rows[:, 2:4])
    how = rho.scale, rho.weight, seen.stretch, axis
    kernel.differences(pairs, tree.parent, *seen.counts, LOGISTIC, seen.state, *how, of)
    all_pairs, one_border, products, squares = kernel.neighbours(rows, of, STRETCH, FAR).T
    apart = np.arange(1, FAR)
    trust = SURE**2 * one_border[1:] ** 2 / np.maximum(squares[1:], 1e-300)
    seen_alike = products[1:] / np.maximum(one_border[1:], 1e-300)
    likeness = (trust * seen_alike + BESIDE[0] * BESIDE[1] ** (apart - 1)) / (trust + 1)
    common = np.clip(likeness, -0.1, 1.0) * all_pairs[1:] / max(all_pairs[0], 1e-300)
    return float(max(1 + 2 * (1 - apart / FAR) @ common, 1.0))


def _lines(axes: int) -> Floats:
    """Places of lines, as parts of each axis: spread evenly, the same every time."""
    return np.outer(np.arange(1, LINES + 1), np.sqrt([2, 3, 5, 7, 11, 13, 17, 19][:axes])) % 1


def _pairs(tree: Tree, axis: int, along: int) -> Ints:
    cut = np.zeros(tree.lo.shape, np.bool_)
    kernel.cut_below(tree.first_child, tree.lo, cut)
    lines = tree.lo[0] + _lines(tree.lo.shape[1]) * (tree.hi[0] - tree.lo[0])
    rows = np.empty((LINES * 4096, 6), np.int64)
    found = kernel.beside_lines(tree.first_child, tree.lo, tree.hi, cut, lines, axis, along, rows)
    return rows[:found][np.lexsort((rows[:found, 1], rows[:found, 0]))]


def _grid_pairs(tree: RegularTree, axis: int, along: int) -> Ints:
    grid, last = tree.grid(tree.height), tree.splits[-1][axis]
    if last < 2:
        return np.empty((0, 6), np.int64)
    offsets, rows = tree.offsets(tree.height), []
    for i, line in enumerate(_lines(tree.axes)[: max(8, BOXES // grid[along])]):
        at = [int(u * n) for u, n in zip(line, grid, strict=True)]
        at[axis] -= at[axis] % last == last - 1  # the next one is a sibling
        rest = sum(offsets[k][at[k]] for k in range(tree.axes) if k not in (axis, along))
        below, above = (tree.level_start[-2] + rest + offsets[axis][at[axis] + j] + offsets[along] for j in (0, 1))
        n = grid[along]
        rows.append(np.stack([np.full(n, i), np.arange(n), below, above, np.zeros(n, int), np.ones(n, int)], axis=1))
    return np.concatenate(rows)


def learn(rows: Floats, axes: int, side: float, one_size: bool = False) -> Correlation:
    """ρ from contrasts of boxes, for leaves of about this side (log2 of the domain's), or all of this side.

    Where all leaves are of one size the fullest make most of the errors, and are heard more.
    """
    volume, mean, square, out_by, seen, noise, stretch = rows.T
    size = volume / axes
    use = (mean > 0.3) & (size < min(-1.0, side + (ALIKE if one_size else COARSER))) & (square > mean)
    size, mean, out_by, noise = size[use], mean[use], out_by[use], noise[use]
    pairs, seen = square[use] - mean, seen[use] - mean  # seen = ρ · pairs, on average
    scale = np.array([side, 0.0, 0.0, 0.0, axes])
    if not len(mean):
        return Correlation(scale, USUAL.copy())
    density = np.log2(mean + 1) - axes * size
    size = size + stretch[use]
    cell = np.floor(2 * (size - size.min())) * 64 + np.floor(density - density.min())
    cell = (cell * 16 + np.floor(np.clip(out_by, -4, 4) + 4)).astype(np.int64)
    cell = (np.cumsum(np.bincount(cell) > 0) - 1)[cell]  # numbered without gaps, and without sorting
    blur, rho, weight = 3 * noise**2, np.full(len(mean), 0.15), USUAL.copy()
    for _ in range(ROUNDS):  # how much a box says depends on ρ itself
        trust = 1 / (blur + 2 * (mean + rho * pairs) ** 2 + 1e-9)
        trust = np.sqrt(trust) if one_size else trust
        if not scale[1]:
            heavy, order = trust * pairs**2, np.argsort(density)
            ends = np.searchsorted(np.cumsum(heavy[order]) / heavy.sum(), [0.005, 0.995])
            scale[1] = np.average(density, weights=heavy)
            scale[2:4] = density[order[np.minimum(ends, len(order) - 1)]]
        weighed = trust * pairs
        pairs_in = _sums(cell, weighed)
        middle = [_sums(cell, weighed * of) / pairs_in for of in (size, density, out_by)]
        features = np.stack(
            [
                np.ones(len(pairs_in)),
                np.clip(middle[0] - side, -2.5, 4),
                np.clip(middle[1], scale[2], scale[3]) - scale[1],
                np.clip(middle[2], 0, 4),
                np.clip(-middle[2], 0, 4),
            ],
            axis=1,
        )
        chance = _sums(cell, trust**2 * (blur + 2 * (mean + 2 * rho * pairs) ** 2))
        weight = fit(features, _sums(cell, trust * seen), pairs_in, chance, weight)
        rho = _logistic(features @ weight)[cell]
    return Correlation(scale, weight)


def fit(features: Floats, seen: Floats, pairs: Floats, chance: Floats, start: Floats) -> Floats:
    """Weights such that seen ≈ ρ · pairs with variance ``chance``, ρ logistic in features: Gauss and Newton's steps."""
    weight, precision = start, 1 / DOUBT**2
    for _ in range(STEPS):
        odds = features @ weight
        rho = _logistic(odds)
        moves = (odds > kernel.STEEPEST) & (odds < kernel.FLATTEST)
        slope = (moves * rho * (1 - rho) * pairs)[:, None] * features
        by = slope.T / (chance + (MISFIT * rho * pairs) ** 2)
        off = by @ (seen - rho * pairs) - precision * (weight - USUAL)
        step = np.linalg.solve(by @ slope + np.diag(precision), off)
        step *= min(1.0, 0.7 / max(np.abs(step).max(), 1e-9))
        weight = weight + step
        if np.abs(step).max() < 1e-3:
            break
    return weight


def _sums(cell: Ints, values: Floats) -> Floats:
    return np.bincount(cell, values).astype(np.float64)


def _logistic(odds: Floats) -> Floats:
    out: Floats = 1 / (1 + np.exp(-np.clip(odds, kernel.STEEPEST, kernel.FLATTEST)))
    return out


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


def stretches(tree: Tree, axes: int) -> Floats:
    """log2 of the sides of each box over what they would be were they alike; nothing where all axes are cut at once.

    Boxes that are cut in two may become long and thin, and where cuts are medians they do.
    """
    if axes < 2 or isinstance(tree, RegularTree) or tree.lo.shape[1] < axes or tree.children.max() != 2:
        return np.empty((0, axes))
    side = np.log2(np.maximum(tree.hi - tree.lo, 1) / (tree.hi[0] - tree.lo[0]))
    return np.asarray(side - side.mean(axis=1, keepdims=True))


def cut_often(stretch: Floats) -> Floats:
    """How much a cut along each axis of a box counts: long sides are cut more often, and many of them at once.

    Thin boxes lie side by side, as many as make a square have the same around them, and a border that cuts their long
    sides cuts all of them in the same place. They err neither as one nor on their own: the square root is between.
    """
    side = np.exp2(stretch)
    often = side / side.sum(axis=1, keepdims=True)
    for k, longer in enumerate(stretch.T):
        thin = np.maximum(longer[:, None] - stretch, 0).sum(axis=1)
        often[:, k] *= np.minimum(np.exp2(thin / 2), MOST_THIN)
    return np.asarray(often)


def volumes(tree: Tree) -> Floats:
    """The part of the domain that each node takes."""
    if isinstance(tree, RegularTree):
        each = np.concatenate([[1.0], 1 / np.cumprod([math.prod(parts) for parts in tree.splits])])
        return np.repeat(each, np.diff(tree.level_start))
    out = np.empty(tree.size)
    kernel.volumes(tree.lo, tree.hi, out)
    return out


def _axes(tree: Tree) -> int:
    return tree.axes if isinstance(tree, RegularTree | CurveTree) else tree.lo.shape[1]


def _explained(kept: NodeEstimates) -> Floats:
    """What slopes take off the variance of half a leaf, over 1/4: the half has slope / 8 more than half the points."""
    slope = np.empty((0, 1)) if kept.slope is None else kept.slope
    return np.asarray(np.einsum("vk,vk->v", slope, slope) / (16 * slope.shape[1]))


def _places(full: Tree, kept: Tree) -> Ints:
    """The node of the full tree that each node of a pruned one is; nothing when they are the same tree."""
    if kept.size == full.size:
        return np.empty(0, np.int64)
    node = np.zeros(kept.size, np.int64)
    for i in range(kept.height):
        above = np.flatnonzero(kept.children[kept.level(i)]) + kept.level_start[i]
        first = np.repeat(full.first_child[node[above]] - kept.first_child[above], kept.children[above])
        node[kept.level(i + 1)] = first + np.arange(kept.level_start[i + 1], kept.level_start[i + 2])
    return node

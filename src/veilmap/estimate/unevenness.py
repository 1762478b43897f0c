"""How unevenly points lie inside leaves, learned from released numbers alone.

A query that covers the fraction f of a leaf with c points is answered f·c. If points were placed independently, that
answer would have the variance f(1−f)·c. Correlated points make it f(1−f)·(c + ρ·c(c−1)), where ρ is the correlation of
two points of the leaf: how much more often than by chance they lie on the same side of a cut. The expectations of c and
c² follow from noisy counts. ρ is learned from nodes whose children were counted. Its log odds are linear in the side of
a box, in its density, and in how far it stands out from the box around it. ``docs/model.md`` has the formulas.
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

HAZARD_TABLE, LOGISTIC_TABLE = kernel.hazards(), kernel.logistics()
UNEVENNESS_LEVELS = np.exp2(np.arange(kernel.MIN_UNEVENNESS_POWER, kernel.MAX_UNEVENNESS_POWER + 1) / 4)
"""Unevenness is published as a power of 2^(1/4): finer steps would say nothing and make files larger."""
MIN_EXPECTED_COUNT = 0.3  # emptier boxes say nothing about pairs of points
FIRST_CORRELATION = 0.15  # of the first round of the fit
DENSITY_QUANTILES = (0.005, 0.995)  # the fit is not extended beyond them
MAX_NEWTON_STEPS = 40
REWEIGHTING_ROUNDS = 3
"""Rounds of the fit of ρ: how much a box tells about ρ depends on ρ itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnevennessTuning:
    """The constants of the model. ``python -m benchmarks.ablation`` measures what each of them is worth."""

    prior_log_odds: float = -1.9
    """Log odds of ρ before anything is known."""
    prior_sd_log_odds: float = 1.5
    """Standard deviation of these from one data set to the next; below, of their change per octave."""
    prior_sd_per_octave_of_side: float = 0.6
    prior_sd_per_octave_of_density: float = 0.25
    prior_sd_per_octave_above_parent: float = 0.3
    prior_sd_per_octave_below_parent: float = 0.3
    max_octaves_above_leaf: float = 4.0
    """Boxes whose sides are longer than those of leaves by more octaves are left out of the fit."""
    max_octaves_above_leaf_one_size: float = 2.5
    """The same where all leaves have one size."""
    max_children_per_level: int = 24_000
    """Children of each level that are used for the fit."""
    lines_per_axis: int = 40
    """Lines along which errors of adjacent leaves are compared."""
    boxes_on_lines: int = 12_000
    """Boxes on all lines of one axis, about: fewer lines are enough on a fine grid."""
    boxes_per_weight: int = 96
    """Consecutive boxes of a line that share one weight."""
    max_boxes_apart: int = 48
    """Boxes of a line that are further apart are not compared."""
    prior_sd_correlation: float = 0.3
    """Standard deviation, over data sets, of the correlation of adjacent leaves' errors; its mean is 0."""
    shared_correlation: float = 0.3
    """Fraction of this correlation that counts: borders cross leaves anywhere, not in their middle."""
    max_local_inflation: float = 2.5
    """Inflation beyond this is shared by many boxes, not by neighbours, and counts in full."""

    @property
    def prior_mean(self) -> Floats:
        return np.array([self.prior_log_odds, 0.0, 0.0, 0.0, 0.0])

    @property
    def prior_sd(self) -> Floats:
        return np.array(
            [
                self.prior_sd_log_odds,
                self.prior_sd_per_octave_of_side,
                self.prior_sd_per_octave_of_density,
                self.prior_sd_per_octave_above_parent,
                self.prior_sd_per_octave_below_parent,
            ]
        )


TUNING = UnevennessTuning()


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
    """ρ as a function of a box: see ``kernels.unevenness.correlation``."""

    scale: Floats  # side and density in the middle, least and greatest density, number of axes
    weight: Floats  # of the log odds


@dataclass(frozen=True, slots=True)
class Evidence:
    """Noisy numbers of a tree, in the form that ``kernels.unevenness`` takes."""

    tree: Tree
    axes: int
    volume: Floats
    z: Floats
    subtree: Floats
    state: Floats
    elongation: Floats  # of boxes, from ``elongations``
    side: float  # log2 of the typical side of a leaf

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
        sides, mass = kernel.expect_inner(tree.first_child, volume, z, subtree, HAZARD_TABLE, state)
        return cls(tree, axes, volume, z, subtree, state, elongations(tree, axes), sides / (axes * max(mass, 1e-9)))

    @property
    def counts(self) -> tuple[Ints, Floats, Floats, Floats, Floats]:
        return self.tree.first_child, self.volume, self.z, self.subtree, HAZARD_TABLE


@dataclass(frozen=True, slots=True)
class Learned:
    """What the noisy numbers of a tree tell about points inside its leaves."""

    evidence: Evidence
    rho: Correlation
    inflation: Floats  # by correlated errors of neighbours, per direction of a border

    @classmethod
    def of(cls, nodes: Noisy) -> Learned:
        evidence = Evidence.of(nodes)
        split, parts = split_nodes(evidence.tree)
        levels = max(evidence.tree.height, 1)
        rows = np.empty((4 * evidence.axes * TUNING.max_children_per_level * levels, kernel.CONTRAST_COLUMNS))
        number = kernel.contrasts(split, parts, *evidence.counts, evidence.state, evidence.elongation, rows)
        one_size = isinstance(evidence.tree, RegularTree)
        rho = fit_correlation(rows[:number], evidence.axes, evidence.side, one_size)
        return cls(evidence, rho, line_inflation(evidence, rho))


def unevenness(full: NodeEstimates, kept: NodeEstimates, learned: Callable[[], Learned] | None = None) -> Floats:
    """Return q of each leaf of ``kept``, and 0 at inner nodes.

    A query that covers the fraction f of a leaf has an error with the variance f(1−f)·q. ``full`` is the whole tree,
    before pruning; ``learned`` returns what is known of it already. Only noisy counts and their variances are used, so
    that q does not depend on the estimator; what slopes of ``kept`` explain is subtracted.
    """
    known = Learned.of(full) if learned is None else learned()
    elongation = known.evidence.elongation
    trees = kept.tree.first_child, _places(full.tree, kept.tree), *known.evidence.counts
    out = np.empty(kept.tree.size)
    model: tuple[Floats, Floats, Floats, Floats, Floats, float, Floats, Floats] = (
        known.evidence.state,
        _explained(kept),
        known.rho.scale,
        known.rho.weight,
        UNEVENNESS_LEVELS,
        border_inflation(known.inflation, kept.slope is not None),
        elongation,
        cut_weights(elongation),
    )
    half = int(np.searchsorted(kept.tree.first_child, len(out) // 2))

    def work(begin: int, end: int) -> None:
        kernel.unevenness(*trees, LOGISTIC_TABLE, *model, begin, end, out)  # type: ignore[arg-type]

    with ThreadPoolExecutor(2) as pool:  # one half of the leaves each
        list(pool.map(work, (-1, half), (half, len(out))))
    return out


def border_inflation(inflation: Floats, slopes: bool) -> float:
    """Return the factor by which the unevenness of leaves counts more because neighbours on a border err alike.

    A border has one direction less than there are axes, and the factors of its directions multiply.
    """
    local = inflation if slopes else np.minimum(inflation, TUNING.max_local_inflation)
    return float(np.prod(1 + TUNING.shared_correlation * (local - 1) + (inflation - local)))


def line_inflation(evidence: Evidence, rho: Correlation) -> Floats:
    """Return the variance of a line's error over the sum of its leaves' variances, per direction of a border.

    It is learned from pairs of siblings along lines: with D the difference of a pair, D of one pair times D of the next
    has no noise in its mean.
    """
    axes = _axes(evidence.tree)
    if evidence.tree.height < 1:
        return np.ones(axes - 1)
    by_direction = [
        [_inflation_across(evidence, rho, axis, (axis + k) % axes) for axis in range(axes)] for k in range(1, axes)
    ]
    return np.array([np.mean(of_axes) for of_axes in by_direction])


def _inflation_across(evidence: Evidence, rho: Correlation, axis: int, along: int) -> float:
    tree, apart_at_most = evidence.tree, TUNING.max_boxes_apart
    rows = _grid_pairs(tree, axis, along) if isinstance(tree, RegularTree) else _pairs(tree, axis, along)
    moments = np.empty((len(rows), 3))
    pairs = np.ascontiguousarray(rows[:, 2:4])
    model = rho.scale, rho.weight, evidence.elongation, axis
    kernel.differences(pairs, tree.parent, *evidence.counts, LOGISTIC_TABLE, evidence.state, *model, moments)
    sums = kernel.sum_products(rows, moments, TUNING.boxes_per_weight, apart_at_most)
    all_pairs, comparable, products, squares = sums.T
    trust = np.square(TUNING.prior_sd_correlation * comparable[1:]) / np.maximum(squares[1:], 1e-300)
    correlation = trust / (trust + 1) * products[1:] / np.maximum(comparable[1:], 1e-300)
    common = np.clip(correlation, -0.1, 1.0) * all_pairs[1:] / max(all_pairs[0], 1e-300)
    return float(max(1 + 2 * (1 - np.arange(1, apart_at_most) / apart_at_most) @ common, 1.0))


def _lines(axes: int) -> Floats:
    """Return the positions of lines, as fractions of each axis: spread evenly, and the same every time."""
    return np.outer(np.arange(1, TUNING.lines_per_axis + 1), np.sqrt([2, 3, 5, 7, 11, 13, 17, 19][:axes])) % 1


def _pairs(tree: Tree, axis: int, along: int) -> Ints:
    cut = np.zeros(tree.lo.shape, np.bool_)
    kernel.cut_below(tree.first_child, tree.lo, cut)
    lines = tree.lo[0] + _lines(tree.lo.shape[1]) * (tree.hi[0] - tree.lo[0])
    rows = np.empty((TUNING.lines_per_axis * 4096, 6), np.int64)
    found = kernel.beside_lines(tree.first_child, tree.lo, tree.hi, cut, lines, axis, along, rows)
    return rows[:found][np.lexsort((rows[:found, 1], rows[:found, 0]))]


def _grid_pairs(tree: RegularTree, axis: int, along: int) -> Ints:
    grid, last = tree.grid(tree.height), tree.splits[-1][axis]
    if last < 2:
        return np.empty((0, 6), np.int64)
    offsets, rows = tree.offsets(tree.height), []
    for i, line in enumerate(_lines(tree.axes)[: max(8, TUNING.boxes_on_lines // grid[along])]):
        at = [int(u * n) for u, n in zip(line, grid, strict=True)]
        at[axis] -= at[axis] % last == last - 1  # the next one is a sibling
        rest = sum(offsets[k][at[k]] for k in range(tree.axes) if k not in (axis, along))
        below, above = (tree.level_start[-2] + rest + offsets[axis][at[axis] + j] + offsets[along] for j in (0, 1))
        n = grid[along]
        rows.append(np.stack([np.full(n, i), np.arange(n), below, above, np.zeros(n, int), np.ones(n, int)], axis=1))
    return np.concatenate(rows)


def fit_correlation(rows: Floats, axes: int, side: float, one_size: bool = False) -> Correlation:
    """Fit ρ to contrasts of boxes, for leaves of about this side (log2, as a fraction of the domain's).

    Where all leaves have ``one_size``, the fullest make most of the errors, and get more weight.
    """
    volume, mean, square, excess, seen, noise, elongation = rows.T
    size = volume / axes
    octaves = TUNING.max_octaves_above_leaf_one_size if one_size else TUNING.max_octaves_above_leaf
    use = (mean > MIN_EXPECTED_COUNT) & (size < min(-1.0, side + octaves)) & (square > mean)
    size, mean, excess, noise = size[use], mean[use], excess[use], noise[use]
    pairs, seen = square[use] - mean, seen[use] - mean  # seen = ρ · pairs, on average
    scale = np.array([side, 0.0, 0.0, 0.0, axes])
    if not len(mean):
        return Correlation(scale, TUNING.prior_mean)
    density = np.log2(mean + 1) - axes * size
    size = size + elongation[use]
    group = np.floor(2 * (size - size.min())) * 64 + np.floor(density - density.min())
    group = (group * 16 + np.floor(np.clip(excess, -kernel.MAX_EXCESS, kernel.MAX_EXCESS) + kernel.MAX_EXCESS)).astype(
        np.int64
    )
    group = (np.cumsum(np.bincount(group) > 0) - 1)[group]  # numbered without gaps, and without sorting
    blur, rho, weight = 3 * noise**2, np.full(len(mean), FIRST_CORRELATION), TUNING.prior_mean
    for _ in range(REWEIGHTING_ROUNDS):
        trust = 1 / (blur + 2 * (mean + rho * pairs) ** 2 + 1e-9)
        trust = np.sqrt(trust) if one_size else trust
        if not scale[1]:
            heavy, order = trust * pairs**2, np.argsort(density)
            ends = np.searchsorted(np.cumsum(heavy[order]) / heavy.sum(), DENSITY_QUANTILES)
            scale[1] = np.average(density, weights=heavy)
            scale[2:4] = density[order[np.minimum(ends, len(order) - 1)]]
        weighted = trust * pairs
        pairs_in = _sums(group, weighted)
        middle = [_sums(group, weighted * feature) / pairs_in for feature in (size, density, excess)]
        features = np.stack(
            [
                np.ones(len(pairs_in)),
                np.clip(middle[0] - side, kernel.MIN_OCTAVES_OF_SIDE, kernel.MAX_OCTAVES_OF_SIDE),
                np.clip(middle[1], scale[2], scale[3]) - scale[1],
                np.clip(middle[2], 0, kernel.MAX_EXCESS),
                np.clip(-middle[2], 0, kernel.MAX_EXCESS),
            ],
            axis=1,
        )
        variance = _sums(group, trust**2 * (blur + 2 * (mean + 2 * rho * pairs) ** 2))
        weight = fit_log_odds(features, _sums(group, trust * seen), pairs_in, variance, weight)
        rho = _logistic(features @ weight)[group]
    return Correlation(scale, weight)


def fit_log_odds(features: Floats, seen: Floats, pairs: Floats, variance: Floats, start: Floats) -> Floats:
    """Return weights with which seen ≈ ρ · pairs, ρ logistic in features, by Gauss-Newton steps."""
    weight, precision = start, 1 / TUNING.prior_sd**2
    for _ in range(MAX_NEWTON_STEPS):
        odds = features @ weight
        rho = _logistic(odds)
        moves = (odds > kernel.MIN_LOG_ODDS) & (odds < kernel.MAX_LOG_ODDS)
        slope = (moves * rho * (1 - rho) * pairs)[:, None] * features
        scaled = slope.T / variance
        gradient = scaled @ (seen - rho * pairs) - precision * (weight - TUNING.prior_mean)
        step = np.linalg.solve(scaled @ slope + np.diag(precision), gradient)
        step *= min(1.0, 0.7 / max(np.abs(step).max(), 1e-9))
        weight = weight + step
        if np.abs(step).max() < 1e-3:
            break
    return weight


def _sums(group: Ints, values: Floats) -> Floats:
    return np.bincount(group, values).astype(np.float64)


def _logistic(odds: Floats) -> Floats:
    out: Floats = 1 / (1 + np.exp(-np.clip(odds, kernel.MIN_LOG_ODDS, kernel.MAX_LOG_ODDS)))
    return out


def split_nodes(tree: Tree) -> tuple[Ints, Ints]:
    """Return the nodes whose children form a grid, and the shape of each grid; of a large level, every k-th node."""
    by_level = []
    for level in map(tree.level, range(tree.height)):
        inner = np.flatnonzero(tree.children[level] > 1) + level.start
        by_level.append(inner[:: max(1, math.ceil(tree.children[inner].sum() / TUNING.max_children_per_level))])
    nodes = np.concatenate(by_level) if by_level else np.empty(0, np.int64)
    if isinstance(tree, RegularTree):
        below = np.searchsorted(tree.level_start, nodes, side="right") - 1
        return nodes, np.array(tree.splits, np.int64).reshape(-1, tree.axes)[below]
    parts, grid = np.empty((len(nodes), _axes(tree)), np.int64), np.empty(len(nodes), np.bool_)
    kernel.all_parts(tree.first_child, tree.lo, nodes, parts, grid)
    return nodes[grid], parts[grid]


def elongations(tree: Tree, axes: int) -> Floats:
    """Return log2 of each side of a box over its mean side; no rows where all axes are split at once.

    Boxes that are cut in two may become long and thin, and where cuts are medians they do.
    """
    if axes < 2 or isinstance(tree, RegularTree) or tree.lo.shape[1] < axes or tree.children.max() != 2:
        return np.empty((0, axes))
    side = np.log2(np.maximum(tree.hi - tree.lo, 1) / (tree.hi[0] - tree.lo[0]))
    return np.asarray(side - side.mean(axis=1, keepdims=True))


def cut_weights(elongation: Floats) -> Floats:
    """Return the weight of a cut across each axis of a box: long sides are cut more often, and many at once.

    Thin boxes lie side by side. A border that cuts the long sides of as many as make a square cuts all of them in the
    same place. Their errors are partly correlated: the square root of their number lies between none and full.
    """
    side = np.exp2(elongation)
    weight = side / side.sum(axis=1, keepdims=True)
    for k, longer in enumerate(elongation.T):
        beside = np.maximum(longer[:, None] - elongation, 0).sum(axis=1)  # log2 of the boxes side by side
        weight[:, k] *= np.exp2(beside / 2)
    return np.asarray(weight)


def volumes(tree: Tree) -> Floats:
    """Return the fraction of the domain that each node covers."""
    if isinstance(tree, RegularTree):
        each = np.concatenate([[1.0], 1 / np.cumprod([math.prod(parts) for parts in tree.splits])])
        return np.repeat(each, np.diff(tree.level_start))
    out = np.empty(tree.size)
    kernel.volumes(tree.lo, tree.hi, out)
    return out


def _axes(tree: Tree) -> int:
    return tree.axes if isinstance(tree, RegularTree | CurveTree) else tree.lo.shape[1]


def _explained(kept: NodeEstimates) -> Floats:
    """Return what slopes explain of the variance of half a leaf, over 1/4: a half has slope / 8 points more."""
    slope = np.empty((0, 1)) if kept.slope is None else kept.slope
    return np.asarray(np.einsum("vk,vk->v", slope, slope) / (16 * slope.shape[1]))


def _places(full: Tree, kept: Tree) -> Ints:
    """Return the node of the full tree for each node of a pruned one; an empty array when they are the same tree."""
    if kept.size == full.size:
        return np.empty(0, np.int64)
    node = np.zeros(kept.size, np.int64)
    for i in range(kept.height):
        above = np.flatnonzero(kept.children[kept.level(i)]) + kept.level_start[i]
        first = np.repeat(full.first_child[node[above]] - kept.first_child[above], kept.children[above])
        node[kept.level(i + 1)] = first + np.arange(kept.level_start[i + 1], kept.level_start[i + 2])
    return node

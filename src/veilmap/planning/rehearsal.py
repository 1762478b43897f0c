"""Grow a tree without data, as if rows were spread evenly over the domain."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import cast

import numpy as np

from veilmap.arrays import Flags, Floats, Ints
from veilmap.domain import Domain
from veilmap.estimate.least_squares import least_squares
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.estimate.pruning import prune
from veilmap.method.method import Method, PostProcessing
from veilmap.method.resources import QuestionCount
from veilmap.structures import CELLS_PER_RUN, Gate, midpoints
from veilmap.trees import CurveTree, CutTree, Parts, RegularTree, Tree
from veilmap.vault import LaplaceNoise, NoisyTree, decay

TYPICAL_ROUGHNESS = 0.25
"""|first half − second half| of a leaf, as a fraction of its count, beyond chance: typical of real data sets."""
EVERY_NODE = slice(None)


def even_counts(tree: Tree, rows: int, nodes: Ints | slice = EVERY_NODE) -> Floats:
    """Return the counts of nodes for evenly spread rows."""
    if isinstance(tree, RegularTree):  # its boxes need not be written out
        sizes = np.diff(tree.level_start)
        return np.asarray((rows / sizes)[tree.node_level[nodes]])
    keys = tree.keys if isinstance(tree, CurveTree) else tree
    return np.asarray(rows * np.prod((keys.hi[nodes] - keys.lo[nodes]) / float(keys.hi[0, 0]), axis=1))


def even_estimates(noisy: NoisyTree, method: Method, rows: int | None) -> NodeEstimates:
    """Return the estimates of a rehearsed tree: counts of evenly spread rows, and leaves of typical roughness."""
    counts = even_counts(noisy.tree, rows or 0)
    if method.estimate is PostProcessing.NOISY_COUNTS:
        variance = noisy.noise_variance
        counts[~np.isfinite(variance)] = np.nan
    else:
        variance = least_squares(noisy)[1]
    nodes = NodeEstimates(noisy.tree, noisy.noisy_count, noisy.noise_variance, counts, variance)
    if rows is None:
        return nodes
    if method.prune_below is not None:
        nodes = prune(nodes, method.prune_below)
    leaf_counts = np.where(nodes.tree.is_leaf, even_counts(nodes.tree, rows), 0.0)
    # the variance of Poisson counts, and that of the roughness
    return replace(nodes, unevenness=leaf_counts + math.pi / 2 * (TYPICAL_ROUGHNESS * leaf_counts) ** 2)


class Rehearsal:
    """A gate without data, for evenly spread rows: medians are midpoints. It charges no budget and draws no noise.

    The standard error of an answer does not depend on the counts, so it follows from the tree that grows here. For a
    structure that adapts to the data, it is the error on evenly spread data.
    """

    def __init__(self, domain: Domain, noise: LaplaceNoise, rows: int) -> None:
        self.domain, self.noise, self.rows = domain, noise, rows
        self.tree: Tree = RegularTree(domain.side, domain.dimensions)
        self.order: int | None = None
        self.variance = np.zeros(0)  # per node
        self.questions, self.counted = 0, False  # whether the current tree has been counted
        self.rate, self.sorted = (
            Fraction(1),
            False,
        )  # of the sample that medians are found on; whether there are medians

    def run(self, method: Method, total: Fraction, delta: Fraction) -> NoisyTree:
        """Grow the tree of a method, and return it with the noise variance of each node."""
        gate = Gate(
            domain=self.domain,
            delta=delta,
            power=self.noise.power,
            sharpness=self.noise.sharpness,
            tree=lambda: self.tree,
            boxes=self.boxes,
            refine=lambda parts: self.grow(self.tree.refine(parts)),
            split=lambda parts: self.grow(self.tree.split(parts)),
            cut=lambda axis, at, where: self.grow(self.tree.cut(axis, at, where)),
            shorten=lambda height: self.grow(cast(RegularTree, self.tree).shortened(height)),
            follow=self.follow,
            sample=self.sample,
            medians=self.find_medians,
            dense=self.dense,
            roughness=self.roughness,
            grid=self.grid,
            count=lambda level, price: self.count(self.nodes(self.tree.level(level)), price),
            count_leaves=lambda price: self.count(np.flatnonzero(self.tree.is_leaf), price),
            count_each=self.count_each,
            reserve_check=lambda price: self.add_question(),
        )
        method.structure.grow(gate, total, method.budget)
        return NoisyTree(self.boxes(), np.zeros(self.tree.size, np.int64), self.spread(), (), False)

    def question_count(self) -> QuestionCount:
        """Return the number of questions so far."""
        return QuestionCount(self.tree.size, self.questions, self.rate * self.sorted)

    def add_question(self) -> None:
        self.questions += 1

    def sample(self, rate: Fraction, price: Fraction, *_: object) -> Fraction:
        self.rate = rate
        self.add_question()
        return price

    def find_medians(self, axis: int, *_: object) -> Ints:
        self.sorted = True
        return midpoints(self.tree, axis)

    def grid(self, parts: Parts, _: Fraction) -> Ints:
        self.add_question()
        return np.full(math.prod(parts), self.rows // math.prod(parts))

    def boxes(self) -> Tree:
        domain = self.domain
        return self.tree if self.order is None else CurveTree(self.tree, domain.dimensions, self.order, domain.bits)

    def nodes(self, level: slice) -> Ints:
        return np.arange(level.start, level.stop)

    def spread(self) -> Floats:
        """Return the variances so far, one per node."""
        more = np.full(max(0, self.tree.size - len(self.variance)), np.inf)
        self.variance = np.concatenate([self.variance[: self.tree.size], more])
        return self.variance

    def grow(self, tree: Tree) -> None:
        self.tree, self.counted = tree, False

    def follow(self, order: int) -> None:
        self.order, self.tree = order, CutTree.root(1 << (order * self.domain.dimensions), 1)

    def expected(self, nodes: Ints) -> Ints:
        return even_counts(self.tree, self.rows, nodes).astype(np.int64)

    def dense(self, price: Fraction) -> Flags:
        self.count_tree()
        _, step = decay(self.noise.pure(price) / self.noise.rows, 2**self.domain.dimensions)
        return self.expected(self.nodes(self.tree.level(self.tree.height))) > self.tree.height * step

    def roughness(self, depth: Ints, scales: int, _: Fraction) -> Ints:
        """Return sums of differences of half-cells: those of Poisson counts, and the typical roughness of data."""
        self.add_question()
        rows, axes = self.expected(self.nodes(self.tree.level(self.tree.height))), self.domain.dimensions
        sums = np.zeros(scales, np.int64)
        for scale in range(scales):
            deep = depth >= scale
            side = 2.0 ** (depth[deep] - scale)
            runs = side**axes / (np.minimum(side, CELLS_PER_RUN) if axes > 1 else 1)
            by_chance = np.sum(runs * _typical_difference(rows[deep] / runs))
            sums[scale] = axes * math.hypot(by_chance, TYPICAL_ROUGHNESS * rows[deep].sum())
        return sums

    def count_tree(self) -> None:
        """Record one question for the counts of all nodes, which remain known until the tree grows."""
        self.questions, self.counted = self.questions + (not self.counted), True

    def count(self, nodes: Ints, price: Fraction) -> Ints:
        return self.count_each(nodes, np.ones(len(nodes), np.int64), price)

    def count_each(self, nodes: Ints, steps: Ints, step: Fraction) -> Ints:
        self.count_tree()
        prices, which = np.unique(steps, return_inverse=True)
        self.spread()[nodes] = np.array([self.noise.variance(times * step) for times in prices.tolist()])[which]
        return self.expected(nodes)


def _typical_difference(mean: Floats) -> Floats:
    """Return E|X − Y| for independent Poisson variables whose means add up to ``mean``, within 2 %."""
    return mean / (1 + (math.pi / 2 * mean) ** 1.25) ** 0.4

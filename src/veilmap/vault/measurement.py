"""The gate: charge, count, add noise, forget what is exact. Proof: proofs/measure.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from veilmap.arrays import Flags, Ints
from veilmap.engines.tally import Cut, Grids, Step, parts_of, split_step
from veilmap.errors import BadInput
from veilmap.method.method import Method, Noise
from veilmap.structures import Gate
from veilmap.trees import CurveTree, CutTree, Parts, RegularTree, Tree
from veilmap.vault.arguments import (
    must_be_allowed,
    must_be_cells,
    must_be_countable,
    must_be_curve,
    must_be_grid,
    must_be_nodes,
    must_be_parts,
    must_be_predictions,
    must_be_small,
    must_be_splits,
    plain,
)
from veilmap.vault.budget_meter import BudgetMeter
from veilmap.vault.check import Check, GridPrediction, Residual
from veilmap.vault.door import Door
from veilmap.vault.entropy import Keys, current_keys
from veilmap.vault.mechanisms.density_test import DensityTest
from veilmap.vault.mechanisms.gaussian import concentrated
from veilmap.vault.mechanisms.medians import exact_cuts, group_delta, private_cuts
from veilmap.vault.mechanisms.residuals import noisy_residuals
from veilmap.vault.mechanisms.roughness import noisy_roughness
from veilmap.vault.mechanisms.sampling import inner_epsilon
from veilmap.vault.noise_models import GaussianNoise, LaplaceNoise, NoNoise
from veilmap.vault.noisy_tree import NoisyCounts, NoisyTree
from veilmap.vault.path_costs import PathCosts
from veilmap.vault.sealed import Progress, Sealed, silenced
from veilmap.vault.tracked_rows import TrackedRows

NOISE_MODELS = dict(zip(Noise, (LaplaceNoise, GaussianNoise, NoNoise), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What the vault gives out: a noisy tree and, if the structure reserved a price for it, a check."""

    tree: NoisyTree
    check: Check | None  # holds the rows until it has been used


def measure(
    points: Sealed,
    method: Method,
    epsilon: Fraction,
    progress: Progress = lambda fraction: None,
    delta: Fraction = Fraction(0),
    allow_nonprivate: bool = False,
) -> Measured:
    """Release the noisy counts of one tree under (``epsilon``, ``delta``)-differential privacy.

    Guarantees (neighbours: add or remove one unit, a row or a person with a stated number of rows at most):

    - Every question to the rows is charged first, and the budget meter refuses anything beyond the budget.
    - A row lies in at most one node of a level and on one path from the root: a question about disjoint nodes
      costs the largest price of any, and questions along a path cost their sum.
    - Cuts, heights and what is counted are functions of public numbers and of answers that were charged.
    - With ``delta`` = 0 and no Gaussian noise the promise is pure. Gaussian noise is accounted in ρ, and
      a release is of one kind or the other.
    - Exact medians and counts are refused, unless ``allow_nonprivate``; then the result says that it is not private.
    - An unexpected error names its kind, and nothing of the data.
    - A check was charged before the tree was given out, and answers once.
    """
    try:
        return _measure(points, method, epsilon, delta, allow_nonprivate, current_keys(), progress)
    except BaseException as error:
        failure = silenced(error)
    del points
    raise failure


def _measure(
    points: Sealed,
    method: Method,
    epsilon: Fraction,
    delta: Fraction,
    allow_nonprivate: bool,
    keys: Keys,
    progress: Progress,
) -> Measured:
    """Let the structure grow its tree through the gate. Everything exact is in ``rows`` or a local of a verb."""
    domain, most_rows = points.domain, points.most_rows
    noise, budget = noise_and_budget(method, epsilon, delta, most_rows)
    delta = Fraction(0) if noise.currency == "rho" else delta  # all of it has bought ρ
    meter, sample_meter = BudgetMeter(budget, delta, noise.currency), BudgetMeter(Fraction(0))
    rows = TrackedRows(points, method.structure.passes, keys, progress)
    tree: Tree = RegularTree(domain.side, domain.dimensions)
    order: int | None = None  # of the Hilbert curve, once the domain lies along one
    noisy, path_costs, density, door = NoisyCounts(), PathCosts(), DensityTest(), Door()
    private, sampled, check = keys.private, False, None
    if not noise.private:
        private = must_be_allowed("Counts without noise", allow_nonprivate)

    # --- Free: where boxes are cut follows from what is public, or was paid for.

    def grow(grown: Tree, step: Step | None) -> None:
        nonlocal tree
        must_be_small(grown)
        rows.follow(tree, step)
        tree = grown
        if rows.streams:
            path_costs.forget_paths()

    def refine(parts: Parts) -> None:
        must_be_parts(parts, domain)
        if isinstance(tree, RegularTree) and not rows.read:
            grown = RegularTree(domain.side, domain.dimensions, (*tree.splits, parts))
            must_be_countable(grown, domain)
            grow(grown, None)
        else:
            split(np.tile(np.array(parts, np.int64), (tree.level_start[-1] - tree.level_start[-2], 1)))

    def split(parts: Ints) -> None:
        must_be_splits(parts, order, domain)
        grown = tree.split(parts)
        grow(grown, split_step(grown, parts))

    def cut(axis: int, at: Ints, where: Flags | None = None) -> None:
        grown = tree.cut(axis, at, where)
        grow(grown, Cut(axis, at, grown.level_start[-3], grown.first_child))

    def shorten(height: int) -> None:
        nonlocal tree
        if density.started or not isinstance(tree, RegularTree):
            raise BadInput("A tree can be shortened only before its first cut, and not after a density test.")
        if height not in range(1, tree.height + 1):
            raise BadInput(f"A tree of height {tree.height} is shortened to 1 to {tree.height}, got {height!r}.")
        noisy.must_be_uncounted(slice(tree.level_start[height + 1], None), f"A level below {height}")
        tree = tree.shortened(height)
        rows.shorten(tree)
        noisy.resize(min(noisy.size, tree.size))

    def follow(curve: int) -> None:
        nonlocal tree, order
        if tree.size > 1 or rows.read or noisy.size:
            raise BadInput("A domain is laid along a curve before anything else is done with it.")
        must_be_curve(curve, domain)
        rows.lay_along(tree, curve)
        order, tree = curve, CutTree.root(1 << (curve * domain.dimensions), 1)

    # --- Paid: each verb charges, then asks the rows and adds noise.

    def sample(rate: Fraction, price: Fraction, price_delta: Fraction, mechanism: str) -> Fraction:
        nonlocal sampled, sample_meter
        if sampled or not 0 < rate <= 1:
            raise BadInput(f"A release has one sample of a rate from above 0 to 1, got {rate}.")
        meter.charge(f"medians on a sample of {float(rate):g}", mechanism, price, price_delta)
        rows.sample(tree, rate)
        sampled, sample_meter = True, BudgetMeter(inner_epsilon(rate, noise.pure(price)), price_delta / rate)
        return sample_meter.left

    def medians(axis: int, price: Fraction, price_delta: Fraction, mechanism: str) -> Ints:
        nonlocal private
        if mechanism == "exact":
            private = must_be_allowed("Exact medians", allow_nonprivate)
        else:
            (sample_meter if sampled else meter).charge(
                f"medians of level {tree.height}", mechanism, price, price_delta
            )
        newest = tree.level(tree.height)
        boxes = *rows.sorted_along(tree, axis), tree.lo[newest, axis].copy(), tree.hi[newest, axis].copy()
        if mechanism == "exact":
            return exact_cuts(*boxes)
        if not sampled:  # a sample is paid for in pure ε
            price = noise.bounded(price) if mechanism.startswith("exponential") else noise.pure(price)
        return private_cuts(mechanism, *boxes, price / most_rows, group_delta(price, price_delta, most_rows), keys)

    def dense(price: Fraction) -> Flags:
        density.must_be_next(tree, rows.streams)
        if not density.started:
            meter.charge("where to split", "privtree", price)
            density.start(noise.pure(price) / most_rows, 2**domain.dimensions)
        return density.ask(tree, rows.counts(tree), keys)

    def roughness(depth: Ints, scales: int, price: Fraction) -> Ints:
        """Noisy sums over the cells of newest boxes: 2^depth cells per axis in each; -1 leaves a box out."""
        side = must_be_cells(depth, scales, tree, order)
        meter.charge(f"roughness of level {tree.height}", noise.mechanism, price)
        tally = rows.tally(tree, parts_of(tree, side))
        return noisy_roughness(tally, side, domain.dimensions, scales, price, noise, keys)

    def grid(parts: Parts, price: Fraction) -> Ints:
        must_be_grid(parts, order, domain)
        meter.charge("noisy counts of a grid", noise.mechanism, price)
        return rows.tally(tree, Grids((parts,), domain.bits)) + noise.draw(price, math.prod(parts), keys)

    def publish(nodes: slice | Ints, price: Fraction) -> None:
        """The one place where counts turn into published numbers. They have been paid for."""
        exact = rows.counts(tree)[nodes]
        noisy.count[nodes] = exact + noise.draw(price, len(exact), keys)
        noisy.variance[nodes] = noise.variance(price)

    def count(level: int, price: Fraction) -> Ints:
        if level not in range(tree.height + 1):
            raise BadInput(f"A tree of height {tree.height} has the levels 0 to {tree.height}, got {level!r} to count.")
        nodes = tree.level(level)
        noisy.resize(max(noisy.size, nodes.stop))
        noisy.must_be_uncounted(nodes, f"Level {level}")
        meter.charge(f"noisy counts of level {level}", noise.mechanism, price)
        publish(nodes, price)
        return noisy.count[nodes].copy()

    def count_leaves(price: Fraction) -> Ints:
        noisy.resize(tree.size)
        leaves = np.flatnonzero(tree.is_leaf)
        noisy.must_be_uncounted(leaves, "A leaf")
        meter.charge("noisy counts of the leaves", noise.mechanism, price)
        publish(leaves, price)
        return noisy.count[leaves].copy()

    def count_each(nodes: Ints, steps: Ints, step: Fraction) -> Ints:
        """Every path pays for its own nodes: the meter, for what the most expensive path has come to cost."""
        noisy.resize(tree.size)
        must_be_nodes(nodes, steps, tree)
        noisy.must_be_uncounted(nodes, "A node")
        path_costs.pay(tree, nodes, steps, step, lambda p: meter.charge("noisy node counts", noise.mechanism, p))
        by_price, many = np.argsort(steps.astype(np.int16), kind="stable"), np.bincount(steps)
        for times, last in zip(np.flatnonzero(many).tolist(), np.cumsum(many)[many > 0].tolist(), strict=True):
            publish(nodes[by_price[last - many[times] : last]], times * step)
        return noisy.count[nodes].copy()

    def reserve_check(price: Fraction) -> None:
        """Pay for one comparison of predictions with the rows, after the tree has left the vault."""
        nonlocal check
        if order is not None:
            raise BadInput("Answers along a curve cannot be checked.")
        meter.charge("calibration of error bars", noise.mechanism, price)
        rows.forget_counts()
        door.close()
        check = Check(lambda predictions: residuals(predictions, price))

    def residuals(predictions: tuple[GridPrediction, ...], price: Fraction) -> tuple[Residual, ...]:
        """By how much predictions are off, made by someone who has seen the noisy tree alone."""
        must_be_predictions(predictions, domain)
        if not predictions:
            return ()
        each, grids = price / len(predictions), Grids(tuple(parts for parts, _, _ in predictions), domain.bits)
        counts = np.split(rows.tally(tree, grids), np.cumsum(grids.sizes)[:-1])
        return tuple(
            (noisy_residuals(cells, places, expected, each, noise, keys), noise.variance(each))
            for cells, (_, places, expected) in zip(counts, predictions, strict=True)
        )

    def boxes() -> Tree:
        return tree if order is None else CurveTree(tree, domain.dimensions, order, domain.bits)

    free = (boxes, noise.sharpness, refine, split, cut, shorten, follow)
    paid = (sample, medians, dense, roughness, grid, count, count_leaves, count_each, reserve_check)
    verbs = {verb.__name__: door.guard(verb) for verb in (*free, *paid)}
    gate = Gate(domain, plain(delta), noise.power, tree=door.guard(lambda: tree), **verbs)
    try:
        method.structure.grow(gate, plain(budget), method.budget)
    finally:
        door.close()
    noisy.resize(tree.size)
    if not np.isfinite(noisy.variance[tree.is_leaf]).all():
        raise BadInput("A structure must count the leaves of its tree.")
    return Measured(NoisyTree(boxes(), noisy.count, noisy.variance, meter.charges, private), check)


def noise_and_budget(
    method: Method, epsilon: Fraction, delta: Fraction, most_rows: int
) -> tuple[LaplaceNoise, Fraction]:
    """Return the noise model of a method, and its budget: ε, or the ρ that makes (ε, δ)."""
    noise = NOISE_MODELS[method.noise](most_rows)
    return noise, concentrated(epsilon, delta) if noise.currency == "rho" else epsilon

"""The gate: charge, count, add noise, forget what is exact. Proof: proofs/measure.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from veilmap.arrays import Flags, Ints
from veilmap.engines.tally import Cut, Grids, Step, parts_of, split_step
from veilmap.method.method import Method
from veilmap.structures import Gate
from veilmap.trees import CurveTree, CutTree, Parts, RegularTree, Tree
from veilmap.vault.arguments import (
    must_be_allowed,
    must_be_cells,
    must_be_checkable,
    must_be_countable,
    must_be_curve,
    must_be_grid,
    must_be_level,
    must_be_nodes,
    must_be_parts,
    must_be_predictions,
    must_be_rate,
    must_be_shortenable,
    must_be_small,
    must_be_splits,
    plain,
)
from veilmap.vault.budget_meter import BudgetMeter
from veilmap.vault.check import Check, GridPrediction, Residual
from veilmap.vault.entropy import current_keys
from veilmap.vault.gate_guard import GateGuard
from veilmap.vault.mechanisms.density_test import DensityTest
from veilmap.vault.mechanisms.medians import exact_cuts, group_delta, private_cuts
from veilmap.vault.mechanisms.residuals import noisy_residuals
from veilmap.vault.mechanisms.roughness import noisy_roughness
from veilmap.vault.mechanisms.sampling import inner_epsilon
from veilmap.vault.noise_models import noise_and_budget
from veilmap.vault.noisy_tree import NoisyCounts, NoisyTree
from veilmap.vault.path_costs import PathCosts, group_by_price
from veilmap.vault.sealed import Progress, Sealed, silenced
from veilmap.vault.tracked_rows import TrackedRows


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What leaves the vault: a noisy tree and, if the structure reserved one, a check that has been charged."""

    tree: NoisyTree
    check: Check | None  # holds the rows until it is used


def measure(
    points: Sealed,
    method: Method,
    epsilon: Fraction,
    progress: Progress = lambda fraction: None,
    delta: Fraction = Fraction(0),
    allow_nonprivate: bool = False,
) -> Measured:
    """Measure the noisy counts of one tree under (``epsilon``, ``delta``)-differential privacy.

    Guarantees (neighbours: add or remove one unit, which is a row, or a person with a stated maximum number of rows):

    - Every question to the rows is charged first. The budget meter refuses any charge beyond the budget.
    - A row lies in at most one node per level and on one path from the root. So a question about disjoint nodes costs
      the largest of their prices, and questions along a path cost the sum of theirs.
    - Cuts, heights and the choice of counted nodes are functions of public numbers and of answers that were charged.
    - With ``delta`` = 0 and no Gaussian noise, the guarantee is pure. Gaussian noise is accounted for in ρ. One release
      uses either ε or ρ, never both.
    - Exact medians and counts are refused unless ``allow_nonprivate`` is set. The result is then marked not private.
    - An unexpected error states its type and nothing about the data.
    - A check is charged before the tree leaves the vault, and answers once.
    """
    try:
        return _measure(points, method, epsilon, delta, allow_nonprivate, progress)
    except BaseException as error:
        failure = silenced(error)
    del points
    raise failure


def _measure(
    points: Sealed, method: Method, epsilon: Fraction, delta: Fraction, allow_nonprivate: bool, progress: Progress
) -> Measured:
    """Let the structure grow its tree through the gate. Exact values exist only in ``rows`` and as locals of a verb."""
    domain, rows_per_unit, keys = points.domain, points.max_rows_per_unit, current_keys()
    noise, budget = noise_and_budget(method, epsilon, delta, rows_per_unit)
    delta = Fraction(0) if noise.currency == "rho" else delta  # with Gaussian noise, δ has been converted into ρ
    meter, sample_meter = BudgetMeter(budget, delta, noise.currency), BudgetMeter(Fraction(0))
    rows = TrackedRows(points, method.structure.passes, keys, progress)
    tree: Tree = RegularTree(domain.side, domain.dimensions)
    order: int | None = None  # of the Hilbert curve that replaces the domain's axes, if any
    noisy, path_costs, density, guard = NoisyCounts(), PathCosts(), DensityTest(), GateGuard()
    private, sampled, check = keys.private, False, None
    if not noise.private:
        private = must_be_allowed("Counts without noise", allow_nonprivate)

    # --- Free verbs: boxes are cut by public numbers, or by answers that were charged.

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
        regular = must_be_shortenable(tree, height, density.started)
        noisy.must_be_uncounted(slice(regular.level_start[height + 1], None), f"A level below {height}")
        tree = regular.shortened(height)
        rows.shorten(tree)
        noisy.resize(min(noisy.size, tree.size))

    def follow(curve: int) -> None:
        nonlocal tree, order
        must_be_curve(curve, domain, untouched=tree.size == 1 and not rows.read and not noisy.size)
        rows.lay_along(tree, curve)
        order, tree = curve, CutTree.root(1 << (curve * domain.dimensions), 1)

    # --- Paid verbs: each one charges first, then asks the rows and adds noise.

    def sample(rate: Fraction, price: Fraction, price_delta: Fraction, mechanism: str) -> Fraction:
        nonlocal sampled, sample_meter
        must_be_rate(rate, sampled)
        meter.charge(f"medians on a sample of {float(rate):g}", mechanism, price, price_delta)
        rows.sample(tree, rate)
        sampled, sample_meter = True, BudgetMeter(inner_epsilon(rate, noise.pure(price)), price_delta / rate)
        return sample_meter.left

    def medians(axis: int, price: Fraction, price_delta: Fraction, mechanism: str) -> Ints:
        nonlocal private
        if mechanism == "exact":
            private = must_be_allowed("Exact medians", allow_nonprivate)
        else:
            payer = sample_meter if sampled else meter
            payer.charge(f"medians of level {tree.height}", mechanism, price, price_delta)
        frontier = tree.level(tree.height)
        boxes = *rows.sorted_along(tree, axis), tree.lo[frontier, axis].copy(), tree.hi[frontier, axis].copy()
        if mechanism == "exact":
            return exact_cuts(*boxes)
        if not sampled:  # medians on a sample are paid for in pure ε
            price = noise.bounded(price) if mechanism.startswith("exponential") else noise.pure(price)
        row_delta = group_delta(price, price_delta, rows_per_unit)
        return private_cuts(mechanism, *boxes, price / rows_per_unit, row_delta, keys)

    def dense(price: Fraction) -> Flags:
        density.must_be_next(tree, rows.streams)
        if not density.started:
            meter.charge("where to split", "privtree", price)
            density.start(noise.pure(price) / rows_per_unit, 2**domain.dimensions)
        return density.ask(tree, rows.counts(tree), keys)

    def roughness(depth: Ints, scales: int, price: Fraction) -> Ints:
        """Return noisy sums over the frontier boxes, each cut into 2^depth cells per axis; -1 leaves a box out."""
        side = must_be_cells(depth, scales, tree, order)
        meter.charge(f"roughness of level {tree.height}", noise.mechanism, price)
        tally = rows.tally(tree, parts_of(tree, side))
        return noisy_roughness(tally, side, domain.dimensions, scales, price, noise, keys)

    def grid(parts: Parts, price: Fraction) -> Ints:
        must_be_grid(parts, order, domain)
        meter.charge("noisy counts of a grid", noise.mechanism, price)
        return rows.tally(tree, Grids((parts,), domain.bits)) + noise.draw(price, math.prod(parts), keys)

    def publish(nodes: slice | Ints, price: Fraction) -> None:
        """Add noise to counts that have been charged. No other function writes into the published arrays."""
        exact = rows.counts(tree)[nodes]
        noisy.count[nodes] = exact + noise.draw(price, len(exact), keys)
        noisy.variance[nodes] = noise.variance(price)

    def count(level: int, price: Fraction) -> Ints:
        nodes = must_be_level(level, tree)
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
        """Count nodes that have their own prices. The meter pays for the most expensive path from the root."""
        noisy.resize(tree.size)
        must_be_nodes(nodes, steps, tree)
        noisy.must_be_uncounted(nodes, "A node")
        path_costs.pay(tree, nodes, steps, step, lambda p: meter.charge("noisy node counts", noise.mechanism, p))
        for same_price, price_steps in group_by_price(nodes, steps):
            publish(same_price, price_steps * step)
        return noisy.count[nodes].copy()

    def reserve_check(price: Fraction) -> None:
        """Charge for one comparison of predictions with the rows, and close the gate to the structure."""
        nonlocal check
        must_be_checkable(order)
        meter.charge("calibration of error bars", noise.mechanism, price)
        rows.forget_counts()
        guard.close()
        check = Check(lambda predictions: residuals(predictions, price))

    def residuals(predictions: tuple[GridPrediction, ...], price: Fraction) -> tuple[Residual, ...]:
        """Answer a check: compare the rows with predictions that were made from the noisy tree alone."""
        must_be_predictions(predictions, domain)
        grids = Grids(tuple(parts for parts, _, _ in predictions), domain.bits)
        return noisy_residuals(rows.tally(tree, grids), predictions, price, noise, keys) if predictions else ()

    def boxes() -> Tree:
        return tree if order is None else CurveTree(tree, domain.dimensions, order, domain.bits)

    free = (boxes, noise.sharpness, refine, split, cut, shorten, follow)
    paid = (sample, medians, dense, roughness, grid, count, count_leaves, count_each, reserve_check)
    verbs = {verb.__name__: guard.wrap(verb) for verb in (*free, *paid)}
    gate = Gate(domain, plain(delta), noise.power, tree=guard.wrap(lambda: tree), **verbs)
    try:
        method.structure.grow(gate, plain(budget), method.budget)
    finally:
        guard.close()
    noisy.must_have_leaves(tree)
    return Measured(NoisyTree(boxes(), noisy.count, noisy.variance, meter.charges, private), check)

"""A tree of grids that suits the data: leaf sizes, depth and prices follow from noisy numbers alone.

Also known as a multi-level adaptive grid. ``docs/model.md`` explains the model, ``proofs/best.md`` proves its privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.budgets import Budget, Chosen
from veilmap.errors import BadInput
from veilmap.kernels.sibling_contrasts import add_contrasts
from veilmap.structures.base import CELLS_PER_RUN, Gate, Structure
from veilmap.structures.best_tuning import PRICE_UNITS, TUNING
from veilmap.trees import Tree, product

CANDIDATE_LEAF_LOADS = np.geomspace(0.7, 128, 40)
NORMAL_MEAN_ABS = 0.8  # √(2/π), about: the mean |x| of a normal variable over its standard deviation
# Bounds that keep logarithms and powers finite; data rarely reach them.
MIN_ROUGHNESS = 0.02
MIN_UNEVENNESS = MIN_ROUGHNESS**2
MIN_DISSIMILARITY = 0.001
MIN_LEAF_SIZE_FACTOR, MAX_LEAF_SIZE_FACTOR = 0.05, 20


@dataclass(frozen=True, slots=True)
class Best(Structure):
    """The default structure, and the most accurate one. It has no parameters.

    Each box is split into as many children as its noisy count deserves, and each child again, for as long as that pays.
    The number of rows per leaf is learned first: a probe measures the roughness of the data at several scales.
    """

    height: ClassVar[None] = None
    max_nodes: ClassVar[int] = 2 * TUNING.max_leaves  # about
    usual_budget: ClassVar[Chosen] = Chosen()

    def nodes(self, dimensions: int) -> int | None:
        return None

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        if not isinstance(budget, Chosen):
            raise BadInput("The structure 'best' allocates its budget itself. Leave the budget out.")
        axes, unit_price = gate.domain.dimensions, epsilon / PRICE_UNITS
        # by price in units: the ε of Laplace noise that is as small as the noise bought for that price
        sharpness = gate.sharpness(epsilon) * (np.arange(PRICE_UNITS + 1) / PRICE_UNITS) ** (gate.power / 2)
        counts = gate.count_each(np.zeros(1, np.int64), np.array([TUNING.total_units]), unit_price).astype(np.float64)
        units_left = np.array([PRICE_UNITS - TUNING.total_units])
        load = max(float(counts[0]), 1.0) * float(sharpness[-1])
        probing, many = load >= TUNING.min_probe_load, load >= TUNING.many_rows_load
        reserved_units = TUNING.reserved_units_most if load >= TUNING.most_rows_load else TUNING.reserved_units
        reserved_units = reserved_units if probing else 0
        units_left, reserved = units_left - reserved_units, reserved_units * unit_price
        probe_price = reserved / 2
        load_per_leaf = TUNING.load_per_leaf_first_split if many else TUNING.load_per_leaf
        leaf_factor, units = np.ones(1), None
        while (growing := units_left > 0).any():
            tree = gate.tree()
            if units is not None:
                leaf_factor = leaf_size_factors(tree, counts, sharpness, units, units_left)
            leaf_load = np.maximum(load_per_leaf * leaf_factor, load / TUNING.max_leaves)
            leaves = np.maximum(counts, 0) * sharpness[units_left] / leaf_load
            frontier = tree.level(tree.height)
            width = (tree.hi[frontier] - tree.lo[frontier])[growing]
            parts, units = np.zeros((len(growing), axes), np.int64), np.zeros(len(growing), np.int64)
            if probing and not many and axes > 1:  # the root: a cheap split, since few rows say little of how fine
                parts[:] = np.minimum(round(TUNING.children_per_split ** (1 / axes)), width)
                units[:] = np.minimum(TUNING.first_split_units_few, units_left)
            else:
                parts[growing], units[growing] = plan_split(leaves[growing], units_left[growing], width, gate.power)
            counts, units_left = _split(gate, parts, units, units_left, unit_price)
            if probing and units_left.min() > 0:
                learned = probe(gate, counts, sharpness[units_left], probe_price, many)
                if learned is not None:
                    load_per_leaf, reserved = learned, reserved - probe_price
            probing = False
        if reserved:
            gate.reserve_check(reserved)


def _split(gate: Gate, parts: Ints, units: Ints, units_left: Ints, unit_price: Fraction) -> tuple[Floats, Ints]:
    """Split the frontier and count the children. Return their noisy counts and the units that each has left."""
    gate.split(parts)
    frontier = gate.tree().level(gate.tree().height)
    fanout = product(parts)
    child_units = np.repeat(units, fanout)
    counts = gate.count_each(np.arange(frontier.start, frontier.stop), child_units, unit_price)
    return counts.astype(np.float64), np.repeat(units_left, fanout) - child_units


def plan_split(leaves: Floats, units_left: Ints, width: Ints, power: int) -> tuple[Ints, Ints]:
    """Return into how many parts boxes are split along each axis, and the units that each child pays.

    ``leaves`` is how many leaves a box deserves, ``units_left`` what it may spend, ``width`` its cells per axis. Enough
    levels are planned for these leaves with about ``children_per_split`` children each. The budget is shared among the
    levels in proportion to how many of their nodes the border of a query meets.
    """
    axes = width.shape[1]
    depth = np.log(np.maximum(leaves, 1)) / math.log(TUNING.children_per_split)
    levels = np.clip(np.round(depth + TUNING.level_rounding), 1, TUNING.max_planned_levels)
    parts_per_axis = np.maximum(leaves, 1) ** (1 / axes / levels)
    weight = TUNING.level_weight_one_axis if axes == 1 else TUNING.level_weight
    growth = weight * parts_per_axis ** ((axes - 1) / (power + 1))  # of prices, from one level to the next
    units = np.maximum(np.round(units_left * (growth - 1) / (growth**levels - 1)), 1).astype(np.int64)
    last = (levels == 1) | (units >= units_left)
    parts_per_axis = np.where(levels == 1, parts_per_axis, np.maximum(parts_per_axis, 2))
    parts = np.tile(np.round(parts_per_axis)[:, None], (1, axes))
    parts = np.minimum(np.clip(parts, 1, TUNING.max_parts_per_axis).astype(np.int64), np.maximum(width, 1))
    last |= parts.T.max(axis=0) == 1
    return parts, np.where(last, units_left, units)


def probe(gate: Gate, counts: Floats, sharpness: Floats, price: Fraction, many: bool) -> float | None:
    """Return the load per leaf at which noise and unevenness inside cut leaves are in balance.

    With ``many`` rows the roughness is measured in fine cells; with few, in larger cells and at two scales. ``None``
    when no box can be probed: then nothing is spent.
    """
    axes = gate.domain.dimensions
    load = np.maximum(counts, 0) * sharpness
    depth = _probe_depth(gate.tree(), load, many)
    scales = (5 if axes == 1 else 3) if many else 2
    if not (depth >= 0).any():
        return None
    noisy = gate.roughness(depth, scales, price)
    log_load, log_unevenness = [], []
    for scale in range(scales):
        probed = depth >= scale
        if not probed.any():
            break
        rows, cells = np.maximum(counts[probed], 1e-9), 2.0 ** (axes * (depth[probed] - scale))
        runs = cells / np.minimum(CELLS_PER_RUN, 2.0 ** (depth[probed] - scale)) if axes > 1 else cells
        all_rows = rows.sum()
        # |difference| of halves: normal where a run has many rows, and all of its rows where it has one at most
        normal = NORMAL_MEAN_ABS * np.sqrt(rows * runs)
        by_chance = (normal * np.minimum(1, np.sqrt(rows / runs) / NORMAL_MEAN_ABS)).sum() / all_rows
        roughness = noisy[scale] / axes / all_rows
        log_load.append(float((rows * np.log(rows * sharpness[probed] / cells)).sum() / all_rows))
        log_unevenness.append(math.log(max(max(roughness, MIN_ROUGHNESS) ** 2 - by_chance**2, MIN_UNEVENNESS)))
    leaf_loads = CANDIDATE_LEAF_LOADS
    unevenness = np.exp(np.interp(np.log(leaf_loads), np.maximum.accumulate(log_load), log_unevenness))
    cost = 2 * TUNING.noise_weight / leaf_loads + unevenness * leaf_loads
    cost = cost + sharpness.mean() * np.sqrt(leaf_loads / max(float(load.mean()), 1.0))
    return float(leaf_loads[np.argmin(cost)])


def _probe_depth(tree: Tree, load: Floats, many: bool) -> Ints:
    """Return how often each frontier box is halved per axis for the probe: about one cell per unit of load; -1: not."""
    axes, frontier = tree.lo.shape[1], tree.level(tree.height)
    narrowest = np.log2((tree.hi[frontier] - tree.lo[frontier]).min(axis=1)) - 1
    deepest = math.log2(TUNING.max_probe_cells) // axes - 1
    wanted = np.floor(np.log2(np.maximum(load, 1)) / axes) - (not many)
    depth: Ints = np.minimum(wanted, np.minimum(narrowest, deepest)).astype(np.int64)
    depth[load < 2] = -1
    cells = np.where(depth < 0, 0.0, 2.0 ** (axes * (depth + 1)))
    lot = (np.arange(len(cells), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)) / 2**32
    depth[lot * cells.sum() > TUNING.max_probe_cells] = -1  # a public draw of boxes
    return depth


def leaf_size_factors(tree: Tree, counts: Floats, sharpness: Floats, units: Ints, units_left: Ints) -> Floats:
    """Return the factor by which the leaves of each frontier box should be larger than the average.

    Where siblings are similar, leaves can be larger. Similarity is learned per power of 2 of the count.
    """
    frontier = tree.level(tree.height)
    parents = tree.level(tree.height - 1)
    stratum = np.minimum(np.log2(np.maximum(counts, 1)), 30).astype(np.int64)
    pairs, dissimilarity = np.zeros((2, 31))
    noise = np.where(units > 0, 2 / np.maximum(sharpness[units], 1e-12) ** 2, 0.0)
    first = tree.first_child[parents.start : parents.stop + 1] - frontier.start
    add_contrasts(first, tree.lo[frontier], counts, noise, pairs, dissimilarity)
    expected, worth = TUNING.expected_dissimilarity, TUNING.expected_dissimilarity_pairs
    learned = np.maximum((dissimilarity + worth * expected) / (pairs + worth), MIN_DISSIMILARITY)
    factor = np.clip((learned / expected) ** -TUNING.dissimilarity_exponent, MIN_LEAF_SIZE_FACTOR, MAX_LEAF_SIZE_FACTOR)
    weight = np.where(units_left > 0, np.maximum(counts, 0), 0)
    middle = float((weight * np.log(factor)[stratum]).sum() / max(float(weight.sum()), 1e-9))
    return np.asarray((factor / math.exp(middle))[stratum])

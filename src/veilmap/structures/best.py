"""A grid of grids that suits the data: how fine, how deep and at what price, from noisy numbers alone."""

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
from veilmap.trees import Tree, product

UNITS = 100  # of the budget: what is spent on a node is a whole number of them
TOTAL, AGAIN = 1, 4  # for the number of rows, and for a second look at it where the first says little
SURE = 400.0  # rows times ε from which one look is enough

CELL = 4.0  # rows times ε that a leaf deserves when nothing is known
FIRST = 8.0  # the same for the first split, which must not be too fine before more is known
FANOUT, LIFT = 36.0, 0.4  # parts of one split, about; levels are rounded up a little more often than down
GLANCE = 16  # units that the first split costs where rows are few, and axes are not
DEEPEST = 8  # splits that are planned ahead
DOWN = 1.45, 1.1  # later levels are worth more than what is cut of them: small boxes are made of them; on one axis
ALONE = 1.6  # parts that a box must deserve to be split at all
MOST_PARTS = 512
MOST = 2**22  # leaves, about

FEW, MANY, MOST_ROWS = 500.0, 6000.0, 60_000.0  # rows times ε: fewer than few are neither probed nor checked
ASIDE = 3, 2, 1  # units that a probe and a check cost together: of few rows, of many, and of most
PROBE, PROBE_FEW = Fraction(2, 5), Fraction(2, 3)  # of that is for the probe, and where rows are few
MOST_TALLIED = 2**19  # parts that it looks at
ROUGH, TRUST = 0.25, 0.12  # what it is expected to say, and how surely
NOISE, NOISE_FEW = 0.35, 0.8  # of a leaf's noise is in an answer that cuts it; of few rows on one or two axes
CELLS = np.geomspace(0.7, 128, 40)

ALIKE, LEARNED = 0.06, 20  # how unlike neighbours usually are, and how many pairs that belief is worth
LOCAL, FURTHEST = 0.6, 2.5  # how far cells follow what is learned of boxes with as many rows


@dataclass(frozen=True, slots=True)
class Best(Structure):
    """The most accurate structure here, without a knob.

    A box is cut into as many parts as its noisy count deserves, and each part again, for as long as it pays. How many
    rows a leaf should have is learned first: a probe compares the halves of cells of several sizes.
    """

    height: ClassVar[None] = None
    max_nodes: ClassVar[int] = 2 * MOST  # about
    usual_budget: ClassVar[Chosen] = Chosen()

    def nodes(self, dimensions: int) -> int | None:
        return None

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        if not isinstance(budget, Chosen):
            raise BadInput("This structure shares its budget out itself: leave the budget out.")
        axes, one = gate.domain.dimensions, epsilon / UNITS
        sharp = gate.sharpness(epsilon) * (np.arange(UNITS + 1) / UNITS) ** (gate.power / 2)  # by units
        counts = gate.count_each(np.zeros(1, np.int64), np.array([TOTAL]), one).astype(np.float64)
        left = np.array([UNITS - TOTAL])
        if counts[0] * sharp[-1] < SURE:
            counts, left = _split(gate, np.ones((1, axes), np.int64), np.array([AGAIN]), left, one)
        rows = max(float(counts[0]), 1.0)
        load = rows * float(sharp[-1])
        probing, many = load >= FEW, load >= MANY
        aside = ASIDE[many + (load >= MOST_ROWS)] if probing else 0
        left, kept = left - aside, aside * one
        price = (PROBE if many else PROBE_FEW) * kept
        least = load / MOST
        cell, alike, spend = FIRST if many else CELL, np.ones(1), None
        while True:
            live, tree = left > 0, gate.tree()
            if not live.any():
                break
            if spend is not None:
                alike = likeness(tree, counts, sharp, spend, left)
            wanted = np.maximum(counts, 0) * sharp[left] / np.maximum(cell * alike, least)
            newest = tree.level(tree.height)
            width = (tree.hi[newest] - tree.lo[newest])[live]
            parts, spend = np.zeros((len(live), axes), np.int64), np.zeros(len(live), np.int64)
            if probing and not many and axes > 1:  # one box: where so few are is seen in parts of one size, for little
                parts[:], spend[:] = np.minimum(round(FANOUT ** (1 / axes)), width), np.minimum(GLANCE, left)
            else:
                parts[live], spend[live] = plan(wanted[live], left[live], width, gate.power)
            counts, left = _split(gate, parts, spend, left, one)
            if probing and left.min() > 0 and (learned := probe(gate, counts, sharp[left], price, many)):
                cell, kept = learned, kept - price
            probing = False
        if kept:
            gate.reserve_check(kept)


def _split(gate: Gate, parts: Ints, spend: Ints, left: Ints, one: Fraction) -> tuple[Floats, Ints]:
    """Cut the newest boxes and count their parts: noisy counts, and what each has left."""
    gate.split(parts)
    newest = gate.tree().level(gate.tree().height)
    fanout = product(parts)
    grains = np.repeat(spend, fanout)
    counts = gate.count_each(np.arange(newest.start, newest.stop), grains, one)
    return counts.astype(np.float64), np.repeat(left, fanout) - grains


def plan(wanted: Floats, left: Ints, width: Ints, power: int) -> tuple[Ints, Ints]:
    """Parts of boxes along each axis, and the units that each part pays.

    ``wanted`` is how many leaves a box deserves, ``left`` the units it has, ``width`` its cells an axis. Enough levels
    are planned for that many with about ``FANOUT`` parts each, and the budget goes to them as they will be used: a
    box's border meets so many nodes of a level.
    """
    axes = width.shape[1]
    levels = np.clip(np.round(np.log(np.maximum(wanted, 1)) / math.log(FANOUT) + LIFT), 1, DEEPEST)
    each = np.maximum(wanted, 1) ** (1 / axes / levels)  # parts a side
    growth = DOWN[axes == 1] * each ** ((axes - 1) / (power + 1))  # from one level to the next
    spend = np.maximum(np.round(left * (growth - 1) / (growth**levels - 1)), 1).astype(np.int64)
    last = (levels == 1) | (spend >= left)
    parts = np.tile(np.round(np.where(levels == 1, each, np.maximum(each, 2)))[:, None], (1, axes))
    parts[last & (wanted < ALONE)] = 1
    parts = np.minimum(np.clip(parts, 1, MOST_PARTS).astype(np.int64), np.maximum(width, 1))
    last |= parts.T.max(axis=0) == 1
    return parts, np.where(last, left, spend)


def probe(gate: Gate, counts: Floats, sharp: Floats, price: Fraction, many: bool) -> float:
    """The rows times ε that leaves should have, where noise and unevenness of cut leaves are in balance.

    ``many`` rows are looked at closely; few, in larger cells and at two scales. 0 when no box can be probed: then
    nothing is spent.
    """
    axes, tree = gate.domain.dimensions, gate.tree()
    newest = tree.level(tree.height)
    narrow = np.log2((tree.hi[newest] - tree.lo[newest]).min(axis=1)) - 1
    load = np.maximum(counts, 0) * sharp
    deepest = math.log2(MOST_TALLIED) // axes - 1
    finest = np.floor(np.log2(np.maximum(load, 1)) / axes) - (not many)
    depth = np.minimum(finest, np.minimum(narrow, deepest)).astype(np.int64)
    depth[load < 2] = -1
    size = np.where(depth < 0, 0.0, 2.0 ** (axes * (depth + 1)))
    lot = (np.arange(len(size), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)) / 2**32
    depth[lot * size.sum() > MOST_TALLIED] = -1  # a public draw of boxes
    scales = (5 if axes == 1 else 3) if many else 2
    if not (depth >= 0).any():
        return 0.0
    noisy = gate.roughness(depth, scales, price)
    error = axes * scales ** (gate.power / 2) * math.sqrt(2) / gate.sharpness(price)  # standard error of a sum
    at, rough = [], []
    for scale in range(scales):
        some = depth >= scale
        if not some.any():
            break
        n, cells = np.maximum(counts[some], 1e-9), 2.0 ** (axes * (depth[some] - scale))
        runs = cells / np.minimum(CELLS_PER_RUN, 2.0 ** (depth[some] - scale)) if axes > 1 else cells
        mass = n.sum()
        chances = (0.8 * np.sqrt(n * runs) * np.minimum(1, 1.25 * np.sqrt(n / runs))).sum() / mass
        trust = TRUST**2 / (TRUST**2 + (error / axes / mass) ** 2)
        seen = trust * noisy[scale] / axes / mass + (1 - trust) * math.hypot(ROUGH, chances)
        at.append(float((n * np.log(n * sharp[some] / cells)).sum() / mass))
        rough.append(math.log(max(max(seen, 0.02) ** 2 - chances**2, 4e-4)))
    uneven = np.exp(np.interp(np.log(CELLS), np.maximum.accumulate(at), rough))
    noise = NOISE if many or axes > 2 else NOISE_FEW
    cost = 2 * noise / CELLS + uneven * CELLS + sharp.mean() * np.sqrt(CELLS / max(float(load.mean()), 1.0))
    return float(CELLS[np.argmin(cost)])


def likeness(tree: Tree, counts: Floats, sharp: Floats, spend: Ints, left: Ints) -> Floats:
    """By how much leaves of each newest box should be larger than usual: where siblings look alike, among boxes with as
    many rows."""
    newest = tree.level(tree.height)
    above = tree.level(tree.height - 1)
    kind = np.minimum(np.log2(np.maximum(counts, 1)), 30).astype(np.int64)
    pairs, unlike = np.zeros((2, 31))
    noise = np.where(spend > 0, 2 / np.maximum(sharp[spend], 1e-12) ** 2, 0.0)
    first = tree.first_child[above.start : above.stop + 1] - newest.start
    add_contrasts(first, tree.lo[newest], tree.hi[newest], counts, noise, pairs, unlike)
    usual = np.maximum((unlike + LEARNED * ALIKE) / (pairs + LEARNED), 0.001)
    size = np.clip((usual / ALIKE) ** -LOCAL, 0.05, 20)
    weight = np.where(left > 0, np.maximum(counts, 0), 0)
    middle = float((weight * np.log(size)[kind]).sum() / max(float(weight.sum()), 1e-9))
    return np.asarray(np.clip(size / math.exp(middle), 1 / FURTHEST, FURTHEST)[kind])

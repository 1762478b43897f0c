"""A release is held against the rows, once, before it is published: how far off is it, against what it says itself?

Borders of boxes cut many leaves, and what their errors have in common cannot be seen in noisy counts. So a small part
of the budget buys, of a few grids, Σ |answer − truth| over all their boxes: slabs across each axis, and cubes. Their
borders are drawn, where there is room, not even: rows often stand on even lines of their own, and boxes in step with
them see nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from veilmap.answers.answerer import Answerer, Errors
from veilmap.answers.intervals import USUAL, sides, spread_of
from veilmap.arrays import Floats, Ints
from veilmap.domain import Domain
from veilmap.estimate.node_estimates import Borders, NodeEstimates
from veilmap.method.method import Method, PostProcessing
from veilmap.trees import Parts
from veilmap.vault import GridPrediction, NoisyTree, Residual

SLABS = 101
CUBES = {2: 23, 3: 11, 4: 5}
"""Boxes of a grid: across one axis, and a side, by axes, 3 for more."""
FINER, ROOM = 16, 2**15
"""A border lies at one of so many places, so long as there are no more cells than this in all."""
WORK = 2**23
"""Boxes times nodes, about, of one grid, where there are many axes."""
MEAN = 0.77
"""Of the size of errors, in standard deviations: 0.8 for normal ones, and less where a few are large."""
SPREAD = 0.8
"""Standard deviation of the same, for one box: its own, and that boxes are not alike."""
DOUBT = 1.0, 0.8, 0.5
"""Standard deviations, from one set of points to the next, of the log of unevenness against what leaves say of it: of
all, of one axis against the others, and of the power with which it grows with the leaves that are cut."""
STEPS, LIMITS = 30, (-4, 8)
MOST = 1e12
"""Rows that a box is expected to have, at most."""


class Grid(NamedTuple):
    """Boxes all over the domain: what a release says of them."""

    parts: Parts  # of the domain, into cells
    places: Ints  # the box of each cell
    expected: Ints
    sides: Floats
    errors: Errors

    @property
    def prediction(self) -> GridPrediction:
        """What the check compares with the rows."""
        return self.parts, self.places, self.expected


def predict_grids(domain: Domain, method: Method, noisy: NoisyTree, nodes: NodeEstimates) -> tuple[Grid, ...]:
    """Choose the grids of a check, and predict the counts of their boxes from the estimates."""
    answerer = Answerer(domain, nodes, method.estimate is not PostProcessing.NOISY_COUNTS)
    draw = np.random.default_rng(int(noisy.noisy_count.sum()) % 2**63)  # the same for the same release
    return tuple(predict_grid(answerer, boxes, draw) for boxes in grids(domain, nodes.tree.size))


def calibrate(nodes: NodeEstimates, grids: tuple[Grid, ...], residuals: tuple[Residual, ...]) -> NodeEstimates:
    """Return the estimates with error bars that fit what the check has found."""
    known = nodes.known_unevenness
    return replace(nodes, unevenness=known, learn=None, borders=learn_borders(grids, residuals))


def grids(domain: Domain, nodes: int) -> list[Parts]:
    """Slabs across each axis, and cubes, the same where there is one axis; fewer of them where there are many axes."""
    axes = domain.dimensions
    most = SLABS if axes <= 3 else min(max(WORK // nodes, 7), SLABS)
    slab = min(most, domain.side)
    each = min(CUBES.get(axes, 3) if most == SLABS else 3, domain.side)
    slabs: list[Parts] = [tuple(slab if k == a else 1 for k in range(axes)) for a in range(axes)]
    return slabs if axes == 1 else [*slabs, (each,) * axes]


def predict_grid(answerer: Answerer, boxes: Parts, draw: np.random.Generator) -> Grid:
    """So many boxes along each axis. Part k of an axis has the domain's cells from k · side // parts on."""
    side, most = answerer.domain.side, max(boxes)
    finer = max(1, min(FINER, int(ROOM ** (1 / sum(n > 1 for n in boxes))) // most, side // most)) if most > 1 else 1
    parts = tuple(n * finer if n > 1 else 1 for n in boxes)
    starts = [np.append(0, finer * np.arange(1, n) + draw.integers(0, finer, n - 1) - finer // 2) for n in boxes]
    along = [np.searchsorted(start, np.arange(n), side="right") - 1 for start, n in zip(starts, parts, strict=True)]
    places = np.ravel_multi_index(np.meshgrid(*along, indexing="ij"), boxes).ravel()
    edges = [np.append(start, n) * side // n / side for start, n in zip(starts, parts, strict=True)]
    place = np.stack(np.unravel_index(np.arange(math.prod(boxes)), boxes))
    low, high = ([edge[at + up] for edge, at in zip(edges, place, strict=True)] for up in (0, 1))
    queries = np.stack([*low, *high], axis=1)
    answers = answerer.within(queries, 0.95)
    expected = np.rint(np.clip(answers.estimate, -MOST, MOST)).astype(np.int64)
    return Grid(parts, places, expected, sides(queries), answers._parts)


def learn_borders(grids: tuple[Grid, ...], residuals: tuple[Residual, ...]) -> Borders:
    """The unevenness with which these residuals are likeliest, and that is not far from what leaves say.

    Gauss and Newton's steps, on the log of it: of all, of each axis, and the power of the leaves that are cut.
    """
    axes = len(grids[0].parts)
    prior = 1 / np.square([DOUBT[0], *[DOUBT[1]] * axes, DOUBT[2]])
    at = np.zeros(axes + 2)
    for _ in range(STEPS):
        curve, off = np.diag(prior), -prior * at
        for grid, (found, noise) in zip(grids, residuals, strict=True):
            expected, slope, own = predicted(grid, at)
            by = slope / (noise + own)
            curve, off = curve + np.outer(by, slope), off + by * (found - expected)
        step = np.linalg.solve(curve, off)
        step *= min(1.0, 0.7 / max(float(np.abs(step).max()), 1e-9))
        at = at + step
        if np.abs(step).max() < 1e-3:
            break
    across = np.exp(np.clip(at[0] + at[1:-1], *LIMITS))
    return Borders(tuple(np.round(across, 3).tolist()), round(float(np.clip(at[-1], -1, 2)), 3))


def predicted(grid: Grid, at: Floats) -> tuple[float, Floats, float]:
    """Σ |answer − truth| as it is expected, how that follows the unknowns, and its variance between data sets."""
    noise, uneven, cut = grid.errors
    plain = spread_of(noise, uneven, cut)
    longer = np.log(np.maximum(cut, 1) / USUAL)
    each = grid.sides * np.exp(at[0] + at[1:-1] + at[-1] * longer[:, None])
    all_sides = each.sum(axis=1)
    deviation = np.sqrt(np.maximum(noise + (plain - noise) * all_sides, 1e-9))
    gain = MEAN * (plain - noise) / (2 * deviation)
    slope = np.stack([gain * all_sides, *(gain[:, None] * each).T, gain * all_sides * longer]).sum(axis=1)
    return MEAN * float(deviation.sum()), slope, float(np.square(SPREAD) * plain.sum())

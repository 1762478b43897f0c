"""Calibrate the error bars of a release by one paid comparison with the rows.

The border of a query cuts many leaves, and the correlation of their errors cannot be seen in noisy counts. So a small
share of the budget buys, for each of a few grids, the noisy sum of |answer − truth| over all boxes of the grid: slabs
across each axis, and cubes. The borders of these boxes are drawn at random where there is room: rows often lie on
evenly spaced lines of their own, and boxes in step with them would see no error. ``docs/model.md`` has the formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from veilmap.answers.answerer import Answerer, Errors
from veilmap.answers.intervals import REFERENCE_CUT_LEAVES, border_fractions, variance_of
from veilmap.arrays import Floats, Ints
from veilmap.domain import Domain
from veilmap.estimate.node_estimates import Borders, NodeEstimates
from veilmap.method.method import Method, PostProcessing
from veilmap.trees import Parts
from veilmap.vault import GridPrediction, NoisyTree, Residual

MEAN_ABSOLUTE_ERROR_IN_SD = math.sqrt(2 / math.pi)
"""Mean of |x| for a normal variable x with standard deviation 1."""
MAX_NEWTON_STEPS = 30
MIN_LOG_FACTOR = -4
MAX_LOG_FACTOR = 8
MAX_PREDICTION = 1e12
"""Rows that a box is predicted to hold, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationTuning:
    """The constants of the check. ``python -m benchmarks.ablation`` measures what each of them is worth."""

    slabs_per_axis: int = 101
    cubes_per_axis: dict[int, int] = field(default_factory=lambda: {2: 23, 3: 11, 4: 5})
    """By the number of axes; 3 for more than four."""
    positions_per_border: int = 16
    """Positions at which a border may lie, so long as ``max_grid_cells`` allows."""
    max_grid_cells: int = 2**15
    max_boxes_times_nodes: int = 2**23
    """Work for one grid on more than three axes, about."""
    box_error_sd: float = 0.8
    """Standard deviation of |error| of one box over its own standard error: by chance, and between boxes."""
    prior_sd_overall: float = 1.0
    """Standard deviation, between data sets, of the log of the true unevenness over the learned one."""
    prior_sd_per_axis: float = 0.8
    """The same for one axis against the others."""
    prior_sd_growth: float = 0.5
    """The same for the power with which it grows with the number of cut leaves."""


TUNING = CalibrationTuning()


class Grid(NamedTuple):
    """A grid of boxes over the domain, and what the release says about them."""

    parts: Parts  # of the domain per axis: the parts make up the boxes
    places: Ints  # the box of each part
    expected: Ints  # rows per box
    sides: Floats  # fractions of the border of each box across each axis
    errors: Errors

    @property
    def prediction(self) -> GridPrediction:
        """Return what the check compares with the rows."""
        return self.parts, self.places, self.expected


def predict_grids(domain: Domain, method: Method, noisy: NoisyTree, nodes: NodeEstimates) -> tuple[Grid, ...]:
    """Choose the grids of a check, and predict the counts of their boxes from the estimates."""
    answerer = Answerer(domain, nodes, method.estimate is not PostProcessing.NOISY_COUNTS)
    draw = np.random.default_rng(int(noisy.noisy_count.sum()) % 2**63)  # reproducible
    return tuple(predict_grid(answerer, boxes, draw) for boxes in check_grids(domain, nodes.tree.size))


def calibrate(nodes: NodeEstimates, grids: tuple[Grid, ...], residuals: tuple[Residual, ...]) -> NodeEstimates:
    """Return the estimates with error bars that fit the residuals."""
    known = nodes.known_unevenness
    return replace(nodes, unevenness=known, learn=None, borders=fit_borders(grids, residuals))


def check_grids(domain: Domain, nodes: int) -> list[Parts]:
    """Return the boxes per axis of each grid: slabs across each axis, and cubes. Fewer boxes on many axes."""
    axes, slabs = domain.dimensions, TUNING.slabs_per_axis
    if axes > 3:
        slabs = min(max(TUNING.max_boxes_times_nodes // nodes, 7), slabs)
    cubes = TUNING.cubes_per_axis.get(axes, 3) if slabs == TUNING.slabs_per_axis else 3
    slabs, cubes = min(slabs, domain.side), min(cubes, domain.side)
    across: list[Parts] = [tuple(slabs if k == axis else 1 for k in range(axes)) for axis in range(axes)]
    return across if axes == 1 else [*across, (cubes,) * axes]


def predict_grid(answerer: Answerer, boxes: Parts, draw: np.random.Generator) -> Grid:
    """Draw the borders of a grid of boxes and predict their counts.

    Each box is made up of parts of the domain: part k of an axis begins at cell k · side // parts.
    """
    side, most = answerer.domain.side, max(boxes)
    finer = 1
    if most > 1:
        affordable = int(TUNING.max_grid_cells ** (1 / sum(n > 1 for n in boxes))) // most
        finer = max(1, min(TUNING.positions_per_border, affordable, side // most))
    parts = tuple(n * finer if n > 1 else 1 for n in boxes)
    starts = [np.append(0, finer * np.arange(1, n) + draw.integers(0, finer, n - 1) - finer // 2) for n in boxes]
    along = [np.searchsorted(start, np.arange(n), side="right") - 1 for start, n in zip(starts, parts, strict=True)]
    places = np.ravel_multi_index(np.meshgrid(*along, indexing="ij"), boxes).ravel()
    edges = [np.append(start, n) * side // n / side for start, n in zip(starts, parts, strict=True)]
    place = np.stack(np.unravel_index(np.arange(math.prod(boxes)), boxes))
    low, high = ([edge[at + up] for edge, at in zip(edges, place, strict=True)] for up in (0, 1))
    queries = np.stack([*low, *high], axis=1)
    answers = answerer.within(queries, 0.95)
    expected = np.rint(np.clip(answers.estimate, -MAX_PREDICTION, MAX_PREDICTION)).astype(np.int64)
    return Grid(parts, places, expected, border_fractions(queries), answers.error_parts)


def fit_borders(grids: tuple[Grid, ...], residuals: tuple[Residual, ...]) -> Borders:
    """Return the factors on unevenness that maximise the posterior of the residuals.

    The unknowns are logarithms: overall, per axis, and the power of the number of cut leaves. Gauss-Newton steps.
    """
    axes = len(grids[0].parts)
    prior_sd = [TUNING.prior_sd_overall, *[TUNING.prior_sd_per_axis] * axes, TUNING.prior_sd_growth]
    prior = 1 / np.square(prior_sd)
    unknowns = np.zeros(axes + 2)
    for _ in range(MAX_NEWTON_STEPS):
        curvature, gradient = np.diag(prior), -prior * unknowns
        for grid, (residual, noise) in zip(grids, residuals, strict=True):
            expected, slope, own = expected_residual(grid, unknowns)
            scaled = slope / (noise + own)
            curvature, gradient = curvature + np.outer(scaled, slope), gradient + scaled * (residual - expected)
        step = np.linalg.solve(curvature, gradient)
        step *= min(1.0, 0.7 / max(float(np.abs(step).max()), 1e-9))
        unknowns = unknowns + step
        if np.abs(step).max() < 1e-3:
            break
    across = np.exp(np.clip(unknowns[0] + unknowns[1:-1], MIN_LOG_FACTOR, MAX_LOG_FACTOR))
    return Borders(tuple(np.round(across, 3).tolist()), round(float(np.clip(unknowns[-1], -1, 2)), 3))


def expected_residual(grid: Grid, unknowns: Floats) -> tuple[float, Floats, float]:
    """Return the expectation of Σ |answer − truth|, its gradient, and its variance between data sets."""
    noise, uneven, cut = grid.errors
    uncalibrated = variance_of(noise, uneven, cut)
    log_cut = np.log(np.maximum(cut, 1) / REFERENCE_CUT_LEAVES)
    by_side = grid.sides * np.exp(unknowns[0] + unknowns[1:-1] + unknowns[-1] * log_cut[:, None])
    factor = by_side.sum(axis=1)
    deviation = np.sqrt(np.maximum(noise + (uncalibrated - noise) * factor, 1e-9))
    gain = MEAN_ABSOLUTE_ERROR_IN_SD * (uncalibrated - noise) / (2 * deviation)
    slope = np.stack([gain * factor, *(gain[:, None] * by_side).T, gain * factor * log_cut]).sum(axis=1)
    own = float(np.square(TUNING.box_error_sd) * uncalibrated.sum())
    return MEAN_ABSOLUTE_ERROR_IN_SD * float(deviation.sum()), slope, own

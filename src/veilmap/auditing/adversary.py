"""The adversary of an audit, who knows both data sets: log-likelihood ratios of counts, and hashes of trees."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from veilmap.answers.calibration import Grid, calibrate, predict_grids
from veilmap.arrays import Floats, Ints
from veilmap.auditing.neighbours import Neighbours
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.estimate.pipeline import estimate
from veilmap.method.method import Method, Noise
from veilmap.vault import NoisyTree, Residual, Sealed, measure

MAX_NOISE_DRAWS = 2**20
"""Draws of noise that are kept for the test of its distribution."""
CHANCE_SQUARED_DEVIATIONS = 5.0
"""Differences between counts of trees whose squared z-score is below this count as chance."""


def laplace_rate(variance: Floats) -> Floats:
    """Return the ε of discrete Laplace noise with a given variance."""
    rate: Floats = np.arccosh(1 + 1 / variance)
    return rate


def odds(noisy: Ints, without: Ints, having: Ints, variance: Floats, gaussian: bool) -> float:
    """Return the log-likelihood ratio of noisy counts, for the exact counts ``having`` against ``without``."""
    if gaussian:
        ratios = (having - without) * (2 * noisy - having - without) / (2 * variance)
    else:
        ratios = laplace_rate(variance) * (np.abs(noisy - without) - np.abs(noisy - having))
    return float(ratios.sum())


def residual(grid: Grid, cells: Ints) -> int:
    """Return Σ |count − expected| over the boxes of a grid, from the counts of its cells."""
    counts = np.zeros_like(grid.expected)
    np.add.at(counts, grid.places, cells)
    return int(np.abs(counts - grid.expected).sum())


@dataclass(slots=True)
class Seen:
    """The observations of many releases of one data set."""

    odds: list[float] = field(default_factory=list)
    tree: list[int] = field(default_factory=list)  # a hash of all boxes
    path: list[int] = field(default_factory=list)  # a hash of the boxes that contain the additional unit
    noise: list[Ints] = field(default_factory=list)
    variance: list[Floats] = field(default_factory=list)  # that the release states for the noise
    drawn: int = 0

    def read(self, output: Output, case: Neighbours, one_more: bool, gaussian: bool) -> None:
        """Record one release."""
        noisy = output.noisy
        tree, path, without, having = case.look(noisy.tree)
        counted = np.isfinite(noisy.noise_variance)
        here = counted & (having > without)
        log_odds = odds(noisy.noisy_count[here], without[here], having[here], noisy.noise_variance[here], gaussian)
        noise = [noisy.noisy_count[counted] - (having if one_more else without)[counted]]
        variance = [noisy.noise_variance[counted]]
        for grid, (noisy_sum, sum_variance) in zip(output.grids, output.residuals, strict=True):
            sums = [np.array([residual(grid, cells)]) for cells in case.on_grid(grid.parts)]
            log_odds += odds(np.array([noisy_sum]), sums[0], sums[1], np.array([sum_variance]), gaussian)
            noise.append(noisy_sum - sums[one_more])
            variance.append(np.array([sum_variance]))
        self.odds.append(round(log_odds, 6))
        self.tree.append(tree)
        self.path.append(path)
        if self.drawn < MAX_NOISE_DRAWS:
            self.noise += noise
            self.variance += variance
            self.drawn += sum(map(len, noise))


@dataclass(slots=True)
class Trial:
    """Releases of two neighbouring data sets by one method."""

    case: Neighbours
    method: Method
    epsilon: Fraction
    delta: Fraction
    seen: tuple[Seen, Seen] = field(default_factory=lambda: (Seen(), Seen()))  # with the additional unit, and without

    def run(self, times: int) -> None:
        """Make and record further releases of both data sets."""
        gaussian = self.method.noise is Noise.DISCRETE_GAUSSIAN
        for seen, one_more in zip(self.seen, (True, False), strict=True):
            sealed = self.case.sealed(one_more)
            for _ in range(times):
                output = run_method(self, sealed)
                seen.read(output, self.case, one_more, gaussian)

    def scores(self, first: int, last: int, learned_from: int) -> dict[str, tuple[Floats, Floats]]:
        """Return scores that distinguish the data sets, for releases ``first`` to ``last``, by name of statistic.

        The likelihoods of trees are learned from the first ``learned_from`` releases.
        """
        counts = [np.array(seen.odds[first:last]) for seen in self.seen]
        scores = {"counts": (counts[0], counts[1])}
        for name, hashes in (
            ("the row's path", [seen.path for seen in self.seen]),
            ("the tree", [seen.tree for seen in self.seen]),
        ):
            log_ratios = learned(*(side[:learned_from] for side in hashes))
            if not any(log_ratios.values()):
                continue
            ours, theirs = (np.array([log_ratios.get(key, 0.0) for key in side[first:last]]) for side in hashes)
            scores[name] = (ours, theirs)
            scores[f"counts and {name}"] = (counts[0] + ours, counts[1] + theirs)
        return scores


class Output(NamedTuple):
    """All outputs of the vault for one release, and the predictions for its calibration check."""

    noisy: NoisyTree
    grids: tuple[Grid, ...]
    residuals: tuple[Residual, ...]


def run_method(trial: Trial, sealed: Sealed) -> Output:
    """Measure as ``vm.release`` does."""
    measured = measure(sealed, trial.method, trial.epsilon, delta=trial.delta)
    if measured.check is None:
        return Output(measured.tree, (), ())
    grids = predict_grids(
        trial.case.domain, trial.method, measured.tree, estimate(measured.tree, trial.method, learn_in_background=True)
    )
    return Output(measured.tree, grids, measured.check(tuple(grid.prediction for grid in grids)))


def published(trial: Trial, output: Output) -> NodeEstimates:
    """Return the estimates that ``vm.release`` publishes for an output of the vault."""
    nodes = estimate(output.noisy, trial.method)
    return calibrate(nodes, output.grids, output.residuals) if output.residuals else nodes


def learned(ours: Iterable[int], theirs: Iterable[int]) -> dict[int, float]:
    """Return per hash the log ratio of its frequencies with and without the additional unit, 0 if it may be chance."""
    having, without = Counter(ours), Counter(theirs)
    log_ratios = {}
    for key in having.keys() | without.keys():
        a, b = having[key], without[key]
        by_chance = (a - b) ** 2 <= CHANCE_SQUARED_DEVIATIONS * (a + b)
        log_ratios[key] = 0.0 if by_chance else round(math.log((a + 1) / (b + 1)), 3)
    return log_ratios

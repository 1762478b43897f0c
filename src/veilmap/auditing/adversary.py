"""What someone who knows the two data sets can read off a release: odds, and what the tree looks like."""

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

DRAWS = 2**20  # of noise that are kept
CHANCE = 5.0  # the square of so many standard deviations is not learned from


def laplace_rate(variance: Floats) -> Floats:
    """The ε of discrete Laplace noise."""
    rate: Floats = np.arccosh(1 + 1 / variance)
    return rate


def odds(noisy: Ints, without: Ints, having: Ints, variance: Floats, gaussian: bool) -> float:
    """The log-likelihood ratio of these noisy counts, for ``having`` against ``without``."""
    if gaussian:
        each = (having - without) * (2 * noisy - having - without) / (2 * variance)
    else:
        each = laplace_rate(variance) * (np.abs(noisy - without) - np.abs(noisy - having))
    return float(each.sum())


def misses(grid: Grid, cells: Ints) -> int:
    """Σ |count − expected| over the boxes of a grid, from the counts of its cells."""
    counts = np.zeros_like(grid.expected)
    np.add.at(counts, grid.places, cells)
    return int(np.abs(counts - grid.expected).sum())


@dataclass(slots=True)
class Seen:
    """What was read off many releases of one data set."""

    odds: list[float] = field(default_factory=list)
    tree: list[int] = field(default_factory=list)  # a hash of all boxes
    path: list[int] = field(default_factory=list)  # of those that hold the one more
    noise: list[Ints] = field(default_factory=list)
    variance: list[Floats] = field(default_factory=list)  # that the noise is said to have
    drawn: int = 0

    def read(self, output: Output, case: Neighbours, one_more: bool, gaussian: bool) -> None:
        """Take down one release."""
        noisy = output.noisy
        tree, path, without, having = case.look(noisy.tree)
        told = np.isfinite(noisy.noise_variance)
        here = told & (having > without)
        found = odds(noisy.noisy_count[here], without[here], having[here], noisy.noise_variance[here], gaussian)
        noise = [noisy.noisy_count[told] - (having if one_more else without)[told]]
        variance = [noisy.noise_variance[told]]
        for grid, (said, spread) in zip(output.grids, output.residuals, strict=True):
            sums = [np.array([misses(grid, cells)]) for cells in case.on_grid(grid.parts)]
            found += odds(np.array([said]), sums[0], sums[1], np.array([spread]), gaussian)
            noise.append(said - sums[one_more])
            variance.append(np.array([spread]))
        self.odds.append(round(found, 6))
        self.tree.append(tree)
        self.path.append(path)
        if self.drawn < DRAWS:
            self.noise += noise
            self.variance += variance
            self.drawn += sum(map(len, noise))


@dataclass(slots=True)
class Trial:
    """Releases of two neighbours by one method."""

    case: Neighbours
    method: Method
    epsilon: Fraction
    delta: Fraction
    seen: tuple[Seen, Seen] = field(default_factory=lambda: (Seen(), Seen()))  # with the one more, and without

    def run(self, times: int) -> None:
        """So many releases more of each."""
        gaussian = self.method.noise is Noise.DISCRETE_GAUSSIAN
        for seen, one_more in zip(self.seen, (True, False), strict=True):
            sealed = self.case.sealed(one_more)
            for _ in range(times):
                output = run_method(self, sealed)
                seen.read(output, self.case, one_more, gaussian)

    def scores(self, first: int, last: int, learned_from: int) -> dict[str, tuple[Floats, Floats]]:
        """Ways to tell the two apart, for releases ``first`` to ``last``: what trees say is learned from others."""
        counts = [np.array(seen.odds[first:last]) for seen in self.seen]
        found = {"counts": (counts[0], counts[1])}
        for name, looks in (
            ("the row's path", [seen.path for seen in self.seen]),
            ("the tree", [seen.tree for seen in self.seen]),
        ):
            says = learned(*(look[:learned_from] for look in looks))
            if not any(says.values()):
                continue
            told = [np.array([says.get(key, 0.0) for key in look[first:last]]) for look in looks]
            found[name] = (told[0], told[1])
            found[f"counts and {name}"] = (counts[0] + told[0], counts[1] + told[1])
        return found


class Output(NamedTuple):
    """Everything that the vault gave out for one release, and what was predicted for its check."""

    noisy: NoisyTree
    grids: tuple[Grid, ...]
    residuals: tuple[Residual, ...]


def run_method(trial: Trial, sealed: Sealed) -> Output:
    """Ask the vault what ``vm.release`` asks it."""
    measured = measure(sealed, trial.method, trial.epsilon, delta=trial.delta)
    if measured.check is None:
        return Output(measured.tree, (), ())
    grids = predict_grids(
        trial.case.domain, trial.method, measured.tree, estimate(measured.tree, trial.method, unevenness_soon=True)
    )
    return Output(measured.tree, grids, measured.check(tuple(grid.prediction for grid in grids)))


def published(trial: Trial, output: Output) -> NodeEstimates:
    """Make of the vault's output what ``vm.release`` publishes."""
    nodes = estimate(output.noisy, trial.method)
    return calibrate(nodes, output.grids, output.residuals) if output.residuals else nodes


def learned(ours: Iterable[int], theirs: Iterable[int]) -> dict[int, float]:
    """The log of how much oftener each look was seen with the one more than without; 0 where that may be chance."""
    with_it, without = Counter(ours), Counter(theirs)
    says = {}
    for key in with_it.keys() | without.keys():
        a, b = with_it[key], without[key]
        says[key] = round(math.log((a + 1) / (b + 1)), 3) if (a - b) ** 2 > CHANCE * (a + b) else 0.0
    return says

"""Checks beside the bound: the noise has its law, and a release is made of whole noisy numbers and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilmap.answers.calibration import predict_grids
from veilmap.arrays import Floats, Ints
from veilmap.auditing.adversary import Seen, Trial, laplace_rate, published, run_method
from veilmap.auditing.epsilon_bound import Event, certify
from veilmap.errors import need
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.estimate.pipeline import QUANTUM, estimate
from veilmap.method.method import Noise, PostProcessing
from veilmap.vault import noise_and_budget

UNLIKELY = 1e-6  # a p-value below this, over all scales, is no chance
FEW_DRAWS = 500  # of one scale that are no test
EXPECTED = 10.0  # draws in a bin
LOOKED_AT = 40  # releases of each data set, for what needs no statistics


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    what: str
    passed: bool
    found: str


def of_noise(trial: Trial) -> Check:
    """Noisy counts less the exact ones, scale by scale, against the law that the stated variance has."""
    seen = trial.seen
    noise = np.concatenate([z for side in seen for z in side.noise])
    variance = np.concatenate([v for side in seen for v in side.variance])
    gaussian = trial.method.noise is Noise.DISCRETE_GAUSSIAN
    least, scales, tested = 1.0, 0, 0
    for scale in np.unique(variance):
        drawn = noise[variance == scale]
        if len(drawn) >= FEW_DRAWS:
            least, scales = min(least, goodness(drawn, float(scale), gaussian)), scales + 1
            tested += len(drawn)
    if not scales:
        return Check("noise", True, f"not tested: no scale has {FEW_DRAWS} draws; more releases would tell")
    least = min(1.0, least * scales)
    fits = "fits its law" if least > UNLIKELY else "does not fit its law"
    named = "scale" if scales == 1 else "scales"
    part = f"{100 * tested / len(noise):.3g} % of all draws"
    found = f"{fits}: {trial.method.noise.value}, {scales} {named} with {part}, p-value {least:.2g}"
    return Check("noise", least > UNLIKELY, found)


def goodness(noise: Ints, variance: float, gaussian: bool) -> float:
    """The p-value of a χ² test against discrete Laplace or Gaussian noise of this variance."""
    stats = need("scipy.stats", "audit", "An audit")
    reach = int(40 * np.sqrt(variance)) + 20
    z = np.arange(-reach, reach + 1)
    law = _gaussian_law(z, variance) if gaussian else np.exp(-laplace_rate(np.array([variance])) * np.abs(z))
    chance = np.cumsum(law / law.sum())
    # bins of at least EXPECTED draws, from the left
    width = EXPECTED / len(noise)
    edges, last = [], 0.0
    for at, up in zip(z, chance, strict=True):
        if up - last >= width and 1 - up >= width:
            edges.append(at)
            last = float(up)
    expected = np.diff(np.concatenate([[0.0], chance[np.array(edges, np.int64) + reach], [1.0]])) * len(noise)
    observed = np.bincount(np.searchsorted(np.array(edges), noise, "left"), minlength=len(edges) + 1)
    if len(expected) < 2:
        return 1.0
    return float(stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1))


def _gaussian_law(z: Ints, variance: float) -> Floats:
    """Weights e^(−z² / 2σ²), with the σ² that has this variance: a little more where it is small."""
    low, high = 0.0, variance + 1
    for _ in range(60):
        middle = (low + high) / 2
        weights = np.exp(-(z**2) / (2 * middle))
        low, high = (middle, high) if (z**2 * weights).sum() / weights.sum() < variance else (low, middle)
    weights = np.exp(-(z**2) / (2 * high))
    return weights


def of_outputs(trial: Trial) -> list[Check]:
    """Noisy counts are whole, estimates lie on one grid, and both data sets' releases follow from whole numbers."""
    whole = on_grid = same = paid = True
    free = trial.method.estimate is PostProcessing.NOISY_COUNTS
    _, budget = noise_and_budget(trial.method, trial.epsilon, trial.delta, trial.case.most or 1)
    for one_more in (True, False):
        sealed = trial.case.sealed(one_more)
        for _ in range(LOOKED_AT):
            output = run_method(trial, sealed)
            noisy, made = output.noisy, published(trial, output)
            whole &= noisy.noisy_count.dtype == np.int64 and all(type(said) is int for said, _ in output.residuals)
            told = made.estimate[np.isfinite(made.estimate)] / (1.0 if free else QUANTUM)
            on_grid &= bool(np.all(told == np.rint(told)))
            if output.grids:
                grids = predict_grids(trial.case.domain, trial.method, noisy, estimate(noisy, trial.method))
                output = output._replace(grids=grids)
            same &= _same(made, published(trial, output))
            paid &= sum(charge.epsilon + charge.rho for charge in noisy.charges) <= budget
    step = "whole numbers" if free else f"multiples of 1/{round(1 / QUANTUM)}"
    return [
        Check("noisy counts", whole, "64-bit whole numbers" if whole else "not all are whole numbers"),
        Check("estimates", on_grid, step if on_grid else f"not all are {step}"),
        Check("release", same, "follows from its noisy counts" if same else "holds more than its noisy counts"),
        Check("ledger", paid, "charges add up to no more than the budget" if paid else "charges are above the budget"),
    ]


def _same(one: NodeEstimates, two: NodeEstimates) -> bool:
    arrays: list[tuple[Any, Any]] = [
        (one.estimate, two.estimate),
        (one.subtree_variance, two.subtree_variance),
        (one.slope, two.slope),
        (one.known_unevenness, two.known_unevenness),
    ]
    return one.borders == two.borders and all(
        a is b if a is None or b is None else np.array_equal(a, b, equal_nan=True) for a, b in arrays
    )


def of_trees(trial: Trial, start: int, doubt: float) -> Check:
    """No tree is possible on one data set and not on the other, as far as can be seen.

    Trees are those of the first releases, and the others say how often each is seen.
    """
    known = [Counter(seen.tree[:start]) for seen in trial.seen]
    looks = known[0].keys() | known[1].keys()
    if len(looks) == 1 and all(len(set(seen.tree)) == 1 for seen in trial.seen):
        return Check("trees", True, "always the same one")
    often = [look for look in looks if max(known[0][look], known[1][look]) >= 5]
    worst = max(
        (_told_by(trial.seen, look, start, doubt / (2 * len(often)), float(trial.delta)) for look in often), default=0.0
    )
    passed = worst <= float(trial.epsilon)
    rest = "none tells more than epsilon" if passed else f"one of them tells {worst:.2f}"
    return Check("trees", passed, f"{len(looks)} seen, {rest}")


def _told_by(seen: tuple[Seen, Seen], look: int, start: int, doubt: float, delta: float) -> float:
    """The loss of seeing one tree."""
    ours, theirs = (np.array([key == look for key in side.tree[start:]], np.float64) for side in seen)
    return max(certify(Event(1.0, 1, swapped), ours, theirs, doubt, delta).bound for swapped in (False, True))

"""Further checks of an audit: the distribution of the noise, and that a release follows from noisy integers alone."""

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

MIN_P_VALUE = 1e-6
"""A p-value below this, corrected for the number of scales, fails the test of the noise."""
MIN_DRAWS_PER_SCALE = 500
"""Scales with fewer draws are not tested."""
EXPECTED_DRAWS_PER_BIN = 10.0
RELEASES_PER_CHECK = 40
"""Releases of each data set, for checks that need no statistics."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    what: str
    passed: bool
    found: str


def of_noise(trial: Trial) -> Check:
    """Test the noise (noisy minus exact counts) of each scale against the distribution of the stated variance."""
    seen = trial.seen
    noise = np.concatenate([z for side in seen for z in side.noise])
    variance = np.concatenate([v for side in seen for v in side.variance])
    gaussian = trial.method.noise is Noise.DISCRETE_GAUSSIAN
    least, scales, tested = 1.0, 0, 0
    for scale in np.unique(variance):
        drawn = noise[variance == scale]
        if len(drawn) >= MIN_DRAWS_PER_SCALE:
            least, scales = min(least, goodness(drawn, float(scale), gaussian)), scales + 1
            tested += len(drawn)
    if not scales:
        return Check("noise", True, f"not tested: no scale has {MIN_DRAWS_PER_SCALE} draws (make more releases)")
    least = min(1.0, least * scales)
    fits = "fits its distribution" if least > MIN_P_VALUE else "does not fit its distribution"
    noun = "scale" if scales == 1 else "scales"
    percentage = f"{100 * tested / len(noise):.3g} % of all draws"
    found = f"{fits}: {trial.method.noise.value}, {scales} {noun} with {percentage}, p-value {least:.2g}"
    return Check("noise", least > MIN_P_VALUE, found)


def goodness(noise: Ints, variance: float, gaussian: bool) -> float:
    """Return the p-value of a χ² test against discrete Laplace or Gaussian noise of this variance."""
    stats = need("scipy.stats", "audit", "An audit")
    reach = int(40 * np.sqrt(variance)) + 20
    z = np.arange(-reach, reach + 1)
    law = _gaussian_law(z, variance) if gaussian else np.exp(-laplace_rate(np.array([variance])) * np.abs(z))
    chance = np.cumsum(law / law.sum())
    # bins from the left, each with at least EXPECTED_DRAWS_PER_BIN draws
    width = EXPECTED_DRAWS_PER_BIN / len(noise)
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
    """Return weights e^(−z² / 2σ²) for the σ² with this variance, which is slightly larger if the variance is small."""
    low, high = 0.0, variance + 1
    for _ in range(60):
        middle = (low + high) / 2
        weights = np.exp(-(z**2) / (2 * middle))
        low, high = (middle, high) if (z**2 * weights).sum() / weights.sum() < variance else (low, middle)
    weights = np.exp(-(z**2) / (2 * high))
    return weights


def of_outputs(trial: Trial) -> list[Check]:
    """Check that noisy counts are integers, estimates are on one grid, and releases follow from noisy counts alone."""
    whole = on_grid = same = paid = True
    free = trial.method.estimate is PostProcessing.NOISY_COUNTS
    _, budget = noise_and_budget(trial.method, trial.epsilon, trial.delta, trial.case.most or 1)
    for one_more in (True, False):
        sealed = trial.case.sealed(one_more)
        for _ in range(RELEASES_PER_CHECK):
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
    """Check that no tree is much more frequent on one data set than on the other.

    The first ``start`` releases give the trees to compare. The other releases give their frequencies.
    """
    known = [Counter(seen.tree[:start]) for seen in trial.seen]
    looks = known[0].keys() | known[1].keys()
    if len(looks) == 1 and all(len(set(seen.tree)) == 1 for seen in trial.seen):
        return Check("trees", True, "always the same one")
    often = [look for look in looks if max(known[0][look], known[1][look]) >= 5]
    worst = max(
        (_tree_loss(trial.seen, look, start, doubt / (2 * len(often)), float(trial.delta)) for look in often),
        default=0.0,
    )
    passed = worst <= float(trial.epsilon)
    rest = "none has a loss above epsilon" if passed else f"one of them has a loss of {worst:.2f}"
    return Check("trees", passed, f"{len(looks)} different, {rest}")


def _tree_loss(seen: tuple[Seen, Seen], look: int, start: int, doubt: float, delta: float) -> float:
    """Return a lower bound for the privacy loss of observing one tree."""
    ours, theirs = (np.array([key == look for key in side.tree[start:]], np.float64) for side in seen)
    return max(certify(Event(1.0, 1, swapped), ours, theirs, doubt, delta).bound for swapped in (False, True))

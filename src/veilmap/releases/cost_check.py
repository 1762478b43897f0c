"""What the counts of a release cost along its paths, recomputed from the variances of their noise.

A unit is in one node of a level, so what a unit loses by counts is the sum of their prices along one path from the root
to a leaf: the price of a count follows from the variance of its noise, which every release publishes. What else was
paid for (medians, splits, roughness, calibration) leaves no noise behind, and is taken from the ledger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from veilmap.arrays import Flags, Floats
from veilmap.errors import Damaged
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.method.method import Noise
from veilmap.releases.privacy import RELATIVE_TOLERANCE, Privacy
from veilmap.trees import CurveTree, Tree
from veilmap.vault import Charge

NODE_COUNTS = (
    *("noisy counts of level ", "noisy counts of the leaves", "noisy node counts"),
    *("counts of level ", "counts of the leaves", "counts of nodes"),  # in older files
)
"""How charges for the published counts begin (docs/format.md)."""
SMALLEST_TABULATED, LARGEST_TABULATED = 1 / 64, 4.0
"""Parameters of the discrete Gaussian between which its variance has no simple form."""


@dataclass(frozen=True, slots=True)
class PathCosts:
    """The dearest path of a release, beside what its ledger says."""

    currency: str  # epsilon or rho
    levels: tuple[tuple[int, float, float], ...]  # counts on the dearest path: level, noise variance, price
    charged: Fraction  # by the ledger, for counts of nodes
    other: tuple[Charge, ...]  # charges for anything else
    budget: Fraction  # that is stated

    @property
    def counts(self) -> float:
        """Sum of the prices along the dearest path."""
        return float(sum(price for _, _, price in self.levels))

    @property
    def total(self) -> float:
        """The same with all other charges."""
        return self.counts + float(sum((charge.epsilon + charge.rho for charge in self.other), Fraction(0)))

    @property
    def agrees(self) -> bool:
        """Whether something was counted, for no more than was charged; that this is in budget, ``Privacy`` checks."""
        return bool(self.levels) and self.counts <= float(self.charged) * (1 + RELATIVE_TOLERANCE)


def path_costs(privacy: Privacy, noise: Noise, nodes: NodeEstimates) -> PathCosts:
    """Recompute what the dearest path from the root to a leaf costs."""
    tree, variance = nodes.tree, nodes.noise_variance
    if np.any(
        bare := tree.is_leaf & np.isinf(variance) & ~_holds_nothing(tree)
    ):  # pruning dropped the counts that its estimate is made of:
        variance = np.where(bare, nodes.subtree_variance, variance)  # together they cost no less than one as precise
    price = count_prices(variance, noise, privacy.rows_per_unit)
    cost = price.copy()
    for level in range(1, tree.height + 1):
        here = tree.level(level)
        cost[here] += cost[tree.parent[here]]
    node, path = int(np.argmax(cost)), []
    while node >= 0:
        path.append(node)
        node = int(tree.parent[node])
    counted = [node for node in reversed(path) if np.isfinite(variance[node])]
    return PathCosts(
        currency=currency(privacy),
        levels=tuple((int(tree.node_level[v]), float(variance[v]), float(price[v])) for v in counted),
        charged=charged_for_counts(privacy, noise),
        other=tuple(charge for charge in privacy.ledger if not _is_for_counts(charge, noise)),
        budget=privacy.epsilon if privacy.rho is None else privacy.rho,
    )


def must_be_worth(path: object, privacy: Privacy, noise: Noise, cost: float) -> None:
    """Refuse a file with counts that cost more than was charged for them."""
    charged = float(charged_for_counts(privacy, noise))
    if cost <= charged * (1 + RELATIVE_TOLERANCE):
        return
    spent = f"costs {currency(privacy)} {cost:.6g} by the noise of its counts, and {charged:.6g} was charged"
    if not math.isfinite(cost):
        spent = "has counts without noise"
    raise Damaged(f"{path} cannot be as private as it says: a path {spent}. Ask its owner for the original.")


def currency(privacy: Privacy) -> str:
    """What the ledger is in."""
    return "epsilon" if privacy.rho is None else "rho"


def charged_for_counts(privacy: Privacy, noise: Noise) -> Fraction:
    """Add up what the ledger charges for counts of nodes."""
    return sum((c.epsilon + c.rho for c in privacy.ledger if _is_for_counts(c, noise)), Fraction(0))


def _is_for_counts(charge: Charge, noise: Noise) -> bool:
    return charge.mechanism == noise.value and charge.what.startswith(NODE_COUNTS)


def _holds_nothing(tree: Tree) -> Flags:
    """Whether a node has no cells at all, as cuts at a border make them: everyone knows that its count is 0."""
    ends = tree.keys if isinstance(tree, CurveTree) else tree
    nothing: Flags = np.any(ends.hi <= ends.lo, axis=1)
    return nothing


def count_prices(variance: Floats, noise: Noise, rows: int) -> Floats:
    """Compute the price of each count: an ε or, of Gaussian noise, a ρ. It is 0 where nothing was counted.

    Discrete Laplace noise of scale 1/e has the variance 1 / (2 sinh²(e / 2)), and costs e for each row of a unit. The
    discrete Gaussian of parameter σ² costs rows² / (2 σ²).
    """
    with np.errstate(divide="ignore", over="ignore"):
        if noise is Noise.DISCRETE_GAUSSIAN:
            return np.asarray(rows**2 / (2 * _gaussian_parameter(variance)))
        return np.asarray(rows * 2 * np.arcsinh(np.sqrt(0.5 / variance)))


def _gaussian_parameter(variance: Floats) -> Floats:
    """Invert ``gaussian_variance`` of the vault: σ² is the variance itself unless it is small."""
    parameter, known = _small_gaussians()
    between = np.exp(np.interp(np.log(np.clip(variance, known[0], known[-1])), np.log(known), np.log(parameter)))
    below = -0.5 / np.log(np.minimum(variance, known[0]) / 2)  # there, the variance is 2 exp(-1 / (2 σ²))
    return np.where(variance >= LARGEST_TABULATED, variance, np.where(variance < known[0], below, between))


@cache
def _small_gaussians() -> tuple[Floats, Floats]:
    """Parameters in a row, and the variances that they make."""
    parameter, z = np.geomspace(SMALLEST_TABULATED, LARGEST_TABULATED, 1 << 13), np.arange(1, 40)
    weight = np.exp(-(z**2) / (2 * parameter[:, None]))
    return parameter, 2 * (z**2 * weight).sum(axis=1) / (1 + 2 * weight.sum(axis=1))

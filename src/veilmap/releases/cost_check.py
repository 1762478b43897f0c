"""Recompute the cost of the counts along the paths of a release, from the variances of their noise.

A unit is in one node per level, so its privacy loss from counts is the sum of their prices along one path from the root
to a leaf. The price of a count follows from the variance of its noise, which each release publishes. Other charges
(medians, splits, roughness, calibration) have no published variance and are taken from the list of charges.
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
    *("counts of level ", "counts of the leaves", "counts of nodes"),  # in files of the first edition
)
"""Prefixes of the charges for published counts (docs/format.md)."""
MIN_TABULATED_PARAMETER = 1 / 64
MAX_TABULATED_PARAMETER = 4.0
"""Between these two parameters σ², the variance of the discrete Gaussian has no simple form and is tabulated."""


@dataclass(frozen=True, slots=True)
class CheckedCosts:
    """The cost of the most expensive path of a release, and the charges that it states."""

    currency: str  # epsilon or rho
    levels: tuple[tuple[int, float, float], ...]  # counts on this path: level, noise variance, price
    charged: Fraction  # for node counts
    other: tuple[Charge, ...]  # all other charges
    budget: Fraction  # stated

    @property
    def counts(self) -> float:
        """Sum of the prices along the path."""
        return float(sum(price for _, _, price in self.levels))

    @property
    def total(self) -> float:
        """Sum of the prices along the path and all other charges."""
        return self.counts + float(sum((charge.epsilon + charge.rho for charge in self.other), Fraction(0)))

    @property
    def agrees(self) -> bool:
        """Whether there are counts, which cost no more than was charged. ``Privacy`` compares charges and budget."""
        return bool(self.levels) and self.counts <= float(self.charged) * (1 + RELATIVE_TOLERANCE)


def path_costs(privacy: Privacy, noise: Noise, nodes: NodeEstimates) -> CheckedCosts:
    """Find the most expensive path from the root to a leaf, and return its cost."""
    tree, variance = nodes.tree, nodes.noise_variance
    uncounted_leaf = tree.is_leaf & np.isinf(variance) & ~_has_no_cells(tree)
    if np.any(uncounted_leaf):
        # pruning removed the counts below; together they cost at least as much as one count of the same precision
        variance = np.where(uncounted_leaf, nodes.subtree_variance, variance)
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
    return CheckedCosts(
        currency=currency(privacy),
        levels=tuple((int(tree.node_level[v]), float(variance[v]), float(price[v])) for v in counted),
        charged=charged_for_counts(privacy, noise),
        other=tuple(charge for charge in privacy.ledger if not _is_for_counts(charge, noise)),
        budget=privacy.epsilon if privacy.rho is None else privacy.rho,
    )


def must_be_worth(path: object, privacy: Privacy, noise: Noise, cost: float) -> None:
    """Refuse a file whose counts cost more than was charged for them."""
    charged = float(charged_for_counts(privacy, noise))
    if cost <= charged * (1 + RELATIVE_TOLERANCE):
        return
    problem = (
        f"costs {currency(privacy)} {cost:.6g} according to the noise of its counts, but {charged:.6g} was charged"
    )
    if not math.isfinite(cost):
        problem = "has counts without noise"
    raise Damaged(f"{path} is less private than it states: a path {problem}. Ask its owner for the original.")


def currency(privacy: Privacy) -> str:
    """Return the currency of the charges: epsilon or rho."""
    return "epsilon" if privacy.rho is None else "rho"


def charged_for_counts(privacy: Privacy, noise: Noise) -> Fraction:
    """Return the sum of the charges for node counts."""
    return sum((c.epsilon + c.rho for c in privacy.ledger if _is_for_counts(c, noise)), Fraction(0))


def _is_for_counts(charge: Charge, noise: Noise) -> bool:
    return charge.mechanism == noise.value and charge.what.startswith(NODE_COUNTS)


def _has_no_cells(tree: Tree) -> Flags:
    """Return whether each node has no cells, as after a cut at the border of a box. Its count is 0 for any data."""
    boxes = tree.keys if isinstance(tree, CurveTree) else tree
    empty: Flags = np.any(boxes.hi <= boxes.lo, axis=1)
    return empty


def count_prices(variance: Floats, noise: Noise, rows: int) -> Floats:
    """Compute the price of each count: ε, or ρ for Gaussian noise; 0 for nodes that were not counted.

    Discrete Laplace noise of scale 1/e has the variance 1 / (2 sinh²(e / 2)), and costs e per row of a unit. The
    discrete Gaussian with parameter σ² costs rows² / (2 σ²).
    """
    with np.errstate(divide="ignore", over="ignore"):
        if noise is Noise.DISCRETE_GAUSSIAN:
            return np.asarray(rows**2 / (2 * _gaussian_parameter(variance)))
        return np.asarray(rows * 2 * np.arcsinh(np.sqrt(0.5 / variance)))


def _gaussian_parameter(variance: Floats) -> Floats:
    """Return the parameter σ² for a variance: the inverse of the vault's ``gaussian_variance``."""
    parameter, known = _small_gaussians()
    between = np.exp(np.interp(np.log(np.clip(variance, known[0], known[-1])), np.log(known), np.log(parameter)))
    below = -0.5 / np.log(np.minimum(variance, known[0]) / 2)  # below the table, the variance is 2 exp(-1 / (2 σ²))
    return np.where(variance >= MAX_TABULATED_PARAMETER, variance, np.where(variance < known[0], below, between))


@cache
def _small_gaussians() -> tuple[Floats, Floats]:
    """Return a table of parameters σ² and their variances."""
    parameter, z = np.geomspace(MIN_TABULATED_PARAMETER, MAX_TABULATED_PARAMETER, 1 << 13), np.arange(1, 40)
    weight = np.exp(-(z**2) / (2 * parameter[:, None]))
    return parameter, 2 * (z**2 * weight).sum(axis=1) / (1 + 2 * weight.sum(axis=1))

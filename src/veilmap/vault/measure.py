"""The gate: charge, count, add noise, forget the counts. Proof: proofs/measure.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from veilmap.budget import share
from veilmap.errors import BadInput, VaultFailure, VeilmapError
from veilmap.kernels.counting import sum_children
from veilmap.method import Method, Noise
from veilmap.tree import RegularTree, Tree
from veilmap.vault.entropy import Keys, current_keys
from veilmap.vault.ledger import Charge, Ledger
from veilmap.vault.noise import discrete_laplace, noise_variance
from veilmap.vault.sealed import Sealed

TOTAL_SHARE = Fraction(1, 50)
"""Of a budget, what the root's count gets when the height is to be chosen from it."""


@dataclass(frozen=True, slots=True, eq=False)
class NoisyTree:
    """Safe to publish: boxes, noisy counts, the variance of each count's noise, and what was spent."""

    tree: Tree
    noisy_count: NDArray[np.int64]  # 0 where a node was not measured
    noise_variance: NDArray[np.float64]  # infinite where a node was not measured
    charges: tuple[Charge, ...]
    private: bool  # False when the random bits were fixed for a test


def measure(
    points: Sealed, method: Method, epsilon: Fraction, progress: Callable[[float], None] = lambda part: None
) -> NoisyTree:
    """Release the noisy counts of one tree under ``epsilon``-differential privacy.

    Guarantees (neighbours: add or remove one row):

    - A row lies in at most one node of a level, so the counts of a level change by 1 in one place:
      noise of scale 1/ε_level on each costs ε_level once.
    - Every level is charged before its noise is drawn, and the ledger refuses anything beyond ``epsilon``.
    - A height that is not given is a function of the root's noisy count, which is charged.
    - An unexpected error says what kind it is, and nothing of the data.
    """
    if method.noise is not Noise.DISCRETE_LAPLACE:
        raise BadInput(f"The vault has no noise called {method.noise!r}.")
    try:
        return _measure(points, method, epsilon, current_keys(), progress)
    except (VeilmapError, MemoryError):
        raise
    except Exception as error:
        kind = type(error).__name__
    # Raised outside the handler, so that it drags no frame along in which the data lies open.
    raise VaultFailure(f"Measuring failed with {kind} while the data was open; no more is said, to give nothing away.")


def _measure(
    points: Sealed, method: Method, epsilon: Fraction, keys: Keys, progress: Callable[[float], None]
) -> NoisyTree:
    domain, structure, ledger = points.domain, method.structure, Ledger(epsilon)
    axes = domain.dimensions

    def charge(level: int, part: Fraction) -> None:
        ledger.charge(f"counts of level {level}", "discrete-laplace", part)

    if structure.height is None:
        root = epsilon * TOTAL_SHARE
        charge(0, root)
        tree, counts = _count(points, structure.finest(domain.bits, axes), method, progress)
        counts[:1] += discrete_laplace(root, 1, keys)
        height = structure.choose(int(counts[0]), float(epsilon), tree.height, axes)
        tree = RegularTree(domain.side, axes, structure.splits(height, axes))
        counts = counts[: tree.size].copy()
        below = share(ledger.left, (Fraction(0), *method.budget.weights(height, axes)[1:]))
        parts, start = (root, *below[1:]), 1
    else:
        parts, start = share(epsilon, method.budget.weights(structure.height, axes)), 0
        tree, counts = _count(points, structure.height, method, progress)

    variance = np.full(tree.size, np.inf)
    for level, part in enumerate(parts):
        nodes = tree.level(level)
        if not part:
            counts[nodes] = 0
            continue
        if level >= start:
            charge(level, part)
            counts[nodes] += discrete_laplace(part, nodes.stop - nodes.start, keys)
        variance[nodes] = noise_variance(part)
    return NoisyTree(tree, counts, variance, ledger.charges, keys.private)


def _count(
    points: Sealed, height: int, method: Method, progress: Callable[[float], None]
) -> tuple[RegularTree, NDArray[np.int64]]:
    """Exact counts of all nodes: they never leave this file, and noise is added to them in place."""
    domain = points.domain
    tree = RegularTree(domain.side, domain.dimensions, method.structure.splits(height, domain.dimensions))
    counts = np.zeros(tree.size, np.int64)
    leaves = tree.level(tree.height)
    counts[leaves] = points._count_leaves(tree, progress)
    sum_children(tree.first_child, counts, leaves.start)
    return tree, counts

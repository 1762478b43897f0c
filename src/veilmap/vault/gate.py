"""The gate: charge, count, add noise, forget the counts. Proof: proofs/measure.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.kernels.counting import sum_children
from veilmap.method import ROOT_SHARE, Method, Noise
from veilmap.tree import RegularTree, Tree
from veilmap.vault.entropy import Keys, current_keys
from veilmap.vault.ledger import Charge, Ledger
from veilmap.vault.noise import discrete_laplace, noise_variance
from veilmap.vault.sealed import Sealed, silenced


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
    except BaseException as error:
        failure = silenced(error)
    del points
    raise failure


def _measure(
    points: Sealed, method: Method, epsilon: Fraction, keys: Keys, progress: Callable[[float], None]
) -> NoisyTree:
    domain, structure, ledger = points.domain, method.structure, Ledger(epsilon)
    axes, choosing = domain.dimensions, structure.height is None
    tree = _halvings(domain, method, structure.finest(domain.bits, axes) if choosing else structure.height)
    counts = _count(points, tree, progress)
    noisy, variance = np.zeros(tree.size, np.int64), np.full(tree.size, np.inf)

    def publish(level: int, part: Fraction) -> None:
        """The one place where counts turn into published numbers."""
        nodes = tree.level(level)
        ledger.charge(f"counts of level {level}", "discrete-laplace", part)
        noisy[nodes] = counts[nodes] + discrete_laplace(part, nodes.stop - nodes.start, keys)
        variance[nodes] = noise_variance(part)

    if choosing:
        publish(0, epsilon * ROOT_SHARE)
        height = structure.choose(int(noisy[0]), float(epsilon), tree.height, axes)
        if height not in range(1, tree.height + 1):
            raise BadInput(f"A structure chooses a height from 1 to {tree.height}, got {height!r}.")
        tree = RegularTree(domain.side, axes, tree.splits[:height])  # the levels above keep their places
    for level, part in enumerate(method.level_epsilons(epsilon, tree.height, axes)):
        if part and not (choosing and level == 0):
            publish(level, part)
    return NoisyTree(tree, noisy[: tree.size].copy(), variance[: tree.size].copy(), ledger.charges, keys.private)


def _halvings(domain: Domain, method: Method, height: int | None) -> RegularTree:
    """The tree to be counted. A structure may be anyone's: what the proof needs of it is checked here."""
    splits = method.structure.splits(height or 0, domain.dimensions)
    if len(splits) > domain.bits or any(parts != (2,) * domain.dimensions for parts in splits):
        raise BadInput(f"A tree here halves every axis at each of at most {domain.bits} levels, got {splits}.")
    return RegularTree(domain.side, domain.dimensions, splits)


def _count(points: Sealed, tree: RegularTree, progress: Callable[[float], None]) -> NDArray[np.int64]:
    """Exact counts of all nodes: they never leave this file."""
    counts = np.zeros(tree.size, np.int64)
    leaves = tree.level(tree.height)
    counts[leaves] = points._count_leaves(tree, progress)
    sum_children(tree.first_child, counts, leaves.start)
    return counts

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
from veilmap.method import Method, Noise
from veilmap.structures import Gate
from veilmap.tree import Parts, RegularTree, Tree
from veilmap.vault.entropy import Keys, current_keys
from veilmap.vault.ledger import Charge, Ledger
from veilmap.vault.medians import exponential_cuts
from veilmap.vault.noise import discrete_laplace, noise_variance
from veilmap.vault.rows import Rows
from veilmap.vault.sealed import Sealed, silenced

Ints = NDArray[np.int64]


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
    """Everything exact is a local variable here, or in the kernels that are called."""
    domain, ledger = points.domain, Ledger(epsilon)
    tree: Tree = RegularTree(domain.side, domain.dimensions)
    rows: Rows | None = None  # in memory from the first cut on that a regular grid cannot have
    exact: Ints | None = None  # counts of all nodes of the tree, until it grows
    noisy: dict[int, Ints] = {}  # by level
    spread: dict[int, float] = {}

    def refine(parts: Parts) -> None:
        nonlocal tree, exact
        _must_be_parts(parts, domain)
        if rows is not None:
            rows.refine(tree, parts)
        tree, exact = tree.refine(parts), None
        _must_be_countable(tree, domain)

    def cut(axis: int, at: Ints) -> None:
        nonlocal tree, exact, rows
        grown = tree.cut(axis, at)
        rows = rows or _in_memory(points, tree, progress)
        rows.cut(axis, at)
        tree, exact = grown, None

    def shorten(height: int) -> None:
        nonlocal tree, exact
        if rows is not None:
            raise BadInput("A tree can be shortened only before its first cut.")
        _must_be_a_level(height, tree, max(noisy, default=0))
        tree = tree.shortened(height)
        exact = None if exact is None else exact[: tree.size]

    def medians(axis: int, part: Fraction) -> Ints:
        nonlocal rows
        rows = rows or _in_memory(points, tree, progress)
        newest = tree.level(tree.height)
        ledger.charge(f"medians of level {tree.height}", "exponential", part)
        values, start = rows.sorted_along(axis, newest.stop - newest.start, domain.bits)
        return exponential_cuts(values, start, tree.lo[newest, axis], tree.hi[newest, axis], part, keys)

    def count(level: int, part: Fraction) -> Ints:
        """The one place where counts turn into published numbers."""
        nonlocal exact
        _must_be_uncounted(level, noisy, tree)
        nodes = tree.level(level)
        ledger.charge(f"counts of level {level}", "discrete-laplace", part)
        exact = _all_counts(points, tree, rows, progress) if exact is None else exact
        noisy[level] = exact[nodes] + discrete_laplace(part, nodes.stop - nodes.start, keys)
        spread[level] = noise_variance(part)
        return noisy[level].copy()

    method.structure.grow(Gate(domain, lambda: tree, refine, cut, shorten, medians, count), epsilon, method.budget)
    counts, variance = np.zeros(tree.size, np.int64), np.full(tree.size, np.inf)
    for level in range(tree.height + 1):
        if level in noisy:
            counts[tree.level(level)] = noisy[level]
            variance[tree.level(level)] = spread[level]
    if not np.isfinite(variance[tree.level(tree.height)]).all():
        raise BadInput("A structure must count the leaves of its tree.")
    return NoisyTree(tree, counts, variance, ledger.charges, keys.private)


def _in_memory(points: Sealed, tree: Tree, progress: Callable[[float], None]) -> Rows:
    """All rows, in the nodes of a tree that has been regular so far."""
    rows, grown = Rows(points._cells(progress)), tree.shortened(0)
    for parts in tree.splits if isinstance(tree, RegularTree) else ():
        rows.refine(grown, parts)
        grown = grown.refine(parts)
    return rows


def _all_counts(points: Sealed, tree: Tree, rows: Rows | None, progress: Callable[[float], None]) -> Ints:
    """Exact counts of all nodes: they never leave this file."""
    counts, leaves = np.zeros(tree.size, np.int64), tree.level(tree.height)
    if rows is not None:
        counts[leaves] = rows.counts(leaves.stop - leaves.start)
    elif isinstance(tree, RegularTree):
        counts[leaves] = points._count_leaves(tree, progress)
    sum_children(tree.first_child, counts, leaves.start)
    return counts


def _must_be_parts(parts: Parts, domain: Domain) -> None:
    """A structure may be anyone's: a number that is none of these would send the kernels beyond their arrays."""
    if len(parts) != domain.dimensions or not all(type(n) is int and n >= 1 for n in parts):
        raise BadInput(f"A box is cut into 1 or more parts along each of {domain.dimensions} axes, got {parts!r}.")


def _must_be_a_level(height: int, tree: Tree, counted: int) -> None:
    """Levels that were counted stay: their counts belong to their boxes."""
    if height not in range(1, tree.height + 1):
        raise BadInput(f"A tree of height {tree.height} is shortened to 1 to {tree.height}, got {height!r}.")
    if counted > height:
        raise BadInput(f"Level {counted} has been counted: a tree cannot be shortened to {height}.")


def _must_be_uncounted(level: int, noisy: dict[int, Ints], tree: Tree) -> None:
    if level not in range(tree.height + 1):
        raise BadInput(f"A tree of height {tree.height} has the levels 0 to {tree.height}, got {level!r} to count.")
    if level in noisy:
        raise BadInput(f"Level {level} has been counted already: a structure counts each level once.")


def _must_be_countable(tree: Tree, domain: Domain) -> None:
    """A structure may be anyone's: what counting needs of a regular tree is checked here."""
    if not isinstance(tree, RegularTree):
        return
    powers = all(n & (n - 1) == 0 for parts in tree.splits[:-1] for n in parts)
    if not powers or max(tree.grid(tree.height)) > domain.side:
        raise BadInput(
            f"This domain has {domain.side} cells an axis, which a grid halves again and again, and cuts into other "
            f"parts only last; got {tree.splits}."
        )

"""The density test of PrivTree: one price for all levels. Proof: proofs/density_test.md."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from veilmap.arrays import Flags, Ints
from veilmap.errors import BadInput
from veilmap.trees import Tree
from veilmap.vault.entropy import Keys
from veilmap.vault.mechanisms.laplace import discrete_laplace, exp_bounds


class DensityTest:
    """A test of the root, then of the children of dense boxes, one level after another."""

    __slots__ = ("_last", "_noise")

    def __init__(self) -> None:
        self._noise: tuple[Fraction, int] | None = None  # its rate, and the step by which counts are lowered
        self._last: tuple[int, Flags] = -1, np.zeros(0, np.bool_)  # the level that was tested last, and its answer

    @property
    def started(self) -> bool:
        return self._noise is not None

    def start(self, epsilon: Fraction, fanout: int) -> None:
        """Set the noise of all levels, which have been paid for."""
        self._noise = decay(epsilon, fanout)

    def must_be_next(self, tree: Tree, streams: bool) -> None:
        """Raise if this is not the level that may be tested next."""
        if streams:
            raise BadInput("A density test needs rows that are held in memory. Set the structure's passes to None.")
        level, dense = self._last
        if self._noise is None and tree.size == 1:
            return
        if self._noise is None or level != tree.height - 1:
            raise BadInput("A density test starts at the root and continues level by level.")
        frontier = tree.level(tree.height)
        if not dense[tree.parent[frontier] - tree.level_start[-3]].all():
            raise BadInput("Only the children of dense boxes can be tested for density.")

    def ask(self, tree: Tree, counts: Ints, keys: Keys) -> Flags:
        """Return which frontier boxes look dense, from the exact counts of all nodes."""
        assert self._noise is not None  # noqa: S101
        self._last = tree.height, looks_dense(counts[tree.level(tree.height)], tree.height, *self._noise, keys)
        return self._last[1].copy()


def decay(epsilon: Fraction, fanout: int) -> tuple[Fraction, int]:
    """Return the rate of the noise and the step by which counts are lowered per level, for a total cost of ε.

    The step is the smallest integer D with e^(rate · D) ≥ fanout.
    """
    rate = epsilon * (fanout - 1) / (2 * fanout - 1)
    step = max(1, math.floor(math.log(fanout) / float(rate)) - 1)
    while exp_bounds(rate * step, 30)[0] < fanout:
        step += 1
    return rate, step


def looks_dense(counts: Ints, depth: int, rate: Fraction, step: int, keys: Keys) -> Flags:
    """Return whether the lowered noisy count of each box of one level is above 0.

    Guarantees (neighbours: add or remove one row):

    - If the root is tested first, and then only children of dense boxes, one level after another, all answers
      together are ε-differentially private for the ε of ``decay``, at any depth.
    """
    lowered = np.maximum(counts - depth * step, -step)
    return np.greater(lowered + discrete_laplace(rate, len(counts), keys), 0)

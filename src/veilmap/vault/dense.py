"""Which boxes look dense, level after level, for one price (PrivTree, Zhang et al. 2016). Proof: proofs/dense.md."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from veilmap.vault.entropy import Keys
from veilmap.vault.noise import discrete_laplace, exp_bounds

Ints = NDArray[np.int64]


def decay(epsilon: Fraction, fanout: int) -> tuple[Fraction, int]:
    """The rate of the noise, and by how much counts are lowered a level, so that all levels together cost ε.

    The steps are whole: the least D with e^(rate · D) ≥ fanout.
    """
    rate = epsilon * (fanout - 1) / (2 * fanout - 1)
    step = max(1, math.floor(math.log(fanout) / float(rate)) - 1)
    while exp_bounds(rate * step, 30)[0] < fanout:
        step += 1
    return rate, step


def looks_dense(counts: Ints, depth: int, rate: Fraction, step: int, keys: Keys) -> NDArray[np.bool_]:
    """Whether the lowered noisy count of each box of one level is above 0.

    Guarantees (neighbours: add or remove one row):

    - Asked of the root, then of children of boxes that looked dense, one level after the other, all answers
      together are ε-differentially private for the ε of ``decay``, however deep the tree gets.
    """
    lowered = np.maximum(counts - depth * step, -step)
    return np.greater(lowered + discrete_laplace(rate, len(counts), keys), 0)

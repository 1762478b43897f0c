"""How rough the density inside boxes is, at several scales, for a small price. Proof: proofs/roughness.md."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from veilmap.arrays import Ints
from veilmap.kernels.roughness import sum_contrasts
from veilmap.structures import CELLS_PER_RUN
from veilmap.vault.entropy import Keys
from veilmap.vault.noise_models import LaplaceNoise


def noisy_roughness(
    grid: Ints, side: Ints, axes: int, scales: int, price: Fraction, noise: LaplaceNoise, keys: Keys
) -> Ints:
    """Return noisy sums, one per scale, of |first half − second half| over all axes and runs of cells.

    ``grid`` holds the counts of half-cells, ``side`` of them per axis of each box; it is overwritten.

    Guarantees (neighbours: a person with at most the rows of the noise model, more or less):

    - A row changes one cell of the grid, so one run for each axis and scale, and each sum by ``axes`` at most:
      all of them together cost ``price``.
    """
    out = np.zeros(scales, np.int64)
    sum_contrasts(grid, side, axes, CELLS_PER_RUN, out)
    each = price / scales / axes ** (3 - noise.power)  # a sum moves by ``axes``, which costs ρ that squared
    return out + noise.draw(each, scales, keys)

"""Roughness: noisy sums of differences between half-cells, at several scales. Proof: proofs/roughness.md."""

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

    ``grid`` holds the exact counts of half-cells, ``side`` of them per axis of each box. It is overwritten.

    Guarantees (neighbours: add or remove a unit with at most the rows of the noise model):

    - A row changes one entry of the grid, hence one run per axis and scale, and each sum by at most ``axes``. All sums
      together cost ``price``.
    """
    out = np.zeros(scales, np.int64)
    sum_contrasts(grid, side, axes, CELLS_PER_RUN, out)
    # A sum changes by up to ``axes``. In ε that costs ``axes`` times as much as a change by 1, in ρ ``axes``² times.
    share = price / scales / axes ** (3 - noise.power)
    return out + noise.draw(share, scales, keys)

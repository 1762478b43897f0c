"""Noisy sums of absolute residuals of predictions. Proof: proofs/residuals.md."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from veilmap.arrays import Ints
from veilmap.vault.check import GridPrediction, Residual
from veilmap.vault.entropy import Keys
from veilmap.vault.noise_models import LaplaceNoise


def noisy_residuals(
    cells: Ints, predictions: tuple[GridPrediction, ...], price: Fraction, noise: LaplaceNoise, keys: Keys
) -> tuple[Residual, ...]:
    """Return the noisy residual of each grid and the variance of its noise. ``cells`` are exact counts, grid by grid.

    Guarantees: each grid costs an equal share of ``price``, so all of them together cost ``price``.
    """
    share = price / len(predictions)
    grids = np.split(cells, np.cumsum([len(places) for _, places, _ in predictions])[:-1])
    return tuple(
        (noisy_residual(grid, places, expected, share, noise, keys), noise.variance(share))
        for grid, (_, places, expected) in zip(grids, predictions, strict=True)
    )


def noisy_residual(cells: Ints, places: Ints, expected: Ints, price: Fraction, noise: LaplaceNoise, keys: Keys) -> int:
    """Return a noisy sum of |count − expected| over the boxes of one grid.

    ``cells`` are the exact counts of the grid's cells, and ``places`` is the box of each cell.

    Guarantees (neighbours: add or remove a unit with at most the rows of the noise model):

    - A row changes one count by 1, and the sum by at most 1, for any expected counts. So the noise costs ``price``.
    """
    counts = np.zeros_like(expected)
    np.add.at(counts, places, cells)
    return int(np.abs(counts - expected).sum() + noise.draw(price, 1, keys)[0])

"""How far predictions are off in all, for a small price. Proof: proofs/residuals.md."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from veilmap.arrays import Ints
from veilmap.vault.entropy import Keys
from veilmap.vault.noise_models import LaplaceNoise


def noisy_residuals(cells: Ints, places: Ints, expected: Ints, price: Fraction, noise: LaplaceNoise, keys: Keys) -> int:
    """Return Σ |count − expected| over boxes, with noise. ``cells`` are counts, ``places`` the box of each of them.

    Guarantees (neighbours: a person with at most the rows of the noise model, more or less):

    - A row changes one count by 1, and the sum by 1 at most, whatever was expected: this costs ``price``.
    """
    counts = np.zeros_like(expected)
    np.add.at(counts, places, cells)
    return int(np.abs(counts - expected).sum() + noise.draw(price, 1, keys)[0])

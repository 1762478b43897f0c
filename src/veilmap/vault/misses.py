"""How far off answers are in all, for a small price. Proof: proofs/misses.md."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from veilmap.tree import Ints
from veilmap.vault.entropy import Keys
from veilmap.vault.price import LaplacePrice

FARTHEST = 2**40  # that anything is expected to be, so that no sum runs over


def sum_of_misses(cells: Ints, places: Ints, expected: Ints, part: Fraction, price: LaplacePrice, keys: Keys) -> int:
    """Σ |count − expected| over boxes, with noise. ``cells`` are counts, ``places`` the box that each of them is in.

    Guarantees (neighbours: a person with at most the rows of the price, more or less):

    - A row changes one count by 1, and the sum by 1 at most, whatever was expected: this costs ``part``.
    """
    counts = np.zeros_like(expected)
    np.add.at(counts, places, cells)
    return int(np.abs(counts - expected).sum() + price.noise(part, 1, keys)[0])

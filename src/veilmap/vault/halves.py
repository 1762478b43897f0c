"""How uneven boxes are inside, at several scales, for a small price. Proof: proofs/halves.md."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from veilmap.kernels.contrasts import sum_contrasts
from veilmap.structures import RUN
from veilmap.tree import Ints
from veilmap.vault.entropy import Keys
from veilmap.vault.price import LaplacePrice


def uneven_halves(
    grid: Ints, side: Ints, axes: int, scales: int, part: Fraction, price: LaplacePrice, keys: Keys
) -> Ints:
    """Noisy sums, one a scale, of |first half − second half| over all axes and runs of cells. Uses ``grid`` up.

    Guarantees (neighbours: a person with at most the rows of the price, more or less):

    - A row changes one cell of the grid, so one run for each axis and scale, and each sum by ``axes`` at most:
      all of them together cost ``part``.
    """
    out = np.zeros(scales, np.int64)
    sum_contrasts(grid, side, axes, RUN, out)
    each = part / scales / axes ** (3 - price.power)  # a sum moves by ``axes``, which costs ρ that squared
    return out + price.noise(each, scales, keys)

"""What a part of the budget buys, for one person with at most ``rows`` rows. Proof: proofs/measure.md."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from veilmap.tree import Ints
from veilmap.vault.entropy import Keys
from veilmap.vault.gaussian import discrete_gaussian, gaussian_variance, root_below
from veilmap.vault.noise import discrete_laplace, noise_variance


class LaplacePrice:
    """Parts are of ε. A person changes the counts of disjoint boxes by at most ``rows`` in all."""

    currency, mechanism, power, private = "epsilon", "discrete-laplace", 2, True

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def noise(self, part: Fraction, n: int, keys: Keys) -> Ints:
        return discrete_laplace(part / self.rows, n, keys)

    def variance(self, part: Fraction) -> float:
        return noise_variance(part / self.rows)

    def sharpness(self, part: Fraction) -> float:
        """The ε of Laplace noise that is as small."""
        return float(part / self.rows)

    def pure(self, part: Fraction) -> Fraction:
        """The ε for which any ε-private mechanism may be had."""
        return part

    def bounded(self, part: Fraction) -> Fraction:
        """The ε for which an exponential mechanism may be had."""
        return part


class GaussianPrice(LaplacePrice):
    """Parts are of ρ. A person changes the counts by a vector of length at most ``rows``."""

    currency, mechanism, power, private = "rho", "discrete-gaussian", 1, True

    def noise(self, part: Fraction, n: int, keys: Keys) -> Ints:
        return discrete_gaussian(self.rows**2 / (2 * part), n, keys)

    def variance(self, part: Fraction) -> float:
        return gaussian_variance(self.rows**2 / (2 * part))

    def sharpness(self, part: Fraction) -> float:
        return 2 * float(root_below(part)) / self.rows

    def pure(self, part: Fraction) -> Fraction:
        return root_below(2 * part)  # ε is ε²/2-concentrated

    def bounded(self, part: Fraction) -> Fraction:
        return root_below(8 * part)  # ε²/8, for its losses lie within ε of each other


class NoPrice(LaplacePrice):
    """Exact counts, for yardsticks: whatever they touch is not private."""

    currency, mechanism, power, private = "epsilon", "none", 2, False

    def noise(self, part: Fraction, n: int, keys: Keys) -> Ints:
        return np.zeros(n, np.int64)

    def variance(self, part: Fraction) -> float:
        return 0.0

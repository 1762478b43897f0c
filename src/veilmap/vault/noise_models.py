"""Noise models: what a price buys, for one person with at most ``rows`` rows. Proof: proofs/measure.md."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from veilmap.arrays import Ints
from veilmap.vault.entropy import Keys
from veilmap.vault.mechanisms.gaussian import discrete_gaussian, gaussian_variance, root_below
from veilmap.vault.mechanisms.laplace import discrete_laplace, noise_variance


class LaplaceNoise:
    """Prices are shares of ε. A person changes the counts of disjoint boxes by at most ``rows`` in all."""

    currency, mechanism, power, private = "epsilon", "discrete-laplace", 2, True

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def draw(self, price: Fraction, n: int, keys: Keys) -> Ints:
        return discrete_laplace(price / self.rows, n, keys)

    def variance(self, price: Fraction) -> float:
        return noise_variance(price / self.rows)

    def sharpness(self, price: Fraction) -> float:
        """Return the ε of Laplace noise that is as small."""
        return float(price / self.rows)

    def pure(self, price: Fraction) -> Fraction:
        """Return the ε at which any ε-private mechanism may be run."""
        return price

    def bounded(self, price: Fraction) -> Fraction:
        """Return the ε at which an exponential mechanism may be run."""
        return price


class GaussianNoise(LaplaceNoise):
    """Prices are shares of ρ. A person changes the counts by a vector of length at most ``rows``."""

    currency, mechanism, power, private = "rho", "discrete-gaussian", 1, True

    def draw(self, price: Fraction, n: int, keys: Keys) -> Ints:
        return discrete_gaussian(self.rows**2 / (2 * price), n, keys)

    def variance(self, price: Fraction) -> float:
        return gaussian_variance(self.rows**2 / (2 * price))

    def sharpness(self, price: Fraction) -> float:
        return 2 * float(root_below(price)) / self.rows

    def pure(self, price: Fraction) -> Fraction:
        return root_below(2 * price)  # ε is ε²/2-concentrated

    def bounded(self, price: Fraction) -> Fraction:
        return root_below(8 * price)  # ε²/8, for its losses lie within ε of each other


class NoNoise(LaplaceNoise):
    """Exact counts, for non-private baselines."""

    currency, mechanism, power, private = "epsilon", "none", 2, False

    def draw(self, price: Fraction, n: int, keys: Keys) -> Ints:
        return np.zeros(n, np.int64)

    def variance(self, price: Fraction) -> float:
        return 0.0

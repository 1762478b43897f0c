"""Noise models: the noise that a price buys, for units of at most ``rows`` rows. Proof: proofs/measure.md."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from veilmap.arrays import Ints
from veilmap.method.method import Method, Noise
from veilmap.vault.entropy import Keys
from veilmap.vault.mechanisms.gaussian import concentrated, discrete_gaussian, gaussian_variance, root_below
from veilmap.vault.mechanisms.laplace import discrete_laplace, noise_variance


class LaplaceNoise:
    """Discrete Laplace noise. Prices are shares of ε. A unit changes disjoint counts by at most ``rows`` in all."""

    currency, mechanism, power, private = "epsilon", "discrete-laplace", 2, True

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def draw(self, price: Fraction, n: int, keys: Keys) -> Ints:
        return discrete_laplace(price / self.rows, n, keys)

    def variance(self, price: Fraction) -> float:
        return noise_variance(price / self.rows)

    def sharpness(self, price: Fraction) -> float:
        """Return the ε of Laplace noise of about the same variance."""
        return float(price / self.rows)

    def pure(self, price: Fraction) -> Fraction:
        """Return the ε with which any ε-private mechanism can be run for this price."""
        return price

    def bounded(self, price: Fraction) -> Fraction:
        """Return the ε with which an exponential mechanism can be run for this price."""
        return price


class GaussianNoise(LaplaceNoise):
    """Discrete Gaussian noise. Prices are shares of ρ. A unit changes counts by a vector of length at most ``rows``."""

    currency, mechanism, power, private = "rho", "discrete-gaussian", 1, True

    def draw(self, price: Fraction, n: int, keys: Keys) -> Ints:
        return discrete_gaussian(self.rows**2 / (2 * price), n, keys)

    def variance(self, price: Fraction) -> float:
        return gaussian_variance(self.rows**2 / (2 * price))

    def sharpness(self, price: Fraction) -> float:
        return 2 * float(root_below(price)) / self.rows

    def pure(self, price: Fraction) -> Fraction:
        return root_below(2 * price)  # an ε-private mechanism is ε²/2-zCDP

    def bounded(self, price: Fraction) -> Fraction:
        return root_below(8 * price)  # an exponential mechanism is ε²/8-zCDP: its losses span an interval of length ε


class NoNoise(LaplaceNoise):
    """Exact counts, for non-private baselines."""

    currency, mechanism, power, private = "epsilon", "none", 2, False

    def draw(self, price: Fraction, n: int, keys: Keys) -> Ints:
        return np.zeros(n, np.int64)

    def variance(self, price: Fraction) -> float:
        return 0.0


NOISE_MODELS: dict[Noise, type[LaplaceNoise]] = {
    Noise.DISCRETE_LAPLACE: LaplaceNoise,
    Noise.DISCRETE_GAUSSIAN: GaussianNoise,
    Noise.NONE: NoNoise,
}


def noise_and_budget(
    method: Method, epsilon: Fraction, delta: Fraction, rows_per_unit: int
) -> tuple[LaplaceNoise, Fraction]:
    """Return the noise model of a method and its budget: ε, or the ρ that implies (ε, δ)."""
    noise = NOISE_MODELS[method.noise](rows_per_unit)
    return noise, concentrated(epsilon, delta) if noise.currency == "rho" else epsilon

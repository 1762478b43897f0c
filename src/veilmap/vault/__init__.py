"""The trusted core. Read all of it in one sitting (AUDIT.md is the guide); trust nothing outside it.

Points enter through :func:`seal`; only a :class:`NoisyTree` comes out, through :func:`measure`.
"""

from veilmap.vault.budget_meter import BudgetMeter, Charge
from veilmap.vault.check import Check, GridPrediction, Residual
from veilmap.vault.measurement import Measured, measure, noise_and_budget
from veilmap.vault.mechanisms.density_test import decay
from veilmap.vault.mechanisms.laplace import noise_variance
from veilmap.vault.mechanisms.private_median import private_median
from veilmap.vault.noise_models import LaplaceNoise
from veilmap.vault.noisy_tree import NoisyTree
from veilmap.vault.sealed import Sealed, seal

__all__ = [
    "BudgetMeter",
    "Charge",
    "Check",
    "GridPrediction",
    "LaplaceNoise",
    "Measured",
    "NoisyTree",
    "Residual",
    "Sealed",
    "decay",
    "measure",
    "noise_and_budget",
    "noise_variance",
    "private_median",
    "seal",
]

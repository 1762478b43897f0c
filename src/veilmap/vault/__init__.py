"""The trusted core, which turns exact values into noisy ones. AUDIT.md is the guide to reading it.

Points enter through :func:`seal`. Only noisy numbers come out: a :class:`NoisyTree` and the answer of its
:class:`Check`, both from :func:`measure`, and the number that :func:`private_median` returns.
"""

from veilmap.vault.budget_meter import BudgetMeter, Charge
from veilmap.vault.check import Check, GridPrediction, Residual
from veilmap.vault.measurement import Measured, measure
from veilmap.vault.mechanisms.density_test import decay
from veilmap.vault.mechanisms.laplace import noise_variance
from veilmap.vault.mechanisms.private_median import private_median
from veilmap.vault.noise_models import LaplaceNoise, noise_and_budget
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

"""The trusted core. Read all of it in one sitting (AUDIT.md is the guide); trust nothing outside it.

Points enter through :func:`seal`; only a :class:`NoisyTree` comes out, through :func:`measure`.
"""

from veilmap.vault.dense import decay
from veilmap.vault.gate import NoisyTree, measure, price_of
from veilmap.vault.ledger import Charge, Ledger
from veilmap.vault.median import private_median
from veilmap.vault.noise import noise_variance
from veilmap.vault.price import LaplacePrice
from veilmap.vault.sealed import Sealed, seal

__all__ = [
    "Charge",
    "LaplacePrice",
    "Ledger",
    "NoisyTree",
    "Sealed",
    "decay",
    "measure",
    "noise_variance",
    "price_of",
    "private_median",
    "seal",
]

"""The trusted core. Read all of it in one sitting (AUDIT.md is the guide); trust nothing outside it.

Points enter through :func:`seal`; only a :class:`NoisyTree` comes out, through :func:`measure`.
"""

from veilmap.vault.gate import NoisyTree, measure
from veilmap.vault.ledger import Charge, Ledger
from veilmap.vault.median import private_median
from veilmap.vault.noise import noise_variance
from veilmap.vault.sealed import Sealed, seal

__all__ = ["Charge", "Ledger", "NoisyTree", "Sealed", "measure", "noise_variance", "private_median", "seal"]

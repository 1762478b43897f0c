"""Who spent how much. Exact rationals, so that nothing is lost to rounding. Proof: proofs/ledger.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from veilmap.errors import BudgetSpent


@dataclass(frozen=True, slots=True)
class Charge:
    """One step of a release that looked at the data."""

    what: str
    mechanism: str
    epsilon: Fraction


class Ledger:
    """The epsilon of one release. Every step is charged here before it draws its noise.

    Guarantees:

    - The charges never add up to more than the total (sequential composition).
    - A charge that does not fit is refused before anything is computed.
    """

    def __init__(self, epsilon: Fraction) -> None:
        self._left = epsilon
        self._charges: list[Charge] = []

    @property
    def left(self) -> Fraction:
        return self._left

    @property
    def charges(self) -> tuple[Charge, ...]:
        return tuple(self._charges)

    def charge(self, what: str, mechanism: str, epsilon: Fraction) -> None:
        """Pay for one set of disjoint nodes, each point in at most one of them."""
        if not isinstance(epsilon, Fraction) or epsilon <= 0:
            raise BudgetSpent(f"{what}: a measurement must cost more than epsilon=0, got {float(epsilon):.4g}.")
        if epsilon > self._left:
            raise BudgetSpent(
                f"{what} needs epsilon={float(epsilon):.4g} but only {float(self._left):.4g} is left: "
                f"give the release a larger epsilon or its levels smaller shares."
            )
        self._left -= epsilon
        self._charges.append(Charge(what, mechanism, epsilon))

"""The budget of one release, in exact fractions that never round. Proof: proofs/budget_meter.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from veilmap.errors import BudgetSpent


@dataclass(frozen=True, slots=True)
class Charge:
    """The price of one question to the rows: ε, or ρ in a concentrated release, and possibly δ."""

    what: str
    mechanism: str
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)


class BudgetMeter:
    """The budget of one release. Every question is charged here before its noise is drawn.

    Guarantees:

    - The charges never add up to more than the total (sequential composition), and their δ to no more than its total.
    - A charge that does not fit is refused before anything is computed.
    """

    def __init__(self, total: Fraction, delta: Fraction = Fraction(0), currency: str = "epsilon") -> None:
        self._left, self._delta_left, self._currency = total, delta, currency
        self._charges: list[Charge] = []

    @property
    def left(self) -> Fraction:
        return self._left

    @property
    def charges(self) -> tuple[Charge, ...]:
        return tuple(self._charges)

    def charge(self, what: str, mechanism: str, price: Fraction, delta: Fraction = Fraction(0)) -> None:
        """Pay for one question, or raise and leave the budget as it was."""
        if not isinstance(price, Fraction) or price <= 0:
            raise BudgetSpent(f"{what}: a measurement must cost more than {self._currency}=0, got {float(price):.4g}.")
        if price > self._left:
            raise BudgetSpent(
                f"{what} needs {self._currency}={float(price):.4g} but only {float(self._left):.4g} is left. "
                f"Give the release a larger epsilon or its levels smaller shares."
            )
        if not isinstance(delta, Fraction) or not 0 <= delta <= self._delta_left:
            raise BudgetSpent(
                f"{what} needs delta={float(delta):.4g} but only {float(self._delta_left):.4g} is left. "
                f"Give the release a larger delta."
            )
        self._left -= price
        self._delta_left -= delta
        self._charges.append(Charge(what, mechanism, delta=delta, **{self._currency: price}))

"""What a release promises, and what was spent on what."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from veilmap.vault import Charge


@dataclass(frozen=True, slots=True)
class Privacy:
    """The promise of one release: what no reader of it can find out, however clever or well informed."""

    epsilon: Fraction
    ledger: tuple[Charge, ...]
    private: bool  # False: for tests and studies only, made with fixed random bits or with something exact
    delta: Fraction = Fraction(0)
    rho: Fraction | None = None  # when the noise is Gaussian: what the charges add up to
    neighbours: str = "add or remove one unit"
    unit: str = "one row"

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that looked at the data."""
        return tuple(dict.fromkeys(charge.mechanism for charge in self.ledger))

    @property
    def spent(self) -> Fraction:
        """What the charges add up to: of ε, or of ρ when the noise is Gaussian."""
        return sum((charge.epsilon + charge.rho for charge in self.ledger), Fraction(0))

    def statement(self) -> str:
        """The promise in words."""
        if not self.private:
            return (
                "NOT PRIVATE. This release was made for a test or a study, with random bits that can be drawn again "
                "or with something exact in it. Do not publish it."
            )
        epsilon, who = float(self.epsilon), self.unit.partition(" (")[0].removeprefix("one ")
        name = f"{epsilon:g}" if not self.delta else f"({epsilon:g}, {float(self.delta):g})"
        but = f", except with a probability of about {float(self.delta):g}" if self.delta else ""
        return (
            f"This release is {name}-differentially private for {self.unit}: whatever anyone concludes from it, "
            f"they would have concluded with a probability at most e^{epsilon:g} = {math.exp(epsilon):.3g} times lower "
            f"or higher had any {who} been left out or put in{but}."
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "private": self.private,
            "epsilon": float(self.epsilon),
            "epsilon_exact": str(self.epsilon),
            "delta": float(self.delta),
            "delta_exact": str(self.delta),
            "rho": None if self.rho is None else float(self.rho),
            "rho_exact": None if self.rho is None else str(self.rho),
            "neighbours": self.neighbours,
            "unit": self.unit,
            "mechanisms": list(self.mechanisms),
            "statement": self.statement(),
            "ledger": [_charge_to_json(charge) for charge in self.ledger],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Privacy:
        rho = record.get("rho_exact")
        return cls(
            epsilon=Fraction(record["epsilon_exact"]),
            ledger=tuple(_charge_from_json(charge) for charge in record["ledger"]),
            private=record["private"],
            delta=Fraction(record.get("delta_exact") or str(record["delta"])),
            rho=None if rho is None else Fraction(rho),
            neighbours=record["neighbours"],
            unit=record["unit"],
        )


def _charge_to_json(charge: Charge) -> dict[str, Any]:
    """Its ε, or its ρ; and its δ if it has one."""
    out: dict[str, Any] = {"what": charge.what, "mechanism": charge.mechanism}
    for name in ("epsilon", "rho", "delta"):
        if amount := getattr(charge, name):
            out |= {name: float(amount), f"{name}_exact": str(amount)}
    return out


def _charge_from_json(record: Mapping[str, Any]) -> Charge:
    amounts = {name: Fraction(record.get(f"{name}_exact", 0)) for name in ("epsilon", "rho", "delta")}
    return Charge(record["what"], record["mechanism"], **amounts)

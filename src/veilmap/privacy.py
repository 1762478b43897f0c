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
    private: bool  # False: made with fixed random bits, for tests and studies only
    delta: Fraction = Fraction(0)
    neighbours: str = "add or remove one unit"
    unit: str = "one row"

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that looked at the data."""
        return tuple(dict.fromkeys(charge.mechanism for charge in self.ledger))

    @property
    def spent(self) -> Fraction:
        return sum((charge.epsilon for charge in self.ledger), Fraction(0))

    def statement(self) -> str:
        """The promise in words."""
        if not self.private:
            return (
                "NOT PRIVATE. This release was made for a test or a study, with random bits that can be drawn again. "
                "Do not publish it."
            )
        epsilon = float(self.epsilon)
        return (
            f"This release is {epsilon:g}-differentially private for {self.unit}: whatever anyone concludes from it, "
            f"they would have concluded with a probability at most e^{epsilon:g} = {math.exp(epsilon):.3g} times lower "
            f"or higher had any {self.unit} been left out or put in."
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "private": self.private,
            "epsilon": float(self.epsilon),
            "epsilon_exact": str(self.epsilon),
            "delta": float(self.delta),
            "neighbours": self.neighbours,
            "unit": self.unit,
            "mechanisms": list(self.mechanisms),
            "statement": self.statement(),
            "ledger": [
                {
                    "what": c.what,
                    "mechanism": c.mechanism,
                    "epsilon": float(c.epsilon),
                    "epsilon_exact": str(c.epsilon),
                }
                for c in self.ledger
            ],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Privacy:
        return cls(
            epsilon=Fraction(record["epsilon_exact"]),
            ledger=tuple(Charge(c["what"], c["mechanism"], Fraction(c["epsilon_exact"])) for c in record["ledger"]),
            private=record["private"],
            delta=Fraction(str(record["delta"])),
            neighbours=record["neighbours"],
            unit=record["unit"],
        )

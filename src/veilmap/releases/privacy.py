"""What a release promises, and what was spent on what."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from veilmap.validation import exact_delta, exact_epsilon, exact_number
from veilmap.vault import Charge

FRACTION = re.compile(r"\d{1,1000}(/\d{1,1000})?", re.ASCII)
UNIT = re.compile(r"one .+ \((\d{1,9}) rows at most\)", re.ASCII)
NEIGHBOURS = "add or remove one unit"
"""How data sets differ that nobody can tell apart: the one relation that every proof is for."""
LONGEST = 10**1000
"""What nobody's shares have for a denominator."""
RELATIVE_TOLERANCE = 1e-6
"""By how much, relatively, a price that was computed with floats may exceed an exact one: far more than rounding."""


@dataclass(frozen=True, slots=True)
class Privacy:
    """The promise of one release: what no reader of it can find out, however clever or well informed."""

    epsilon: Fraction
    ledger: tuple[Charge, ...]
    private: bool  # False: for tests and studies only, made with fixed random bits or with something exact
    delta: Fraction = Fraction(0)
    rho: Fraction | None = None  # when the noise is Gaussian: what the charges add up to
    neighbours: str = NEIGHBOURS
    unit: str = "one row"

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that looked at the data."""
        return tuple(dict.fromkeys(charge.mechanism for charge in self.ledger))

    @property
    def spent(self) -> Fraction:
        """What the charges add up to: of ε, or of ρ when the noise is Gaussian."""
        return sum((charge.epsilon + charge.rho for charge in self.ledger), Fraction(0))

    @property
    def rows_per_unit(self) -> int:
        """The most rows that one unit has in the release; ValueError if its name does not say so."""
        if self.unit == "one row":
            return 1
        stated = UNIT.fullmatch(self.unit)
        if stated is None or int(stated[1]) < 1:
            raise ValueError("A unit is one row, or has a stated number of rows at most.")
        return int(stated[1])

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
        """What a file states; ValueError if no release can: anyone can write a file."""
        delta, rho = record.get("delta_exact") or record["delta"], record.get("rho_exact")
        delta = _amount(delta) if isinstance(delta, str) else exact_number(delta)
        privacy = cls(
            epsilon=exact_epsilon(_amount(record["epsilon_exact"])),
            ledger=tuple(_charge_from_json(charge) for charge in record["ledger"]),
            private=record["private"],
            delta=delta and exact_delta(delta),
            rho=None if rho is None else _amount(rho),
            neighbours=record["neighbours"],
            unit=record["unit"],
        )
        must_be_text(privacy.neighbours, privacy.unit)
        if not isinstance(privacy.private, bool):
            raise ValueError("A release is private or not.")
        _must_be_in_budget(privacy)
        if privacy.private:
            _must_be_a_promise(privacy)
        return privacy


def must_be_text(*texts: object) -> None:
    """What is shown to people: no other than printable characters, which a terminal might obey."""
    if not all(isinstance(text, str) and text.isprintable() for text in texts):
        raise ValueError("A text is missing, or cannot be printed.")


def _must_be_in_budget(privacy: Privacy) -> None:
    """The charges add up to no more than is stated. Their sum has few digits, as they are parts of one budget."""
    spent, total = Fraction(0), privacy.epsilon if privacy.rho is None else privacy.rho
    for charge in privacy.ledger:
        spent += charge.epsilon + charge.rho
        if spent > total or spent.denominator > LONGEST:
            raise ValueError("A ledger spends more than there is, or nobody can tell.")


def _must_be_a_promise(privacy: Privacy) -> None:
    """Check what is promised, that the ledger is in one currency, and that its ρ buys such an (ε, δ)."""
    epsilon, delta, rho = float(privacy.epsilon), privacy.delta, privacy.rho
    if privacy.neighbours != NEIGHBOURS or not privacy.ledger:
        raise ValueError("A private release is for these neighbours, and something was paid for it.")
    if any(charge.rho if rho is None else charge.epsilon or charge.delta for charge in privacy.ledger):
        raise ValueError("A ledger is in epsilon or in rho.")
    if sum((charge.delta for charge in privacy.ledger), Fraction(0)) > delta:
        raise ValueError("A ledger spends more delta than there is.")
    if rho is not None and not (
        delta and float(rho) + 2 * math.sqrt(float(rho) * -math.log(delta)) <= epsilon * (1 + RELATIVE_TOLERANCE)
    ):
        raise ValueError("This rho does not buy such an epsilon and delta.")


def _charge_to_json(charge: Charge) -> dict[str, Any]:
    """Its ε, or its ρ; and its δ if it has one."""
    out: dict[str, Any] = {"what": charge.what, "mechanism": charge.mechanism}
    for name in ("epsilon", "rho", "delta"):
        if amount := getattr(charge, name):
            out |= {name: float(amount), f"{name}_exact": str(amount)}
    return out


def _charge_from_json(record: Mapping[str, Any]) -> Charge:
    amounts = {name: _amount(record.get(f"{name}_exact", "0")) for name in ("epsilon", "rho", "delta")}
    must_be_text(record["what"], record["mechanism"])
    return Charge(record["what"], record["mechanism"], **amounts)


def _amount(text: str) -> Fraction:
    """A fraction as it is written in a file."""
    if not isinstance(text, str) or not FRACTION.fullmatch(text):
        raise ValueError("An amount is a fraction.")
    return Fraction(text)

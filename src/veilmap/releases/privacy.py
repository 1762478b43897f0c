"""The privacy guarantee of a release, and the charges that it is made of."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from veilmap.validation import exact_delta, exact_epsilon, exact_number
from veilmap.vault import Charge

FRACTION_PATTERN = re.compile(r"\d{1,1000}(/\d{1,1000})?", re.ASCII)
UNIT_PATTERN = re.compile(r"one .+ \((\d{1,9}) rows at most\)", re.ASCII)
NEIGHBOURING_RELATION = "add or remove one unit"
"""How neighbouring data sets differ: the only relation that the proofs cover."""
MAX_DENOMINATOR = 10**1000
"""Of the sum of charges: larger ones are not from a release, and would make the sum slow."""
RELATIVE_TOLERANCE = 1e-6
"""By which a price computed with floats may exceed the exact one: far more than rounding."""


@dataclass(frozen=True, slots=True)
class Privacy:
    """The privacy guarantee of one release, with the charges that add up to it.

    Examples
    --------
    >>> release = vm.release(points, domain, epsilon=0.5, method="quad-opt", height=2)
    >>> release.privacy.epsilon, release.privacy.unit
    (Fraction(1, 2), 'one row')
    >>> release.privacy.spent <= release.privacy.epsilon
    True
    >>> print(release.privacy.statement())
    This release is 0.5-differentially private for one row. Any conclusion drawn from it is at most 1.65 (e^0.5) times
    more or less likely than if any one row had been left out.
    """

    epsilon: Fraction
    ledger: tuple[Charge, ...]
    private: bool  # False for tests and studies: the random bits are known, or something exact is published
    delta: Fraction = Fraction(0)
    rho: Fraction | None = None  # sum of the charges if the noise is Gaussian
    neighbours: str = NEIGHBOURING_RELATION
    unit: str = "one row"

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Names of the mechanisms that read the data."""
        return tuple(dict.fromkeys(charge.mechanism for charge in self.ledger))

    @property
    def spent(self) -> Fraction:
        """Sum of the charges: ε, or ρ if the noise is Gaussian."""
        return sum((charge.epsilon + charge.rho for charge in self.ledger), Fraction(0))

    @property
    def rows_per_unit(self) -> int:
        """Maximum number of rows per unit. Raise ``ValueError`` if the unit does not state it."""
        if self.unit == "one row":
            return 1
        stated = UNIT_PATTERN.fullmatch(self.unit)
        if stated is None or int(stated[1]) < 1:
            raise ValueError("A unit is one row, or states its maximum number of rows.")
        return int(stated[1])

    def statement(self) -> str:
        """Return the guarantee in words."""
        if not self.private:
            return (
                "NOT PRIVATE. This release was made for a test or a study: its random bits are known, or it contains "
                "exact values. Do not publish it."
            )
        epsilon, who = float(self.epsilon), self.unit.partition(" (")[0].removeprefix("one ")
        name = f"{epsilon:g}" if not self.delta else f"({epsilon:g}, {float(self.delta):g})"
        exception = f", except with a probability of about {float(self.delta):g}" if self.delta else ""
        return (
            f"This release is {name}-differentially private for {self.unit}. Any conclusion drawn from it is at most "
            f"{math.exp(epsilon):.3g} (e^{epsilon:g}) times more or less likely than if any one {who} had been left "
            f"out{exception}."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the guarantee as it is stored in a release file."""
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
        """Read the guarantee that a file states. Raise ``ValueError`` if no release can have it."""
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
            _must_be_a_guarantee(privacy)
        return privacy


def must_be_text(*texts: object) -> None:
    """Check that texts are printable: control characters could drive a terminal."""
    if not all(isinstance(text, str) and text.isprintable() for text in texts):
        raise ValueError("A text is missing, or is not printable.")


def _must_be_in_budget(privacy: Privacy) -> None:
    """Check that the charges add up to no more than the stated budget."""
    spent, total = Fraction(0), privacy.epsilon if privacy.rho is None else privacy.rho
    for charge in privacy.ledger:
        spent += charge.epsilon + charge.rho
        if spent > total or spent.denominator > MAX_DENOMINATOR:
            raise ValueError("The charges exceed the budget, or have too many digits.")


def _must_be_a_guarantee(privacy: Privacy) -> None:
    """Check the neighbouring relation, that all charges have one currency, and that ρ implies the stated (ε, δ)."""
    epsilon, delta, rho = float(privacy.epsilon), privacy.delta, privacy.rho
    if privacy.neighbours != NEIGHBOURING_RELATION or not privacy.ledger:
        raise ValueError("A private release has this neighbouring relation and at least one charge.")
    if any(charge.rho if rho is None else charge.epsilon or charge.delta for charge in privacy.ledger):
        raise ValueError("The charges must all be in epsilon or all in rho.")
    if sum((charge.delta for charge in privacy.ledger), Fraction(0)) > delta:
        raise ValueError("The charges exceed delta.")
    if rho is not None and not (
        delta and float(rho) + 2 * math.sqrt(float(rho) * -math.log(delta)) <= epsilon * (1 + RELATIVE_TOLERANCE)
    ):
        raise ValueError("This rho does not imply the stated epsilon and delta.")


def _charge_to_json(charge: Charge) -> dict[str, Any]:
    """Return a charge with those of its ε, ρ and δ that are not 0."""
    record: dict[str, Any] = {"what": charge.what, "mechanism": charge.mechanism}
    for name in ("epsilon", "rho", "delta"):
        if amount := getattr(charge, name):
            record |= {name: float(amount), f"{name}_exact": str(amount)}
    return record


def _charge_from_json(record: Mapping[str, Any]) -> Charge:
    amounts = {name: _amount(record.get(f"{name}_exact", "0")) for name in ("epsilon", "rho", "delta")}
    must_be_text(record["what"], record["mechanism"])
    return Charge(record["what"], record["mechanism"], **amounts)


def _amount(text: str) -> Fraction:
    """Read a fraction from the text in a file."""
    if not isinstance(text, str) or not FRACTION_PATTERN.fullmatch(text):
        raise ValueError("An amount must be a fraction.")
    return Fraction(text)

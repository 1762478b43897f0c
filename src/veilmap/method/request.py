"""What a caller asks for, checked: the same for a release, a plan and an audit. All of it is public."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

from veilmap.budgets import Budget
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.method.method import Method, Noise, PostProcessing
from veilmap.method.registry import DEFAULT_METHOD
from veilmap.method.resolve import checked_delta, resolve
from veilmap.method.resources import must_fit
from veilmap.validation import exact_epsilon

MAX_ROWS_PER_UNIT = 10**6


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """A method, its privacy budget, and how many rows of one unit count."""

    method: Method
    epsilon: Fraction
    delta: Fraction  # 0 for a pure guarantee
    max_rows_per_unit: int | None  # None when single rows are protected

    @classmethod
    def of(
        cls,
        epsilon: object,
        method: str | Method = DEFAULT_METHOD,
        *,
        height: int | None = None,
        prune: float | None = None,
        delta: object = None,
        sample: object = None,
        noise: str | Noise | None = None,
        estimate: str | PostProcessing | None = None,
        budget: Budget | None = None,
        options: Mapping[str, object] | None = None,
        max_rows_per_unit: int | None = None,
    ) -> Self:
        """Check the arguments that ``vm.release``, ``vm.plan`` and ``vm.audit`` share."""
        exact = exact_epsilon(epsilon)
        chosen = resolve(method, height, prune, sample, noise, budget, options, estimate)
        rows = max_rows_per_unit
        if rows is not None and not (type(rows) is int and 1 <= rows <= MAX_ROWS_PER_UNIT):
            raise BadInput(f"max_rows_per_unit is a whole number from 1 to {MAX_ROWS_PER_UNIT}, got {rows!r}.")
        return cls(chosen, exact, checked_delta(chosen, delta), rows)

    def settled(self, domain: Domain) -> Self:
        """Return the request with a height that fits the domain; refuse a tree that would not fit in memory."""
        method = replace(self.method, structure=self.method.structure.settled(domain))
        must_fit(method, domain)
        return replace(self, method=method)

    @property
    def rows_per_unit(self) -> int:
        """How many rows of one protected unit count at most."""
        return self.max_rows_per_unit or 1

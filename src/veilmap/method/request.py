"""The checked arguments that a release, a plan and an audit share. All of them are public."""

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
from veilmap.validation import exact_epsilon, must_be_rows_per_unit


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """A method, its privacy budget, and the maximum number of rows per unit."""

    method: Method
    epsilon: Fraction
    delta: Fraction  # 0 for a pure guarantee
    max_rows_per_unit: int | None  # None if the unit is one row

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
        if max_rows_per_unit is not None:
            must_be_rows_per_unit(max_rows_per_unit)
        return cls(chosen, exact, checked_delta(chosen, delta), max_rows_per_unit)

    def settled(self, domain: Domain) -> Self:
        """Return the request with a height that fits the domain. Refuse a tree that does not fit in memory."""
        if not isinstance(domain, Domain):
            raise BadInput(
                f"The domain must be a veilmap.Domain, got {type(domain).__name__}. It is never computed from the data."
            )
        method = replace(self.method, structure=self.method.structure.settled(domain))
        must_fit(method, domain)
        return replace(self, method=method)

    @property
    def rows_per_unit(self) -> int:
        """Maximum number of rows per protected unit."""
        return self.max_rows_per_unit or 1

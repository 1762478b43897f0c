"""The matching rule that two parties agree on: the domain, the rounding steps and the thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.kernels.counting import find_cells
from veilmap.validation import exact_number

MAX_STEPS_PER_AXIS = 1 << 22
DEFAULT_LOST = Fraction(1, 100)
STEPS_PER_THRESHOLD = 10  # for the default step, if the threshold is not a whole number


@dataclass(frozen=True)
class Rule:
    """A matching rule: values are rounded to whole steps, and records match if they are close along every axis.

    ``apart`` is the largest difference in steps, per axis. Boxes have spare slots, so that a party expects to leave out
    at most the fraction ``lost`` of its records because noise gave their box too few slots. With ``lost`` = 1 there are
    no spare slots.
    """

    domain: Domain
    apart: tuple[int, ...]  # in steps, one per axis
    steps: tuple[Fraction, ...]
    lost: Fraction = DEFAULT_LOST

    @classmethod
    def of(
        cls,
        domain: Domain,
        thresholds: Sequence[object],
        steps: Sequence[object] | None = None,
        lost: object = DEFAULT_LOST,
    ) -> Rule:
        """Return a rule from exact numbers. The default step is 1 if the threshold is whole, else a tenth of it."""
        if not isinstance(domain, Domain):
            raise BadInput(f"The domain must be a veilmap.Domain, got {type(domain).__name__}.")
        names = ", ".join(domain.names)
        limits = [_number(limit) for limit in _listed(thresholds)]
        if len(limits) != domain.dimensions or any(limit is None or limit < 0 for limit in limits):
            raise BadInput(f"Give one threshold of 0 or more for each of {names}; got {thresholds!r}.")
        requested = [None] * domain.dimensions if steps is None else _listed(steps)
        sizes = [
            _default_step(limit) if step is None else _number(step)
            for limit, step in zip(limits, requested, strict=False)
        ]
        if len(requested) != domain.dimensions or any(size is None or not 0 < size < 1e300 for size in sizes):
            raise BadInput(f"Give one step above 0 for each of {names}; got {steps!r}.")
        for axis, limit, size in zip(domain.axes, limits, sizes, strict=True):
            if (limit / size).denominator != 1:
                raise BadInput(f"The threshold of {axis.name} must be a multiple of its step, got {limit} and {size}.")
            if Fraction(axis.hi) - Fraction(axis.lo) > size * MAX_STEPS_PER_AXIS:
                raise BadInput(
                    f"The axis {axis.name} has more than {MAX_STEPS_PER_AXIS:,} steps of {float(size):g}. "
                    f"Choose a larger step."
                )
        fraction = _number(lost)
        if fraction is None or not 0 < fraction <= 1:
            raise BadInput(
                f"The fraction of records that a party may lose must be above 0 and at most 1, got {lost!r}."
            )
        apart = (min(int(limit / size), MAX_STEPS_PER_AXIS) for limit, size in zip(limits, sizes, strict=True))
        return cls(domain, tuple(apart), tuple(sizes), fraction)

    @cached_property
    def first(self) -> Ints:
        """Return the lowest whole number of steps inside the domain, per axis."""
        return np.array([first for first, _ in self._rulers], np.int64)

    @cached_property
    def cells(self) -> tuple[Ints, ...]:
        """Return, per axis, the grid cell of each whole number of steps inside the domain, in ascending order."""
        return tuple(cells for _, cells in self._rulers)

    @cached_property
    def _rulers(self) -> list[tuple[int, Ints]]:
        return [self._ruler(a) for a in range(self.domain.dimensions)]

    def _ruler(self, a: int) -> tuple[int, Ints]:
        axis, step = self.domain.axes[a], self.steps[a]
        low, high = exact_number(axis.lo) / step, exact_number(axis.hi) / step  # the decimal numbers as typed
        first, last = -int(-low // 1), int(high // 1)
        if first > last:
            raise BadInput(
                f"The axis {axis.name} contains no multiple of its step {float(step):g}. Choose a smaller step."
            )
        values = np.clip(np.arange(first, last + 1) * float(step), axis.lo, axis.hi)
        cells = np.empty(len(values), np.int64)
        find_cells(values, axis.lo, axis.hi, self.domain.scale(a), self.domain.bits, cells)
        return first, cells

    def rounded(self, points: Floats) -> Ints:
        """Return each record as whole steps above ``first``, or -1 on all axes for a record outside the domain.

        Half a step is rounded up. At the ends of the domain, values are rounded to the nearest step inside.
        """
        inside = np.all((self.domain.lo <= points) & (points <= self.domain.hi), axis=1)
        with np.errstate(all="ignore"):
            steps = np.floor(points / np.array([float(step) for step in self.steps]) + 0.5) - self.first
        top = np.array([len(cells) - 1 for cells in self.cells])
        return np.where(inside[:, None], np.clip(steps, 0, top), -1).astype(np.int64)

    def points(self, records: Ints) -> Floats:
        """Return rounded records as points at their steps, NaN for records outside the domain."""
        axes = range(self.domain.dimensions)
        values = [
            np.clip((records[:, a] + self.first[a]) * float(self.steps[a]), self.domain.lo[a], self.domain.hi[a])
            for a in axes
        ]
        return np.where(records[:, :1] >= 0, np.stack(values, axis=1), np.nan)

    def to_json(self) -> dict[str, Any]:
        """Return the rule as both parties exchange it."""
        return {
            "domain": self.domain.to_json(),
            "steps": [str(step) for step in self.steps],
            "apart": list(self.apart),
            "lost": str(self.lost),
        }


def _listed(values: object) -> list[Any]:
    return list(values) if isinstance(values, Sequence | np.ndarray) and not isinstance(values, str) else []


def _number(value: object) -> Any:
    """Return the exact number as typed, or None if the value is not a number."""
    try:
        return None if isinstance(value, bool) else exact_number(value)
    except ValueError:
        return None


def _default_step(limit: Fraction) -> Fraction:
    return Fraction(1) if limit.denominator == 1 else limit / STEPS_PER_THRESHOLD

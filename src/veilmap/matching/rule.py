"""What two parties agree on before they match: which numbers, in which steps, how far apart at most."""

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

MOST_STEPS = 1 << 22
USUAL_LOST = Fraction(1, 100)
PARTS = 10  # of a threshold, in a step that was not given


@dataclass(frozen=True)
class Rule:
    """Numbers are rounded to whole steps; records match if along no axis they are more steps apart than allowed.

    Boxes have slots for their records and some to spare, so that a party expects to leave out no more than the part
    ``lost`` of its records because noise gave their box too few. With 1, there are none to spare.
    """

    domain: Domain
    apart: tuple[int, ...]  # in steps, one an axis
    steps: tuple[Fraction, ...]
    lost: Fraction = USUAL_LOST

    @classmethod
    def of(
        cls,
        domain: Domain,
        thresholds: Sequence[object],
        steps: Sequence[object] | None = None,
        lost: object = USUAL_LOST,
    ) -> Rule:
        """From numbers as typed. A step that is not given is 1 for a whole threshold, else a tenth of it."""
        if not isinstance(domain, Domain):
            raise BadInput(f"The domain must be a veilmap.Domain, got {type(domain).__name__}.")
        names = ", ".join(domain.names)
        limits = [_number(limit) for limit in _listed(thresholds)]
        if len(limits) != domain.dimensions or any(limit is None or limit < 0 for limit in limits):
            raise BadInput(f"Thresholds are one number of 0 or more for each of {names}, got {thresholds!r}.")
        given = [None] * domain.dimensions if steps is None else _listed(steps)
        sizes = [
            _usual_step(limit) if step is None else _number(step) for limit, step in zip(limits, given, strict=False)
        ]
        if len(given) != domain.dimensions or any(size is None or not 0 < size < 1e300 for size in sizes):
            raise BadInput(f"Steps are one number above 0 for each of {names}, got {steps!r}.")
        for axis, limit, size in zip(domain.axes, limits, sizes, strict=True):
            if (limit / size).denominator != 1:
                raise BadInput(f"The threshold of {axis.name} must be a multiple of its step, got {limit} and {size}.")
            if Fraction(axis.hi) - Fraction(axis.lo) > size * MOST_STEPS:
                raise BadInput(
                    f"The axis {axis.name} has more than {MOST_STEPS:,} steps of {float(size):g}: choose a larger step."
                )
        part = _number(lost)
        if part is None or not 0 < part <= 1:
            raise BadInput(f"The part of its records that a party may lose is above 0 and at most 1, got {lost!r}.")
        apart = (min(int(limit / size), MOST_STEPS) for limit, size in zip(limits, sizes, strict=True))
        return cls(domain, tuple(apart), tuple(sizes), part)

    @cached_property
    def first(self) -> Ints:
        """The lowest whole number of steps inside the domain, along each axis."""
        return np.array([first for first, _ in self._rulers], np.int64)

    @cached_property
    def cells(self) -> tuple[Ints, ...]:
        """The cell of each whole number of steps inside the domain, from the lowest on, for each axis."""
        return tuple(cells for _, cells in self._rulers)

    @cached_property
    def _rulers(self) -> list[tuple[int, Ints]]:
        return [self._ruler(a) for a in range(self.domain.dimensions)]

    def _ruler(self, a: int) -> tuple[int, Ints]:
        axis, step = self.domain.axes[a], self.steps[a]
        low, high = exact_number(axis.lo) / step, exact_number(axis.hi) / step  # as typed
        first, last = -int(-low // 1), int(high // 1)
        if first > last:
            raise BadInput(f"The axis {axis.name} has no whole step of {float(step):g}: choose a smaller step.")
        values = np.clip(np.arange(first, last + 1) * float(step), axis.lo, axis.hi)
        cells = np.empty(len(values), np.int64)
        find_cells(values, axis.lo, axis.hi, self.domain.scale(a), self.domain.bits, cells)
        return first, cells

    def rounded(self, points: Floats) -> Ints:
        """Each record in whole steps above the lowest inside its axis; all -1 for one outside the domain.

        Half a step is rounded up; near the ends of the domain, to the nearest step inside.
        """
        inside = np.all((self.domain.lo <= points) & (points <= self.domain.hi), axis=1)
        with np.errstate(all="ignore"):
            steps = np.floor(points / np.array([float(step) for step in self.steps]) + 0.5) - self.first
        top = np.array([len(cells) - 1 for cells in self.cells])
        return np.where(inside[:, None], np.clip(steps, 0, top), -1).astype(np.int64)

    def points(self, records: Ints) -> Floats:
        """Rounded records as points on their steps; NaN outside the domain."""
        axes = range(self.domain.dimensions)
        values = [
            np.clip((records[:, a] + self.first[a]) * float(self.steps[a]), self.domain.lo[a], self.domain.hi[a])
            for a in axes
        ]
        return np.where(records[:, :1] >= 0, np.stack(values, axis=1), np.nan)

    def to_json(self) -> dict[str, Any]:
        return {
            "domain": self.domain.to_json(),
            "steps": [str(step) for step in self.steps],
            "apart": list(self.apart),
            "lost": str(self.lost),
        }


def _listed(values: object) -> list[Any]:
    return list(values) if isinstance(values, Sequence | np.ndarray) and not isinstance(values, str) else []


def _number(value: object) -> Any:
    """Exactly as typed; None if it is none."""
    try:
        return None if isinstance(value, bool) else exact_number(value)
    except ValueError:
        return None


def _usual_step(limit: Fraction) -> Fraction:
    return Fraction(1) if limit.denominator == 1 else limit / PARTS

"""Rows that are not held in memory: every question reads all of them. Proof: proofs/counting.md."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from veilmap.arrays import Ints
from veilmap.domain import Domain
from veilmap.engines import Choose, Engine
from veilmap.engines.tally import Count, Place, Step, Walk
from veilmap.vault.entropy import Keys
from veilmap.vault.mechanisms.sampling import poisson
from veilmap.vault.rows import Rows


class Stream:
    """An engine that streams the rows, and the steps of each row from the root. Its counts equal those of ``Rows``."""

    __slots__ = ("_domain", "_engine", "_order", "_progress", "_steps")

    def __init__(
        self, engine: Engine, domain: Domain, progress: Callable[[float], None], order: int | None = None
    ) -> None:
        self._engine, self._domain, self._progress, self._order = engine, domain, progress, order
        self._steps: tuple[Step, ...] = ()

    def in_order(self) -> Stream:
        return self

    def along(self, order: int, bits: int) -> Stream:
        """Return the stream with a single axis: the place along a Hilbert curve."""
        return Stream(self._engine, self._domain, self._progress, order)

    def follow(self, step: Step) -> None:
        """Add a step for later questions. A ``Place`` starts from the root, so it replaces all earlier steps."""
        self._steps = (step,) if isinstance(step, Place) else (*self._steps, step)

    def tally(self, count: Count) -> Ints:
        """Return the exact counts of a question."""
        return self._engine.tally(self._domain, Walk(self._steps, count, self._order), self._progress)

    def sampled(self, rate: Fraction, keys: Keys) -> Rows:
        """Return a Poisson sample, in memory."""
        return self._loaded(lambda rows: poisson(rate, rows, keys))

    def loaded(self) -> Rows:
        """Return all rows in memory, which medians require."""
        return self._loaded(None)

    def _loaded(self, choose: Choose | None) -> Rows:
        rows, domain = Rows(*self._engine.rows(self._domain, self._progress, choose)), self._domain
        rows = rows.in_order() if domain.dimensions == 1 else rows
        rows = rows if self._order is None else rows.along(self._order, domain.bits)
        for step in self._steps:
            rows.follow(step)
        return rows

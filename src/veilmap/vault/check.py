"""A second question about a finished tree, paid for in advance and answered once. Proof: proofs/residuals.md."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Never, TypeAlias

from veilmap.arrays import Ints
from veilmap.errors import BadInput
from veilmap.trees import Parts
from veilmap.vault.arguments import plain
from veilmap.vault.sealed import silenced

GridPrediction: TypeAlias = tuple[Parts, Ints, Ints]
"""A grid over the domain, which box each of its cells belongs to, and the count that is expected in each box."""
Residual: TypeAlias = tuple[int, float]
"""A noisy sum of |count − expected count| over the boxes of a grid, and the variance of its noise."""


class Check:
    """Compares predictions with the rows: by how much all boxes of a grid are off, with noise.

    Its price was charged when the structure reserved it. It answers one call, and refuses every further one.
    """

    __slots__ = ("_answer", "_lock")

    def __init__(self, answer: Callable[[tuple[GridPrediction, ...]], tuple[Residual, ...]]) -> None:
        self._answer: Callable[[tuple[GridPrediction, ...]], tuple[Residual, ...]] | None = answer
        self._lock = Lock()

    def __call__(self, predictions: tuple[GridPrediction, ...]) -> tuple[Residual, ...]:
        with self._lock:
            answer, self._answer = self._answer, None
        if answer is None:
            raise BadInput("A check has one answer, and it has been given.")
        try:
            return answer(plain(predictions))
        except BaseException as error:
            failure = silenced(error)
        del answer
        raise failure

    def __reduce__(self) -> Never:
        raise TypeError("A check cannot be pickled or copied out of the vault.")

    def __copy__(self) -> Never:
        self.__reduce__()

    def __repr__(self) -> str:
        return "Check()"

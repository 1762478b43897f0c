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
"""A grid over the domain: its parts per axis, the box that each cell belongs to, and the expected count of each box."""
Residual: TypeAlias = tuple[int, float]
"""A noisy sum of |count − expected count| over the boxes of a grid, and the variance of its noise."""


class Check:
    """A one-shot comparison of predictions with the rows: a noisy sum of absolute residuals per grid.

    Its price was charged when the structure reserved it. It answers one call and refuses every further one.
    """

    __slots__ = ("_answer", "_lock")

    def __init__(self, answer: Callable[[tuple[GridPrediction, ...]], tuple[Residual, ...]]) -> None:
        self._answer: Callable[[tuple[GridPrediction, ...]], tuple[Residual, ...]] | None = answer
        self._lock = Lock()

    def __call__(self, predictions: tuple[GridPrediction, ...]) -> tuple[Residual, ...]:
        with self._lock:
            answer, self._answer = self._answer, None
        if answer is None:
            raise BadInput("This check has been used already. A check can be called only once.")
        try:
            return answer(plain(predictions))
        except BaseException as error:
            failure = silenced(error)
        del answer  # the traceback of the error keeps this frame, and the answer holds the rows
        raise failure

    def __reduce__(self) -> Never:
        raise TypeError("A check cannot be pickled or copied out of the vault.")

    def __copy__(self) -> Never:
        self.__reduce__()

    def __repr__(self) -> str:
        return "Check()"

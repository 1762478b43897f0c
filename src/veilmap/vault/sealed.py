"""Points that can be measured but not read. Proof: proofs/sealed.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Never

from veilmap.arrays import Ints
from veilmap.domain import Domain
from veilmap.engines import Engine, HeldRows, open_points
from veilmap.engines.tally import Question
from veilmap.errors import BadInput, VaultFailure, VeilmapError
from veilmap.validation import must_be_rows_per_unit

Progress = Callable[[float], None]


class Sealed:
    """The points of one data set. It has no length, no iteration, no pickle, and prints only the public domain."""

    __slots__ = ("_engine", "domain", "has_units", "max_rows_per_unit")

    def __init__(self, engine: Engine, domain: Domain, max_rows_per_unit: int | None = None) -> None:
        self._engine, self.domain = engine, domain
        self.max_rows_per_unit = max_rows_per_unit or 1  # enforced by the engine if it can, or else ...
        self.has_units = (
            max_rows_per_unit is not None and not engine.limits_rows_per_unit
        )  # ... by the vault, from each row's unit

    @property
    def again(self) -> bool:
        """Whether the points can be read more than once."""
        return self._engine.rereadable

    def __repr__(self) -> str:
        return f"Sealed({self.domain})"

    def __reduce__(self) -> Never:
        raise TypeError("Sealed points cannot be pickled or copied out of the vault.")

    def __copy__(self) -> Never:
        self.__reduce__()

    def _tally(self, question: Question, progress: Progress) -> Ints:
        """Return exact counts, for use inside the vault only."""
        return self._engine.tally(self.domain, question, progress)

    def _rows(self, progress: Progress) -> tuple[list[Ints], Ints | None]:
        """Return the cells of all rows and the unit of each row, for use inside the vault only."""
        return self._engine.rows(self.domain, progress)

    def _held(self, progress: Progress) -> HeldRows:
        """Return the cells of all rows, or an engine that streams them, for use inside the vault only."""
        return self._engine.hold(self.domain, progress)


def seal(points: object, domain: Domain, unit: object = None, max_rows_per_unit: int | None = None) -> Sealed:
    """Seal points, which then leave only as noisy numbers.

    Opening reads schemas and headers, to refuse unreadable input early, but no rows. With a ``unit`` (the column that
    says which unit a row belongs to), neighbours differ by a whole unit, and at most ``max_rows_per_unit`` of its rows
    are used.
    """
    if (unit is None) != (max_rows_per_unit is None):
        raise BadInput("To protect people with many rows, give unit= and max_rows_per_unit= together, or neither.")
    if max_rows_per_unit is not None:
        must_be_rows_per_unit(max_rows_per_unit)
    try:
        return Sealed(open_points(points, domain, unit, max_rows_per_unit), domain, max_rows_per_unit)
    except BaseException as error:
        failure = silenced(error)
    del points, unit  # the traceback of the error keeps this frame
    raise failure


def silenced(error: BaseException) -> BaseException:
    """Return an error that may leave the vault: veilmap's own errors and interrupts as they are, others by type only.

    Tracebacks and causes are removed, because their frames hold the data.
    """
    if isinstance(error, Exception) and not isinstance(error, VeilmapError):
        error = VaultFailure(
            f"The work failed with {type(error).__name__} while the data was open. Details are withheld because they "
            "may contain data."
        )
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)

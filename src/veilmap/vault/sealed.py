"""Points that cannot be looked at, only measured. Proof: proofs/sealed.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Never

from veilmap.arrays import Ints
from veilmap.domain import Domain
from veilmap.engines import Engine, HeldRows, open_points
from veilmap.engines.tally import Question
from veilmap.errors import BadInput, VaultFailure, VeilmapError

Progress = Callable[[float], None]

MOST_ROWS = 10**6


class Sealed:
    """The points of one data set. No length, no iteration, no pickle, nothing to print."""

    __slots__ = ("_engine", "domain", "has_units", "most_rows")

    def __init__(self, engine: Engine, domain: Domain, most_rows: int | None = None) -> None:
        self._engine, self.domain = engine, domain
        self.most_rows = most_rows or 1  # of a unit: no more are looked at, which the engine sees to or ...
        self.has_units = (
            most_rows is not None and not engine.limits_rows_per_unit
        )  # ... the vault, which tells units apart

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
        """Exact counts: for the vault alone."""
        return self._engine.tally(self.domain, question, progress)

    def _rows(self, progress: Progress) -> tuple[list[Ints], Ints | None]:
        """The cells of all rows, and whose each is: for the vault alone."""
        return self._engine.rows(self.domain, progress)

    def _held(self, progress: Progress) -> HeldRows:
        """The cells of all rows, or who asks them: for the vault alone."""
        return self._engine.hold(self.domain, progress)


def seal(points: object, domain: Domain, unit: object = None, most_rows: int | None = None) -> Sealed:
    """Take points in; they leave only as noisy counts.

    Opening reads schemas and headers, to refuse what cannot be read, and no more. With a ``unit``, the
    column of whose row it is, neighbours differ by a whole unit, of which ``most_rows`` are looked at.
    """
    if (unit is None) != (most_rows is None):
        raise BadInput(
            "People with many rows are protected by unit= and max_rows_per_unit= together: give both or none."
        )
    if most_rows is not None and not (type(most_rows) is int and 1 <= most_rows <= MOST_ROWS):
        raise BadInput(f"A unit may have 1 to {MOST_ROWS} rows, got max_rows_per_unit={most_rows!r}.")
    try:
        return Sealed(open_points(points, domain, unit, most_rows), domain, most_rows)
    except BaseException as error:
        failure = silenced(error)
    del points, unit  # the traceback of what is raised here keeps this frame
    raise failure


def silenced(error: BaseException) -> BaseException:
    """An error that may leave the vault: ours (and an interrupt) as it is, any other only by its kind.

    Without its traceback and its causes: their frames hold the data.
    """
    if isinstance(error, Exception) and not isinstance(error, VeilmapError):
        error = VaultFailure(
            f"The work failed with {type(error).__name__} while the data was open; no more is said of it."
        )
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)

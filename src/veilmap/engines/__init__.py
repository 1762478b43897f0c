"""Who counts. An engine sees raw points; all it is asked for is exact counts, and only by the vault."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol, TypeAlias

from veilmap.arrays import Ints
from veilmap.domain import Domain
from veilmap.engines.arrays import open_array
from veilmap.engines.batches import Choose
from veilmap.engines.tally import Question
from veilmap.errors import BadInput

__all__ = ["Choose", "Engine", "Held", "open_points"]


Held: TypeAlias = "list[Ints] | tuple[Engine, Domain]"
"""The cells of all rows; or, if they are many, an engine that can be asked again and again, by this domain."""


class Engine(Protocol):
    """One data set, wherever it lies."""

    @property
    def again(self) -> bool:
        """Whether it can be read more than once."""
        ...

    @property
    def bounded(self) -> bool:
        """Whether it looks at no more rows of a unit than ``most_rows`` by itself."""
        ...

    def tally(self, domain: Domain, question: Question, progress: Callable[[float], None]) -> Ints:
        """How many rows lie in each place of a question.

        Rows with a null, NaN, infinite or outside coordinate are dropped. ``progress`` is told which
        part of the input has been read, from 0 to 1, never how many rows.
        """
        ...

    def held(self, domain: Domain, progress: Callable[[float], None]) -> Held:
        """All rows, to be asked again and again."""
        ...

    def rows(
        self, domain: Domain, progress: Callable[[float], None], choose: Choose | None = None
    ) -> tuple[list[Ints], Ints | None]:
        """The cells of all rows that are not dropped, one array an axis, in the order of the input; and, where
        the points came with a unit, a code for each of these rows: from 0 on, equal if and only if the ids are.

        With a unit, rows without an id are dropped too. Of all these, ``choose`` takes some; of the units, with all
        their rows, if the engine is ``bounded`` and has them.
        """
        ...


def open_points(points: object, domain: Domain, unit: object = None, most_rows: int | None = None) -> Engine:
    """The engine for whatever a caller calls points.

    ``unit`` says whose each row is: the name of a column, or, for points without names, a list of ids. Of each,
    ``most_rows`` are looked at, if the engine is one that sees to it.
    """
    # pyarrow is loaded only for those who need it: arrays do not.
    if isinstance(points, str | os.PathLike):
        points = [points]
    if isinstance(points, list | tuple) and points and all(isinstance(p, str | os.PathLike) for p in points):
        from veilmap.engines.files import open_files

        return open_files(points, domain, _column_name(unit))
    if type(points).__module__.startswith("pyspark.sql."):
        from veilmap.engines.spark import open_frame

        return open_frame(points, domain, _column_name(unit), most_rows)
    if hasattr(points, "__arrow_c_stream__"):
        from veilmap.engines.tables import open_table

        return open_table(points, domain, _column_name(unit))
    return open_array(points, domain, unit)


def _column_name(unit: object) -> str | None:
    if unit is None or isinstance(unit, str):
        return unit
    raise BadInput(
        f"The unit of points in named columns is the name of one of them, got {type(unit).__name__}: "
        "add the ids to the points as a column, and give its name."
    )

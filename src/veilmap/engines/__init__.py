"""Engines read raw points and count them exactly. Only the vault may ask an engine for counts."""

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

__all__ = ["Choose", "Engine", "HeldRows", "open_points"]


HeldRows: TypeAlias = "list[Ints] | tuple[Engine, Domain]"
"""The cells of all rows; or, if they do not fit in memory, an engine that can be read repeatedly, and its domain."""


class Engine(Protocol):
    """One data set, in memory, in files or on a cluster."""

    @property
    def rereadable(self) -> bool:
        """Whether the data can be read more than once."""
        ...

    @property
    def limits_rows_per_unit(self) -> bool:
        """Whether the engine itself drops rows beyond ``max_rows_per_unit``."""
        ...

    def tally(self, domain: Domain, question: Question, progress: Callable[[float], None]) -> Ints:
        """Return the number of rows in each counter of a question.

        Rows with a null, NaN, infinite or outside coordinate are dropped. ``progress`` is called with the fraction of
        the input that has been read, from 0 to 1, and never with a number of rows.
        """
        ...

    def hold(self, domain: Domain, progress: Callable[[float], None]) -> HeldRows:
        """Return all rows in a form that can be counted repeatedly."""
        ...

    def rows(
        self, domain: Domain, progress: Callable[[float], None], choose: Choose | None = None
    ) -> tuple[list[Ints], Ints | None]:
        """Return the cells of all rows that are not dropped, and the unit codes of these rows.

        There is one array of cells per axis, in the order of the input. Codes are given if the points came with a unit:
        they start at 0, and are equal if and only if the ids are. With a unit, rows without an id are dropped too.

        ``choose`` takes a sample of these rows. An engine with ``limits_rows_per_unit`` samples units instead, each
        with all its rows, if there are units.
        """
        ...


def open_points(points: object, domain: Domain, unit: object = None, max_rows_per_unit: int | None = None) -> Engine:
    """Return the engine for points in any supported form.

    ``unit`` identifies the unit of each row: the name of a column, or a list of ids for points without column names.
    ``max_rows_per_unit`` matters only to an engine with ``limits_rows_per_unit``.
    """
    # Arrays do not need pyarrow, so it is loaded only for the other inputs.
    if isinstance(points, str | os.PathLike):
        points = [points]
    if isinstance(points, list | tuple) and points and all(isinstance(p, str | os.PathLike) for p in points):
        from veilmap.engines.files import open_files

        return open_files(points, domain, _column_name(unit))
    if type(points).__module__.startswith("pyspark.sql."):
        from veilmap.engines.spark import open_frame

        return open_frame(points, domain, _column_name(unit), max_rows_per_unit)
    if hasattr(points, "__arrow_c_stream__"):
        from veilmap.engines.tables import open_table

        return open_table(points, domain, _column_name(unit))
    return open_array(points, domain, unit)


def _column_name(unit: object) -> str | None:
    if unit is None or isinstance(unit, str):
        return unit
    raise BadInput(
        f"For points with named columns, the unit must be the name of one of the columns, got {type(unit).__name__}. "
        "Add the ids to the points as a column and give its name."
    )

"""Find the columns of a table that give the domain's axes and the unit of privacy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from veilmap.domain import Domain
from veilmap.engines.batches import Batch, Piece
from veilmap.engines.geometry import Geometry, column_to_floats, coordinates, must_be_points
from veilmap.engines.units import SIMPLE_ID_TYPES, id_type, read_ids
from veilmap.errors import UnreadableInput, near_misses

AXIS_ROLE = "an axis of the domain"
UNIT_ROLE = "the unit of privacy"


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table that are read.

    Each axis has a column of its name, or the first two axes come from a geometry. The unit has a column too.
    """

    names: tuple[str, ...]
    geometry: str | None = None
    unit: str | None = None
    id_type: pa.DataType | None = None  # of the unit

    @property
    def needed(self) -> list[str]:
        """The columns to read, without duplicates."""
        return list(dict.fromkeys(name for name in (self.geometry, *self.names, self.unit) if name is not None))

    def read(self, rows: pa.RecordBatch | pa.Table) -> Piece:
        from_geometry = () if self.geometry is None else coordinates(rows.column(self.geometry))
        ids = None if self.unit is None else read_ids(rows.column(self.unit))
        return Piece([*from_geometry, *(column_to_floats(rows.column(name)) for name in self.names)], ids)

    def batch(self, rows: pa.RecordBatch | pa.Table) -> Batch:
        """Return a batch of rows that are in memory, to be converted to numbers on a worker thread."""
        return lambda: [self.read(rows)]


def lay_out(
    domain: Domain,
    input_name: str,
    schema: pa.Schema,
    geometry: Geometry | None,
    unit: str | None = None,
    names: Sequence[str] | None = None,
) -> Layout:
    """Find the axes and the unit among the columns of a schema, or raise an error that names the missing column.

    ``names`` are the columns that an error may list, if there are more than those of the schema.
    """
    axes, geometry_column = domain.names, None
    if geometry and domain.dimensions >= 2 and not set(domain.names) <= set(schema.names):
        must_be_points(geometry, schema, domain, input_name)
        axes, geometry_column = domain.names[2:], geometry.column
    names = schema.names if names is None else names
    for name in axes:
        _must_be_numbers(name, input_name, _find_type(name, AXIS_ROLE, input_name, schema, names))
    ids = None
    if unit is not None:
        ids = _must_be_ids(unit, input_name, _find_type(unit, UNIT_ROLE, input_name, schema, names))
    return Layout(axes, geometry_column, unit, ids)


def _find_type(name: str, role: str, input_name: str, schema: pa.Schema, names: Sequence[str]) -> pa.DataType:
    """Return the type of a column."""
    if name not in schema.names:
        raise UnreadableInput(f"{input_name} has no column {name!r}, which is {role}. {_list_columns(name, names)}")
    if schema.names.count(name) > 1:
        raise UnreadableInput(f"{input_name} has more than one column {name!r}. Rename all but the one you mean.")
    return schema.field(name).type


def _must_be_ids(name: str, input_name: str, kind: pa.DataType) -> pa.DataType:
    if (compared_as := id_type(kind)) is None:
        raise UnreadableInput(
            f"{input_name} must have {SIMPLE_ID_TYPES} in column {name!r}, which is {UNIT_ROLE}, got {kind}. "
            "Convert that column to text."
        )
    return compared_as


def _must_be_numbers(name: str, input_name: str, kind: pa.DataType) -> None:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    if not any(check(kind) for check in is_number):
        raise UnreadableInput(
            f"{input_name} must have numbers in column {name!r}, which is {AXIS_ROLE}, got {kind}. "
            "Convert that column to float."
        )


def _list_columns(name: str, names: Sequence[str]) -> str:
    """Return a hint that lists the columns.

    Names that look like numbers are the first row of a file without a header, so they are not shown.
    """
    if not names or any(re.match(r"\s*[-+.]?\d", known) for known in names):
        return "Its columns have no names. Name them, in a text file by a header in the first line."
    return near_misses(name, names)

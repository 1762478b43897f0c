"""Which columns of a table give the domain's axes, and whose a row is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from veilmap.domain import Domain
from veilmap.engines.batches import Batch, Piece
from veilmap.engines.geometry import Geometry, coordinates, must_be_points, numbers
from veilmap.engines.units import SIMPLE, id_type, read_ids
from veilmap.errors import UnreadableInput, near_misses

AXIS, UNIT = "an axis of the domain", "the unit of privacy"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each axis is, all in columns of their names or the first two in a geometry; and where the unit is."""

    names: tuple[str, ...]
    geometry: str | None = None
    unit: str | None = None
    id_type: pa.DataType | None = None  # of the unit

    @property
    def needed(self) -> list[str]:
        """The columns to read, each once."""
        return list(dict.fromkeys(name for name in (self.geometry, *self.names, self.unit) if name is not None))

    def read(self, rows: pa.RecordBatch | pa.Table) -> Piece:
        first = () if self.geometry is None else coordinates(rows.column(self.geometry))
        ids = None if self.unit is None else read_ids(rows.column(self.unit))
        return Piece([*first, *(numbers(rows.column(name)) for name in self.names)], ids)

    def batch(self, rows: pa.RecordBatch | pa.Table) -> Batch:
        """Rows already read, to be turned into numbers on a worker thread."""
        return lambda: [self.read(rows)]


def lay_out(
    domain: Domain,
    where: str,
    schema: pa.Schema,
    geometry: Geometry | None,
    unit: str | None = None,
    names: Sequence[str] | None = None,
) -> Layout:
    """Find the axes and the unit among the columns of a schema, or say what is missing.

    ``names`` are the columns that a sentence may list, if more than the schema's.
    """
    axes, place = domain.names, None
    if geometry and domain.dimensions >= 2 and not set(domain.names) <= set(schema.names):
        must_be_points(geometry, schema, domain, where)
        axes, place = domain.names[2:], geometry.column
    names = schema.names if names is None else names
    for name in axes:
        _must_be_numbers(name, where, _find(name, AXIS, where, schema, names))
    ids = None if unit is None else _must_be_ids(unit, where, _find(unit, UNIT, where, schema, names))
    return Layout(axes, place, unit, ids)


def _find(name: str, role: str, where: str, schema: pa.Schema, names: Sequence[str]) -> pa.DataType:
    """The type of a column."""
    if name not in schema.names:
        raise UnreadableInput(f"{where} has no column {name!r}, which is {role}. {_list(name, names)}")
    if schema.names.count(name) > 1:
        raise UnreadableInput(f"{where} has more than one column {name!r}: rename all but the one you mean.")
    return schema.field(name).type


def _must_be_ids(name: str, where: str, kind: pa.DataType) -> pa.DataType:
    if (found := id_type(kind)) is None:
        raise UnreadableInput(
            f"{where} must have {SIMPLE} in column {name!r}, which is {UNIT}, got {kind}: convert that column to text."
        )
    return found


def _must_be_numbers(name: str, where: str, kind: pa.DataType) -> None:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    if not any(check(kind) for check in is_number):
        raise UnreadableInput(
            f"{where} must have numbers in column {name!r}, which is {AXIS}, got {kind}: convert that column to float."
        )


def _list(name: str, names: Sequence[str]) -> str:
    """What there is instead. Names like numbers are the first row of a file without a header: not shown."""
    if not names or any(re.match(r"\s*[-+.]?\d", known) for known in names):
        return "Its columns have no names: name them, as a header in the first line of a text file."
    return near_misses(name, names)

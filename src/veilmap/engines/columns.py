"""Which columns of a table give the domain's axes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from veilmap.domain import Domain
from veilmap.engines.batches import Batch, Columns
from veilmap.engines.geometry import Geometry, coordinates, must_be_points, numbers
from veilmap.errors import UnreadableInput, near_misses


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each axis is: all in columns of their names, or the first two in a geometry."""

    names: tuple[str, ...]
    geometry: str | None = None

    @property
    def needed(self) -> list[str]:
        return [*self.names] if self.geometry is None else [self.geometry, *self.names]

    def read(self, rows: pa.RecordBatch | pa.Table) -> Columns:
        first = () if self.geometry is None else coordinates(rows.column(self.geometry))
        return [*first, *(numbers(rows.column(name)) for name in self.names)]

    def batch(self, rows: pa.RecordBatch | pa.Table) -> Batch:
        """Rows already read, to be turned into numbers on a worker thread."""
        return lambda: [self.read(rows)]


def lay_out(
    domain: Domain, where: str, schema: pa.Schema, geometry: Geometry | None, names: Sequence[str] | None = None
) -> Layout:
    """Find the axes among the columns of a schema, or say what is missing.

    ``names`` are the columns that a sentence may list, if more than the schema's.
    """
    layout = Layout(domain.names)
    if geometry and domain.dimensions >= 2 and not set(domain.names) <= set(schema.names):
        must_be_points(geometry, schema, domain, where)
        layout = Layout(domain.names[2:], geometry.column)
    for name in layout.names:
        _must_be_numbers(name, where, schema, schema.names if names is None else names)
    return layout


def _must_be_numbers(name: str, where: str, schema: pa.Schema, names: Sequence[str]) -> None:
    if name not in schema.names:
        raise UnreadableInput(f"{where} has no column {name!r}, which is an axis of the domain. {_list(name, names)}")
    if schema.names.count(name) > 1:
        raise UnreadableInput(f"{where} has more than one column {name!r}: rename all but the one you mean.")
    kind = schema.field(name).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    if not any(check(kind) for check in is_number):
        raise UnreadableInput(
            f"{where} must have numbers in column {name!r}, which is an axis of the domain, "
            f"got {kind}: convert that column to float."
        )


def _list(name: str, names: Sequence[str]) -> str:
    """What there is instead. Names like numbers are the first row of a file without a header: not shown."""
    if not names or any(re.match(r"\s*[-+.]?\d", known) for known in names):
        return "Its columns have no names: name them, as a header in the first line of a text file."
    return near_misses(name, names)

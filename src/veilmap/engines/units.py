"""Ids of units, of any simple type, and integer codes that are equal if and only if the ids are."""

from __future__ import annotations

import datetime
import decimal
import sys
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from veilmap.arrays import Flags, Ints
from veilmap.engines.geometry import column_to_floats

SIMPLE_ID_TYPES = "whole numbers, text, bytes, dates or other simple values"
TIME_CLASSES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64)
ID_CLASSES = (str, bytes, int, float, np.number, np.bool_, decimal.Decimal, uuid.UUID, *TIME_CLASSES)
"""Python classes whose instances are equal if their values are. An object that equals only itself would make a separate
unit of every row."""

_IS = pa.types
COMPARISON_TYPES: tuple[tuple[pa.DataType | None, tuple[Callable[[pa.DataType], bool], ...]], ...] = (
    (pa.uint64(), (_IS.is_uint64,)),
    (pa.int64(), (_IS.is_integer,)),
    (pa.float64(), (_IS.is_floating,)),
    (pa.large_string(), (_IS.is_string, _IS.is_large_string, _IS.is_string_view)),
    (pa.large_binary(), (_IS.is_fixed_size_binary, _IS.is_binary, _IS.is_large_binary, _IS.is_binary_view)),
    (None, (_IS.is_boolean, _IS.is_date, _IS.is_time, _IS.is_timestamp, _IS.is_duration, _IS.is_null)),
)
"""The type in which ids of some types are compared; None means their own type."""


def id_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type in which ids of a column are compared, which keeps them all distinct; None if there is none."""
    if _IS.is_dictionary(kind):
        return id_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return id_type(kind.storage_type)
    if _IS.is_decimal(kind):
        return pa.decimal256(76, kind.scale) if kind.bit_width > 128 else pa.decimal128(38, kind.scale)
    return next((wide or kind for wide, checks in COMPARISON_TYPES if any(check(kind) for check in checks)), None)


def shared_type(kinds: Iterable[pa.DataType]) -> pa.DataType | None:
    """Return the type in which ids of several files are compared; None if their types cannot be compared.

    Whole numbers and text are compared as text. No other different types are compared.
    """
    different = {kind for kind in kinds if not _IS.is_null(kind)}
    if len(different) <= 1:
        return different.pop() if different else pa.null()
    comparable = all(_IS.is_integer(kind) or _IS.is_large_string(kind) for kind in different)
    return pa.large_string() if comparable else None


def read_ids(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column in its ``id_type``, null for a row without an id."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.concat_arrays([_convert(chunk) for chunk in chunks] or [pa.array([], id_type(column.type))])


def _convert(column: pa.Array) -> pa.Array:
    if _IS.is_dictionary(column.type):
        return _convert(column.dictionary).take(column.indices)
    if isinstance(column.type, pa.BaseExtensionType):
        return _convert(column.storage)
    if _IS.is_floating(column.type):
        return pa.array(column_to_floats(column) + 0.0, from_pandas=True)  # -0 becomes 0, and NaN null
    return column.cast(id_type(column.type))


def keep_known(ids: pa.Array, inside: Flags) -> tuple[pa.Array, Flags]:
    """Return the ids of the rows that are inside and have an id, and a flag per row that marks these rows."""
    kept = inside & ids.is_valid().to_numpy(zero_copy_only=False)
    return ids.filter(pa.array(kept)), kept


def encode(ids: Sequence[pa.Array], kind: pa.DataType) -> Ints:
    """Return a code per id, from 0 on, in order of first appearance. All pieces share one dictionary."""
    codes = pa.chunked_array([piece.cast(kind) for piece in ids], kind).dictionary_encode().chunks
    return np.concatenate([np.zeros(0, np.int64), *(piece.indices.to_numpy(zero_copy_only=False) for piece in codes)])


def as_column(values: Any) -> pa.Array | pa.ChunkedArray:
    """Return a list, array or column of ids as Arrow data. Raise TypeError, or an error of Arrow, for other values."""
    pandas = sys.modules.get("pandas")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if pandas and isinstance(values, pandas.Series | pandas.Index):
        if values.dtype != object:
            return pa.array(values, from_pandas=True)
        values = values.to_numpy()
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise TypeError("ids must have one dimension")
        if values.dtype != object:
            return pa.array(values.astype(values.dtype.newbyteorder("="), copy=False), from_pandas=True)
        values = values.tolist()
    if isinstance(values, list | tuple):
        return _number_objects(values)
    if hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    raise TypeError("not a column")


def _number_objects(values: Sequence[Any]) -> pa.Array:
    """Number Python objects by their own equality: Arrow would guess one type for all of them, and round to it."""
    pandas = sys.modules.get("pandas")
    missing = (type(None), type(pandas.NA), type(pandas.NaT)) if pandas else (type(None),)
    if not all(issubclass(kind, ID_CLASSES + missing) for kind in set(map(type, values))):
        raise TypeError("not a simple value")
    seen: dict[Any, int] = {}
    codes = (
        None if isinstance(v, missing) or v != v else seen.setdefault(v, len(seen))  # noqa: PLR0124 - NaN is missing
        for v in values
    )
    return pa.array(codes, pa.int64(), size=len(values))

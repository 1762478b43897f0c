"""Whose a row is: ids of any simple type, and the codes that are equal if and only if the ids are."""

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
from veilmap.engines.geometry import numbers

SIMPLE = "whole numbers, text, bytes, dates or other simple values"
TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64)
OBJECTS = (str, bytes, int, float, np.number, np.bool_, decimal.Decimal, uuid.UUID, *TIMES)
"""Whose equality is that of their values: an id that equals only itself would make a person of every row."""

_IS = pa.types
AS_TYPE: tuple[tuple[pa.DataType | None, tuple[Callable[[pa.DataType], bool], ...]], ...] = (
    (pa.uint64(), (_IS.is_uint64,)),
    (pa.int64(), (_IS.is_integer,)),
    (pa.float64(), (_IS.is_floating,)),
    (pa.large_string(), (_IS.is_string, _IS.is_large_string, _IS.is_string_view)),
    (pa.large_binary(), (_IS.is_fixed_size_binary, _IS.is_binary, _IS.is_large_binary, _IS.is_binary_view)),
    (None, (_IS.is_boolean, _IS.is_date, _IS.is_time, _IS.is_timestamp, _IS.is_duration, _IS.is_null)),
)
"""The type to compare ids of some types in; None: as they are."""


def id_type(kind: pa.DataType) -> pa.DataType | None:
    """The type that ids of a column are compared in: one that keeps all of them apart. None if there is none."""
    if _IS.is_dictionary(kind):
        return id_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return id_type(kind.storage_type)
    if _IS.is_decimal(kind):
        return pa.decimal256(76, kind.scale) if kind.bit_width > 128 else pa.decimal128(38, kind.scale)
    return next((wide or kind for wide, checks in AS_TYPE if any(check(kind) for check in checks)), None)


def shared_type(kinds: Iterable[pa.DataType]) -> pa.DataType | None:
    """The type that ids of several files are compared in: whole numbers meet text as text, no others meet."""
    different = {kind for kind in kinds if not _IS.is_null(kind)}
    if len(different) <= 1:
        return different.pop() if different else pa.null()
    meet = all(_IS.is_integer(kind) or _IS.is_large_string(kind) for kind in different)
    return pa.large_string() if meet else None


def read_ids(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in its ``id_type``, null where there is no id."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.concat_arrays([_plain(chunk) for chunk in chunks] or [pa.array([], id_type(column.type))])


def _plain(column: pa.Array) -> pa.Array:
    if _IS.is_dictionary(column.type):
        return _plain(column.dictionary).take(column.indices)
    if isinstance(column.type, pa.BaseExtensionType):
        return _plain(column.storage)
    if _IS.is_floating(column.type):
        return pa.array(numbers(column) + 0.0, from_pandas=True)  # -0 is 0, and NaN is null
    return column.cast(id_type(column.type))


def keep_known(ids: pa.Array, inside: Flags) -> tuple[pa.Array, Flags]:
    """The ids of the rows that are inside and have one, and which rows these are."""
    kept = inside & ids.is_valid().to_numpy(zero_copy_only=False)
    return ids.filter(pa.array(kept)), kept


def encode(ids: Sequence[pa.Array], kind: pa.DataType) -> Ints:
    """A code from 0 on for each id, in the order in which they first appear: pieces share one dictionary."""
    codes = pa.chunked_array([piece.cast(kind) for piece in ids], kind).dictionary_encode().chunks
    return np.concatenate([np.zeros(0, np.int64), *(piece.indices.to_numpy(zero_copy_only=False) for piece in codes)])


def as_column(values: Any) -> pa.Array | pa.ChunkedArray:
    """A list, array or column of ids as Arrow has it. A TypeError, or whatever Arrow raises, if it is none."""
    pandas = sys.modules.get("pandas")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if pandas and isinstance(values, pandas.Series | pandas.Index):
        if values.dtype != object:
            return pa.array(values, from_pandas=True)
        values = values.to_numpy()
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise TypeError("ids have one dimension")
        if values.dtype != object:
            return pa.array(values.astype(values.dtype.newbyteorder("="), copy=False), from_pandas=True)
        values = values.tolist()
    if isinstance(values, list | tuple):
        return _number_objects(values)
    if hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    raise TypeError("not a column")


def _number_objects(values: Sequence[Any]) -> pa.Array:
    """Numbers for Python objects, by their own equality: Arrow would guess one type for all, and round to it."""
    pandas = sys.modules.get("pandas")
    missing = (type(None), type(pandas.NA), type(pandas.NaT)) if pandas else (type(None),)
    if not all(issubclass(kind, OBJECTS + missing) for kind in set(map(type, values))):
        raise TypeError("not a simple value")
    seen: dict[Any, int] = {}
    codes = (
        None if isinstance(v, missing) or v != v else seen.setdefault(v, len(seen))  # noqa: PLR0124 - NaN is missing
        for v in values
    )
    return pa.array(codes, pa.int64(), size=len(values))

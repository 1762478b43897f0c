"""Boxes: the one place that parses and checks them, from text, CSV files, JSON values and arrays.

A box is a row of 2 × axes numbers: the low end of every axis, then the high end of every axis.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from veilmap.arrays import Floats
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.files.csv_cells import safe_cells
from veilmap.kernels import box_walks as kernel

JSON_NUMBER_TYPES = {int, float}  # exact types: a JSON true is a bool, and not a number
MAX_QUOTED_CHARACTERS = 400  # of a box in an error message


def checked_boxes(boxes: ArrayLike, domain: Domain) -> Floats:
    """Return boxes as fractions of the domain, clipped to it: an array with one row per box.

    A single box may be given without the outer list.
    """
    try:
        array = np.asarray(boxes, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"{box_rule(domain)}. The given values cannot be read as rows of numbers.") from None
    array = array[None, :] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] != 2 * domain.dimensions:
        raise BadInput(f"{box_rule(domain)}. Got an array of shape {array.shape}.")
    out = np.empty(array.shape)
    first_bad = kernel.place_boxes(array, domain.lo, domain.hi, domain.side, out)
    if first_bad >= 0:
        values = array[first_bad]
        fault = "contains NaN" if np.isnan(values).any() else "is inverted (a low end above its high end)"
        raise BadInput(f"Box {first_bad} {fault}: {values.tolist()}. {box_rule(domain)}.")
    return out


def parse_box(text: str, domain: Domain) -> list[float]:
    """Return the numbers of a box that is written as text, with commas between them."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 2 * domain.dimensions:
        raise BadInput(f"{box_rule(domain)}, with commas between them. Got {text[:MAX_QUOTED_CHARACTERS]!r}.")
    return numbers


def boxes_from_json(value: object, domain: Domain) -> list[Any]:
    """Return the rows of a JSON list of boxes, or of one box. Their ends are checked when the boxes are counted."""
    if not isinstance(value, list) or not value:
        raise BadInput(f"Give a list of one or more boxes. {box_rule(domain)}.")
    rows = value if isinstance(value[0], list) else [value]
    if (
        set(map(type, rows)) != {list}
        or set(map(len, rows)) != {2 * domain.dimensions}
        or not set(map(type, chain(*rows))) <= JSON_NUMBER_TYPES
    ):
        raise BadInput(f"{box_rule(domain)}. At least one box in the list is something else.")
    return rows


def read_boxes(path: Path, domain: Domain) -> list[list[float]]:
    """Read boxes from a CSV file, one per row. Columns may be in any order if a header names them."""
    names = box_columns(domain)
    try:
        with open(path, newline="", encoding="utf-8-sig") as lines:
            rows = [row for row in csv.reader(lines) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or "it is not a CSV file"
        raise BadInput(f"Cannot read boxes from {path}: {reason}.") from None
    if not rows:
        raise BadInput(f"{path} has no boxes. Write one box per row: {','.join(names)}.")
    header = [cell.strip() for cell in rows[0]]
    if not set(names) <= set(header):
        names = safe_cells(names)  # the header of a CSV file that veilmap wrote
    if set(names) <= set(header):
        order = [header.index(name) for name in names]
        rows = [[row[k] if k < len(row) else "" for k in order] for row in rows[1:]]
    elif not _is_number(header[0]):
        raise BadInput(f"The columns of {path} are {','.join(header)}, but boxes need the columns {','.join(names)}.")
    return [parse_box(",".join(row), domain) for row in rows]


def even_rows(boxes: Iterable[Iterable[float]]) -> tuple[tuple[float, ...], ...]:
    """Return boxes of a domain that is not known yet, as tuples of floats.

    Raise ValueError unless there is at least one box and all have the same even number of ends.
    """
    try:
        rows = tuple(tuple(float(end) for end in box) for box in boxes)
    except (TypeError, OverflowError):
        raise ValueError("boxes are rows of numbers") from None
    if not rows or not all(len(box) == len(rows[0]) and len(box) % 2 == 0 for box in rows):
        raise ValueError("boxes are rows of one even length")
    return rows


def box_rule(domain: Domain) -> str:
    """Return the rule that error messages state, without a full stop."""
    return f"A box is {2 * domain.dimensions} numbers ({box_order(domain)})"


def box_order(domain: Domain) -> str:
    """Return the order of a box's numbers, in words."""
    return ", ".join([f"low {n}" for n in domain.names] + [f"high {n}" for n in domain.names])


def box_columns(domain: Domain) -> list[str]:
    """Return the column names of boxes in CSV files, in the order of their numbers."""
    return [f"{n}_low" for n in domain.names] + [f"{n}_high" for n in domain.names]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

"""Boxes as people write them: on the command line, and in files."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from veilmap.errors import BadInput
from veilmap.files.csv_cells import safe_cells

if TYPE_CHECKING:
    from veilmap.domain import Domain


def parse_domain(text: str, crs: str | None) -> Domain:
    from veilmap.domain import Domain

    return Domain.parse(text, crs=crs)


def parse_box(text: str, domain: Domain) -> list[float]:
    parts = text.split(",")
    try:
        if len(parts) != 2 * domain.dimensions:
            raise ValueError
        return [float(part) for part in parts]
    except ValueError:
        order = ",".join([f"low_{n}" for n in domain.names] + [f"high_{n}" for n in domain.names])
        raise BadInput(f"A box of this release is {2 * domain.dimensions} numbers, {order}; got {text!r}.") from None


def box_columns(domain: Domain) -> list[str]:
    return [f"{n}_low" for n in domain.names] + [f"{n}_high" for n in domain.names]


def read_boxes(path: Path, domain: Domain) -> list[list[float]]:
    """Boxes from a CSV file; a header, if there is one, may put the columns in any order."""
    wanted = box_columns(domain)
    try:
        with open(path, newline="", encoding="utf-8-sig") as lines:
            rows = [row for row in csv.reader(lines) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(
            f"Cannot read boxes from {path}: {getattr(error, 'strerror', None) or 'not a CSV file'}."
        ) from None
    if not rows:
        raise BadInput(f"{path} has no boxes: write one a row, {','.join(wanted)}.")
    header = [cell.strip() for cell in rows[0]]
    if not set(wanted) <= set(header):
        wanted = safe_cells(wanted)  # as our own CSV files have them
    if set(wanted) <= set(header):
        order = [header.index(name) for name in wanted]
        rows = [[row[k] if k < len(row) else "" for k in order] for row in rows[1:]]
    elif not _is_number(header[0]):
        raise BadInput(f"The columns of {path} are {','.join(header)}; boxes need {','.join(wanted)}.")
    return [parse_box(",".join(row), domain) for row in rows]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

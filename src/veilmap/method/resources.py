"""What a release takes of a machine: memory, disk, and how often rows are gone through. From public numbers alone."""

from __future__ import annotations

import shutil
import tempfile
from fractions import Fraction
from typing import NamedTuple

from veilmap.domain import Domain
from veilmap.errors import TooLarge
from veilmap.memory import HELD_BYTES, free_memory
from veilmap.method import Method

BYTES_TO_START = 280 << 20
"""Of Python, its libraries and compiled kernels."""
BYTES_A_NODE = 300
"""What one node takes at the peak, while a release is made and saved."""
BYTES_A_ROW_SORTED, BYTES_A_ROW_OWNED = 50, 100
"""Beside 8 for each axis, of rows in memory: when medians are asked of them, and when they are sorted by person."""


class Asked(NamedTuple):
    """How a method asks, as a rehearsal shows it."""

    nodes: int
    questions: int  # each goes through all rows
    sorted: Fraction  # the part of all rows that medians are asked of


class Needs(NamedTuple):
    """For rows in files, which may be many."""

    memory: int  # bytes at the peak
    disk: int  # bytes of temporary files
    readings: int  # of the files
    passes: int  # over the cells of all rows after that, in memory or on disk


def needs(method: Method, domain: Domain, asked: Asked, rows: int, people: bool, on_spark: bool = False) -> Needs:
    """With a guess of the rows; of 0 rows, what the tree alone needs. On Spark, what the driver needs."""
    tree = BYTES_TO_START + asked.nodes * BYTES_A_NODE
    stages = getattr(method.structure, "stages", None)
    cells = 8 * domain.dimensions * rows
    medians = int(asked.sorted * (cells + BYTES_A_ROW_SORTED * rows))
    if on_spark:
        return Needs(tree + medians, 0, 1, 0 if stages == 1 else asked.questions)
    if people:
        return Needs(tree + rows * (8 * domain.dimensions + BYTES_A_ROW_OWNED), 0, 1, asked.questions)
    if stages is not None:
        return Needs(tree, 0, stages, 0)
    disk = cells // 2 if cells > HELD_BYTES else 0
    return Needs(tree + max(0 if disk else cells, medians), disk, 1, asked.questions)


def must_be_had(found: Needs, method: Method, people: bool) -> None:
    """Refuse what this machine has no room for; ``people`` are told apart in its memory."""
    free, room = free_memory(), shutil.disk_usage(tempfile.gettempdir()).free
    if found.memory > free:
        less = "give a sample, like 0.01" if hasattr(method.structure, "median_share") else "choose a coarser method"
        less = "count on Spark" if people else less  # where medians alone need rows on one machine
        raise TooLarge(
            f"{method.name} would take about {found.memory / 2**30:.3g} GiB of memory on so many rows; "
            f"{free / 2**30:.3g} GiB are free: {less}."
        )
    if found.disk > room:
        raise TooLarge(
            f"{method.name} would take {found.disk / 2**30:.3g} GiB of temporary files in {tempfile.gettempdir()!r}; "
            f"{room / 2**30:.3g} GiB are free: set TMPDIR to a folder on a larger disk, or count on Spark."
        )

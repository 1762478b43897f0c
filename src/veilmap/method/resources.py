"""What a release takes of a machine: memory, disk, and how often rows are gone through. From public numbers alone."""

from __future__ import annotations

import shutil
import tempfile
from fractions import Fraction
from typing import NamedTuple

from veilmap.budgets import NodeBudget, level_shares
from veilmap.domain import Domain
from veilmap.errors import BadInput, TooLarge
from veilmap.memory import MAX_CELL_BYTES_IN_MEMORY, free_memory
from veilmap.method.method import Method

BYTES_TO_START = 280 << 20
"""Of Python, its libraries and compiled kernels."""
BYTES_PER_NODE = 300
"""What one node takes at the peak, while a release is made and saved."""
BYTES_PER_UNCOUNTED_NODE = 80
"""What one node takes of a tree that is not counted yet."""
BYTES_PER_SORTED_ROW, BYTES_PER_OWNED_ROW = 50, 100
"""Beside 8 for each axis, of rows in memory: when medians are asked of them, and when they are sorted by person."""


class QuestionCount(NamedTuple):
    """How many questions a method asks, as a rehearsal counts them."""

    nodes: int
    questions: int  # each goes through all rows
    sorted: Fraction  # the part of all rows that medians are asked of


class Needs(NamedTuple):
    """For rows in files, which may be many."""

    memory: int  # bytes at the peak
    disk: int  # bytes of temporary files
    readings: int  # of the files
    passes: int  # over the cells of all rows after that, in memory or on disk


def needs(
    method: Method, domain: Domain, asked: QuestionCount, rows: int, people: bool, on_spark: bool = False
) -> Needs:
    """With a guess of the rows; of 0 rows, what the tree alone needs. On Spark, what the driver needs."""
    tree = BYTES_TO_START + asked.nodes * BYTES_PER_NODE
    stages = method.structure.passes
    cells = 8 * domain.dimensions * rows
    medians = int(asked.sorted * (cells + BYTES_PER_SORTED_ROW * rows))
    if on_spark:
        return Needs(tree + medians, 0, 1, 0 if stages == 1 else asked.questions)
    if people:
        return Needs(tree + rows * (8 * domain.dimensions + BYTES_PER_OWNED_ROW), 0, 1, asked.questions)
    if stages is not None:
        return Needs(tree, 0, stages, 0)
    disk = cells // 2 if cells > MAX_CELL_BYTES_IN_MEMORY else 0
    return Needs(tree + max(0 if disk else cells, medians), disk, 1, asked.questions)


def must_be_available(found: Needs, method: Method, people: bool) -> None:
    """Refuse what this machine has no room for; ``people`` are told apart in its memory."""
    free, room = free_memory(), shutil.disk_usage(tempfile.gettempdir()).free
    if found.memory > free:
        less = "give a sample, like 0.01" if method.structure.samples_medians else "choose a coarser method"
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


def must_fit(method: Method, domain: Domain) -> None:
    """Refuse what would not fit in memory: a question of public numbers only."""
    height, axes = method.structure.height, domain.dimensions
    if height is None:
        return _must_fit_at_its_largest(method, domain)
    halvings = method.structure.halvings(axes)
    if halvings > domain.bits:
        raise BadInput(
            f"This domain can be halved {domain.bits} times along each axis, got height={height}: choose a smaller one."
        )
    if not isinstance(method.budget, NodeBudget):
        level_shares(method.budget, Fraction(1), height)  # a budget that does not fit the tree is refused here
    size = method.structure.nodes(axes)
    if size is not None and (need := size * BYTES_PER_NODE) > (free := free_memory()):
        raise TooLarge(
            f"A tree of height {height} over {axes} axes has {size:.3g} nodes and would take "
            f"{need / 2**30:.3g} GiB of memory; {free / 2**30:.3g} GiB are free: choose a smaller height."
        )


def _must_fit_at_its_largest(method: Method, domain: Domain) -> None:
    """Of a tree whose height follows from noisy numbers. Few become so large: so it need not fit while it is saved."""
    structure = method.structure
    known = structure.nodes(domain.dimensions)
    most = structure.max_nodes if known is None else known
    if (need := most * BYTES_PER_UNCOUNTED_NODE) > (free := free_memory()):
        raise TooLarge(
            f"A tree of {method.name} may have about {most:.3g} nodes, and take {need / 2**30:.3g} GiB of memory; "
            f"{free / 2**30:.3g} GiB are free: take a method with a height, like quad-opt with height 8."
        )

"""The resources of a release: memory, disk and passes over the rows, computed from public numbers alone."""

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
"""Memory of Python, its libraries and compiled kernels."""
BYTES_PER_NODE = 300
"""Peak memory per node, while a release is made and saved."""
BYTES_PER_UNCOUNTED_NODE = 80
"""Memory per node of a tree that is not counted yet."""
BYTES_PER_SORTED_ROW = 50
"""Memory per row that medians are found on, in addition to 8 bytes per axis."""
BYTES_PER_OWNED_ROW = 100
"""Memory per row that is sorted by person, in addition to 8 bytes per axis."""


class QuestionCount(NamedTuple):
    """The number of questions that a method asks, as counted by a rehearsal."""

    nodes: int
    questions: int  # each is a pass over all rows
    sorted: Fraction  # fraction of the rows that medians are found on


class Needs(NamedTuple):
    """The resources of a release."""

    memory: int  # bytes at the peak
    disk: int  # bytes of temporary files
    readings: int  # of the input files
    passes: int  # over the cells of all rows afterwards, in memory or on disk


def needs(
    method: Method, domain: Domain, count: QuestionCount, rows: int, people: bool, on_spark: bool = False
) -> Needs:
    """Return the resources for an expected number of rows. On Spark, return those of the driver.

    For 0 rows, return the resources of the tree alone. With ``people``, rows are sorted by person.
    """
    tree = BYTES_TO_START + count.nodes * BYTES_PER_NODE
    stages = method.structure.passes
    cells = 8 * domain.dimensions * rows
    medians = int(count.sorted * (cells + BYTES_PER_SORTED_ROW * rows))
    if on_spark:
        return Needs(tree + medians, 0, 1, 0 if stages == 1 else count.questions)
    if people:
        return Needs(tree + rows * (8 * domain.dimensions + BYTES_PER_OWNED_ROW), 0, 1, count.questions)
    if stages is not None:
        return Needs(tree, 0, stages, 0)
    disk = cells // 2 if cells > MAX_CELL_BYTES_IN_MEMORY else 0
    return Needs(tree + max(0 if disk else cells, medians), disk, 1, count.questions)


def must_be_available(needed: Needs, method: Method, people: bool) -> None:
    """Refuse a release that needs more memory or disk space than this machine has."""
    free, room = free_memory(), shutil.disk_usage(tempfile.gettempdir()).free
    if needed.memory > free:
        hint = "Give a sample, like 0.01" if method.structure.samples_medians else "Choose a coarser method"
        hint = "Count on Spark" if people else hint  # there, only the rows for medians are on one machine
        raise TooLarge(
            f"{method.name} would need about {needed.memory / 2**30:.3g} GiB of memory for this number of rows; "
            f"{free / 2**30:.3g} GiB are free. {hint}."
        )
    if needed.disk > room:
        raise TooLarge(
            f"{method.name} would need {needed.disk / 2**30:.3g} GiB for temporary files in {tempfile.gettempdir()!r}; "
            f"{room / 2**30:.3g} GiB are free. Set TMPDIR to a folder on a larger disk, or count on Spark."
        )


def must_fit(method: Method, domain: Domain) -> None:
    """Refuse a tree that does not fit in memory or is deeper than the domain allows."""
    height, axes = method.structure.height, domain.dimensions
    if height is None:
        return _must_fit_at_its_largest(method, domain)
    halvings = method.structure.halvings(axes)
    if halvings > domain.bits:
        raise BadInput(
            f"This domain can be halved {domain.bits} times per axis, got height={height}. Choose a smaller height."
        )
    if not isinstance(method.budget, NodeBudget):
        level_shares(method.budget, Fraction(1), height)  # refuses a budget that does not match the tree
    size = method.structure.nodes(axes)
    if size is not None and (need := size * BYTES_PER_NODE) > (free := free_memory()):
        raise TooLarge(
            f"A tree of height {height} over {axes} axes has {size:.3g} nodes and would need "
            f"{need / 2**30:.3g} GiB of memory; {free / 2**30:.3g} GiB are free. Choose a smaller height."
        )


def _must_fit_at_its_largest(method: Method, domain: Domain) -> None:
    """Refuse a tree whose height follows from noisy counts if its largest size does not fit in memory uncounted.

    Such trees rarely reach their largest size, so the larger memory for saving is not required.
    """
    structure = method.structure
    known = structure.nodes(domain.dimensions)
    max_nodes = structure.max_nodes if known is None else known
    if (need := max_nodes * BYTES_PER_UNCOUNTED_NODE) > (free := free_memory()):
        raise TooLarge(
            f"A tree of {method.name} may have about {max_nodes:.3g} nodes and need {need / 2**30:.3g} GiB of memory; "
            f"{free / 2**30:.3g} GiB are free. Choose a method with a height, like quad-opt with height 8."
        )

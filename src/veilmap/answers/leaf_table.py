"""A table with one row per leaf: its box, the estimate of its count, and the error of that estimate.

The exports and the OGC API of ``veilmap explore`` publish this table, so both show the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilmap.answers.answerer import noise_intervals
from veilmap.arrays import Floats, Ints
from veilmap.domain import Domain
from veilmap.estimate.least_squares import standard_errors
from veilmap.estimate.node_estimates import NodeEstimates

Rows = slice | Ints


@dataclass(frozen=True, eq=False)
class LeafTable:
    """Boxes, estimates and standard errors of leaves, in the order of the tree's nodes."""

    lo: Floats  # (leaves, axes), in the units of the axes
    hi: Floats
    estimate: Floats
    stderr: Floats
    gaussian: bool  # whether the noise is Gaussian, which decides the shape of the intervals

    def __len__(self) -> int:
        return len(self.estimate)

    def intervals(self, confidence: float, rows: Rows = slice(None)) -> tuple[Floats, Floats]:
        """Return the low and the high ends of the confidence intervals of these rows."""
        return noise_intervals(self.estimate[rows], self.stderr[rows], confidence, self.gaussian)


def leaf_table(
    domain: Domain, nodes: NodeEstimates, *, consistent: bool, gaussian: bool, skip_empty_boxes: bool = False
) -> LeafTable:
    """Return the table of all leaves, or of those whose box has a volume above 0."""
    tree = nodes.tree
    chosen = tree.is_leaf & np.all(tree.lo < tree.hi, axis=1) if skip_empty_boxes else tree.is_leaf
    leaves = np.flatnonzero(chosen)
    axes = range(domain.dimensions)
    lo, hi = (np.stack([domain.edges(ends[leaves, a], a) for a in axes], axis=1) for ends in (tree.lo, tree.hi))
    return LeafTable(lo, hi, nodes.estimate[leaves], standard_errors(nodes, consistent)[leaves], gaussian)

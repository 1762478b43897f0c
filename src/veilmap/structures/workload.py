"""A budget for the boxes that people will ask: nodes that help often are counted more precisely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.kernels.workload import contributions, prices
from veilmap.queries import checked_boxes
from veilmap.tree import Flags, Ints, Tree

RESERVE = 64  # an inner node leaves one part in so many to its children: nobody asks, yet leaves are counted


@dataclass(frozen=True, slots=True)
class Workload:
    """Prices that make the noise of the answers to some boxes smallest, summed over these boxes.

    Of canonical answers, which add up the largest nodes inside a box: least squares then make them better still.
    A node that contributes to answers c times costs them c times its variance. With every path spending the whole
    budget, the least sum has a closed form: K_v^(1/3) = c_v^(1/3) + (Σ_children K)^(1/3), leaves first, and each
    node takes c_v^(1/3) / K_v^(1/3) of what its ancestors left (square roots for Gaussian noise). With
    ``per="level"`` all nodes of a level pay the same: shares in proportion to the cube roots of the levels' sums.
    """

    boxes: Sequence[Sequence[float]]
    per: str = "node"

    def __post_init__(self) -> None:
        try:
            rows = tuple(tuple(float(x) for x in box) for box in self.boxes)
        except (TypeError, ValueError, OverflowError):
            rows = ()
        if not rows or not all(len(box) == len(rows[0]) and len(box) % 2 == 0 for box in rows):
            raise BadInput("A workload is a list of boxes: the low end of each axis, then the high end of each.")
        if self.per not in ("node", "level"):
            raise BadInput(f'A workload gives prices per "node" or per "level", got {self.per!r}.')
        object.__setattr__(self, "boxes", rows)

    def grains(self, tree: Tree, counted: Flags, domain: Domain, total: int, power: int) -> Ints:
        times = np.zeros(tree.size)
        queries = checked_boxes(self.boxes, domain) * domain.side
        contributions(tree.first_child, tree.lo, tree.hi, counted, queries, times)
        if self.per == "level":
            sums = np.bincount(tree.node_level, times, tree.height + 1).astype(np.float64)
            first = np.array(tree.level_start[:-1])
            path = prices(np.arange(-1, tree.height), sums, counted[first], total, power, RESERVE)
            return np.where(counted, path[tree.node_level], 0)
        return prices(tree.parent, times, counted, total, power, RESERVE)

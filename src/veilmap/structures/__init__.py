"""Families of trees. A structure grows a tree from what is public already; it never sees a point."""

from __future__ import annotations

from veilmap.structures.best import Best
from veilmap.structures.cells import CellTree
from veilmap.structures.gate import GRAINS, RUN, Budget, Gate, NodeBudget, Structure
from veilmap.structures.grids import AdaptiveGrid, UniformGrid
from veilmap.structures.kdtree import HilbertR, KdTree, middles
from veilmap.structures.privtree import PrivTree
from veilmap.structures.quadtree import Quadtree
from veilmap.structures.workload import Workload

__all__ = [
    "GRAINS",
    "RUN",
    "AdaptiveGrid",
    "Best",
    "Budget",
    "CellTree",
    "Gate",
    "HilbertR",
    "KdTree",
    "NodeBudget",
    "PrivTree",
    "Quadtree",
    "Structure",
    "UniformGrid",
    "Workload",
    "middles",
]

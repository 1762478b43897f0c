"""Families of trees. A structure grows a tree from public parameters and noisy answers; it never sees a point."""

from __future__ import annotations

from veilmap.structures.base import CELLS_PER_RUN, MAX_PRICE_STEPS, Gate, Structure
from veilmap.structures.best import Best
from veilmap.structures.grids import AdaptiveGrid, UniformGrid
from veilmap.structures.kdtree import HilbertR, KdTree, midpoints
from veilmap.structures.noisy_grid_kd import CellTree
from veilmap.structures.privtree import PrivTree
from veilmap.structures.quadtree import Quadtree

__all__ = [
    "CELLS_PER_RUN",
    "MAX_PRICE_STEPS",
    "AdaptiveGrid",
    "Best",
    "CellTree",
    "Gate",
    "HilbertR",
    "KdTree",
    "PrivTree",
    "Quadtree",
    "Structure",
    "UniformGrid",
    "midpoints",
]

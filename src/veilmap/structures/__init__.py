"""Families of trees. A structure grows a tree from what is public already; it never sees a point."""

from __future__ import annotations

from veilmap.structures.gate import Gate, Structure
from veilmap.structures.kdtree import KdTree, middles
from veilmap.structures.quadtree import Quadtree

__all__ = ["Gate", "KdTree", "Quadtree", "Structure", "middles"]

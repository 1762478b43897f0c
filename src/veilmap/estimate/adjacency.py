"""Find the neighbours of each node."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from veilmap.arrays import Floats, SmallInts
from veilmap.kernels import adjacent_nodes
from veilmap.kernels import post_processing as kernel
from veilmap.kernels.grid_shape import child_grid_shapes
from veilmap.trees import CurveTree, Tree


@dataclass(frozen=True, slots=True, eq=False)
class Adjacency:
    """The neighbours of nodes, computed once for all steps that need them; along a curve, those on the curve."""

    volume: Floats  # of each node, in cells
    nodes: SmallInts  # (nodes, 2 · axes): before and behind along each axis, -1 where there is none

    @classmethod
    def of(cls, tree: Tree) -> Adjacency:
        if isinstance(tree, CurveTree):
            return cls.of(tree.keys)
        axes = tree.lo.shape[1]
        volume, nodes = np.empty(tree.size), np.empty((tree.size, 2 * axes), np.int32)
        adjacent_nodes.box_volumes(tree.lo, tree.hi, volume)
        larger = 2 ** (axes / 2)  # half as wide again, nearly, along every axis
        shape = np.empty((tree.size, axes), np.int32)
        child_grid_shapes(tree.first_child, tree.lo, shape)
        find = partial(
            adjacent_nodes.find_neighbours, tree.first_child, tree.parent, tree.lo, tree.hi, volume, larger, shape
        )
        nodes[0] = adjacent_nodes.NO_NEIGHBOUR
        with ThreadPoolExecutor(2) as pool:
            for above, below in zip(map(tree.level, range(tree.height)), tree.level_start[2:], strict=True):
                half = int(np.searchsorted(tree.first_child, (above.stop + below) // 2))  # of the nodes below
                list(pool.map(partial(find, nodes), (above.start, half), (half, above.stop)))
        return cls(volume, nodes)

    def density(self, estimate: Floats) -> Floats:
        """Return the estimated rows per cell of each node."""
        out = np.empty(len(estimate))
        kernel.densities(estimate, self.volume, out)
        return out

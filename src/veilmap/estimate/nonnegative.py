"""Consistent counts of 0 or more."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilmap.kernels import estimates as kernel
from veilmap.tree import Tree


def nonnegative(
    tree: Tree, estimate: NDArray[np.float64], subtree_variance: NDArray[np.float64], quantum: float
) -> NDArray[np.float64]:
    """From the root down, the counts of 0 or more nearest to these that add up, as multiples of a quantum.

    Near is meant in the metric of the variances. Complete trees over sparse data gain much. Where leaves follow the
    data there is less to gain, and large boxes lose: the noise of empty leaves no longer cancels.
    """
    out = estimate.copy()
    kernel.project_down(tree.first_child, out, subtree_variance)
    kernel.apportion(tree.first_child, out, quantum)
    return out

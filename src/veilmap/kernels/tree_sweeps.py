"""Weighted least squares on a tree of noisy counts, by one sweep up and one sweep down; its variances; rounding.

Trees are given as ``first_child``: the children of ``v`` are ``first_child[v] : first_child[v + 1]``.
Children come after their parents, so one loop over the nodes is one sweep.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from veilmap.arrays import Floats, Ints


@njit(cache=True, nogil=True)
def combine_up(first_child: Ints, z: Floats, variance: Floats) -> None:
    """Replace, from the leaves up, each noisy count by the best estimate from its own subtree (in place).

    With S = Σ z_c and W = Σ V_c over the children, the precision-weighted mean is
    z_v ← (W · z_v + V_v · S) / (V_v + W), with variance V_v ← V_v · W / (V_v + W).
    An unmeasured node has infinite variance, so that z_v ← S and V_v ← W.
    """
    for v in range(len(z) - 1, -1, -1):
        a, b = first_child[v], first_child[v + 1]
        if a == b:
            continue
        sum_z = 0.0
        sum_v = 0.0
        for c in range(a, b):
            sum_z += z[c]
            sum_v += variance[c]
        if variance[v] == np.inf:
            z[v] = sum_z
            variance[v] = sum_v
        elif variance[v] > 0.0:  # a node of variance 0 is known exactly
            own = sum_v / (variance[v] + sum_v)
            z[v] = own * z[v] + (1.0 - own) * sum_z
            variance[v] = variance[v] * own


@njit(cache=True, nogil=True)
def share_down(first_child: Ints, z: Floats, variance: Floats) -> None:
    """Make children add up to their parent, from the root down (in place): β_c = z_c + V_c / ΣV · (β_v − Σz)."""
    for v in range(len(z)):
        a, b = first_child[v], first_child[v + 1]
        if a == b:
            continue
        sum_z = 0.0
        sum_v = 0.0
        for c in range(a, b):
            sum_z += z[c]
            sum_v += variance[c]
        surplus = (z[v] - sum_z) / sum_v if sum_v > 0.0 else 0.0
        for c in range(a, b):
            z[c] += variance[c] * surplus


@njit(cache=True, nogil=True)
def round_to_quanta(first_child: Ints, estimate: Floats, quantum: float) -> None:
    """Round all estimates to multiples of ``quantum``, from the root down (in place), keeping exact sums of children.

    The running sums of siblings are rounded, and the last one is the parent's rounded value. So no estimate moves by
    more than 1.5 quanta, at any depth. ``quantum`` is a power of two, so sums of multiples are exact.
    """
    estimate[0] = np.rint(estimate[0] / quantum) * quantum
    for v in range(len(estimate)):
        a, b = first_child[v], first_child[v + 1]
        if a == b:
            continue
        total = 0.0
        for c in range(a, b):
            total += estimate[c]
        correction = (estimate[v] - total) / (b - a)
        running = 0.0
        before = 0.0
        for c in range(a, b - 1):
            running += estimate[c] + correction
            here = np.rint(running / quantum) * quantum
            estimate[c] = here - before
            before = here
        estimate[b - 1] = estimate[v] - before


@njit(cache=True, nogil=True)
def estimate_variances(first_child: Ints, subtree_variance: Floats, out: Floats) -> None:
    """Write the variance of every least-squares estimate: Var β_c = V_c − V_c²/ΣV + (V_c/ΣV)² · Var β_v."""
    out[0] = subtree_variance[0]
    for v in range(len(out)):
        a, b = first_child[v], first_child[v + 1]
        sum_v = 0.0
        for c in range(a, b):
            sum_v += subtree_variance[c]
        for c in range(a, b):
            share = subtree_variance[c] / sum_v if sum_v > 0.0 else 0.0
            out[c] = subtree_variance[c] * (1.0 - share) + share * share * out[v]

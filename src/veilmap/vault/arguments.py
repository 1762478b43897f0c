"""Checks of the arguments that pass the gate, and plain copies of them. Proof: proofs/measure.md.

A structure may be written by anyone, and a number outside these ranges would make kernels write outside their arrays.
Every check depends on public numbers and on answers that were charged, never on the rows.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from veilmap.arrays import Ints
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.trees import CurveTree, CutTree, Parts, RegularTree, Tree

IMMUTABLE_TYPES = (bool, int, float, str, type(None), RegularTree, CutTree, CurveTree)
MAX_NODES = 2**27  # so that 32 bits hold any index of a node
MAX_PARTS_PER_AXIS = 2**20  # of one box: up to here, the part of a row is computed exactly (proofs/counting.md)
MAX_SCALES = 8
MAX_CHECK_GRIDS = 16
MAX_CHECK_CELLS = 2**20  # per grid
MAX_EXPECTED_COUNT = 2**40  # so that no sum overflows


def plain(value: Any) -> Any:
    """Return a copy of plain type, which cannot misreport its value and cannot be changed later."""
    if any(type(value) is kind for kind in IMMUTABLE_TYPES):
        return value
    if type(value) is Fraction:
        return Fraction(value)
    if isinstance(value, np.ndarray) and (copy := np.array(value, subok=False)).dtype.kind in "biuf":
        return copy
    if type(value) is tuple:
        return tuple(map(plain, value))
    raise BadInput(
        f"The gate takes numbers, fractions, text, tuples and arrays of numbers, got {type(value).__name__}."
    )


def must_be_allowed(what: str, allow_nonprivate: bool) -> bool:
    """Return False, the value of ``private`` for a release that contains ``what``, or raise."""
    if not allow_nonprivate:
        raise BadInput(f"{what} are not private. For experiments on public data, set allow_nonprivate=True.")
    return False


def must_be_parts(parts: Parts, domain: Domain) -> None:
    if type(parts) is not tuple or len(parts) != domain.dimensions or not all(type(n) is int and n >= 1 for n in parts):
        raise BadInput(f"A box is cut into 1 or more parts along each of {domain.dimensions} axes, got {parts!r}.")


def must_be_splits(parts: Ints, order: int | None, domain: Domain) -> None:
    if order is not None or parts.max(initial=0) > min(domain.side, MAX_PARTS_PER_AXIS):
        raise BadInput(
            f"Boxes are split into at most {min(domain.side, MAX_PARTS_PER_AXIS)} parts per axis, and a curve is "
            "divided only by cuts."
        )


def must_be_small(tree: Tree) -> None:
    if tree.size > MAX_NODES:
        raise BadInput(f"A tree of more than {MAX_NODES:.2g} nodes was requested. Choose a coarser method.")


def must_be_countable(tree: RegularTree, domain: Domain) -> None:
    """Check that the leaf of a row follows from its place in a regular grid."""
    powers = all(n & (n - 1) == 0 for parts in tree.splits[:-1] for n in parts)
    if not powers or max(tree.grid(tree.height)) > domain.side:
        raise BadInput(
            f"A regular tree splits the {domain.side} cells per axis of this domain into powers of 2; only its last "
            f"split may have other numbers of parts. Got {tree.splits}."
        )


def must_be_shortenable(tree: Tree, height: int, density_tested: bool) -> RegularTree:
    """Return the tree if the levels below ``height`` can be dropped, or raise."""
    if density_tested or not isinstance(tree, RegularTree):
        raise BadInput("A tree can be shortened only before its first cut, and not after a density test.")
    if height not in range(1, tree.height + 1):
        raise BadInput(f"A tree of height {tree.height} can be shortened to 1 to {tree.height}, got {height!r}.")
    return tree


def must_be_curve(order: int, domain: Domain, untouched: bool) -> None:
    if not untouched:
        raise BadInput("A domain must be laid along a curve before it is cut or measured.")
    if domain.dimensions < 2 or order not in range(1, domain.bits + 1):
        raise BadInput(f"A Hilbert curve has 2 or more axes and here an order of 1 to {domain.bits}, got {order}.")


def must_be_rate(rate: Fraction, sampled: bool) -> None:
    if sampled or not 0 < rate <= 1:
        raise BadInput(f"A release has one sample, with a rate above 0 and up to 1, got {rate}.")


def must_be_grid(parts: Parts, order: int | None, domain: Domain) -> None:
    must_be_parts(parts, domain)
    if order is not None or max(parts) > domain.side or math.prod(parts) > MAX_NODES:
        raise BadInput(
            f"A grid has at most {domain.side} parts per axis and {MAX_NODES:.2g} cells, and does not lie along a "
            "curve."
        )


def must_be_cells(depth: Ints, scales: int, tree: Tree, order: int | None) -> Ints:
    """Return the half-cells per axis of each frontier box, for roughness: 2^(depth + 1), or 0 for a box left out."""
    frontier = tree.level(tree.height)
    width = (tree.hi[frontier] - tree.lo[frontier]).min(axis=1)
    listed = depth.dtype == np.int64 and depth.shape == width.shape
    if order is not None or not listed or type(scales) is not int or scales not in range(1, MAX_SCALES + 1):
        raise BadInput(
            f"Roughness is measured at 1 to {MAX_SCALES} scales, with one integer depth per frontier box, and not "
            "along a curve."
        )
    side = np.where(depth < 0, 0, 2 << np.minimum(depth, 40))
    total = np.sum(side.astype(np.float64) ** tree.lo.shape[1])
    if np.any(side > np.minimum(width, MAX_PARTS_PER_AXIS)) or total > MAX_NODES:
        raise BadInput(f"A box is cut into no more parts than it has cells, all boxes together into {MAX_NODES:.2g}.")
    return side


def must_be_level(level: int, tree: Tree) -> slice:
    """Return the nodes of a level, or raise if the tree has no such level."""
    if level not in range(tree.height + 1):
        raise BadInput(f"A tree of height {tree.height} has the levels 0 to {tree.height}, got {level!r} to count.")
    return tree.level(level)


def must_be_nodes(nodes: Ints, steps: Ints, tree: Tree) -> None:
    listed = nodes.ndim == 1 and nodes.dtype == steps.dtype == np.int64 and steps.shape == nodes.shape
    if not listed or np.any(np.diff(nodes) <= 0):
        raise BadInput("Nodes to count are listed in ascending order, each once and with one price, all as integers.")
    if not (nodes.min(initial=0) >= 0 and nodes.max(initial=0) < tree.size):
        raise BadInput(f"The nodes of this tree are 0 to {tree.size - 1}.")


def must_be_checkable(order: int | None) -> None:
    if order is not None:
        raise BadInput("A tree along a curve cannot be checked.")


def must_be_predictions(predictions: Any, domain: Domain) -> None:
    """Check the grids of a check, the box of each of their cells, and the expected count of each box."""
    if type(predictions) is not tuple or len(predictions) > MAX_CHECK_GRIDS:
        raise BadInput(f"A check takes a tuple of at most {MAX_CHECK_GRIDS} grids.")
    for parts, places, expected in predictions:
        must_be_parts(parts, domain)
        if max(parts) > domain.side or math.prod(parts) > MAX_CHECK_CELLS:
            raise BadInput(f"A grid of a check has at most {domain.side} parts per axis and {MAX_CHECK_CELLS} cells.")
        if not places.dtype == expected.dtype == np.int64 or places.shape != (math.prod(parts),):
            raise BadInput("Each cell of a grid belongs to one box, and each box has an integer expected count.")
        if expected.ndim != 1 or places.min() < 0 or not places.max() < len(expected) <= len(places):
            raise BadInput("Each cell of a grid belongs to a box that has an expected count.")
        if np.any(expected > MAX_EXPECTED_COUNT) or np.any(expected < -MAX_EXPECTED_COUNT):
            raise BadInput(f"Expected counts are at most {MAX_EXPECTED_COUNT} in absolute value.")

"""Private record matching (section 8.3 of the paper): which records of two parties must be compared at all.

Each party publishes a private decomposition of its own records. Boxes that lie too far apart cannot hold a match,
so only the others need the expensive secure comparison. Inan, Kantarcioglu, Ghinita, Bertino, EDBT 2010.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilmap.amounts import exact_epsilon
from veilmap.budget import LeafOnly
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.kernels.counting import find_cells
from veilmap.kernels.pairs import close_pairs, find_leaves
from veilmap.method import Estimate, Method
from veilmap.publish import release, resolve
from veilmap.published import Release
from veilmap.secure import compare, encrypt_record, is_match, make_key

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SHORT = Fraction(1, 100)
"""How likely a leaf is to have fewer slots than records, at most: those beyond are left out, and lost to recall."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """What one party tells the other: boxes, and how many slots each has. Made of a private release alone."""

    release: Release
    lo: Floats  # (boxes, axes)
    hi: Floats
    slots: Ints  # records and dummies together


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """What two parties would compare, and what that saves. It holds whose record is where: not for publication."""

    left: Blocks
    right: Blocks
    pairs: Ints  # (k, 2): boxes of the left and of the right that are compared
    candidates: Ints  # (k, 2): the records in them, left and right; dummies are not listed
    work: int  # comparisons, dummies included
    reduction_ratio: float  # 1 − work / (all pairs of records)
    matches: int
    recall: float  # the part of the matches that is among the candidates
    precision: float  # the part of the candidates that are matches


def match(
    left: ArrayLike,
    right: ArrayLike,
    thresholds: Sequence[float],
    epsilon: object,
    method: str | Method = "kd-standard",
    *,
    domain: Domain,
    height: int | None = None,
) -> Match:
    """Match the records of two parties, each protected by ``epsilon``, and say what blocking saves.

    Parameters
    ----------
    left, right
        (n, d) arrays, one row a record, in the order of the domain's axes. Records outside the domain match nothing.
    thresholds
        One for each axis: records match if they are no farther apart along any of them.
    epsilon
        The privacy budget of each party.
    method
        A name of the registry, or a ``Method``. All of its count budget goes to the leaves, as in the paper.
    domain
        The public box of both.
    height
        Of the trees; see ``release``.
    """
    sides = [_records(points, domain) for points in (left, right)]
    apart = _thresholds(thresholds, domain)
    chosen = _leaves_only(resolve(method, height, None))
    budget = exact_epsilon(epsilon)
    blocks = [publish_blocks(points, domain, budget, chosen) for points in sides]
    pairs = box_pairs(blocks[0], blocks[1], apart + (domain.hi - domain.lo) / domain.side)  # a cell for rounding
    held = [fill(points, side, domain) for points, side in zip(sides, blocks, strict=True)]
    candidates = _record_pairs(held, pairs)
    found = close_pairs(np.ascontiguousarray(sides[0]), np.ascontiguousarray(sides[1]), apart)
    kept = _count_common(candidates, found, len(sides[1]))
    work = int(np.sum(blocks[0].slots[pairs[:, 0]] * blocks[1].slots[pairs[:, 1]]))
    every = len(sides[0]) * len(sides[1])
    return Match(
        left=blocks[0],
        right=blocks[1],
        pairs=pairs,
        candidates=candidates,
        work=work,
        reduction_ratio=1 - work / every if every else 0.0,
        matches=len(found),
        recall=kept / len(found) if len(found) else 1.0,
        precision=kept / len(candidates) if len(candidates) else 1.0,
    )


def compare_securely(
    left: ArrayLike,
    right: ArrayLike,
    candidates: Ints,
    thresholds: Sequence[float],
    *,
    domain: Domain,
    progress: Callable[[float], None] = lambda part: None,
) -> Ints:
    """The candidates that match, found by the protocol of ``veilmap.secure``: both parties' parts, in one process.

    Numbers and thresholds must be whole, in units that the parties agree on.
    """
    ours, theirs = (_whole(_records(points, domain), domain) for points in (left, right))
    limits = [int(limit) for limit in _thresholds(thresholds, domain)]
    if limits != list(thresholds):
        raise BadInput(f"The secure step needs whole thresholds, got {thresholds!r}: measure in smaller units.")
    key, found = make_key(), []
    order = candidates[np.argsort(candidates[:, 0], kind="stable")].tolist()
    for done, (i, group) in enumerate(groupby(order, lambda pair: pair[0])):
        powers = encrypt_record(ours[i].tolist(), limits, key.public)
        for _, j in group:
            if is_match(compare(powers, theirs[j].tolist(), limits, key.public), key):
                found.append((i, j))
        progress(min(1.0, (done + 1) / len(ours)))
    return np.array(found, np.int64).reshape(-1, 2)


def _whole(points: Floats, domain: Domain) -> Ints:
    """Numbers counted from the lowest of the domain."""
    steps = points - np.ceil(domain.lo)
    if not np.all(np.isfinite(steps) & (steps == np.rint(steps)) & (steps >= 0)):
        raise BadInput("The secure step compares whole numbers inside the domain: round them first.")
    return steps.astype(np.int64)


def publish_blocks(points: Floats, domain: Domain, epsilon: Fraction, method: Method) -> Blocks:
    """One party's side. A leaf has as many slots as its noisy count says, and some to spare for noise below 0."""
    made = release(points, domain, epsilon, method)
    tree, counted = made.estimates.tree, [c.epsilon for c in made.privacy.ledger if c.what.startswith("counts")]
    spare = math.ceil(math.log(1 / float(2 * SHORT)) / float(counted[-1]))
    leaves = np.flatnonzero(tree.is_leaf)
    lo, hi = (
        np.stack([domain.edges(ends[leaves, a], a) for a in range(domain.dimensions)], axis=1)
        for ends in (tree.lo, tree.hi)
    )
    return Blocks(made, lo, hi, np.maximum(made.estimates.noisy_count[leaves] + spare, 0))


def box_pairs(left: Blocks, right: Blocks, apart: Floats) -> Ints:
    """Boxes that may hold a match: along no axis farther apart than that. Those without slots hold nothing."""
    near = (left.slots > 0)[:, None] & (right.slots > 0)[None, :]
    for a, limit in enumerate(apart):
        near &= left.lo[:, None, a] - limit <= right.hi[None, :, a]
        near &= right.lo[None, :, a] - limit <= left.hi[:, None, a]
    return np.argwhere(near)


def fill(points: Floats, blocks: Blocks, domain: Domain) -> list[Ints]:
    """The records in the slots of each box. Where there are more than slots, chance decides which are left out."""
    tree, cells = blocks.release.estimates.tree, np.empty(points.shape, np.int64)
    for a, axis in enumerate(domain.axes):
        column = np.empty(len(points), np.int64)
        find_cells(points[:, a].copy(), axis.lo, axis.hi, domain.scale(a), domain.bits, column)
        cells[:, a] = column
    leaf = np.empty(len(points), np.int64)
    find_leaves(tree.first_child, tree.lo, tree.hi, cells, leaf)
    place = np.cumsum(tree.is_leaf) - 1  # of a leaf among the leaves
    luck = np.frombuffer(os.urandom(8 * len(points)), np.uint64)
    order = np.lexsort((luck, leaf))
    order = order[leaf[order] >= 0]
    starts = np.searchsorted(place[leaf[order]], np.arange(len(blocks.slots) + 1))
    return [order[a:b][:most] for a, b, most in zip(starts, starts[1:], blocks.slots.tolist(), strict=False)]


def _record_pairs(held: list[list[Ints]], pairs: Ints) -> Ints:
    """Every record of a box beside every record of the other, for each pair of boxes."""
    found = [
        np.stack(np.meshgrid(held[0][i], held[1][j], indexing="ij"), axis=-1).reshape(-1, 2) for i, j in pairs.tolist()
    ]
    return np.concatenate([np.zeros((0, 2), np.int64), *found])


def _count_common(candidates: Ints, found: Ints, width: int) -> int:
    ours, theirs = (pairs[:, 0] * max(width, 1) + pairs[:, 1] for pairs in (candidates, found))
    return len(np.intersect1d(ours, theirs, assume_unique=True))


def _records(points: ArrayLike, domain: Domain) -> Floats:
    try:
        array = np.asarray(points, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.zeros(0)
    if array.ndim != 2 or array.shape[1] != domain.dimensions:
        raise BadInput(f"Records are an array of numbers with a column for each of {', '.join(domain.names)}.")
    return array


def _thresholds(thresholds: Sequence[float], domain: Domain) -> Floats:
    try:
        apart = np.asarray(thresholds, dtype=np.float64)
    except (TypeError, ValueError):
        apart = np.zeros(0)
    if apart.shape != (domain.dimensions,) or not np.all(np.isfinite(apart) & (apart >= 0)):
        names = ", ".join(domain.names)
        raise BadInput(f"Thresholds are one number of 0 or more for each of {names}, got {thresholds!r}.")
    return apart


def _leaves_only(method: Method) -> Method:
    return replace(method, budget=LeafOnly(), estimate=Estimate.NOISY_COUNTS)

"""One party's side of record matching: published boxes with slots, and the private assignment of records to slots."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from veilmap.arrays import Floats, Ints
from veilmap.budgets import LeafOnly
from veilmap.errors import BadInput
from veilmap.kernels.record_pairs import find_leaves
from veilmap.matching.records import read_records
from veilmap.matching.rule import Rule
from veilmap.method.method import Method, Noise, PostProcessing
from veilmap.method.resolve import resolve
from veilmap.releases.make import release
from veilmap.releases.release import Release
from veilmap.structures import HilbertR
from veilmap.trees import CurveTree
from veilmap.validation import exact_epsilon

RandomKeys = Callable[[int], NDArray[np.uint64]]

MAX_SLOTS = 1 << 26
OVERLAPPING_BOXES = (
    "The boxes of hilbert-r overlap, but matching needs each record to be in exactly one box. Choose another method."
)
DEFAULT_ROWS = 10_000
LEAF_RECORDS_TIMES_EPSILON = 4
"""Target number of records per leaf, times epsilon. With fewer, dummies dominate; with more, blocking saves little."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The boxes that one party tells the other, measured in whole steps, and the number of slots of each box."""

    leaf: Ints  # the leaf of the published tree that each box comes from
    lo: Ints  # (boxes, axes), both ends included
    hi: Ints
    slots: Ints  # records and dummies together
    total: int  # sum of the noisy counts

    @property
    def start(self) -> Ints:
        """Return the index of each box's first slot, followed by the total number of slots."""
        return np.concatenate([[0], np.cumsum(self.slots)])


@dataclass(frozen=True, eq=False, repr=False)
class Side:
    """The data of one party: its published release and boxes, and its private records and slot assignment."""

    release: Release
    blocks: Blocks
    records: Ints  # private: records in whole steps, -1 for records outside the domain
    seats: Ints  # private: the record in each slot, -1 for a dummy
    rows: int = DEFAULT_ROWS  # public: the agreed maximum number of records per party

    @cached_property
    def box(self) -> Ints:
        """Return the box in which each record has a slot, -1 for records without a slot."""
        out = np.full(len(self.records), -1)
        taken = self.seats >= 0
        out[self.seats[taken]] = np.repeat(np.arange(len(self.blocks.slots)), self.blocks.slots)[taken]
        return out

    @cached_property
    def seated(self) -> Ints:
        """Return the records that have a slot, ordered by box."""
        return self.seats[self.seats >= 0]

    @cached_property
    def start(self) -> Ints:
        """Return the position of each box's first record in ``seated``."""
        boxes = np.arange(len(self.blocks.slots) + 1)
        return np.searchsorted(self.box[self.seated], boxes)


def random_keys(n: int) -> NDArray[np.uint64]:
    """Return ``n`` random sort keys, which decide the order of records and dummies among the slots."""
    return np.frombuffer(os.urandom(8 * n), np.uint64)


def open_side(
    points: object,
    rule: Rule,
    epsilon: object,
    method: Method,
    draw: RandomKeys = random_keys,
    made: Release | None = None,
    rows: int = DEFAULT_ROWS,
) -> Side:
    """Read one party's records, release them privately (or use the release ``made``), and assign them to slots."""
    records = rule.rounded(read_records(points, rule.domain))
    made = release(rule.points(records), rule.domain, epsilon, method) if made is None else made
    blocks = read_blocks(made, rule)
    return Side(made, blocks, records, assign_slots(records, made, blocks, rule, draw), rows)


def read_blocks(made: Release, rule: Rule) -> Blocks:
    """Return the boxes of a release that contain whole steps, with slots for their noisy counts plus spare slots.

    Negative noise would leave records without a slot, so each box gets s = b log(b n / 2 m) spare slots, where b is
    the scale of the noise and n boxes share the m records that may be left out: a box is expected to leave out at most
    (b / 2) exp(-s / b) records. The result depends on published numbers only, so the other party computes the same.
    """
    tree, noisy = made.estimates.tree, made.estimates
    if isinstance(tree, CurveTree):
        raise BadInput(OVERLAPPING_BOXES)
    cuts = [
        np.searchsorted(cells, ends) for a, cells in enumerate(rule.cells) for ends in (tree.lo[:, a], tree.hi[:, a])
    ]
    lo, hi = np.stack(cuts[::2], axis=1), np.stack(cuts[1::2], axis=1) - 1
    leaf = np.flatnonzero(tree.is_leaf & np.all(lo <= hi, axis=1))
    counts = noisy.noisy_count[leaf]
    slots = np.maximum(counts + spare_slots(noise_scales(made, leaf), counts, rule), 0)
    if not slots.sum() < MAX_SLOTS:
        raise BadInput(
            "This release cannot be used for matching: it needs a noisy count of each leaf, and the counts must add up "
            f"to fewer than {MAX_SLOTS:,} slots."
        )
    return Blocks(leaf, lo[leaf], hi[leaf], slots.astype(np.int64), int(counts.sum()))


def noise_scales(made: Release, leaf: Ints) -> Floats:
    """Return the scale of each leaf's discrete Laplace noise, which is 1 / (epsilon spent on its count)."""
    with np.errstate(divide="ignore", over="ignore"):  # an infinite variance gives an infinite scale
        scales: Floats = 0.5 / np.arcsinh(np.sqrt(0.5 / made.estimates.noise_variance[leaf]))
    return scales


def spare_slots(scales: Floats, counts: Ints, rule: Rule) -> Floats:
    """Return the number of slots that each box has beyond its noisy count."""
    lost = float(rule.lost) * max(int(counts.sum()), 1)
    spare: Floats = np.ceil(scales * np.log(np.maximum(scales * len(scales) / (2 * lost), 1)))
    return spare


def assign_slots(records: Ints, made: Release, blocks: Blocks, rule: Rule, draw: RandomKeys = random_keys) -> Ints:
    """Return the record in each slot, -1 for a dummy, in random order.

    If a box has more records than slots, the records that are left out are chosen at random.
    """
    tree, inside = made.estimates.tree, np.flatnonzero(records[:, 0] >= 0)
    cells = np.stack([ruler[records[inside, a]] for a, ruler in enumerate(rule.cells)], axis=1)
    leaf = np.empty(len(inside), np.int64)
    find_leaves(tree.first_child, tree.lo, tree.hi, cells, leaf)
    box = np.searchsorted(blocks.leaf, leaf)
    # One dummy per slot is added. Within a box, records come before dummies, each in random order; the first ones,
    # as many as there are slots, are kept.
    who = np.concatenate([inside, np.full(int(blocks.slots.sum()), -1)])
    where = np.concatenate([box, np.repeat(np.arange(len(blocks.slots)), blocks.slots)])
    order = np.lexsort((draw(len(who)), who < 0, where))
    rank = np.arange(len(order)) - np.searchsorted(where[order], np.arange(len(blocks.slots)))[where[order]]
    kept = order[rank < blocks.slots[where[order]]]
    seats: Ints = who[kept[np.lexsort((draw(len(kept)), where[kept]))]]
    return seats


def leaves_only(method: str | Method, height: int | None, rule: Rule, epsilon: object, rows: int | None) -> Method:
    """Return the method with its whole count budget on the leaves, as in the paper, and a height suited to ``rows``.

    Methods without a height need counts above their leaves, and keep their budget.
    """
    chosen = resolve(method, height, None)
    if not (rows is None or (type(rows) is int and rows > 0)):
        raise BadInput(f"rows, the estimated number of records per party, must be a positive integer; got {rows!r}.")
    if chosen.needs_delta or not chosen.private or chosen.noise is not Noise.DISCRETE_LAPLACE:
        raise BadInput(
            f"Record matching needs a method with pure differential privacy (delta = 0, discrete Laplace noise), which "
            f"{chosen.name} does not have. Choose another method."
        )
    if isinstance(chosen.structure, HilbertR):
        raise BadInput(OVERLAPPING_BOXES)
    chosen = replace(chosen, estimate=PostProcessing.NOISY_COUNTS, slopes=False, prune_below=None)
    if not any(field.name == "height" for field in fields(chosen.structure)):  # type: ignore[arg-type]
        return chosen
    if isinstance(method, str) and height is None:
        settled = replace(chosen.structure, height=default_height(exact_epsilon(epsilon), rows or DEFAULT_ROWS, rule))  # type: ignore[type-var]
        chosen = replace(chosen, structure=settled)
    return replace(chosen, budget=LeafOnly())


def default_height(epsilon: Fraction, rows: int, rule: Rule) -> int:
    """Return the height at which a leaf has about ``LEAF_RECORDS_TIMES_EPSILON`` / epsilon records."""
    leaves = max(2.0, float(rows * epsilon) / LEAF_RECORDS_TIMES_EPSILON)
    return int(np.clip(round(np.log2(leaves) / rule.domain.dimensions), 1, rule.domain.bits))

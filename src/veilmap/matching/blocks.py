"""One party's side of record matching: boxes with slots, which are private to publish, and who sits in them."""

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

Lots = Callable[[int], NDArray[np.uint64]]

MOST_SLOTS = 1 << 26
OVERLAP = "The boxes of hilbert-r overlap, and a record must be in one: match by another method."
USUAL_ROWS = 10_000
LEAF = 4
"""Records in a leaf, over the scale 1/epsilon of its noise: fewer drown in dummies, more block too little."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """What one party tells the other: boxes of whole steps, and how many slots each has."""

    leaf: Ints  # the node of the tree
    lo: Ints  # (boxes, axes), both ends included
    hi: Ints
    slots: Ints  # records and dummies together
    total: int  # of the noisy counts

    @property
    def start(self) -> Ints:
        """The first slot of each box, and how many there are in all."""
        return np.concatenate([[0], np.cumsum(self.slots)])


@dataclass(frozen=True, eq=False, repr=False)
class Side:
    """One party: what it publishes, and what it keeps for itself."""

    release: Release
    blocks: Blocks
    records: Ints  # private: rounded, -1 for those outside the domain
    seats: Ints  # private: the record in each slot, -1 for a dummy
    rows: int = USUAL_ROWS  # public: how many records each party has at most, as agreed

    @cached_property
    def box(self) -> Ints:
        """The box in which each record has a slot, -1 for none."""
        out = np.full(len(self.records), -1)
        taken = self.seats >= 0
        out[self.seats[taken]] = np.repeat(np.arange(len(self.blocks.slots)), self.blocks.slots)[taken]
        return out

    @cached_property
    def seated(self) -> Ints:
        """The records that have a slot, box by box."""
        return self.seats[self.seats >= 0]

    @cached_property
    def start(self) -> Ints:
        """Where each box begins among them."""
        boxes = np.arange(len(self.blocks.slots) + 1)
        return np.searchsorted(self.box[self.seated], boxes)


def lots(n: int) -> NDArray[np.uint64]:
    """Random numbers that decide who sits where."""
    return np.frombuffer(os.urandom(8 * n), np.uint64)


def open_side(
    points: object,
    rule: Rule,
    epsilon: object,
    method: Method,
    draw: Lots = lots,
    made: Release | None = None,
    rows: int = USUAL_ROWS,
) -> Side:
    """Read one party's records, publish them privately unless that is ``made`` already, and seat them."""
    records = rule.rounded(read_records(points, rule.domain))
    made = release(rule.points(records), rule.domain, epsilon, method) if made is None else made
    blocks = read_blocks(made, rule)
    return Side(made, blocks, records, take_seats(records, made, blocks, rule, draw), rows)


def read_blocks(made: Release, rule: Rule) -> Blocks:
    """The boxes of a release that hold whole steps, and slots for as many records as its noisy counts say.

    Noise below 0 would leave records without a slot, so boxes get some to spare: s = b log(b n / 2 m) where the noise
    has scale b and n boxes share the m records that may be left out, because a box expects to leave out at most
    (b / 2) exp(-s / b). Made of published numbers alone: the other party reads the same.
    """
    tree, noisy = made.estimates.tree, made.estimates
    if isinstance(tree, CurveTree):
        raise BadInput(OVERLAP)
    cuts = [
        np.searchsorted(cells, ends) for a, cells in enumerate(rule.cells) for ends in (tree.lo[:, a], tree.hi[:, a])
    ]
    lo, hi = np.stack(cuts[::2], axis=1), np.stack(cuts[1::2], axis=1) - 1
    leaf = np.flatnonzero(tree.is_leaf & np.all(lo <= hi, axis=1))
    counts = noisy.noisy_count[leaf]
    slots = np.maximum(counts + spare_slots(noise_scales(made, leaf), counts, rule), 0)
    if not slots.sum() < MOST_SLOTS:
        raise BadInput("A release for matching has a noisy count of each leaf, none of them absurd; this one has not.")
    return Blocks(leaf, lo[leaf], hi[leaf], slots.astype(np.int64), int(counts.sum()))


def noise_scales(made: Release, leaf: Ints) -> Floats:
    """Return the scale of each leaf's discrete Laplace noise: 1 over the epsilon spent on its count."""
    with np.errstate(divide="ignore", over="ignore"):  # an infinite variance has an infinite scale
        scales: Floats = 0.5 / np.arcsinh(np.sqrt(0.5 / made.estimates.noise_variance[leaf]))
    return scales


def spare_slots(scales: Floats, counts: Ints, rule: Rule) -> Floats:
    """Return how many slots each box has beyond its noisy count."""
    lost = float(rule.lost) * max(int(counts.sum()), 1)
    spare: Floats = np.ceil(scales * np.log(np.maximum(scales * len(scales) / (2 * lost), 1)))
    return spare


def take_seats(records: Ints, made: Release, blocks: Blocks, rule: Rule, draw: Lots = lots) -> Ints:
    """The record in each slot, -1 for a dummy, in random order. Whoever finds no slot is left out, by chance."""
    tree, inside = made.estimates.tree, np.flatnonzero(records[:, 0] >= 0)
    cells = np.stack([ruler[records[inside, a]] for a, ruler in enumerate(rule.cells)], axis=1)
    leaf = np.empty(len(inside), np.int64)
    find_leaves(tree.first_child, tree.lo, tree.hi, cells, leaf)
    box = np.searchsorted(blocks.leaf, leaf)
    # dummies enough for every slot draw lots with the records; a box keeps the records first
    who = np.concatenate([inside, np.full(int(blocks.slots.sum()), -1)])
    where = np.concatenate([box, np.repeat(np.arange(len(blocks.slots)), blocks.slots)])
    order = np.lexsort((draw(len(who)), who < 0, where))
    rank = np.arange(len(order)) - np.searchsorted(where[order], np.arange(len(blocks.slots)))[where[order]]
    kept = order[rank < blocks.slots[where[order]]]
    seats: Ints = who[kept[np.lexsort((draw(len(kept)), where[kept]))]]
    return seats


def leaves_only(method: str | Method, height: int | None, rule: Rule, epsilon: object, rows: int | None) -> Method:
    """The method with all of its count budget on the leaves, as in the paper, and a height that suits so many rows.

    Methods that need counts above their leaves keep their budget.
    """
    chosen = resolve(method, height, None)
    if not (rows is None or (type(rows) is int and rows > 0)):
        raise BadInput(f"rows is a guess of how many records a party has, a whole number above 0; got {rows!r}.")
    if chosen.needs_delta or not chosen.private or chosen.noise is not Noise.DISCRETE_LAPLACE:
        raise BadInput(f"Records are matched by methods with a pure promise, and {chosen.name} has another.")
    if isinstance(chosen.structure, HilbertR):
        raise BadInput(OVERLAP)
    chosen = replace(chosen, estimate=PostProcessing.NOISY_COUNTS, slopes=False, prune_below=None)
    if not any(field.name == "height" for field in fields(chosen.structure)):  # type: ignore[arg-type]
        return chosen
    if isinstance(method, str) and height is None:
        settled = replace(chosen.structure, height=usual_height(exact_epsilon(epsilon), rows or USUAL_ROWS, rule))  # type: ignore[type-var]
        chosen = replace(chosen, structure=settled)
    return replace(chosen, budget=LeafOnly())


def usual_height(epsilon: Fraction, rows: int, rule: Rule) -> int:
    leaves = max(2.0, float(rows * epsilon) / LEAF)
    return int(np.clip(round(np.log2(leaves) / rule.domain.dimensions), 1, rule.domain.bits))

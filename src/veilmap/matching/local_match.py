"""Blocking with the records of both parties at hand: what it saves, and what it misses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilmap.arrays import Ints
from veilmap.domain import Domain
from veilmap.kernels.record_pairs import close_pairs
from veilmap.matching.agreement import Agreement
from veilmap.matching.blocks import Lots, Side, leaves_only, lots, open_side
from veilmap.matching.protocol import compare_both
from veilmap.matching.rule import USUAL_LOST, Rule
from veilmap.method.method import Method


@dataclass(frozen=True, eq=False)
class Match:
    """What two parties would compare, and what that saves. It knows whose record is where: not for publication."""

    left: Side
    right: Side
    agreement: Agreement

    def __repr__(self) -> str:
        return f"<Match of {len(self.pairs)} pairs of boxes, reduction ratio {self.reduction_ratio:.3f}>"

    @property
    def rule(self) -> Rule:
        return self.agreement.rule

    @property
    def pairs(self) -> Ints:
        """(k, 2): the boxes of the left and of the right that are compared."""
        return self.agreement.pairs

    @cached_property
    def work(self) -> int:
        """Comparisons, dummies included."""
        return self.agreement.work

    @cached_property
    def every(self) -> int:
        """Comparisons without blocking: all pairs of records in the domain."""
        left, right = (int(np.sum(side.records[:, 0] >= 0)) for side in (self.left, self.right))
        return left * right

    @property
    def reduction_ratio(self) -> float:
        """The part of all pairs that is not compared. Negative where dummies cost more than blocking saves."""
        return 1 - self.work / self.every if self.every else 0.0

    @cached_property
    def candidates(self) -> Ints:
        """(k, 2): the records that are compared, left and right, by row; dummies are not listed."""
        sides = ((self.left, self.pairs[:, 0]), (self.right, self.pairs[:, 1]))
        first, second = (
            [side.seated[side.start[b] : side.start[b + 1]] for b in boxes.tolist()] for side, boxes in sides
        )
        found = [
            np.stack([np.repeat(ours, len(theirs)), np.tile(theirs, len(ours))], axis=1)
            for ours, theirs in zip(first, second, strict=True)
        ]
        return np.concatenate([np.zeros((0, 2), np.int64), *found])

    @cached_property
    def truth(self) -> Ints:
        """(k, 2): the records that match, left and right, by row: what a party could not know."""
        inside = [np.flatnonzero(side.records[:, 0] >= 0) for side in (self.left, self.right)]
        found = close_pairs(self.left.records[inside[0]], self.right.records[inside[1]], np.array(self.rule.apart))
        return np.stack([inside[0][found[:, 0]], inside[1][found[:, 1]]], axis=1)

    @property
    def matches(self) -> int:
        return len(self.truth)

    @cached_property
    def kept(self) -> int:
        """Matches among the candidates."""
        ours, theirs = self.left.box[self.truth[:, 0]], self.right.box[self.truth[:, 1]]
        width = max(len(self.right.blocks.slots), 1)
        known = np.isin(ours * width + theirs, self.pairs[:, 0] * width + self.pairs[:, 1])
        return int(np.sum(known & (ours >= 0) & (theirs >= 0)))

    def compare(self, progress: Callable[[float], None] = lambda part: None) -> Ints:
        """Find the matches among the candidates by secure comparison: (k, 2), by row.

        Both parties' parts run in this process. This takes some hundred microseconds for each of ``work`` pairs.
        """
        return compare_both(self.left, self.right, self.rule, progress)

    @property
    def recall(self) -> float:
        """The part of the matches that is compared."""
        return self.kept / self.matches if self.matches else 1.0

    @property
    def precision(self) -> float:
        """The part of the compared records, dummies apart, that match."""
        return self.kept / self.compared if self.compared else 1.0

    @cached_property
    def compared(self) -> int:
        """Comparisons of records, dummies apart: how many ``candidates`` there are."""
        held = [np.diff(side.start)[self.pairs[:, k]] for k, side in enumerate((self.left, self.right))]
        return int(np.sum(held[0] * held[1]))


def match(
    left: object,
    right: object,
    thresholds: Sequence[object],
    epsilon: object,
    method: str | Method = "kd-standard",
    *,
    domain: Domain,
    steps: Sequence[object] | None = None,
    height: int | None = None,
    rows: int | None = None,
    lost: object = USUAL_LOST,
    progress: Callable[[float], None] = lambda part: None,
) -> Match:
    """Block the records of two parties, each protected by ``epsilon``, and say what that saves.

    Parameters
    ----------
    left, right
        Records: arrays, data frames or files, as for ``release``. Those outside the domain match nothing.
    thresholds
        One for each axis of the domain: records match if they are no farther apart along any of them.
    epsilon
        The privacy budget of each party.
    method
        A name of the registry, or a ``Method``. All of its count budget goes to the leaves, as in the paper.
    domain
        The public box of both.
    steps
        Numbers are rounded to whole steps before they are matched: one for each axis. By default 1 where the
        threshold is a whole number, so that whole numbers stay as they are, and a tenth of the threshold elsewhere.
    height
        Of the trees. By default one that suits ``rows`` records a party, a public guess (10,000 if not given).
    lost
        The part of its records that a party expects to leave out, at most, where noise gave a box too few slots.
        Fewer lost records need more dummies.
    progress
        Called with the part that is done.
    """
    rule = Rule.of(domain, thresholds, steps, lost)
    return match_sides((left, right), rule, epsilon, leaves_only(method, height, rule, epsilon, rows), progress)


def match_sides(
    inputs: Sequence[object],
    rule: Rule,
    epsilon: object,
    method: Method,
    progress: Callable[[float], None] = lambda part: None,
    draw: Lots = lots,
) -> Match:
    """``match``, once everything is settled."""
    sides = []
    for k, points in enumerate(inputs):
        sides.append(open_side(points, rule, epsilon, method, draw))
        progress(0.4 * (k + 1))
    left, right = sides
    met = Agreement.of(rule, left.blocks, right.blocks)
    progress(1.0)
    return Match(left, right, met)

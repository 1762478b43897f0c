"""Blocking with the records of both parties on one machine, which shows what blocking saves and what it misses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilmap.arrays import Ints
from veilmap.domain import Domain
from veilmap.kernels.record_pairs import close_pairs
from veilmap.matching.agreement import Agreement
from veilmap.matching.blocks import RandomKeys, Side, leaves_only, open_side, random_keys
from veilmap.matching.protocol import compare_both
from veilmap.matching.rule import DEFAULT_LOST, Rule
from veilmap.method.method import Method


@dataclass(frozen=True, eq=False)
class Match:
    """The record pairs that two parties would compare, and the work saved by blocking.

    It contains both parties' records, so it must not be published.
    """

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
        """Return the pairs of boxes that are compared: (k, 2), left and right box."""
        return self.agreement.pairs

    @cached_property
    def work(self) -> int:
        """Return the number of comparisons, dummies included."""
        return self.agreement.work

    @cached_property
    def every(self) -> int:
        """Return the number of comparisons without blocking: all pairs of records in the domain."""
        left, right = (int(np.sum(side.records[:, 0] >= 0)) for side in (self.left, self.right))
        return left * right

    @property
    def reduction_ratio(self) -> float:
        """Return the fraction of all pairs that is not compared; negative if dummies cost more than blocking saves."""
        return 1 - self.work / self.every if self.every else 0.0

    @cached_property
    def candidates(self) -> Ints:
        """Return the pairs of records that are compared: (k, 2), left and right row. Dummies are not listed."""
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
        """Return all pairs of records that match: (k, 2), left and right row. No single party could know this."""
        inside = [np.flatnonzero(side.records[:, 0] >= 0) for side in (self.left, self.right)]
        found = close_pairs(self.left.records[inside[0]], self.right.records[inside[1]], np.array(self.rule.apart))
        return np.stack([inside[0][found[:, 0]], inside[1][found[:, 1]]], axis=1)

    @property
    def matches(self) -> int:
        """Return the number of pairs of records that match."""
        return len(self.truth)

    @cached_property
    def kept(self) -> int:
        """Return the number of matches among the candidates."""
        ours, theirs = self.left.box[self.truth[:, 0]], self.right.box[self.truth[:, 1]]
        width = max(len(self.right.blocks.slots), 1)
        known = np.isin(ours * width + theirs, self.pairs[:, 0] * width + self.pairs[:, 1])
        return int(np.sum(known & (ours >= 0) & (theirs >= 0)))

    def compare(self, progress: Callable[[float], None] = lambda part: None) -> Ints:
        """Return the matches among the candidates, found by secure comparison: (k, 2), left and right row.

        Both parties run in this process. Each of the ``work`` pairs takes some hundred microseconds.
        """
        return compare_both(self.left, self.right, self.rule, progress)

    @property
    def recall(self) -> float:
        """Return the fraction of the matches that is compared."""
        return self.kept / self.matches if self.matches else 1.0

    @property
    def precision(self) -> float:
        """Return the fraction of the compared pairs, without dummies, that match."""
        return self.kept / self.compared if self.compared else 1.0

    @cached_property
    def compared(self) -> int:
        """Return the number of ``candidates``: comparisons without dummies."""
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
    lost: object = DEFAULT_LOST,
    progress: Callable[[float], None] = lambda part: None,
) -> Match:
    """Block the records of two parties, each protected by ``epsilon``, and report how much work that saves.

    Parameters
    ----------
    left, right
        Records: arrays, data frames or files, as for ``release``. Records outside the domain match nothing.
    thresholds
        One number per axis of the domain. Two records match if they differ by at most this much along every axis.
    epsilon
        The privacy budget of each party.
    method
        The name of a method, or a ``Method``. All of its count budget goes to the leaves, as in the paper.
    domain
        The public box of both parties.
    steps
        One number per axis. Values are rounded to whole steps before they are matched. The default is 1 if the
        threshold is a whole number, so that whole numbers stay as they are, and a tenth of the threshold otherwise.
    height
        The height of the trees. The default suits ``rows`` records per party.
    rows
        A public estimate of the number of records per party (10,000 if not given).
    lost
        The maximum fraction of its records that a party expects to leave out because noise gave a box too few slots.
        Losing fewer records needs more dummies.
    progress
        A function that is called with the completed fraction of the work.
    """
    rule = Rule.of(domain, thresholds, steps, lost)
    return match_sides((left, right), rule, epsilon, leaves_only(method, height, rule, epsilon, rows), progress)


def match_sides(
    inputs: Sequence[object],
    rule: Rule,
    epsilon: object,
    method: Method,
    progress: Callable[[float], None] = lambda part: None,
    draw: RandomKeys = random_keys,
) -> Match:
    """Block the records of two parties by a given rule and method, as ``match`` does after checking its arguments."""
    sides = []
    for k, points in enumerate(inputs):
        sides.append(open_side(points, rule, epsilon, method, draw))
        progress(0.4 * (k + 1))
    left, right = sides
    met = Agreement.of(rule, left.blocks, right.blocks)
    progress(1.0)
    return Match(left, right, met)

"""What both parties know once they have met: whose slots are compared with whose, and how long that takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from veilmap.arrays import Ints
from veilmap.errors import BadInput
from veilmap.kernels.record_pairs import close_boxes
from veilmap.matching.blocks import Blocks
from veilmap.matching.rule import Rule
from veilmap.matching.secure_comparison import PROOF_SIZE, SIZE

MOST_LISTED = 1 << 14  # values in one list
MOST_BOXES = 1 << 33  # pairs of boxes to look at: some minutes
BATCH = 1 << 21  # bytes of a message, about
SECONDS_TO_THINK = 600  # for pairs of boxes, and for a network that pauses
MULTIPLICATIONS, SLOW = 40, 1000  # for what a ciphertext of a batch takes, with room; per second, on a slow computer


def list_bytes(low: Ints, high: Ints) -> int:
    """Return how long the lists of one slot are on the wire: a ciphertext per value of its box, a proof per axis."""
    return SIZE * int(np.sum(high - low + 1)) + PROOF_SIZE * len(low)


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """Made of two releases alone, so that both parties have the same."""

    rule: Rule
    left: Blocks
    right: Blocks
    pairs: Ints  # (k, 2): the boxes of the left and of the right that are compared

    @classmethod
    def of(cls, rule: Rule, left: Blocks, right: Blocks) -> Agreement:
        """Boxes that may hold a match are compared. Those without slots hold nothing."""
        used = [np.flatnonzero(side.slots) for side in (left, right)]
        if len(used[0]) * len(used[1]) > MOST_BOXES:
            raise BadInput("The two releases have too many boxes to look at every pair: choose a smaller height.")
        ends = (left.lo[used[0]], left.hi[used[0]], right.lo[used[1]], right.hi[used[1]])
        found = close_boxes(*ends, np.array(rule.apart))
        return cls(rule, left, right, np.stack([used[0][found[:, 0]], used[1][found[:, 1]]], axis=1))

    @property
    def work(self) -> int:
        """Comparisons, dummies included."""
        return int(np.sum(self.left.slots[self.pairs[:, 0]] * self.right.slots[self.pairs[:, 1]]))

    @property
    def listed(self) -> int:
        """Ciphertexts in all lists of the left party."""
        boxes = np.unique(self.pairs[:, 0])
        return int(np.sum(self.left.slots[boxes] * np.sum(self.left.hi[boxes] - self.left.lo[boxes] + 1, axis=1)))

    @property
    def points(self) -> int:
        """Slots of the left that are compared with anyone: points that a left party that cheats can choose."""
        return int(self.left.slots[np.unique(self.pairs[:, 0])].sum())

    @property
    def near_one(self) -> int:
        """Slots of the left that one record of the right is compared with, at most."""
        near = np.bincount(self.pairs[:, 1], self.left.slots[self.pairs[:, 0]])
        return int(near.max(initial=0))

    @property
    def reach(self) -> float:
        """The part of the domain that lies within the thresholds of so many points, at most."""
        widths = [
            min(2 * t + 1, len(cells)) / len(cells) for t, cells in zip(self.rule.apart, self.rule.cells, strict=True)
        ]
        return min(1.0, self.points * float(np.prod(widths)))

    @property
    def patience(self) -> float:
        """Seconds that the other party may take for its part of one message, on a slow computer."""
        boxes, first = np.unique(self.pairs[:, 0], return_index=True)
        answers = np.add.reduceat(self.right.slots[self.pairs[:, 1]], first) if len(boxes) else boxes
        most = max(BATCH // SIZE, int(answers.max(initial=0)), int(self._lengths(boxes).sum(axis=1).max(initial=0)))
        return SECONDS_TO_THINK + most * MULTIPLICATIONS / SLOW

    @property
    def expected(self) -> int:
        """About how many comparisons there would be without blocking: by the noisy totals."""
        return max(self.left.total, 0) * max(self.right.total, 0)

    def window(self, boxes: Ints | int) -> tuple[Ints, Ints]:
        """The values, ends included, that a match of someone in a box of the left may have."""
        return self.widened(self.left.lo[boxes], self.left.hi[boxes])

    def widened(self, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """The same, of a box with these ends."""
        apart = np.array(self.rule.apart)
        top = np.array([len(cells) - 1 for cells in self.rule.cells])
        return np.maximum(low - apart, 0), np.minimum(high + apart, top)

    def _lengths(self, boxes: Ints) -> Ints:
        low, high = self.window(boxes)
        return high - low + 1

    def batches(self) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
        """Slots of a box of the left, those of the right they are compared to, and the box's ends, as in their lists.

        As many at a time as make a message of a few megabytes: both parties cut alike.
        """
        if not len(self.pairs):
            return
        starts, theirs = self.left.start, self.right.start
        boxes, first = np.unique(self.pairs[:, 0], return_index=True)
        for box, others in zip(boxes.tolist(), np.split(self.pairs[:, 1], first[1:]), strict=True):
            slots = np.concatenate([np.arange(theirs[other], theirs[other + 1]) for other in others.tolist()])
            low, high = self.left.lo[box], self.left.hi[box]
            most = max(1, BATCH // max(SIZE * len(slots), list_bytes(low, high)))
            for start in range(starts[box], starts[box + 1], most):
                yield np.arange(start, min(start + most, starts[box + 1])), slots, low, high

    def must_be_short(self) -> None:
        """Refuse lists that would take longer than anyone waits."""
        longest = self._lengths(np.unique(self.pairs[:, 0])).max(axis=0, initial=0)
        for axis, step, size in zip(self.rule.domain.axes, self.rule.steps, longest.tolist(), strict=True):
            if size > MOST_LISTED:
                raise BadInput(
                    f"A box of {size:,} steps along {axis.name} is too wide for the secure step: take larger steps "
                    f"than {float(step):g} there (--step), or count the work only (--no-secure)."
                )

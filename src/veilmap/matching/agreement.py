"""What both parties know once they have met: whose slots are compared with whose, and how long that takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap.errors import BadInput
from veilmap.kernels.pairs import close_boxes
from veilmap.matching.blocks import Blocks
from veilmap.matching.rule import Rule
from veilmap.matching.secure import SIZE

Ints = NDArray[np.int64]

MOST_LISTED = 1 << 14  # values in one list
MOST_BOXES = 1 << 33  # pairs of boxes to look at: some minutes
BATCH = 1 << 21  # bytes of a message, about


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
        return int(np.sum(self.left.slots[boxes] * np.sum(self._lengths(boxes), axis=1)))

    @property
    def expected(self) -> int:
        """About how many comparisons there would be without blocking: by the noisy totals."""
        return max(self.left.total, 0) * max(self.right.total, 0)

    def window(self, boxes: Ints | int) -> tuple[Ints, Ints]:
        """The values, ends included, that a match of someone in a box of the left may have."""
        apart = np.array(self.rule.apart)
        top = np.array([len(cells) - 1 for cells in self.rule.cells])
        return np.maximum(self.left.lo[boxes] - apart, 0), np.minimum(self.left.hi[boxes] + apart, top)

    def _lengths(self, boxes: Ints) -> Ints:
        low, high = self.window(boxes)
        return high - low + 1

    def batches(self) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
        """Slots of a box of the left, those of the right they are compared to, and the ends of their lists.

        As many at a time as make a message of a few megabytes: both parties cut alike.
        """
        if not len(self.pairs):
            return
        starts, theirs = self.left.start, self.right.start
        boxes, first = np.unique(self.pairs[:, 0], return_index=True)
        for box, others in zip(boxes.tolist(), np.split(self.pairs[:, 1], first[1:]), strict=True):
            slots = np.concatenate([np.arange(theirs[other], theirs[other + 1]) for other in others.tolist()])
            low, high = self.window(box)
            most = max(1, BATCH // (SIZE * max(len(slots), int(np.sum(high - low + 1)))))
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

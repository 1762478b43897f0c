"""The comparison plan that both parties derive from the two releases: which slots are compared, and at what cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from veilmap.arrays import Ints
from veilmap.errors import BadInput
from veilmap.kernels.record_pairs import close_boxes
from veilmap.matching.blocks import Blocks
from veilmap.matching.rule import Rule
from veilmap.matching.secure_comparison import CIPHERTEXT_BYTES, PROOF_BYTES

MAX_VALUES_PER_LIST = 1 << 14
MAX_BOX_PAIRS = 1 << 33  # checking this many pairs takes some minutes
BYTES_PER_BATCH = 1 << 21  # approximate size of one message
BASE_PATIENCE_SECONDS = 600  # covers the search for box pairs, and pauses of the network
MULTIPLICATIONS_PER_CIPHERTEXT = 40  # a generous upper bound on the work for one ciphertext of a batch
SLOW_MULTIPLICATIONS_PER_SECOND = 1000  # the speed of a slow computer


def list_bytes(low: Ints, high: Ints) -> int:
    """Return the size of one slot's lists in bytes: one ciphertext per value of its box and one proof per axis."""
    return CIPHERTEXT_BYTES * int(np.sum(high - low + 1)) + PROOF_BYTES * len(low)


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """A comparison plan that depends on the two releases only, so that both parties compute the same plan."""

    rule: Rule
    left: Blocks
    right: Blocks
    pairs: Ints  # (k, 2): indices of the left and the right box of each compared pair

    @classmethod
    def of(cls, rule: Rule, left: Blocks, right: Blocks) -> Agreement:
        """Return the plan that compares all pairs of boxes that may contain a match, skipping boxes without slots."""
        used = [np.flatnonzero(side.slots) for side in (left, right)]
        if len(used[0]) * len(used[1]) > MAX_BOX_PAIRS:
            raise BadInput("The two releases have too many boxes to check every pair. Choose a smaller height.")
        ends = (left.lo[used[0]], left.hi[used[0]], right.lo[used[1]], right.hi[used[1]])
        found = close_boxes(*ends, np.array(rule.apart))
        return cls(rule, left, right, np.stack([used[0][found[:, 0]], used[1][found[:, 1]]], axis=1))

    @property
    def work(self) -> int:
        """Return the number of comparisons, dummies included."""
        return int(np.sum(self.left.slots[self.pairs[:, 0]] * self.right.slots[self.pairs[:, 1]]))

    @property
    def listed(self) -> int:
        """Return the number of ciphertexts in all lists of the left party."""
        boxes = np.unique(self.pairs[:, 0])
        return int(np.sum(self.left.slots[boxes] * np.sum(self.left.hi[boxes] - self.left.lo[boxes] + 1, axis=1)))

    @property
    def points(self) -> int:
        """Return the number of left slots that are compared: a cheating left party can choose a point for each."""
        return int(self.left.slots[np.unique(self.pairs[:, 0])].sum())

    @property
    def near_one(self) -> int:
        """Return the maximum number of left slots that any one record of the right party is compared with."""
        near = np.bincount(self.pairs[:, 1], self.left.slots[self.pairs[:, 0]])
        return int(near.max(initial=0))

    @property
    def reach(self) -> float:
        """Return an upper bound on the fraction of the domain within the thresholds of ``points`` chosen points."""
        widths = [
            min(2 * t + 1, len(cells)) / len(cells) for t, cells in zip(self.rule.apart, self.rule.cells, strict=True)
        ]
        return min(1.0, self.points * float(np.prod(widths)))

    @property
    def patience(self) -> float:
        """Return the seconds that the other party may need to prepare one message on a slow computer."""
        boxes, first = np.unique(self.pairs[:, 0], return_index=True)
        answers = np.add.reduceat(self.right.slots[self.pairs[:, 1]], first) if len(boxes) else boxes
        most = max(
            BYTES_PER_BATCH // CIPHERTEXT_BYTES,
            int(answers.max(initial=0)),
            int(self._lengths(boxes).sum(axis=1).max(initial=0)),
        )
        return BASE_PATIENCE_SECONDS + most * MULTIPLICATIONS_PER_CIPHERTEXT / SLOW_MULTIPLICATIONS_PER_SECOND

    @property
    def expected(self) -> int:
        """Return the approximate number of comparisons without blocking, computed from the noisy totals."""
        return max(self.left.total, 0) * max(self.right.total, 0)

    def window(self, boxes: Ints | int) -> tuple[Ints, Ints]:
        """Return the range of values, ends included, that a match of a record in a left box may have."""
        return self.widened(self.left.lo[boxes], self.left.hi[boxes])

    def widened(self, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Return a box with the given ends, widened by the thresholds and clipped to the domain."""
        apart = np.array(self.rule.apart)
        top = np.array([len(cells) - 1 for cells in self.rule.cells])
        return np.maximum(low - apart, 0), np.minimum(high + apart, top)

    def _lengths(self, boxes: Ints) -> Ints:
        low, high = self.window(boxes)
        return high - low + 1

    def batches(self) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
        """Yield batches: slots of one left box, the right slots they are compared with, and the left box's ends.

        A batch has as many left slots as fit a message of a few megabytes. Both parties compute the same batches.
        """
        if not len(self.pairs):
            return
        starts, theirs = self.left.start, self.right.start
        boxes, first = np.unique(self.pairs[:, 0], return_index=True)
        for box, others in zip(boxes.tolist(), np.split(self.pairs[:, 1], first[1:]), strict=True):
            slots = np.concatenate([np.arange(theirs[other], theirs[other + 1]) for other in others.tolist()])
            low, high = self.left.lo[box], self.left.hi[box]
            most = max(1, BYTES_PER_BATCH // max(CIPHERTEXT_BYTES * len(slots), list_bytes(low, high)))
            for start in range(starts[box], starts[box + 1], most):
                yield np.arange(start, min(start + most, starts[box + 1])), slots, low, high

    def must_be_short(self) -> None:
        """Raise ``BadInput`` if an encrypted list would be too long to process in reasonable time."""
        longest = self._lengths(np.unique(self.pairs[:, 0])).max(axis=0, initial=0)
        for axis, step, size in zip(self.rule.domain.axes, self.rule.steps, longest.tolist(), strict=True):
            if size > MAX_VALUES_PER_LIST:
                raise BadInput(
                    f"A box is {size:,} steps wide along {axis.name}, which is too wide for the secure step. Use "
                    f"steps larger than {float(step):g} on that axis (--step), or only count the work (--no-secure)."
                )

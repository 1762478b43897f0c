"""What a party's release may claim, by what both agreed on. A release that claims more is refused, and not answered.

Each slot of a release is a record to compare, so a party that invents slots asks more than it agreed to. An honest
party with at most the agreed number of rows has too many with a probability below 1e-10, by the noise of its counts.
"""

from __future__ import annotations

import json

import numpy as np

from veilmap.arrays import Floats
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.matching.blocks import Blocks, Side, noise_scales, read_blocks, spare_slots
from veilmap.matching.rule import Rule
from veilmap.method.method import Method
from veilmap.releases.release import Release
from veilmap.structures import CellTree, KdTree

NOISE_TAIL_EXPONENT = 25.0
"""Noise exceeds what is allowed for it with probability e^-25 = 1.4e-11."""
FEWEST_LEAVES = 256
"""Leaves per 2^axes of a tree that grows by noise alone. Measured: honest trees need at most 41 % of the limit."""
BYTES_BESIDE, BYTES_PER_NODE = 1 << 17, 512
"""Of a release file: header and footer; and a node, which takes 150 to 250 bytes before it is compressed."""
MOST_BYTES = 1 << 30
ROUNDING_FACTOR = 1 + 1e-9  # numbers that were rounded on their way through a file


def most_leaves(side: Side) -> int:
    """Return how many leaves a release of the agreed method has at most.

    A tree of a given height has a known number. One that grows as long as noisy counts say so has fewer leaves than
    rows times epsilon, times what rounding up along each axis adds.
    """
    dimensions = side.release.domain.dimensions
    structure = Method.from_json(side.release.method).structure
    nodes = structure.nodes(dimensions)
    if nodes is not None:
        return (nodes + 1) // 2 if isinstance(structure, KdTree | CellTree) else nodes  # every cut makes two
    return int(2**dimensions * (FEWEST_LEAVES + side.rows * side.release.privacy.epsilon))


def most_bytes(side: Side) -> int:
    """Return how long the file of a release of the agreed method is at most."""
    return min(BYTES_BESIDE + 2 * BYTES_PER_NODE * most_leaves(side), MOST_BYTES)


def most_slots(side: Side, made: Release, blocks: Blocks, rule: Rule) -> int:
    """Return how many slots the boxes of an honest release have at most: for rows, for losses, and for noise.

    The noise of a leaf, where it is above 0, is at most its scale times an exponential random number. For scales b_i
    with sum s and maximum m, the Chernoff bound of their sum is (sqrt(s) + sqrt(m NOISE_TAIL_EXPONENT))^2.
    """
    scales = noise_scales(made, blocks.leaf)
    spare = spare_slots(scales, made.estimates.noisy_count[blocks.leaf], rule)
    noise = (np.sqrt(scales.sum()) + np.sqrt(scales.max(initial=0) * NOISE_TAIL_EXPONENT)) ** 2
    return int(side.rows + spare.sum() + np.ceil(noise))


def must_fit_rows(side: Side, rule: Rule) -> None:
    """Refuse one's own release if the other party would. This looks at published numbers only."""
    try:
        must_be_as_agreed(side, side.release, rule)
    except BadInput:
        raise BadInput(
            f"Your release is larger than the agreed {side.rows:,} rows allow, and the other party would refuse it: "
            f"agree on a larger --rows."
        ) from None


def must_state_what_was_agreed(side: Side, rule: Rule, domain: Domain, nodes: int) -> None:
    """Refuse a file by what it states, before it is read: a small one may unpack to very many nodes."""
    if domain != rule.domain:
        raise BadInput("The other party's release has another domain than agreed.")
    if nodes > (most := 2 * most_leaves(side) + 1):  # every inner node has two children or more
        raise BadInput(
            f"The other party's release has {nodes:,} nodes, and {most:,} are the most that the agreed method and "
            f"{side.rows:,} rows allow: it is refused."
        )


def must_be_as_agreed(side: Side, other: Release, rule: Rule) -> Blocks:
    """Return the boxes of the other party's release, if an honest party could have made it for what was agreed."""
    must_state_what_was_agreed(side, rule, other.domain, other.estimates.tree.size)
    ours, theirs = side.release, other
    if _promise(theirs) != _promise(ours):
        raise BadInput("The other party's release has another epsilon, method or promise than agreed: it is refused.")
    blocks = read_blocks(other, rule)
    if (leaves := int(other.estimates.tree.is_leaf.sum())) > most_leaves(side):
        raise BadInput(
            f"The other party's release has {leaves:,} leaves, and {most_leaves(side):,} are the most that the agreed "
            f"method and {side.rows:,} rows allow: it is refused."
        )
    scales = noise_scales(other, blocks.leaf)
    _must_have_its_noise(side, scales)
    lowest = -scales * (NOISE_TAIL_EXPONENT + np.log(max(len(scales), 1)))  # of noise alone, in any leaf
    if np.any(other.estimates.noisy_count[blocks.leaf] < lowest):
        raise BadInput(
            "The other party's release has counts that no noise makes, which would buy spare slots: it is refused."
        )
    slots, most = int(blocks.slots.sum()), most_slots(side, other, blocks, rule)
    if slots > most:
        raise BadInput(
            f"The other party's release has {slots:,} slots, and {most:,} are the most that the agreed "
            f"{side.rows:,} rows allow: it is refused. If that party has more rows, agree on a larger --rows."
        )
    return blocks


def _promise(made: Release) -> tuple[object, ...]:
    """Return what two releases for the same matching have in common."""
    said = made.privacy
    method = json.dumps(dict(made.method), sort_keys=True)
    return said.private, said.epsilon, said.delta, said.rho, said.neighbours, said.unit, method


def _must_have_its_noise(side: Side, scales: Floats) -> None:
    """Refuse noise below what epsilon asks for, and more than the method adds: that would buy spare slots.

    Where the tree has a given height, its budget is fixed too: all leaves have the noise of one's own.
    """
    least = 1 / float(side.release.privacy.epsilon)
    fixed = Method.from_json(side.release.method).structure.nodes(side.release.domain.dimensions) is not None
    own = noise_scales(side.release, side.blocks.leaf).max(initial=least)
    many = (
        scales.max(initial=0) > own * ROUNDING_FACTOR
        if fixed
        else scales.sum() > most_leaves(side) * least * ROUNDING_FACTOR
    )
    if many or scales.min(initial=least) * ROUNDING_FACTOR < least:
        raise BadInput("The noise of the other party's release is not that of the agreed epsilon: it is refused.")

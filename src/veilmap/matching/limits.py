"""Upper limits on the other party's release, from what both agreed on. A release above a limit is refused.

Each slot of a release is a record to compare, so a party that invents slots asks more questions than agreed. The noise
of the counts takes an honest party with at most the agreed number of rows above a limit with probability below 1e-10.
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
"""The noise exceeds its allowance with probability e^-25 = 1.4e-11."""
BASE_LEAVES = 256
"""Leaves per 2^axes that a tree may grow from noise alone. Measured: honest trees need at most 41 % of the limit."""
FILE_OVERHEAD_BYTES = 1 << 17  # header and footer of a release file
BYTES_PER_NODE = 512  # a node takes 150 to 250 bytes before compression
MAX_FILE_BYTES = 1 << 30
ROUNDING_FACTOR = 1 + 1e-9  # tolerance for numbers that were rounded when they were stored


def max_leaves(side: Side) -> int:
    """Return the maximum number of leaves of a release with the agreed method.

    A tree of fixed height has a known number of leaves. For a tree that grows by its noisy counts, the limit is
    2^axes (``BASE_LEAVES`` + rows × epsilon).
    """
    dimensions = side.release.domain.dimensions
    structure = Method.from_json(side.release.method).structure
    nodes = structure.nodes(dimensions)
    if nodes is not None:
        return (nodes + 1) // 2 if isinstance(structure, KdTree | CellTree) else nodes  # these are binary trees
    return int(2**dimensions * (BASE_LEAVES + side.rows * side.release.privacy.epsilon))


def max_file_bytes(side: Side) -> int:
    """Return the maximum file size in bytes of a release with the agreed method."""
    return min(FILE_OVERHEAD_BYTES + 2 * BYTES_PER_NODE * max_leaves(side), MAX_FILE_BYTES)


def max_slots(side: Side, made: Release, blocks: Blocks, rule: Rule) -> int:
    """Return the maximum number of slots of an honest release: its rows, its spare slots and an allowance for noise.

    The positive part of a leaf's noise is at most its scale times an exponential random number. For scales b_i with
    sum s and maximum m, the Chernoff bound of their sum is (sqrt(s) + sqrt(m NOISE_TAIL_EXPONENT))^2.
    """
    scales = noise_scales(made, blocks.leaf)
    spare = spare_slots(scales, made.estimates.noisy_count[blocks.leaf], rule)
    noise = (np.sqrt(scales.sum()) + np.sqrt(scales.max(initial=0) * NOISE_TAIL_EXPONENT)) ** 2
    return int(side.rows + spare.sum() + np.ceil(noise))


def must_fit_rows(side: Side, rule: Rule) -> None:
    """Raise ``BadInput`` if the other party would refuse this party's release. Only published numbers are used."""
    try:
        must_be_as_agreed(side, side.release, rule)
    except BadInput:
        raise BadInput(
            f"Your release is larger than the agreed {side.rows:,} rows allow, so the other party would refuse it. "
            f"Agree on a larger --rows."
        ) from None


def must_state_what_was_agreed(side: Side, rule: Rule, domain: Domain, nodes: int) -> None:
    """Check the domain and node count stated in a file's header, because a small file may unpack to very many nodes."""
    if domain != rule.domain:
        raise BadInput("The domain of the other party's release is not the agreed domain.")
    if nodes > (limit := 2 * max_leaves(side) + 1):  # every inner node has two children or more
        raise BadInput(
            f"The other party's release is refused: it has {nodes:,} nodes, but the agreed method and {side.rows:,} "
            f"rows allow at most {limit:,}."
        )


def must_be_as_agreed(side: Side, other: Release, rule: Rule) -> Blocks:
    """Return the boxes of the other party's release, or raise ``BadInput`` if it exceeds what was agreed."""
    must_state_what_was_agreed(side, rule, other.domain, other.estimates.tree.size)
    ours, theirs = side.release, other
    if _guarantee(theirs) != _guarantee(ours):
        raise BadInput(
            "The other party's release is refused: its epsilon, method or privacy guarantee is not the agreed one."
        )
    blocks = read_blocks(other, rule)
    if (leaves := int(other.estimates.tree.is_leaf.sum())) > max_leaves(side):
        raise BadInput(
            f"The other party's release is refused: it has {leaves:,} leaves, but the agreed method and "
            f"{side.rows:,} rows allow at most {max_leaves(side):,}."
        )
    scales = noise_scales(other, blocks.leaf)
    _must_have_its_noise(side, scales)
    lowest = -scales * (NOISE_TAIL_EXPONENT + np.log(max(len(scales), 1)))  # the lowest plausible noise of any leaf
    if np.any(other.estimates.noisy_count[blocks.leaf] < lowest):
        raise BadInput(
            "The other party's release is refused: it has counts too low to be explained by noise, and such counts "
            "would give it more spare slots."
        )
    slots, limit = int(blocks.slots.sum()), max_slots(side, other, blocks, rule)
    if slots > limit:
        raise BadInput(
            f"The other party's release is refused: it has {slots:,} slots, but the agreed {side.rows:,} rows allow "
            f"at most {limit:,}. If that party has more rows, agree on a larger --rows."
        )
    return blocks


def _guarantee(made: Release) -> tuple[object, ...]:
    """Return the privacy parameters and the method, which must be equal in both releases."""
    privacy = made.privacy
    method = json.dumps(dict(made.method), sort_keys=True)
    return privacy.private, privacy.epsilon, privacy.delta, privacy.rho, privacy.neighbours, privacy.unit, method


def _must_have_its_noise(side: Side, scales: Floats) -> None:
    """Check that the noise is at least what epsilon requires and at most what the method adds.

    Excess noise would give the other party more spare slots. A tree of fixed height has a fixed budget, so the noise
    of its leaves must be the same as in this party's release.
    """
    least = 1 / float(side.release.privacy.epsilon)
    fixed = Method.from_json(side.release.method).structure.nodes(side.release.domain.dimensions) is not None
    own = noise_scales(side.release, side.blocks.leaf).max(initial=least)
    excessive = (
        scales.max(initial=0) > own * ROUNDING_FACTOR
        if fixed
        else scales.sum() > max_leaves(side) * least * ROUNDING_FACTOR
    )
    if excessive or scales.min(initial=least) * ROUNDING_FACTOR < least:
        raise BadInput("The other party's release is refused: its noise does not correspond to the agreed epsilon.")

"""The gate: charge, ask, add noise, forget what is exact. Proof: proofs/measure.md."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from threading import get_ident
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilmap.curve import CurveTree
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.kernels.counting import sum_children
from veilmap.method import Method, Noise
from veilmap.questions import Cut, Grid, Grids, Nodes, Place, Step, parts_of, split_step
from veilmap.structures import GRAINS, Gate
from veilmap.tree import CutTree, Flags, Ints, Parts, RegularTree, Tree
from veilmap.vault.dense import decay, looks_dense
from veilmap.vault.entropy import Keys, current_keys
from veilmap.vault.gaussian import concentrated
from veilmap.vault.halves import uneven_halves
from veilmap.vault.ledger import Charge, Ledger
from veilmap.vault.medians import exact_cuts, private_cuts
from veilmap.vault.misses import FARTHEST, sum_of_misses
from veilmap.vault.noise import exp_bounds
from veilmap.vault.price import GaussianPrice, LaplacePrice, NoPrice
from veilmap.vault.rows import Rows
from veilmap.vault.sampling import inner_epsilon
from veilmap.vault.sealed import Progress, Sealed, silenced
from veilmap.vault.stream import Stream

PRICES = dict(zip(Noise, (LaplacePrice, GaussianPrice, NoPrice), strict=True))
MOST_NODES = 2**27
MOST_PARTS = 2**20  # of a box along an axis: so many are told apart without a doubt (proofs/cells.md)
MOST_BOXES = 2**20  # of a grid whose answers are checked
MOST_GRIDS = 16  # of a check
UNCHANGING = bool, int, float, str, type(None), RegularTree, CutTree, CurveTree


@dataclass(frozen=True, slots=True, eq=False)
class NoisyTree:
    """Safe to publish: boxes, noisy counts, the variance of each count's noise, and what was spent."""

    tree: Tree
    noisy_count: NDArray[np.int64]  # 0 where a node was not measured
    noise_variance: NDArray[np.float64]  # infinite where a node was not measured
    charges: tuple[Charge, ...]
    private: bool  # False when the random bits were fixed for a test, or something exact is in it
    misses: tuple[tuple[int, float], ...] = ()  # by how much all boxes of a grid are off, and the variance of its noise


Review = Callable[[NoisyTree], tuple[tuple[Parts, Ints, Ints], ...]]
"""What is expected of the boxes of some grids, by someone who has seen the noisy tree and nothing else."""


def measure(
    points: Sealed,
    method: Method,
    epsilon: Fraction,
    progress: Progress = lambda part: None,
    delta: Fraction = Fraction(0),
    allow_nonprivate: bool = False,
    review: Review | None = None,
) -> NoisyTree:
    """Release the noisy counts of one tree under (``epsilon``, ``delta``)-differential privacy.

    Guarantees (neighbours: add or remove one unit, a row or a person with a stated number of rows at most):

    - Whatever asks the data is charged first, and the ledger refuses anything beyond the budget.
    - A row lies in at most one node of a level and on one path from the root: what is asked of disjoint nodes
      costs the largest price of any, and what is asked along a path costs their sum.
    - Cuts, heights and what is counted are functions of public numbers and of answers that were charged.
    - With ``delta`` = 0 and no Gaussian noise the promise is pure. Gaussian noise is accounted in ρ, and
      a release is of one kind or the other.
    - Exact medians and counts are refused, unless ``allow_nonprivate``; then the result says that it is not private.
    - An unexpected error says what kind it is, and nothing of the data.

    ``review`` is asked once the structure has counted its tree, if that has kept something to check answers with.
    """
    try:
        return _measure(points, method, epsilon, delta, allow_nonprivate, current_keys(), progress, review)
    except BaseException as error:
        failure = silenced(error)
    del points
    raise failure


def _measure(
    points: Sealed,
    method: Method,
    epsilon: Fraction,
    delta: Fraction,
    allow_nonprivate: bool,
    keys: Keys,
    progress: Progress,
    review: Review | None,
) -> NoisyTree:
    """Everything exact is a local variable here, or in the kernels that are called."""
    domain, most = points.domain, points.most_rows
    price, total = price_of(method, epsilon, delta, most)
    delta = Fraction(0) if price.currency == "rho" else delta  # all of it has bought ρ
    ledger = Ledger(total, delta, price.currency)
    private = keys.private
    tree: Tree = RegularTree(domain.side, domain.dimensions)
    order: int | None = None  # of the curve, once the domain lies along one
    rows: Rows | Stream | None = None  # once a tree that is no regular grid needs them
    chosen: Rows | None = None  # the sample of them that medians are asked of
    inner: Ledger | None = None  # what may be spent on the sample
    exact: Ints | None = None  # counts of all nodes of the tree, until it grows
    lowering: tuple[Fraction, int] | None = None  # PrivTree's noise and step, once they are paid for
    said: tuple[int, Flags] | None = None  # what it said last, and of which level
    # Counts of a regular tree need no rows to be held, unless people are to be told apart, other trees come after it,
    # or rows are to be read again and cannot be.
    stages = getattr(method.structure, "stages", None)
    streams = not points.has_units and (stages == 1 or (stages is not None and points.again))
    noisy, spread, paid = np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64)  # by node
    grain: Fraction | None = None  # what prices of single nodes are multiples of
    dearest = 0  # so many of them has any path come to cost
    misses: tuple[tuple[int, float], ...] = ()  # what a check has found: the last thing that is asked
    open_for: int | None = get_ident()  # the thread that may ask
    if not price.private:
        private = _must_be_allowed("Counts without noise", allow_nonprivate)

    def held() -> Rows | Stream:
        nonlocal rows
        if rows is None:
            if points.has_units:
                rows = Rows(*points._rows(progress)).capped(most, keys)
            else:
                found = (points._engine, domain) if streams else points._held(progress)
                rows = Rows(found) if isinstance(found, list) else Stream(*found, progress)
            rows = rows.in_order() if domain.dimensions == 1 else rows
            if isinstance(tree, RegularTree) and tree.size > 1:
                rows.follow(Place(tree, domain.bits))
        return rows

    def grow(grown: Tree, step: Step | None) -> None:
        nonlocal tree, exact, paid, dearest
        if grown.size > MOST_NODES:
            raise BadInput(f"A tree of more than {MOST_NODES:.2g} nodes was asked for: choose a coarser method.")
        if step is not None:
            held().follow(step)
            if chosen is not None:
                chosen.follow(step)
        tree, exact = grown, None
        if streams:  # rows will be read anew, and may lie on other paths by then
            paid, dearest = np.zeros(len(paid), np.int64), 0

    def refine(parts: Parts) -> None:
        _must_be_parts(parts, domain)
        if isinstance(tree, RegularTree) and rows is None:
            grown = RegularTree(domain.side, domain.dimensions, (*tree.splits, parts))
            _must_be_countable(grown, domain)
            grow(grown, None)
        else:
            split(np.tile(np.array(parts, np.int64), (tree.level_start[-1] - tree.level_start[-2], 1)))

    def split(parts: Ints) -> None:
        if order is not None or parts.max(initial=0) > min(domain.side, MOST_PARTS):
            raise BadInput(f"Boxes are split into {MOST_PARTS} parts an axis at most, and a curve only by cuts.")
        grown = tree.split(parts)
        grow(grown, split_step(grown, parts))

    def cut(axis: int, at: Ints, where: Flags | None = None) -> None:
        grown = tree.cut(axis, at, where)
        grow(grown, Cut(axis, at, grown.level_start[-3], grown.first_child))

    def shorten(height: int) -> None:
        nonlocal tree, exact
        if lowering is not None or not isinstance(tree, RegularTree):
            raise BadInput("A tree can be shortened only before its first cut, and not where dense boxes were asked.")
        if height not in range(1, tree.height + 1):
            raise BadInput(f"A tree of height {tree.height} is shortened to 1 to {tree.height}, got {height!r}.")
        if np.isfinite(spread[tree.level_start[height + 1] :]).any():
            raise BadInput(f"A level below {height} has been counted: a tree cannot be shortened so far.")
        tree = tree.shortened(height)
        exact = None if exact is None else exact[: tree.size]
        for some in (rows, chosen):
            if some is not None:
                some.follow(Place(tree, domain.bits))
        room_for(min(len(spread), tree.size))

    def follow(curve: int) -> None:
        nonlocal tree, order, rows
        if tree.size > 1 or rows is not None or len(spread):
            raise BadInput("A domain is laid along a curve before anything else is done with it.")
        if domain.dimensions < 2 or curve not in range(1, domain.bits + 1):
            raise BadInput(f"A Hilbert curve has 2 or more axes and here an order of 1 to {domain.bits}, got {curve}.")
        order, rows, tree = curve, held().along(curve, domain.bits), CutTree.root(1 << (curve * domain.dimensions), 1)

    def sample(rate: Fraction, part: Fraction, part_delta: Fraction, mechanism: str) -> Fraction:
        nonlocal chosen, inner
        if inner is not None or not 0 < rate <= 1:
            raise BadInput(f"A release has one sample of a rate from above 0 to 1, got {rate}.")
        ledger.charge(f"medians on a sample of {float(rate):g}", mechanism, part, part_delta)
        chosen = held().sampled(rate, keys)
        inner = Ledger(inner_epsilon(rate, price.pure(part)), part_delta / rate)
        return inner.left

    def medians(axis: int, part: Fraction, part_delta: Fraction, mechanism: str) -> Ints:
        nonlocal private, rows
        newest, some = tree.level(tree.height), chosen
        if some is None:
            rows = some = held().loaded()
        values, start = some.sorted_along(tree, axis, domain.bits)
        boxes = values, start, tree.lo[newest, axis].copy(), tree.hi[newest, axis].copy()
        if mechanism == "exact":
            private = _must_be_allowed("Exact medians", allow_nonprivate)
            return exact_cuts(*boxes)
        what = f"medians of level {tree.height}"
        if inner is not None:
            inner.charge(what, mechanism, part, part_delta)
        else:
            ledger.charge(what, mechanism, part, part_delta)
            part = price.bounded(part) if mechanism.startswith("exponential") else price.pure(part)
        # Groups of rows: ε-private for a row is kε-private for k, and δ grows to k e^(kε) δ at most.
        row_delta = part_delta / (most * exp_bounds(part, 30)[1]) if most > 1 else part_delta
        return private_cuts(mechanism, *boxes, part / most, row_delta, keys)

    def dense(part: Fraction) -> Flags:
        nonlocal lowering, said
        newest = tree.level(tree.height)
        if streams:
            raise BadInput("Dense boxes are asked of the same rows at every level: such a structure has no stages.")
        if lowering is None and tree.size == 1:
            ledger.charge("where to split", "privtree", part)
            lowering = decay(price.pure(part) / most, 2**domain.dimensions)
        elif lowering is None or said is None or said[0] != tree.height - 1:
            raise BadInput("Dense boxes are asked for at the root, and then level by level.")
        elif not said[1][tree.parent[newest] - tree.level_start[-3]].all():
            raise BadInput("A box is dense only inside a dense one: ask of the children of those.")
        said = tree.height, looks_dense(counts()[newest], tree.height, *lowering, keys)
        return said[1].copy()

    def halves(depth: Ints, scales: int, part: Fraction) -> Ints:
        """Of newest boxes, each cut into 2^depth cells an axis, and those in two; -1 leaves a box out."""
        newest, axes = tree.level(tree.height), domain.dimensions
        width = (tree.hi[newest] - tree.lo[newest]).min(axis=1)
        if (
            order is not None
            or depth.dtype != np.int64
            or depth.shape != width.shape
            or type(scales) is not int
            or scales not in range(1, 9)
        ):
            raise BadInput(
                "Halves are compared at 1 to 8 scales, and no curve; a depth is a whole number for each box."
            )
        side = np.where(depth < 0, 0, 2 << np.minimum(depth, 40))
        if np.any(side > np.minimum(width, MOST_PARTS)) or np.sum(side.astype(np.float64) ** axes) > MOST_NODES:
            raise BadInput(f"Boxes are cut into no more parts than they have cells, {MOST_NODES:.2g} in all.")
        ledger.charge(f"halves of the boxes of level {tree.height}", price.mechanism, part)
        return uneven_halves(held().tally(parts_of(tree, side)), side, axes, scales, part, price, keys)

    def grid(parts: Parts, part: Fraction) -> Ints:
        _must_be_parts(parts, domain)
        if order is not None or max(parts) > domain.side or math.prod(parts) > MOST_NODES:
            raise BadInput(f"A grid has at most {domain.side} parts an axis, {MOST_NODES:.2g} cells, and no curve.")
        ledger.charge("counts of a grid", price.mechanism, part)
        return held().tally(Grids((parts,), domain.bits)) + price.noise(part, math.prod(parts), keys)

    def check(part: Fraction) -> None:
        """By how much a release will be off on grids, by what someone expects who sees the noisy tree alone."""
        nonlocal misses, exact
        exact = None  # nothing is counted after this, and a large tree takes room
        asked = () if review is None else plain(review(released()))
        if type(asked) is not tuple or len(asked) > MOST_GRIDS:
            raise BadInput(f"A check is of a tuple of at most {MOST_GRIDS} grids.")
        for parts, places, expected in asked:
            _must_be_parts(parts, domain)
            if order is not None or max(parts) > domain.side or math.prod(parts) > MOST_BOXES:
                raise BadInput(f"A check has grids of at most {MOST_BOXES} cells, and no curve.")
            if not places.dtype == expected.dtype == np.int64 or places.shape != (math.prod(parts),):
                raise BadInput("Each cell of a grid is in one box, and each box is expected to have a whole number.")
            if expected.ndim != 1 or places.min() < 0 or not places.max() < len(expected) <= len(places):
                raise BadInput("A cell of a grid is in a box of which something is expected.")
            if np.any(expected > FARTHEST) or np.any(expected < -FARTHEST):
                raise BadInput(f"No box is expected to have more than {FARTHEST} rows.")
        if asked:
            ledger.charge("how far off answers are", price.mechanism, part)
            each, grids = part / len(asked), Grids(tuple(parts for parts, _, _ in asked), domain.bits)
            found = np.split(held().tally(grids), np.cumsum(grids.sizes)[:-1])
            misses = tuple(
                (sum_of_misses(cells, places, expected, each, price, keys), price.variance(each))
                for cells, (_, places, expected) in zip(found, asked, strict=True)
            )

    def counts() -> Ints:
        """Exact, of all nodes: they never leave this function's caller."""
        nonlocal exact
        if exact is None:
            if rows is None and isinstance(tree, RegularTree) and streams:
                exact = np.zeros(tree.size, np.int64)
                leaves = tree.places(tree.height)
                exact[leaves] = points._tally(Grid(leaves.shape), progress).reshape(leaves.shape)
            else:
                exact = held().tally(Nodes(tree.size))
            sum_children(tree.first_child, exact, tree.level_start[-2])
        return exact

    def room_for(size: int) -> None:
        nonlocal noisy, spread, paid
        more = max(0, size - len(noisy))
        noisy, paid = (np.concatenate([old[:size], np.zeros(more, np.int64)]) for old in (noisy, paid))
        spread = np.concatenate([spread[:size], np.full(more, np.inf)])

    def publish(nodes: slice | Ints, part: Fraction) -> None:
        """The one place where counts turn into published numbers. They have been paid for."""
        here = counts()[nodes]
        noisy[nodes] = here + price.noise(part, len(here), keys)
        spread[nodes] = price.variance(part)

    def count(level: int, part: Fraction) -> Ints:
        if level not in range(tree.height + 1):
            raise BadInput(f"A tree of height {tree.height} has the levels 0 to {tree.height}, got {level!r} to count.")
        room_for(max(len(spread), tree.level(level).stop))
        _must_be_uncounted(tree.level(level), spread, f"Level {level}")
        ledger.charge(f"counts of level {level}", price.mechanism, part)
        publish(tree.level(level), part)
        return noisy[tree.level(level)].copy()

    def count_leaves(part: Fraction) -> Ints:
        room_for(tree.size)
        leaves = np.flatnonzero(tree.is_leaf)
        _must_be_uncounted(leaves, spread, "A leaf")
        ledger.charge("counts of the leaves", price.mechanism, part)
        publish(leaves, part)
        return noisy[leaves].copy()

    def count_each(nodes: Ints, grains: Ints, one: Fraction) -> Ints:
        """Every path pays for its own nodes: the ledger, for what the dearest path has come to cost."""
        nonlocal grain, paid, dearest
        room_for(tree.size)
        if grain not in (None, one):
            raise BadInput("The prices of single nodes are multiples of one and the same price.")
        listed = nodes.ndim == 1 and nodes.dtype == grains.dtype == np.int64 and grains.shape == nodes.shape
        if not listed or np.any(np.diff(nodes) <= 0):
            raise BadInput("Nodes to count are given in order, once each, with one price for each, all whole numbers.")
        if not (nodes.min(initial=0) >= 0 and nodes.max(initial=0) < tree.size):
            raise BadInput(f"The nodes of this tree are 0 to {tree.size - 1}.")
        if not (grains.min(initial=1) >= 1 and grains.max(initial=1) <= GRAINS):
            raise BadInput(f"The price of a node is 1 to {GRAINS} grains.")
        _must_be_uncounted(nodes, spread, "A node")
        after = paid.copy()
        after[nodes] = grains
        dearer = int(_along_paths(tree, after).max()) - dearest
        if dearer:
            ledger.charge("counts of nodes, each at its own price", price.mechanism, dearer * one)
        grain, paid, dearest = one, after, dearest + dearer
        order, many = np.argsort(grains.astype(np.int16), kind="stable"), np.bincount(grains)
        for times, last in zip(np.flatnonzero(many).tolist(), np.cumsum(many)[many > 0].tolist(), strict=True):
            publish(nodes[order[last - many[times] : last]], times * one)
        return noisy[nodes].copy()

    def released() -> NoisyTree:
        room_for(tree.size)
        if not np.isfinite(spread[tree.is_leaf]).all():
            raise BadInput("A structure must count the leaves of its tree.")
        return NoisyTree(boxes(), noisy.copy(), spread.copy(), ledger.charges, private, misses)

    def boxes() -> Tree:
        return tree if order is None else CurveTree(tree, domain.dimensions, order, domain.bits)

    def door(verb: Callable[..., Any]) -> Callable[..., Any]:
        """A verb for a structure: of plain copies, one at a time, in one thread, and only while the tree grows."""

        def call(*args: object) -> Any:
            nonlocal open_for
            if open_for != get_ident():
                raise BadInput("The gate serves one call at a time, in one thread, while its tree grows.")
            open_for = None
            try:
                return plain(verb(*map(plain, args)))
            finally:
                open_for = None if misses else get_ident()

        return call

    verbs = (refine, split, cut, shorten, follow, sample, medians, dense, halves, grid, count, count_leaves, count_each)
    public: dict[str, Callable[..., Any]] = {v.__name__: v for v in (boxes, price.sharpness, check, *verbs)}
    public["tree"] = lambda: tree
    gate = Gate(domain, plain(delta), price.power, **{name: door(verb) for name, verb in public.items()})
    try:
        method.structure.grow(gate, plain(total), method.budget)
    finally:
        open_for = None
    return released()


def plain(value: Any) -> Any:
    """A copy of what passes the gate: nothing that lies about itself, or is changed later."""
    if any(type(value) is kind for kind in UNCHANGING):
        return value
    if type(value) is Fraction:
        return Fraction(value)
    if isinstance(value, np.ndarray) and (copy := np.array(value, subok=False)).dtype.kind in "biuf":
        return copy
    if type(value) is tuple:
        return tuple(map(plain, value))
    raise BadInput(
        f"The gate takes numbers, fractions, text, tuples and arrays of numbers, got {type(value).__name__}."
    )


def price_of(method: Method, epsilon: Fraction, delta: Fraction, most_rows: int) -> tuple[LaplacePrice, Fraction]:
    """What parts of the budget buy, and the budget: ε, or the ρ that makes (ε, δ)."""
    price = PRICES[method.noise](most_rows)
    return price, concentrated(epsilon, delta) if price.currency == "rho" else epsilon


def _along_paths(tree: Tree, paid: Ints) -> Ints:
    """What has been paid from the root down to each node."""
    total = paid.copy()
    for level in range(1, tree.height + 1):
        nodes = tree.level(level)
        total[nodes] += total[tree.parent[nodes]]
    return total


def _must_be_allowed(what: str, allow_nonprivate: bool) -> bool:
    """False, for what is then not private; or an error."""
    if not allow_nonprivate:
        raise BadInput(f"{what} are not private: for experiments only, with allow_nonprivate=True.")
    return False


def _must_be_parts(parts: Parts, domain: Domain) -> None:
    """A structure may be anyone's: a number that is none of these would send the kernels beyond their arrays."""
    if type(parts) is not tuple or len(parts) != domain.dimensions or not all(type(n) is int and n >= 1 for n in parts):
        raise BadInput(f"A box is cut into 1 or more parts along each of {domain.dimensions} axes, got {parts!r}.")


def _must_be_uncounted(nodes: slice | Ints, spread: NDArray[np.float64], what: str) -> None:
    if np.isfinite(spread[nodes]).any():
        raise BadInput(f"{what} has been counted already: a structure counts each node once.")


def _must_be_countable(tree: RegularTree, domain: Domain) -> None:
    """What counting needs of a regular tree is checked here."""
    powers = all(n & (n - 1) == 0 for parts in tree.splits[:-1] for n in parts)
    if not powers or max(tree.grid(tree.height)) > domain.side:
        raise BadInput(
            f"This domain has {domain.side} cells an axis, which a grid halves again and again, and cuts into other "
            f"parts only last; got {tree.splits}."
        )

"""How far off answers are: one row moves the sum by one, and error bars follow it. Proof: proofs/misses.md."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import veilmap as vm
from veilmap.answer import Answerer
from veilmap.budget import LeafOnly
from veilmap.domain import Domain
from veilmap.errors import BadInput, BudgetSpent, VaultFailure
from veilmap.estimate import estimate as estimated
from veilmap.intervals import sides
from veilmap.kernels.counting import tally_grid
from veilmap.method import METHODS, Method, Noise, named
from veilmap.review import ROOM, SLABS, Review, asked, grids, learn, predicted
from veilmap.structures import Gate
from veilmap.testing import fixed_entropy
from veilmap.vault import NoisyTree, measure, seal
from veilmap.vault.entropy import FixedKeys
from veilmap.vault.misses import FARTHEST, sum_of_misses
from veilmap.vault.price import LaplacePrice, NoPrice

PLANE = Domain({"x": (0, 1), "y": (0, 1)}, bits=10)
POINTS = np.random.default_rng(0).random((3000, 2)) ** 2
HALF = Fraction(1, 2)
CELLS = (2, 3)
PLACES = np.array([0, 0, 1, 2, 3, 1])
EXPECTED = np.array([2000, 100, 500, -7])
ASKED = (CELLS, PLACES, EXPECTED)


@dataclass
class Checked:
    """Four boxes, half of a budget of 2 for them, half for a check."""

    after: Any = None
    part: Any = Fraction(1)
    height: None = None

    def nodes(self, dimensions: int) -> int:
        return 5

    def grow(self, gate: Gate, epsilon: Fraction, budget: object) -> None:
        gate.refine((2, 2))
        gate.count_leaves(epsilon / 2)
        gate.check(self.part)
        if self.after is not None:
            self.after(gate)


def checked(review: Any, after: Any = None, noise: Noise = Noise.DISCRETE_LAPLACE, points: Any = POINTS) -> NoisyTree:
    method = Method(structure=Checked(after), budget=LeafOnly(), noise=noise)
    with fixed_entropy(3):
        return measure(seal(points, PLANE), method, Fraction(2), allow_nonprivate=True, review=review)


def slow_tally(cells: np.ndarray, parts: tuple[int, ...], bits: int) -> np.ndarray:
    """Box after box."""
    out = np.zeros(parts, np.int64)
    for row in cells:
        place = tuple(
            max(k for k in range(n) if k * 2**bits // n <= c) for c, n in zip(row.tolist(), parts, strict=True)
        )
        out[place] += 1
    return out.ravel()


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 7), min_size=1, max_size=3), st.integers(3, 9))
def test_rows_are_tallied_as_by_the_slow_twin(seed: int, parts: list[int], bits: int) -> None:
    cells = np.random.default_rng(seed).integers(0, 2**bits, (30, len(parts)))
    counts = np.zeros(np.prod(parts), np.int64)
    tally_grid(tuple(np.ascontiguousarray(cells.T)), np.array(parts), bits, counts)
    assert counts.tolist() == slow_tally(cells, tuple(parts), bits).tolist()


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=4, max_size=9),
    st.lists(st.integers(-12, 12), min_size=4, max_size=4),
    st.integers(0, 8),
)
def test_a_row_more_changes_the_sum_by_one_at_most(cells: list[tuple[int, int]], expected: list[int], at: int) -> None:
    counts, places = np.array(cells, np.int64).T
    more = counts.copy()
    more[at % len(more)] += 1
    one, two = (sum_of_misses(c, places, np.array(expected), HALF, NoPrice(1), FixedKeys(0)) for c in (counts, more))
    assert one == sum(abs(sum(c for c, box in cells if box == k) - x) for k, x in enumerate(expected))
    assert abs(two - one) == 1


def test_the_sum_is_that_of_the_boxes_and_its_noise_is_paid_for() -> None:
    """Two sums share what is paid; noise of half that rate is the near miss."""

    def twice(noisy: NoisyTree) -> Any:
        return (ASKED, ASKED)

    made = checked(twice, noise=Noise.NONE)
    cells = np.minimum((POINTS * 1024).astype(np.int64), 1023)
    counts = slow_tally(cells, CELLS, 10)
    boxes = [sum(counts[k == PLACES]) for k in range(4)]
    assert [found for found, _ in made.misses] == 2 * [np.abs(boxes - EXPECTED).sum()]
    charge = checked(twice).charges[-1]
    assert (charge.what, charge.epsilon) == ("how far off answers are", Fraction(1))
    price = LaplacePrice(1)
    assert [v for _, v in checked(twice).misses] == 2 * [price.variance(HALF)]
    keys, one = FixedKeys(1), np.array([5])
    drawn = np.array([sum_of_misses(one, np.array([0]), one, HALF, price, keys) for _ in range(4000)])
    size, spread = np.mean(np.square(drawn.astype(float))), np.sqrt(20 * price.variance(HALF) ** 2 / 4000)
    assert abs(size - price.variance(HALF)) < 6.2 * spread
    assert abs(size - price.variance(HALF / 2)) > 6.2 * spread


def test_a_review_sees_what_would_be_published_and_cannot_change_it() -> None:
    seen: list[NoisyTree] = []

    def meddle(noisy: NoisyTree) -> Any:
        seen.append(replace(noisy, noisy_count=noisy.noisy_count.copy()))
        noisy.noisy_count[:] = 0
        return (ASKED,)

    made = checked(meddle)
    assert np.array_equal(seen[0].noisy_count, made.noisy_count)
    assert made.noisy_count.any()
    assert seen[0].charges == made.charges[:-1]
    assert not seen[0].misses


@pytest.mark.parametrize(
    "wrong",
    [
        ((2,), np.arange(2), np.zeros(2, np.int64)),
        ((0, 2), np.arange(0), np.zeros(0, np.int64)),
        ((2048, 1), np.arange(2048), np.zeros(2048, np.int64)),
        ((1024, 1025), np.zeros(1024 * 1025, np.int64), np.zeros(1, np.int64)),
        (CELLS, np.arange(5), np.zeros(6, np.int64)),
        (CELLS, np.arange(6.0), np.zeros(6, np.int64)),
        (CELLS, np.arange(6), np.zeros(5, np.int64)),
        (CELLS, np.arange(6) - 1, np.zeros(6, np.int64)),
        (CELLS, np.arange(6), np.zeros(7, np.int64)),
        (CELLS, np.arange(6), np.zeros((6, 1), np.int64)),
        (CELLS, np.arange(6), np.zeros(6)),
        (CELLS, np.arange(6), np.full(6, FARTHEST + 1)),
        (CELLS, np.arange(6), np.full(6, -FARTHEST - 1)),
    ],
)
def test_what_cannot_be_checked_is_refused_and_costs_nothing(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> int:
        raise AssertionError

    monkeypatch.setattr("veilmap.vault.gate.sum_of_misses", never)
    with pytest.raises(BadInput):
        checked(lambda noisy: (wrong,))


class Spy(np.ndarray):
    """An array that would see what it is added to."""

    def __array_ufunc__(self, *_: object, **__: object) -> object:
        raise AssertionError


class Claims(type):
    """Whose classes are equal to any other."""

    def __eq__(cls, other: object) -> bool:
        return True

    __hash__ = type.__hash__


class Spied(metaclass=Claims):
    def __iter__(self) -> Any:
        yield CELLS, PLACES.view(Spy), EXPECTED.view(Spy)

    def __len__(self) -> int:
        return 1


def test_nothing_gets_through_the_gate_that_could_look_at_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of objects, objects that claim to be numbers, and kinds of arrays of someone's own."""
    hidden = np.empty(1, object)
    hidden[0] = (CELLS, PLACES.view(Spy), EXPECTED.view(Spy))
    named = np.zeros(6, [("a", np.int64)])
    for hostile in (hidden, (hidden,), Spied(), (Spied(),), ((CELLS, named, EXPECTED),), (ASKED,) * 17, np.zeros(3)):
        with pytest.raises(BadInput):
            checked(lambda noisy, hostile=hostile: hostile)
    seen: list[type] = []
    monkeypatch.setattr(
        "veilmap.vault.gate.sum_of_misses", lambda cells, *boxes: seen.extend(map(type, boxes[:2])) or 5
    )
    checked(lambda noisy: ((CELLS, PLACES.view(Spy), EXPECTED.view(Spy)),))
    assert seen == [np.ndarray, np.ndarray]


@pytest.mark.parametrize("part", [Fraction(0), Fraction(-1), Fraction(101, 100), 0.5, None], ids=str)
def test_a_check_costs_no_less_than_something_and_no_more_than_there_is(
    part: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> int:
        raise AssertionError

    monkeypatch.setattr("veilmap.vault.gate.sum_of_misses", never)
    method = Method(structure=Checked(part=part), budget=LeafOnly())
    with fixed_entropy(3), pytest.raises((BudgetSpent, VaultFailure)):
        measure(seal(POINTS, PLANE), method, Fraction(2), review=lambda noisy: (ASKED,))


def test_without_a_review_nothing_is_asked() -> None:
    for review in (None, lambda noisy: ()):
        made = checked(review)
        assert not made.misses
        assert [c.what for c in made.charges] == ["counts of the leaves"]


def test_after_a_check_the_gate_is_shut() -> None:
    for verb in (lambda gate: gate.tree(), lambda gate: gate.check(HALF), lambda gate: gate.refine((2, 2))):
        with pytest.raises(BadInput, match="one call at a time"):
            checked(lambda noisy: (ASKED,), after=verb)


def test_an_error_of_a_review_says_nothing() -> None:
    with pytest.raises(VaultFailure):
        checked(lambda noisy: 1 / 0)


# --- what is learned ----------------------------------------------------------------------------------------------


def reviewed(points: np.ndarray, seed: int = 1) -> tuple[Review, NoisyTree, Domain]:
    domain = Domain({"x": (0, 1), "y": (0, 1)})
    review = Review(domain, METHODS["best"])
    with fixed_entropy(seed):
        return review, measure(seal(points, domain), METHODS["best"], Fraction(1), review=review), domain


def test_counts_of_any_size_draw_borders() -> None:
    """However far noise has gone: their sum may run over."""
    domain = Domain({"x": (0, 1), "y": (0, 1)})
    with fixed_entropy(2):
        noisy = measure(seal(POINTS, domain), METHODS["best"], Fraction(1))
    for size in (2**62, -(2**62)):
        review = Review(domain, METHODS["best"])
        assert len(review(replace(noisy, noisy_count=np.full(noisy.tree.size, size)))) == 3


def test_sides_of_boxes() -> None:
    boxes = np.array([[0.2, 0.2, 0.4, 0.4], [0, 0.2, 1, 0.3], [0.1, 0.1, 0.9, 0.1], [0, 0.1, 0.5, 0.3], [0, 0, 1, 1]])
    expected = [[0.5, 0.5], [0, 1], [0, 1], [0.2 / 1.2, 1 / 1.2], [0.5, 0.5]]
    assert sides(boxes) == pytest.approx(np.array(expected), abs=1e-6)


@pytest.mark.parametrize("axes", [1, 2, 3, 8])
def test_grids_are_slabs_and_cubes_within_the_domain(axes: int) -> None:
    wide = Domain({f"a{k}": (0, 1) for k in range(axes)})
    assert max(grids(wide, 1000)[0]) == SLABS
    assert len(grids(wide, 1000)) == axes + (axes > 1)
    assert max(max(boxes) for boxes in grids(Domain({"x": (0, 1)}, bits=2), 5)) == 4
    assert max(max(boxes) for boxes in grids(wide, 10**6)) <= SLABS


@pytest.mark.parametrize(("axes", "bits"), [(1, 3), (2, 4), (2, 16), (3, 16), (4, 12), (8, 7)])
def test_boxes_of_a_grid_are_whole_cells_and_what_is_asked_of_them(axes: int, bits: int) -> None:
    """Borders are drawn anew for each release, and cells are those whose rows are counted."""
    domain = Domain({f"a{k}": (0, 1) for k in range(axes)}, bits=bits)
    with fixed_entropy(2):
        noisy = measure(seal(np.random.default_rng(3).random((500, axes)), domain), METHODS["best"], Fraction(1))
    answerer = Answerer(domain, estimated(noisy, METHODS["best"]), True)
    for boxes in grids(domain, noisy.tree.size):
        parts, places, expected, *_ = asked(answerer, boxes, np.random.default_rng(4))
        assert math.prod(parts) <= max(ROOM, math.prod(boxes))
        assert max(parts) <= domain.side
        assert len(expected) == math.prod(boxes)
        assert np.array_equal(np.unique(places), np.arange(len(expected)))
        low = [np.array([k * domain.side // n for k in range(n + 1)]) / domain.side for n in parts]
        at = np.stack(np.unravel_index(np.arange(len(places)), parts))
        box = np.random.default_rng(5).integers(len(expected))
        mine = at[:, places == box]
        corner = [
            [edge[k] for edge, k in zip(low, ends, strict=True)] for ends in (mine.min(axis=1), mine.max(axis=1) + 1)
        ]
        alone = answerer.within(np.array([np.ravel(corner)]), 0.95)
        assert expected[box] == np.rint(alone.estimate[0])
        assert mine.shape[1] == math.prod((mine.max(axis=1) - mine.min(axis=1) + 1).tolist())
        again = asked(answerer, boxes, np.random.default_rng(6))
        assert parts == boxes or not np.array_equal(again.places, places)


def test_misses_as_predicted_leave_error_bars_alone_and_larger_ones_stretch_them() -> None:
    review, _, _ = reviewed(np.random.default_rng(4).random((40_000, 2)))
    usual = [predicted(grid, np.zeros(4))[0] for grid in review.grids]
    same = learn(review.grids, tuple((round(s), 1.0) for s in usual))
    assert same.across == pytest.approx((1, 1), abs=0.02)
    assert same.growth == pytest.approx(0, abs=0.02)
    more = learn(review.grids, tuple((round(2 * s), 1.0) for s in usual))
    less = learn(review.grids, tuple((round(0.9 * s), 1.0) for s in usual))
    assert min(more.across) > 1.5
    assert max(less.across) < 1
    one = learn(review.grids, tuple((round(f * s), 1.0) for f, s in zip((2, 1, 1.2), usual, strict=True)))
    assert one.across[0] > 1.3 * one.across[1]
    noisy = learn(review.grids, tuple((round(9 * s), 1e6 * s**2) for s in usual))
    assert noisy.across == pytest.approx((1, 1), abs=0.02)


def test_a_checked_release_is_the_same_once_it_is_saved(tmp_path: Any) -> None:
    made = vm.release(POINTS.repeat(5, axis=0), Domain({"x": (0, 1), "y": (0, 1)}), 1)
    assert made.estimates.borders is not None
    made.save(tmp_path / "r.parquet")
    again = vm.load(tmp_path / "r.parquet")
    assert again.estimates.borders == made.estimates.borders
    boxes = [[0.1, 0.1, 0.3, 0.9], [0.1, 0.1, 0.9, 0.15]]
    assert np.array_equal(again.count(boxes).stderr, made.count(boxes).stderr)
    unlike = replace(made, estimates=replace(made.estimates, borders=replace(made.estimates.borders, growth=0.9)))
    assert not np.allclose(unlike.count(boxes).stderr, made.count(boxes).stderr)


def test_ties_that_noisy_counts_do_not_show_are_found() -> None:
    """Rows on few lines: errors of slabs are coherent, and the intervals of a release say so."""
    rng = np.random.default_rng(5)
    review, noisy, _ = reviewed(rng.random((60_000, 2)))
    even = review.estimates(noisy).borders
    assert even is not None
    for lines in (150, SLABS - 1):  # the last are nearly in step with slabs
        points = np.stack([rng.integers(0, lines, 60_000) / lines + 0.003, rng.random(60_000)], axis=1)
        review, noisy, _ = reviewed(points)
        tied = review.estimates(noisy).borders
        assert tied is not None
        assert tied.across[0] > 2 * even.across[0]


@pytest.mark.parametrize("name", ["quad-opt", "kd-hybrid"])
def test_other_methods_are_checked_when_they_are_told_to(name: str) -> None:
    """It is paid for out of the same budget, and without it nothing changes."""
    domain = Domain({"x": (0, 1), "y": (0, 1)})
    more = vm.release(POINTS, domain, 1, name, height=3, options={"check": "0.01"})
    assert more.estimates.borders is not None
    assert more.privacy.ledger[-1].epsilon == Fraction(1, 100)
    assert sum(charge.epsilon for charge in more.privacy.ledger) == 1
    usual = vm.release(POINTS, domain, 1, name, height=3)
    assert usual.estimates.borders is None
    assert "how far off answers are" not in [charge.what for charge in usual.privacy.ledger]


def test_a_stream_that_can_be_read_but_once_is_checked_as_well() -> None:
    domain = Domain({"x": (0, 1), "y": (0, 1)})
    table = pa.table({"x": POINTS[:, 0], "y": POINTS[:, 1]})
    made = []
    for points in (POINTS, table.to_reader()):
        with fixed_entropy(6):
            made.append(vm.release(points, domain, 1, "quad-opt", height=4, options={"check": "0.01"}))
    assert made[0].estimates.borders == made[1].estimates.borders


@pytest.mark.parametrize("share", [1, -0.1, "much", True])
def test_a_check_takes_a_part_of_the_budget(share: object) -> None:
    for name in ("quad-opt", "kd-standard"):
        with pytest.raises(BadInput, match="share of the check"):
            named(name, options={"check": share})


def test_a_curve_cannot_be_checked() -> None:
    with pytest.raises(BadInput, match="curve"):
        named("hilbert-r", options={"check": "0.01"})

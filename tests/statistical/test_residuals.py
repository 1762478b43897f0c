"""Residuals of a check: one row changes the sum by one, and error bars follow it. Proof: proofs/residuals.md."""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import veilmap as vm
from veilmap.answers.answerer import Answerer
from veilmap.answers.calibration import (
    TUNING,
    Grid,
    calibrate,
    check_grids,
    expected_residual,
    fit_borders,
    predict_grid,
    predict_grids,
)
from veilmap.answers.intervals import border_fractions
from veilmap.budgets import LeafOnly
from veilmap.domain import Domain
from veilmap.errors import BadInput, BudgetSpent, VaultFailure
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.estimate.pipeline import estimate as estimated
from veilmap.kernels.counting import tally_grid
from veilmap.method.method import Method, Noise
from veilmap.method.registry import METHODS, named
from veilmap.structures import Gate, Structure
from veilmap.testing import fixed_entropy
from veilmap.vault import Measured, Residual, measure, seal
from veilmap.vault.arguments import MAX_EXPECTED_COUNT
from veilmap.vault.entropy import FixedKeys
from veilmap.vault.mechanisms.residuals import noisy_residual
from veilmap.vault.noise_models import LaplaceNoise, NoNoise

PLANE = Domain({"x": (0, 1), "y": (0, 1)}, bits=10)
POINTS = np.random.default_rng(0).random((3000, 2)) ** 2
HALF = Fraction(1, 2)
CELLS = (2, 3)
PLACES = np.array([0, 0, 1, 2, 3, 1])
EXPECTED = np.array([2000, 100, 500, -7])
PREDICTION = (CELLS, PLACES, EXPECTED)


@dataclass
class Checked(Structure):
    """Four boxes that cost half of a budget of 2, and a check that costs ``price``."""

    after: Any = None
    price: Any = Fraction(1)
    height: None = None

    def nodes(self, dimensions: int) -> int:
        return 5

    def grow(self, gate: Gate, epsilon: Fraction, budget: object) -> None:
        gate.refine((2, 2))
        gate.count_leaves(epsilon / 2)
        gate.reserve_check(self.price)
        if self.after is not None:
            self.after(gate)


def measured(after: Any = None, noise: Noise = Noise.DISCRETE_LAPLACE) -> Measured:
    method = Method(structure=Checked(after), budget=LeafOnly(), noise=noise)
    with fixed_entropy(3):
        return measure(seal(POINTS, PLANE), method, Fraction(2), allow_nonprivate=True)


def residuals_of(predictions: Any, noise: Noise = Noise.DISCRETE_LAPLACE) -> tuple[Residual, ...]:
    check = measured(noise=noise).check
    assert check is not None
    return check(predictions)


def slow_tally(cells: np.ndarray, parts: tuple[int, ...], bits: int) -> np.ndarray:
    """Return the counts of a grid's cells, row by row."""
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
    one, two = (noisy_residual(c, places, np.array(expected), HALF, NoNoise(1), FixedKeys(0)) for c in (counts, more))
    assert one == sum(abs(sum(c for c, box in cells if box == k) - x) for k, x in enumerate(expected))
    assert abs(two - one) == 1


def test_the_sum_is_that_of_the_boxes_and_its_noise_is_paid_for() -> None:
    """Two sums share the price. Noise of half that rate would be detected."""
    cells = np.minimum((POINTS * 1024).astype(np.int64), 1023)
    counts = slow_tally(cells, CELLS, 10)
    boxes = [sum(counts[k == PLACES]) for k in range(4)]
    exact = residuals_of((PREDICTION, PREDICTION), Noise.NONE)
    assert [found for found, _ in exact] == 2 * [np.abs(boxes - EXPECTED).sum()]
    charge = measured().tree.charges[-1]
    assert (charge.what, charge.epsilon) == ("calibration of error bars", Fraction(1))
    noise = LaplaceNoise(1)
    assert [v for _, v in residuals_of((PREDICTION, PREDICTION))] == 2 * [noise.variance(HALF)]
    keys, one = FixedKeys(1), np.array([5])
    drawn = np.array([noisy_residual(one, np.array([0]), one, HALF, noise, keys) for _ in range(4000)])
    size, spread = np.mean(np.square(drawn.astype(float))), np.sqrt(20 * noise.variance(HALF) ** 2 / 4000)
    assert abs(size - noise.variance(HALF)) < 6.2 * spread
    assert abs(size - noise.variance(HALF / 2)) > 6.2 * spread


def test_a_check_is_charged_before_the_tree_is_given_out() -> None:
    made = measured()
    assert [charge.what for charge in made.tree.charges] == ["noisy counts of the leaves", "calibration of error bars"]
    assert sum(charge.epsilon for charge in made.tree.charges) == 2


def test_what_is_done_with_the_tree_does_not_change_the_check() -> None:
    made, other = measured(), measured()
    assert made.check is not None
    assert other.check is not None
    other.tree.noisy_count[:] = 0
    assert made.check((PREDICTION,)) == other.check((PREDICTION,))


def test_a_check_answers_once() -> None:
    """Also if the first call was refused: after one answer or refusal, every call is refused."""
    for first in ((PREDICTION,), (), ((CELLS, PLACES),)):
        check = measured().check
        assert check is not None
        with contextlib.suppress(VaultFailure):
            check(first)
        with pytest.raises(BadInput, match=r"has been used already\. A check can be called only once"):
            check((PREDICTION,))


def test_a_check_answers_one_of_many_threads() -> None:
    check, start = measured().check, threading.Barrier(8)
    assert check is not None

    def ask(_: int) -> bool:
        start.wait()
        try:
            return bool(check((PREDICTION,)))
        except BadInput:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(8))) == 1


def test_a_check_cannot_be_copied_and_lets_go_of_the_rows() -> None:
    check = measured().check
    for copy_of in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copy_of(check)
    assert repr(check) == "Check()"
    assert check is not None
    check((PREDICTION,))
    assert check._answer is None


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
        (CELLS, np.arange(6), np.full(6, MAX_EXPECTED_COUNT + 1)),
        (CELLS, np.arange(6), np.full(6, -MAX_EXPECTED_COUNT - 1)),
    ],
)
def test_what_cannot_be_checked_is_refused_before_noise_is_drawn(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> int:
        raise AssertionError

    monkeypatch.setattr("veilmap.vault.mechanisms.residuals.noisy_residual", never)
    with pytest.raises(BadInput):
        residuals_of((wrong,))


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
    for hostile in (
        hidden,
        (hidden,),
        Spied(),
        (Spied(),),
        ((CELLS, named, EXPECTED),),
        (PREDICTION,) * 17,
        np.zeros(3),
    ):
        with pytest.raises(BadInput):
            residuals_of(hostile)
    seen: list[type] = []

    def record(cells: object, places: object, expected: object, *_: object) -> int:
        seen.extend((type(places), type(expected)))
        return 5

    monkeypatch.setattr("veilmap.vault.mechanisms.residuals.noisy_residual", record)
    residuals_of(((CELLS, PLACES.view(Spy), EXPECTED.view(Spy)),))
    assert seen == [np.ndarray, np.ndarray]


@pytest.mark.parametrize("price", [Fraction(0), Fraction(-1), Fraction(101, 100), 0.5, None], ids=str)
def test_a_check_costs_no_less_than_something_and_no_more_than_there_is(
    price: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> int:
        raise AssertionError

    monkeypatch.setattr("veilmap.vault.mechanisms.residuals.noisy_residual", never)
    method = Method(structure=Checked(price=price), budget=LeafOnly())
    with fixed_entropy(3), pytest.raises((BudgetSpent, VaultFailure)):
        measure(seal(POINTS, PLANE), method, Fraction(2))


def test_without_a_reservation_there_is_no_check() -> None:
    with fixed_entropy(3):
        made = measure(seal(POINTS, PLANE), named("quad-opt", height=2), Fraction(1))
    assert made.check is None
    assert residuals_of(()) == ()


def test_after_a_check_the_gate_is_shut() -> None:
    for verb in (lambda gate: gate.tree(), lambda gate: gate.reserve_check(HALF), lambda gate: gate.refine((2, 2))):
        with pytest.raises(BadInput, match="one call at a time"):
            measured(after=verb)


def test_an_error_of_a_check_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(cells: np.ndarray, *_: object) -> int:
        raise ValueError(f"the counts are {cells}")

    monkeypatch.setattr("veilmap.vault.mechanisms.residuals.noisy_residual", fail)
    with pytest.raises(VaultFailure, match="failed with ValueError") as caught:
        residuals_of((PREDICTION,))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    frames = [frame.name for frame in caught.traceback]
    assert frames[-1] == "__call__"


# --- what is learned ----------------------------------------------------------------------------------------------


def checked(points: np.ndarray, seed: int = 1) -> tuple[tuple[Grid, ...], NodeEstimates]:
    """The grids of a check of ``best``, and the estimates that it calibrated."""
    domain, method = Domain({"x": (0, 1), "y": (0, 1)}), METHODS["best"]
    with fixed_entropy(seed):
        made = measure(seal(points, domain), method, Fraction(1))
        assert made.check is not None
        nodes = estimated(made.tree, method, learn_in_background=True)
        asked = predict_grids(domain, method, made.tree, nodes)
        return asked, calibrate(nodes, asked, made.check(tuple(grid.prediction for grid in asked)))


def test_counts_of_any_size_draw_borders() -> None:
    """However far noise has gone: their sum may run over."""
    domain = Domain({"x": (0, 1), "y": (0, 1)})
    with fixed_entropy(2):
        noisy = measure(seal(POINTS, domain), METHODS["best"], Fraction(1)).tree
    for size in (2**62, -(2**62)):
        far = replace(noisy, noisy_count=np.full(noisy.tree.size, size))
        assert len(predict_grids(domain, METHODS["best"], far, estimated(far, METHODS["best"]))) == 3


def test_sides_of_boxes() -> None:
    boxes = np.array([[0.2, 0.2, 0.4, 0.4], [0, 0.2, 1, 0.3], [0.1, 0.1, 0.9, 0.1], [0, 0.1, 0.5, 0.3], [0, 0, 1, 1]])
    expected = [[0.5, 0.5], [0, 1], [0, 1], [0.2 / 1.2, 1 / 1.2], [0.5, 0.5]]
    assert border_fractions(boxes) == pytest.approx(np.array(expected), abs=1e-6)


@pytest.mark.parametrize("axes", [1, 2, 3, 8])
def test_grids_are_slabs_and_cubes_within_the_domain(axes: int) -> None:
    wide = Domain({f"a{k}": (0, 1) for k in range(axes)})
    assert max(check_grids(wide, 1000)[0]) == TUNING.slabs_per_axis
    assert len(check_grids(wide, 1000)) == axes + (axes > 1)
    assert max(max(boxes) for boxes in check_grids(Domain({"x": (0, 1)}, bits=2), 5)) == 4
    assert max(max(boxes) for boxes in check_grids(wide, 10**6)) <= TUNING.slabs_per_axis


@pytest.mark.parametrize(("axes", "bits"), [(1, 3), (2, 4), (2, 16), (3, 16), (4, 12), (8, 7)])
def test_boxes_of_a_grid_are_whole_cells_and_what_is_asked_of_them(axes: int, bits: int) -> None:
    """Borders are drawn anew for each release, and cells are those whose rows are counted."""
    domain = Domain({f"a{k}": (0, 1) for k in range(axes)}, bits=bits)
    with fixed_entropy(2):
        noisy = measure(seal(np.random.default_rng(3).random((500, axes)), domain), METHODS["best"], Fraction(1)).tree
    answerer = Answerer(domain, estimated(noisy, METHODS["best"]), True)
    for boxes in check_grids(domain, noisy.tree.size):
        parts, places, expected, *_ = predict_grid(answerer, boxes, np.random.default_rng(4))
        assert math.prod(parts) <= max(TUNING.max_grid_cells, math.prod(boxes))
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
        again = predict_grid(answerer, boxes, np.random.default_rng(6))
        assert parts == boxes or not np.array_equal(again.places, places)


def test_residuals_as_predicted_keep_error_bars_and_larger_ones_widen_them() -> None:
    asked, _ = checked(np.random.default_rng(4).random((40_000, 2)))
    usual = [expected_residual(grid, np.zeros(4))[0] for grid in asked]
    same = fit_borders(asked, tuple((round(s), 1.0) for s in usual))
    assert same.across == pytest.approx((1, 1), abs=0.02)
    assert same.growth == pytest.approx(0, abs=0.02)
    more = fit_borders(asked, tuple((round(2 * s), 1.0) for s in usual))
    less = fit_borders(asked, tuple((round(0.9 * s), 1.0) for s in usual))
    assert min(more.across) > 1.5
    assert max(less.across) < 1
    one = fit_borders(asked, tuple((round(f * s), 1.0) for f, s in zip((2, 1, 1.2), usual, strict=True)))
    assert one.across[0] > 1.3 * one.across[1]
    noisy = fit_borders(asked, tuple((round(9 * s), 1e6 * s**2) for s in usual))
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
    even = checked(rng.random((60_000, 2)))[1].borders
    assert even is not None
    for lines in (150, TUNING.slabs_per_axis - 1):  # the last are nearly in step with slabs
        points = np.stack([rng.integers(0, lines, 60_000) / lines + 0.003, rng.random(60_000)], axis=1)
        tied = checked(points)[1].borders
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
    assert "calibration of error bars" not in [charge.what for charge in usual.privacy.ledger]


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
    with pytest.raises(BadInput, match="A Hilbert R-tree cannot check its answers"):
        named("hilbert-r", options={"check": "0.01"})

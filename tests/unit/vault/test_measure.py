"""What the vault promises: charges that never exceed epsilon, points that cannot be looked at, and one way out."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from veilmap import budgets
from veilmap.budgets import Geometric, LeafOnly, Levels, Uniform
from veilmap.domain import Domain
from veilmap.errors import BadInput, BudgetSpent, UnreadableInput, VaultFailure, VeilmapError
from veilmap.kernels.hilbert import hilbert_keys
from veilmap.method.method import Method, Noise
from veilmap.method.registry import named
from veilmap.structures import MAX_PRICE_STEPS, Gate, KdTree, PrivTree, Quadtree, Structure
from veilmap.testing import fixed_entropy
from veilmap.trees import CurveTree
from veilmap.vault import BudgetMeter, Charge, NoisyTree, Sealed, decay, measure, noise_models, noise_variance, seal
from veilmap.vault.entropy import SystemKeys
from veilmap.vault.mechanisms.gaussian import concentrated, gaussian_variance
from veilmap.vault.mechanisms.laplace import discrete_laplace
from veilmap.vault.mechanisms.sampling import inner_epsilon

GATE = sys.modules[measure.__module__]  # the module, not the function of the same name
NONE = Fraction(0)
SQUARE = Domain({"x": (0, 1), "y": (0, 1)})
HALF = Fraction(1, 2)


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise at all: what is left is what was counted."""
    monkeypatch.setattr(noise_models, "discrete_laplace", lambda epsilon, n, keys: np.zeros(n, np.int64))
    monkeypatch.setattr(noise_models, "discrete_gaussian", lambda variance, n, keys: np.zeros(n, np.int64))


def some_points(n: int = 500, axes: int = 2) -> NDArray[np.float64]:
    return np.random.default_rng(5).random((n, axes)) ** 2


# --- budget meter -----------------------------------------------------------------------------------------------


def test_budget_meter_is_exact() -> None:
    meter = BudgetMeter(Fraction(1, 10))
    for k in range(10):
        meter.charge(f"part {k}", "test", Fraction(1, 100))
    assert meter.left == 0  # ten floats of 0.01 are not 0.1
    assert sum(c.epsilon for c in meter.charges) == Fraction(1, 10)
    with pytest.raises(BudgetSpent):
        meter.charge("one more", "test", Fraction(1, 10**30))


def test_budget_meter_refuses_overspending_and_stays_as_it_was() -> None:
    meter = BudgetMeter(HALF)
    meter.charge("noisy counts of level 0", "test", Fraction(1, 4))
    with pytest.raises(
        BudgetSpent, match=r"^noisy counts of level 3 needs epsilon=0\.5 but only 0\.25 is left\. .*\.$"
    ):
        meter.charge("noisy counts of level 3", "test", HALF)
    assert meter.left == Fraction(1, 4)
    assert [c.what for c in meter.charges] == ["noisy counts of level 0"]


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(-1, 3)], ids=str)
def test_budget_meter_refuses_a_price_that_is_not_positive(epsilon: Fraction) -> None:
    meter = BudgetMeter(HALF)
    with pytest.raises(BudgetSpent, match="more than epsilon=0"):
        meter.charge("counts", "test", epsilon)
    assert (meter.left, meter.charges) == (HALF, ())


def test_charges_cannot_be_changed() -> None:
    meter = BudgetMeter(HALF)
    meter.charge("counts", "test", HALF)
    with pytest.raises(AttributeError):
        meter.charges[0].epsilon = Fraction(0)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        meter.left = Fraction(1)  # type: ignore[misc]
    assert isinstance(meter.charges, tuple)


@given(st.lists(st.fractions(0, 1, max_denominator=50), max_size=30), st.fractions(Fraction(1, 50), 3))
def test_budget_meter_never_accepts_more_than_the_total(asked: list[Fraction], total: Fraction) -> None:
    meter = BudgetMeter(total)
    for part in asked:
        try:
            meter.charge("counts", "test", part)
        except BudgetSpent:
            assert part == 0 or part > meter.left
    assert sum((c.epsilon for c in meter.charges), Fraction(0)) + meter.left == total
    assert meter.left >= 0


def test_budget_meter_adds_up_delta() -> None:
    meter = BudgetMeter(HALF, Fraction(1, 10**6))
    meter.charge("medians", "smooth", Fraction(1, 8), Fraction(1, 10**6) / 3)
    meter.charge("counts", "test", Fraction(1, 8))
    for more in (Fraction(1, 10**6), Fraction(-1, 10**9), 1e-9, 0):
        with pytest.raises(BudgetSpent, match=r"^medians needs delta=.* but only .* is left\. Give .* a larger delta"):
            meter.charge("medians", "smooth", Fraction(1, 8), more)  # type: ignore[arg-type]
    assert meter.left == Fraction(1, 4)  # what was refused cost nothing
    meter.charge("medians", "smooth", Fraction(1, 4), Fraction(2, 3) / 10**6)
    assert [(c.epsilon, c.rho, c.delta) for c in meter.charges] == [
        (Fraction(1, 8), 0, Fraction(1, 3) / 10**6),
        (Fraction(1, 8), 0, 0),
        (Fraction(1, 4), 0, Fraction(2, 3) / 10**6),
    ]
    with pytest.raises(BudgetSpent, match="needs delta"):
        BudgetMeter(HALF).charge("medians", "smooth", HALF, Fraction(1, 10**30))


def test_budget_meter_of_a_concentrated_release_adds_up_rho() -> None:
    meter = BudgetMeter(Fraction(1, 50), currency="rho")
    meter.charge("counts", "discrete-gaussian", Fraction(1, 100))
    assert meter.charges == (Charge("counts", "discrete-gaussian", rho=Fraction(1, 100)),)
    assert meter.charges[0].epsilon == meter.charges[0].delta == 0
    with pytest.raises(BudgetSpent, match=r"^counts needs rho=0\.02 but only 0\.01 is left"):
        meter.charge("counts", "discrete-gaussian", Fraction(1, 50))
    with pytest.raises(BudgetSpent, match="must cost more than rho=0, got 0"):
        meter.charge("counts", "discrete-gaussian", Fraction(0))


BUDGETS = [Uniform(), Geometric(), Geometric(ratio=0.3), Geometric(ratio=7.7), LeafOnly()]
TOTALS = [Fraction(1, 10), Fraction(1, 3), Fraction(7, 5)]


@pytest.mark.parametrize("shares", BUDGETS, ids=str)
@pytest.mark.parametrize("height", [0, 1, 2, 3, 5, None], ids=str)
def test_levels_spend_exactly_the_total(shares: budgets.LevelBudget, height: int | None) -> None:
    for axes, total in itertools.product((1, 2, 3), TOTALS):
        domain = Domain({f"a{k}": (0, 1) for k in range(axes)}, bits=5)
        noisy = measure(
            seal(some_points(axes=axes), domain), Method(structure=Quadtree(height), budget=shares), total
        ).tree
        assert sum(c.epsilon for c in noisy.charges) == total
        assert all(isinstance(c.epsilon, Fraction) and c.epsilon > 0 for c in noisy.charges)
        # one charge for each level that was measured, and each level's noise is that of its charge
        measured = [
            i for i in range(noisy.tree.height + 1) if np.isfinite(noisy.noise_variance[noisy.tree.level(i)][0])
        ]
        assert [c.what for c in noisy.charges] == [f"noisy counts of level {i}" for i in measured]
        for level, charge in zip(measured, noisy.charges, strict=True):
            assert (noisy.noise_variance[noisy.tree.level(level)] == noise_variance(charge.epsilon)).all()


@pytest.mark.parametrize("shares", [[1, 2, 3], ["0.1", 0, "0.7"], [0, 0, 1], [Fraction(1, 3), 1, 1]], ids=str)
def test_levels_by_hand_spend_exactly_the_total(shares: list[object]) -> None:
    for total in TOTALS:
        method = Method(structure=Quadtree(2), budget=Levels(shares))
        noisy = measure(seal(some_points(), SQUARE), method, total).tree
        assert sum(c.epsilon for c in noisy.charges) == total


def test_shares_add_up_exactly_and_in_proportion() -> None:
    weights = (Fraction(1, 3), Fraction(0), Fraction(5, 7))
    parts = budgets.share(Fraction(1, 10), weights)
    assert sum(parts) == Fraction(1, 10)
    assert parts[1] == 0
    assert parts[0] * weights[2] == parts[2] * weights[0]


@pytest.mark.parametrize("weights", [(), (Fraction(0),), (Fraction(-1), Fraction(2)), (Fraction(1), Fraction(-1))])
def test_shares_of_nothing_or_of_less_are_refused(weights: tuple[Fraction, ...]) -> None:
    with pytest.raises(BadInput):
        budgets.share(Fraction(1), weights)


@given(st.lists(st.fractions(0, 5), min_size=1, max_size=12).filter(any), st.fractions(Fraction(1, 10**6), 100))
def test_shares_always_add_up(weights: list[Fraction], total: Fraction) -> None:
    parts = budgets.share(total, tuple(weights))
    assert sum(parts) == total
    assert min(parts) >= 0
    assert [p == 0 for p in parts] == [w == 0 for w in weights]


# --- sealed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "look",
    [
        len,
        iter,
        list,
        lambda s: s[0],
        lambda s: 0.5 in s,
        np.asarray(0.0).__add__,
        pickle.dumps,
        lambda s: pickle.dumps(s, protocol=0),
        copy.copy,
        copy.deepcopy,
        vars,
        lambda s: s + s,
        float,
        memoryview,
        lambda s: s == 3 or s.points,
        lambda s: np.asarray(s, dtype=float),
    ],
)
def test_sealed_points_cannot_be_looked_at(look) -> None:
    with pytest.raises((TypeError, AttributeError)) as caught:
        look(seal(some_points(), SQUARE))
    assert "500" not in str(caught.value)


def test_sealed_points_show_only_their_domain() -> None:
    sealed = seal(some_points(), SQUARE)
    for text in (repr(sealed), str(sealed), f"{sealed}", f"{[sealed]}"):
        assert text.strip("[]") == "Sealed(x=0.0:1.0,y=0.0:1.0)"
    assert repr(seal(some_points(3), SQUARE)) == repr(sealed)
    assert "0." not in repr(sealed._engine) or "array" not in repr(sealed._engine)
    assert str(float(some_points()[0, 0])) not in repr(sealed._engine)


def test_sealed_points_have_no_public_name_but_the_domain() -> None:
    assert [name for name in dir(seal(some_points(), SQUARE)) if not name.startswith("_")] == [
        "again",
        "domain",
        "has_units",
        "max_rows_per_unit",
    ]


# --- measure: what is counted -----------------------------------------------------------------------------------


def naive_counts(points: NDArray[np.float64], domain: Domain, noisy: NoisyTree) -> list[int]:
    """Node by node, point by point, in exact arithmetic."""

    def cell(x: float, lo: float, hi: float) -> int | None:
        if not (math.isfinite(x) and lo <= x <= hi):
            return None
        part = (Fraction(x) - Fraction(lo)) / (Fraction(hi) - Fraction(lo))
        return min(math.floor(part * domain.side), domain.side - 1)

    cells = [[cell(x, a.lo, a.hi) for x, a in zip(row, domain.axes, strict=True)] for row in points.tolist()]
    inside = np.array([row for row in cells if None not in row], np.int64).reshape(-1, domain.dimensions)
    boxes = zip(noisy.tree.lo, noisy.tree.hi, strict=True)
    return [int(((low <= inside) & (inside < high)).all(axis=1).sum()) for low, high in boxes]


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("height", [0, 1, 3, None], ids=str)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_counts_are_exact_before_noise(axes: int, height: int | None) -> None:
    domain = Domain({f"a{k}": (0, 2 ** (k + 1)) for k in range(axes)}, bits=4)
    points = np.random.default_rng(axes).normal(1, 0.8, (400, axes))
    points[:40] = np.random.default_rng(0).integers(-1, 6, (40, axes))  # on and beyond the edges
    points[40, 0], points[41, -1], points[42, 0] = np.nan, np.inf, -np.inf
    noisy = measure(seal(points, domain), Method(structure=Quadtree(height)), HALF).tree
    want = naive_counts(points, domain, noisy)
    assert noisy.noisy_count.tolist() == want
    assert want[0] < len(points)


small = st.floats(-0.25, 1.25, width=32) | st.sampled_from([0.0, 0.5, 1.0, np.nan, np.inf, np.nextafter(0.5, 0)])


@pytest.mark.usefixtures("silence")
@settings(max_examples=60, suppress_health_check=[])
@given(points=st.lists(st.tuples(small, small), min_size=1, max_size=12), height=st.integers(0, 3))
def test_one_row_more_changes_one_node_a_level_by_one(points: list[tuple[float, float]], height: int) -> None:
    """The sensitivity on which the whole promise rests."""
    method = named("quad-opt", height=height)
    with_row = measure(seal(np.array(points), SQUARE), method, HALF).tree
    without = measure(seal(np.array(points).reshape(-1, 2)[:-1], SQUARE), method, HALF).tree
    change = with_row.noisy_count - without.noisy_count
    inside = all(0 <= x <= 1 for x in points[-1])
    for level in range(height + 1):
        here = change[with_row.tree.level(level)]
        assert sorted(here.tolist()) == [0] * (len(here) - 1) + [int(inside)]


@pytest.mark.usefixtures("silence")
def test_unmeasured_level_says_nothing() -> None:
    method = Method(structure=Quadtree(2), budget=Levels([1, 0, 1]))
    noisy = measure(seal(some_points(), SQUARE), method, HALF).tree
    middle = noisy.tree.level(1)
    assert (noisy.noisy_count[middle] == 0).all()
    assert np.isinf(noisy.noise_variance[middle]).all()
    assert noisy.noisy_count[0] == 500
    assert [c.what for c in noisy.charges] == ["noisy counts of level 0", "noisy counts of level 2"]


@pytest.mark.usefixtures("silence")
def test_counts_of_chosen_heights_are_no_view_of_finer_ones() -> None:
    noisy = measure(seal(some_points(), SQUARE), named("quad-opt"), HALF).tree
    assert noisy.noisy_count.base is None
    assert len(noisy.noisy_count) == noisy.tree.size


@dataclass(frozen=True)
class FewWeights:
    """A careless budget: it forgets the levels below the root."""

    given: int

    def weights(self, height: int, ratio: float) -> tuple[Fraction, ...]:
        return (Fraction(1),) * self.given


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("height", [2, None], ids=str)
@pytest.mark.parametrize("given", [0, 1, 2, 9, 40])
def test_level_that_nobody_paid_for_is_not_published(given: int, height: int | None) -> None:
    """Budgets are open to anyone: a bug in one may cost accuracy, never a level without noise."""
    method = Method(structure=Quadtree(height), budget=FewWeights(given))
    sealed = seal(some_points(), Domain({"x": (0, 1), "y": (0, 1)}, bits=5))
    try:
        noisy = measure(sealed, method, HALF).tree
    except (BadInput, VaultFailure):
        return
    paid = {c.what for c in noisy.charges}
    for level in range(noisy.tree.height + 1):
        if f"noisy counts of level {level}" not in paid:
            assert (noisy.noisy_count[noisy.tree.level(level)] == 0).all()
            assert np.isinf(noisy.noise_variance[noisy.tree.level(level)]).all()


@dataclass(frozen=True)
class Grown(Structure):
    """A structure by someone who wrote down what it does at the gate, step by step."""

    steps: Callable[[Gate, Fraction], object]
    height: int | None = 2
    passes: int | None = None

    def nodes(self, dimensions: int) -> int:
        return 1

    def grow(self, gate: Gate, epsilon: Fraction, budget: budgets.LevelBudget) -> None:
        self.steps(gate, epsilon)


def grown(
    steps: Callable[[Gate, Fraction], object],
    total: Fraction = HALF,
    noise: Noise = Noise.DISCRETE_LAPLACE,
    domain: Domain = SQUARE,
    **more: object,
) -> NoisyTree:
    method = Method(structure=Grown(steps), noise=noise)
    return measure(seal(some_points(), domain), method, total, **more).tree  # type: ignore[arg-type]


def refused_or_right(steps: Callable[[Gate, Fraction], object]) -> str:
    """How a release with these steps is refused; "" if not, and then it is paid for and its counts are right."""
    try:
        noisy = grown(steps)
    except (BadInput, VaultFailure, BudgetSpent) as error:
        return str(error)
    assert sum(c.epsilon for c in noisy.charges) <= HALF
    paid = {c.what for c in noisy.charges}
    want = np.array(naive_counts(some_points(), SQUARE, noisy))
    for level in range(noisy.tree.height + 1):
        here = noisy.tree.level(level)
        if f"noisy counts of level {level}" in paid:
            assert noisy.noisy_count[here].tolist() == want[here].tolist()
            assert noisy.noisy_count[here].sum() == 500  # every row once
        else:
            assert (noisy.noisy_count[here] == 0).all()
            assert np.isinf(noisy.noise_variance[here]).all()
    return ""


def in_turn(gate: Gate, *steps: tuple[object, ...]) -> None:
    """Steps by name: ("refine", (2, 2)), ("count", 0, part)."""
    for name, *arguments in steps:
        getattr(gate, str(name))(*arguments)


def middle(gate: Gate, axis: int) -> NDArray[np.int64]:
    newest = gate.tree().level(gate.tree().height)
    return (gate.tree().lo[newest, axis] + gate.tree().hi[newest, axis]) // 2


EIGHTH = Fraction(1, 8)


@pytest.mark.usefixtures("silence")
def test_structure_whose_trees_do_not_fit_each_other_cannot_count_a_row_twice() -> None:
    """It counts a tree, takes levels back, and grows others in their place."""

    def shifting(gate: Gate, epsilon: Fraction) -> None:
        in_turn(gate, ("refine", (2, 2)), ("refine", (2, 2)), ("count", 2, EIGHTH), ("shorten", 1))
        in_turn(gate, ("refine", (4, 1)), ("count", 1, EIGHTH))  # as many leaves, in other places

    assert "A level below 1 has been counted" in refused_or_right(shifting)

    def uncounted(gate: Gate, epsilon: Fraction) -> None:
        in_turn(gate, ("refine", (2, 2)), ("refine", (2, 2)), ("count", 1, EIGHTH), ("shorten", 1))
        in_turn(gate, ("refine", (4, 1)), ("count", 2, EIGHTH))

    assert refused_or_right(uncounted) == ""


def refine_all(parts: tuple[object, ...]) -> Callable[[Gate, Fraction], object]:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        for cut in parts:
            gate.refine(cut)  # type: ignore[arg-type]
        for level in range(len(parts) + 1):
            gate.count(level, epsilon / (len(parts) + 1))

    return steps


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize(
    "parts", [((4, 4),), ((2, 2), (4, 4)), ((3, 3),), ((2, 4),), ((1, 1),), ((2, 2), (5, 7))], ids=str
)
def test_structure_that_does_not_halve_is_refused_or_counted_right(parts: tuple[tuple[int, ...], ...]) -> None:
    assert refused_or_right(refine_all(parts)) == ""


ODD_PARTS = [((0, 2),), ((2, 0), (2, 2)), ((-2, -2),), ((2,),), ((2, 2, 2),), ((2.0, 2),), ((True, 2),), ((),)]


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("parts", [((3, 3), (2, 2)), *ODD_PARTS], ids=str)
@pytest.mark.parametrize("cut_first", [False, True])
def test_structure_with_impossible_parts_is_refused(parts: tuple[tuple[object, ...], ...], cut_first: bool) -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        if cut_first:
            gate.cut(0, np.array([gate.domain.side // 3]), None)
        for cut in parts:
            gate.refine(cut)  # type: ignore[arg-type]
        for level in range(gate.tree().height + 1):
            gate.count(level, epsilon / 8)

    said = refused_or_right(steps)
    if parts in ODD_PARTS:
        assert "A box is cut into 1 or more parts along each of 2 axes" in said
    else:  # rows in memory can be cut in any way; a grid cannot
        assert ("only its last split may have other numbers of parts" in said) == (not cut_first)


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("first", ["refine", "cut", "medians"])
def test_structure_that_mixes_cuts_and_refinements_is_counted_right(first: str) -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.refine((2, 4)) if first == "refine" else None
        asked = gate.medians(1, EIGHTH, NONE, "exponential") if first == "medians" else middle(gate, 1)
        gate.cut(1, asked, None)
        gate.refine((3, 5))
        gate.cut(0, middle(gate, 0) + 1, None)
        gate.cut(1, gate.tree().hi[gate.tree().level(gate.tree().height), 1].copy(), None)  # all on one side
        gate.refine((1, 2))
        for level in range(gate.tree().height + 1):
            gate.count(level, epsilon / 16)

    assert refused_or_right(steps) == ""


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("at", [[-1], [2**40], [0, 0], [], [0.5], [True], 3, [[3]], [None]], ids=str)
def test_cut_outside_its_box_is_refused(at: object) -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.cut(0, np.array(at), None)
        gate.count(1, epsilon)

    why = "takes numbers" if at == [None] else "failed with ValueError"  # an array of objects does not get through
    assert why in refused_or_right(steps)


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("level", [-2, -1, 2])
def test_level_that_is_not_there_is_not_counted(level: int) -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        in_turn(gate, ("refine", (2, 2)), ("count", level, EIGHTH))

    assert "has the levels 0 to 1, got" in refused_or_right(steps)


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("level", [0, 1])
def test_level_counted_twice_is_refused(level: int) -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        in_turn(gate, ("refine", (2, 2)), ("count", 1 - level, EIGHTH), ("count", level, EIGHTH))
        gate.count(level, EIGHTH)

    assert f"Level {level} has been counted already" in refused_or_right(steps)


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("counted", [(), (0,), (0, 1)], ids=str)
def test_structure_that_forgets_the_leaves_is_refused(counted: tuple[int, ...]) -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        in_turn(gate, ("refine", (2, 2)), ("refine", (2, 2)), *(("count", level, EIGHTH) for level in counted))

    assert refused_or_right(steps) == "A structure must count the leaves of its tree."


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("level", [-1, -2, 3, 1.0, "1", None])
def test_level_that_is_not_there_is_refused_or_says_nothing(level: object) -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        in_turn(gate, ("refine", (2, 2)), ("count", level, EIGHTH), ("count", 1, EIGHTH))

    refused_or_right(steps)


@dataclass
class CountedKeys(SystemKeys):
    """How often random bits were asked for."""

    drawn: int = 0

    def fresh(self) -> bytes:
        self.drawn += 1
        return super().fresh()


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> CountedKeys:
    counted = CountedKeys()
    monkeypatch.setattr(GATE, "current_keys", lambda: counted)
    return counted


ASKED: dict[str, Callable[[Gate, object], object]] = {
    "count": lambda gate, part: gate.count(0, part),  # type: ignore[arg-type]
    "count_leaves": lambda gate, part: gate.count_leaves(part),  # type: ignore[arg-type]
    "count_each": lambda gate, part: gate.count_each(np.array([0]), np.array([1]), part),  # type: ignore[arg-type]
    "medians": lambda gate, part: gate.medians(0, part, NONE, "exponential"),  # type: ignore[arg-type]
    "means": lambda gate, part: gate.medians(1, part, NONE, "noisy-mean"),  # type: ignore[arg-type]
    "sample": lambda gate, part: gate.sample(HALF, part, NONE, "exponential"),  # type: ignore[arg-type]
    "dense": lambda gate, part: gate.dense(part),  # type: ignore[arg-type]
    "roughness": lambda gate, part: gate.roughness(np.array([2]), 3, part),  # type: ignore[arg-type]
    "grid": lambda gate, part: gate.grid((3, 4), part),  # type: ignore[arg-type]
}
"""Everything that asks the data."""


@pytest.mark.parametrize("part", [Fraction(0), Fraction(-1, 9), 0.25, 1, float("nan"), None, Fraction(3, 4)], ids=str)
@pytest.mark.parametrize("what", ASKED)
def test_structure_cannot_pay_less_or_more_than_there_is(part: object, what: str, keys: CountedKeys) -> None:
    """A refusal comes before any noise: nothing is counted, and no median is drawn."""
    seen: list[object] = []

    def steps(gate: Gate, epsilon: Fraction) -> None:
        seen.append(ASKED[what](gate, part))

    with pytest.raises((BudgetSpent, VaultFailure)):
        grown(steps)
    assert not seen
    assert not keys.drawn


@pytest.mark.parametrize("noise", [Noise.DISCRETE_LAPLACE, Noise.DISCRETE_GAUSSIAN], ids=lambda n: n.value)
@pytest.mark.parametrize("what", ASKED)
def test_what_was_refused_stays_refused_and_costs_nothing(what: str, noise: Noise, keys: CountedKeys) -> None:
    """A structure may carry on after a refusal; asking again must not get through, nor have been paid."""
    seen: list[object] = []

    def steps(gate: Gate, total: Fraction) -> None:
        for part in (total * 2, total * 2, total + Fraction(1, 10**30)):
            with pytest.raises(BudgetSpent):
                ASKED[what](gate, part)
        seen.append(keys.drawn)
        gate.count(0, total)

    noisy = grown(steps, noise=noise, delta=Fraction(1, 10**6))
    assert seen == [0]
    assert [c.what for c in noisy.charges] == ["noisy counts of level 0"]


@pytest.mark.parametrize("noise", [Noise.DISCRETE_LAPLACE, Noise.DISCRETE_GAUSSIAN], ids=lambda n: n.value)
@pytest.mark.parametrize("what", ASKED)
def test_nothing_more_can_be_asked_when_all_is_spent(what: str, noise: Noise, keys: CountedKeys) -> None:
    drawn: list[int] = []

    def steps(gate: Gate, total: Fraction) -> None:
        gate.grid((2, 2), total)
        drawn.append(keys.drawn)
        ASKED[what](gate, total / 10**6)

    with pytest.raises(BudgetSpent, match="but only 0 is left"):
        grown(steps, noise=noise, delta=Fraction(1, 10**6))
    assert drawn == [keys.drawn]


@pytest.mark.parametrize("delta", [Fraction(1, 10**5), Fraction(-1, 10**9), 1e-9], ids=str)
def test_structure_cannot_spend_more_delta_than_there_is(delta: object, keys: CountedKeys) -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.medians(0, EIGHTH, delta, "smooth-sensitivity")  # type: ignore[arg-type]

    with pytest.raises(BudgetSpent, match="delta"):
        grown(steps, delta=Fraction(1, 10**6))
    assert not keys.drawn


def test_delta_that_bought_rho_is_not_spent_again() -> None:
    """A release is of one kind: when the noise is Gaussian there is no delta left for medians."""

    def steps(gate: Gate, total: Fraction) -> None:
        assert (total, gate.delta) == (concentrated(HALF, Fraction(1, 10**6)), 0)
        gate.medians(0, total / 2, Fraction(1, 10**7), "smooth-sensitivity")

    with pytest.raises(BudgetSpent, match="needs delta=1e-07 but only 0 is left"):
        grown(steps, noise=Noise.DISCRETE_GAUSSIAN, delta=Fraction(1, 10**6))


def test_medians_asked_twice_are_paid_twice() -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.medians(0, EIGHTH, NONE, "exponential")
        gate.cut(0, gate.medians(0, EIGHTH, NONE, "exponential"), None)
        gate.count(1, Fraction(1, 4))

    charges = grown(steps).charges
    assert [(c.what, c.mechanism, c.epsilon) for c in charges] == [
        ("medians of level 0", "exponential", EIGHTH),
        ("medians of level 0", "exponential", EIGHTH),
        ("noisy counts of level 1", "discrete-laplace", Fraction(1, 4)),
    ]

    def greedy(gate: Gate, epsilon: Fraction) -> None:
        for _ in range(5):
            gate.medians(0, EIGHTH, NONE, "exponential")

    with pytest.raises(BudgetSpent, match="medians of level 0 needs"):
        grown(greedy)


def test_what_the_gate_hands_out_can_be_changed_without_changing_what_is_published() -> None:
    seen: list[NDArray[np.int64]] = []

    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.refine((2, 2))
        for level in (0, 1):
            counts = gate.count(level, EIGHTH)
            seen.append(counts.copy())
            counts[:] = 10**9

    assert np.array_equal(grown(steps).noisy_count, np.concatenate(seen))  # and noise is drawn once


@pytest.mark.usefixtures("silence")
def test_tree_cannot_be_shortened_after_a_cut() -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.refine((2, 2))
        gate.cut(0, middle(gate, 0), None)
        gate.shorten(1)
        gate.count(1, epsilon)

    assert refused_or_right(steps).startswith("A tree can be shortened only before its first cut")


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("method", ["kd-standard", "kd-hybrid"])
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("bits", [1, 2, 20])
def test_counts_of_kd_trees_are_exact_before_noise(method: str, axes: int, bits: int) -> None:
    """Also when boxes are too small to be cut, and parts of them empty."""
    domain = Domain({f"a{k}": (0, 2 ** (k + 1)) for k in range(axes)}, bits=bits)
    points = np.random.default_rng(axes).normal(1, 0.8, (300, axes))
    points[:40] = np.random.default_rng(0).integers(-1, 6, (40, axes))
    points[40, 0], points[41, -1], points[42, 0] = np.nan, np.inf, -np.inf
    noisy = measure(seal(points, domain), named(method, height=2), HALF).tree
    measured = np.isfinite(noisy.noise_variance)
    want = naive_counts(points, domain, noisy)
    assert noisy.noisy_count.tolist() == np.where(measured, want, 0).tolist()
    assert [bool(measured[noisy.tree.level(i)].all()) for i in range(2 * axes + 1)] == [
        i % axes == 0 for i in range(2 * axes + 1)
    ]
    assert sum(c.epsilon for c in noisy.charges) == HALF


# --- prices of single nodes -------------------------------------------------------------------------------------

ONE = HALF / MAX_PRICE_STEPS


def count_at_prices(gate: Gate, *prices: tuple[int, int]) -> None:
    """Count nodes, each given with its price in steps."""
    nodes, price_steps = np.array(prices, np.int64).reshape(-1, 2).T
    gate.count_each(nodes.copy(), price_steps.copy(), ONE)


@pytest.mark.usefixtures("silence")
def test_prices_on_different_paths_do_not_add_up_and_along_a_path_they_do() -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.refine((2, 2))
        count_at_prices(gate, (0, 96))
        count_at_prices(gate, (1, 4000), (2, 17))
        count_at_prices(gate, (3, 4000), (4, 1))  # another path, no more expensive than the first: no further charge

    noisy = grown(steps)
    assert [c.epsilon for c in noisy.charges] == [96 * ONE, 4000 * ONE]  # 4096 steps in all
    assert noisy.noise_variance.tolist() == [noise_variance(n * ONE) for n in (96, 4000, 17, 4000, 1)]
    assert noisy.noisy_count.tolist() == naive_counts(some_points(), SQUARE, noisy)

    def too_expensive(gate: Gate, epsilon: Fraction) -> None:
        gate.refine((2, 2))
        count_at_prices(gate, (1, 4000), (2, 17), (3, 4000), (4, 1))
        count_at_prices(gate, (0, 97))  # on every path, including the most expensive

    with pytest.raises(BudgetSpent, match=r"noisy node counts needs epsilon=.* but only"):
        grown(too_expensive)


@pytest.mark.usefixtures("silence")
@settings(max_examples=40)
@given(
    calls=st.lists(
        st.dictionaries(st.integers(0, 20), st.sampled_from([1, 900, 1700, 2500, MAX_PRICE_STEPS])), max_size=5
    ),
    level=st.sampled_from([None, 0, 1, 2]),
)
def test_budget_meter_is_charged_for_the_most_expensive_path(calls: list[dict[int, int]], level: int | None) -> None:
    """For any nodes and prices, call after call: a call is accepted if the most expensive path can pay for it."""
    log: list[tuple[dict[int, int], bool]] = []

    def steps(gate: Gate, epsilon: Fraction) -> None:
        in_turn(gate, ("refine", (2, 2)), ("refine", (2, 2)))
        _ = None if level is None else gate.count(level, epsilon / 4)
        for call in calls:
            try:
                count_at_prices(gate, *sorted(call.items()))
                log.append((call, True))
            except (BudgetSpent, BadInput):
                log.append((call, False))
        raise BadInput("That was all.")

    meters: list[BudgetMeter] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GATE, "BudgetMeter", lambda *given: meters.append(BudgetMeter(*given)) or meters[-1])
        with pytest.raises(BadInput, match="That was all"):
            grown(steps)
    above = {v: [0, *([1 + (v - 5) // 4] if v > 4 else []), *([v] if v else [])] for v in range(21)}
    levels = {0: {0}, 1: set(range(1, 5)), 2: set(range(5, 21))}
    counted, paid = set(levels.get(level, ())) if level is not None else set(), dict.fromkeys(range(21), 0)
    for call, through in log:
        then = {**paid, **call}
        most_expensive = max(sum(then[u] for u in above[v]) for v in above)
        fits = most_expensive * ONE <= (HALF if level is None else HALF * 3 / 4) and not counted & set(call)
        assert through == fits
        if through:
            counted, paid = counted | set(call), then
    spent = max(sum(paid[u] for u in above[v]) for v in above) * ONE
    assert meters[0].left == HALF - spent - (0 if level is None else HALF / 4)


BAD_PRICES = {
    "negative node": ([1, 2, 3, 4, -1], [1, 1, 1, 1, MAX_PRICE_STEPS]),
    "only a negative node": ([-1], [1]),
    "node beyond": ([1, 5], [1, 1]),
    "twice": ([1, 1], [1, MAX_PRICE_STEPS]),
    "twice, apart": ([1, 2, 1], [1, 1, MAX_PRICE_STEPS]),
    "out of order": ([2, 1], [1, MAX_PRICE_STEPS]),
    "so far apart that their difference overflows": ([1, -(2**63)], [1, 1]),
    "twice in one of two rows": ([[1, 1]], [[MAX_PRICE_STEPS, 1]]),
    "two rows": ([[1, 2], [3, 4]], [[1, 1], [1, 1]]),
    "a price for all": ([1, 2], 1),
    "fewer prices": ([1, 2], [1]),
    "no price": ([1, 2], [1, 0]),
    "negative price": ([1, 2], [1, -1]),
    "above all": ([1, 2], [1, MAX_PRICE_STEPS + 1]),
    "fractions of steps": ([1, 2], [1.9, 1.9]),
    "floats": ([1.0, 2.0], [1, 1]),
    "flags": ([True, False, False, False, False], [1, 1, 1, 1, 1]),
}


@pytest.mark.parametrize("noise", [Noise.DISCRETE_LAPLACE, Noise.DISCRETE_GAUSSIAN], ids=lambda n: n.value)
@pytest.mark.parametrize(("nodes", "price_steps"), BAD_PRICES.values(), ids=BAD_PRICES)
def test_nodes_are_given_once_each_with_one_price(
    nodes: object, price_steps: object, noise: Noise, keys: CountedKeys
) -> None:
    """Otherwise a node might be published at one price and paid at another."""

    def steps(gate: Gate, total: Fraction) -> None:
        gate.refine((2, 2))
        gate.count_each(np.array(nodes), np.array(price_steps), total / MAX_PRICE_STEPS)
        gate.count_leaves(total / 8)

    with pytest.raises((BadInput, VaultFailure)):
        grown(steps, noise=noise, delta=Fraction(1, 10**6))
    assert not keys.drawn


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize(
    "second",
    [
        lambda gate: count_at_prices(gate, (1, 1)),
        lambda gate: count_at_prices(gate, (1, 1), (3, 1)),
        lambda gate: gate.count(1, EIGHTH),
        lambda gate: gate.count_leaves(EIGHTH),
    ],
    ids=["each", "each, among others", "level", "leaves"],
)
def test_node_counted_twice_is_refused(second: Callable[[Gate], object]) -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.refine((2, 2))
        count_at_prices(gate, (1, 1), (2, 1))
        second(gate)

    with pytest.raises(BadInput, match=r"has been counted already\. A structure counts each node at most once"):
        grown(steps)


@pytest.mark.parametrize(("passes", "cost"), [(None, 110), (1, 200)])
def test_rows_that_are_read_anew_may_lie_on_other_paths(passes: int | None, cost: int) -> None:
    """A row in node 1, and in a child of node 2 when it is read again, pays 100 and 100."""

    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.refine((2, 2))
        count_at_prices(gate, (1, 100), (2, 10), (3, 10), (4, 10))
        gate.refine((2, 2))
        count_at_prices(gate, *((node, 10 if node < 9 else 100) for node in range(5, 21)))

    structure = Grown(steps, passes=passes)
    noisy = measure(seal(some_points(), SQUARE), Method(structure=structure), HALF).tree
    assert sum(c.epsilon for c in noisy.charges) == cost * ONE


def test_dense_boxes_need_rows_that_are_held() -> None:
    structure = Grown(lambda gate, epsilon: gate.dense(epsilon / 2), passes=2)
    with pytest.raises(BadInput, match=r"needs rows that are held in memory\. Set the structure's passes to None"):
        measure(seal(some_points(), SQUARE), Method(structure=structure), HALF)


@pytest.mark.parametrize("other", [ONE * 2, ONE / 2, float(ONE), 0, -ONE], ids=str)
def test_prices_of_single_nodes_have_one_unit(other: object) -> None:
    """Sums along a path are sums of whole numbers of it."""

    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.refine((2, 2))
        count_at_prices(gate, (0, 1))
        gate.count_each(np.array([1]), np.array([1]), other)  # type: ignore[arg-type]

    with pytest.raises((BadInput, BudgetSpent, VaultFailure)):
        grown(steps)


# --- splits, cuts here and there, curves, grids -----------------------------------------------------------------


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("units", [False, True])
@pytest.mark.parametrize("first", ["", "refine", "sample", "grid"])
def test_leaves_on_any_level_are_counted_right(first: str, units: bool) -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.refine((2, 1)) if first == "refine" else None
        gate.sample(HALF, EIGHTH, NONE, "exponential") if first == "sample" else None
        gate.grid((3, 5), EIGHTH) if first == "grid" else None
        boxes = gate.tree().size // 2 + 1
        gate.split(np.array([[3, 2], [0, 7]])[:boxes])
        gate.cut(1, np.where(np.arange(6) % 2, middle(gate, 1), -5), np.arange(6) % 2 == 1)
        gate.split(np.array([[2, 2], [1, 0], [0, 0], [1, 5], [1, 1], [40, 1]]))
        gate.count(0, EIGHTH)
        gate.count_leaves(EIGHTH)

    points = some_points()
    sealed = seal(points, SQUARE, *((np.arange(500), 1) if units else ()))
    noisy = measure(sealed, Method(structure=Grown(steps)), HALF).tree
    tree, leaf = noisy.tree, noisy.tree.is_leaf
    want = np.array(naive_counts(points, SQUARE, noisy))
    assert noisy.noisy_count[leaf].tolist() == want[leaf].tolist()
    assert noisy.noisy_count[leaf].sum() == noisy.noisy_count[0] == 500
    assert len(set(tree.node_level[leaf].tolist())) >= 3
    assert np.isinf(noisy.noise_variance[1:][~leaf[1:]]).all()
    assert noisy.charges[-1] == Charge("noisy counts of the leaves", "discrete-laplace", EIGHTH)


SMALL = Domain({"x": (0, 1), "y": (0, 1)}, bits=3)
SPLITS = {
    "more parts than cells": [[9, 1]],
    "one box too many": [[2, 2], [2, 2]],
    "one axis": [[2]],
    "flat": [2, 2],
    "negative": [[2, -1]],
    "floats": [[2.0, 2.0]],
    "flags": [[True, True]],
    "nothing": [],
}


@pytest.mark.parametrize("parts", SPLITS.values(), ids=SPLITS)
@pytest.mark.parametrize("cut_first", [False, True])
def test_split_into_impossible_parts_is_refused(parts: object, cut_first: bool, keys: CountedKeys) -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.cut(0, np.array([8]), np.array([False])) if cut_first else None
        gate.split(np.array(parts))
        gate.count_leaves(epsilon)

    with pytest.raises((BadInput, VaultFailure)):
        grown(steps, domain=SMALL)
    assert not keys.drawn


@pytest.mark.usefixtures("silence")
def test_small_boxes_may_have_empty_parts() -> None:
    """A box may be split into as many parts as the domain has cells, however few it has itself."""

    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.split(np.array([[8, 3]]))
        gate.split(np.tile([[8, 8]], (24, 1)))
        gate.count_leaves(epsilon)

    noisy = grown(steps, domain=SMALL)
    assert noisy.noisy_count[noisy.tree.is_leaf].tolist() == [
        n for n, leaf in zip(naive_counts(some_points(), SMALL, noisy), noisy.tree.is_leaf, strict=True) if leaf
    ]
    assert noisy.noisy_count.sum() == 500


@pytest.mark.parametrize("axis", [2, -3, None, "x"])
def test_axis_that_is_not_there_is_refused(axis: object, keys: CountedKeys) -> None:
    for step in (
        lambda gate: gate.cut(axis, np.array([3]), None),
        lambda gate: gate.medians(axis, EIGHTH, NONE, "exponential"),
    ):
        with pytest.raises((BadInput, VaultFailure)):
            grown(lambda gate, epsilon, step=step: step(gate))  # type: ignore[misc]
    assert not keys.drawn


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("order", [1, 2, 8])
@pytest.mark.parametrize("axes", [2, 3])
def test_ranges_of_a_curve_are_counted_right(order: int, axes: int) -> None:
    domain = Domain({f"a{k}": (0, 1) for k in range(axes)}, bits=8)

    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.follow(order)
        assert (gate.tree().lo.tolist(), gate.tree().hi.tolist()) == ([[0]], [[2 ** (axes * order)]])
        gate.cut(0, gate.medians(0, EIGHTH, NONE, "exponential"), None)
        gate.cut(0, middle(gate, 0), np.array([False, True]))
        gate.cut(0, gate.tree().hi[3:, 0].copy(), None)  # all on one side
        assert isinstance(gate.boxes(), CurveTree)
        gate.count(0, EIGHTH)
        gate.count_leaves(EIGHTH)

    points = some_points(axes=axes)
    noisy = measure(seal(points, domain), Method(structure=Grown(steps)), HALF).tree
    cells = np.minimum(np.floor(points.T * domain.side), domain.side - 1).astype(np.int64) >> (8 - order)
    along = np.empty(len(points), np.int64)
    hilbert_keys(cells, order, along)
    assert isinstance(noisy.tree, CurveTree)
    ranges = zip(noisy.tree.keys.lo[:, 0], noisy.tree.keys.hi[:, 0], strict=True)
    want = [int(((lo <= along) & (along < hi)).sum()) for lo, hi in ranges]
    assert noisy.noisy_count[0] == want[0] == 500
    leaf = noisy.tree.is_leaf
    assert noisy.noisy_count[leaf].tolist() == np.array(want)[leaf].tolist()


BEFORE: dict[str, Callable[[Gate], object]] = {
    "cut": lambda gate: gate.cut(0, np.array([3]), None),
    "a cut of nothing": lambda gate: gate.cut(0, np.array([3]), np.array([False])),
    "refine": lambda gate: gate.refine((2, 2)),
    "refine into one": lambda gate: gate.refine((1, 1)),
    "split": lambda gate: gate.split(np.array([[2, 2]])),
    "medians": lambda gate: gate.medians(0, EIGHTH, NONE, "exponential"),
    "count": lambda gate: gate.count(0, EIGHTH),
    "grid": lambda gate: gate.grid((2, 2), EIGHTH),
    "sample": lambda gate: gate.sample(HALF, EIGHTH, NONE, "exponential"),
    "follow": lambda gate: gate.follow(4),
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_curve_comes_first(before: Callable[[Gate], object]) -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        before(gate)
        gate.follow(4)
        gate.count_leaves(EIGHTH)

    with pytest.raises(BadInput, match="must be laid along a curve before it is cut or measured"):
        grown(steps)


@pytest.mark.parametrize("order", [0, -1, 4, 2.5, None, "2"], ids=str)
def test_curve_of_an_order_that_does_not_fit_is_refused(order: object) -> None:
    with pytest.raises(BadInput, match="A Hilbert curve has 2 or more axes and here an order of 1 to 3"):
        grown(lambda gate, epsilon: gate.follow(order), domain=SMALL)  # type: ignore[arg-type]


@pytest.mark.parametrize("what", ["refine", "split", "grid"])
def test_curve_is_only_cut(what: str, keys: CountedKeys) -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.follow(3)
        asked = {"refine": [(2, 2)], "split": [np.array([[2]])], "grid": [(2, 2), EIGHTH]}
        getattr(gate, what)(*asked[what])
        gate.count_leaves(EIGHTH)

    with pytest.raises(BadInput, match=r"a curve is divided only by cuts|does not lie along a curve"):
        grown(steps)
    assert not keys.drawn


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("parts", [(1, 1), (3, 5), (8, 8)], ids=str)
def test_grid_is_counted_right_whatever_the_tree(parts: tuple[int, int]) -> None:
    seen: list[NDArray[np.int64]] = []

    def steps(gate: Gate, epsilon: Fraction) -> None:
        seen.append(gate.grid(parts, EIGHTH))
        gate.cut(1, np.array([3]), None)
        seen.append(gate.grid(parts, EIGHTH))
        gate.count_leaves(EIGHTH)

    noisy = grown(steps, domain=SMALL)
    cells = np.floor(some_points() * 8)
    edges = [[-0.5 + k * 8 // n for k in range(n + 1)] for n in parts]
    want = np.histogram2d(*cells.T, bins=edges)[0].ravel().tolist()
    assert [counts.tolist() for counts in seen] == [want, want]
    grid = "noisy counts of a grid"
    assert [c.what for c in noisy.charges] == [grid, grid, "noisy counts of the leaves"]


@pytest.mark.parametrize("parts", [(9, 1), (0, 2), (-1, 2), (2,), (2, 2, 2), (2.0, 2), (True, 2)], ids=str)
def test_grid_of_impossible_parts_is_refused(parts: tuple[object, ...], keys: CountedKeys) -> None:
    with pytest.raises(BadInput, match=r"1 or more parts along each of 2 axes|at most 8 parts per axis"):
        grown(lambda gate, epsilon: gate.grid(parts, EIGHTH), domain=SMALL)  # type: ignore[arg-type]
    assert not keys.drawn


# --- samples ----------------------------------------------------------------------------------------------------


def test_medians_on_a_sample_spend_what_the_sample_is_worth() -> None:
    left: list[Fraction] = []

    def steps(gate: Gate, epsilon: Fraction) -> None:
        left.append(gate.sample(Fraction(1, 100), EIGHTH, NONE, "exponential"))
        gate.cut(0, gate.medians(0, left[0] / 2, NONE, "exponential"), None)
        gate.cut(1, gate.medians(1, left[0] / 2, NONE, "exponential"), None)
        with pytest.raises(BudgetSpent, match="medians of level 2 needs"):
            gate.medians(0, Fraction(1, 10**9), NONE, "exponential")
        gate.count_leaves(epsilon - EIGHTH)

    noisy = grown(steps)
    assert left == [inner_epsilon(Fraction(1, 100), EIGHTH)]
    assert left[0] > 10 * EIGHTH
    assert noisy.charges == (
        Charge("medians on a sample of 0.01", "exponential", EIGHTH),
        Charge("noisy counts of the leaves", "discrete-laplace", HALF - EIGHTH),
    )


def test_sample_is_drawn_once() -> None:
    """A second one would be a second look, with more of the rows known."""

    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.sample(HALF, EIGHTH, NONE, "exponential")
        gate.sample(HALF, EIGHTH, NONE, "exponential")

    with pytest.raises(BadInput, match="A release has one sample"):
        grown(steps)


@pytest.mark.parametrize("rate", [Fraction(0), Fraction(-1, 2), Fraction(3, 2), 0, 2.0, float("nan")], ids=str)
def test_sample_of_an_impossible_rate_is_refused(rate: object, keys: CountedKeys) -> None:
    with pytest.raises(BadInput, match="with a rate above 0 and up to 1"):
        grown(lambda gate, epsilon: gate.sample(rate, EIGHTH, NONE, "exponential"))  # type: ignore[arg-type]
    assert not keys.drawn


def test_medians_see_the_sample_and_counts_see_all(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def cuts(mechanism: str, values: NDArray[np.int64], *more: object) -> NDArray[np.int64]:
        seen.append(len(values))
        return GATE.exact_cuts(values, *more[:3])

    monkeypatch.setattr(GATE, "private_cuts", cuts)
    monkeypatch.setattr(noise_models, "discrete_laplace", lambda epsilon, n, keys: np.zeros(n, np.int64))

    def steps(gate: Gate, epsilon: Fraction) -> None:
        part = gate.sample(Fraction(1, 10), EIGHTH, NONE, "exponential")
        for axis in (0, 1):
            gate.cut(axis, gate.medians(axis, part / 2, NONE, "exponential"), None)
        gate.count_leaves(EIGHTH)

    with fixed_entropy(1):
        noisy = grown(steps)
    assert seen[0] == seen[1]  # the same sample for all levels, and it follows the cuts
    assert 20 < seen[0] < 100
    assert noisy.noisy_count.sum() == 500


# --- where it looks dense ---------------------------------------------------------------------------------------


@pytest.fixture
def half_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first half of every level looks dense; the root does."""
    flags = lambda counts, *_: np.arange(len(counts)) < max(1, len(counts) // 2)  # noqa: E731
    monkeypatch.setattr("veilmap.vault.mechanisms.density_test.looks_dense", flags)


def halve(gate: Gate, dense: NDArray[np.bool_]) -> None:
    gate.split(np.tile(np.where(dense, 2, 0)[:, None], (1, 2)))


@pytest.mark.usefixtures("half_dense")
def test_dense_boxes_are_paid_for_once() -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        for _ in range(4):
            dense = gate.dense(EIGHTH)
            halve(gate, dense)
        gate.count_leaves(EIGHTH)

    noisy = grown(steps)
    assert [(c.what, c.mechanism, c.epsilon) for c in noisy.charges] == [
        ("where to split", "privtree", EIGHTH),
        ("noisy counts of the leaves", "discrete-laplace", EIGHTH),
    ]
    assert [len(np.arange(noisy.tree.size)[noisy.tree.level(i)]) for i in range(5)] == [1, 4, 8, 16, 32]


def dense_after(*steps: Callable[[Gate, NDArray[np.bool_]], object]) -> Callable[[Gate, Fraction], None]:
    def run(gate: Gate, epsilon: Fraction) -> None:
        dense = gate.dense(EIGHTH)
        for step in steps:
            step(gate, dense)
        gate.dense(EIGHTH)

    return run


LEVEL_BY_LEVEL = "A density test starts at the root and continues level by level"
INSIDE = "Only the children of dense boxes can be tested for density"
OUT_OF_ORDER: dict[str, tuple[Callable[[Gate, Fraction], None], str]] = {
    "the root twice": (dense_after(), LEVEL_BY_LEVEL),
    "a level skipped": (dense_after(halve, lambda gate, _: halve(gate, np.ones(4, np.bool_))), LEVEL_BY_LEVEL),
    "a level twice": (dense_after(halve, lambda gate, _: gate.dense(EIGHTH)), LEVEL_BY_LEVEL),
    "not from the root on": (
        lambda gate, epsilon: in_turn(gate, ("refine", (2, 2)), ("dense", EIGHTH)),
        LEVEL_BY_LEVEL,
    ),
    "below what was not dense": (
        dense_after(halve, lambda gate, _: (gate.dense(EIGHTH), halve(gate, np.ones(4, np.bool_)))),
        INSIDE,
    ),
    "below what was not dense, after the flags were changed": (
        dense_after(halve, lambda gate, _: np.copyto(gate.dense(EIGHTH), True), lambda gate, _: gate.refine((2, 2))),
        INSIDE,
    ),
}


@pytest.mark.usefixtures("half_dense")
@pytest.mark.parametrize(("steps", "sentence"), OUT_OF_ORDER.values(), ids=OUT_OF_ORDER)
def test_dense_boxes_out_of_order_are_refused(steps: Callable[[Gate, Fraction], None], sentence: str) -> None:
    """Its one price is for one walk down from the root, and for nothing else."""
    with pytest.raises(BadInput, match=sentence):
        grown(steps)


# --- what is not private ----------------------------------------------------------------------------------------


def exact_medians(gate: Gate, epsilon: Fraction) -> None:
    gate.cut(0, gate.medians(0, NONE, NONE, "exact"), None)
    gate.count_leaves(epsilon)


def test_exact_medians_need_permission_and_say_so() -> None:
    with pytest.raises(BadInput, match=r"Exact medians are not private\. For experiments on public data"):
        grown(exact_medians)
    noisy = grown(exact_medians, allow_nonprivate=True)
    assert not noisy.private
    assert [c.what for c in noisy.charges] == ["noisy counts of the leaves"]
    assert sorted(naive_counts(some_points(), SQUARE, noisy)) == [250, 250, 500]


def test_counts_without_noise_need_permission_and_say_so(keys: CountedKeys) -> None:
    asked: list[Gate] = []
    with pytest.raises(BadInput, match="Counts without noise are not private"):
        grown(lambda gate, epsilon: asked.append(gate), noise=Noise.NONE)
    assert not asked  # not even begun
    noisy = grown(lambda gate, epsilon: gate.count(0, epsilon), noise=Noise.NONE, allow_nonprivate=True)
    assert (noisy.noisy_count.tolist(), noisy.noise_variance.tolist(), noisy.private) == ([500], [0.0], False)
    assert not keys.drawn


def test_permission_alone_makes_nothing_exact() -> None:
    assert grown(lambda gate, epsilon: gate.count(0, epsilon), allow_nonprivate=True).private


@pytest.mark.parametrize("mechanism", ["exactly", "", "cell", "none"])
def test_medians_are_of_the_closed_family(mechanism: str, keys: CountedKeys) -> None:
    with pytest.raises(BadInput, match="Unknown mechanism for medians"):
        grown(lambda gate, epsilon: gate.medians(0, EIGHTH, NONE, mechanism))
    assert not keys.drawn


# --- people with many rows --------------------------------------------------------------------------------------

CROWD = np.concatenate([np.full((50, 2), 0.1), some_points(100) * 0.4 + 0.55])  # one person fifty times, in one cell
OWNERS = np.concatenate([np.zeros(50, np.int64), np.arange(1, 101)])


def of_people(structure: object, most: int = 3, epsilon: Fraction = HALF, **more: object) -> NoisyTree:
    method = Method(structure=structure, noise=more.pop("noise", Noise.DISCRETE_LAPLACE))  # type: ignore[arg-type]
    return measure(seal(CROWD, SQUARE, OWNERS, most), method, epsilon, **more).tree  # type: ignore[arg-type]


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("most", [1, 3, 49, 50, 1000])
@pytest.mark.parametrize("structure", [Quadtree(2), KdTree(1), PrivTree("1/4")], ids=lambda s: type(s).__name__)
def test_one_person_adds_no_more_than_their_limit(structure: object, most: int) -> None:
    noisy = of_people(structure, most)
    assert noisy.noisy_count[noisy.tree.is_leaf].sum() == 100 + min(most, 50)
    if isinstance(structure, Quadtree):
        assert noisy.noisy_count[noisy.tree.level(2)][0] == min(most, 50)


def test_noise_covers_all_rows_of_a_person() -> None:
    noisy = of_people(Quadtree(1))
    assert [noisy.noise_variance[v] for v in (0, 1)] == [noise_variance(c.epsilon / 3) for c in noisy.charges]
    chance = Fraction(1, 10**6)
    noisy = of_people(Quadtree(1), noise=Noise.DISCRETE_GAUSSIAN, delta=chance)
    assert [noisy.noise_variance[v] for v in (0, 1)] == [gaussian_variance(9 / (2 * c.rho)) for c in noisy.charges]
    assert sum(c.rho for c in noisy.charges) == concentrated(HALF, chance)


def test_noise_that_is_drawn_is_that_of_the_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of ε is what the sampler is asked for, not only what is published about it."""
    asked: list[Fraction] = []

    def draw(epsilon: Fraction, n: int, keys: object) -> NDArray[np.int64]:
        asked.append(epsilon)
        return np.zeros(n, np.int64)

    monkeypatch.setattr(noise_models, "discrete_laplace", draw)
    charges = of_people(Quadtree(2)).charges
    assert asked == [c.epsilon / 3 for c in charges]


@pytest.mark.parametrize("mechanism", ["exponential", "noisy-mean", "smooth-sensitivity"])
def test_medians_pay_for_all_rows_of_a_person(monkeypatch: pytest.MonkeyPatch, mechanism: str) -> None:
    asked: list[tuple[Fraction, Fraction]] = []

    def cuts(mechanism: str, values: object, start: object, lo: object, hi: NDArray[np.int64], *more: object) -> object:
        asked.append(more[:2])  # type: ignore[arg-type]
        return hi

    monkeypatch.setattr(GATE, "private_cuts", cuts)
    delta = Fraction(1, 10**6) if mechanism == "smooth-sensitivity" else NONE
    noisy = of_people(KdTree(1, median=mechanism), delta=delta)
    for (epsilon, chance), charge in zip(asked, noisy.charges[:2], strict=True):
        assert epsilon == charge.epsilon / 3
        # three rows at ε/3: three times δ, and e^(2ε/3) more
        assert 3 * chance * Fraction(math.exp(2 * charge.epsilon / 3)) <= charge.delta
        assert charge.delta == delta / 2


def test_splits_pay_for_all_rows_of_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Fraction, int]] = []

    def dense(counts: NDArray[np.int64], depth: int, *lowering: object) -> NDArray[np.bool_]:
        asked.append(lowering[:2])  # type: ignore[arg-type]
        return np.zeros(len(counts), np.bool_)

    monkeypatch.setattr("veilmap.vault.mechanisms.density_test.looks_dense", dense)
    of_people(PrivTree())
    assert asked == [decay(HALF / 2 / 3, 4)]


def test_sample_takes_people_and_not_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of someone's rows (of those that count), or none."""
    seen: set[int] = set()

    def cuts(mechanism: str, values: NDArray[np.int64], *more: object) -> NDArray[np.int64]:
        seen.add(int((values < SQUARE.side // 4).sum()))
        return GATE.exact_cuts(values, *more[:3])

    monkeypatch.setattr(GATE, "private_cuts", cuts)
    for seed in range(12):
        with fixed_entropy(seed):
            of_people(KdTree(1, fanout=2, sample=HALF), most=20)
    assert seen == {0, 20}


def test_which_rows_of_a_person_count_is_left_to_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_models, "discrete_laplace", lambda epsilon, n, keys: np.zeros(n, np.int64))
    points, domain = np.arange(16)[:, None] / 16, Domain({"x": (0, 1)}, bits=4)
    times = np.zeros(16, np.int64)
    for seed in range(200):
        with fixed_entropy(seed):
            sealed = seal(points, domain, np.zeros(16, np.int64), 4)
            leaves = measure(sealed, Method(structure=Quadtree(4), budget=LeafOnly()), HALF).tree.noisy_count[-16:]
        assert sorted(leaves.tolist()) == [0] * 12 + [1] * 4
        times += leaves
    assert times.min() > 15  # each 50 times, give or take 6
    assert times.max() < 95


@pytest.mark.parametrize(("unit", "most"), [(OWNERS, None), (None, 3), (OWNERS, 0), (OWNERS, 2.0), (OWNERS, True)])
def test_people_and_their_limit_go_together(unit: object, most: object) -> None:
    with pytest.raises(BadInput, match=r"together, or neither|must be a whole number from 1 to 1000000, got"):
        seal(CROWD, SQUARE, unit, most)  # type: ignore[arg-type]


# --- measure: charge, then noise --------------------------------------------------------------------------------


@pytest.mark.parametrize("height", [3, None], ids=str)
def test_every_level_is_charged_before_its_noise_is_drawn(monkeypatch: pytest.MonkeyPatch, height: int | None) -> None:
    events: list[tuple[str, Fraction]] = []
    charge = BudgetMeter.charge

    def charged(self: BudgetMeter, what: str, mechanism: str, epsilon: Fraction, delta: Fraction = NONE) -> None:
        charge(self, what, mechanism, epsilon, delta)
        events.append(("charge", epsilon))

    def drawn(epsilon: Fraction, n: int, keys: object) -> NDArray[np.int64]:
        events.append(("noise", epsilon))
        return discrete_laplace(epsilon, n, keys)  # type: ignore[arg-type]

    monkeypatch.setattr(BudgetMeter, "charge", charged)
    monkeypatch.setattr(noise_models, "discrete_laplace", drawn)
    noisy = measure(
        seal(some_points(), Domain({"x": (0, 1), "y": (0, 1)}, bits=5)), named("quad-opt", height=height), HALF
    ).tree
    charges, draws = ([e for kind, e in events if kind == k] for k in ("charge", "noise"))
    assert charges == draws == [c.epsilon for c in noisy.charges]
    for k, (kind, _) in enumerate(events):
        if kind == "noise":  # by then its own charge is in the meter
            seen = [kind for kind, _ in events[: k + 1]]
            assert seen.count("charge") >= seen.count("noise")


def test_refused_charge_draws_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Fraction] = []

    def draw(epsilon: Fraction, n: int, keys: object) -> NDArray[np.int64]:
        drawn.append(epsilon)
        return np.zeros(n, np.int64)

    monkeypatch.setattr(GATE, "BudgetMeter", lambda total, *more: BudgetMeter(total / 2, *more))
    monkeypatch.setattr(noise_models, "discrete_laplace", draw)
    with pytest.raises(BudgetSpent, match="but only"):
        measure(seal(some_points(), SQUARE), Method(structure=Quadtree(3), budget=Uniform()), HALF)
    assert sum(drawn) <= HALF / 2


def test_noise_is_drawn_for_each_node_on_its_own() -> None:
    noisy = measure(
        seal(np.zeros((0, 2)), SQUARE), Method(structure=Quadtree(8), budget=Uniform()), Fraction(1, 10)
    ).tree
    assert independent(noisy.noisy_count[noisy.tree.level(8)])
    assert independent(noisy.noisy_count[noisy.tree.level(7)])
    again = measure(
        seal(np.zeros((0, 2)), SQUARE), Method(structure=Quadtree(8), budget=Uniform()), Fraction(1, 10)
    ).tree
    assert np.mean(noisy.noisy_count == again.noisy_count) < 0.05


def independent(draws: NDArray[np.int64]) -> bool:
    """No node repeats another one near it: at lags up to 64, no correlation beyond 7 standard errors."""
    x = (draws - draws.mean()) / draws.std()
    return all(abs(np.mean(x[lag:] * x[:-lag])) < 7 / math.sqrt(len(x)) for lag in range(1, 65))


def test_noise_shared_by_siblings_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def shared(epsilon: Fraction, n: int, keys: object) -> NDArray[np.int64]:
        return np.repeat(discrete_laplace(epsilon, -(-n // 4), keys), 4)[:n]  # type: ignore[arg-type]

    monkeypatch.setattr(noise_models, "discrete_laplace", shared)
    noisy = measure(
        seal(np.zeros((0, 2)), SQUARE), Method(structure=Quadtree(8), budget=Uniform()), Fraction(1, 10)
    ).tree
    assert not independent(noisy.noisy_count[noisy.tree.level(8)])


@pytest.mark.parametrize("noise", ["none", "discrete-laplace", None])
def test_only_the_closed_set_of_noises_is_taken(noise: object, keys: CountedKeys) -> None:
    method = named("quad-opt", height=1)
    object.__setattr__(method, "noise", noise)  # a Method would refuse it; so does the vault
    with pytest.raises((BadInput, VaultFailure)):
        measure(seal(some_points(), SQUARE), method, HALF)
    assert not keys.drawn


def test_fixed_entropy_is_marked() -> None:
    with fixed_entropy(1):
        assert not measure(seal(some_points(), SQUARE), named("quad-opt", height=1), HALF).tree.private
    assert measure(seal(some_points(), SQUARE), named("quad-opt", height=1), HALF).tree.private


# --- measure: when something breaks -----------------------------------------------------------------------------

QUOTED = "the point at 0.123456789, row 4242"


@dataclass
class BrokenEngine:
    """Fails while it holds the data open, as files and memory do."""

    error: BaseException
    secret: NDArray[np.float64]
    rereadable: bool = True

    def tally(self, domain: object, question: object, progress: object) -> NDArray[np.int64]:
        rows = self.secret  # an open local variable, as in any real engine
        try:
            raise KeyError(QUOTED, rows)
        except KeyError:
            raise self.error  # noqa: B904 - libraries do so, and then a context hangs on


def inner_frames(error: BaseException) -> list[str]:
    """Functions of the vault's inside, or of engines and kernels, that a traceback still holds open."""
    found, chain = [], [error]
    while chain:
        now = chain.pop()
        chain += [e for e in (now.__cause__, now.__context__) if e is not None]
        trace = now.__traceback__
        while trace is not None:
            frame = trace.tb_frame
            if frame.f_code.co_name == "tally" or "/veilmap/" in frame.f_code.co_filename.replace("\\", "/"):
                arrays = [v for v in frame.f_locals.values() if isinstance(v, np.ndarray)]
                if arrays or frame.f_code.co_name.startswith("_") or frame.f_code.co_name == "tally":
                    found.append(frame.f_code.co_name)
            trace = trace.tb_next
    return found


BREAKS = [
    RuntimeError(QUOTED),
    ValueError(QUOTED),
    OSError(5, QUOTED),
    UnicodeDecodeError("utf-8", QUOTED.encode(), 0, 1, QUOTED),
    AssertionError(QUOTED),
    StopIteration(QUOTED),
]


@pytest.mark.parametrize("error", BREAKS, ids=lambda e: type(e).__name__)
def test_unexpected_error_says_its_kind_and_drags_nothing_along(error: Exception) -> None:
    sealed = Sealed(BrokenEngine(error, some_points()), SQUARE)
    with pytest.raises(VaultFailure) as caught:
        measure(sealed, named("quad-opt", height=1), HALF)
    failure = caught.value
    assert type(error).__name__ in str(failure)
    assert failure.args == (str(failure),)
    assert "0.123" not in str(failure)
    assert "4242" not in str(failure)
    assert failure.__cause__ is None
    assert failure.__context__ is None
    assert not inner_frames(failure)


@pytest.mark.parametrize(
    "error",
    [
        UnreadableInput("A file is cut short."),
        BudgetSpent("Spent."),
        MemoryError("malloc of 4242"),
        KeyboardInterrupt(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_expected_error_drags_nothing_along_either(error: BaseException) -> None:
    """A crash reporter that prints the local variables of a traceback must find none of the vault's."""
    sealed = Sealed(BrokenEngine(error, some_points()), SQUARE)
    with pytest.raises((VeilmapError, MemoryError, KeyboardInterrupt)) as caught:
        measure(sealed, named("quad-opt", height=1), HALF)
    assert "4242" not in str(caught.value)
    assert not inner_frames(caught.value)
    if isinstance(error, VeilmapError):
        assert str(caught.value) == str(error)


@pytest.mark.parametrize("kind", [RuntimeError, BadInput, MemoryError, KeyboardInterrupt], ids=lambda k: k.__name__)
def test_error_after_counting_leaves_no_exact_count_in_its_traceback(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    def fail(epsilon: Fraction, n: int, keys: object) -> NDArray[np.int64]:
        raise kind("noise")

    monkeypatch.setattr(noise_models, "discrete_laplace", fail)
    with pytest.raises((VeilmapError, MemoryError, KeyboardInterrupt)) as caught:
        measure(seal(some_points(), SQUARE), named("quad-opt", height=1), HALF)
    assert not inner_frames(caught.value)


def test_frames_that_hold_arrays_would_be_seen() -> None:
    sealed = Sealed(BrokenEngine(RuntimeError(), some_points()), SQUARE)
    with pytest.raises(RuntimeError) as caught:
        sealed._tally(None, None)  # type: ignore[arg-type]
    assert inner_frames(caught.value)


# --- heights that are chosen --------------------------------------------------------------------------------------


def test_the_height_is_chosen_from_the_noisy_count() -> None:
    """Were it chosen from the true one, the published height would give that away for free."""
    seen = []

    class Recording(Quadtree):
        def choose(self, *known: int) -> int:
            seen.append(known[0])
            return 2

    points = some_points()
    noisy = measure(seal(points, SQUARE), Method(structure=Recording()), Fraction(1, 1000)).tree
    assert seen == [noisy.noisy_count[0]]
    assert seen[0] != len(points)  # noise of scale 50,000: equal with probability 1e-5


@pytest.mark.parametrize("answer", [0, -1, 99, 2.5, None])
def test_a_height_out_of_range_is_refused(answer: object) -> None:
    class Odd(Quadtree):
        def choose(self, *known: int) -> int:
            return answer  # type: ignore[return-value]

    with pytest.raises(BadInput, match="can be shortened to 1 to 11, got"):
        measure(seal(some_points(), SQUARE), Method(structure=Odd()), HALF)

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

from auditor import least_epsilon
from veilmap import budget
from veilmap.budget import Geometric, LeafOnly, Levels, Uniform
from veilmap.domain import Domain
from veilmap.curve import CurveTree
from veilmap.errors import BadInput, BudgetSpent, UnreadableInput, VaultFailure, VeilmapError
from veilmap.kernels.curves import hilbert_keys
from veilmap.method import Estimate, Method, Noise, named
from veilmap.structures import GRAINS, Gate, KdTree, PrivTree, Quadtree
from veilmap.testing import fixed_entropy
from veilmap.vault import Charge, Ledger, NoisyTree, Sealed, decay, measure, noise_variance, price, seal
from veilmap.vault.entropy import SystemKeys
from veilmap.vault.gaussian import concentrated, gaussian_variance
from veilmap.vault.noise import discrete_laplace
from veilmap.vault.sampling import inner_epsilon

GATE = sys.modules[measure.__module__]  # the module, not the function of the same name
NONE = Fraction(0)
SQUARE = Domain({"x": (0, 1), "y": (0, 1)})
HALF = Fraction(1, 2)


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise at all: what is left is what was counted."""
    monkeypatch.setattr(price, "discrete_laplace", lambda epsilon, n, keys: np.zeros(n, np.int64))
    monkeypatch.setattr(price, "discrete_gaussian", lambda variance, n, keys: np.zeros(n, np.int64))


def some_points(n: int = 500, axes: int = 2) -> NDArray[np.float64]:
    return np.random.default_rng(5).random((n, axes)) ** 2


# --- ledger -----------------------------------------------------------------------------------------------------


def test_ledger_is_exact() -> None:
    ledger = Ledger(Fraction(1, 10))
    for k in range(10):
        ledger.charge(f"part {k}", "test", Fraction(1, 100))
    assert ledger.left == 0  # ten floats of 0.01 are not 0.1
    assert sum(c.epsilon for c in ledger.charges) == Fraction(1, 10)
    with pytest.raises(BudgetSpent):
        ledger.charge("one more", "test", Fraction(1, 10**30))


def test_ledger_refuses_overspending_in_a_sentence_and_stays_as_it_was() -> None:
    ledger = Ledger(HALF)
    ledger.charge("counts of level 0", "test", Fraction(1, 4))
    with pytest.raises(BudgetSpent, match=r"^counts of level 3 needs epsilon=0\.5 but only 0\.25 is left: .*\.$"):
        ledger.charge("counts of level 3", "test", HALF)
    assert ledger.left == Fraction(1, 4)
    assert [c.what for c in ledger.charges] == ["counts of level 0"]


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(-1, 3)], ids=str)
def test_ledger_refuses_a_charge_of_nothing(epsilon: Fraction) -> None:
    ledger = Ledger(HALF)
    with pytest.raises(BudgetSpent, match="more than epsilon=0"):
        ledger.charge("counts", "test", epsilon)
    assert (ledger.left, ledger.charges) == (HALF, ())


def test_charges_cannot_be_changed() -> None:
    ledger = Ledger(HALF)
    ledger.charge("counts", "test", HALF)
    with pytest.raises(AttributeError):
        ledger.charges[0].epsilon = Fraction(0)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        ledger.left = Fraction(1)  # type: ignore[misc]
    assert isinstance(ledger.charges, tuple)


@given(st.lists(st.fractions(0, 1, max_denominator=50), max_size=30), st.fractions(Fraction(1, 50), 3))
def test_ledger_never_lets_more_than_the_total_through(asked: list[Fraction], total: Fraction) -> None:
    ledger = Ledger(total)
    for part in asked:
        try:
            ledger.charge("counts", "test", part)
        except BudgetSpent:
            assert part == 0 or part > ledger.left
    assert sum((c.epsilon for c in ledger.charges), Fraction(0)) + ledger.left == total
    assert ledger.left >= 0


def test_ledger_of_an_impure_release_counts_delta_too() -> None:
    ledger = Ledger(HALF, Fraction(1, 10**6))
    ledger.charge("medians", "smooth", Fraction(1, 8), Fraction(1, 10**6) / 3)
    ledger.charge("counts", "test", Fraction(1, 8))
    for more in (Fraction(1, 10**6), Fraction(-1, 10**9), 1e-9, 0):
        with pytest.raises(BudgetSpent, match="^medians needs delta=.* but only .* is left: give .* a larger delta"):
            ledger.charge("medians", "smooth", Fraction(1, 8), more)  # type: ignore[arg-type]
    assert ledger.left == Fraction(1, 4)  # what was refused cost nothing
    ledger.charge("medians", "smooth", Fraction(1, 4), Fraction(2, 3) / 10**6)
    assert [(c.epsilon, c.rho, c.delta) for c in ledger.charges] == [
        (Fraction(1, 8), 0, Fraction(1, 3) / 10**6),
        (Fraction(1, 8), 0, 0),
        (Fraction(1, 4), 0, Fraction(2, 3) / 10**6),
    ]
    with pytest.raises(BudgetSpent, match="needs delta"):
        Ledger(HALF).charge("medians", "smooth", HALF, Fraction(1, 10**30))


def test_ledger_of_a_concentrated_release_counts_rho() -> None:
    ledger = Ledger(Fraction(1, 50), currency="rho")
    ledger.charge("counts", "discrete-gaussian", Fraction(1, 100))
    assert ledger.charges == (Charge("counts", "discrete-gaussian", rho=Fraction(1, 100)),)
    assert ledger.charges[0].epsilon == ledger.charges[0].delta == 0
    with pytest.raises(BudgetSpent, match=r"^counts needs rho=0\.02 but only 0\.01 is left"):
        ledger.charge("counts", "discrete-gaussian", Fraction(1, 50))
    with pytest.raises(BudgetSpent, match="must cost more than rho=0, got 0"):
        ledger.charge("counts", "discrete-gaussian", Fraction(0))


BUDGETS = [Uniform(), Geometric(), Geometric(ratio=0.3), Geometric(ratio=7.7), LeafOnly()]
TOTALS = [Fraction(1, 10), Fraction(1, 3), Fraction(7, 5)]


@pytest.mark.parametrize("shares", BUDGETS, ids=str)
@pytest.mark.parametrize("height", [0, 1, 2, 3, 5, None], ids=str)
def test_levels_spend_exactly_the_total(shares: budget.LevelBudget, height: int | None) -> None:
    for axes, total in itertools.product((1, 2, 3), TOTALS):
        domain = Domain({f"a{k}": (0, 1) for k in range(axes)}, bits=5)
        noisy = measure(seal(some_points(axes=axes), domain), Method(structure=Quadtree(height), budget=shares), total)
        assert sum(c.epsilon for c in noisy.charges) == total
        assert all(isinstance(c.epsilon, Fraction) and c.epsilon > 0 for c in noisy.charges)
        # one charge for each level that was measured, and each level's noise is that of its charge
        measured = [
            i for i in range(noisy.tree.height + 1) if np.isfinite(noisy.noise_variance[noisy.tree.level(i)][0])
        ]
        assert [c.what for c in noisy.charges] == [f"counts of level {i}" for i in measured]
        for level, charge in zip(measured, noisy.charges, strict=True):
            assert (noisy.noise_variance[noisy.tree.level(level)] == noise_variance(charge.epsilon)).all()


@pytest.mark.parametrize("shares", [[1, 2, 3], ["0.1", 0, "0.7"], [0, 0, 1], [Fraction(1, 3), 1, 1]], ids=str)
def test_levels_by_hand_spend_exactly_the_total(shares: list[object]) -> None:
    for total in TOTALS:
        method = Method(structure=Quadtree(2), budget=Levels(shares))
        noisy = measure(seal(some_points(), SQUARE), method, total)
        assert sum(c.epsilon for c in noisy.charges) == total


def test_shares_add_up_exactly_and_in_proportion() -> None:
    weights = (Fraction(1, 3), Fraction(0), Fraction(5, 7))
    parts = budget.share(Fraction(1, 10), weights)
    assert sum(parts) == Fraction(1, 10)
    assert parts[1] == 0
    assert parts[0] * weights[2] == parts[2] * weights[0]


@pytest.mark.parametrize("weights", [(), (Fraction(0),), (Fraction(-1), Fraction(2)), (Fraction(1), Fraction(-1))])
def test_shares_of_nothing_or_of_less_are_refused(weights: tuple[Fraction, ...]) -> None:
    with pytest.raises(BadInput):
        budget.share(Fraction(1), weights)


@given(st.lists(st.fractions(0, 5), min_size=1, max_size=12).filter(any), st.fractions(Fraction(1, 10**6), 100))
def test_shares_always_add_up(weights: list[Fraction], total: Fraction) -> None:
    parts = budget.share(total, tuple(weights))
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
        "most_rows",
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
    noisy = measure(seal(points, domain), Method(structure=Quadtree(height)), HALF)
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
    with_row = measure(seal(np.array(points), SQUARE), method, HALF)
    without = measure(seal(np.array(points).reshape(-1, 2)[:-1], SQUARE), method, HALF)
    change = with_row.noisy_count - without.noisy_count
    inside = all(0 <= x <= 1 for x in points[-1])
    for level in range(height + 1):
        here = change[with_row.tree.level(level)]
        assert sorted(here.tolist()) == [0] * (len(here) - 1) + [int(inside)]


@pytest.mark.usefixtures("silence")
def test_unmeasured_level_says_nothing() -> None:
    method = Method(structure=Quadtree(2), budget=Levels([1, 0, 1]))
    noisy = measure(seal(some_points(), SQUARE), method, HALF)
    middle = noisy.tree.level(1)
    assert (noisy.noisy_count[middle] == 0).all()
    assert np.isinf(noisy.noise_variance[middle]).all()
    assert noisy.noisy_count[0] == 500
    assert [c.what for c in noisy.charges] == ["counts of level 0", "counts of level 2"]


@pytest.mark.usefixtures("silence")
def test_counts_of_chosen_heights_are_no_view_of_finer_ones() -> None:
    noisy = measure(seal(some_points(), SQUARE), named("quad-opt"), HALF)
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
        noisy = measure(sealed, method, HALF)
    except (BadInput, VaultFailure):
        return
    paid = {c.what for c in noisy.charges}
    for level in range(noisy.tree.height + 1):
        if f"counts of level {level}" not in paid:
            assert (noisy.noisy_count[noisy.tree.level(level)] == 0).all()
            assert np.isinf(noisy.noise_variance[noisy.tree.level(level)]).all()


@dataclass(frozen=True)
class Grown:
    """A structure by someone who wrote down what it does at the gate, step by step."""

    steps: Callable[[Gate, Fraction], object]
    height: int | None = 2

    def nodes(self, dimensions: int) -> int:
        return 1

    def grow(self, gate: Gate, epsilon: Fraction, budget: budget.LevelBudget) -> None:
        self.steps(gate, epsilon)


def grown(
    steps: Callable[[Gate, Fraction], object],
    total: Fraction = HALF,
    noise: Noise = Noise.DISCRETE_LAPLACE,
    domain: Domain = SQUARE,
    **more: object,
) -> NoisyTree:
    method = Method(structure=Grown(steps), noise=noise)
    return measure(seal(some_points(), domain), method, total, **more)  # type: ignore[arg-type]


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
        if f"counts of level {level}" in paid:
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
        assert ("cuts into other parts only last" in said) == (not cut_first)


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

    assert "failed with ValueError" in refused_or_right(steps)


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
    "count_each": lambda gate, part: gate.count_each(np.array([0]), np.array([GRAINS]), part / GRAINS),  # type: ignore[operator]
    "medians": lambda gate, part: gate.medians(0, part, NONE, "exponential"),  # type: ignore[arg-type]
    "means": lambda gate, part: gate.medians(1, part, NONE, "noisy-mean"),  # type: ignore[arg-type]
    "sample": lambda gate, part: gate.sample(HALF, part, NONE, "exponential"),  # type: ignore[arg-type]
    "dense": lambda gate, part: gate.dense(part),  # type: ignore[arg-type]
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
    assert [c.what for c in noisy.charges] == ["counts of level 0"]


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
        ("counts of level 1", "discrete-laplace", Fraction(1, 4)),
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

    assert refused_or_right(steps) == "A tree can be shortened only before its first cut."


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
    noisy = measure(seal(points, domain), named(method, height=2), HALF)
    measured = np.isfinite(noisy.noise_variance)
    want = naive_counts(points, domain, noisy)
    assert noisy.noisy_count.tolist() == np.where(measured, want, 0).tolist()
    assert [bool(measured[noisy.tree.level(i)].all()) for i in range(2 * axes + 1)] == [
        i % axes == 0 for i in range(2 * axes + 1)
    ]
    assert sum(c.epsilon for c in noisy.charges) == HALF


# --- measure: charge, then noise --------------------------------------------------------------------------------


@pytest.mark.parametrize("height", [3, None], ids=str)
def test_every_level_is_charged_before_its_noise_is_drawn(monkeypatch: pytest.MonkeyPatch, height: int | None) -> None:
    events: list[tuple[str, Fraction]] = []
    charge = Ledger.charge

    def charged(self: Ledger, what: str, mechanism: str, epsilon: Fraction, delta: Fraction = NONE) -> None:
        charge(self, what, mechanism, epsilon, delta)
        events.append(("charge", epsilon))

    def drawn(epsilon: Fraction, n: int, keys: object) -> NDArray[np.int64]:
        events.append(("noise", epsilon))
        return discrete_laplace(epsilon, n, keys)  # type: ignore[arg-type]

    monkeypatch.setattr(Ledger, "charge", charged)
    monkeypatch.setattr(price, "discrete_laplace", drawn)
    noisy = measure(
        seal(some_points(), Domain({"x": (0, 1), "y": (0, 1)}, bits=5)), named("quad-opt", height=height), HALF
    )
    charges, draws = ([e for kind, e in events if kind == k] for k in ("charge", "noise"))
    assert charges == draws == [c.epsilon for c in noisy.charges]
    for k, (kind, _) in enumerate(events):
        if kind == "noise":  # by then its own charge stands in the ledger
            seen = [kind for kind, _ in events[: k + 1]]
            assert seen.count("charge") >= seen.count("noise")


def test_refused_charge_draws_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Fraction] = []

    def draw(epsilon: Fraction, n: int, keys: object) -> NDArray[np.int64]:
        drawn.append(epsilon)
        return np.zeros(n, np.int64)

    monkeypatch.setattr(GATE, "Ledger", lambda total, *more: Ledger(total / 2, *more))
    monkeypatch.setattr(price, "discrete_laplace", draw)
    with pytest.raises(BudgetSpent, match="but only"):
        measure(seal(some_points(), SQUARE), Method(structure=Quadtree(3), budget=Uniform()), HALF)
    assert sum(drawn) <= HALF / 2


def test_noise_is_drawn_for_each_node_on_its_own() -> None:
    noisy = measure(seal(np.zeros((0, 2)), SQUARE), Method(structure=Quadtree(8), budget=Uniform()), Fraction(1, 10))
    assert independent(noisy.noisy_count[noisy.tree.level(8)])
    assert independent(noisy.noisy_count[noisy.tree.level(7)])
    again = measure(seal(np.zeros((0, 2)), SQUARE), Method(structure=Quadtree(8), budget=Uniform()), Fraction(1, 10))
    assert np.mean(noisy.noisy_count == again.noisy_count) < 0.05


def independent(draws: NDArray[np.int64]) -> bool:
    """No node repeats another one near it: at lags up to 64, no correlation beyond 7 standard errors."""
    x = (draws - draws.mean()) / draws.std()
    return all(abs(np.mean(x[lag:] * x[:-lag])) < 7 / math.sqrt(len(x)) for lag in range(1, 65))


def test_noise_shared_by_siblings_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def shared(epsilon: Fraction, n: int, keys: object) -> NDArray[np.int64]:
        return np.repeat(discrete_laplace(epsilon, -(-n // 4), keys), 4)[:n]  # type: ignore[arg-type]

    monkeypatch.setattr(price, "discrete_laplace", shared)
    noisy = measure(seal(np.zeros((0, 2)), SQUARE), Method(structure=Quadtree(8), budget=Uniform()), Fraction(1, 10))
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
        assert not measure(seal(some_points(), SQUARE), named("quad-opt", height=1), HALF).private
    assert measure(seal(some_points(), SQUARE), named("quad-opt", height=1), HALF).private


# --- measure: when something breaks -----------------------------------------------------------------------------

QUOTED = "the point at 0.123456789, row 4242"


@dataclass
class BrokenEngine:
    """Fails while it holds the data open, as files and memory do."""

    error: BaseException
    secret: NDArray[np.float64]
    again: bool = True

    def count_leaves(self, domain: object, tree: object, progress: object) -> NDArray[np.int64]:
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
            if "count_leaves" in frame.f_code.co_name or "/veilmap/" in frame.f_code.co_filename.replace("\\", "/"):
                arrays = [v for v in frame.f_locals.values() if isinstance(v, np.ndarray)]
                if arrays or frame.f_code.co_name.startswith("_") or "count_leaves" in frame.f_code.co_name:
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

    monkeypatch.setattr(price, "discrete_laplace", fail)
    with pytest.raises((VeilmapError, MemoryError, KeyboardInterrupt)) as caught:
        measure(seal(some_points(), SQUARE), named("quad-opt", height=1), HALF)
    assert not inner_frames(caught.value)


def test_frames_that_hold_arrays_would_be_seen() -> None:
    sealed = Sealed(BrokenEngine(RuntimeError(), some_points()), SQUARE)
    with pytest.raises(RuntimeError) as caught:
        sealed._count_leaves(None, None)  # type: ignore[arg-type]
    assert inner_frames(caught.value)


# --- the claim, from outside ------------------------------------------------------------------------------------

CLAIM = Fraction(1)
RUNS = 8_000


@dataclass(frozen=True)
class CountedRows:
    """Rows whose leaves are known: an audit draws thousands of releases, and counting them is not its subject."""

    leaves: tuple[int, ...]
    again: bool = True

    def count_leaves(self, domain: object, tree: object, progress: object) -> NDArray[np.int64]:
        return np.array(self.leaves, np.int64)


def audited(height: int, estimate: Estimate = Estimate.LEAST_SQUARES) -> float:
    """The lower bound for ε that outputs on two neighbours give: one row more in the first leaf."""
    method = Method(structure=Quadtree(height), estimate=estimate)
    domain = Domain({"x": (0, 1), "y": (0, 1)}, bits=4)
    leaves = (3,) + (1,) * (4**height - 1)
    scores = []
    for extra in (0, 1):
        sealed = Sealed(CountedRows((leaves[0] + extra, *leaves[1:])), domain)
        scores.append([score(measure(sealed, method, CLAIM), leaves) for _ in range(RUNS)])
    return least_epsilon(*map(np.array, scores))


def score(noisy: NoisyTree, leaves: tuple[int, ...]) -> float:
    """How much more likely the counts on the first leaf's path are with one row more there."""
    total, here = 0.0, sum(leaves)
    for level in range(noisy.tree.height + 1):
        node = noisy.tree.level_start[level]  # the first leaf's ancestor: its nodes come first in every level
        here = sum(leaves[: len(leaves) // 4**level])
        epsilon = float(noisy.charges[level].epsilon)
        total += epsilon * (abs(noisy.noisy_count[node] - here) - abs(noisy.noisy_count[node] - here - 1))
    return total


@pytest.mark.parametrize("height", [1, 2])
def test_audit_finds_no_more_than_the_claim(height: int) -> None:
    with fixed_entropy(20 + height):
        bound = audited(height)
    print(f"height {height}: epsilon ≥ {bound:.3f} of {CLAIM}")
    assert 0.6 * CLAIM < bound <= CLAIM  # close below: the audit is sharp, and the budget is used


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(7, 10)], ids=["halved", "-30%"])
def test_audit_catches_noise_that_is_too_small(monkeypatch: pytest.MonkeyPatch, scale: Fraction) -> None:
    monkeypatch.setattr(price, "discrete_laplace", lambda epsilon, n, keys: discrete_laplace(epsilon / scale, n, keys))
    with fixed_entropy(30):
        bound = audited(1)
    print(f"noise times {scale}: epsilon ≥ {bound:.3f} of {CLAIM}")
    assert bound > CLAIM


def test_audit_catches_a_level_that_is_not_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of the whole budget on each of two levels: twice the claim."""
    monkeypatch.setattr(price, "discrete_laplace", lambda epsilon, n, keys: discrete_laplace(CLAIM, n, keys))
    with fixed_entropy(31):
        assert audited(1) > CLAIM


def test_the_height_is_chosen_from_the_noisy_count() -> None:
    """Were it chosen from the true one, the published height would give that away for free."""
    seen = []

    class Recording(Quadtree):
        def choose(self, *known: int) -> int:
            seen.append(known[0])
            return 2

    points = some_points()
    noisy = measure(seal(points, SQUARE), Method(structure=Recording()), Fraction(1, 1000))
    assert seen == [noisy.noisy_count[0]]
    assert seen[0] != len(points)  # noise of scale 50,000: equal with probability 1e-5


@pytest.mark.parametrize("answer", [0, -1, 99, 2.5, None])
def test_a_height_out_of_range_is_refused(answer: object) -> None:
    class Odd(Quadtree):
        def choose(self, *known: int) -> int:
            return answer  # type: ignore[return-value]

    with pytest.raises(BadInput, match="is shortened to 1 to 11, got"):
        measure(seal(some_points(), SQUARE), Method(structure=Odd()), HALF)

"""Roughness: one row changes the sums by no more than is paid for. Proof: proofs/roughness.md."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest

from tests import naive
from tests.unit.vault.test_gate import Script
from veilmap.budgets import LeafOnly
from veilmap.domain import Domain
from veilmap.errors import BadInput, VaultFailure
from veilmap.kernels.roughness import sum_contrasts
from veilmap.method.method import Method, Noise
from veilmap.structures import CELLS_PER_RUN, Gate
from veilmap.testing import fixed_entropy
from veilmap.vault import NoisyTree, measure, seal
from veilmap.vault.entropy import FixedKeys, Keys
from veilmap.vault.mechanisms.roughness import noisy_roughness
from veilmap.vault.noise_models import GaussianNoise, LaplaceNoise

Ints = NDArray[np.int64]
PRICE = Fraction(3, 7)


def sums(grids: list[Ints], axes: int, scales: int, run: int = CELLS_PER_RUN) -> list[int]:
    """Return the sums that the kernel computes."""
    out = np.zeros(scales, np.int64)
    grid = np.concatenate([np.zeros(0, np.int64), *(g.ravel() for g in grids)])
    sum_contrasts(grid, np.array([len(g) for g in grids], np.int64), axes, run, out)
    return out.tolist()


# --- the sums ---------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 8), st.integers(1, 5), st.integers(0, 4))
def test_sums_are_those_of_the_slow_twin(seed: int, axes: int, run: int, scales: int, boxes: int) -> None:
    rng = np.random.default_rng(seed)
    largest = {1: 6, 2: 4, 3: 3, 4: 2}[axes]
    sides = np.where(rng.random(boxes) < 0.2, 0, 1 << rng.integers(1, largest + 1, boxes))
    grids = [rng.poisson(2.0, (side,) * axes) for side in sides.tolist()]
    assert sums(grids, axes, scales, run) == naive.contrasts(grids, axes, run, scales)


def test_roughness_of_a_small_grid_by_hand() -> None:
    grid = np.array([[3, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    # Two parts per axis: the upper left cell has (3, 0) both ways, the lower right one (1, 1); with no runs 3 + 3.
    # Four: 3 above and 2 below, 3 left and 2 right.
    assert sums([grid], 2, 3, run=1) == [6, 2, 0]
    assert sums([np.array([5, 2, 0, 1])], 1, 2) == [3 + 1, 7 - 1]


# --- one row more -----------------------------------------------------------------------------------------------

SMALL = [
    (1, 4, 4),
    (1, 8, 3),
    (2, 2, 4),
    (2, 4, 2),
    (3, 2, 3),
    (4, 2, 2),
]  # axes, parts per axis, and an upper bound of the counts (exclusive)


@cache
def all_sums(axes: int, side: int, below: int, run: int = CELLS_PER_RUN) -> NDArray[np.int64]:
    """Return the sums of all possible grids: one axis for the count of each part, and the scales last."""
    shape, scales = (below,) * side**axes, side.bit_length() - 1
    grids = np.stack(np.unravel_index(np.arange(below**side**axes), shape), axis=1)
    out, one, table = np.zeros(scales, np.int64), np.array([side]), []
    for grid in grids:
        out[:] = 0
        sum_contrasts(grid, one, axes, run, out)
        table.append(out.copy())
    return np.array(table).reshape(*shape, scales)


def moves(axes: int, side: int, below: int, rows: int = 1, run: int = CELLS_PER_RUN) -> NDArray[np.int64]:
    """Return all distinct changes of the sums of any grid when ``rows`` rows are added anywhere."""
    table, places = all_sums(axes, side, below, run), range(side**axes)
    found = [np.zeros((0, table.shape[-1]), np.int64)]
    for where in itertools.combinations_with_replacement(places, rows):
        more = np.bincount(where, minlength=len(places))
        if more.max() < below:
            after = table[tuple(slice(m, None) for m in more)]
            before = table[tuple(slice(0, below - m) for m in more)]
            found.append(np.unique(np.abs(after - before).reshape(-1, table.shape[-1]), axis=0))
    return np.unique(np.concatenate(found), axis=0)


@pytest.mark.parametrize("run", [1, 3, CELLS_PER_RUN])
@pytest.mark.parametrize(("axes", "side", "below"), SMALL)
def test_a_row_more_changes_each_sum_by_the_axes_and_no_more(axes: int, side: int, below: int, run: int) -> None:
    most = moves(axes, side, below, run=run)
    scales = most.shape[1]
    assert most.max(axis=0).tolist() == [axes] * scales
    assert most.sum(axis=1).max() == axes * scales  # at all scales at once, as for the first row of all


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_a_row_more_in_larger_grids(seed: int, axes: int) -> None:
    rng, side = np.random.default_rng(seed), {1: 256, 2: 32, 3: 8, 4: 4}[axes]
    grids = [rng.poisson(rng.choice([0.1, 2.0, 50.0]), (side,) * axes) for _ in range(2)]
    before = np.array(sums(grids, axes, 4))
    grids[1].flat[rng.integers(side**axes)] += 1
    assert np.abs(np.array(sums(grids, axes, 4)) - before).max() <= axes


class RecordedNoise(LaplaceNoise):
    """A noise model that records the prices of its draws, and draws zeros."""

    def __init__(self, noise: LaplaceNoise) -> None:
        super().__init__(noise.rows)
        self.power, self.prices = noise.power, list[Fraction]()

    def draw(self, price: Fraction, n: int, keys: Keys) -> Ints:
        self.prices += [price] * n
        return np.zeros(n, np.int64)


def price_per_sum(noise: LaplaceNoise, axes: int, scales: int) -> Fraction:
    """Return the price at which the noise of each sum is drawn."""
    spy = RecordedNoise(noise)
    noisy_roughness(np.zeros(2**axes, np.int64), np.array([2]), axes, scales, PRICE, spy, FixedKeys(0))
    assert len(spy.prices) == scales
    assert len(set(spy.prices)) == 1
    return spy.prices[0]


def loss(apart: Ints, rate: Fraction) -> Fraction:
    """Return the largest log-ratio of any outcome, for sums with Laplace noise that differ by ``apart``.

    The mass of y is ∝ e^(−rate |y − sum|), so it is found sum by sum, among outcomes on either side and between.
    """
    return rate * sum(max(abs(y - d) - abs(y) for y in range(-2, d + 3)) for d in apart.tolist())


def rho(apart: Ints, price: Fraction, rows: int) -> Fraction:
    """Return the ρ that is lost with Gaussian noise of the variance rows² / (2 price)."""
    return price * sum(d * d for d in apart.tolist()) / rows**2


@pytest.mark.parametrize(
    ("axes", "side", "rows"), [(1, 4, 1), (1, 4, 3), (1, 8, 2), (2, 2, 2), (2, 2, 3), (2, 4, 1), (3, 2, 2), (4, 2, 1)]
)
def test_the_noisy_sums_lose_what_is_paid_and_no_more(axes: int, side: int, rows: int) -> None:
    """The bound is exact: for a person with ``rows`` rows there are neighbours that lose all of it."""
    apart = moves(axes, side, rows + 1, rows)
    scales = apart.shape[1]
    rate = price_per_sum(LaplaceNoise(rows), axes, scales) / rows
    assert max(loss(d, rate) for d in apart) == PRICE
    for careless in ([rate * axes] if axes > 1 else []) + ([rate * scales] if scales > 1 else []):
        assert max(loss(d, careless) for d in apart) > PRICE
    price = price_per_sum(GaussianNoise(rows), axes, scales)
    assert max(rho(d, price, rows) for d in apart) == PRICE
    for careless in ([price * axes] if axes > 1 else []) + ([price * scales] if scales > 1 else []):
        assert max(rho(d, careless, rows) for d in apart) > PRICE


# --- the noise --------------------------------------------------------------------------------------------------


def drawn(model: LaplaceNoise, axes: int, price: Fraction, seed: int) -> Ints:
    """Return the noisy sums of many empty grids."""
    keys, side = FixedKeys(seed), np.array([2])
    return np.concatenate(
        [noisy_roughness(np.zeros(2**axes, np.int64), side, axes, 8, price, model, keys) for _ in range(300)]
    )


def far_laplace(at: int, spread: float) -> float:
    """Return P[|Z| ≥ at] for discrete Laplace noise of the rate 1 / spread."""
    q = math.exp(-1 / spread)
    return 2 * q**at / (1 + q)


def far_gaussian(at: int, spread: float) -> float:
    mass = [math.exp(-x * x / (2 * spread**2)) for x in range(int(40 * spread))]
    return 2 * math.fsum(mass[at:]) / (2 * math.fsum(mass) - 1)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_noise_has_its_scale_and_no_other(noise: str, axes: int, rows: int) -> None:
    price = Fraction(5, 3)
    if noise == "laplace":
        model, spread, far = LaplaceNoise(rows), 8 * axes * rows / float(price), far_laplace
    else:
        model, spread, far = GaussianNoise(rows), math.sqrt(8 * axes**2 * rows**2 / (2 * float(price))), far_gaussian
    values, at = drawn(model, axes, price, rows + 10 * axes), math.ceil(1.5 * spread)
    hits = int((np.abs(values) >= at).sum())
    assert binomtest(hits, len(values), far(at, spread)).pvalue > 1e-9
    for other in (0.7, 1.3):
        assert binomtest(hits, len(values), far(at, other * spread)).pvalue < 1e-9
    assert binomtest(int((values > 0).sum()), int((values != 0).sum())).pvalue > 1e-9


# --- through the gate -------------------------------------------------------------------------------------------

Steps = Callable[[Gate, Fraction], None]


def domain_of(axes: int, bits: int = 6) -> Domain:
    return Domain({f"x{k}": (0, 1) for k in range(axes)}, bits=bits)


def rows_of(axes: int, seed: int = 1) -> NDArray[np.float64]:
    return np.random.default_rng(seed).beta(0.6, 1.5, (300, axes))


def run(steps: Steps, axes: int = 2, noise: Noise = Noise.DISCRETE_LAPLACE, **unit: object) -> NoisyTree:
    points: object = rows_of(axes)
    method = Method(structure=Script(steps), budget=LeafOnly(), noise=noise)
    if unit:
        points = pa.table({f"x{k}": rows_of(axes)[:, k] for k in range(axes)} | {"who": np.arange(300) // 3})
    sealed = seal(points, domain_of(axes), **unit)
    with fixed_entropy(1):
        return measure(sealed, method, Fraction(1), delta=Fraction(1, 1000), allow_nonprivate=noise is Noise.NONE).tree


def expected(gate: Gate, depth: Ints, scales: int, axes: int) -> list[int]:
    """Return the roughness computed from the rows themselves, box by box and part by part."""
    cells, tree = (rows_of(axes) * gate.domain.side).astype(np.int64), gate.tree()
    newest, grids = tree.level(tree.height), []
    for lo, hi, d in zip(tree.lo[newest], tree.hi[newest], depth.tolist(), strict=True):
        if d >= 0:
            grid = np.zeros((2 << d,) * axes, np.int64)
            for row in cells[((lo <= cells) & (cells < hi)).all(axis=1)]:
                grid[tuple(naive.part_of(c, a, b, 2 << d) for c, a, b in zip(row, lo, hi, strict=True))] += 1
            grids.append(grid)
    return naive.contrasts(grids, axes, CELLS_PER_RUN, scales)


BEFORE: dict[str, Steps] = {
    "the domain": lambda gate, part: None,
    "a grid": lambda gate, part: gate.refine((2,) * gate.domain.dimensions),
    "a grid that was streamed": lambda gate, part: (gate.refine((4,) * gate.domain.dimensions), gate.count(0, part))[0],
    "a grid of other parts": lambda gate, part: gate.refine((3,) * gate.domain.dimensions),
    "cuts": lambda gate, part: gate.cut(0, np.array([23]), None),
    "splits": lambda gate, part: (
        gate.split(np.array([[5] * gate.domain.dimensions])),
        gate.split(np.arange(gate.tree().size - 1)[:, None] % 3 * np.ones((1, gate.domain.dimensions), np.int64)),
    )[1],
}


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("before", BEFORE)
def test_roughness_is_that_of_the_rows_in_the_boxes(before: str, axes: int) -> None:
    """Without noise, for boxes of any width, after rows were streamed, cut or split; some boxes are left out."""
    seen = []

    def steps(gate: Gate, epsilon: Fraction) -> None:
        BEFORE[before](gate, epsilon / 8)
        newest = gate.tree().level(gate.tree().height)
        narrow = (gate.tree().hi[newest] - gate.tree().lo[newest]).min(axis=1)
        depth = np.minimum(np.arange(len(narrow)) % 4 - 1, np.log2(narrow).astype(np.int64) - 1)
        depth[:1] = min(1, int(np.log2(narrow[0])) - 1)
        seen.append((gate.roughness(depth, 3, epsilon / 8).tolist(), expected(gate, depth, 3, axes)))
        seen.append((gate.roughness(np.full(len(depth), -7), 2, epsilon / 8).tolist(), [0, 0]))
        gate.count_leaves(epsilon / 8)

    run(steps, axes, Noise.NONE)
    assert all(got == want for got, want in seen)
    assert any(seen[0][0])


@pytest.mark.parametrize("noise", [Noise.DISCRETE_LAPLACE, Noise.DISCRETE_GAUSSIAN], ids=lambda n: n.value)
def test_roughness_is_charged_by_name_and_does_not_change_the_counts(noise: Noise) -> None:
    def steps(gate: Gate, total: Fraction) -> None:
        gate.refine((2, 2))
        first = gate.roughness(np.array([0, 1, -1, 2]), 3, total / 8)
        assert (first.dtype, first.shape) == (np.int64, (3,))
        gate.count_leaves(total * 7 / 8)

    noisy = run(steps, noise=noise)
    assert [c.what for c in noisy.charges] == ["roughness of level 1", "noisy counts of the leaves"]
    assert {c.mechanism for c in noisy.charges} == {noise.value}
    cost = [c.epsilon + c.rho for c in noisy.charges]
    assert cost[1] == 7 * cost[0]
    cells = (rows_of(2) * 2).astype(int)
    want = np.bincount(cells @ [2, 1], minlength=4)
    assert np.abs(noisy.noisy_count[1:] - want).max() < 60


@pytest.mark.parametrize("most", [1, 3])
def test_rows_beyond_a_persons_limit_are_not_compared(most: int) -> None:
    """With three rows per person and no noise, the sums use at most ``most`` rows of each person."""
    seen: list[int] = []

    def steps(gate: Gate, epsilon: Fraction) -> None:
        seen.extend(gate.roughness(np.array([5]), 1, epsilon / 8).tolist())
        gate.count_leaves(epsilon / 8)

    run(steps, 1, Noise.NONE, unit="who", max_rows_per_unit=most)
    cells = (rows_of(1) * 64).astype(int).ravel()
    assert seen[0] == np.abs(np.diff(np.bincount(cells, minlength=64).reshape(32, 2), axis=1)).sum() or most == 1
    assert seen[0] <= 100 * most


BAD: dict[str, tuple[object, object]] = {
    "no depth for a box": ([], 3),
    "more depths than boxes": ([1, 1], 3),
    "depths in two rows": ([[1]], 3),
    "one for all": (1, 3),
    "floats": ([1.0], 3),
    "flags": ([True], 3),
    "no scale": ([1], 0),
    "a negative number of scales": ([1], -1),
    "too many scales": ([1], 9),
    "part of a scale": ([1], 2.5),
    "text": ([1], "3"),
    "nothing": ([1], None),
    "narrower than the parts": ([6], 3),
    "much narrower": ([60], 3),
    "beyond any shift": ([64], 3),
    "beyond all": ([2**63 - 1], 3),
}


@pytest.mark.parametrize(("depth", "scales"), BAD.values(), ids=BAD)
def test_what_cannot_be_compared_is_refused_and_costs_nothing(depth: object, scales: object) -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        with pytest.raises((BadInput, VaultFailure, TypeError, ValueError, AttributeError)):
            gate.roughness(np.array(depth), scales, epsilon)  # type: ignore[arg-type]
        gate.count_leaves(epsilon)

    assert [c.what for c in run(steps).charges] == ["noisy counts of the leaves"]


def test_no_more_parts_than_there_is_room_for() -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.roughness(np.array([13]), 3, epsilon)  # 2^28 parts

    method = Method(structure=Script(steps), budget=LeafOnly())
    with pytest.raises(BadInput, match=r"all boxes together into 1\.3e\+08"):
        measure(seal(rows_of(2), domain_of(2, 20)), method, Fraction(1))


def test_boxes_without_cells_are_left_out_or_refused() -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.cut(0, np.array([64]), None)  # nothing on the far side
        with pytest.raises(BadInput, match="no more parts than it has cells"):
            gate.roughness(np.array([0, 0]), 1, epsilon / 2)
        gate.roughness(np.array([0, -1]), 1, epsilon / 2)
        gate.count_leaves(epsilon / 2)

    run(steps)


def test_a_curve_has_no_roughness() -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.follow(3)
        gate.roughness(np.array([0]), 1, epsilon)

    with pytest.raises(BadInput, match="not along a curve"):
        run(steps)

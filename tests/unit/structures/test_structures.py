"""What is particular to each structure: published constants, cuts, curves, medians."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import veilmap as vm
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.kernels.grid_cuts import box_sum, find_median_cuts, looks_uniform, summed_area
from veilmap.method.method import Method
from veilmap.structures import CellTree, HilbertR, KdTree, PrivTree, UniformGrid
from veilmap.testing import fixed_entropy

FLAT = Domain({"x": (0, 1), "y": (0, 1)})
POINTS = np.random.default_rng(4).random((20_000, 2)) ** 2


def released(method: Any, points: Any = POINTS, epsilon: Any = 1, domain: Domain = FLAT, **more: Any) -> vm.Release:
    with fixed_entropy(8):
        return vm.release(points, domain, epsilon, method, **more)


# --- grids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(5)])
def test_grids_have_the_published_sizes(epsilon: Fraction) -> None:
    """Qardaji et al. 2013: m = √(Nε/10); m1 = max(10, m/4), and each of its cells m2 = √(N'ε2/5)."""
    grid = released("uniform-grid", epsilon=epsilon)
    n = max(grid.estimates.noisy_count[0], 0)
    assert grid.estimates.tree.splits == ((max(10, math.ceil(math.sqrt(n * float(epsilon) / 10))),) * 2,)
    adaptive = released("adaptive-grid", epsilon=epsilon)
    tree, noisy = adaptive.estimates.tree, adaptive.estimates.noisy_count
    m1 = max(10, math.ceil(math.sqrt(max(noisy[0], 0) * float(epsilon) / 10) / 4))
    assert tree.children[0] == m1**2
    level, e2 = tree.level(1), epsilon * Fraction(49, 100)
    m2 = [max(1, math.ceil(math.sqrt(max(k, 0) * float(e2) / 5))) for k in noisy[level].tolist()]
    assert tree.children[level].tolist() == [m**2 for m in m2]
    assert len(set(m2)) > 1 or epsilon < 1


def test_a_grid_may_have_its_cells_given() -> None:
    assert released(Method(structure=UniformGrid(7))).estimates.tree.size == 1 + 49
    with pytest.raises(BadInput, match="1 to 2147483648 cells per axis"):
        UniformGrid(0)


# --- cell trees -------------------------------------------------------------------------------------------------


@st.composite
def grids(draw: st.DrawFn) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    axes, cells = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    grid = np.random.default_rng(draw(st.integers(0, 999))).integers(-3, 9, (cells,) * axes).astype(float)
    ends = [sorted(draw(st.tuples(st.integers(0, cells), st.integers(0, cells)))) for _ in range(axes)]
    return grid, np.array([e[0] for e in ends]), np.array([e[1] for e in ends])


def inside(lo: Any, hi: Any) -> tuple[slice, ...]:
    return tuple(slice(a, b) for a, b in zip(lo, hi, strict=True))


def naive_uniform(grid: NDArray[np.float64], lo: Any, hi: Any, noise: float, margin_sd: float) -> bool:
    box = grid[inside(lo, hi)]
    for parts in (2, 4, 8):
        ends = [[n * j // parts for j in range(parts + 1)] for n in box.shape]
        blocks = [
            box[inside([e[0] for e in b], [e[1] for e in b])] for b in itertools.product(*map(itertools.pairwise, ends))
        ]
        full = [b for b in blocks if b.size]
        mean = box.sum() / box.size
        chi_square = sum((b.sum() - mean * b.size) ** 2 / (b.size * noise + max(mean * b.size, 0)) for b in full)
        if chi_square > len(full) + margin_sd * math.sqrt(5 * len(full)):
            return False
    return True


@given(grids(), st.sampled_from([0.5, 8.0]), st.sampled_from([0.0, 1.0]))
def test_grid_kernels_equal_simple_implementations(case: Any, noise: float, margin_sd: float) -> None:
    grid, lo, hi = case
    cells, table = len(grid), summed_area(grid)
    assert box_sum(table, cells, lo, hi) == grid[inside(lo, hi)].sum()
    if (hi == lo).any():
        return
    uniform = naive_uniform(grid, lo, hi, noise, margin_sd)
    assert looks_uniform(table, cells, lo, hi, noise, margin_sd) == uniform
    for axis in range(grid.ndim):
        at = np.zeros(1, np.int64)
        find_median_cuts(table, cells, lo[None], hi[None], axis, noise, margin_sd, at)
        counts = np.moveaxis(grid[inside(lo, hi)], axis, 0).reshape(hi[axis] - lo[axis], -1).sum(axis=1).tolist()
        whole = uniform or hi[axis] - lo[axis] < 2
        assert at[0] == (-1 if whole else lo[axis] + naive_cut(counts))


def naive_cut(counts: list[float]) -> int:
    """A side of the first cell at which the running sum reaches half, the nearer one; inside."""
    running, half = [sum(counts[:k]) for k in range(len(counts) + 1)], sum(counts) / 2
    k = next((k for k in range(1, len(counts)) if running[k] >= half), None)
    if k is None:
        return len(counts) - 1
    return k - 1 if k > 1 and half - running[k - 1] < running[k] - half else k


def test_cell_trees_find_a_place_where_all_rows_are() -> None:
    for seed in range(5):
        with fixed_entropy(seed):
            release = vm.release(np.full((50_000, 2), 0.3), FLAT, 1, "kd-cell")
            median = vm.private_median([7.0] * 100_000, 0, 100, 1, "cell")
        assert release.count([0.1, 0.1, 0.6, 0.6]).estimate[0] > 49_000
        assert abs(median - 7) < 0.2


def test_cell_trees_cut_on_lines_of_their_grid_and_leave_even_data_whole() -> None:
    tree = released(Method(structure=CellTree(4, cells=16)), epsilon=5).estimates.tree
    assert tree.size > 20
    assert not (np.concatenate([tree.lo, tree.hi]) % (FLAT.side // 16)).any()
    side = (np.arange(64) + 0.5) / 64
    uniform = np.repeat(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2), 4, axis=0)
    assert released(Method(structure=CellTree(4, cells=16)), uniform).estimates.tree.size < tree.size / 4


# --- PrivTree ---------------------------------------------------------------------------------------------------


def test_privtree_goes_deeper_where_there_is_more() -> None:
    tree = released("privtree").estimates.tree
    leaves = np.flatnonzero(tree.is_leaf)
    level = tree.node_level[leaves]
    dense = (tree.lo[leaves] < FLAT.side // 8).all(axis=1)
    thin = (tree.lo[leaves] >= FLAT.side * 3 // 4).all(axis=1)
    assert level[dense].mean() > level[thin].mean() + 1
    assert released(Method(structure=PrivTree(0))).estimates.tree.size == 1


# --- Hilbert R-trees --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "axes"), [(1, 2), (31, 2), (18, 2), (20, 3), (1, 3), (7, 8)])
def test_curves_of_every_order_that_fits(order: int, axes: int) -> None:
    domain = Domain({f"x{a}": (0, 1) for a in range(axes)})
    release = released(Method(structure=HilbertR(1, order=order)), np.full((50, axes), 0.4), domain=domain)
    assert release.estimates.tree.keys.hi[0, 0] == 1 << (order * axes)
    assert (release.estimates.tree.hi[0] == domain.side).all()


def test_curves_that_do_not_fit_are_refused() -> None:
    for order in (0, 32, 1.5, "3"):
        with pytest.raises(BadInput, match="order of a Hilbert curve is 1 to 31"):
            HilbertR(order=order)
    with pytest.raises(BadInput, match="order of 1 to 4"):
        released(Method(structure=HilbertR(1, order=5)), domain=Domain({"x": (0, 1), "y": (0, 1)}, bits=4))
    with pytest.raises(BadInput, match="2 or more axes"):
        released("hilbert-r", POINTS[:, :1], domain=Domain({"x": (0, 1)}))


def test_no_point_is_counted_twice() -> None:
    """Leaf boxes overlap, yet the shares that a partition into boxes takes of each leaf add up to 1 at most."""
    release = released("hilbert-r", epsilon=50, height=4)
    lines = np.linspace(0, 1, 6)
    tiles = [[x, y, x + 0.2, y + 0.2] for x in lines[:-1] for y in lines[:-1]]
    total = release.count(tiles).estimate.sum()
    assert total == pytest.approx(release.estimates.estimate[0], rel=1e-6)
    quarters = [[x, y, x + 0.5, y + 0.5] for x in (0, 0.5) for y in (0, 0.5)]
    truth = [((q[:2] <= POINTS) & (q[2:] > POINTS)).all(axis=1).sum() for q in quarters]
    assert release.count(quarters).estimate == pytest.approx(truth, rel=0.35, abs=300)


# --- medians of kd-trees ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", [None, "1/4"])
@pytest.mark.parametrize("median", ["exponential", "exponential-paper", "smooth-sensitivity", "noisy-mean"])
def test_kd_trees_take_every_kind_of_median(median: str, sample: str | None) -> None:
    delta = Fraction(1, 10**6) if median == "smooth-sensitivity" else None
    method = Method(structure=KdTree(2, median=median, sample=sample))
    release = released(method, epsilon=20, delta=delta)
    assert release.privacy.spent == 20
    assert sum(c.delta for c in release.privacy.ledger) == (delta or 0)
    assert {c.mechanism for c in release.privacy.ledger} == {median, "discrete-laplace"}
    target = (POINTS[:, 0].mean() if median == "noisy-mean" else np.median(POINTS[:, 0])) * FLAT.side
    assert release.estimates.tree.hi[1, 0] == pytest.approx(target, rel=0.1)
    with pytest.raises(BadInput, match="delta"):
        released(method, epsilon=20, delta=None if delta else Fraction(1, 10))

"""Trees cut at private medians: what they spend, where they cut, and what they are good for."""

from __future__ import annotations

import sys
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

import veilmap as vm
from veilmap.budgets import Geometric, LeafOnly, Levels, Uniform
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.method.method import Method, Noise, PostProcessing
from veilmap.method.registry import named
from veilmap.structures import KdTree, Quadtree
from veilmap.testing import fixed_entropy
from veilmap.trees import Tree
from veilmap.vault import NoisyTree, measure, noise_models, seal
from veilmap.vault.mechanisms.gaussian import concentrated
from veilmap.vault.mechanisms.sampling import inner_epsilon

GATE = sys.modules[measure.__module__]
EPSILON = Fraction(1, 3)
AXES = [1, 2, 3]


def space(axes: int, bits: int | None = None) -> Domain:
    return Domain({f"x{a}": (0, 1) for a in range(axes)}, bits=bits)


def skewed(axes: int, n: int = 2000) -> NDArray[np.float64]:
    return np.random.default_rng(7).random((n, axes)) ** 3


def grown(structure: KdTree, axes: int, points: object = None, budget: object = None, seed: int = 1) -> NoisyTree:
    method = Method(structure=structure, budget=budget or Geometric())
    with fixed_entropy(seed):
        return measure(seal(skewed(axes) if points is None else points, space(axes)), method, EPSILON).tree


def split(noisy: NoisyTree) -> tuple[list[Fraction], list[Fraction]]:
    """What the medians cost, and what the counts cost."""
    kinds = ("exponential", "discrete-laplace")
    cuts, counts = ([c.epsilon for c in noisy.charges if c.mechanism == kind] for kind in kinds)
    assert len(cuts) + len(counts) == len(noisy.charges)
    return cuts, counts


def measured_levels(noisy: NoisyTree) -> list[int]:
    levels = range(noisy.tree.height + 1)
    each = [np.isfinite(noisy.noise_variance[noisy.tree.level(i)]) for i in levels]
    assert all(some.all() or not some.any() for some in each)
    return [i for i in levels if each[i].all()]


def leaf_counts(tree: Tree, points: NDArray[np.float64], side: int) -> list[int]:
    cells = np.minimum(np.floor(points * side), side - 1)
    leaves = np.flatnonzero(tree.is_leaf)
    return [int(((tree.lo[v] <= cells) & (cells < tree.hi[v])).all(axis=1).sum()) for v in leaves]


# --- what is spent ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("fanout", [None, 2])
@pytest.mark.parametrize(("switch", "with_medians"), [("all", 3), ("half", 1), (2, 2), (0, 0), (9, 3)])
def test_every_path_spends_exactly_epsilon(axes: int, fanout: int | None, switch: object, with_medians: int) -> None:
    noisy = grown(KdTree(3, switch=switch, fanout=fanout), axes)
    cuts, counts = split(noisy)
    assert sum(cuts) + sum(counts) == EPSILON  # each charge is met once on every path from the root
    assert sum(cuts) == (EPSILON * Fraction(3, 10) if with_medians else 0)
    assert len(set(cuts)) <= 1
    assert len(cuts) == with_medians * (1 if fanout == 2 else axes)
    assert len(counts) == 4


def test_medians_are_charged_for_before_the_counts_and_by_level() -> None:
    noisy = grown(KdTree(2), 2)
    assert [c.what for c in noisy.charges] == [
        *(f"medians of level {k}" for k in range(4)),
        *(f"noisy counts of level {k}" for k in (0, 2, 4)),
    ]


@pytest.mark.parametrize("budget", [Uniform(), LeafOnly(), Levels([1, 0, 2])], ids=lambda b: type(b).__name__)
def test_any_budget_shares_what_medians_leave(budget: object) -> None:
    noisy = grown(KdTree(2, median_share="0.2"), 2, budget=budget)
    cuts, counts = split(noisy)
    assert sum(cuts) == EPSILON / 5
    assert sum(counts) == EPSILON * 4 / 5
    shares = budget.weights(2, 1.0)
    assert measured_levels(noisy) == [2 * level for level, share in enumerate(shares) if share]


def test_refused_charge_of_medians_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(GATE, "private_cuts", lambda *args: drawn.append(args))

    class Greedy(KdTree):
        def grow(self, gate, epsilon, budget) -> None:
            gate.medians(0, 2 * epsilon, Fraction(0), "exponential")

    with pytest.raises(vm.BudgetSpent, match="medians of level 0"):
        grown(Greedy(1), 1)
    assert not drawn


def asked_of_medians(monkeypatch: pytest.MonkeyPatch, method: Method, delta: Fraction = Fraction(0)) -> list[tuple]:
    """Mechanism, ε and δ of every set of medians that a method asks for."""
    asked = []

    def cuts(mechanism, values, start, lo, hi, epsilon, chance, keys):
        asked.append((mechanism, epsilon, chance))
        return (lo + hi) // 2

    monkeypatch.setattr(GATE, "private_cuts", cuts)
    noisy = measure(seal(skewed(2), space(2)), method, EPSILON, delta=delta).tree
    return [noisy.charges, *asked]


CHANCE = Fraction(1, 10**6)


@pytest.mark.parametrize("sample", [None, Fraction(1, 10)])
@pytest.mark.parametrize("median", ["exponential", "exponential-paper", "noisy-mean", "smooth-sensitivity"])
def test_medians_of_a_sample_share_what_it_is_worth(
    monkeypatch: pytest.MonkeyPatch, median: str, sample: object
) -> None:
    delta = CHANCE if median == "smooth-sensitivity" else Fraction(0)
    charges, *asked = asked_of_medians(monkeypatch, Method(structure=KdTree(2, median=median, sample=sample)), delta)
    part, rate = EPSILON * Fraction(3, 10), sample or 1
    worth = part if sample is None else inner_epsilon(sample, part)
    assert asked == [(median, worth / 4, delta / rate / 4)] * 4
    paid = [c for c in charges if c.mechanism == median]
    assert sum(c.epsilon for c in paid) == part
    assert sum(c.delta for c in paid) == delta
    assert len(paid) == (4 if sample is None else 1)
    assert sum(c.epsilon for c in charges) == EPSILON


@pytest.mark.parametrize("median", ["exponential", "noisy-mean"])
def test_medians_of_a_concentrated_release_spend_what_rho_buys(monkeypatch: pytest.MonkeyPatch, median: str) -> None:
    """ε²/2 of ρ for anything ε-private, and only ε²/8 for an exponential mechanism."""
    method = Method(structure=KdTree(2, median=median), noise=Noise.DISCRETE_GAUSSIAN)
    charges, *asked = asked_of_medians(monkeypatch, method, CHANCE)
    rho = concentrated(EPSILON, CHANCE)
    assert sum(c.rho for c in charges) == rho
    by_eight = median == "exponential"
    for _, epsilon, chance in asked:
        assert chance == 0
        assert epsilon**2 / (8 if by_eight else 2) <= rho * Fraction(3, 10) / 4
        assert float(epsilon**2 / (8 if by_eight else 2)) == pytest.approx(float(rho * Fraction(3, 10) / 4), rel=1e-9)


def test_exact_medians_are_free_and_not_private() -> None:
    with pytest.raises(BadInput, match=r"Exact medians are computed on all rows\. Leave the sample out"):
        KdTree(2, median="exact", sample="1/2")
    method = Method(structure=KdTree(2, median="exact"))
    with pytest.raises(BadInput, match="Exact medians are not private"):
        measure(seal(skewed(2), space(2)), method, EPSILON)
    noisy = measure(seal(skewed(2), space(2)), method, EPSILON, allow_nonprivate=True).tree
    assert not noisy.private
    assert split(noisy)[0] == []
    assert sum(split(noisy)[1]) == EPSILON
    counts = leaf_counts(noisy.tree, skewed(2), space(2).side)
    assert max(counts) - min(counts) <= 2  # of 2,000 rows in 16 boxes


# --- where it cuts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("fanout", [None, 2])
@pytest.mark.parametrize("kind", ["skewed", "tied", "empty"])
def test_levels_partition_the_domain(axes: int, fanout: int | None, kind: str) -> None:
    points = {"skewed": skewed(axes), "tied": np.full((500, axes), 0.3), "empty": np.zeros((0, axes))}[kind]
    tree = grown(KdTree(4, fanout=fanout), axes, points).tree
    side = space(axes).side
    cells = np.random.default_rng(0).integers(0, side, (100, axes))
    for level in range(tree.height + 1):
        lo, hi = tree.lo[tree.level(level)], tree.hi[tree.level(level)]
        assert (lo <= hi).all()
        assert sum(int(np.prod(box.astype(object))) for box in hi - lo) == side**axes
        assert (((lo <= cells[:, None]) & (cells[:, None] < hi)).all(axis=2).sum(axis=1) == 1).all()


@pytest.mark.parametrize("axes", AXES)
def test_levels_between_two_counted_ones_are_not_measured(axes: int) -> None:
    noisy = grown(KdTree(2), axes)
    assert noisy.tree.height == 2 * axes
    assert measured_levels(noisy) == [0, axes, 2 * axes]
    between = ~np.isfinite(noisy.noise_variance)
    assert not noisy.noisy_count[between].any()


@pytest.mark.parametrize("axes", AXES)
def test_fanout_two_measures_every_cut(axes: int) -> None:
    noisy = grown(KdTree(4, fanout=2), axes)
    assert measured_levels(noisy) == [0, 1, 2, 3, 4]
    assert noisy.tree.size == 31


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("structure", [KdTree(3, median_share=0), KdTree(3, switch=0)], ids=["no share", "no switch"])
def test_without_medians_it_is_a_quadtree(axes: int, structure: KdTree) -> None:
    noisy, quad = grown(structure, axes), grown(Quadtree(3), axes)
    for level in range(4):
        here, there = noisy.tree.level(level * axes), quad.tree.level(level)
        assert np.array_equal(noisy.tree.lo[here], quad.tree.lo[there])
        assert np.array_equal(noisy.tree.hi[here], quad.tree.hi[there])
    assert split(noisy)[1] == [c.epsilon for c in quad.charges]


def test_below_the_switch_boxes_are_cut_in_the_middle() -> None:
    tree = grown(KdTree(4, switch=1), 2).tree
    for level in range(2, tree.height):
        axis = level % 2
        for v in range(tree.level(level).start, tree.level(level).stop):
            assert tree.hi[tree.first_child[v], axis] == (tree.lo[v, axis] + tree.hi[v, axis]) // 2
    middle = space(2).side // 2
    assert tree.hi[1, 0] != middle  # above it they are not


def test_counts_are_those_of_the_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_models, "discrete_laplace", lambda epsilon, n, keys: np.zeros(n, np.int64))
    for axes in AXES:
        noisy, points = grown(KdTree(2), axes), skewed(axes)
        assert noisy.noisy_count[noisy.tree.is_leaf].tolist() == leaf_counts(noisy.tree, points, space(axes).side)
        assert noisy.noisy_count[0] == len(points)


def test_cuts_are_private_so_they_differ() -> None:
    domain, points = space(2), skewed(2)
    trees = [vm.release(points, domain, 1, "kd-standard", 3).estimates.tree for _ in range(2)]
    assert not np.array_equal(trees[0].lo, trees[1].lo)
    again = [grown(KdTree(3), 2, seed=5).tree.lo for _ in range(2)]
    assert np.array_equal(*again)


def test_cuts_come_near_the_median() -> None:
    points = skewed(1, 20_000)
    tree = grown(KdTree(1), 1, points).tree
    left, right = leaf_counts(tree, points, space(1).side)
    assert abs(left - right) < 2000


@pytest.mark.parametrize("name", ["kd-standard", "kd-hybrid"])
def test_medians_balance_skewed_data(name: str) -> None:
    domain, points = space(2), skewed(2, 20_000)
    with fixed_entropy(3):
        kd = vm.release(points, domain, 1, name, 4).estimates.tree
    quad = vm.release(points, domain, 1, "quad-opt", 4).estimates.tree
    spread = [np.std(leaf_counts(tree, points, domain.side)) for tree in (kd, quad)]
    print(f"{name}: standard deviation of leaf counts {spread[0]:.0f}, of a quadtree's {spread[1]:.0f}")
    assert spread[0] < spread[1] / 2


# --- what is published ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("kind", ["skewed", "tied", "empty"])
@pytest.mark.parametrize("name", ["kd-standard", "kd-hybrid"])
def test_estimates_add_up_and_survive_a_file(axes: int, kind: str, name: str, tmp_path) -> None:
    domain = space(axes)
    points = {"skewed": skewed(axes), "tied": np.full((500, axes), 0.3), "empty": np.zeros((0, axes))}[kind]
    release = vm.release(points, domain, EPSILON, name, 2)
    tree, estimate = release.estimates.tree, release.estimates.estimate
    for v in np.flatnonzero(~tree.is_leaf):
        assert estimate[v] == estimate[tree.first_child[v] : tree.first_child[v + 1]].sum()
    assert release.privacy.spent == release.privacy.epsilon == EPSILON
    path = tmp_path / "kd.parquet"
    release.save(path)
    again = vm.load(path)
    for name_of in ("lo", "hi", "children"):
        assert np.array_equal(getattr(again.estimates.tree, name_of), getattr(tree, name_of))
    assert again.header() == release.header()
    assert np.array_equal(again.estimates.estimate, estimate)
    ends = np.sort(np.random.default_rng(2).random((20, 2, axes)), axis=1).reshape(20, -1)
    ends[0] = [0] * axes + [1] * axes
    ours, theirs = release.count(ends), again.count(ends)
    assert np.array_equal(ours.estimate, theirs.estimate)
    assert np.array_equal(ours.stderr, theirs.stderr)
    assert np.isfinite(ours.estimate).all()
    assert np.isfinite(ours.stderr).all()
    assert ours.estimate[0] == pytest.approx(estimate[0])


def test_methods_survive_json() -> None:
    for structure in (KdTree(3), KdTree(2, switch=1, fanout=2, median_share="1/7"), KdTree(4, switch="half")):
        method = Method(structure=structure)
        assert Method.from_json(method.to_json()) == method
    assert named("kd-hybrid", height=3).structure == KdTree(3, switch="half")


def test_noisy_counts_answer_too() -> None:
    method = Method(structure=KdTree(2), estimate=PostProcessing.NOISY_COUNTS)
    release = vm.release(skewed(2), space(2), 1, method)
    assert release.count([[0, 0, 1, 1]]).estimate[0] == release.estimates.noisy_count[0]


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("switch", ["quarter", "", -1, 1.5, None, True], ids=repr)
def test_bad_switch_is_refused(switch: object) -> None:
    with pytest.raises(BadInput, match=r'switch of a kd-tree is "all", "half", or the number of levels'):
        KdTree(3, switch=switch)


@pytest.mark.parametrize("fanout", [0, 1, 3, 4, "2"], ids=repr)
def test_bad_fanout_is_refused(fanout: object) -> None:
    with pytest.raises(BadInput, match=r"fanout of a kd-tree is 2, or by default"):
        KdTree(3, fanout=fanout)


@pytest.mark.parametrize("share", [-0.1, 1, "3/2", "much", None, float("nan"), float("inf"), True], ids=repr)
def test_bad_share_is_refused(share: object) -> None:
    with pytest.raises(BadInput, match="share of the medians"):
        KdTree(3, median_share=share)


@pytest.mark.parametrize("height", [-1, 2.5, "8"], ids=repr)
def test_bad_height_is_refused(height: object) -> None:
    with pytest.raises(BadInput, match="height of a tree"):
        KdTree(height)

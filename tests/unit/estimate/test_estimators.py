"""Estimates beyond least squares: shrinkage, counts of 0 or more, and whole numbers."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import veilmap as vm
from tests import naive
from veilmap import BadInput, Method, Noise, PostProcessing, Quadtree
from veilmap.cli import app
from veilmap.estimate.adjacency import Adjacency
from veilmap.estimate.least_squares import least_squares
from veilmap.estimate.nonnegative import nonnegative_estimates
from veilmap.estimate.pipeline import QUANTUM, estimate
from veilmap.estimate.shrink import STRATUM_EDGES, shrink
from veilmap.kernels import adjacent_nodes
from veilmap.kernels import post_processing as kernel
from veilmap.method.registry import METHODS
from veilmap.testing import fixed_entropy
from veilmap.trees import CurveTree, CutTree, RegularTree
from veilmap.vault import NoisyTree

SEEDS = st.integers(0, 2**32 - 1)
AXES = st.sampled_from([1, 2, 3])
KINDS = pytest.mark.parametrize("kind", [e for e in PostProcessing if e is not PostProcessing.NOISY_COUNTS])


def random_tree(axes, seed, side=16, levels=4, most=3):
    """Boxes cut into grids, in two, measured again (one part) or left alone; some without cells."""
    rng = np.random.default_rng(seed)
    tree = CutTree.root(side, axes)
    for _ in range(levels):
        boxes = tree.level_start[-1] - tree.level_start[-2]
        if rng.random() < 0.3:
            newest = tree.level(tree.height)
            axis = int(rng.integers(axes))
            at = rng.integers(tree.lo[newest, axis], tree.hi[newest, axis] + 1)
            tree = tree.cut(axis, at, rng.random(boxes) < 0.7)
        else:
            parts = rng.integers(1, most + 1, (boxes, axes))
            parts[rng.random(boxes) < 0.3] = 0
            parts[rng.random(boxes) < 0.1] = 1
            tree = tree.split(parts)
        if tree.level_start[-1] == tree.level_start[-2]:  # nothing was cut
            tree = CutTree(tree.lo, tree.hi, tree.children, tree.level_start[:-1])
            break
    return tree


def noisy_counts(tree, seed, size=3.1, density=0.3):
    """Random counts of leaves, many of them 0, and Laplace noise on most inner nodes and on every leaf."""
    rng = np.random.default_rng(seed)
    hollow = np.any(tree.lo == tree.hi, axis=1)
    leaf = np.where(tree.is_leaf & ~hollow & (rng.random(tree.size) < density), rng.geometric(0.05, tree.size), 0)
    exact = leaf.copy()
    for v in range(tree.size - 1, 0, -1):
        exact[tree.parent[v]] += exact[v]
    scale = size * rng.choice([1.0, 2.0], tree.size)
    noisy = np.rint(exact + rng.laplace(0, scale)).astype(np.int64)
    unmeasured = ~tree.is_leaf & (rng.random(tree.size) < 0.2)
    noisy[unmeasured] = 0
    return NoisyTree(tree, noisy, np.where(unmeasured, np.inf, 2 * scale**2), (), False)


def published(noisy, kind, **how):
    return estimate(noisy, Method(structure=Quadtree(), estimate=kind, **how))


def adds_up(tree, values):
    below = np.bincount(tree.parent[1:], values[1:], tree.size)
    return np.array_equal(below[~tree.is_leaf], values[~tree.is_leaf])


# Neighbours


def slow_neighbours(tree, larger):
    """From the root, box by box, to the first on the way that is small enough and not the leaf's own."""
    lo, hi = 2 * tree.lo, 2 * tree.hi  # in half cells

    def holds(v, place):
        return all(lo[v, k] <= place[k] < hi[v, k] for k in range(len(place)))

    def volume(v):
        return math.prod((tree.hi[v] - tree.lo[v]).tolist())

    def find(v, place, leaf, middle):
        if not holds(v, place):
            return []
        if not holds(v, middle) and (tree.is_leaf[v] or volume(v) <= larger * volume(leaf)):
            return [v]
        return [found for c in naive.children(tree.first_child, v) for found in find(c, place, leaf, middle)]

    out = {}
    for leaf in range(tree.size):  # or any other node
        middle = (lo[leaf] + hi[leaf]) // 2
        for k, step in itertools.product(range(lo.shape[1]), (-1, 1)):
            place = middle.copy()
            place[k] += step * (hi[leaf, k] - lo[leaf, k])
            found = find(0, place, leaf, middle) if volume(leaf) else []
            out[leaf, 2 * k + (step > 0)] = found[0] if found else adjacent_nodes.NO_NEIGHBOUR
    return out


@given(AXES, SEEDS, st.sampled_from([4, 16, 64]))
def test_neighbours_are_found_where_a_walk_from_the_root_finds_them(axes, seed, side):
    tree = random_tree(axes, seed, side, levels=4 if axes < 3 else 2)
    near = Adjacency.of(tree)
    for (leaf, which), node in slow_neighbours(tree, 2 ** (axes / 2)).items():
        assert near.nodes[leaf, which] == node, (leaf, which)


def test_neighbours_of_siblings_that_are_no_grid_are_found_by_trying_all():
    lo = np.array([[0, 0], [0, 0], [2, 0], [1, 3], [0, 1], [1, 1]])  # four around one: a pinwheel
    hi = np.array([[4, 4], [2, 1], [4, 3], [4, 4], [1, 4], [2, 3]])
    tree = CutTree(lo, hi, np.array([5, 0, 0, 0, 0, 0]), (0, 1, 6))
    near = Adjacency.of(tree)
    for (leaf, which), node in slow_neighbours(tree, 2.0).items():
        assert near.nodes[leaf, which] == node


def test_neighbours_of_a_regular_tree_are_those_of_its_grid():
    tree = RegularTree(16, 2, ((2, 2), (2, 2), (2, 2)))
    near, newest = Adjacency.of(tree), tree.level(3)
    at = {tuple(box): v for v, box in enumerate(tree.lo[newest].tolist(), newest.start)}
    for (x, y), v in at.items():
        beside = [(x - 2, y), (x + 2, y), (x, y - 2), (x, y + 2)]
        assert near.nodes[v].tolist() == [at.get(box, adjacent_nodes.NO_NEIGHBOUR) for box in beside]


def test_neighbours_along_a_curve_are_those_along_the_curve():
    keys = CutTree.root(64, 1).split(np.array([[4]])).split(np.array([[4], [0], [2], [0]]))
    near = Adjacency.of(CurveTree(keys, 2, 3, 5))
    assert np.array_equal(near.nodes, Adjacency.of(keys).nodes)
    assert near.nodes.shape == (keys.size, 2)


# Shrinkage


def slab(y, rate):
    """The density of an exponential count with Laplace noise of scale 1."""
    if y < 0:
        return 0.5 * rate / (1 + rate) * math.exp(y)
    both = math.exp(-rate * y) - math.exp(-y)
    return 0.5 * rate * both / (1 - rate) + 0.5 * rate / (1 + rate) * math.exp(-rate * y)


def slow_shrink(noisy, near):
    """One leaf at a time, with no bins: its chance of being empty, then what siblings hand to each other."""
    tree, (x, _) = noisy.tree, least_squares(noisy)
    density = {v: x[v] / near.volume[v] for v in range(tree.size) if near.volume[v]}
    groups, strata, seen = {}, {}, {}
    for leaf in np.flatnonzero(tree.is_leaf):
        chain, top = [leaf], leaf
        while top and tree.children[tree.parent[top]] == 1:
            top = tree.parent[top]
            chain.append(top)
        if top == 0 or not near.volume[leaf]:
            continue
        groups.setdefault(tree.parent[top], []).append(chain)
        weights = 1 / noisy.noise_variance[chain]
        size = math.sqrt(1 / weights.sum() / 2)
        seen[leaf] = weights @ noisy.noisy_count[chain] / weights.sum() / size
        beside = [density[v] for v in near.nodes[leaf] if v >= 0]
        strata[leaf] = int(np.digitize(sum(beside) / max(len(beside), 1) * near.volume[leaf] / size, STRATUM_EDGES))
    keeps = dict.fromkeys(seen, 1.0)
    for stratum in range(len(STRATUM_EDGES)):
        leaves = [leaf for leaf in seen if strata[leaf] == stratum]
        if len(leaves) < 30:
            continue
        z = [seen[leaf] for leaf in leaves]
        high = [y for y in z if y > 1]
        empty, mean = 0.5, max(sum(high) / len(high) if high else 1.0, 0.5)
        for last in range(26):
            spike = [empty * 0.5 * math.exp(-abs(y)) for y in z]
            p = [s / (s + (1 - empty) * slab(y, 1 / mean)) for s, y in zip(spike, z, strict=True)]
            if last < 25:
                empty = min(max(sum(p) / len(p), 0.001), 0.999)
                held = sum((1 - q) * y for q, y in zip(p, z, strict=True))
                mean = max(held / max(len(p) - sum(p), 1e-9), 0.3)
        keeps |= {leaf: max(1 - q, 0.02) for leaf, q in zip(leaves, p, strict=True)}
    out = x.copy()
    for chains in groups.values():
        given = sum((1 - keeps[c[0]]) * x[c[0]] for c in chains)
        kept = sum(keeps[c[0]] for c in chains)
        for chain in chains:
            out[chain] = keeps[chain[0]] * (x[chain[0]] + given / kept)
    return out


def shrunk(noisy, near, **how):
    x, _ = least_squares(noisy)
    shrink(noisy.tree, near, noisy.noisy_count, noisy.noise_variance, x, **how)
    return x


def large_tree(seed, axes=2):
    """Some hundred leaves in blocks of several sizes, some measured twice."""
    rng = np.random.default_rng(seed)
    tree = CutTree.root(2**10, axes).split(np.full((1, axes), 6 if axes < 3 else 3))
    parts = rng.integers(2, 8 if axes < 3 else 5, (tree.level_start[-1] - 1, axes))
    parts[rng.random(len(parts)) < 0.25] = 0
    tree = tree.split(parts)
    again = rng.random(tree.level_start[-1] - tree.level_start[-2]) < 0.2
    return tree.split(np.where(again[:, None], 1, 0).repeat(axes, axis=1))


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_shrinkage_is_what_the_slow_twin_says(axes, seed):
    noisy = noisy_counts(large_tree(seed, axes), seed)
    near = Adjacency.of(noisy.tree)
    got, slow, plain = shrunk(noisy, near), slow_shrink(noisy, near), least_squares(noisy)[0]
    change = np.abs(slow - plain).max()
    assert change > 5
    assert np.abs(got - slow).max() < 0.02 * change  # bins are a sixteenth of the noise wide


@given(AXES, SEEDS, st.sampled_from([0.5, 3.0, 30.0]))
def test_shrinkage_keeps_the_totals_of_siblings_and_touches_leaves_only(axes, seed, size):
    noisy = noisy_counts(large_tree(seed, axes), seed, size)
    tree, near = noisy.tree, Adjacency.of(noisy.tree)
    plain, got = least_squares(noisy)[0], shrunk(noisy, near)
    below = np.bincount(tree.parent[1:], got[1:], tree.size)
    assert below[~tree.is_leaf] == pytest.approx(got[~tree.is_leaf], rel=1e-9, abs=1e-6)
    inner = tree.children > 1
    assert np.array_equal(got[inner], plain[inner])
    forgetful = np.where(tree.is_leaf, 0.5 * got, got)  # a near miss: shrunk, and not handed on
    below = np.bincount(tree.parent[1:], forgetful[1:], tree.size)
    assert below[~tree.is_leaf] != pytest.approx(forgetful[~tree.is_leaf], rel=1e-9, abs=1e-6)


def test_leaves_that_are_known_or_hold_no_cells_stay_as_they_are():
    tree = CutTree.root(2**10, 1).split(np.array([[200]]))
    tree = tree.cut(0, tree.lo[tree.level(1), 0])  # every first half is without cells
    noisy = noisy_counts(tree, 1)
    plain, got = least_squares(noisy)[0], shrunk(noisy, Adjacency.of(tree))
    hollow = np.any(tree.lo == tree.hi, axis=1)
    assert np.array_equal(got[hollow], np.zeros(200))
    known = replace(noisy, noise_variance=np.zeros(tree.size))
    assert np.array_equal(shrunk(known, Adjacency.of(tree)), least_squares(known)[0])
    assert got[tree.node_level == 2] == pytest.approx(plain[tree.node_level == 2])  # alone among its siblings


def test_few_leaves_teach_nothing():
    noisy = noisy_counts(RegularTree(8, 2, ((7, 7),)), 1)
    assert np.array_equal(shrunk(noisy, Adjacency.of(noisy.tree)), least_squares(noisy)[0])


@pytest.mark.parametrize("normal", [False, True])
@pytest.mark.parametrize(("empty", "rate"), [(0.5, 0.1), (0.9, 0.2), (0.2, 0.05)])
def test_the_fit_finds_how_many_leaves_are_empty(empty, rate, normal):
    rng = np.random.default_rng(7)
    count = np.where(rng.random(400_000) < empty, 0, rng.exponential(1 / rate, 400_000))
    y = count + (rng.normal(size=len(count)) if normal else rng.laplace(size=len(count)))
    at = np.clip((y - kernel.LOWEST_BIN) / kernel.BIN_WIDTH, 0, kernel.COUNT_BINS - 1).astype(int)
    number, total = (np.bincount(at, weights, kernel.COUNT_BINS) for weights in (np.ones(len(y)), y))
    found = kernel.fit_zero_inflated_exponential(number, total, normal)
    assert found == pytest.approx((empty, rate), rel=0.03)
    assert found != pytest.approx((empty * 0.9, rate * 1.1), rel=0.03)


@given(st.floats(-40, 40), st.floats(0.01, 3.3), st.booleans())
def test_the_odds_of_a_count_are_the_ratio_of_two_densities(y, rate, normal):
    x = np.concatenate([np.linspace(0, 50, 20_001), np.linspace(50, 50 + 60 / rate, 20_001)])
    noise = -((y - x) ** 2) / 2 if normal else -np.abs(y - x)
    alone = -(y**2) / 2 if normal else -abs(y)
    ratio = np.trapezoid(rate * np.exp(-rate * x + noise - alone), x)
    if normal and abs(y - rate) > 25:
        return  # beyond any doubt
    assert kernel.likelihood_ratio(y, rate, normal) == pytest.approx(ratio, rel=1e-3)


# Counts of 0 or more


def slow_projection(parent, x, variance):
    """The quadratic program, by trying every set of zeros."""
    best, cost = None, math.inf
    for positive in itertools.product([False, True], repeat=len(x)):
        on = np.array(positive)
        if not on.any() and parent > 0:
            continue
        shift = (parent - x[on].sum()) / variance[on].sum() if on.any() else 0.0
        y = np.where(on, x + variance * shift, 0.0)
        spent = np.sum((y - x) ** 2 / variance)
        if y.min() >= -1e-12 and spent < cost:
            best, cost = np.maximum(y, 0), spent
    return best


@given(st.lists(st.tuples(st.floats(-50, 50), st.floats(0.1, 100)), min_size=1, max_size=7), st.floats(0, 60))
def test_children_become_the_nearest_counts_of_0_or_more(children, parent):
    x, variance = np.array(children).T
    got = np.concatenate([[parent], x])
    kernel.project_nonnegative(
        np.array([1, 1 + len(x)] + [1 + len(x)] * len(x)), got, np.concatenate([[1.0], variance])
    )
    assert got[1:] == pytest.approx(slow_projection(parent, x, variance), abs=1e-6)


def test_a_metric_that_is_not_that_of_the_variances_gives_other_counts():
    tree, x = np.array([1, 4, 4, 4, 4]), np.array([10.0, 8.0, 6.0, -4.0])
    right, wrong = x.copy(), x.copy()
    kernel.project_nonnegative(tree, right, np.array([1.0, 1.0, 4.0, 2.0]))
    kernel.project_nonnegative(tree, wrong, np.array([1.0, 1.0, 1.0, 1.0]))
    assert right.tolist() == pytest.approx([10, 7.2, 2.8, 0])
    assert wrong.tolist() == pytest.approx([10, 6, 4, 0])


def test_children_that_are_known_stay_and_the_others_give_way():
    x = np.array([10.0, 7.0, 9.0, -6.0])
    kernel.project_nonnegative(np.array([1, 4, 4, 4, 4]), x, np.array([1.0, 0.0, 4.0, 2.0]))
    assert x.tolist() == [10, 7, 3, 0]
    x = np.array([5.0, 7.0, 9.0, -6.0])  # a parent that has less than what is known: then all give way
    kernel.project_nonnegative(np.array([1, 4, 4, 4, 4]), x, np.array([1.0, 0.0, 4.0, 2.0]))
    assert x[1:].sum() == 5
    assert x.min() >= 0


@given(AXES, SEEDS)
def test_non_negative_counts_are_consistent_and_stay_when_done_again(axes, seed):
    noisy = noisy_counts(random_tree(axes, seed), seed, 20.0)
    got = published(noisy, PostProcessing.NONNEGATIVE)
    assert got.estimate.min() >= 0
    assert adds_up(noisy.tree, got.estimate)
    assert np.array_equal(got.estimate / QUANTUM, np.rint(got.estimate / QUANTUM))
    again = got.estimate.copy()
    kernel.project_nonnegative(noisy.tree.first_child, again, got.subtree_variance)
    assert np.array_equal(again, got.estimate)
    plain = published(noisy, PostProcessing.LEAST_SQUARES).estimate
    if plain.min() >= 0:
        assert np.abs(got.estimate - plain).max() < 4 * QUANTUM


def test_clipping_alone_does_not_add_up():
    noisy = noisy_counts(large_tree(1), 1)
    plain = published(noisy, PostProcessing.LEAST_SQUARES).estimate
    assert adds_up(noisy.tree, plain)
    assert not adds_up(noisy.tree, np.maximum(plain, 0))


def test_large_blocks_take_few_steps():
    """Geometric counts are the worst for Newton's steps; a quadratic method would take minutes."""
    n = 2**18
    x = np.concatenate([[1.0], -(2.0 ** np.linspace(-300, 300, n))])
    tree = np.concatenate([[1], np.full(n + 1, n + 1)])
    kernel.project_nonnegative(tree, x, np.ones(n + 1))
    assert x[1:].sum() == pytest.approx(1.0)
    assert x.min() >= 0


def slow_apportion(first_child, estimate):
    out = [max(0, int(np.rint(estimate[0])))]
    out += [0] * (len(estimate) - 1)
    for v in range(len(estimate)):
        below = naive.children(first_child, v)
        for c in below:
            out[c] = math.floor(estimate[c])
        order = sorted(below, key=lambda c: (math.floor(estimate[c]) - estimate[c], c))
        for c in order[: out[v] - sum(out[c] for c in below)]:
            out[c] += 1
    return out


@given(AXES, SEEDS, st.booleans())
def test_whole_numbers_go_to_the_largest_remainders(axes, seed, ties):
    tree = random_tree(axes, seed)
    rng = np.random.default_rng(seed)
    leaf = rng.choice([0.25, 0.5, 2.75, 4.0] if ties else rng.integers(0, 4096, 50) / 1024, tree.size)
    x = np.array(naive.sum_children(tree.first_child, np.where(tree.is_leaf, leaf, 0.0)))
    got = x.copy()
    kernel.apportion(tree.first_child, got, 1.0)
    assert got.tolist() == slow_apportion(tree.first_child, x)
    assert np.all(np.abs(got - x) < 1)
    assert adds_up(tree, got)


# Through the front door

SPACE = vm.Domain({"x": (0, 1), "y": (0, 1)})


def towns(rows, seed=0, places=12, width=0.004):
    """Few towns in an empty country."""
    rng = np.random.default_rng(seed)
    centre = rng.random((places, 2))
    points = centre[rng.integers(places, size=rows)] + rng.normal(0, width, (rows, 2))
    return np.clip(points, 0, 1)


def whole_numbers(release):
    nodes = release.estimates
    assert np.array_equal(nodes.estimate, np.rint(nodes.estimate))
    assert nodes.estimate.min() >= 0
    assert adds_up(nodes.tree, nodes.estimate)
    return nodes.estimate


@pytest.mark.parametrize("name", [m for m in METHODS if METHODS[m].private])
def test_whole_numbers_of_every_method(name, tmp_path):
    made = vm.release(towns(3000), SPACE, 0.5, name)
    before = made.estimates.estimate.copy()
    whole = made.integers()
    counts = whole_numbers(whole)
    assert np.array_equal(made.estimates.estimate, before, equal_nan=True)
    assert whole.consistent
    assert whole.privacy == made.privacy
    assert whole.method == {**made.method, "estimate": whole.method["estimate"], "integers": True}
    assert np.array_equal(whole.integers().estimates.estimate, counts)
    boxes = [[0.1, 0.2, 0.7, 0.9], [0, 0, 1, 1]]
    whole.save(tmp_path / "whole.parquet")
    back = vm.load(tmp_path / "whole.parquet")
    assert json.loads(pq.read_metadata(tmp_path / "whole.parquet").metadata[b"veilmap"])["method"]["integers"] is True
    assert np.array_equal(back.estimates.estimate, counts)
    assert np.array_equal(back.count(boxes).estimate, whole.count(boxes).estimate)
    if not made.estimates.tree.overlapping:
        assert whole.count(boxes).estimate[1] == counts[0]
    assert np.all(whole.count(boxes).stderr > 0)


@KINDS
def test_whole_numbers_are_the_non_negative_estimates_rounded_down_or_up(kind):
    noisy = noisy_counts(large_tree(3), 3)
    full = published(noisy, kind)
    non_negative = full.estimate.copy()
    kernel.project_nonnegative(noisy.tree.first_child, non_negative, full.subtree_variance)
    whole = nonnegative_estimates(full, True, 1.0).estimate
    assert np.all((np.floor(non_negative - 1e-9) <= whole) & (whole <= np.ceil(non_negative + 1e-9)))
    assert not adds_up(noisy.tree, np.rint(non_negative))  # what a spreadsheet would do


def test_whole_numbers_of_noisy_counts_are_those_of_their_least_squares():
    with fixed_entropy(3):
        noisy = vm.release(towns(3000), SPACE, 0.5, "quad-geo", height=5)
    with fixed_entropy(3):
        squares = vm.release(towns(3000), SPACE, 0.5, replace(METHODS["quad-opt"], structure=Quadtree(5)))
    assert np.array_equal(noisy.estimates.noisy_count, squares.estimates.noisy_count)
    apart = np.abs(noisy.integers().estimates.estimate - squares.integers().estimates.estimate)
    assert apart.max() <= 1
    assert np.count_nonzero(apart) < 0.02 * len(apart)  # estimates of a release are rounded to multiples


def test_whole_numbers_keep_density_at_0_or_more():
    method = Method(structure=vm.AdaptiveGrid(), slopes=True)
    whole = vm.release(towns(3000), SPACE, 0.5, method).integers()
    nodes = whole.estimates
    assert np.any(nodes.slope)
    assert np.all(np.abs(nodes.slope).sum(axis=1) <= 2 * nodes.estimate)


@pytest.mark.parametrize("estimate", ["shrink", "nonnegative", "least-squares", "noisy-counts"])
@pytest.mark.parametrize("name", ["quad-opt", "quad-geo", "kd-hybrid", "hilbert-r", "adaptive-grid", "privtree"])
def test_an_estimate_goes_with_any_method(name, estimate):
    made = vm.release(towns(3000), SPACE, 0.5, name, estimate=estimate)
    assert made.method["estimate"] == estimate
    assert made.consistent == (estimate != "noisy-counts")
    if made.consistent:
        assert adds_up(made.estimates.tree, made.estimates.estimate)
    assert vm.release(towns(3000), SPACE, 0.5, name, estimate=PostProcessing(estimate)).method == made.method


@pytest.mark.parametrize("estimate", ["shrinkage", "", 3, None.__class__, ["shrink"]])
def test_an_estimate_that_is_none_is_refused(estimate):
    with pytest.raises(BadInput, match="must be noisy-counts, least-squares, shrink or nonnegative, got"):
        vm.release(towns(10), SPACE, 0.5, estimate=estimate)


def test_a_method_by_hand_has_its_own_estimate():
    with pytest.raises(BadInput, match="need the name of a method"):
        vm.release(towns(10), SPACE, 0.5, METHODS["quad-opt"], estimate="shrink")


def test_the_command_line_takes_an_estimate(tmp_path):
    np.savetxt(tmp_path / "towns.csv", towns(2000), delimiter=",", header="x,y", comments="")
    usual = ["--domain", "x=0:1,y=0:1", "--epsilon", "0.5", "--method", "quad-opt", "--height", "6"]
    source, out = str(tmp_path / "towns.csv"), str(tmp_path / "made.parquet")
    done = CliRunner().invoke(app, ["release", source, "-o", out, *usual, "--estimate", "nonnegative"])
    assert done.exit_code == 0, done.output
    made = vm.load(out)
    assert made.method["estimate"] == "nonnegative"
    assert made.estimates.estimate.min() == 0
    planned = {}
    for kind in ("least-squares", "shrink", "noisy-counts"):
        done = CliRunner().invoke(app, ["plan", *usual, "--estimate", kind, "--format", "json"])
        record = json.loads(done.output)
        assert record["method"]["estimate"] == kind
        planned[kind] = record["predictions"]
    assert planned["shrink"] == planned["least-squares"] != planned["noisy-counts"]
    done = CliRunner().invoke(app, ["plan", *usual, "--estimate", "shrin"])
    assert isinstance(done.exception, BadInput)


def test_slopes_are_of_consistent_boxes():
    with pytest.raises(BadInput, match="Slopes need consistent estimates"):
        Method(structure=Quadtree(), estimate=PostProcessing.NOISY_COUNTS, slopes=True)
    with pytest.raises(BadInput, match="Leaves along a Hilbert curve cannot have slopes"):
        Method(structure=vm.HilbertR(), slopes=True)
    with pytest.raises(BadInput, match="True or False, got 1"):
        Method(structure=Quadtree(), slopes=1)
    record = Method(structure=Quadtree(), slopes=True).to_json()
    assert Method.from_json(record).slopes
    del record["slopes"]
    assert not Method.from_json(record).slopes


def test_estimates_of_the_paper_are_what_they_were():
    for name in ("quad-opt", "quad-post", "kd-standard", "kd-hybrid"):
        assert METHODS[name].estimate is PostProcessing.LEAST_SQUARES
        assert not METHODS[name].slopes


# What they are worth


def box_errors(points, kind, seeds, height=6, side=3, noise=Noise.DISCRETE_LAPLACE):
    """The root mean square error of random small boxes that cut no leaf, over releases."""
    cells = 2**height
    low = np.random.default_rng(5).integers(0, cells - side, (300, 2))
    boxes = np.hstack([low, low + side]) / cells
    inside = [
        (points[:, 0] >= a) & (points[:, 0] < c) & (points[:, 1] >= b) & (points[:, 1] < d) for a, b, c, d in boxes
    ]
    truth = np.array([i.sum() for i in inside])
    method = Method(structure=Quadtree(height), estimate=kind, noise=noise)
    delta = "1e-6" if noise is Noise.DISCRETE_GAUSSIAN else None
    errors = []
    for seed in range(seeds):
        with fixed_entropy(seed):
            errors.append(vm.release(points, SPACE, 0.5, method, delta=delta).count(boxes).estimate - truth)
    return float(np.sqrt(np.mean(np.square(errors))))


def gains(points, kind, seeds=4, **how):
    """Whether an estimate is better than least squares by more than a tenth."""
    return box_errors(points, kind, seeds, **how) < 0.9 * box_errors(points, PostProcessing.LEAST_SQUARES, seeds, **how)


def test_shrinkage_pays_where_much_is_empty_and_does_no_harm_elsewhere():
    sparse, full = towns(20_000), np.random.default_rng(2).random((200_000, 2))
    assert gains(sparse, PostProcessing.SHRINK)
    assert gains(sparse, PostProcessing.SHRINK, noise=Noise.DISCRETE_GAUSSIAN)
    assert not gains(full, PostProcessing.SHRINK)  # the near miss: no leaf is empty
    assert box_errors(full, PostProcessing.SHRINK, 2) < 1.02 * box_errors(full, PostProcessing.LEAST_SQUARES, 2)


def test_non_negative_counts_pay_in_small_boxes_of_a_sparse_quadtree():
    sparse, full = towns(20_000), np.random.default_rng(2).random((200_000, 2))
    assert gains(sparse, PostProcessing.NONNEGATIVE)
    assert not gains(full, PostProcessing.NONNEGATIVE)

"""Linear density inside leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import veilmap as vm
from tests.unit.estimate.test_estimators import SPACE, large_tree, noisy_counts, published, random_tree, towns
from veilmap import Method, PostProcessing
from veilmap.estimate.adjacency import Adjacency
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.estimate.slopes import SIGNIFICANT_BITS, STEEPNESS_FACTOR, limited_slopes, slopes
from veilmap.method.registry import METHODS
from veilmap.testing import fixed_entropy
from veilmap.trees import CutTree, RegularTree

SEEDS = st.integers(0, 2**32 - 1)
AXES = st.sampled_from([1, 2, 3])
ROUNDED = 2.0**-SIGNIFICANT_BITS * 2


def known_by(tree, variance, v):
    """V of a leaf, or of the chain of nodes with one child that it ends."""
    while v and tree.children[tree.parent[v]] == 1:
        v = tree.parent[v]
    return variance[v]


def slow_slopes(nodes, near):
    """Leaf by leaf and axis by axis."""
    tree, axes = nodes.tree, nodes.tree.lo.shape[1]
    variance = [known_by(tree, nodes.subtree_variance, v) for v in range(tree.size)]
    changes, seen = {}, {}
    for v in np.flatnonzero(tree.is_leaf):
        for k in range(axes):
            beside = [u for u in near.nodes[v, 2 * k : 2 * k + 2] if u >= 0]
            if not near.volume[v] or not beside:
                continue
            before, behind = ((u if u >= 0 else v) for u in near.nodes[v, 2 * k : 2 * k + 2])
            as_here = {u: nodes.estimate[u] * near.volume[v] / near.volume[u] for u in (before, behind, v)}
            noise = sum(variance[u] * (near.volume[v] / near.volume[u]) ** 2 for u in (before, behind))
            change = (as_here[behind] - as_here[before]) / len(beside)
            level = np.mean([max(as_here[u], 0) for u in (before, v, v, behind)]) / np.sqrt(variance[v])
            stratum = k, int(np.clip(np.floor(2 * np.log2(max(level, 0.25))) + 4, 0, 19))
            changes[v, k] = change, stratum
            seen.setdefault(stratum, []).append(min(change**2 / (noise / len(beside) ** 2), 30))
    mean = {stratum: (sum(ratios) + 20) / (len(ratios) + 10) for stratum, ratios in seen.items()}
    out = np.zeros((tree.size, axes))
    for (v, k), (change, stratum) in changes.items():
        out[v, k] = STEEPNESS_FACTOR * max(0, 1 - 1 / mean[stratum]) * change
    for v in range(tree.size):
        steep = np.abs(out[v]).sum()
        out[v] *= min(1, 2 * max(nodes.estimate[v], 0) / steep) if steep else 0
    return out


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_slopes_are_what_the_slow_twin_says(axes, seed):
    nodes = published(noisy_counts(large_tree(seed, axes), seed), PostProcessing.LEAST_SQUARES)
    got, slow = slopes(nodes), slow_slopes(nodes, Adjacency.of(nodes.tree))
    assert np.any(got)
    assert got == pytest.approx(slow, rel=ROUNDED, abs=1e-9)
    assert got != pytest.approx(slow * 1.01, rel=ROUNDED, abs=1e-9)


@given(AXES, SEEDS)
def test_slopes_of_any_tree_are_what_the_slow_twin_says(axes, seed):
    nodes = published(noisy_counts(random_tree(axes, seed), seed), PostProcessing.SHRINK)
    assert slopes(nodes) == pytest.approx(slow_slopes(nodes, Adjacency.of(nodes.tree)), rel=ROUNDED, abs=1e-9)


@given(AXES, SEEDS, st.sampled_from(list(PostProcessing)[1:]))
def test_density_is_0_or_more_in_every_leaf_and_leaves_keep_their_totals(axes, seed, kind):
    noisy = noisy_counts(random_tree(axes, seed), seed, 10.0)
    flat, nodes = published(noisy, kind), published(noisy, kind, slopes=True)
    assert np.array_equal(nodes.estimate, flat.estimate)
    assert np.all(np.abs(nodes.slope).sum(axis=1) / 2 <= np.maximum(nodes.estimate, 0))  # at the lowest corner
    assert not np.any(nodes.slope[nodes.estimate <= 0])
    assert not np.any(nodes.slope[~noisy.tree.is_leaf])
    assert not np.any(nodes.slope[np.any(noisy.tree.lo == noisy.tree.hi, axis=1)])


@given(SEEDS)
def test_slopes_follow_pruning(seed):
    noisy = noisy_counts(large_tree(seed), seed)
    nodes = published(noisy, PostProcessing.SHRINK, prune_below=60.0, slopes=True)
    assert nodes.tree.size < noisy.tree.size
    assert np.array_equal(nodes.slope, slopes(replace(nodes, slope=None)))
    assert not np.any(nodes.slope[~nodes.tree.is_leaf])


def test_slopes_are_of_boxes_with_sides_and_neighbours():
    alone = CutTree.root(8, 2)
    nodes = NodeEstimates(alone, np.array([5]), np.ones(1), np.array([5.0]), np.ones(1))
    assert not np.any(slopes(nodes))
    strips = alone.split(np.array([[1, 4]]))  # no neighbour along the first axis
    counts = np.array([100.0, 10, 20, 30, 40])
    nodes = NodeEstimates(strips, counts.astype(np.int64), np.full(5, 1e-6), counts, np.full(5, 1e-6))
    assert not np.any(slopes(nodes)[:, 0])
    assert np.all(slopes(nodes)[1:, 1] > 5)
    curve = vm.release(towns(2000), SPACE, 0.5, "hilbert-r")
    assert not np.any(slopes(curve.estimates))
    assert slopes(curve.estimates).shape == (curve.estimates.tree.size, 2)


def test_slopes_along_a_line_are_those_of_the_line():
    """Without noise, each leaf's slope is 1.3 of the difference from one leaf to the next."""
    tree = RegularTree(64, 1, ((64,),))
    counts = 10.0 + 0.5 * np.arange(64)
    nodes = NodeEstimates(
        tree, np.zeros(65, np.int64), np.full(65, 1e-9), np.concatenate([[counts.sum()], counts]), np.full(65, 1e-9)
    )
    got = slopes(nodes)[1:, 0]
    assert got == pytest.approx(np.full(64, STEEPNESS_FACTOR * 0.5), rel=0.1)
    turned = replace(nodes, estimate=np.concatenate([[counts.sum()], counts[::-1]]))
    assert slopes(turned)[1:, 0] == pytest.approx(-got[::-1], rel=1e-6)


def test_slopes_see_through_noise():
    """Where all differences are noise there is hardly a slope; where they are not, there is."""
    size = {}
    for name, count in (("noise", np.full(4096, 40.0)), ("waves", 40 + 30 * np.sin(np.arange(4096) / 5))):
        rng = np.random.default_rng(4)
        tree = RegularTree(2**12, 1, ((4096,),))
        noisy = np.concatenate([[0], count + rng.laplace(0, 5, 4096)])
        variance = np.full(4097, 50.0)
        nodes = NodeEstimates(tree, noisy.astype(np.int64), variance, noisy, variance)
        change = (noisy[3:] - noisy[1:-2]) / 2
        size[name] = np.sqrt(np.mean(slopes(nodes)[2:-1, 0] ** 2)) / np.sqrt(np.mean(change**2))
    assert size["noise"] < 0.15
    assert size["waves"] > 0.5  # what a slope that knows nothing of noise would have in both


@given(AXES, SEEDS)
def test_gentler_slopes_fit_other_estimates(axes, seed):
    rng = np.random.default_rng(seed)
    slope, estimate = rng.normal(0, 10, (50, axes)), rng.normal(0, 10, 50)
    got = limited_slopes(estimate, slope)
    assert np.all(np.abs(got).sum(axis=1) <= 2 * np.maximum(estimate, 0))
    fits = np.abs(slope).sum(axis=1) < 1.9 * estimate
    assert got[fits] == pytest.approx(slope[fits], rel=ROUNDED)
    assert np.array_equal(limited_slopes(estimate, got)[fits], got[fits])


def leaf_counts(nodes, cells, boxes):
    """The mass of boxes, in cells, leaf by leaf."""
    tree, leaf = nodes.tree, nodes.tree.is_leaf
    lo, hi = tree.lo[leaf], tree.hi[leaf]
    slope = np.zeros(lo.shape) if nodes.slope is None else nodes.slope[leaf]
    out = []
    for box in boxes * cells:
        a, b = (np.clip((end - lo) / (hi - lo), 0, 1) for end in (box[:2], box[2:]))
        density = nodes.estimate[leaf] + np.sum(slope * ((a + b) / 2 - 0.5), axis=1)
        out.append(np.sum(np.prod(b - a, axis=1) * density))
    return np.array(out)


def test_slopes_lower_the_error_of_boxes_that_cut_smooth_leaves():
    rng = np.random.default_rng(8)
    points = np.clip(rng.normal(0.5, 0.12, (300_000, 2)), 0, 1)
    x, y = points.T.copy()
    low = rng.random((300, 2)) * 0.5 + 0.2
    boxes = np.hstack([low, low + 0.03])
    truth = [np.sum((x >= b[0]) & (x < b[2]) & (y >= b[1]) & (y < b[3])) for b in boxes]

    def error(slopes, turned=1):
        method = Method(structure=vm.UniformGrid(16), slopes=slopes)
        with fixed_entropy(5):
            nodes = vm.release(points, SPACE, 1, method).estimates
        nodes = replace(nodes, slope=turned * nodes.slope) if slopes else nodes
        return np.sqrt(np.mean((leaf_counts(nodes, SPACE.side, boxes) - truth) ** 2))

    assert error(True) < 0.8 * error(False)
    assert error(True, -1) > error(False)  # the near miss slopes the other way


def test_the_same_noise_gives_the_same_slopes():
    def made():
        with fixed_entropy(9):
            method = replace(METHODS["adaptive-grid"], estimate=PostProcessing.SHRINK, slopes=True)
            return vm.release(towns(20_000), SPACE, 1, method).estimates

    one, other = made(), made()
    assert np.any(one.slope)
    assert np.array_equal(one.slope, other.slope)
    assert np.array_equal(one.estimate, other.estimate)


def test_neighbours_are_searched_once_for_shrinkage_and_slopes(monkeypatch):
    noisy, searched, search = noisy_counts(large_tree(2), 2), [], Adjacency.of
    monkeypatch.setattr(Adjacency, "of", lambda tree: searched.append(tree) or search(tree))
    nodes = published(noisy, PostProcessing.SHRINK, slopes=True)
    assert searched == [noisy.tree]
    pruned = published(noisy, PostProcessing.SHRINK, slopes=True, prune_below=60.0)
    assert searched == [noisy.tree, noisy.tree, pruned.tree]
    assert pruned.tree.size < nodes.tree.size

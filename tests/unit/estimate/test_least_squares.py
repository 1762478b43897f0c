"""From noisy counts to what is published: least squares on the grid of multiples, and pruning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import naive
from tests.unit.kernels.test_kernels import ends_on_and_off_the_lines, random_measurements, random_queries
from veilmap import Domain, Method, PostProcessing, Quadtree
from veilmap.answers.answerer import Answerer
from veilmap.estimate.least_squares import standard_errors
from veilmap.estimate.pipeline import QUANTUM, estimate
from veilmap.trees import RegularTree
from veilmap.vault import NoisyTree

HEIGHTS = {1: 4, 2: 2, 3: 1}
AXES = st.sampled_from(sorted(HEIGHTS))
SEEDS = st.integers(0, 2**32 - 1)
THRESHOLDS = st.sampled_from([-1e9, -30.0, 0, 30.0, 1e9])
EVERY = pytest.mark.parametrize("kind", PostProcessing)


def noisy_tree(axes, seed):
    """A small quadtree of random noisy counts, half of the inner nodes unmeasured."""
    tree = RegularTree(2 ** HEIGHTS[axes], axes, ((2,) * axes,) * HEIGHTS[axes])
    noisy, variance = random_measurements(tree.first_child, seed)
    return NoisyTree(tree, noisy.astype(np.int64), variance, (), False)


def published(noisy, kind, prune_below=None):
    return estimate(noisy, Method(structure=Quadtree(), estimate=kind, prune_below=prune_below))


def answers(nodes, consistent, axes, seed):
    """Random boxes, in cells, and what is answered for them."""
    domain = Domain({f"x{a}": (0, 2 ** HEIGHTS[axes]) for a in range(axes)}, bits=HEIGHTS[axes])
    queries = random_queries(seed, axes, ends_on_and_off_the_lines(domain.side))
    return queries, Answerer(domain, nodes, consistent).count(queries, 0.95)


@given(AXES, SEEDS)
def test_published_least_squares_add_up_exactly_and_are_the_dense_ones(axes, seed):
    noisy = noisy_tree(axes, seed)
    got, tree = published(noisy, PostProcessing.LEAST_SQUARES).estimate, noisy.tree
    dense = naive.least_squares(tree.first_child, noisy.noisy_count, noisy.noise_variance)
    assert np.abs(got - dense).max() <= 1.5 * QUANTUM + 1e-6
    for v in np.flatnonzero(~tree.is_leaf):
        assert got[naive.children(tree.first_child, v)].sum() == got[v]


@given(AXES, SEEDS)
def test_noisy_counts_are_published_as_they_are_and_unmeasured_nodes_have_none(axes, seed):
    noisy = noisy_tree(axes, seed)
    measured = np.isfinite(noisy.noise_variance)
    got = published(noisy, PostProcessing.NOISY_COUNTS).estimate
    assert np.array_equal(got, np.where(measured, noisy.noisy_count, np.nan), equal_nan=True)


@EVERY
@given(axes=AXES, seed=SEEDS, below=THRESHOLDS)
def test_pruning_drops_exactly_what_lies_below_a_node_under_the_threshold(kind, axes, seed, below):
    noisy = noisy_tree(axes, seed)
    full, pruned, tree = published(noisy, kind), published(noisy, kind, below), noisy.tree

    def cut_off(v):
        above = tree.parent[v]
        return v > 0 and (full.estimate[above] < below or cut_off(above))

    kept = [v for v in range(tree.size) if not cut_off(v)]
    for name in ("noisy_count", "noise_variance", "estimate", "subtree_variance"):
        assert np.array_equal(getattr(pruned, name), getattr(full, name)[kept], equal_nan=True), name
    assert np.array_equal(pruned.tree.lo, tree.lo[kept])


@given(AXES, SEEDS, THRESHOLDS)
def test_a_pruned_consistent_tree_answers_from_its_leaves_with_the_dense_variance(axes, seed, below):
    noisy = noisy_tree(axes, seed)
    full, pruned = published(noisy, PostProcessing.LEAST_SQUARES), published(noisy, PostProcessing.LEAST_SQUARES, below)
    boxes = [tuple(box) for box in np.hstack([full.tree.lo, full.tree.hi])]
    leaves = [boxes.index(tuple(b)) for b in np.hstack([pruned.tree.lo, pruned.tree.hi])[pruned.tree.is_leaf]]
    covariance = naive.covariance(full.tree.first_child, full.noise_variance)[np.ix_(leaves, leaves)]
    queries, got = answers(pruned, True, axes, seed)
    for q, query in enumerate(queries):
        part = naive.leaf_fractions(pruned.tree, query)
        assert got.estimate[q] == pytest.approx(part @ full.estimate[leaves], rel=1e-9, abs=1e-9)
        assert got.error_parts.noise_variance[q] == pytest.approx(part @ covariance @ part, rel=1e-6, abs=1e-9)


@given(AXES, SEEDS, THRESHOLDS)
def test_a_pruned_inconsistent_tree_answers_by_the_canonical_range_query(axes, seed, below):
    pruned = published(noisy_tree(axes, seed), PostProcessing.NOISY_COUNTS, below)
    queries, got = answers(pruned, False, axes, seed)
    for q, query in enumerate(queries):
        total, variance = naive.range_query(pruned.tree, pruned.estimate, pruned.noise_variance, query)
        assert got.estimate[q] == pytest.approx(total, rel=1e-9, abs=1e-9)
        assert got.error_parts.noise_variance[q] == pytest.approx(variance, rel=1e-9, abs=1e-9)


@EVERY
def test_a_threshold_above_everything_leaves_the_root_alone(kind):
    noisy = noisy_tree(2, 5)
    noisy.noise_variance[0] = 1.0
    assert published(noisy, kind, 1e9).tree.size == 1
    assert published(noisy, kind, -1e9).tree.size == noisy.tree.size


@given(AXES, SEEDS)
def test_standard_errors_of_nodes_are_the_dense_ones(axes, seed):
    noisy = noisy_tree(axes, seed)
    dense = np.diag(naive.covariance(noisy.tree.first_child, noisy.noise_variance))
    assert standard_errors(published(noisy, PostProcessing.LEAST_SQUARES), True) ** 2 == pytest.approx(dense, rel=1e-6)
    counts = published(noisy, PostProcessing.NOISY_COUNTS)
    assert np.array_equal(standard_errors(counts, False), np.sqrt(noisy.noise_variance))

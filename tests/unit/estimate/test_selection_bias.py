"""Counts that decided how far boxes are cut, and what is made of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilmap.estimate.least_squares import least_squares
from veilmap.estimate.selection_bias import MIN_BIAS_IN_VARIANCES, unbiased_counts
from veilmap.trees import CutTree, Tree
from veilmap.vault import NoisyTree

BOXES, ROWS, WIDE, NARROW = 5000, 4, 8.0, 2.0  # rows of each box; the scales of noise above and below


def decided(seed: int, chosen_by_noise: bool) -> NoisyTree:
    """Boxes of 4 rows each, cut in 4 where their noisy counts are high (or by lot), else counted again as they are."""
    rng = np.random.default_rng(seed)
    tree = CutTree.root(4 * BOXES, 1).split(np.array([[BOXES]]))
    above = np.rint(ROWS + rng.laplace(0, WIDE, BOXES)).astype(np.int64)
    full = above > ROWS if chosen_by_noise else rng.random(BOXES) < 0.5
    parts = np.where(full, 4, 1)[:, None]
    tree = tree.split(parts)
    held = np.repeat(np.where(full, 1, ROWS), parts[:, 0])
    below = np.rint(held + rng.laplace(0, NARROW, len(held))).astype(np.int64)
    noisy = np.concatenate([[0], above, below])
    variance = np.concatenate([[np.inf], np.full(BOXES, 2 * WIDE**2), np.full(len(below), 2 * NARROW**2)])
    return NoisyTree(tree, noisy, variance, (), False)


def off_by(noisy: NoisyTree, fair: bool) -> float:
    """How many standard errors the total is away from the truth."""
    counts = unbiased_counts(noisy.tree, noisy.noisy_count, noisy.noise_variance) if fair else None
    estimate, variance = least_squares(noisy, counts)
    return float((estimate[0] - BOXES * ROWS) / np.sqrt(variance[0]))


@pytest.mark.parametrize("seed", range(5))
def test_a_total_of_boxes_that_noise_chose_is_set_right(seed: int) -> None:
    """Plain least squares trust a high count more than a low one: the many parts of its box say less than one would."""
    noisy = decided(seed, chosen_by_noise=True)
    assert off_by(noisy, fair=False) > 8
    assert abs(off_by(noisy, fair=True)) < 6


@pytest.mark.parametrize("seed", range(5))
def test_where_noise_chose_nothing_counts_stay_as_they_are(seed: int) -> None:
    noisy = decided(seed, chosen_by_noise=False)
    changed = unbiased_counts(noisy.tree, noisy.noisy_count, noisy.noise_variance) - noisy.noisy_count
    assert np.abs(changed).max() < 0.1 * WIDE  # a bias of 4 standard errors is as good as never there
    assert abs(off_by(noisy, fair=True)) < 6


def naive_fair(tree: Tree, noisy: list[int], variance: list[float]) -> list[float]:
    groups: dict[tuple[int, int], list[int]] = {}
    for v in range(tree.size):
        own = range(tree.first_child[v], tree.first_child[v + 1])
        if own and all(np.isfinite(variance[u]) for u in (v, *own)) and variance[v] > 0:
            groups.setdefault((int(tree.node_level[v]), len(own)), []).append(v)
    out = [float(n) for n in noisy]
    for nodes in groups.values():
        weigh = says = 0.0
        for v in nodes:
            own = range(tree.first_child[v], tree.first_child[v + 1])
            both = variance[v] + sum(variance[u] for u in own)
            weigh += variance[v] / both
            says += (noisy[v] - sum(noisy[u] for u in own)) * variance[v] ** 0.5 / both
        bias = says / weigh
        sure = max(0.0, 1 - MIN_BIAS_IN_VARIANCES / (bias * bias * weigh)) if bias else 0.0
        for v in nodes:
            out[v] -= sure * bias * variance[v] ** 0.5
    return out


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_fair_counts_are_those_of_the_slow_twin(seed: int, axes: int) -> None:
    rng = np.random.default_rng(seed)
    tree: Tree = CutTree.root(64, axes)
    for _ in range(2):
        newest = tree.level(tree.height)
        parts = rng.integers(0, 4, (newest.stop - newest.start, axes))
        parts[0] = 2
        tree = tree.split(parts)
    noisy = rng.integers(-60, 200, tree.size)
    variance = np.where(rng.random(tree.size) < 0.1, np.inf, rng.uniform(1, 9, tree.size))
    expected = naive_fair(tree, noisy.tolist(), variance.tolist())
    assert unbiased_counts(tree, noisy, variance) == pytest.approx(np.array(expected))

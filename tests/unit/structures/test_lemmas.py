"""The paper's lemmas on trees as they are grown."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import veilmap as vm
from veilmap.domain import Domain
from veilmap.kernels.workload import add_squared_weights, optimal_prices
from veilmap.method.method import Method
from veilmap.structures import KdTree
from veilmap.testing import fixed_entropy
from veilmap.trees import RegularTree, Tree

HEIGHT = 7
FLAT = Domain({"x": (0, 1), "y": (0, 1)}, bits=15)


def quadtree() -> Tree:
    return RegularTree(FLAT.side, 2, ((2, 2),) * HEIGHT)


def kd_tree() -> Tree:
    points = np.random.default_rng(3).random((3000, 2)) ** 2
    with fixed_entropy(1):
        return vm.release(points, FLAT, 10, Method(structure=KdTree(2 * HEIGHT, fanout=2))).estimates.tree


def contributing(tree: Tree, box: NDArray[np.float64]) -> list[int]:
    """n_i of the paper, of levels counted from the leaves: nodes maximally contained, and leaves that are cut."""
    times = np.zeros(tree.size)
    add_squared_weights(tree.first_child, tree.lo, tree.hi, np.ones(tree.size, bool), box[None] * FLAT.side, times)
    return np.bincount(tree.node_level[times > 0], minlength=tree.height + 1)[::-1].tolist()


def boxes() -> list[NDArray[np.float64]]:
    """Random ones, and the worst: all but a rim of one cell, slivers, everything."""
    cell, random = 1 / FLAT.side, np.random.default_rng(5)
    ends = np.sort(random.random((200, 2, 2)), axis=1).reshape(-1, 4)
    rim = [[k * cell, k * cell, 1 - k * cell, 1 - k * cell] for k in (0, 0.5, 1, 7, 9)]
    slivers = [[cell, 0, 2 * cell, 1], [0, 0.5 - cell, 1, 0.5 + cell], [cell, 0.5, 1 - cell, 0.5 + cell]]
    return [*ends, *np.array(rim), *np.array(slivers)]


@pytest.mark.parametrize("kind", ["quadtree", "kd-tree"])
def test_lemma_2_few_nodes_contribute(kind: str) -> None:
    """The proof counts nodes that a border meets, of which a leaf that is cut is one: it contributes too."""
    tree = quadtree() if kind == "quadtree" else kd_tree()
    h = tree.height
    most = [8 * 2 ** (h - i if kind == "quadtree" else (h - i + 1) // 2) for i in range(h + 1)]
    whole = 8 * (2 ** (h + 1) - 1) if kind == "quadtree" else 8 * (2 ** ((h + 1) // 2 + 1) - 1)
    seen = np.array([contributing(tree, box) for box in boxes()])
    assert (seen <= most).all()
    assert seen.sum(axis=1).max() <= whole
    assert (seen.max(axis=0)[: h - 1] * 8 >= most[: h - 1]).any()  # the right order of growth
    assert (seen.max(axis=0) > np.array(most) / 2**h).any()  # a bound that did not grow would be broken


@given(st.integers(0, 6), st.sampled_from([2, 4, 8]), st.floats(0.5, 4), st.sampled_from([1, 2]))
def test_lemma_3_is_the_case_in_which_all_nodes_of_a_level_contribute_alike(
    height: int, fanout: int, growth: float, power: int
) -> None:
    """With n_i ∝ growth^i contributions on level i, shares grow by the cube (square) root of growth."""
    height = min(height, 3 if fanout == 8 else 6 if fanout == 2 else 4)
    level = np.repeat(np.arange(height + 1), fanout ** np.arange(height + 1))
    parent = np.concatenate([[-1], np.repeat(np.arange(len(level)), fanout)[: len(level) - 1]])
    times, total = (growth / fanout) ** level, 2**40
    paid = optimal_prices(parent, times, np.ones(len(level), bool), total, power, total)
    best = growth ** (np.arange(height + 1) / (power + 1))
    assert paid / total == pytest.approx((best / best.sum())[level], abs=2e-9)

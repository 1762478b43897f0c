"""Budgets for the boxes that people ask: exact, and the best there are."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

import veilmap as vm
from veilmap.arrays import Ints
from veilmap.budgets import Workload
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.kernels.workload import optimal_prices
from veilmap.method.method import Method
from veilmap.planning.planner import plan
from veilmap.structures import KdTree, Quadtree
from veilmap.trees import CutTree, Tree

FLAT = Domain({"x": (0, 1), "y": (0, 1)}, bits=6)
BOXES = [[0.1, 0.2, 0.4, 0.35], [0, 0, 0.5, 0.5], [0.1, 0.1, 0.2, 0.2]]
TOTAL = 4096


def tree_of(height: int, parts: tuple[int, int] = (2, 2)) -> Tree:
    tree = CutTree.root(FLAT.side, 2)
    for _ in range(height):
        tree = tree.refine(parts)
    return tree


def along_paths(tree: Tree, paid: Ints) -> set[int]:
    total = paid.copy()
    for v in range(1, tree.size):
        total[v] += total[tree.parent[v]]
    return set(total[tree.is_leaf].tolist())


@pytest.mark.parametrize("per", ["node", "level"])
@pytest.mark.parametrize("power", [1, 2])
@given(height=st.integers(0, 3), total=st.integers(1, TOTAL), seed=st.integers(0, 99), skip=st.booleans())
def test_every_path_pays_the_total_and_every_leaf_something(
    per: str, power: int, height: int, total: int, seed: int, skip: bool
) -> None:
    tree = tree_of(height)
    boxes = np.sort(np.random.default_rng(seed).random((4, 2, 2)), axis=1).reshape(4, 4)
    counted = ~(skip & (tree.node_level % 2 != height % 2))
    paid = Workload(boxes.tolist(), per).node_prices(tree, counted, FLAT, total, power)
    assert along_paths(tree, paid) == {total}
    assert (paid[tree.is_leaf] > 0).all()  # also where nobody asks
    assert (paid >= 0).all()
    assert not paid[~counted].any()
    if per == "level":
        assert all(len(set(paid[tree.level(i)].tolist())) == 1 for i in range(height + 1))


def loss(times: np.ndarray, paid: np.ndarray, power: int) -> float:
    asked = times > 0
    return float(np.sum(times[asked] / paid[asked] ** power))


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_an_optimiser_finds_no_better_prices(power: int, seed: int) -> None:
    """Each inner node takes a part of what is left; parts are free numbers, so every path pays 1."""
    tree = tree_of(2, (2, 1))
    times = np.random.default_rng(seed).random(tree.size) + 0.05
    inner = np.flatnonzero(~tree.is_leaf)

    def split(logits: np.ndarray) -> np.ndarray:
        left, paid = np.ones(tree.size), np.ones(tree.size)
        part = dict(zip(inner.tolist(), 1 / (1 + np.exp(-logits)), strict=True))
        for v in range(tree.size):
            if v:
                left[v] = left[tree.parent[v]] - paid[tree.parent[v]]
            paid[v] = left[v] * part.get(v, 1.0)
        return paid

    found = minimize(lambda logits: np.log(loss(times, split(logits), power)), np.zeros(len(inner)), tol=1e-10)
    ours = optimal_prices(tree.parent, times, np.ones(tree.size, bool), TOTAL, power, 64) / TOTAL
    assert loss(times, ours, power) == pytest.approx(np.exp(found.fun), rel=1e-5)
    assert ours == pytest.approx(split(found.x), abs=3 / TOTAL)
    even = np.full(tree.size, 1 / (tree.height + 1))
    assert loss(times, even, power) > 1.01 * loss(times, ours, power)


@pytest.mark.parametrize("per", ["node", "level"])
def test_the_boxes_of_a_workload_get_smaller_errors(per: str) -> None:
    boxes = [[0.5, 0.5, 0.5 + k / 64, 0.5 + k / 64] for k in (3, 5, 7)]
    for structure in (Quadtree(6), KdTree(6)):
        usual = plan(FLAT, 1, Method(structure=structure), rows=1000).stderr(boxes)
        ours = plan(FLAT, 1, Method(structure=structure, budget=Workload(boxes, per)), rows=1000).stderr(boxes)
        assert np.sum(ours**2) < np.sum(usual**2)


def test_a_release_has_the_errors_of_its_plan() -> None:
    method = Method(structure=Quadtree(4), budget=Workload(BOXES))
    points = np.random.default_rng(1).random((500, 2))
    release = vm.release(points, FLAT, 1, method)
    assert release.privacy.spent == 1
    noise = release.count(BOXES).error_parts.noise_variance
    assert np.sqrt(noise) == pytest.approx(plan(FLAT, 1, method).stderr(BOXES))


@pytest.mark.parametrize("per", ["node", "level"])
def test_workloads_survive_json(per: str) -> None:
    method = Method(structure=Quadtree(2), budget=Workload(np.array(BOXES), per))
    assert Method.from_json(json.loads(json.dumps(method.to_json()))) == method


@pytest.mark.parametrize("boxes", [[], 5, None, [[1, 2, 3]], [["a", 1]], [[0, 1], [0, 0, 1, 1]], [3]], ids=repr)
def test_boxes_that_are_none_are_refused(boxes: Any) -> None:
    with pytest.raises(BadInput, match="A workload is a list of boxes"):
        Workload(boxes)


def test_other_bad_workloads_are_refused() -> None:
    with pytest.raises(BadInput, match='per "node" or per "level"'):
        Workload(BOXES, per="leaf")
    with pytest.raises(BadInput, match="known number of levels"):
        Method(structure=Quadtree(), budget=Workload(BOXES))
    for boxes in ([[0, 1]], [[1, 1, 0, 0]], [[0, 0, float("nan"), 1]]):
        with pytest.raises(BadInput, match=r"Box|box"):
            vm.release(np.zeros((1, 2)), FLAT, 1, Method(structure=Quadtree(2), budget=Workload(boxes)))

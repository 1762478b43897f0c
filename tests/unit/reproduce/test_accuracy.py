"""What the study's accuracy figures share: boxes and their truth, errors, methods as in the paper, and rows."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import veilmap as vm
from veilmap.errors import BadInput
from veilmap.method.method import Method
from veilmap.method.registry import METHODS
from veilmap.reproduce import accuracy
from veilmap.reproduce.accuracy import (
    BOXES_PER_SHAPE,
    EXACT_QUADTREE,
    QUERY_SHAPES,
    ShapeQueries,
    adapt_methods,
    as_in_the_paper,
    at_height,
    compare_methods,
    count_in_boxes,
    error_rows,
    errors,
    format_number,
    format_per_cent,
    format_ratio,
    leaf_shape,
    paper_methods,
    queries,
    shape_size,
    study_points,
    values,
)
from veilmap.reproduce.data import PAPER_BOX, two_states
from veilmap.reproduce.study import Row, Setting


@pytest.fixture(scope="module")
def setting() -> Setting:
    return Setting(two_states(4000), PAPER_BOX, "a few", seed=7, quick=True)


@pytest.fixture
def few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "MAX_BOXES_TRIED", 3000)


# Boxes and their truth.

whole = st.integers(0, 6).map(float)  # so that points lie on borders


@given(st.lists(st.tuples(whole, whole), max_size=30), st.lists(st.tuples(whole, whole, whole, whole), max_size=8))
def test_boxes_hold_what_the_slow_twin_says(
    points: list[tuple[float, float]], corners: list[tuple[float, ...]]
) -> None:
    boxes = [(min(a, c), min(b, d), max(a, c), max(b, d)) for a, b, c, d in corners]
    slow = [sum(x0 <= x <= x1 and y0 <= y <= y1 for x, y in points) for x0, y0, x1, y1 in boxes]
    ordered = np.array(sorted(points)).reshape(-1, 2)
    assert count_in_boxes(ordered, np.array(boxes).reshape(-1, 4)).tolist() == slow


def test_every_shape_has_its_boxes_with_points_in_them(setting: Setting) -> None:
    asked = queries(setting)
    assert list(asked) == list(QUERY_SHAPES)
    for shape, (boxes, truth) in asked.items():
        assert boxes.shape == (BOXES_PER_SHAPE, 4)
        assert boxes[:, 2:] - boxes[:, :2] == pytest.approx(np.tile(QUERY_SHAPES[shape], (BOXES_PER_SHAPE, 1)))
        assert (boxes[:, :2] >= PAPER_BOX.lo).all()
        assert (boxes[:, 2:] <= PAPER_BOX.hi + 1e-9).all()
        inside = (setting.points >= boxes[:20, None, :2]) & (setting.points <= boxes[:20, None, 2:])
        assert truth[:20].tolist() == inside.all(axis=2).sum(axis=1).tolist()
        assert truth.min() >= 1


def test_a_seed_decides_the_boxes() -> None:
    points = two_states(2000)
    first, again, other = (queries(Setting(points, PAPER_BOX, "", seed=seed)) for seed in (1, 1, 2))
    for shape in QUERY_SHAPES:
        assert np.array_equal(first[shape].boxes, again[shape].boxes)
        assert not np.array_equal(first[shape].boxes, other[shape].boxes)


def test_boxes_are_made_once_for_a_setting(setting: Setting) -> None:
    assert queries(setting) is queries(setting)
    assert study_points(setting) is study_points(setting)


def test_another_domain_has_the_same_parts() -> None:
    domain = vm.Domain({"x": (0, 2 * 21.82), "y": (-17.67, 0)})
    for shape, (width, height) in QUERY_SHAPES.items():
        assert shape_size(shape, domain) == pytest.approx([2 * width, height])


@pytest.mark.usefixtures("few_tries")
def test_points_that_no_box_finds_are_told() -> None:
    corner = np.full((5, 2), PAPER_BOX.lo)
    with pytest.raises(BadInput, match=r"Fewer than 600 of 3,000 random boxes .* contain a point\. Give a domain"):
        queries(Setting(corner, PAPER_BOX, ""))


def test_a_quick_study_has_some_of_the_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "QUICK_POINTS", 500)
    points = two_states(2000)
    some, same, others = (study_points(Setting(points, PAPER_BOX, "", seed=s, quick=True)) for s in (1, 1, 2))
    assert len(some) == 500
    assert {tuple(p) for p in some} <= {tuple(p) for p in points}
    assert np.array_equal(some, same)
    assert not np.array_equal(some, others)
    assert study_points(Setting(points, PAPER_BOX, "")) is points


# Errors.


def test_errors_are_medians_of_relative_errors() -> None:
    def count(boxes: np.ndarray) -> Any:
        return SimpleNamespace(estimate=boxes[:, 0])

    def asked(answers: list[float], truth: list[int]) -> ShapeQueries:
        return ShapeQueries(np.array([[a, 0, 0, 0] for a in answers]), np.array(truth))

    both = {"a": asked([9, 12, 40], [10, 10, 10]), "b": asked([0, 1], [2, 1])}
    assert errors(SimpleNamespace(count=count), both) == {"a": pytest.approx(0.2), "b": pytest.approx(0.5)}  # type: ignore[arg-type]


def test_without_noise_only_cut_cells_are_wrong(setting: Setting) -> None:
    """Boxes of whole cells are answered exactly, and others better by finer trees."""
    coarse, fine = (accuracy.make_release(setting, at_height(EXACT_QUADTREE, h), "1") for h in (5, 9))
    asked = queries(setting)
    assert all(errors(fine, asked)[shape] < errors(coarse, asked)[shape] for shape in QUERY_SHAPES)
    size = (PAPER_BOX.hi - PAPER_BOX.lo) / 32
    cells = np.random.default_rng(1).integers(0, 28, (50, 2))
    boxes = np.hstack([PAPER_BOX.lo + cells * size, PAPER_BOX.lo + (cells + 4) * size])
    truth = count_in_boxes(setting.points[np.argsort(setting.points[:, 0])], boxes)
    assert coarse.count(boxes).estimate == pytest.approx(truth, abs=1e-6)


@pytest.mark.parametrize("name", ["quad-opt", "kd-hybrid", "hilbert-r"])
def test_a_seed_gives_the_same_rows_again_and_another_gives_others(name: str, setting: Setting) -> None:
    method = at_height(paper_methods(name)[name], 4)
    other = Setting(setting.points, PAPER_BOX, "", seed=8, quick=True)
    first, again, others = (error_rows(s, "figure", method, "0.5") for s in (setting, setting, other))
    assert first == again
    assert json.loads(json.dumps(first)) == first
    assert [row["error"] for row in first] != [row["error"] for row in others]
    by_repeat = [values(first, repeat=repeat) for repeat in range(setting.repeats)]
    assert not np.array_equal(*by_repeat)


def test_a_row_says_what_it_is_of(setting: Setting) -> None:
    rows = error_rows(setting, "figure", paper_methods("kd-true")["kd-true"], "0.5", height=3, leaves=True)
    assert len(rows) == setting.repeats * len(QUERY_SHAPES)
    columns = ["method", "epsilon", "height", "shape", "repeat", "error", "in_long_leaves"]
    assert list(rows[0]) == columns
    assert {(row["method"], row["epsilon"], row["height"]) for row in rows} == {("kd-true", "0.5", 3)}


def test_non_private_baselines_may_spend_more_than_they_are_compared_at(setting: Setting) -> None:
    method = at_height(METHODS["quad-baseline"], 8)
    little, much = (error_rows(setting, "figure", method, "0.01", spent=spent) for spent in (None, "100"))
    assert {row["epsilon"] for row in little + much} == {"0.01"}
    assert values(much).mean() < values(little).mean() / 5


def test_leaves_look_as_the_slow_twin_sees_them(setting: Setting) -> None:
    release = accuracy.make_release(setting, at_height(METHODS["kd-standard"], 2), "1")
    tree, held, long = release.estimates.tree, 0.0, 0.0
    for node in range(tree.size):
        if tree.children[node] == 0:
            side = [(int(b) - int(a)) / PAPER_BOX.side for a, b in zip(tree.lo[node], tree.hi[node], strict=True)]
            n = max(float(release.estimates.estimate[node]), 0)
            held, long = held + n, long + n * (max(side) > 1 / 3)
    assert 0 < long < held
    assert leaf_shape(release) == {"in_long_leaves": pytest.approx(long / held)}


def test_a_quadtree_is_pruned_like_kd_trees_and_is_none_of_the_papers() -> None:
    pruned, whole = accuracy.pruned_quadtree(), as_in_the_paper(METHODS["quad-opt"])
    assert (pruned.prune_below, pruned.structure) == (accuracy.PRUNE_BELOW_COUNT, whole.structure)
    assert whole.prune_below is None
    assert pruned.name not in accuracy.PAPER_HEIGHTS
    assert pruned.name in accuracy.METHOD_STYLES


# Methods.


def test_methods_are_as_in_the_paper() -> None:
    for name, method in METHODS.items():
        ours = as_in_the_paper(method)
        assert ours.name == name
        if name.startswith("quad-"):
            assert (ours.structure.height, ours.prune_below) == (10, None)
        elif name.startswith("kd-") or name == "hilbert-r":
            assert (ours.structure.height, ours.prune_below) == (8, 32)
        else:
            assert ours is method
    cells = as_in_the_paper(METHODS["kd-cell"]).structure.cells  # type: ignore[attr-defined]
    assert cells**2 == pytest.approx(21.82 / 0.01 * 17.67 / 0.01, rel=1e-3)


def test_a_newcomer_stays_as_it_is() -> None:
    best = Method(name="best", structure=vm.Quadtree())
    assert as_in_the_paper(best) is best


def test_quick_quadtrees_have_one_level_less(setting: Setting) -> None:
    trees = paper_methods("quad-opt", "kd-hybrid")
    assert [m.structure.height for m in adapt_methods(setting, trees).values()] == [9, 8]
    full = Setting(setting.points, PAPER_BOX, "")
    assert adapt_methods(full, trees) == trees


# Rows for people.


def doctored(**errors: list[float]) -> list[Row]:
    """The same errors, a repeat each, in every setting."""
    return [
        {"method": name, "epsilon": epsilon, "shape": shape, "repeat": k, "error": error}
        for name, found in errors.items()
        for epsilon in accuracy.STUDY_EPSILONS
        for shape in QUERY_SHAPES
        for k, error in enumerate(found)
    ]


def test_methods_are_compared_mean_by_mean() -> None:
    rows = doctored(a=[0.1, 0.2], b=[0.3, 0.3], c=[0.19, 0.5])
    assert compare_methods(rows, "a", "b").ratio == pytest.approx([0.5] * 12)
    assert compare_methods(rows, "a", "b").typical == pytest.approx(0.5)
    assert (compare_methods(rows, "a", "b").lower, compare_methods(rows, "a", "b").clearly) == (12, 12)
    assert (compare_methods(rows, "a", "c").lower, compare_methods(rows, "a", "c").clearly) == (
        12,
        0,
    )  # repeats overlap
    assert compare_methods(rows, "b", "a", ["0.1"], ["(5, 5)"]).where == ["ε 0.1 (5, 5)"]
    assert str(compare_methods(rows, "b", "a")) == "2.00 times (from 2.00 at ε 0.1 (1, 1) to 2.00 at ε 0.1 (1, 1))"
    assert np.isfinite(compare_methods(doctored(a=[0.0], b=[0.0]), "a", "b").typical)


def test_numbers_are_short() -> None:
    assert [format_number(v) for v in (0.01234, 1.26, 99.4, 123.4, 12345.6)] == ["0.012", "1.3", "99", "123", "12346"]
    assert [format_ratio(v) for v in (0.504, 3.0, 12.3)] == ["0.50 times", "3.00 times", "12 times"]
    assert format_per_cent(np.array([0.1, 0.3])) == "20 (10–30)"
    assert format_per_cent(np.array([0.5, 0.5])) == "50"

"""What every method promises, in one suite over the registry: a new method is tested by being registered."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import veilmap as vm
from veilmap.budgets import LeafOnly, Levels, Uniform, Workload
from veilmap.cli import main
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.method.method import Method, Noise, PostProcessing
from veilmap.method.registry import DEFAULT_METHOD, METHODS
from veilmap.planning.planner import plan
from veilmap.structures import MAX_PRICE_STEPS
from veilmap.structures.best_tuning import PRICE_UNITS, TUNING
from veilmap.testing import fixed_entropy
from veilmap.trees import CurveTree, Tree
from veilmap.vault import Charge, noise_variance
from veilmap.vault.mechanisms.gaussian import concentrated, gaussian_variance

EPSILON, DELTA = Fraction(1, 3), Fraction(1, 10**6)
HEIGHT, ROWS = 3, 400
YARDSTICKS = {"kd-true", "kd-pure"}
ALL = [(name, axes) for name in METHODS for axes in (1, 2, 3) if axes > 1 or name != "hilbert-r"]
PRIVATE = [(name, axes) for name, axes in ALL if name not in YARDSTICKS]
KINDS = ("skewed", "tied", "empty")
each = pytest.mark.parametrize(("name", "axes"), ALL)
each_private = pytest.mark.parametrize(("name", "axes"), PRIVATE)


def space(axes: int, bits: int | None = None) -> Domain:
    return Domain({f"x{a}": (-1, 3) for a in range(axes)}, bits=bits)


def rows_of(kind: str, axes: int) -> NDArray[np.float64]:
    if kind == "tied":
        return np.repeat([[0.2] * axes, [2.9] * axes], [ROWS - 10, 10], axis=0)
    return np.random.default_rng(7).random((0 if kind == "empty" else ROWS, axes)) ** 4 * 4 - 1


def options(name: str) -> dict[str, Any]:
    """A small height, where a structure has one."""
    return {"height": HEIGHT} if has(name, "height") else {}


def has(name: str, option: str) -> bool:
    return option in {field.name for field in fields(METHODS[name].structure)}


def released(name: str, axes: int, kind: str = "skewed", **more: Any) -> vm.Release:
    points = more.pop("points", rows_of(kind, axes))
    more = {**options(name), **more, "allow_nonprivate": name in YARDSTICKS}
    return vm.release(points, space(axes), EPSILON, name, **more)


def parts_of(tree: Tree) -> Tree:
    """The tree whose boxes partition its domain: along the curve, if there is one."""
    return tree.keys if isinstance(tree, CurveTree) else tree


def some_boxes(axes: int) -> NDArray[np.float64]:
    ends = np.sort(np.random.default_rng(2).random((20, 2, axes)) * 4 - 1, axis=1).reshape(20, -1)
    ends[0] = [-1] * axes + [3] * axes
    return ends


# --- what is spent ----------------------------------------------------------------------------------------------


def paths(tree: Tree) -> Iterator[list[int]]:
    """The nodes from the root to each leaf."""
    for leaf in np.flatnonzero(tree.is_leaf).tolist():
        path = [leaf]
        while path[-1]:
            path.append(int(tree.parent[path[-1]]))
        yield path[::-1]


def prices(release: vm.Release, variance: Callable[[Fraction], float]) -> tuple[list[Charge], dict[int, Fraction]]:
    """The charges that every path meets, and what each node's count cost.

    Prices by level are those of the ledger, and fit the published variances; prices of single nodes are read off
    the variances, which are those of whole steps (or hundredths of the budget) and of no other price.
    """
    tree, spread = release.estimates.tree, release.estimates.noise_variance
    total = release.privacy.rho or release.privacy.epsilon
    chosen = release.method["budget"]["name"] == "chosen"
    shared, cost = [], {}
    for charge in release.privacy.ledger:
        part = charge.epsilon + charge.rho
        if charge.what.startswith("noisy counts of level"):
            level = tree.level(int(charge.what.rpartition(" ")[2]))
            nodes = range(level.start, level.stop)
        elif charge.what == "noisy counts of the leaves":
            nodes = np.flatnonzero(tree.is_leaf).tolist()
        elif charge.what == "noisy node counts":
            one, most = (total / PRICE_UNITS, PRICE_UNITS) if chosen else (part / MAX_PRICE_STEPS, MAX_PRICE_STEPS)
            known = {variance(grain * one): grain * one for grain in range(1, most + 1)}
            cost |= {int(v): known[spread[v]] for v in np.flatnonzero(np.isfinite(spread))}
            continue
        else:
            shared.append(charge)
            continue
        assert all(spread[v] == variance(part) for v in nodes)
        cost |= dict.fromkeys(nodes, part)
    assert set(cost) == set(np.flatnonzero(np.isfinite(spread)).tolist())
    return shared, cost


def spent_along_paths(release: vm.Release, variance: Callable[[Fraction], float]) -> set[Fraction]:
    shared, cost = prices(release, variance)
    cuts = sum((charge.epsilon + charge.rho for charge in shared), Fraction(0))
    return {cuts + sum(cost.get(v, 0) for v in path) for path in paths(release.estimates.tree)}


def laplace(name: str, rows: int = 1) -> Callable[[Fraction], float]:
    exact = METHODS[name].noise is Noise.NONE
    return lambda part: 0.0 if exact else noise_variance(part / rows)


@each
@pytest.mark.parametrize("kind", KINDS)
def test_every_path_spends_exactly_epsilon(name: str, axes: int, kind: str) -> None:
    release = released(name, axes, kind)
    assert spent_along_paths(release, laplace(name)) == {EPSILON}
    assert release.privacy.spent == release.privacy.epsilon == EPSILON
    assert all(charge.epsilon > 0 and not charge.delta and not charge.rho for charge in release.privacy.ledger)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("more", [{}, {"noise": "discrete-gaussian", "delta": DELTA}], ids=["laplace", "gaussian"])
def test_every_path_pays_for_the_probe(axes: int, more: dict[str, Any]) -> None:
    """It looks at all boxes at once, so no path may save it; and a node that was paid too little is seen."""
    points = np.random.default_rng(7).random((40_000, axes)) ** 4 * 4 - 1
    release = vm.release(points, space(axes), 1, "best", **more)
    total = concentrated(Fraction(1), DELTA) if more else Fraction(1)
    (probe,) = (charge for charge in release.privacy.ledger if "roughness" in charge.what)
    assert probe.what == "roughness of level 1"
    check = release.privacy.ledger[-1]
    assert check.what == "calibration of error bars"
    aside = probe.epsilon + probe.rho + check.epsilon + check.rho
    assert aside == TUNING.reserved_units * total / PRICE_UNITS
    assert probe.epsilon + probe.rho == aside / 2
    variance = (lambda part: gaussian_variance(1 / (2 * part))) if more else noise_variance
    assert spent_along_paths(release, variance) == {total}
    cheap = release.estimates.noise_variance.copy()
    cheap[-1] = variance(total / PRICE_UNITS)
    spoiled = replace(release, estimates=replace(release.estimates, noise_variance=cheap))
    assert len(spent_along_paths(spoiled, variance)) == 2


@each_private
def test_gaussian_noise_spends_exactly_rho(name: str, axes: int) -> None:
    release = released(name, axes, noise="discrete-gaussian", delta=DELTA)
    rho = concentrated(EPSILON, DELTA)
    assert spent_along_paths(release, lambda part: gaussian_variance(1 / (2 * part))) == {rho}
    assert release.privacy.spent == release.privacy.rho == rho
    assert all(charge.rho > 0 and not charge.epsilon for charge in release.privacy.ledger)
    assert (release.privacy.epsilon, release.privacy.delta) == (EPSILON, DELTA)
    assert release.privacy.private
    assert "-differentially private for one row" in release.privacy.statement()
    with pytest.raises(BadInput, match="Give a delta"):
        released(name, axes, noise=Noise.DISCRETE_GAUSSIAN)
    with pytest.raises(BadInput, match="Leave delta out"):
        released(name, axes, delta=DELTA)


@each
def test_people_with_many_rows_pay_for_all_of_them(name: str, axes: int) -> None:
    people = {"unit": np.arange(ROWS) // 5, "max_rows_per_unit": 2}
    release = released(name, axes, **people)
    assert spent_along_paths(release, laplace(name, rows=2)) == {EPSILON}  # the price of 2 rows is half of it for each
    assert release.privacy.spent == EPSILON
    assert release.privacy.unit == "one unit (2 rows at most)"
    if METHODS[name].noise is Noise.NONE:  # and no more than 2 of the 5 are counted
        assert release.estimates.estimate[0] == 2 * ROWS / 5


@each_private
def test_people_and_gaussian_noise_go_together(name: str, axes: int) -> None:
    people = {"unit": np.arange(ROWS) // 5, "max_rows_per_unit": 2}
    release = released(name, axes, **people, noise="discrete-gaussian", delta=DELTA)
    rho = concentrated(EPSILON, DELTA)
    assert spent_along_paths(release, lambda part: gaussian_variance(4 / (2 * part))) == {rho}


@each
def test_medians_may_be_those_of_a_sample_where_there_are_medians(name: str, axes: int) -> None:
    if not has(name, "sample"):
        with pytest.raises(BadInput, match=f"{name} has no option sample"):
            released(name, axes, sample=0.25)
        return
    if name in YARDSTICKS:
        with pytest.raises(BadInput, match="Exact medians are computed on all rows"):
            released(name, axes, sample=0.25)
        return
    release = released(name, axes, sample=0.25)
    assert spent_along_paths(release, laplace(name)) == {EPSILON}
    ledger = [charge.what for charge in release.privacy.ledger if "medians" in charge.what]
    assert ledger == ["medians on a sample of 0.25"]


# --- the tree ---------------------------------------------------------------------------------------------------


def volumes(tree: Tree) -> list[int]:
    """Exact."""
    return [int(np.prod(width, dtype=object)) for width in (tree.hi - tree.lo).astype(object)]


def partitions(tree: Tree) -> bool:
    """Whether the children of every node lie in it, do not overlap, and fill it."""
    volume = volumes(tree)
    for v in np.flatnonzero(~tree.is_leaf).tolist():
        below = slice(int(tree.first_child[v]), int(tree.first_child[v + 1]))
        lo, hi = tree.lo[below], tree.hi[below]
        shared = np.minimum(hi[:, None], hi) - np.maximum(lo[:, None], lo)
        meet = (shared > 0).all(axis=2) & ~np.eye(len(lo), dtype=bool)
        if meet.any() or (lo < tree.lo[v]).any() or (hi > tree.hi[v]).any() or sum(volume[below]) != volume[v]:
            return False
    return True


@each
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prune", [None, 30.0])
def test_leaves_partition_the_domain(name: str, axes: int, kind: str, prune: float | None) -> None:
    release = released(name, axes, kind, prune=prune)
    tree = parts_of(release.estimates.tree)
    assert partitions(tree)
    side = release.domain.side if not isinstance(release.estimates.tree, CurveTree) else int(tree.hi[0, 0])
    assert sum(volume for volume, leaf in zip(volumes(tree), tree.is_leaf, strict=True) if leaf) == side ** len(
        tree.lo[0]
    )
    if tree is release.estimates.tree:
        edges = [release.domain.edges(tree.hi[:, a], a) - release.domain.edges(tree.lo[:, a], a) for a in range(axes)]
        area = np.prod(edges, axis=0)[tree.is_leaf].sum() / np.prod(release.domain.hi - release.domain.lo)
        assert area == pytest.approx(1, abs=1e-9)
    else:
        assert tree.hi[0, 0] == 1 << (release.estimates.tree.order * axes)


def test_a_tree_with_a_gap_or_an_overlap_is_seen() -> None:
    tree = vm.release(np.zeros((0, 2)), space(2), 1, "quad-opt", height=2).estimates.tree
    for moved in (-1, 1):
        hi = tree.hi.copy()
        hi[1, 0] += moved
        assert not partitions(replace(tree._written_out, hi=hi))
    assert partitions(tree._written_out)


# --- what is made of it -----------------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("kind", KINDS)
def test_estimates_are_consistent_where_that_is_promised(name: str, axes: int, kind: str) -> None:
    release = released(name, axes, kind)
    assert release.consistent == (METHODS[name].estimate is not PostProcessing.NOISY_COUNTS)
    tree, estimate = release.estimates.tree, release.estimates.estimate
    inner = np.flatnonzero(~tree.is_leaf)
    sums = np.array([estimate[tree.first_child[v] : tree.first_child[v + 1]].sum() for v in inner])
    if release.consistent:
        assert np.isfinite(estimate).all()
        assert np.array_equal(sums, estimate[inner])
    elif name not in YARDSTICKS and kind == "skewed":
        assert not np.array_equal(sums, estimate[inner])


@each
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_numbers_and_the_whole_is_the_root(name: str, axes: int, kind: str) -> None:
    release = released(name, axes, kind)
    answers = release.count(some_boxes(axes))
    assert answers.estimate[0] == pytest.approx(release.estimates.estimate[0], abs=1e-6)
    for numbers in (answers.estimate, answers.stderr, answers.low, answers.high):
        assert np.isfinite(numbers).all()
    assert (answers.stderr > 0).all() == (name != "kd-pure")


@each
def test_answers_to_two_halves_add_up(name: str, axes: int) -> None:
    """Where estimates are consistent and boxes do not overlap. A box without volume lies in no half."""
    with fixed_entropy(3):
        release = vm.release(
            rows_of("skewed", axes), space(axes), 50, name, **options(name), allow_nonprivate=name in YARDSTICKS
        )
    tree = release.estimates.tree
    if not release.consistent or tree.overlapping:
        return
    if name == "kd-noisymean" and (tree.hi == tree.lo).any():
        return  # means of few rows lie at the ends of their boxes
    assert (tree.hi > tree.lo).all()
    for axis, line in itertools.product(range(axes), (-0.97, 0.1, 1.0, 2.7)):
        left, right = ([-1.0] * axes + [3.0] * axes for _ in range(2))
        left[axes + axis] = right[axis] = line
        both = release.count([left, right]).estimate
        assert both.sum() == pytest.approx(release.estimates.estimate[0], abs=1e-5)


@each
@pytest.mark.parametrize("kind", KINDS)
def test_pruned_trees_end_at_small_estimates(name: str, axes: int, kind: str) -> None:
    release = released(name, axes, kind, prune=25.0)
    tree, estimate = release.estimates.tree, release.estimates.estimate
    assert release.method["prune_below"] == 25.0
    assert (estimate[~tree.is_leaf & np.isfinite(release.estimates.subtree_variance)] >= 25).all()
    answers = release.count(some_boxes(axes))
    assert answers.estimate[0] == pytest.approx(estimate[0], abs=1e-6)
    assert np.isfinite(answers.estimate).all()
    assert np.isfinite(answers.stderr).all()
    assert released(name, axes, kind, prune=1e9).estimates.tree.size == (1 if np.isfinite(estimate[0]) else tree.size)


# --- files and JSON ---------------------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prune", [None, 30.0])
def test_saving_and_loading_is_the_identity(
    name: str, axes: int, kind: str, prune: float | None, tmp_path: Path
) -> None:
    release = released(name, axes, kind, prune=prune)
    release.save(tmp_path / "a.parquet")
    again = vm.load(tmp_path / "a.parquet")
    assert again.header() == release.header()
    assert again.privacy == release.privacy
    ours, theirs = release.estimates, again.estimates
    assert type(theirs.tree) is type(ours.tree)
    for part in ("lo", "hi", "children", "level_start"):
        assert np.array_equal(getattr(theirs.tree, part), getattr(ours.tree, part))
    assert (ours.slope is not None) == METHODS[name].slopes
    for part in ("noisy_count", "noise_variance", "estimate", "subtree_variance", "slope", "known_unevenness"):
        if getattr(ours, part) is None:
            assert getattr(theirs, part) is None
            continue
        assert np.array_equal(getattr(theirs, part), getattr(ours, part), equal_nan=True)
    boxes = some_boxes(axes)
    for part in ("estimate", "stderr", "low", "high"):
        assert np.array_equal(getattr(again.count(boxes), part), getattr(release.count(boxes), part))
    assert again.nodes.equals(release.nodes)


@pytest.mark.parametrize("name", METHODS)
def test_methods_survive_json(name: str) -> None:
    method = METHODS[name]
    assert Method.from_json(json.loads(json.dumps(method.to_json()))) == method
    changed = replace(method, prune_below=3.5)
    assert Method.from_json(json.loads(json.dumps(changed.to_json()))) == changed != method


@each
def test_a_method_from_a_file_makes_the_same_kind_of_release(name: str, axes: int) -> None:
    with fixed_entropy(1):  # what best asks depends on its noisy answers
        first = released(name, axes)
    method = Method.from_json(first.method)
    with fixed_entropy(1):
        again = vm.release(rows_of("skewed", axes), space(axes), EPSILON, method, allow_nonprivate=name in YARDSTICKS)
    assert again.method == first.method
    assert [c.what for c in again.privacy.ledger] == [c.what for c in first.privacy.ledger]


# --- yardsticks -------------------------------------------------------------------------------------------------


@each
def test_only_yardsticks_are_not_private_and_they_say_so(
    name: str, axes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    release, file = released(name, axes), tmp_path / "a.parquet"
    release.save(file)
    monkeypatch.setattr(sys, "argv", ["veilmap", "info", str(file)])
    with pytest.raises(SystemExit):
        main()
    places = {
        "repr": repr(release),
        "repr of what was loaded": repr(vm.load(file)),
        "statement": release.privacy.statement(),
        "info": capsys.readouterr().out,
        "header": json.dumps(release.header()),
    }
    open_ = name in YARDSTICKS
    assert METHODS[name].private == release.privacy.private == vm.load(file).privacy.private != open_
    assert {place for place, text in places.items() if "NOT PRIVATE" in text} == (set(places) if open_ else set())
    assert (b"NOT PRIVATE" in file.read_bytes()) == open_


@pytest.mark.parametrize("name", sorted(YARDSTICKS))
def test_yardsticks_are_refused_unless_they_are_allowed(name: str) -> None:
    with pytest.raises(BadInput, match=f"{name} is a non-private baseline"):
        vm.release(rows_of("skewed", 2), space(2), 1, name)


def test_the_registry_has_the_names_that_people_type() -> None:
    assert {name for name, method in METHODS.items() if not method.private} == YARDSTICKS
    assert DEFAULT_METHOD == "best"
    typed = "best quad-baseline quad-geo quad-post quad-opt kd-standard kd-hybrid kd-cell kd-noisymean hilbert-r"
    assert {*typed.split(), "uniform-grid", "adaptive-grid", "privtree"} <= set(METHODS)


# --- plans, budgets, streams ------------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("noise", [None, "discrete-gaussian"])
def test_every_method_can_be_planned(name: str, axes: int, noise: str | None) -> None:
    if noise and name in YARDSTICKS:
        return
    more = {"noise": noise, "delta": DELTA} if noise else {}
    made = plan(space(axes), EPSILON, name, rows=ROWS, **options(name), **more)
    stderr = made.stderr(some_boxes(axes))
    assert np.isfinite(stderr).all()
    assert (stderr > 0).all() == (name != "kd-pure")
    assert all(p.margin >= p.stderr >= 0 for p in made.predictions())
    if METHODS[name].structure.nodes(axes) is not None and name != "kd-cell":
        assert made.nodes == released(name, axes, **more).estimates.tree.size


def test_a_method_of_unknown_size_is_planned_for_a_guess_of_the_rows() -> None:
    for name, method in METHODS.items():
        if method.structure.nodes(2) is None and not hasattr(method.structure, "settled"):
            with pytest.raises(BadInput, match="Give the expected number"):
                plan(space(2), EPSILON, name)


BUDGETS = {
    "uniform": lambda axes: Uniform(),
    "leaf-only": lambda axes: LeafOnly(),
    "levels": lambda axes: Levels([1, 0, "1/3", 2.5]),
    "workload": lambda axes: Workload(some_boxes(axes).tolist()),
    "workload-level": lambda axes: Workload(some_boxes(axes).tolist(), per="level"),
}


@pytest.mark.parametrize(("name", "axes"), [(n, a) for n, a in ALL if n in ("quad-opt", "kd-standard", "hilbert-r")])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("noise", [Noise.DISCRETE_LAPLACE, Noise.DISCRETE_GAUSSIAN])
def test_budgets_go_with_every_tree_of_a_known_height(name: str, axes: int, budget: str, noise: Noise) -> None:
    structure = replace(METHODS[name].structure, height=HEIGHT)
    method = Method(structure=structure, budget=BUDGETS[budget](axes), noise=noise)
    delta = DELTA if method.needs_delta else None
    release = vm.release(rows_of("skewed", axes), space(axes), EPSILON, method, delta=delta)
    total = concentrated(EPSILON, DELTA) if delta else EPSILON
    variance = (lambda part: gaussian_variance(1 / (2 * part))) if delta else noise_variance
    (spent,) = spent_along_paths(release, variance)  # every path the same
    assert release.privacy.spent == spent
    assert spent == total
    assert Method.from_json(json.loads(json.dumps(method.to_json()))) == method
    assert np.isfinite(release.count(some_boxes(axes)).stderr).all()


@each
@pytest.mark.parametrize("height", [None, HEIGHT])
def test_streams_that_are_gone_once_read_are_counted_like_tables(name: str, axes: int, height: int | None) -> None:
    """A method that reads twice must not count nothing the second time, nor fail after it has spent."""
    if height is None and (not has(name, "height") or name not in ("quad-opt", "quad-baseline")):
        return
    points = rows_of("skewed", axes)
    stream = pa.table({f"x{a}": points[:, a] for a in range(axes)}).to_reader(max_chunksize=64)
    if height is None:
        release = vm.release(stream, space(axes), 50, name)
    else:
        release = vm.release(stream, space(axes), 50, name, **options(name), allow_nonprivate=name in YARDSTICKS)
    leaves = release.estimates.tree.is_leaf
    assert release.estimates.noisy_count[leaves].sum() == pytest.approx(ROWS, abs=ROWS / 2)
    assert release.privacy.spent == 50

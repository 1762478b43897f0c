"""Methods as public values: to JSON and back, and by name."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

from veilmap import BadInput, Estimate, Geometric, LeafOnly, Levels, Method, Noise, Quadtree, Uniform
from veilmap.method import BUDGETS, DEFAULT_METHOD, METHODS, STRUCTURES, named


def through_json(method):
    return Method.from_json(json.loads(json.dumps(method.to_json())))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("height", [None, 0, 7])
@pytest.mark.parametrize("prune", [None, 0, -3.5, 32])
def test_every_named_method_comes_back_from_json(name, height, prune):
    method = named(name, height=height, prune_below=prune)
    assert method.structure.height == height
    assert method.prune_below == prune
    assert through_json(method) == method


@pytest.mark.parametrize(
    "budget",
    [Uniform(), Geometric(), Geometric(1.26), LeafOnly(), Levels([0, 0.1, "1/3", 1]), Levels((Fraction(2, 7), 1))],
)
@pytest.mark.parametrize("estimate", Estimate)
def test_every_budget_and_estimate_comes_back_from_json(budget, estimate):
    method = Method(structure=Quadtree(3), budget=budget, estimate=estimate, name="by hand")
    assert through_json(method) == method
    assert type(budget) in BUDGETS.values()


def test_json_names_each_part_and_its_configuration():
    record = Method(structure=Quadtree(2), budget=Levels([1, 0, 0.5]), prune_below=8).to_json()
    assert record == {
        "name": "custom",
        "structure": {"name": "quadtree", "configuration": {"height": 2}},
        "budget": {"name": "levels", "configuration": {"shares": ["1", "0", "1/2"]}},
        "noise": "discrete-laplace",
        "estimate": "least-squares",
        "prune_below": 8,
    }


def test_a_budget_of_ones_own_is_named_by_its_class():
    @dataclass(frozen=True)
    class TopHeavy:
        by: int = 3

        def weights(self, height, dimensions):
            return tuple(Fraction(self.by * height - level + 1) for level in range(height + 1))

    record = Method(structure=Quadtree(2), budget=TopHeavy()).to_json()
    assert record["budget"]["name"].endswith("TopHeavy")
    assert record["budget"]["configuration"] == {"by": 3}


def test_the_four_quadtrees_are_the_two_budgets_times_the_two_estimates():
    parts = {name: (m.budget, m.estimate) for name, m in METHODS.items() if name.startswith("quad-")}
    assert parts == {
        "quad-baseline": (Uniform(), Estimate.NOISY_COUNTS),
        "quad-geo": (Geometric(), Estimate.NOISY_COUNTS),
        "quad-post": (Uniform(), Estimate.LEAST_SQUARES),
        "quad-opt": (Geometric(), Estimate.LEAST_SQUARES),
    }
    assert {m.noise for m in METHODS.values()} == {Noise.DISCRETE_LAPLACE}
    assert DEFAULT_METHOD == "quad-opt"
    assert set(STRUCTURES) == {"quadtree"}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("quad-otp", r"no method 'quad-otp'. Did you mean 'quad-opt'"),
        ("quadgeo", r"Did you mean 'quad-geo'"),
        ("zzz", r"no method 'zzz'. There are: quad-baseline, quad-geo, quad-post, quad-opt"),
        ("QUAD-OPT", r"Did you mean 'quad-opt'"),
    ],
)
def test_an_unknown_method_is_refused_with_its_near_misses(name, sentence):
    with pytest.raises(BadInput, match=sentence):
        named(name)


def test_an_unknown_part_of_a_record_is_refused_with_its_near_misses():
    record = METHODS["quad-opt"].to_json()
    record["budget"]["name"] = "geometrical"
    with pytest.raises(BadInput, match=r"no 'geometrical' here. Did you mean 'geometric'"):
        Method.from_json(record)


@pytest.mark.parametrize("below", [math.nan, math.inf, "32", [1]])
def test_a_pruning_threshold_must_be_a_finite_number(below):
    with pytest.raises(BadInput, match="pruning threshold must be a finite number, got"):
        Method(structure=Quadtree(), prune_below=below)


def test_a_pruning_threshold_may_be_any_number_type():
    assert Method(structure=Quadtree(), prune_below=np.int64(32)).prune_below == 32


@pytest.mark.parametrize(
    "part", [{"structure": "quadtree"}, {"budget": "geometric"}, {"noise": "laplace"}, {"estimate": "least-squares"}]
)
def test_a_part_of_the_wrong_kind_is_refused(part):
    with pytest.raises(BadInput):
        Method(**({"structure": Quadtree(3)} | part))


@pytest.mark.parametrize("height", [1.0, "3", True, [2]])
def test_a_height_must_be_a_whole_number(height):
    with pytest.raises(BadInput, match="height of a tree is a whole number, 0 or more, got"):
        Quadtree(height)


def test_a_height_must_not_be_negative():
    with pytest.raises(BadInput, match="whole number, 0 or more, got -1"):
        replace(Quadtree(), height=-1)


@pytest.mark.parametrize("axes", range(1, 9))
def test_a_chosen_height_grows_with_the_rows_and_stays_in_bounds(axes):
    quadtree = Quadtree()
    finest = quadtree.finest(7, axes)
    chosen = [quadtree.choose(rows, 0.5, finest, axes) for rows in (-(10**6), 0, 1, 10**3, 10**6, 10**12)]
    assert chosen == sorted(chosen)
    assert chosen[0] == 1
    assert chosen[-1] == finest == min(7, 22 // axes)


@pytest.mark.parametrize("budget", [Uniform(), Geometric(), LeafOnly()])
def test_without_a_height_the_root_gets_a_fiftieth_and_the_levels_below_share_the_rest(budget):
    epsilon = Fraction(1, 10)
    root, *below = Method(structure=Quadtree(), budget=budget).level_epsilons(epsilon, 4, 2)
    assert root == epsilon / 50
    assert root + sum(below) == epsilon
    weights = budget.weights(4, 2)[1:]
    assert [part / sum(below) for part in below] == [w / sum(weights) for w in weights]


def test_with_a_height_the_levels_share_everything_by_weight():
    method = Method(structure=Quadtree(2), budget=Levels([1, 0, 3]))
    assert method.level_epsilons(Fraction(1), 2, 2) == (Fraction(1, 4), 0, Fraction(3, 4))


def test_a_share_for_each_level_needs_a_height():
    with pytest.raises(BadInput, match="needs a known number of levels"):
        Method(structure=Quadtree(), budget=Levels([1, 1]))

"""Methods as public values: to JSON and back, and by name."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, fields, replace
from fractions import Fraction

import numpy as np
import pytest

from veilmap import (
    BadInput,
    Geometric,
    KdTree,
    LeafOnly,
    Levels,
    Method,
    Noise,
    PostProcessing,
    Quadtree,
    Uniform,
    release,
)
from veilmap.budgets import Chosen, Workload
from veilmap.domain import Domain
from veilmap.method.method import BUDGETS, STRUCTURES
from veilmap.method.registry import DEFAULT_METHOD, METHODS, named
from veilmap.structures import AdaptiveGrid, Best, CellTree, Gate, HilbertR, PrivTree, UniformGrid
from veilmap.trees import RegularTree

FREE = {"best", "uniform-grid", "adaptive-grid", "privtree"}  # of a height
SAMPLED = {"kd-standard", "kd-hybrid", "kd-noisymean", "kd-true", "kd-pure", "hilbert-r"}
EXACT = {"kd-true", "kd-pure"}


def through_json(method):
    return Method.from_json(json.loads(json.dumps(method.to_json())))


@pytest.mark.parametrize(
    ("name", "height"), [(name, h) for name in METHODS for h in (None, 0, 7) if h is None or name not in FREE]
)
@pytest.mark.parametrize("prune", [None, 0, -3.5, 32])
def test_every_named_method_comes_back_from_json(name, height, prune):
    method = named(name, height=height, prune_below=prune)
    assert method.structure.height == (METHODS[name].structure.height if height is None else height)
    assert method.prune_below == prune
    assert through_json(method) == method


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("option", "value", "without"), [("height", 3, FREE), ("sample", "1/7", set(METHODS) - SAMPLED)]
)
def test_what_a_method_cannot_have_is_refused_with_those_that_can(name, option, value, without):
    if (option, name in EXACT) == ("sample", True):
        with pytest.raises(BadInput, match="Exact medians are computed on all rows"):
            named(name, sample=value)
        return
    if name not in without:
        assert getattr(named(name, **{option: value}).structure, option) == Fraction(value)
        return
    able = ", ".join(m for m in METHODS if m not in without and m not in EXACT)
    with pytest.raises(BadInput, match=rf"^{name} has no option {option}\. Leave it out, or choose one of {able}.$"):
        named(name, **{option: value})
    assert option not in {field.name for field in fields(METHODS[name].structure)}


@pytest.mark.parametrize(
    "budget",
    [
        Uniform(),
        Geometric(),
        Geometric(1.26),
        LeafOnly(),
        Levels([0, 0.1, "1/3", 1]),
        Levels((Fraction(2, 7), 1)),
        Workload([[0, 0, 1, 0.1], [0.5, 0, 1, 1]], per="level"),
    ],
)
@pytest.mark.parametrize("estimate", PostProcessing)
def test_every_budget_and_estimate_comes_back_from_json(budget, estimate):
    method = Method(structure=Quadtree(3), budget=budget, estimate=estimate, name="by hand")
    assert through_json(method) == method
    assert type(budget) in BUDGETS.values()


@pytest.mark.parametrize(
    "structure",
    [
        *(Quadtree(), Quadtree(0), KdTree(), KdTree(3, "half"), KdTree(4, 2, fanout=2), KdTree(2, median_share="1/7")),
        *(KdTree(median="smooth-sensitivity", sample="0.01"), HilbertR(3, order=9, sample=1), HilbertR()),
        *(CellTree(3, cells=20, median_share=0.5), UniformGrid(), UniformGrid(17), AdaptiveGrid(), AdaptiveGrid(9)),
        *(PrivTree(), PrivTree("1/3"), Best()),
    ],
    ids=str,
)
def test_every_structure_comes_back_from_json(structure):
    method = Method(structure=structure)
    assert through_json(method) == method
    assert type(structure) in STRUCTURES.values()


def test_the_share_of_the_medians_is_exact_through_json():
    for share in (0.1, "0.1", Fraction(1, 10)):
        method = Method(structure=KdTree(3, median_share=share))
        assert through_json(method).structure.median_share == Fraction(1, 10)


@pytest.mark.parametrize("share", [1, -0.1, "x", None, math.nan, 2])
def test_the_share_of_the_medians_is_a_part_of_the_budget(share):
    with pytest.raises(BadInput, match="share of the medians is a number from 0 to below 1, got"):
        KdTree(3, median_share=share)


@pytest.mark.parametrize("fanout", [0, 1, 3, 4, "2"])
def test_a_kd_tree_has_fanout_2_or_2_for_each_axis(fanout):
    with pytest.raises(BadInput, match="The fanout of a kd-tree is 2"):
        KdTree(3, fanout=fanout)


def test_json_names_each_part_and_its_configuration():
    record = Method(structure=Quadtree(2), budget=Levels([1, 0, 0.5]), prune_below=8).to_json()
    assert record == {
        "name": "custom",
        "structure": {"name": "quadtree", "configuration": {"height": 2, "check": "0"}},
        "budget": {"name": "levels", "configuration": {"shares": ["1", "0", "1/2"]}},
        "noise": "discrete-laplace",
        "estimate": "least-squares",
        "prune_below": 8,
        "slopes": False,
    }


def test_a_budget_of_ones_own_is_named_by_its_class():
    @dataclass(frozen=True)
    class TopHeavy:
        by: int = 3

        def weights(self, height, ratio):
            return tuple(Fraction(self.by * height - level + 1) for level in range(height + 1))

    record = Method(structure=Quadtree(2), budget=TopHeavy()).to_json()
    assert record["budget"]["name"].endswith("TopHeavy")
    assert record["budget"]["configuration"] == {"by": 3}


def test_the_four_quadtrees_are_the_two_budgets_times_the_two_estimates():
    parts = {name: (m.budget, m.estimate) for name, m in METHODS.items() if name.startswith("quad-")}
    assert parts == {
        "quad-baseline": (Uniform(), PostProcessing.NOISY_COUNTS),
        "quad-geo": (Geometric(), PostProcessing.NOISY_COUNTS),
        "quad-post": (Uniform(), PostProcessing.LEAST_SQUARES),
        "quad-opt": (Geometric(), PostProcessing.LEAST_SQUARES),
    }


def test_the_default_is_the_first_of_the_registry_and_has_no_knob():
    assert next(iter(METHODS)) == DEFAULT_METHOD == "best"
    best = METHODS["best"]
    assert (best.budget, best.estimate, best.slopes) == (Chosen(), PostProcessing.SHRINK, True)
    assert fields(best.structure) == ()
    assert not any(m.slopes for name, m in METHODS.items() if name != "best")


def test_the_trees_of_the_registry():
    assert {name: m.structure for name, m in METHODS.items() if not name.startswith("quad-")} == {
        "best": Best(),
        "kd-standard": KdTree(switch="all"),
        "kd-hybrid": KdTree(switch="half"),
        "kd-cell": CellTree(8),
        "kd-noisymean": KdTree(median="noisy-mean"),
        "hilbert-r": HilbertR(),
        "uniform-grid": UniformGrid(),
        "adaptive-grid": AdaptiveGrid(),
        "privtree": PrivTree(),
        "kd-true": KdTree(median="exact"),
        "kd-pure": KdTree(median="exact"),
    }
    assert set(STRUCTURES.values()) == {type(m.structure) for m in METHODS.values()}
    assert {name for name, m in METHODS.items() if not m.private} == {"kd-true", "kd-pure"}
    assert {name for name, m in METHODS.items() if m.noise is not Noise.DISCRETE_LAPLACE} == {"kd-pure"}
    assert not any(m.needs_delta for m in METHODS.values())


@pytest.mark.parametrize(
    ("structure", "usual"),
    [
        (Quadtree(3), Geometric()),
        (KdTree(3), Geometric()),
        (HilbertR(3), Geometric()),
        (CellTree(3), LeafOnly()),
        (PrivTree(), LeafOnly()),
        (UniformGrid(), Levels(["1/50", "49/50"])),
        (AdaptiveGrid(), Levels(["1/50", "49/100", "49/100"])),
        (Best(), Chosen()),
    ],
    ids=lambda part: type(part).__name__,
)
def test_a_budget_that_is_not_given_is_the_structures_usual_one(structure, usual):
    assert Method(structure=structure).budget == usual
    assert through_json(Method(structure=structure)).budget == usual
    if usual == LeafOnly():
        with pytest.raises(
            BadInput, match=rf"A {type(structure).__name__} counts only its leaves\. Its budget must be LeafOnly"
        ):
            Method(structure=structure, budget=Uniform())
    else:
        assert Method(structure=structure, budget=Geometric()).budget == Geometric()  # given, and so it stays


@pytest.mark.parametrize(
    ("method", "needs"),
    [
        (Method(structure=Quadtree(3)), False),
        (Method(structure=Quadtree(3), noise=Noise.DISCRETE_GAUSSIAN), True),
        (Method(structure=KdTree(3, median="smooth-sensitivity")), True),
        (Method(structure=HilbertR(3, median="smooth-sensitivity")), True),
        (Method(structure=KdTree(3, median="noisy-mean"), noise=Noise.DISCRETE_GAUSSIAN), True),
    ],
    ids=range(5),
)
def test_a_promise_that_is_not_pure_needs_a_delta(method, needs):
    assert method.needs_delta == needs


def test_smooth_sensitivity_and_gaussian_noise_do_not_go_together():
    with pytest.raises(BadInput, match="Smooth-sensitivity medians cannot be combined with Gaussian noise"):
        Method(structure=KdTree(3, median="smooth-sensitivity"), noise=Noise.DISCRETE_GAUSSIAN)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: KdTree(3, median="exponentail"), r"medians by 'exponentail'\. Did you mean 'exponential'"),
        (lambda: KdTree(3, median=None), "cannot compute medians by None"),
        (lambda: KdTree(3, sample=0), "rate of a sample is a number above 0, up to 1, got 0"),
        (lambda: KdTree(3, sample="3/2"), "above 0, up to 1, got '3/2'"),
        (lambda: KdTree(3, sample=True), "above 0, up to 1, got True"),
        (lambda: HilbertR(3, order=0), "order of a Hilbert curve is 1 to 31; got 0"),
        (lambda: HilbertR(3, order=32), "order of a Hilbert curve is 1 to 31; got 32"),
        (lambda: HilbertR(3, order=2.0), r"order of a Hilbert curve is 1 to 31; got 2\.0"),
        (lambda: CellTree(3, cells=0), "1 to 65536 cells per axis; got 0"),
        (lambda: CellTree(3, median_share=1), "share of the medians is a number from 0 to below 1"),
        (lambda: UniformGrid(0), "1 to 2147483648 cells per axis; got 0"),
        (lambda: AdaptiveGrid(2.5), r"1 to 2147483648 cells per axis; got 2\.5"),
        (lambda: PrivTree(1), "from 0 to below 1, got 1"),
        (lambda: Workload([]), "A workload is a list of boxes"),
        (lambda: Workload([[0, 0, 1]]), "A workload is a list of boxes"),
        (lambda: Workload([[0, 1]], per="cell"), 'per "node" or per "level", got \'cell\''),
    ],
    ids=range(16),
)
def test_a_part_that_makes_no_sense_is_refused_with_a_sentence(make, sentence):
    with pytest.raises(BadInput, match=sentence):
        make()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("quad-otp", r"no method 'quad-otp'. Did you mean 'quad-opt'"),
        ("quadgeo", r"Did you mean 'quad-geo'"),
        (
            "zzz",
            r"no method 'zzz'. There are: best, quad-baseline, quad-geo, quad-post, quad-opt, kd-standard, ",
        ),
        ("QUAD-OPT", r"Did you mean 'quad-opt'"),
    ],
)
def test_an_unknown_method_is_refused_with_its_near_misses(name, sentence):
    with pytest.raises(BadInput, match=sentence):
        named(name)


def test_an_unknown_part_of_a_record_is_refused_with_its_near_misses():
    record = METHODS["quad-opt"].to_json()
    record["budget"]["name"] = "geometrical"
    with pytest.raises(BadInput, match=r"'geometrical' is not known here\. Did you mean 'geometric'"):
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
    finest = min(7, quadtree._finest(axes))
    chosen = [quadtree.choose(rows, 0.5, finest, axes) for rows in (-(10**6), 0, 1, 10**3, 10**6, 10**12)]
    assert chosen == sorted(chosen)
    assert chosen[0] == 1
    assert chosen[-1] == finest == min(7, 22 // axes)


def spent(method, epsilon, axes=2, rows=0, power=2):
    """What growing a tree asks for: the price of each count by its level, and of each set of medians by its level."""
    tree, counts, medians = RegularTree(2**20, axes), {}, {}

    def grow(how):
        def step(*given):
            nonlocal tree
            tree = getattr(tree, how)(*given)

        return step

    def count(level, part):
        assert level not in counts
        counts[level] = part
        return np.full(tree.level(level).stop - tree.level(level).start, rows)

    def middles(axis, part, delta, mechanism):
        assert (tree.height not in medians, delta, mechanism) == (True, 0, "exponential")
        medians[tree.height] = part
        newest = tree.level(tree.height)
        return (tree.lo[newest, axis] + tree.hi[newest, axis]) // 2

    domain = Domain({f"x{a}": (0, 1) for a in range(axes)}, bits=20)
    verbs = dict.fromkeys(
        (field.name for field in fields(Gate)), lambda *_: pytest.fail("this structure has no need of that")
    )
    verbs |= {"domain": domain, "delta": Fraction(0), "power": power, "sharpness": float, "tree": lambda: tree}
    verbs |= {"refine": grow("refine"), "cut": grow("cut"), "shorten": grow("shortened")}
    gate = Gate(**verbs | {"medians": middles, "count": count})
    method.structure.grow(gate, epsilon, method.budget)
    return tree.height, counts, medians


@pytest.mark.parametrize("budget", [Uniform(), Geometric(), LeafOnly()])
def test_without_a_height_the_root_gets_a_fiftieth_and_the_levels_below_share_the_rest(budget):
    epsilon = Fraction(1, 10)
    height, counts, medians = spent(Method(structure=Quadtree(), budget=budget), epsilon, rows=10_240)
    assert (height, medians) == (4, {})
    root, *below = (counts.get(level, 0) for level in range(5))
    assert root == epsilon / 50
    assert root + sum(below) == epsilon
    weights = budget.weights(4, 2 ** (1 / 3))[1:]
    assert [part / sum(below) for part in below] == [w / sum(weights) for w in weights]


def test_with_a_height_the_levels_share_everything_by_weight():
    method = Method(structure=Quadtree(2), budget=Levels([1, 0, 3]))
    assert spent(method, Fraction(1)) == (2, {0: Fraction(1, 4), 2: Fraction(3, 4)}, {})


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("power", [1, 2], ids=["gaussian", "laplace"])
@pytest.mark.parametrize(("structure", "cut"), [(Quadtree(3), 1), (KdTree(3, 0), 1), (KdTree(3, 0, fanout=2), None)])
def test_shares_grow_as_suits_the_tree_and_the_noise(axes, power, structure, cut):
    """A counted level of 2^d times the nodes has 2^(d-1) times as many on a box's border; one of twice, 2^((d-1)/d)."""
    _, counts, _ = spent(Method(structure=structure), Fraction(1), axes, power=power)
    growth = 2 ** ((axes - 1) * (cut or 1 / axes) / (power + 1))
    shares = [counts[level] for level in sorted(counts)]
    assert [float(b / a) for a, b in itertools.pairwise(shares)] == pytest.approx([growth] * 3, rel=1e-4)


@pytest.mark.parametrize(
    ("structure", "cuts", "by_median"),
    [
        (KdTree(4), 8, 8),
        (KdTree(4, "half"), 8, 4),
        (KdTree(5, "half"), 10, 4),
        (KdTree(4, 1), 8, 2),
        (KdTree(4, 9), 8, 8),
        (KdTree(4, 0), 8, 0),
        (KdTree(4, fanout=2), 4, 4),
        (KdTree(4, "half", 2), 4, 2),
        (KdTree(0), 0, 0),
        (KdTree(4, median_share=0), 8, 0),
    ],
)
def test_medians_share_their_part_alike_and_the_counted_levels_the_rest(structure, cuts, by_median):
    epsilon, budget = Fraction(1, 3), Geometric()
    height, counts, medians = spent(Method(structure=structure, budget=budget), epsilon)
    assert height == cuts
    for_medians = epsilon * Fraction(3, 10) if by_median else 0
    assert medians == dict.fromkeys(range(by_median), for_medians / max(by_median, 1))
    step = 1 if structure.fanout == 2 else 2
    weights = budget.weights(structure.height, 2 ** (step / 2 / 3))
    assert counts == {step * i: (epsilon - for_medians) * w / sum(weights) for i, w in enumerate(weights)}
    assert sum(counts.values()) + sum(medians.values()) == epsilon


@pytest.mark.parametrize("budget", [Levels([1, 1]), Workload([[0, 0, 1, 1]])], ids=lambda b: type(b).__name__)
def test_a_share_for_each_level_or_node_needs_a_height(budget):
    with pytest.raises(BadInput, match="needs a known number of levels"):
        Method(structure=Quadtree(), budget=budget)


@pytest.mark.parametrize("budget", [Levels([1, 1]), Workload([[0, 0, 1, 1]])], ids=lambda b: type(b).__name__)
def test_best_shares_its_budget_out_itself(budget):
    sentence = "^best divides its budget itself.* choose a quadtree or a kd-tree with --method and --height"
    with pytest.raises(BadInput, match=sentence):
        release([[0.5, 0.5]], Domain({"x": (0, 1), "y": (0, 1)}), 1, budget=budget)


def test_an_option_that_nobody_has_is_refused_with_what_there_is():
    with pytest.raises(BadInput, match=r"^best has no option foo\. Leave it out\.$"):
        named("best", options={"foo": 2})
    sentence = r"^quad-opt has no option foo\. Leave it out\. Its options are height, check\.$"
    with pytest.raises(BadInput, match=sentence):
        named("quad-opt", options={"foo": 2})

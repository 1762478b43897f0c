"""Predictions before the budget is spent, and maps after."""

import json
from bisect import bisect_left
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

import veilmap as vm
from veilmap.answers.answerer import Answerer
from veilmap.errors import BadInput, TooLarge
from veilmap.method.method import Method
from veilmap.method.registry import METHODS
from veilmap.planning import planner as planning
from veilmap.planning import rehearsal
from veilmap.planning.planner import BOX_SIDES, ROUND_EPSILONS, plan, plan_within
from veilmap.plot.density import density_image
from veilmap.testing import fixed_entropy
from veilmap.vault import LaplaceNoise

SQUARE = vm.Domain({"x": (0, 4), "y": (0, 4)})
RNG = np.random.default_rng(2)


def noise_alone(release: vm.Release, boxes: object) -> np.ndarray:
    """The standard errors of a release, without what is guessed of cut cells."""
    nodes = replace(release.estimates, unevenness=None, learn=None)
    return Answerer(release.domain, nodes, release.method["estimate"] != "noisy-counts").count(boxes, 0.95).stderr


QUADTREES = [name for name in METHODS if name.startswith("quad-")]


@pytest.mark.parametrize("method", QUADTREES)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_plan_predicts_the_standard_error_of_every_box(method, axes):
    domain = vm.Domain({f"a{k}": (0, 1) for k in range(axes)})
    boxes = np.sort(RNG.random((20, 2, axes)), axis=1).reshape(20, -1)
    release = vm.release(RNG.random((500, axes)), domain, epsilon=0.7, method=method, height=3)
    predicted = plan(domain, 0.7, method, height=3).stderr(boxes)
    np.testing.assert_allclose(predicted, noise_alone(release, boxes), rtol=1e-12)


COMPLETE = ["kd-standard", "kd-hybrid", "kd-noisymean", "hilbert-r", "kd-true", "kd-pure"]
OPTIONS = {
    "plain": {},
    "gaussian": {"noise": "discrete-gaussian", "delta": 1e-6},
    "people": {"max_rows_per_unit": 4},
    "sample": {"sample": 0.2},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("method", COMPLETE)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_plan_of_a_tree_that_follows_the_data_has_its_size_and_the_error_of_the_whole(method, axes, options):
    exact = method in ("kd-true", "kd-pure")
    if (
        (method, axes) == ("hilbert-r", 1)
        or (exact and options == "sample")
        or (method, options) == ("kd-pure", "gaussian")
    ):
        return  # there is no such thing
    domain, more = vm.Domain({f"a{k}": (0, 1) for k in range(axes)}), OPTIONS[options]
    points, given = RNG.random((500, axes)) ** 3, {"epsilon": 0.7, "method": method, "height": 3, **more}
    who = {"unit": np.arange(500) // 4} if options == "people" else {}
    release = vm.release(points, domain, **given, **who, allow_nonprivate=True)
    made = plan(domain, **given)
    assert made.nodes == release.estimates.tree.size == 2 ** (3 * axes + 1) - 1
    assert np.array_equal(made._answerer.nodes.noise_variance, release.estimates.noise_variance)
    everywhere = [0] * axes + [1] * axes
    tree = release.estimates.tree
    whole = (tree.hi > tree.lo).all()  # boxes without cells hold nothing for sure, and cost nothing
    np.testing.assert_allclose(made.stderr(everywhere), noise_alone(release, everywhere), rtol=1e-12 if whole else 0.2)


def test_a_plan_without_a_height_takes_a_guess_of_the_rows():
    release = vm.release(RNG.random((50_000, 2)) * 4, SQUARE, epsilon=1, method="quad-opt")
    made = plan(SQUARE, 1, "quad-opt", rows=50_000)
    assert made.height == release.height
    assert made.nodes == release.estimates.tree.size
    box = [0.1, 0.2, 3.1, 2.2]
    noise = noise_alone(release, box)[0]
    assert plan(SQUARE, 1, "quad-opt", height=release.height).stderr(box)[0] == pytest.approx(noise, rel=0.03)
    assert noise < made.stderr(box)[0] < 1.2 * noise  # cells that the box cuts add to it
    with pytest.raises(BadInput, match="Give the expected number, or a height if the method has one"):
        plan(SQUARE, 1, "quad-opt")
    with pytest.raises(BadInput, match=r"whole number from 0 to .*, got -5"):
        plan(SQUARE, 1, "quad-opt", rows=-5)


def test_predictions_are_for_boxes_of_several_sizes():
    predictions = plan(SQUARE, 1, "quad-opt", height=6).predictions()
    assert [p.side for p in predictions] == list(BOX_SIDES)
    assert all(1.9 * p.stderr < p.margin < 2.3 * p.stderr + 1 for p in predictions)
    half = plan(SQUARE, "0.5", "quad-opt", height=6).predictions()
    assert [h.stderr / p.stderr for h, p in zip(half, predictions, strict=True)] == pytest.approx([2] * 5, rel=0.02)


@pytest.mark.parametrize("method", ["uniform-grid", "adaptive-grid", "privtree"])
@pytest.mark.parametrize("noise", [{}, {"noise": "discrete-gaussian", "delta": 1e-6}], ids=["laplace", "gaussian"])
def test_a_plan_of_a_tree_of_unknown_size_takes_a_guess_of_the_rows(method, noise):
    with pytest.raises(BadInput, match="Give the expected number, or a height if the method has one"):
        plan(SQUARE, 1, method, **noise)
    few, many = (plan(SQUARE, 1, method, rows=rows, **noise) for rows in (10**4, 10**6))
    assert few.nodes < many.nodes
    release = vm.release(RNG.uniform(0, 4, (10**4, 2)), SQUARE, 1, method, **noise)
    # PrivTree's size is random: 561 ± 50 nodes with Gaussian noise, where the plan says 341.
    assert few.nodes == pytest.approx(release.estimates.tree.size, rel=0.65)
    whole = [0, 0, 4, 4]
    assert few.stderr(whole)[0] == pytest.approx(noise_alone(release, whole)[0], rel=0.3)


# --- rows that a plan is for ------------------------------------------------------------------------------------


def test_the_usual_difference_of_poisson_numbers_is_known():
    special = pytest.importorskip("scipy.special", reason="scipy is not installed")
    mean = np.geomspace(1e-4, 1e5, 300)
    exact = mean * (special.ive(0, mean) + special.ive(1, mean))
    np.testing.assert_allclose(rehearsal._typical_difference(mean), exact, rtol=0.02)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_rehearsal_sees_the_halves_that_even_rows_would_show(axes, monkeypatch):
    """Counts of a grid, their halves compared run by run: what the gate would say of such rows, without its noise."""
    from veilmap.kernels.roughness import sum_contrasts
    from veilmap.structures import CELLS_PER_RUN

    monkeypatch.setattr(rehearsal, "TYPICAL_ROUGHNESS", 0.0)
    domain, side, rows, scales = vm.Domain({f"a{k}": (0, 1) for k in range(axes)}), 16, 30_000, 3
    seen, rng = np.zeros(scales, np.int64), np.random.default_rng(3)
    for _ in range(200):
        sum_contrasts(rng.poisson(rows / side**axes, side**axes), np.array([side]), axes, CELLS_PER_RUN, seen)
    gate = rehearsal.Rehearsal(domain, LaplaceNoise(1), rows)
    said = gate.roughness(np.array([3]), scales, Fraction(1))
    np.testing.assert_allclose(said, seen / 200, rtol=0.1)
    assert gate.roughness(np.array([-1]), scales, Fraction(1)).tolist() == [0] * scales
    monkeypatch.setattr(rehearsal, "TYPICAL_ROUGHNESS", 0.25)
    assert (gate.roughness(np.array([3]), scales, Fraction(1)) >= 0.25 * axes * rows - 1).all()


def boxes_of(side: float, n: int) -> np.ndarray:
    low = np.random.default_rng(4).uniform(0, 4 * (1 - side), (n, 2))
    return np.hstack([low, low + 4 * side])


def errors_of(points: np.ndarray, method: str, epsilon: float, side: float) -> np.ndarray:
    """What three releases say of random boxes, less the truth."""
    boxes = boxes_of(side, 300)
    truth = [np.sum(((points >= box[:2]) & (points < box[2:])).all(axis=1)) for box in boxes]
    with fixed_entropy(7):
        found = [vm.release(points, SQUARE, epsilon, method).count(boxes).estimate for _ in range(3)]
    return np.concatenate(found) - np.tile(truth, 3)


@pytest.mark.parametrize("side", [0.1, 0.02])
@pytest.mark.parametrize("method", ["best", "adaptive-grid", "quad-opt", "kd-hybrid"])
def test_a_plan_predicts_the_error_of_even_rows(method, side, monkeypatch):
    points = np.random.default_rng(5).uniform(0, 4, (40_000, 2))
    wrong = float(np.sqrt(np.mean(errors_of(points, method, 1.0, side) ** 2)))
    monkeypatch.setattr(rehearsal, "TYPICAL_ROUGHNESS", 0.0)
    (even,) = plan(SQUARE, 1, method, rows=40_000).predictions([side])
    assert even.stderr == pytest.approx(wrong, rel=0.35)
    monkeypatch.undo()
    (usual,) = plan(SQUARE, 1, method, rows=40_000).predictions([side])
    assert even.stderr <= usual.stderr < 3 * even.stderr


def test_a_plan_of_best_is_for_usual_rows_and_not_for_even_ones(monkeypatch):
    """Near miss: for even rows `best` would choose cells that are far too large for towns and the land between."""
    rng = np.random.default_rng(8)
    towns, width = rng.uniform(0.3, 3.7, (60, 2)), np.exp(rng.uniform(np.log(0.02), np.log(0.4), 60))
    town = rng.integers(0, 60, 100_000)
    points = np.clip(towns[town] + width[town, None] * rng.normal(size=(100_000, 2)), 0, 4)
    wrong = float(np.sqrt(np.mean(errors_of(points, "best", 0.1, 0.1) ** 2)))
    (usual,) = plan(SQUARE, 0.1, "best", rows=100_000).predictions([0.1])
    assert 0.5 < wrong / usual.stderr < 2
    monkeypatch.setattr(rehearsal, "TYPICAL_ROUGHNESS", 0.0)
    (even,) = plan(SQUARE, 0.1, "best", rows=100_000).predictions([0.1])
    assert wrong / even.stderr > 2


def test_pruned_trees_are_planned_with_the_rows_they_would_have():
    method = replace(METHODS["kd-standard"], structure=vm.KdTree(height=4), prune_below=100.0)
    whole = plan(SQUARE, 1, replace(method, prune_below=None), rows=10_000)
    assert plan(SQUARE, 1, method, rows=10**6).nodes == whole.nodes
    assert 1 < plan(SQUARE, 1, method, rows=10_000).nodes < whole.nodes
    assert plan(SQUARE, 1, method).nodes == whole.nodes  # nothing is known of the rows


@pytest.mark.parametrize("method", list(METHODS))
def test_what_a_plan_expects_adds_up(method):
    made = plan(SQUARE, 1, method, rows=10_000)
    assert made.count([0, 0, 4, 4]).estimate[0] == pytest.approx(10_000)
    assert made.count([0, 0, 2, 4]).estimate[0] == pytest.approx(5000, rel=0.05)
    leaf = made._answerer.nodes.tree.is_leaf
    assert (made._answerer.nodes.unevenness[~leaf] == 0).all()


# --- which epsilon ----------------------------------------------------------------------------------------------


def test_round_epsilons_are_all_of_two_digits():
    assert (ROUND_EPSILONS[0], ROUND_EPSILONS[-1]) == (Fraction(1, 10**6), 100)
    assert list(ROUND_EPSILONS) == sorted(set(ROUND_EPSILONS))
    assert all(float(f"{float(e):.1e}") == float(e) for e in ROUND_EPSILONS)
    assert max(b / a for a, b in pairwise(ROUND_EPSILONS)) == Fraction(11, 10)


@pytest.mark.parametrize("method", ["best", "quad-opt", "uniform-grid"])
@pytest.mark.parametrize("within", [30, 200, 3000])
def test_the_smallest_epsilon_is_enough_and_the_next_smaller_is_not(method, within):
    found = plan_within(SQUARE, within, 0.1, method, rows=100_000)
    assert found.predictions([0.1])[0].margin <= within
    smaller = ROUND_EPSILONS[ROUND_EPSILONS.index(found.epsilon) - 1]
    assert plan(SQUARE, smaller, method, rows=100_000).predictions([0.1])[0].margin > within


def test_the_smallest_epsilon_is_found_though_margins_rise_and_fall():
    margins = np.array([plan(SQUARE, e, rows=1000).predictions([0.1])[0].margin for e in ROUND_EPSILONS])
    assert (np.diff(margins) > 0).any()
    for within in np.geomspace(margins.min(), margins[0], 8):
        first = int(np.argmax(margins <= within))
        assert plan_within(SQUARE, within, 0.1, rows=1000).epsilon == ROUND_EPSILONS[first]
    with pytest.raises(BadInput, match="No epsilon is enough") as refusal:
        plan_within(SQUARE, 0.99 * margins.min(), 0.1, rows=1000)
    nearest = float(ROUND_EPSILONS[int(np.argmin(margins))])
    assert f"Of those tried, {nearest:g} comes closest, with ±{margins.min():.3g}." in str(refusal.value)


@pytest.mark.parametrize(
    ("rows", "within", "options", "epsilon"),
    [(1000, 2.672, {}, 12), (10_000, 86.9, {"max_rows_per_unit": 3}, Fraction("0.062"))],
    ids=str,
)
def test_epsilons_that_halving_would_miss(rows, within, options, epsilon):
    def is_enough(e):
        return plan(SQUARE, e, rows=rows, **options).predictions([0.1])[0].margin <= within

    assert plan_within(SQUARE, within, 0.1, rows=rows, **options).epsilon == epsilon
    assert bisect_left(ROUND_EPSILONS, True, key=is_enough) > ROUND_EPSILONS.index(epsilon)


def test_few_epsilons_of_large_trees_are_tried(monkeypatch):
    tried = []
    monkeypatch.setattr(planning, "plan", lambda *given, **more: tried.append(given) or plan(*given, **more))
    found = plan_within(SQUARE, 40, 0.1, "quad-opt", height=9)
    assert len(tried) < 20
    smaller = ROUND_EPSILONS[ROUND_EPSILONS.index(found.epsilon) - 1]
    assert plan(SQUARE, smaller, "quad-opt", height=9).predictions([0.1])[0].margin > 40


def test_options_go_through_to_the_plan():
    one = plan_within(SQUARE, 50, 0.2, "quad-opt", height=5)
    many = plan_within(SQUARE, 50, 0.2, "quad-opt", height=5, max_rows_per_unit=4)
    assert many.epsilon / one.epsilon == pytest.approx(4, rel=0.05)
    assert (one.method.structure.height, one.rows) == (5, None)
    made = Method(structure=vm.Quadtree(5))
    raw = plan_within(SQUARE, 50, 0.2, "quad-opt", height=5, estimate="noisy-counts")
    assert raw.epsilon > 1.1 * one.epsilon
    assert plan_within(SQUARE, 50, 0.2, made).epsilon == one.epsilon


def test_bounds_that_are_too_wide_or_too_narrow():
    assert plan_within(SQUARE, 10**9, 0.1, "best", rows=1000).epsilon == Fraction(1, 10**6)
    sentence = (
        r"No epsilon is enough for ±2 on boxes of 10 % of each axis\. Of those tried, \d+ comes closest, with ±\d"
    )
    with pytest.raises(BadInput, match=sentence):
        plan_within(SQUARE, 2, 0.1, "quad-opt", height=3, rows=10**6)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"within": 0}, "within must be a number of rows above 0, got 0"),
        ({"within": float("nan")}, "got nan"),
        ({"within": float("inf")}, "got inf"),
        ({"within": "5"}, "got '5'"),
        ({"within": True}, "got True"),
        ({"side": 0.0}, r"side must be a fraction of each axis, above 0 and up to 1, got 0\.0"),
        ({"side": 1.5}, r"got 1\.5"),
        ({"side": None}, "got None"),
        ({"method": "bets"}, "Did you mean 'best'"),
        ({"rows": None}, "Give the expected number, or a height"),
        ({"delta": 1e-6}, r"is pure\. Leave delta out"),
    ],
    ids=str,
)
def test_bad_bounds_are_refused(given, sentence):
    with pytest.raises(BadInput, match=sentence):
        plan_within(SQUARE, **{"within": 100, "side": 0.1, "method": "best", "rows": 1000, **given})


DOMAIN = "x=0:4,y=0:4"


@pytest.fixture
def run(run, monkeypatch):
    """``veilmap plan``: its status, output and errors."""
    monkeypatch.setenv("COLUMNS", "200")
    return partial(run, "plan", "--domain", DOMAIN)


def test_the_command_finds_an_epsilon(run):
    words = ("--within", "100", "--side", "0.2", "--rows", "1e5", "--method", "best")
    status, out, err = run(*words)
    assert (status, err) == (0, "")
    found = plan_within(SQUARE, 100, 0.2, "best", rows=100_000)
    enough = f"epsilon {float(found.epsilon):g} is enough for an error of ± 100 rows in boxes of 20 % of each axis."
    assert out.startswith(enough)
    assert "20 % of each axis  " in out
    assert "for 100,000 rows all over the domain with a typical unevenness." in out
    record = json.loads(run(*words, "--format", "json")[1])
    assert record["epsilon"] == float(found.epsilon)
    margins = {p["box"]: p["margin_95"] for p in record["predictions"]}
    assert margins["20 % of each axis"] == pytest.approx(found.predictions([0.2])[0].margin)
    assert run(*words, "--format", "csv")[1].startswith("box,stderr,margin_95\n50 % of each axis,")
    assert "(the smallest allowed) is enough" in run("--within", "1e9", *words[2:])[1]


def test_the_command_says_what_its_figures_cover(run):
    assert (
        "These errors are the noise that privacy costs. Leaves that"
        in run("--epsilon", "1", "--height", "3", "--method", "quad-opt")[1]
    )
    assert "adapts to the data" in run("--epsilon", "1", "--height", "3", "--method", "kd-standard")[1]
    out = run("--epsilon", "1", "--height", "3", "--method", "kd-standard", "--rows", "1000")[1]
    assert "for 1,000 rows all over the domain" in out
    assert "adapts to the data" not in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "Give either --epsilon, or both --within and --side to find an epsilon."),
        (("--within", "3"), "Give either"),
        (("--side", "0.1"), "Give either"),
        (("--epsilon", "1", "--side", "0.1"), "Give either"),
        (("--epsilon", "1", "--within", "3", "--side", "0.1"), "Give either"),
        (("--within", "0", "--side", "0.1"), "within must be a number of rows above 0, got 0.0."),
        (("--within", "nan", "--side", "0.1"), "got nan."),
        (("--within", "5", "--side", "2"), "up to 1, got 2.0."),
        (("--within", "five", "--side", "2"), "Invalid value for '--within'"),
        (("--epsilon", "1", "--rows", "2.5"), "whole number from 0 to 1e+12, got 2.5."),
        (("--epsilon", "1", "--rows", "inf"), "got inf."),
        (("--epsilon", "1", "--rows", "-1"), "got -1."),
        (("--within", "2", "--side", "0.1", "--height", "3", "--rows", "1e6"), "No epsilon is enough for ±2"),
    ],
)
def test_the_command_refuses_with_a_sentence(run, words, sentence):
    status, out, err = run("--method", "quad-opt", *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("veilmap: ")
    assert sentence in err


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"noise": "discrete-gaussian"}, "Give a delta"),
        ({"delta": 1e-6}, r"is pure\. Leave delta out"),
        ({"sample": 0.1}, "quad-opt has no option sample"),
        ({"max_rows_per_unit": 0}, "from 1 to 1000000, got 0"),
        ({"max_rows_per_unit": -2}, "from 1 to 1000000, got -2"),
        ({"max_rows_per_unit": 0.5}, r"from 1 to 1000000, got 0\.5"),
        ({"method": "privtree"}, "privtree has no option height"),
    ],
    ids=str,
)
def test_a_plan_refuses_what_a_release_would(given, sentence):
    with pytest.raises(BadInput, match=sentence):
        plan(SQUARE, **{"epsilon": 1, "height": 3, "method": "quad-opt", **given})


def test_a_plan_that_cannot_fit_is_refused_with_its_size():
    with pytest.raises(TooLarge, match=r"height 17 over 2 axes has 2\.29e\+10 nodes and would need .* GiB"):
        plan(SQUARE, 1, "quad-opt", height=17)


@pytest.mark.parametrize("prune", [None, 50.0])
def test_a_map_shows_points_where_they_are_and_nothing_where_they_are_not(prune):
    points = RNG.uniform([0, 0], [1, 1], (100_000, 2))
    with fixed_entropy(8):  # a large empty box stands out from its noise in one release of some hundreds
        release = vm.release(points, SQUARE, epsilon=1, method="quad-opt", height=6, prune=prune)
    image = density_image(release).density
    assert image.shape == (64, 64)
    corner, rest = image[:16, :16], image.copy()
    rest[:16, :16] = np.nan
    assert np.nanmean(corner) == pytest.approx(100_000, rel=0.02)  # points per unit area
    assert np.isnan(rest).mean() > 0.99


def test_rows_of_the_image_are_the_second_axis():
    points = RNG.uniform([0, 2], [1, 3], (50_000, 2))
    image = density_image(vm.release(points, SQUARE, epsilon=5, method="quad-opt", height=2)).density
    assert np.argwhere(image > 10_000).tolist() == [[2, 0]]

"""Predictions before the budget is spent, and maps after."""

import numpy as np
import pytest

import veilmap as vm
from veilmap.answer import reach
from veilmap.errors import BadInput, TooLarge
from veilmap.method import METHODS
from veilmap.plan import SIDES, plan
from veilmap.plot import density_image, draw_map

SQUARE = vm.Domain({"x": (0, 4), "y": (0, 4)})
RNG = np.random.default_rng(2)


QUADTREES = [name for name in METHODS if name.startswith("quad-")]


@pytest.mark.parametrize("method", QUADTREES)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_plan_predicts_the_standard_error_of_every_box(method, axes):
    domain = vm.Domain({f"a{k}": (0, 1) for k in range(axes)})
    boxes = np.sort(RNG.random((20, 2, axes)), axis=1).reshape(20, -1)
    release = vm.release(RNG.random((500, axes)), domain, epsilon=0.7, method=method, height=3)
    predicted = plan(domain, 0.7, method, height=3).stderr(boxes)
    np.testing.assert_allclose(predicted, release.count(boxes).stderr, rtol=1e-12)


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
    np.testing.assert_allclose(made.stderr(everywhere), release.count(everywhere).stderr, rtol=1e-12 if whole else 0.2)


def test_a_plan_without_a_height_takes_a_guess_of_the_rows():
    release = vm.release(RNG.random((50_000, 2)) * 4, SQUARE, epsilon=1)
    made = plan(SQUARE, 1, rows=50_000)
    assert made.height == release.height
    assert made.nodes == release.estimates.tree.size
    box = [0.1, 0.2, 3.1, 2.2]
    assert made.stderr(box)[0] == pytest.approx(release.count(box).stderr[0], rel=1e-12)
    with pytest.raises(BadInput, match="give a guess of it, or a height if the method has one"):
        plan(SQUARE, 1)
    with pytest.raises(BadInput, match=r"whole number from 0 to .*, got -5"):
        plan(SQUARE, 1, rows=-5)


def test_predictions_are_for_boxes_of_several_sizes():
    predictions = plan(SQUARE, 1, height=6).predictions()
    assert [p.side for p in predictions] == list(SIDES)
    assert [p.margin for p in predictions] == reach(np.array([p.stderr for p in predictions]), 0.95).tolist()
    half = plan(SQUARE, "0.5", height=6).predictions()
    assert [h.stderr / p.stderr for h, p in zip(half, predictions, strict=True)] == pytest.approx([2] * 5, rel=0.02)


@pytest.mark.parametrize("method", ["uniform-grid", "adaptive-grid", "privtree"])
@pytest.mark.parametrize("noise", [{}, {"noise": "discrete-gaussian", "delta": 1e-6}], ids=["laplace", "gaussian"])
def test_a_plan_of_a_tree_of_unknown_size_takes_a_guess_of_the_rows(method, noise):
    with pytest.raises(BadInput, match="give a guess of it, or a height if the method has one"):
        plan(SQUARE, 1, method, **noise)
    few, many = (plan(SQUARE, 1, method, rows=rows, **noise) for rows in (10**4, 10**6))
    assert few.nodes < many.nodes
    release = vm.release(RNG.uniform(0, 4, (10**4, 2)), SQUARE, 1, method, **noise)
    assert few.nodes == pytest.approx(release.estimates.tree.size, rel=0.5)
    whole = [0, 0, 4, 4]
    assert few.stderr(whole)[0] == pytest.approx(release.count(whole).stderr[0], rel=0.3)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"noise": "discrete-gaussian"}, "give a delta"),
        ({"delta": 1e-6}, "is pure: leave delta out"),
        ({"sample": 0.1}, "quad-opt has no sample to set"),
        ({"max_rows_per_unit": 0}, "1 or more rows, got max_rows_per_unit=0"),
        ({"max_rows_per_unit": -2}, "1 or more rows, got max_rows_per_unit=-2"),
        ({"max_rows_per_unit": 0.5}, r"1 or more rows, got max_rows_per_unit=0\.5"),
        ({"method": "privtree"}, "privtree has no height to set"),
    ],
    ids=str,
)
def test_a_plan_refuses_what_a_release_would(given, sentence):
    with pytest.raises(BadInput, match=sentence):
        plan(SQUARE, **{"epsilon": 1, "height": 3, **given})


def test_a_plan_that_cannot_fit_is_refused_with_its_size():
    with pytest.raises(TooLarge, match=r"height 17 over 2 axes has 2\.29e\+10 nodes and would take .* GiB"):
        plan(SQUARE, 1, height=17)


@pytest.mark.parametrize("prune", [None, 50.0])
def test_a_map_shows_points_where_they_are_and_nothing_where_they_are_not(prune):
    release = vm.release(RNG.uniform([0, 0], [1, 1], (100_000, 2)), SQUARE, epsilon=1, height=6, prune=prune)
    image = density_image(release)
    assert image.shape == (64, 64)
    corner, rest = image[:16, :16], image.copy()
    rest[:16, :16] = np.nan
    assert np.nanmean(corner) == pytest.approx(100_000, rel=0.02)  # points per unit area
    assert np.isnan(rest).mean() > 0.99


def test_rows_of_the_image_are_the_second_axis():
    points = RNG.uniform([0, 2], [1, 3], (50_000, 2))
    image = density_image(vm.release(points, SQUARE, epsilon=5, height=2))
    assert np.argwhere(image > 10_000).tolist() == [[2, 0]]


@pytest.mark.parametrize("rows", [0, 20_000])
def test_a_map_is_drawn_even_of_nothing(rows, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    release = vm.release(RNG.uniform(0, 4, (rows, 2)), SQUARE, epsilon=1, height=4)
    draw_map(release, tmp_path / "map.png", "A test")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_a_map_needs_two_axes(tmp_path):
    release = vm.release(RNG.random((10, 1)), vm.Domain({"x": (0, 1)}), epsilon=1, height=1)
    with pytest.raises(BadInput, match="two axes, this one has 1"):
        draw_map(release, tmp_path / "map.png", "A test")

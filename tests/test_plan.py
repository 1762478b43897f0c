"""Predictions before the budget is spent, and maps after."""

import numpy as np
import pytest

import veilmap as vm
from veilmap.answer import multiplier
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


@pytest.mark.parametrize("method", [name for name in METHODS if name not in QUADTREES])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_plan_of_a_tree_that_follows_the_data_has_its_size_and_the_error_of_the_whole(method, axes):
    domain = vm.Domain({f"a{k}": (0, 1) for k in range(axes)})
    release = vm.release(RNG.random((500, axes)) ** 3, domain, epsilon=0.7, method=method, height=3)
    made = plan(domain, 0.7, method, height=3)
    assert made.nodes == release.estimates.tree.size == 2 ** (3 * axes + 1) - 1
    assert np.array_equal(made._answerer.nodes.noise_variance, release.estimates.noise_variance)
    everywhere = [0] * axes + [1] * axes
    np.testing.assert_allclose(made.stderr(everywhere), release.count(everywhere).stderr, rtol=1e-12)


def test_a_plan_without_a_height_takes_a_guess_of_the_rows():
    release = vm.release(RNG.random((50_000, 2)) * 4, SQUARE, epsilon=1)
    made = plan(SQUARE, 1, rows=50_000)
    assert made.height == release.height
    assert made.nodes == release.estimates.tree.size
    box = [0.1, 0.2, 3.1, 2.2]
    assert made.stderr(box)[0] == pytest.approx(release.count(box).stderr[0], rel=1e-12)
    with pytest.raises(BadInput, match="give a height, or a guess of the rows"):
        plan(SQUARE, 1)
    with pytest.raises(BadInput, match="0 or more, got -5"):
        plan(SQUARE, 1, rows=-5)


def test_predictions_are_for_boxes_of_several_sizes():
    predictions = plan(SQUARE, 1, height=6).predictions()
    assert [p.side for p in predictions] == list(SIDES)
    assert all(p.margin == pytest.approx(multiplier(0.95) * p.stderr) for p in predictions)
    half = plan(SQUARE, "0.5", height=6).predictions()
    assert [h.stderr / p.stderr for h, p in zip(half, predictions, strict=True)] == pytest.approx([2] * 5, rel=0.02)


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

"""The map of the default's releases: what it shows is there, and what is there it shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import veilmap as vm
from veilmap.kernels.rasterize import rasterize_boxes
from veilmap.plot import draw
from veilmap.plot.density import MAX_FALSE_DISCOVERIES, density_image, significant
from veilmap.testing import fixed_entropy

SQUARE = vm.Domain({"x": (0, 8), "y": (0, 8)})


def coverage(image: np.ndarray, where: np.ndarray) -> float:
    return float(np.isfinite(image)[where].mean())


def test_a_map_of_best_shows_the_town_and_the_thin_land_around_it_but_not_the_sea() -> None:
    rng = np.random.default_rng(1)
    town, land = rng.normal([2, 2], 0.2, (20_000, 2)), rng.uniform([0, 0], [4, 4], (8_000, 2))
    with fixed_entropy(2):
        image = density_image(vm.release(np.vstack([town, land]), SQUARE, 1)).density
    x, y = np.meshgrid(*[(np.arange(len(image)) + 0.5) * 8 / len(image)] * 2)
    in_town, on_land = np.hypot(x - 2, y - 2) < 0.4, (x < 3.9) & (y < 3.9)
    assert coverage(image, in_town) > 0.95
    assert coverage(image, on_land) > 0.9  # cells that are too thin to be sure of are shown together
    assert coverage(image, (x > 4.5) | (y > 4.5)) < 0.1
    assert np.nanmedian(image[on_land & ~in_town]) == pytest.approx(500, rel=0.3)  # rows a unit of area
    assert np.nanmedian(image[in_town]) > 10_000


@pytest.mark.parametrize(("empty", "full"), [(20_000, 0), (10_000, 10_000), (0, 5000), (500, 20)])
def test_few_of_the_cells_that_are_shown_are_empty(empty: int, full: int) -> None:
    rng = np.random.default_rng(3)
    noise = rng.laplace(0, 1 / np.sqrt(2), empty + full)  # of variance 1
    shown = significant(noise + np.repeat([0.0, 6.0], [empty, full]))
    assert shown[:empty].sum() <= 5 + 2 * MAX_FALSE_DISCOVERIES * shown.sum()
    assert shown[empty:].mean() > 0.9 if full > 1000 else True


def test_cells_three_errors_above_nothing_would_be_too_many() -> None:
    """The plain rule, on the same noise, shows a hundred empty cells."""
    noise = np.random.default_rng(3).laplace(0, 1 / np.sqrt(2), 20_000)
    assert (noise > 3).sum() > 100
    assert significant(noise).sum() <= 5


def test_numbers_that_are_not_known_are_not_shown() -> None:
    assert not significant(np.array([np.nan, -np.inf, 0.0])).any()
    assert significant(np.array([np.nan, np.inf])).tolist() == [False, True]
    assert significant(np.empty(0)).shape == (0,)


# --- what is smaller than a pixel -------------------------------------------------------------------------------

METHODS = ["best", "quad-opt", "kd-standard", "hilbert-r", "adaptive-grid", "privtree"]


def rows_in(image: np.ndarray) -> float:
    return float(np.nansum(image)) * 64 / image.size


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("most", [(2048, 2048), (500, 1100), (1, 3)], ids=str)
def test_a_map_has_every_row_of_spots_smaller_than_its_pixels(method: str, most: tuple[int, int]) -> None:
    rng = np.random.default_rng(4)
    spots = rng.uniform(0, 8, (20, 2))
    with fixed_entropy(5):
        image = density_image(vm.release(spots[np.arange(100_000) % 20], SQUARE, 1, method), *most).density
    assert all(n <= limit for n, limit in zip(image.shape, most, strict=True))
    assert rows_in(image) == pytest.approx(100_000, rel=0.01)
    tall, wide = image.shape
    if most != (1, 3) and method not in ("kd-standard", "hilbert-r"):  # whose nodes are less narrow
        for x, y in spots:  # in their pixels, or next to them
            row, column = int(y / 8 * tall), int(x / 8 * wide)
            near = image[max(row - 2, 0) : row + 3, max(column - 2, 0) : column + 3]
            assert rows_in(near) * near.size / image.size == pytest.approx(5000, rel=0.05)


def test_a_map_of_tied_rows_is_not_blank(tmp_path: Path) -> None:
    with fixed_entropy(6):
        release = vm.release(np.full((3000, 2), 3.3), SQUARE, 1)
    assert rows_in(density_image(release).density) == pytest.approx(3000, rel=0.02)
    colours = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")
    draw(release, tmp_path / "map.png")
    picture = colours.imread(tmp_path / "map.png")[..., :3]
    there, room = picture[300:-300, 300:-500], [0xF6 / 255, 0xF5 / 255, 0xF0 / 255]  # away from axes and words
    assert 1 <= np.any(np.abs(there - room) > 0.2, axis=2).sum() <= 20


def boxes_of(rng: np.random.Generator, side: float, cuts: int) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint boxes: a square that is cut at random, many times near one place."""
    boxes = [((0.0, 0.0), (side, side))]
    for k in range(cuts):
        lo, hi = boxes.pop(rng.integers(len(boxes)))
        at = lo[k % 2] + (hi[k % 2] - lo[k % 2]) * rng.choice([rng.random(), 1e-4])
        left, right = list(hi), list(lo)
        left[k % 2] = right[k % 2] = at
        boxes += [(lo, tuple(left)), (tuple(right), hi)]
    lo, hi = (np.array(part) for part in zip(*boxes, strict=True))
    return lo, hi


def overlaps(lo: np.ndarray, hi: np.ndarray, side: int) -> np.ndarray:
    """(boxes, rows, columns): the part of each pixel that a box fills."""
    at = np.arange(side)
    x, y = (np.clip(np.minimum(hi[:, [a]], at + 1) - np.maximum(lo[:, [a]], at), 0, 1) for a in (0, 1))
    return y[:, :, None] * x[:, None, :]


@pytest.mark.parametrize("seed", range(20))
def test_an_image_holds_what_its_boxes_hold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lo, hi = boxes_of(rng, 8.0, 60)
    some = rng.random(len(lo)) < 0.5
    density = rng.uniform(1, 100, len(lo))
    image, whole = np.full((2, 8, 8), np.nan)
    rasterize_boxes(lo[some], hi[some], density[some], image)
    filled = overlaps(lo, hi, 8)
    held = np.tensordot(density[some], filled[some], 1)
    assert np.nansum(image) == pytest.approx(held.sum(), rel=1e-9)
    mostly = filled[some].sum(axis=0) >= 0.5
    assert np.isfinite(image[mostly]).all()
    assert (image[mostly] >= held[mostly] * (1 - 1e-9)).all()
    assert np.isnan(image[held == 0]).all()  # nothing goes where nothing is
    rasterize_boxes(lo, hi, density, whole)
    np.testing.assert_allclose(whole, np.tensordot(density, filled, 1), rtol=1e-9)


def test_an_image_has_no_faint_edges() -> None:
    image = np.full((8, 8), np.nan)
    rasterize_boxes(np.array([[1.9, 2.6]]), np.array([[5.2, 6.0]]), np.array([3.0]), image)
    assert np.argwhere(np.isfinite(image)).min(axis=0).tolist() == [3, 2]
    assert np.argwhere(np.isfinite(image)).max(axis=0).tolist() == [5, 4]
    assert np.nanmin(image) == pytest.approx(3.0)
    assert np.nansum(image) == pytest.approx(3 * 3.3 * 3.4)

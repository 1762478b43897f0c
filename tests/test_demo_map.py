"""The map of the default's releases: what it shows is there, and what is there it shows."""

from __future__ import annotations

import numpy as np
import pytest

import veilmap as vm
from veilmap.plot import WRONG, _well_above, density_image
from veilmap.testing import fixed_entropy

SQUARE = vm.Domain({"x": (0, 8), "y": (0, 8)})


def coverage(image: np.ndarray, where: np.ndarray) -> float:
    return float(np.isfinite(image)[where].mean())


def test_a_map_of_best_shows_the_town_and_the_thin_land_around_it_but_not_the_sea() -> None:
    rng = np.random.default_rng(1)
    town, land = rng.normal([2, 2], 0.2, (20_000, 2)), rng.uniform([0, 0], [4, 4], (8_000, 2))
    with fixed_entropy(2):
        image = density_image(vm.release(np.vstack([town, land]), SQUARE, 1))
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
    shown = _well_above(noise + np.repeat([0.0, 6.0], [empty, full]))
    assert shown[:empty].sum() <= 5 + 2 * WRONG * shown.sum()
    assert shown[empty:].mean() > 0.9 if full > 1000 else True


def test_cells_three_errors_above_nothing_would_be_too_many() -> None:
    """The plain rule, on the same noise, shows a hundred empty cells."""
    noise = np.random.default_rng(3).laplace(0, 1 / np.sqrt(2), 20_000)
    assert (noise > 3).sum() > 100
    assert _well_above(noise).sum() <= 5


def test_numbers_that_are_not_known_are_not_shown() -> None:
    assert not _well_above(np.array([np.nan, -np.inf, 0.0])).any()
    assert _well_above(np.array([np.nan, np.inf])).tolist() == [False, True]
    assert _well_above(np.empty(0)).shape == (0,)

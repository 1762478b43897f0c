"""The base map that comes along: small, whole, and lines where they should be."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from veilmap.geography import basemap

WORLD = (-180, -90, 180, 90)
shapely = pytest.importorskip("shapely", reason="shapely is not installed")


@pytest.fixture(scope="module")
def land(layers: dict[str, Any]) -> Any:
    return shapely.make_valid(layers["land"])


@pytest.fixture(scope="module")
def layers() -> dict[str, Any]:
    features = json.loads(basemap.geojson())["features"]
    return {f["properties"]["layer"]: shapely.from_geojson(json.dumps(f["geometry"])) for f in features}


def test_the_base_map_is_small() -> None:
    assert basemap.LINES_FILE.stat().st_size < 400_000


def test_polygons_of_land_are_valid_and_as_large_as_the_land_is(layers: dict[str, Any], land: Any) -> None:
    assert set(layers) == {"land", *basemap.LAYERS}
    assert all(shape.bounds[0] >= -180 and shape.bounds[2] <= 180 for shape in layers.values())
    assert sum(map(shapely.area, layers["land"].geoms)) == pytest.approx(shapely.area(land), rel=1e-4)
    # in an equal-area projection: the sine of the latitude
    even = shapely.transform(shapely.segmentize(land, 1.0), lambda at: np.c_[at[:, 0], np.sin(np.radians(at[:, 1]))])
    assert shapely.area(even) / 720 == pytest.approx(0.291, abs=0.006)


@pytest.mark.parametrize(
    ("place", "dry"),
    [
        ((2.35, 48.86), True),  # Paris
        ((-104.99, 39.74), True),  # Denver
        ((0.0, -89.5), True),  # near the South Pole
        ((179.0, 66.5), True),  # Chukotka, either side of the date line
        ((-179.0, 66.5), True),
        ((-30.0, 40.0), False),  # the Atlantic
        ((0.0, 89.5), False),
        ((51.0, 42.0), False),  # the Caspian Sea, a hole
    ],
)
def test_land_is_land_and_sea_is_sea(land: Any, place: tuple[float, float], dry: bool) -> None:
    assert shapely.intersects_xy(land, *place) == dry


def test_no_line_crosses_the_map() -> None:
    for found in basemap.lines(WORLD).values():
        assert found
        for line in found:
            assert len(line) >= 2
            assert np.hypot(*np.diff(line, axis=0).T).max() < 30


def test_borders_and_states_are_where_they_should_be() -> None:
    montana = basemap.lines((-112, 48.5, -106, 49.5))
    assert np.allclose(np.vstack(montana["borders"])[:, 1], 49.0, atol=0.02)
    corners = basemap.lines((-109.2, 36.9, -108.9, 37.1))["states"]  # Utah, Colorado, Arizona and New Mexico meet
    assert min(np.hypot(*(line - [-109.045, 37.0]).T).min() for line in corners) < 0.02


@pytest.mark.parametrize("box", [(-125, 31, -103, 49), (5, 44, 17, 48), (170, -50, 180, -30)])
def test_a_box_has_all_that_crosses_it_and_little_else(box: tuple[float, ...]) -> None:
    there = shapely.box(*box)
    for name, every in basemap.lines(WORLD).items():
        some = basemap.lines(box)[name]
        whole, part = shapely.MultiLineString(every), shapely.MultiLineString(some)
        there_whole, there_part = (shapely.length(shapely.intersection(x, there)) for x in (whole, part))
        assert there_part == pytest.approx(there_whole)
        assert all(shapely.intersects(there, shapely.envelope(shapely.LineString(line))) for line in some)


def test_a_box_at_sea_has_no_lines() -> None:
    assert not any(basemap.lines((-35, 30, -32, 33)).values())

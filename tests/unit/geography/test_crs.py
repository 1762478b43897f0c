"""What axes are on the ground: degrees, lengths or neither, and areas there."""

from __future__ import annotations

import math

import numpy as np
import pytest

import veilmap as vm
from veilmap.errors import BadInput
from veilmap.geography.crs import EARTH_RADIUS_KM, Ground, crs_of

EUROPE = {"lon": (-11, 30), "lat": (36, 71)}


def ground(axes: dict[str, tuple[float, float]], crs: str | None = None) -> Ground:
    return Ground(vm.Domain(axes, crs=crs))


@pytest.mark.parametrize(
    ("axes", "crs", "lon_lat"),
    [
        (EUROPE, None, True),
        (EUROPE, "OGC:CRS84", True),
        ({"x": (-11, 30), "y": (36, 71)}, "EPSG:4326", True),
        ({"Longitude": (0, 360), "Latitude": (-90, 90)}, None, True),
        ({"x": (-11, 30), "y": (36, 71)}, None, False),
        ({"lat": (36, 71), "lon": (-11, 30)}, None, False),  # a map of these would lie on its side
        ({"lat": (36, 71), "lon": (-11, 30)}, "EPSG:4326", False),
        ({"lon": (-11, 30), "lat": (36, 100)}, None, False),
        ({"lon": (-500, 30), "lat": (36, 71)}, "EPSG:4326", False),
        ({"lon": (-11, 30)}, None, False),
        ({**EUROPE, "hour": (0, 24)}, None, True),
    ],
)
def test_axes_are_longitude_and_latitude_if_they_are_called_so_and_can_be(
    axes: dict[str, tuple[float, float]], crs: str | None, lon_lat: bool
) -> None:
    assert ground(axes, crs).lon_lat == lon_lat


def test_boxes_of_degrees_have_the_area_of_the_sphere() -> None:
    world = ground({"lon": (-180, 180), "lat": (-90, 90)})
    edges = np.linspace(-90, 90, 181)
    lo, hi = (np.stack([np.full(180, x), y], axis=1) for x, y in ((-180.0, edges[:-1]), (180.0, edges[1:])))
    areas = world.areas(lo, hi)
    assert areas.sum() == pytest.approx(4 * math.pi * EARTH_RADIUS_KM**2)
    assert areas[90] == pytest.approx(360 * 111.195**2, rel=1e-3)
    assert areas[0] < 0.01 * areas[90]
    assert world.area_unit == "km²"
    tiny = world.areas(np.array([[5.0, 60.0]]), np.array([[5.0 + 1e-9, 60.0 + 1e-9]]))
    assert tiny[0] == pytest.approx((111.195e-9) ** 2 / 2, rel=1e-3)


def test_unknown_units_stay_what_they_are() -> None:
    plain = ground({"age": (0, 100), "income": (0, 1e5)})
    assert (plain.unit, plain.kilometres, plain.length()) == (None, None, None)
    assert plain.area_unit == "unit of age × income"
    assert plain.areas(np.zeros((1, 2)), np.array([[2.0, 30.0]])).tolist() == [60.0]
    assert ground({"x": (0, 1), "y": (0, 1)}, "nobody knows it").unit is None


def test_projections_give_square_kilometres_of_the_ground() -> None:
    pytest.importorskip("pyproj", reason="pyproj is not installed")
    mercator = ground({"x": (-1.4e6, 4e6), "y": (4.1e6, 1.12e7)}, "EPSG:3857")
    assert (mercator.unit, mercator.kilometres) == ("metre", 1e-3)
    at = np.array([[1113194.9, 8399737.9]])  # 10 E, 60 N: lengths are doubled there
    assert mercator.areas(at - 500, at + 500)[0] == pytest.approx(0.25, rel=0.005)
    feet = ground({"x": (8e5, 1.2e6), "y": (1e5, 3.2e5)}, "EPSG:2263")
    assert feet.unit == "US survey foot"
    assert feet.areas(np.array([[9e5, 2e5]]), np.array([[9e5 + 5280, 2e5 + 5280]]))[0] == pytest.approx(2.59, rel=1e-3)
    length = feet.length()
    assert length is not None
    assert length == pytest.approx(0.0003048, rel=1e-3)


def test_a_coordinate_system_that_is_none_is_refused_in_a_sentence() -> None:
    pytest.importorskip("pyproj", reason="pyproj is not installed")
    with pytest.raises(BadInput, match="There is no coordinate system 'EPSG:1'"):
        crs_of("EPSG:1")

"""Counts in polygons: the areas they cut off leaves, their errors, and what is no polygon."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache

import geopandas
import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

import veilmap as vm
from tests import naive
from tests.unit.answers.test_answerer import EVERY_METHOD, ROUNDING, publish, released, uniform_points
from veilmap.answers.zones import are_zones, checked_zones
from veilmap.testing import fixed_entropy

SMALL = [("quad-opt", 3), ("best", None), ("kd-standard", 2), ("hilbert-r", 2), ("adaptive-grid", None)]
PAPER = vm.Domain({"lon": (-124.82, -103.00), "lat": (31.33, 49.00)}, crs="EPSG:4326")


def star(rng, corners, middle, reach):
    """A polygon around a place, with any number of corners at any distances."""
    turn, far = np.sort(rng.random(corners)) * 2 * np.pi, reach * (0.2 + 0.8 * rng.random(corners))
    return shapely.Polygon(np.stack([middle[0] + far * np.cos(turn), middle[1] + far * np.sin(turn)], axis=1))


def on_lines(corners):
    return np.rint(corners * 16) / 16


def any_zone(seed):
    """Stars and steps, with holes and in several parts; some corners and sides are on grid lines, some outside."""
    rng = np.random.default_rng(seed)
    shapes = []
    for _ in range(rng.integers(1, 5)):
        if rng.random() < 0.5:
            lo, hi = np.sort(rng.integers(-1, 10, (2, 2)) / 8, axis=0)
            shape = shapely.box(*lo, *hi)
        else:
            shape = star(rng, rng.integers(3, 30), rng.random(2), rng.random())
            shape = shapely.transform(shape, on_lines if rng.random() < 0.5 else np.copy).buffer(0)
        shapes.append(shape)
    whole = shapely.union_all(shapes[::2])
    whole = shapely.difference(whole, shapely.union_all(shapes[1::2]))
    parts = [part for part in shapely.get_parts(whole) if part.geom_type == "Polygon"]
    return shapely.MultiPolygon(parts) if len(parts) != 1 else parts[0]


ZONES = st.integers(0, 2**32 - 1).map(any_zone)


def boxes_of(domain, tree):
    """Of nodes, as shapely polygons in the unit square; None where they have no volume."""
    lo, hi = tree.lo / domain.side, tree.hi / domain.side
    return np.where((lo < hi).all(axis=1), shapely.box(lo[:, 0], lo[:, 1], hi[:, 0], hi[:, 1]), None)


def held(release, zone):
    """By shapely: the part of each node that a zone holds, and the middle of that, from 0 to 1 along both sides."""
    tree, side = release.estimates.tree, release.domain.side
    boxes = boxes_of(release.domain, tree)
    common = shapely.intersection(boxes, zone)
    part = np.nan_to_num(shapely.area(common) / shapely.area(boxes))
    middle = shapely.get_coordinates(shapely.centroid(common[part > 0]))
    where = np.full(tree.lo.shape, 0.5)
    where[part > 0] = (middle * side - tree.lo[part > 0]) / (tree.hi - tree.lo)[part > 0]
    return part, where


@pytest.mark.parametrize(("method", "height"), SMALL)
@given(zone=ZONES)
def test_counts_are_sums_of_areas(method, height, zone):
    release = released(method, 2, height)
    nodes = release.estimates
    part, where = held(release, zone)
    leaf, got = nodes.tree.is_leaf, release.count(zone)
    slope = np.zeros_like(where) if nodes.slope is None else nodes.slope
    expected = part * (nodes.estimate + (slope * (where - 0.5)).sum(axis=1))
    assert got.estimate == pytest.approx(expected[leaf].sum(), rel=ROUNDING, abs=ROUNDING * 1000)
    cut = leaf & (part > 1e-12) & (part < 1 - 1e-12)
    uneven = (part * (1 - part) * nodes.known_unevenness)[cut].sum()
    unchecked = replace(release, estimates=replace(nodes, borders=None))
    assert unchecked.count(zone).error_parts.uneven == pytest.approx(uneven, rel=ROUNDING, abs=ROUNDING)
    assert got.error_parts.cut == cut.sum()


@pytest.mark.parametrize("method", ["quad-opt", "kd-standard", "hilbert-r", "quad-post"])
@given(zone=ZONES)
def test_noise_is_that_of_the_dense_covariance(method, zone):
    release = released(method, 2, 2)
    tree, part = release.estimates.tree, held(release, zone)[0]
    noise = np.where(np.any(tree.lo == tree.hi, axis=1), 1e-9, release.estimates.noise_variance)
    exact = naive.covariance(tree.first_child, noise)[np.ix_(tree.is_leaf, tree.is_leaf)]
    leaves = part[tree.is_leaf]
    assert release.count(zone).error_parts.noise_variance == pytest.approx(leaves @ exact @ leaves, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("method", ["quad-baseline", "quad-geo"])
@given(zone=ZONES)
def test_counts_that_do_not_add_up_are_those_of_the_largest_nodes_inside(method, zone):
    release = released(method, 2, 3)
    nodes, (part, _) = release.estimates, held(release, zone)

    def answer(v):
        below = range(nodes.tree.first_child[v], nodes.tree.first_child[v + 1])
        if part[v] < 1e-12:
            return np.zeros(2)
        if below and not (part[v] > 1 - 1e-12 and np.isfinite(nodes.noise_variance[v])):
            return sum(answer(c) for c in below)
        return np.array([part[v] * nodes.estimate[v], part[v] ** 2 * nodes.noise_variance[v]])

    got = release.count(zone)
    assert [got.estimate[0], got.error_parts.noise_variance[0]] == pytest.approx(answer(0), rel=ROUNDING, abs=1e-6)


@EVERY_METHOD
def test_a_rectangle_is_counted_as_the_box_it_is(method):
    rng = np.random.default_rng(4)
    some = np.concatenate([rng.random((60, 4)), rng.integers(-2, 11, (60, 4)) / 8, rng.integers(0, 65, (60, 4)) / 64])
    some[::7, 1] = 0  # some begin where the domain does
    low, high = np.minimum(some[:, :2], some[:, 2:]), np.maximum(some[:, :2], some[:, 2:]) + 1 / 64
    release = released(method, 2)
    zones, boxes = release.count(shapely.box(*low.T, *high.T)), release.count(np.concatenate([low, high], axis=1))
    scale = abs(release.estimates.estimate[0])
    assert zones.estimate == pytest.approx(boxes.estimate, rel=ROUNDING, abs=ROUNDING * scale)
    assert zones.error_parts.cut == pytest.approx(boxes.error_parts.cut)
    for name in ("stderr", "low", "high"):
        assert getattr(zones, name) == pytest.approx(getattr(boxes, name), rel=1e-8, abs=1e-8 * scale)


@cache
def mosaic(seed):
    """The unit square in zones that are all but convex."""
    rng = np.random.default_rng(seed)
    cells = shapely.voronoi_polygons(shapely.MultiPoint(rng.random((40, 2))), extend_to=shapely.box(0, 0, 1, 1))
    cells = shapely.intersection(shapely.get_parts(cells), shapely.box(0, 0, 1, 1))
    hole = star(rng, 9, (0.5, 0.5), 0.4)
    return [*shapely.difference(cells, hole), hole]


@EVERY_METHOD
def test_zones_that_are_the_whole_domain_add_up_to_all(method):
    release = released(method, 2)
    if release.estimates.tree.overlapping or not release.consistent:
        return
    total = release.count([0, 0, 1, 1]).estimate[0]
    assert release.count(mosaic(1)).estimate.sum() == pytest.approx(total, rel=1e-9)
    assert release.count(shapely.box(-1, -1, 2, 2)).estimate[0] == total


def test_deep_trees_and_odd_domains_keep_their_digits():
    rng = np.random.default_rng(3)
    points = PAPER.lo + (PAPER.hi - PAPER.lo) * rng.beta(0.1, 0.1, (20_000, 2))
    with fixed_entropy(3):
        release = vm.release(points, PAPER, 50, "kd-standard", height=6)
    zone = shapely.transform(mosaic(2)[-1], lambda corners: PAPER.lo + corners * (PAPER.hi - PAPER.lo))
    rest = shapely.difference(shapely.box(*PAPER.lo, *PAPER.hi), zone)
    total = release.estimates.estimate[0]
    assert release.count([zone, rest]).estimate.sum() == pytest.approx(total, rel=1e-9)


# Kinds of questions


def test_what_lies_outside_is_empty_and_holes_are_left_out():
    release = released("quad-opt", 2)
    box, hole = shapely.box(0.1, 0.1, 0.6, 0.7), shapely.box(0.2, 0.3, 0.4, 0.5)
    with_hole = shapely.Polygon(box.exterior.coords, [hole.exterior.coords])
    far = shapely.box(5, 5, 6, 6)
    empty = [shapely.Polygon(), None, shapely.MultiPolygon()]
    asked = [box, hole, with_hole, far, shapely.MultiPolygon([hole, far]), *empty]
    all_of, inner, rest, *others = release.count(asked).estimate
    assert rest == pytest.approx(all_of - inner)
    assert others == pytest.approx([0, inner, 0, 0, 0])
    assert release.count(asked).stderr[3] == 0


def test_rings_may_turn_either_way_and_have_a_height():
    release = released("quad-opt", 2)
    corners = np.array([[0.1, 0.2], [0.8, 0.3], [0.4, 0.9]])
    one, other, tall = (shapely.Polygon(c) for c in (corners, corners[::-1], np.c_[corners, [1, 2, 3]]))
    assert len(set(release.count([one, other, tall]).estimate.round(9))) == 1


def test_new_corners_on_the_border_are_not_rounded():
    zone = shapely.Polygon([(0.25, 0), (1.25, 0.25), (0.25, 0.75)])
    release, rounded = released("quad-opt", 2), shapely.set_precision(zone, 1 / 4)
    assert release.count(rounded).estimate == release.count(zone).estimate


def test_every_way_to_give_polygons_gives_the_same():
    release, zones = released("best", 2), mosaic(1)
    expected = release.count(zones).estimate
    series = geopandas.GeoSeries(zones)
    frame = geopandas.GeoDataFrame({"name": range(len(zones)), "where": zones}, geometry="where")
    for asked in (tuple(zones), np.array(zones), series, series.to_numpy(), series.array, frame):
        assert np.array_equal(release.count(asked).estimate, expected)
    assert release.count(zones[0]).estimate == expected[0]
    assert len(release.count(series[:0]).high) == 0


def test_boxes_are_no_zones():
    for asked in ([0, 0, 1, 1], np.zeros((3, 4)), "x", None, [], [None], {}, [[0], [1]]):
        assert not are_zones(asked)


def test_answers_to_zones_are_answers():
    got = released("best", 2).count(mosaic(1), 0.9)
    again = pickle.loads(pickle.dumps(got))
    assert repr(again) == repr(got)
    assert np.array_equal(again.high, got.high)
    with pytest.raises(ValueError, match="read-only"):
        got.estimate[0] = 1


# Coordinate systems


@cache
def western():
    points = PAPER.lo + uniform_points(2) * (PAPER.hi - PAPER.lo)
    with fixed_entropy(8):
        return publish(points, PAPER, "quad-opt", 4)


def test_zones_in_other_coordinates_are_reprojected():
    square = shapely.box(-120, 35, -110, 45)
    there = geopandas.GeoSeries([square, None, shapely.Polygon()], crs="OGC:CRS84")
    expected = western().count(square).estimate[0]
    for crs in ("EPSG:4326", "EPSG:3857", "EPSG:4269"):
        assert western().count(there.to_crs(crs)).estimate == pytest.approx([expected, 0, 0], rel=1e-5)
    unsaid = geopandas.GeoSeries([square])
    assert western().count(unsaid).estimate == expected


@pytest.mark.parametrize(("names", "known"), [(("Longitude", "lat"), True), (("lat", "lon"), False), ("xy", False)])
def test_axes_called_longitude_and_latitude_are_coordinates(names, known):
    domain = vm.Domain(dict(zip(names, [(-124, -104), (32, 48)], strict=True)))
    square = geopandas.GeoSeries([shapely.box(-120, 35, -110, 45)], crs="OGC:CRS84")
    here, there = checked_zones(square, domain), checked_zones(square.to_crs("EPSG:3857"), domain)
    assert len(here.edges) == 4
    assert len(there.edges) == (4 if known else 0)
    if known:
        assert there.edges / domain.side == pytest.approx(here.edges / domain.side, abs=1e-9)


@pytest.mark.parametrize(
    ("crs", "zone", "sentence"),
    [
        ("Mars 3000", shapely.box(0, 0, 1, 1), "There is no coordinate system 'Mars 3000'"),
        ("EPSG:2193", shapely.box(0, -95, 1, 1), "Zone 0 has corners that do not exist in EPSG:2193"),
    ],
)
def test_zones_that_cannot_be_reprojected_are_refused(crs, zone, sentence):
    domain = vm.Domain({"x": (0, 1e6), "y": (0, 1e6)}, crs=crs)
    with pytest.raises(vm.BadInput, match=sentence):
        checked_zones(geopandas.GeoSeries([zone], crs="EPSG:4326"), domain)


# What is refused


def triangle(x):
    with np.errstate(all="ignore"):
        return shapely.from_wkt(f"POLYGON ((0 0, 1 1, {x} 1, 0 0))")


BOW = shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (shapely.Point(0, 0), r"zone 0 is a Point\. Leave it out"),
        ([shapely.box(0, 0, 1, 1), shapely.LineString([(0, 0), (1, 1)])], "zone 1 is a LineString"),
        (shapely.GeometryCollection([BOW]), "is a GeometryCollection"),
        ([shapely.box(0, 0, 1, 1), BOW], r"Zone 1 is not a valid polygon \(Self-intersection.*\)\. Repair it"),
        (triangle("nan"), "Zone 0 is not a valid polygon"),
        (triangle("inf"), "Zone 0 is not a valid polygon"),
        ([shapely.box(0, 0, 1, 1), "somewhere"], "Zone 1 is not a geometry but a str"),
        ([None, shapely.box(0, 0, 1, 1), 3.0], "Zone 2 is not a geometry but a float"),
    ],
)
def test_what_is_no_polygon_is_refused_with_a_sentence(asked, sentence):
    with pytest.raises(vm.BadInput, match=sentence):
        released("quad-opt", 2).count(asked)


@pytest.mark.parametrize("axes", [1, 3])
def test_polygons_need_two_axes(axes):
    with pytest.raises(vm.BadInput, match=rf"a release with two axes, but this one has {axes}\. Query boxes"):
        released("quad-opt", axes).count(shapely.box(0, 0, 1, 1))


def test_a_confidence_is_checked_for_zones_too():
    with pytest.raises(vm.BadInput, match="confidence"):
        released("quad-opt", 2).count(shapely.box(0, 0, 1, 1), 95)


@pytest.mark.parametrize("far", [1e9, 1e30, 1e300])
def test_corners_may_be_anywhere(far):
    half = shapely.Polygon([(-far, -far), (far, -far), (far, far)])
    got = released("quad-opt", 2).count([half, shapely.box(0, 0, 1, 1)]).estimate
    assert 0.4 * got[1] < got[0] < 0.6 * got[1]

"""The server of `veilmap explore`: what it answers, and what it refuses. It runs on a port of this machine."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

import veilmap as vm
from veilmap.answers.zone_files import read_zones
from veilmap.errors import BadInput, MissingExtra
from veilmap.testing import fixed_entropy

pytest.importorskip("starlette", reason="there is no starlette: pip install 'veilmap[explore]'")
uvicorn = pytest.importorskip("uvicorn", reason="there is no uvicorn: pip install 'veilmap[explore]'")

from veilmap.explore import requests  # noqa: E402
from veilmap.explore import server as serve  # noqa: E402
from veilmap.explore.app import make_app  # noqa: E402
from veilmap.explore.base_map import base_map  # noqa: E402
from veilmap.explore.connections import Limits, OpenConnections  # noqa: E402
from veilmap.explore.leaf_features import leaf_features  # noqa: E402
from veilmap.explore.projection import plane_of  # noqa: E402
from veilmap.explore.responses import as_json  # noqa: E402
from veilmap.explore.security import Guard  # noqa: E402
from veilmap.explore.session import Session  # noqa: E402
from veilmap.explore.tiles import COLOUR_RAMPS, TILE_PIXELS, density_map, palette  # noqa: E402
from veilmap.explore.zones import zones_of  # noqa: E402

RNG = np.random.default_rng(9)
WEST = vm.Domain({"lon": (-125, -103), "lat": (31, 49)})
HOMES = np.concatenate([RNG.normal([-122.3, 47.6], 0.3, (6000, 2)), RNG.normal([-106.6, 35.1], 0.2, (3000, 2))])
FILES = {"index.html": b"<!doctype html>", "app.js": b"1"}


def released(domain: vm.Domain = WEST, points: np.ndarray = HOMES, method: str = "best", **more: object) -> vm.Release:
    with fixed_entropy(7):
        return vm.release(points, domain, epsilon=1, method=method, **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict:
        return json.loads(self.body)


@dataclass(frozen=True)
class Server:
    release: vm.Release
    port: int
    open_connections: OpenConnections

    def ask(self, path: str, body: object = None, method: str | None = None, **headers: str) -> Reply:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        link.request(method or ("GET" if body is None else "POST"), path, sent, headers)
        got = link.getresponse()
        reply = Reply(got.status, {n.lower(): v for n, v in got.getheaders()}, got.read())
        link.close()
        return reply

    def raw(self, data: bytes) -> bytes:
        """Whatever comes back for bytes that need not be HTTP."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as link:
            with suppress(OSError):  # it need not listen to the end
                link.sendall(data)
                link.shutdown(socket.SHUT_WR)
            with suppress(OSError):
                return link.makefile("rb").read()
            return b""


@contextmanager
def serving(
    release: vm.Release, files: Mapping[str, bytes] = FILES, limits: Limits | None = None, **more: object
) -> Iterator[Server]:
    app = make_app(Session(release, "homes.parquet", "0.1", "s", **more), files)  # type: ignore[arg-type]
    config = serve.server_config(app, limits)
    server = uvicorn.Server(config)
    with serve.listening("127.0.0.1", None) as at:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [at]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield Server(release, at.getsockname()[1], config.http.open_connections)
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(released()) as running:
        yield running


# Answers


def test_counts_are_those_of_the_library(server):
    boxes = [[-123, 47, -121, 48], [-107, 34, -106, 36], [-200, 0, -190, 10]]
    reply = server.ask("/api/count", {"boxes": boxes, "confidence": 0.9})
    answers = server.release.count(boxes, 0.9)
    assert reply.status == 200
    for name in ("estimate", "stderr", "low", "high"):
        assert reply.json[name] == getattr(answers, name).tolist()
    assert reply.json["confidence"] == 0.9
    assert reply.json["private"] is False  # fixed entropy


def test_one_box_can_be_typed_in_an_address(server):
    typed = server.ask("/api/count?box=-123,47,-121,48&box=-107,34,-106,36").json
    assert typed == server.ask("/api/count", {"boxes": [[-123, 47, -121, 48], [-107, 34, -106, 36]]}).json
    assert server.ask("/api/count", {"boxes": [-123, 47, -121, 48]}).json["estimate"] == typed["estimate"][:1]


def test_info_says_what_is_promised(server):
    info = server.ask("/api/info").json
    assert info["statement"] == server.release.privacy.statement()
    assert info["private"] is False
    assert info["domain"]["axes"][0] == {"name": "lon", "lo": -125.0, "hi": -103.0}
    assert info["whole"]["estimate"] == server.release.count([-125, 31, -103, 49]).estimate[0]


def test_the_name_of_a_file_need_not_be_text():
    assert json.loads(as_json({"name": os.fsdecode(b"a\xff.parquet")}).body) == {"name": "a?.parquet"}


def test_a_histogram_adds_up_to_its_box(server):
    found = server.ask("/api/histogram?axis=lat&bins=7&box=-123,40,-121,41").json
    assert len(found["edges"]) == 8
    assert sum(found["estimate"]) == pytest.approx(server.release.count([-123, 31, -121, 49]).estimate[0])
    part = server.ask("/api/histogram?axis=lat&bins=2&from=47&to=48").json
    assert part["edges"] == [47, 47.5, 48]
    assert part["estimate"][0] == server.release.count([-125, 47, -103, 47.5]).estimate[0]


def test_the_page_and_its_files_come_with_a_policy(server):
    for path, kind in {"/": "text/html", "/static/app.js": "text/javascript"}.items():
        reply = server.ask(path)
        assert reply.status == 200
        assert reply.headers["content-type"].startswith(kind)
        assert "default-src 'none'; script-src 'self'" in reply.headers["content-security-policy"]
        assert "unsafe" not in reply.headers["content-security-policy"]
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in reply.headers


def test_the_description_is_openapi_and_every_path_of_it_is_there(server):
    found = server.ask("/openapi.json").json
    assert found["openapi"].startswith("3.0")
    page = server.ask("/api").body.decode()
    needs = {"/api/histogram": "?axis=lon", "/api/count": "?box=-123,47,-121,48"}
    for path, methods in found["paths"].items():
        assert f"<code>{path}</code>" in page
        for method in methods:
            place = path.replace("{z}/{x}/{y}", "0/0/0").replace("{cell}", "0")
            if method == "get":
                reply = server.ask(place + needs.get(path, ""))
            else:
                reply = server.ask(place, {"boxes": [[-123, 47, -121, 48]]})
            assert reply.status == (404 if path == "/api/zones" else 200), path
    schema = found["paths"]["/api/count"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.validate(server.ask("/api/count", {"boxes": [[-123, 47, -121, 48]]}).json, schema)


# Zones


@pytest.fixture(scope="module")
def zones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two zones in a coordinate system that is not the release's."""
    geopandas = pytest.importorskip("geopandas", reason="there is no geopandas: pip install 'veilmap[geo]'")
    shapely = pytest.importorskip("shapely")
    shapes = [shapely.box(-123, 47, -121, 48), shapely.Polygon([(-107, 34), (-106, 34), (-106.5, 36)])]
    frame = geopandas.GeoDataFrame({"id": [5, 6], "Name": ["Sound", "Rio\n"]}, geometry=shapes, crs="EPSG:4326")
    path = tmp_path_factory.mktemp("zones") / "zones.gpkg"
    frame.to_crs("EPSG:3857").to_file(path)
    return path


def test_zones_are_counted_as_query_counts_them(zones):
    release = released(vm.Domain({"lon": (-125, -103), "lat": (31, 49)}, crs="EPSG:4326"))
    with serving(release, zones=zones_of(release, zones)) as running:
        found = running.ask("/api/zones").json["features"]
        again = running.ask("/api/count", {"zones": [1, 0], "confidence": 0.95}).json
        assert running.ask("/api/info").json["zones"] is True
        assert "from 0 to 1" in running.ask("/api/count", {"zones": [2]}).json["error"]
        assert "from 0 to 1" in running.ask("/api/count", {"zones": [True]}).json["error"]
        assert "1 to 1,000 numbers" in running.ask("/api/count", {"zones": []}).json["error"]
    answers = release.count(read_zones(zones))
    assert [zone["properties"]["name"] for zone in found] == ["Sound", "Rio "]
    for name in ("estimate", "stderr", "low", "high"):
        assert [zone["properties"][name] for zone in found] == getattr(answers, name).tolist()
        assert again[name] == getattr(answers, name).tolist()[::-1]
    ring = np.array(found[0]["geometry"]["coordinates"][0])
    assert ring.min(axis=0) == pytest.approx([-123, 47])


def test_zones_without_names_are_numbered(zones, tmp_path):
    geopandas = pytest.importorskip("geopandas", reason="there is no geopandas: pip install 'veilmap[geo]'")
    frame = geopandas.read_file(zones).to_crs("EPSG:4326")
    frame[["id", "geometry"]].to_file(tmp_path / "plain.geojson")
    found = zones_of(released(), tmp_path / "plain.geojson").collection["features"]
    assert [zone["properties"]["name"] for zone in found] == ["Zone 1", "Zone 2"]


def test_a_zone_without_a_place_is_empty(zones, tmp_path):
    geopandas = pytest.importorskip("geopandas", reason="there is no geopandas: pip install 'veilmap[geo]'")
    frame = geopandas.read_file(zones).to_crs("EPSG:4326")
    frame.loc[0, "geometry"] = None
    frame.to_file(tmp_path / "holes.geojson")
    release = released()
    with serving(release, zones=zones_of(release, tmp_path / "holes.geojson")) as running:
        assert not any(running.ask("/api/zones").json["features"][0]["geometry"]["coordinates"])
        assert running.ask("/api/count", {"zones": [0]}).json["estimate"] == [0.0]


def test_polygons_are_counted_as_the_library_counts_them(server):
    shapely = pytest.importorskip("shapely", reason="there is no shapely: pip install 'veilmap[geo]'")
    shape = shapely.Polygon([(-123, 47), (-121, 47), (-122, 48.5)])
    one = json.loads(shapely.to_geojson(shape))
    asked_for = {"type": "FeatureCollection", "features": [{"type": "Feature", "properties": {}, "geometry": one}] * 2}
    found = server.ask("/api/count", {"polygons": asked_for}).json
    assert found["estimate"] == [server.release.count([shape]).estimate[0]] * 2
    crossed = {"type": "Polygon", "coordinates": [[[-123, 47], [-121, 48], [-121, 47], [-123, 48], [-123, 47]]]}
    reply = server.ask("/api/count", {"polygons": crossed})
    assert reply.status == 400
    assert "Self-intersection" in reply.json["error"]


# Tiles


def pixels(png: bytes) -> np.ndarray:
    """The shades of a picture, by a reader that knows nothing of the writer."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at, parts = 8, {}
    while at < len(png):
        size, name = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + size]
        assert zlib.crc32(name + body) == struct.unpack(">I", png[at + 8 + size : at + 12 + size])[0]
        parts[name], at = body, at + 12 + size
    wide, tall = struct.unpack(">II", parts[b"IHDR"][:8])
    lines = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(tall, wide + 1)
    assert not lines[:, 0].any()
    assert len(parts[b"PLTE"]) == 3 * 256
    return lines[:, 1:]


def test_tiles_show_points_where_they_are(server):
    zoom, (lon, lat) = 6, (-122.3, 47.6)
    u, v = (lon + 180) / 360, 0.5 - np.arcsinh(np.tan(np.radians(lat))) / (2 * np.pi)
    x, y = int(u * 2**zoom), int(v * 2**zoom)
    seen = pixels(server.ask(f"/tiles/{zoom}/{x}/{y}.png").body)
    column, row = int((u * 2**zoom - x) * TILE_PIXELS), int((v * 2**zoom - y) * TILE_PIXELS)
    assert seen.shape == (TILE_PIXELS, TILE_PIXELS)
    assert seen[row, column] > 0
    assert not pixels(server.ask("/tiles/6/40/40.png").body).any()  # Africa


def test_zooming_in_shows_finer_cells(server):
    """A tile has cells that its parent's pixels cannot tell apart."""
    drawn = density_map(server.release, plane_of(WEST))
    narrow = np.argmin(drawn.hi[:, 0] - drawn.lo[:, 0])
    zoom = 12
    x, y = ((drawn.lo[narrow] + drawn.hi[narrow]) / 2 * 2**zoom).astype(int)
    fine, coarse = pixels(drawn.tile(zoom, x, y, "light")), pixels(drawn.tile(zoom - 6, x >> 6, y >> 6, "light"))
    inner = coarse[(y % 64) * 8 : (y % 64) * 8 + 8, (x % 64) * 8 : (x % 64) * 8 + 8]
    assert len(np.unique(fine)) >= len(np.unique(inner))
    assert (drawn.hi[narrow] - drawn.lo[narrow])[0] * 2**zoom * TILE_PIXELS > 1


def test_what_is_shown_holds_about_what_there_is():
    """Densities times areas add up to the estimates of the cells that are shown, on a globe too."""
    release = released(method="quad-opt", height=6)
    plane = plane_of(WEST)
    drawn = density_map(release, plane)
    x = drawn.lo[:, 0] * 360 - 180, drawn.hi[:, 0] * 360 - 180
    y = [np.degrees(np.arctan(np.sinh(np.pi * (1 - 2 * v)))) for v in (drawn.hi[:, 1], drawn.lo[:, 1])]
    held = (drawn.density * plane.ground.areas(np.stack([x[0], y[0]], axis=1), np.stack([x[1], y[1]], axis=1))).sum()
    assert held == pytest.approx(9000, rel=0.1)


@pytest.mark.parametrize("method", ["best", "hilbert-r", "kd-hybrid", "quad-baseline"])
@pytest.mark.parametrize("theme", COLOUR_RAMPS)
def test_every_kind_of_release_has_tiles(method, theme):
    drawn = density_map(released(method=method), plane_of(WEST))
    assert drawn.low < drawn.high
    assert pixels(drawn.tile(0, 0, 0, theme)).any()
    assert len(palette(COLOUR_RAMPS[theme])) == 255


def test_a_release_of_nothing_has_empty_tiles():
    drawn = density_map(released(points=np.empty((0, 2))), plane_of(WEST))
    assert not pixels(drawn.tile(0, 0, 0, "dark")).any()


def test_many_axes_are_drawn_over_longitude_and_latitude():
    domain = vm.Domain({"lon": (-125, -103), "lat": (31, 49), "hour": (0, 24)})
    points = np.column_stack([HOMES, RNG.uniform(0, 24, len(HOMES))])
    with serving(released(domain, points)) as running:
        assert pixels(running.ask("/tiles/2/0/1.png").body).any()
        assert running.ask("/api/info").json["map"]["axes"] == ["lon", "lat"]
        assert running.ask("/ogc/collections").status == 400


@pytest.mark.parametrize(
    ("axes", "crs", "globe"),
    [
        ({"lon": (-10, 10), "lat": (-10, 10)}, None, True),
        ({"Longitude": (-10, 10), "Latitude": (-10, 10)}, "EPSG:4326", True),
        ({"x": (-10, 10), "y": (-10, 10)}, "OGC:CRS84", True),
        ({"x": (-10, 10), "y": (-10, 10)}, None, False),
        ({"lon": (0, 360), "lat": (-90, 90)}, None, False),  # its square ends at 180
        ({"lon": (-10, 10), "lat": (86, 90)}, None, False),  # and here there is none
        ({"x": (4e5, 6e5), "y": (5e6, 6e6)}, "EPSG:32631", False),
        ({"age": (0, 100)}, None, None),
        ({"a": (0, 1), "b": (0, 1), "c": (0, 1)}, None, None),
        ({"lon": (-10, 10), "lat": (-10, 10), "c": (0, 1)}, None, True),
    ],
)
def test_which_planes_are_globes(axes, crs, globe):
    plane = plane_of(vm.Domain(axes, crs=crs))
    assert (None if plane is None else plane.globe) is globe


def test_another_plane_is_drawn_as_it_is_with_the_base_map_in_it():
    pytest.importorskip("pyproj", reason="there is no pyproj: pip install 'veilmap[geo]'")
    domain = vm.Domain({"x": (1e5, 9e5), "y": (5e6, 6e6)}, crs="EPSG:32631")
    plane = plane_of(domain)
    assert plane.ground.area_unit == "km²"
    lines = json.loads(base_map(plane))["features"]
    coast = np.concatenate([np.array(line) for line in lines[0]["geometry"]["coordinates"]])
    assert len(coast) > 20
    assert np.mean((coast > [-7e5, 4e6]) & (coast < [1.7e6, 7e6])) > 0.8
    points = np.random.default_rng(1).normal([5e5, 5.5e6], 2e4, (5000, 2))
    with serving(released(domain, points)) as running:
        assert pixels(running.ask("/tiles/0/0/0.png").body)[TILE_PIXELS // 2 - 8 : TILE_PIXELS // 2 + 8].any()
        ring = running.ask("/ogc/collections/cells/items?limit=1").json["features"][0]["geometry"]["coordinates"][0]
        assert all(-3 < lon < 9 and 44 < lat < 56 for lon, lat in ring)


def test_a_plane_that_nobody_knows_has_no_base_map_and_no_cells_for_programs():
    domain = vm.Domain({"x": (0, 4), "y": (-1, 1)})
    assert json.loads(base_map(plane_of(domain)))["features"] == []
    with pytest.raises(BadInput, match="it is not known where on the globe these axes lie"):
        leaf_features(released(domain, RNG.random((100, 2))), plane_of(domain))


def test_one_axis_has_no_map_but_histograms():
    with serving(released(vm.Domain({"age": (0, 100)}), RNG.normal(40, 9, (500, 1)))) as running:
        assert "map" not in running.ask("/api/info").json
        assert running.ask("/api/histogram?axis=age").status == 200
        assert "no map" in running.ask("/tiles/0/0/0.png").json["error"]
        assert running.ask("/basemap.json").json["features"] == []


# OGC API - Features


def test_pages_of_cells_are_all_cells_once(server):
    seen, url = [], "/ogc/collections/cells/items?limit=100"
    while url:
        page = server.ask(url).json
        seen += [cell["id"] for cell in page["features"]]
        following = [link["href"] for link in page["links"] if link["rel"] == "next"]
        assert all(link.startswith(f"http://127.0.0.1:{server.port}/ogc/") for link in following)
        url = following[0].partition(str(server.port))[2] if following else ""
    assert seen == list(range(int(server.release.estimates.tree.is_leaf.sum())))
    assert page["numberMatched"] == len(seen)


def test_cells_of_a_box_touch_it(server):
    page = server.ask("/ogc/collections/cells/items?bbox=-123,47,-122,48&limit=10000").json
    corners = np.array([cell["geometry"]["coordinates"][0] for cell in page["features"]])
    assert len(corners) > 3
    assert (corners.min(axis=1) <= [-122, 48]).all()
    assert (corners.max(axis=1) >= [-123, 47]).all()
    one = server.ask(f"/ogc/collections/cells/items/{page['features'][0]['id']}").json
    assert {**one, "links": 0} == {**page["features"][0], "links": 0}
    across = server.ask("/ogc/collections/cells/items?bbox=170,47,-122,48&limit=10000").json
    assert across["numberMatched"] >= page["numberMatched"]


def test_cells_add_up_to_the_whole(server):
    page = server.ask("/ogc/collections/cells/items?limit=10000").json
    held = sum(cell["properties"]["estimate"] for cell in page["features"])
    assert held == pytest.approx(server.release.count([-125, 31, -103, 49]).estimate[0])


@pytest.mark.parametrize("noise", [{}, {"noise": "discrete-gaussian", "delta": 1e-6}], ids=["laplace", "gaussian"])
def test_cells_have_the_intervals_that_an_export_has(noise, tmp_path):
    release = released(method="quad-opt", height=4, **noise)
    release.export(tmp_path / "cells.csv")
    exported = pyarrow.csv.read_csv(tmp_path / "cells.csv")
    shown_cells = leaf_features(release, plane_of(WEST)).features(np.arange(exported.num_rows))
    for name in ("stderr", "low", "high"):
        assert exported[name].to_pylist() == [cell["properties"][name] for cell in shown_cells]


def test_gdal_reads_the_cells(server):
    if (ogrinfo := shutil.which("ogrinfo")) is None:
        pytest.skip("there is no ogrinfo: it is in Debian's gdal-bin")
    said = subprocess.run(
        [ogrinfo, "-ro", "-so", "-al", f"OAPIF:http://127.0.0.1:{server.port}/ogc"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    leaves = int(server.release.estimates.tree.is_leaf.sum())
    assert "Layer name: cells" in said.stdout
    assert f"Feature Count: {leaves}" in said.stdout
    assert "estimate: Real" in said.stdout


# What is refused


@pytest.mark.parametrize(
    ("path", "body", "status", "sentence"),
    [
        ("/api/count", b"", 400, "not JSON"),
        ("/api/count", b"{" * 100_000, 400, "not JSON"),
        ("/api/count", b"[" * 100_000, 400, "not JSON"),
        ("/api/count", b'{"boxes": [[NaN, 0, 1, 1]]}', 400, "not JSON"),
        ("/api/count", b'{"boxes": [[1' + b"0" * 5000 + b", 0, 1, 1]]}", 400, "not JSON"),
        ("/api/count", b"\xff\xfe\x00", 400, "not JSON"),
        ("/api/count", [1], 400, "got a list"),
        ("/api/count", {}, 400, "exactly one of boxes, polygons and zones"),
        ("/api/count", {"boxes": [], "confidence": 0.9}, 400, "one or more"),
        ("/api/count", {"boxes": [[1, 2, 3]]}, 400, "is 4 numbers (low lon, low lat"),
        ("/api/count", {"boxes": [["1", 2, 3, 4]]}, 400, "is 4 numbers"),
        ("/api/count", {"boxes": [[True, 2, 3, 4]]}, 400, "is 4 numbers"),
        ("/api/count", {"boxes": [[[1], 2, 3, 4]]}, 400, "is 4 numbers"),
        ("/api/count", {"boxes": [[1, 2, 3, 4], 5]}, 400, "is 4 numbers"),
        ("/api/count", {"boxes": [[3, 2, 1, 4]]}, 400, "inverted"),
        ("/api/count", {"boxes": [[10**400, 2, 3, 4]]}, 400, "cannot be read as rows of numbers"),
        ("/api/count", {"boxes": [[1, 2, 3, 4]] * 10_001}, 413, "at most 10,000 boxes, got 10,001"),
        ("/api/count", b" " * 2_000_001, 413, "at most 2,000,000 bytes"),
        ("/api/count", {"boxes": [[1, 2, 3, 4]], "confidence": 1}, 400, "between 0 and 1"),
        ("/api/count", {"boxes": [[1, 2, 3, 4]], "confidence": "0.9"}, 400, "got text"),
        ("/api/count", {"boxes": [[1, 2, 3, 4]], "confidense": 0.9}, 400, "Did you mean 'confidence'"),
        ("/api/count", {"zones": [0]}, 400, "--zones"),
        ("/api/count", {"boxes": [[1, 2, 3, 4]], "zones": [0]}, 400, "exactly one of boxes, polygons and zones"),
        ("/api/count", {"polygons": []}, 400, "got a list"),
        ("/api/count", {"polygons": {"type": "Point", "coordinates": [0, 0]}}, 400, "got 'Point'"),
        ("/api/count", {"polygons": {"type": "FeatureCollection"}}, 400, "list of features"),
        ("/api/count", {"polygons": {"type": "FeatureCollection", "features": []}}, 400, "no polygon"),
        ("/api/count", {"polygons": {"type": "Polygon", "coordinates": "x"}}, 400, "Polygons must be GeoJSON"),
        ("/api/count", None, 400, "one or more"),
        ("/api/count?box=1,2", None, 400, "4 numbers"),
        ("/api/count?box=a,b,c,d", None, 400, "Got 'a,b,c,d'"),
        ("/api/count?box=1,2,3,nan", None, 400, "NaN"),
        ("/api/count?boks=1", None, 400, "Did you mean 'box'?"),
        ("/api/count?box=1,2,3,4&confidence=x", None, 400, "confidence must be a number"),
        ("/api/histogram", None, 400, "no axis ''"),
        ("/api/histogram?axis=lo", None, 400, "Did you mean 'lon'"),
        ("/api/histogram?axis=lon&bins=0", None, 400, "from 1 to 500"),
        ("/api/histogram?axis=lon&bins=1e9", None, 400, "from 1 to 500"),
        ("/api/histogram?axis=lon&from=x", None, 400, "must be a number"),
        (
            "/api/histogram?axis=lon&from=-104&to=-110",
            None,
            400,
            "must start below its end, and both must lie in -125 to -103",
        ),
        ("/api/histogram?axis=lon&from=nan", None, 400, "must start below its end"),
        ("/tiles/23/0/0.png", None, 400, "from 0 to 22"),
        ("/tiles/1/2/0.png", None, 400, "from 0 to 1"),
        ("/tiles/-1/0/0.png", None, 400, "from 0 to 22"),
        ("/tiles/%D9%A3/0/0.png", None, 400, "zoom"),
        ("/tiles/0/0/0.png?theme=blue", None, 400, "light or dark"),
        ("/tiles/0/0/0.svg", None, 404, "does not exist"),
        ("/ogc/collections/cells/items?bbox=1,2,3", None, 400, "west,south,east,north"),
        ("/ogc/collections/cells/items?bbox=1,2,3,inf", None, 400, "west,south,east,north"),
        ("/ogc/collections/cells/items?limit=0", None, 400, "limit must be a whole number"),
        ("/ogc/collections/cells/items?offset=-1", None, 400, "offset must be a whole number"),
        ("/ogc/collections/cells/items/999999", None, 404, "The id of a leaf must be"),
        ("/ogc/collections/points", None, 404, "does not exist"),
        ("/api/zones", None, 404, "--zones"),
    ],
)
def test_what_breaks_a_rule_gets_a_sentence(server, path, body, status, sentence):
    reply = server.ask(path, body)
    assert reply.status == status
    assert sentence in reply.json["error"]
    assert reply.json["error"].isprintable()
    assert reply.headers["content-security-policy"]


def test_a_long_word_is_not_said_back(server):
    reply = server.ask("/api/count", {"a" * 1_000_000: 1})
    assert reply.status == 400
    assert len(reply.body) < 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(server, method):
    for path in ("/api/info", "/api/count", "/", "/static/app.js"):
        reply = server.ask(path, method=method)
        assert reply.status == 405
        assert "does not accept that method" in reply.json["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../../../pyproject.toml",
        "/static/..%2f..%2f..%2fpyproject.toml",
        "/static/%2e%2e/serve.py",
        "/static//etc/passwd",
        "/static/%00",
        "/../../../../etc/passwd",
        "//etc/passwd",
        "/static/",
        "/static/serve.py",
        "/static/..\\serve.py",
    ],
)
def test_no_file_but_its_own_is_served(server, path):
    for reply in (server.ask(path), server.ask(path, method="HEAD")):
        assert reply.status == 404
    raw = server.raw(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    assert b" 404 " in raw.partition(b"\r\n")[0]
    assert b"root:" not in raw


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8417", "127.0.0.1.evil.example", "a@127.0.0.1", "127.0.0.1/x", "[::1", ""],
)
def test_a_name_that_was_bent_to_this_machine_is_refused(server, host):
    reply = server.ask("/api/info", Host=host)
    assert reply.status in (400, 403)
    assert b"statement" not in reply.body


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9", "LOCALHOST", "[::1]:8417", "192.168.1.2:8417"])
def test_addresses_and_localhost_are_let_in(host):
    assert Guard(None, "127.0.0.1")._refusal([(b"host", host.encode())]) is None


def test_a_host_must_be_named_once():
    guard = Guard(None, "127.0.0.1")
    assert guard._refusal([])
    assert guard._refusal([(b"host", b"127.0.0.1"), (b"host", b"evil.example")])


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "https://127.0.0.1", "null", "http://127.0.0.1:1", "http://[", ""]
)
def test_pages_from_elsewhere_are_refused(server, origin):
    assert server.ask("/api/count", {"boxes": [[1, 2, 3, 4]]}, Origin=origin).status == 403
    assert server.ask("/api/info", **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}).status == 403


def test_its_own_page_and_links_from_elsewhere_are_let_in(server):
    assert server.ask("/api/info", Origin=f"http://127.0.0.1:{server.port}").status == 200
    assert server.ask("/", **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}).status == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 3_000_000 + b"\r\n\r\n",
        b"POST /api/count HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/count HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_refused(server, data):
    reply = server.raw(data)
    assert not reply or b" 40" in reply.partition(b"\r\n")[0] or b" 43" in reply.partition(b"\r\n")[0]
    assert server.ask("/api/info").status == 200


@given(st.binary(max_size=60))
def test_any_body_is_read_or_refused_in_words(data):
    with suppress(BadInput):
        requests.boxes(requests.record(data).get("boxes"), WEST)


# Starting it


def test_the_command_serves_until_it_is_interrupted(tmp_path):
    if not (serve.STATIC_FOLDER / "index.html").exists():
        pytest.skip("the page is not built: make web")
    released().save(tmp_path / "homes.parquet")
    command = [sys.executable, "-c", "from veilmap.cli import main; main()", "explore", str(tmp_path / "homes.parquet")]
    with subprocess.Popen(
        [*command, "--no-open"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            line = running.stdout.readline()  # type: ignore[union-attr]
            url = line.split(" at ")[1].split()[0]
            assert url.startswith("http://127.0.0.1:")
            link = http.client.HTTPConnection(url.split("/")[2], timeout=30)
            link.request("GET", "/api/info")
            assert json.loads(link.getresponse().read())["name"] == "homes.parquet"
            link.close()
        finally:
            running.send_signal(2)
            said = running.communicate(timeout=20)[1]
    assert running.returncode == 0
    assert said.startswith("veilmap: NOT PRIVATE.")
    assert len(said.splitlines()) == 1


def test_a_port_that_is_taken_is_one_sentence_and_status_2(run, tmp_path, monkeypatch):
    monkeypatch.setattr(serve, "built_files", dict)
    released().save(tmp_path / "homes.parquet")
    with serve.listening("127.0.0.1", None) as taken:
        port = taken.getsockname()[1]
        status, _, err = run("explore", tmp_path / "homes.parquet", "--no-open", "--port", port)
    assert status == 2
    assert f"Cannot listen at 127.0.0.1 port {port}" in err
    for host in ("no.such.host.example", "192.0.2.1"):
        status, _, err = run("explore", tmp_path / "homes.parquet", "--no-open", "--host", host)
        assert status == 2
        assert "is not an address of this machine" in err


def test_without_the_page_the_way_to_it_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(serve, "STATIC_FOLDER", tmp_path)
    with pytest.raises(MissingExtra, match="Run make web"):
        serve.built_files()


def test_who_listens_to_others_is_told_so():
    assert serve.is_loopback("127.0.0.2")
    assert serve.is_loopback("LOCALHOST")
    assert serve.is_loopback("::1")
    assert not serve.is_loopback("0.0.0.0")  # noqa: S104
    assert not serve.is_loopback("example.org")


def test_a_wheel_holds_the_page(tmp_path):
    pytest.importorskip("hatchling", reason="there is no hatchling: pip install it")
    if not (serve.STATIC_FOLDER / "index.html").exists():
        pytest.skip("the page is not built: make web")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    root = Path(__file__).parents[3]
    subprocess.run(command, cwd=root, env={**os.environ, "VEILMAP_WEB": "skip"}, check=True, capture_output=True)
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    for name in ("index.html", "app.js", "app.css", "maplibre-worker.js", "licences.txt"):
        assert f"veilmap/explore/static/{name}" in names
    assert not [name for name in names if "node_modules" in name]


def test_links_between_pages_of_the_package_are_its_own(tmp_path):
    """Nothing in the page's sources names another host."""
    web = Path(__file__).parents[3] / "web"
    for path in [web / "index.html", web / "style.css", *web.glob("src/*.ts")]:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text, path
        assert "https:" not in text, path

"""Exports, opened by readers that are not ours: the same cells, the same totals, the same promise."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import veilmap as vm
from veilmap.errors import BadInput
from veilmap.testing import fixed_entropy

WEST = vm.Domain({"lon": (-125, -103), "lat": (31, 49)})
SQUARE = vm.Domain({"x": (0, 8), "y": (0, 8)})
MERCATOR = vm.Domain({"x": (0, 1e6), "y": (5e6, 7e6)}, crs="EPSG:3857")
NUMBERS = ["count", "stderr", "low", "high", "density"]
VECTORS = [".gpkg", ".fgb", ".geojson"]


def made(domain: vm.Domain, method: str = "best", rows: int = 20_000, **more: Any) -> vm.Release:
    middle, width = (domain.lo + domain.hi) / 2, domain.hi - domain.lo
    points = np.random.default_rng(1).normal(middle, width / 8, (rows, domain.dimensions))
    with fixed_entropy(2):
        return vm.release(points, domain, 1, method, **more)


def total(release: vm.Release) -> float:
    return float(release.count([*release.domain.lo, *release.domain.hi]).estimate[0])


@pytest.fixture(scope="module")
def west() -> vm.Release:
    domain = WEST
    points = np.random.default_rng(1).normal((-114, 40), (2, 2), (20_000, 2))
    return vm.release(points, domain, 1)


def plane_area(frame: Any) -> float:
    import shapely

    return float(shapely.area(frame.geometry.to_numpy()).sum())


def tool(name: str, *words: object) -> str:
    if shutil.which(name) is None:
        pytest.skip(f"there is no {name}: Debian has it in gdal-bin")
    return subprocess.run([name, *map(str, words)], capture_output=True, text=True, check=True, timeout=60).stdout


# --- polygons -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", VECTORS)
@pytest.mark.parametrize("method", ["best", "quad-opt", "kd-standard", "hilbert-r", "quad-baseline"])
def test_polygons_are_the_cells_of_the_release(tmp_path: Path, kind: str, method: str) -> None:
    geopandas = pytest.importorskip("geopandas", reason="geopandas is not installed")
    release = made(WEST, method, **({"height": 4} if method.startswith(("quad", "kd")) else {}))
    release.export(tmp_path / f"cells{kind}")
    assert [path.name for path in tmp_path.iterdir()] == [f"cells{kind}"]
    found = geopandas.read_file(tmp_path / f"cells{kind}")
    assert [name for name in found.columns if name != "geometry"] == [*NUMBERS, "private"]
    assert not found["private"].any()
    leaves = release.nodes.filter(release.nodes["leaf"])
    estimate = leaves["estimate"].to_numpy()
    box = leaves["bbox"].combine_chunks()
    solid = box.field("xmin").to_numpy() < box.field("xmax").to_numpy()
    solid &= box.field("ymin").to_numpy() < box.field("ymax").to_numpy()
    assert len(found) == solid.sum()
    assert found["count"].sum() == pytest.approx(estimate[solid].sum(), rel=1e-12, abs=1e-6)
    if method not in ("quad-baseline", "hilbert-r"):
        assert found["count"].sum() == pytest.approx(total(release), rel=1e-9)
        assert plane_area(found) == pytest.approx(22 * 18, rel=1e-9)
        answers = release.count(found.bounds.to_numpy())
        by = {"rtol": 1e-6, "atol": 1e-3}  # coordinates in text are rounded
        np.testing.assert_allclose(found["count"], answers.estimate, **by)
        np.testing.assert_allclose(found["stderr"], answers.stderr, **by)
        np.testing.assert_allclose(found["high"], answers.high, **by)
        np.testing.assert_allclose(found["low"], answers.low, **by)
    assert found.crs.to_epsg() == 4326 or found.crs.to_authority() == ("OGC", "CRS84")
    ground = found.to_crs("EPSG:6933").area / 1e6  # an equal-area projection of an ellipsoid
    np.testing.assert_allclose(found["density"] * ground, found["count"], rtol=0.02, atol=1e-6)


def test_what_is_promised_goes_along(west: vm.Release, tmp_path: Path) -> None:
    pyogrio = pytest.importorskip("pyogrio", reason="pyogrio is not installed")
    statement = west.privacy.statement()
    for kind in VECTORS:
        west.export(tmp_path / f"west{kind}")
    assert statement in json.loads((tmp_path / "west.geojson").read_text())["description"]
    assert statement in pyogrio.read_info(tmp_path / "west.gpkg")["layer_metadata"]["PRIVACY"]
    for kind in VECTORS:
        assert "private" not in pyogrio.read_info(tmp_path / f"west{kind}")["fields"]


@pytest.mark.parametrize("kind", VECTORS)
def test_ogrinfo_reads_it(west: vm.Release, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("pyogrio", reason="pyogrio is not installed")
    west.export(tmp_path / f"west{kind}")
    said = tool("ogrinfo", "-al", "-so", tmp_path / f"west{kind}")
    assert f"Feature Count: {west.estimates.tree.is_leaf.sum()}" in said
    assert "Geometry: Polygon" in said
    assert "WGS 84" in said
    text = (tmp_path / f"west{kind}").read_bytes().decode("utf-8", "replace")
    assert west.privacy.statement() in text
    sql = 'SELECT SUM("count") AS total FROM west'
    summed = tool("ogrinfo", "-q", "-dialect", "sqlite", "-sql", sql, tmp_path / f"west{kind}")
    assert float(summed.split("=")[-1]) == pytest.approx(total(west), rel=1e-9)


def test_other_coordinates_stay_what_they_are(tmp_path: Path) -> None:
    geopandas = pytest.importorskip("geopandas", reason="geopandas is not installed")
    for name, domain in (("mercator", MERCATOR), ("plain", SQUARE)):
        release = made(domain, "quad-opt", height=2)
        for kind in VECTORS:
            release.export(tmp_path / f"{name}{kind}")
            found = geopandas.read_file(tmp_path / f"{name}{kind}")
            assert found.total_bounds.tolist() == pytest.approx([*domain.lo, *domain.hi])
            if domain.crs:
                assert found.crs.to_epsg() == 3857
            elif kind != ".geojson":  # which has no way to say that nobody knows
                assert found.crs is None or "nknown" in found.crs.name or "ndefined" in found.crs.name


# --- rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [1, 2, 3, 5])
def test_rows_have_the_edges_of_cells_along_every_axis(tmp_path: Path, axes: int) -> None:
    names = ["経度", "a b", "c,d", "e", "f"][:axes]
    release = made(vm.Domain(dict.fromkeys(names, (0, 8))), "quad-opt", height=2)
    release.export(tmp_path / "cells.csv")
    found = pd.read_csv(tmp_path / "cells.csv")
    edges = [f"{name}_low" for name in names] + [f"{name}_high" for name in names]
    assert list(found.columns) == [*edges, *NUMBERS, "private"]
    assert found["count"].sum() == pytest.approx(total(release))
    answers = release.count(found[edges].to_numpy())
    np.testing.assert_allclose(found["count"], answers.estimate, atol=1e-6)
    np.testing.assert_allclose(found["stderr"], answers.stderr, rtol=1e-6)
    np.testing.assert_allclose(found["density"] * 2**axes, found["count"], atol=1e-9)


def test_rows_can_be_asked_again(west: vm.Release, tmp_path: Path, run: Callable[..., Any]) -> None:
    west.save(tmp_path / "west.parquet")
    assert run("export", tmp_path / "west.parquet", "-o", tmp_path / "cells.csv")[0] == 0
    status, said, _ = run("query", tmp_path / "west.parquet", "--boxes", tmp_path / "cells.csv", "--format", "csv")
    assert status == 0
    assert len(said.splitlines()) == 1 + west.estimates.tree.is_leaf.sum()


# --- rasters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "look",
    [
        {},
        {"pixels": 300},
        {"pixels": (70, 30)},
        {"resolution": 0.1},
        {"resolution": 0.7},  # does not go into the domain
        {"resolution": 100},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["best", "quad-opt"])
def test_counts_of_pixels_add_up(tmp_path: Path, method: str, look: dict[str, Any]) -> None:
    rasterio = pytest.importorskip("rasterio", reason="rasterio is not installed")
    release = made(WEST, method)
    release.export(tmp_path / "count.tif", value="count", **look)
    release.export(tmp_path / "density.tif", **look)
    with rasterio.open(tmp_path / "count.tif") as count, rasterio.open(tmp_path / "density.tif") as density:
        held, dense = count.read(1), density.read(1)
        assert held.sum() == pytest.approx(total(release), rel=1e-9)
        assert count.crs.to_epsg() == 4326
        assert np.isnan(count.nodata)
        assert count.bounds.left == -125
        assert count.bounds.top == 49
        assert count.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert count.tags()["PRIVACY"] == release.privacy.statement()
        assert "NOT PRIVATE" in count.descriptions[0]
        assert density.tags()["UNIT"] == "rows per km²"
        if "resolution" in look:
            assert count.res == pytest.approx((look["resolution"],) * 2)
        some = rasterio.windows.bounds(rasterio.windows.Window(0, 0, 1, 1), count.transform)
        box = [some[0], max(some[1], 31), min(some[2], -103), some[3]]
        assert held[0, 0] == pytest.approx(release.count(box).estimate[0], rel=1e-9, abs=1e-9)
        area = np.radians(box[2] - box[0]) * np.diff(np.sin(np.radians(box[1::2])))[0] * 6371.0072**2
        assert dense[0, 0] == pytest.approx(held[0, 0] / area, rel=1e-5, abs=1e-9)


def test_errors_of_pixels_are_those_of_their_boxes(west: vm.Release, tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio", reason="rasterio is not installed")
    west.export(tmp_path / "error.tif", value="stderr", pixels=(10, 6))
    with rasterio.open(tmp_path / "error.tif") as found:
        error = found.read(1)
        boxes = [[*found.transform * (c, r + 1), *found.transform * (c + 1, r)] for r in range(6) for c in range(10)]
        assert found.descriptions[0] == "stderr, rows"
    np.testing.assert_allclose(error.ravel(), west.count(boxes).stderr, rtol=1e-5)


def test_gdalinfo_reads_it(west: vm.Release, tmp_path: Path) -> None:
    pytest.importorskip("rasterio", reason="rasterio is not installed")
    west.export(tmp_path / "west.tif", pixels=1500)
    said = tool("gdalinfo", "-stats", tmp_path / "west.tif")
    assert "LAYOUT=COG" in said
    assert f"PRIVACY={west.privacy.statement()}" in said
    assert "Overviews: 750x" in said
    assert "NoData Value=nan" in said
    assert "density, rows per km" in said


def test_a_raster_of_metres(tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio", reason="rasterio is not installed")
    made(MERCATOR).export(tmp_path / "metres.tif", resolution=10_000, value="count")
    with rasterio.open(tmp_path / "metres.tif") as found:
        assert found.crs.to_epsg() == 3857
        assert found.shape == (200, 100)


# --- hexagons -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("domain", "resolution"),
    [
        (WEST, 3),
        (vm.Domain({"lon": (-180, 180), "lat": (-90, 90)}), 1),
        (vm.Domain({"lon": (150, 210), "lat": (-50, 70)}), 2),
        (vm.Domain({"lon": (0, 360), "lat": (-80, 85)}), 1),
        (vm.Domain({"lon": (2.2, 2.5), "lat": (48.8, 48.9)}, crs="EPSG:4326"), 7),
    ],
    ids=["west", "world", "date line", "from Greenwich", "a town"],
)
def test_counts_of_hexagons_add_up(tmp_path: Path, domain: vm.Domain, resolution: int) -> None:
    h3 = pytest.importorskip("h3", reason="h3 is not installed")
    geopandas = pytest.importorskip("geopandas", reason="geopandas is not installed")
    release = made(domain)
    release.export(tmp_path / "hexagons.gpkg", h3=resolution)
    found = geopandas.read_file(tmp_path / "hexagons.gpkg")
    assert found["h3"].is_unique
    assert all(h3.get_resolution(name) == resolution for name in found["h3"])
    assert plane_area(found) == pytest.approx(np.prod(domain.hi - domain.lo), rel=1e-9)
    assert found["count"].sum() == pytest.approx(total(release), rel=1e-9)
    inner = found[[geometry.geom_type == "MultiPolygon" and len(geometry.geoms) == 1 for geometry in found.geometry]]
    dense = inner.loc[inner["count"].idxmax()]
    lat, lon = h3.cell_to_latlng(dense["h3"])
    width = domain.hi - domain.lo
    assert np.all(np.abs([(lon - domain.lo[0]) % 360 + domain.lo[0], lat] - (domain.lo + domain.hi) / 2) < width / 2)


def test_hexagons_as_rows(west: vm.Release, tmp_path: Path) -> None:
    pytest.importorskip("h3", reason="h3 is not installed")
    west.export(tmp_path / "hexagons.csv", h3=2)
    found = pd.read_csv(tmp_path / "hexagons.csv")
    assert list(found.columns) == ["h3", *NUMBERS]
    assert found["count"].sum() == pytest.approx(total(west))


# --- what cannot be -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-o", "west.shp"], "The name of an export must end in one of .gpkg"),
        (["-o", "no/west.csv"], "does not exist"),
        (["-o", "west.parquet", "--overwrite"], "is the release itself"),
        (["-o", "there.csv"], "already exists"),
        (["-o", "west.tif", "--value", "median"], "density, count or stderr, got 'median'"),
        (["-o", "west.tif", "--pixels", "3x"], "such as 800x600; got '3x'"),
        (["-o", "west.tif", "--pixels", "0"], "pixels must be one whole number"),
        (["-o", "west.tif", "--pixels", "99999"], "at most 8,192 pixels per side"),
        (["-o", "west.tif", "--resolution", "1e-9"], "at most 8,192 pixels per side"),
        (["-o", "west.tif", "--resolution", "-1"], "must be above 0, got -1.0"),
        (["-o", "west.tif", "--resolution", "1", "--pixels", "5"], "Give one of them"),
        (["-o", "west.tif", "--h3", "3"], "Hexagons are polygons"),
        (["-o", "west.gpkg", "--value", "count"], "apply to rasters only"),
        (["-o", "west.csv", "--h3", "16"], "from 0 to 15, got 16"),
        (["-o", "west.csv", "--h3", "12"], "Choose a coarser resolution"),
        (["-o", "west.csv", "--confidence", "2"], "confidence"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_what_cannot_be_exported_is_said_in_a_sentence(
    west: vm.Release,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[..., Any],
    words: list[str],
    why: str,
) -> None:
    for module in ("rasterio", "h3", "shapely"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    monkeypatch.chdir(tmp_path)
    west.save("west.parquet")
    Path("there.csv").write_text("mine")
    status, _, said = run("export", "west.parquet", *words)
    assert status == 2
    assert why in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.csv", "west.parquet"]
    assert Path("there.csv").read_text() == "mine"


@pytest.mark.parametrize("kind", [*VECTORS, ".tif"])
def test_coordinate_systems_that_a_file_makes_up_are_refused(tmp_path: Path, kind: str) -> None:
    for module in ("pyproj", "pyogrio", "rasterio"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    release = made(SQUARE, "quad-opt", height=1)
    strange = replace(release, domain=vm.Domain({"x": (0, 8), "y": (0, 8)}, crs="http://127.0.0.1:9/crs"))
    with pytest.raises(BadInput, match="There is no coordinate system 'http"):
        strange.export(tmp_path / f"cells{kind}")
    assert not list(tmp_path.iterdir())
    strange.export(tmp_path / "cells.csv")


@pytest.mark.parametrize("axes", [1, 3])
@pytest.mark.parametrize("kind", [*VECTORS, ".tif"])
def test_maps_need_two_axes(tmp_path: Path, axes: int, kind: str) -> None:
    release = made(vm.Domain({f"a{k}": (0, 8) for k in range(axes)}), "quad-opt", height=1)
    with pytest.raises(
        BadInput, match=rf"needs a release with two axes; this one has {axes}\. Export to \.csv instead"
    ):
        release.export(tmp_path / f"cells{kind}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [*VECTORS, ".tif", ".csv"])
def test_an_export_that_fails_leaves_nothing(
    west: vm.Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / f"west{kind}").write_text("before")

    def fail(part: float) -> None:
        raise KeyboardInterrupt

    from veilmap.export import export

    with pytest.raises(BaseException):  # noqa: B017, PT011
        export(west, tmp_path / f"west{kind}", progress=fail)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(f"west{kind}", "before")]


def test_files_are_not_replaced_unless_asked(west: vm.Release, tmp_path: Path, run: Callable[..., Any]) -> None:
    west.save(tmp_path / "west.parquet")
    words = "export", tmp_path / "west.parquet", "-o", tmp_path / "west.csv"
    assert run(*words)[0] == 0
    assert run(*words)[0] == 2
    assert run(*words, "--overwrite")[0] == 0
    with pytest.raises(BadInput, match="File exists"):
        west.export(tmp_path / "west.csv", overwrite=False)


def test_what_is_not_private_says_so_to_whoever_exports(tmp_path: Path, run: Callable[..., Any]) -> None:
    made(SQUARE, "quad-opt", height=1).save(tmp_path / "square.parquet")
    status, _, said = run("export", tmp_path / "square.parquet", "-o", tmp_path / "square.csv")
    assert status == 0
    assert "NOT PRIVATE" in said

"""Zones in files: what `veilmap query --zones` reads, prints, writes and refuses."""

from __future__ import annotations

import csv
import io
import json

import geopandas
import numpy as np
import pyogrio
import pytest
import shapely

import veilmap as vm
from veilmap.testing import fixed_entropy

DOMAIN = vm.Domain({"lon": (0, 10), "lat": (40, 50)}, crs="EPSG:4326")
POINTS = np.random.default_rng(1).normal([5, 45], 2, (5000, 2))
ADDED = ["count", "stderr", "low", "high"]
CLOSE = {"rel": 1e-6, "abs": 1e-6}


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    path = tmp_path_factory.mktemp("release") / "points.parquet"
    vm.release(POINTS, DOMAIN, 1, "quad-opt", height=5).save(path)
    return path


def some_zones(crs="EPSG:4326"):
    shapes = [shapely.box(1, 41, 4, 44), shapely.Point(6, 45).buffer(2), shapely.box(20, 20, 30, 30), None]
    table = {"name": ["box", "circle", "elsewhere", None], "code": [1, 2, 3, 4]}
    return geopandas.GeoDataFrame(table, geometry=shapes, crs="EPSG:4326").to_crs(crs)


def written(folder, ending, crs="EPSG:4326"):
    path, zones = folder / f"zones{ending}", some_zones(crs)
    zones.to_parquet(path) if ending.endswith("parquet") else zones.to_file(path)
    return path


@pytest.mark.parametrize("ending", [".geojson", ".gpkg", ".shp", ".parquet"])
def test_zones_are_read_from_every_kind_of_file(run, released, tmp_path, ending):
    status, out, err = run("query", released, "--zones", written(tmp_path, ending), "--format", "json")
    assert (status, err) == (0, "")
    said = json.loads(out)["answers"]
    answers = vm.load(released).count(some_zones())
    assert [[row["name"], row["code"]] for row in said] == [["box", 1], ["circle", 2], ["elsewhere", 3], [None, 4]]
    columns = (answers.estimate, answers.stderr, answers.low, answers.high)
    for name, column in zip(ADDED, columns, strict=True):
        assert [row[name] for row in said] == pytest.approx(column, **CLOSE)
    assert said[2]["count"] == said[3]["high"] == 0


def test_zones_in_other_coordinates_are_reprojected(run, released, tmp_path):
    there = [run("query", released, "--zones", written(tmp_path, ".gpkg", crs)) for crs in ("EPSG:3857", "EPSG:4326")]
    assert there[0] == there[1]


def test_it_is_said_that_all_zones_are_elsewhere(run, released, tmp_path):
    path = tmp_path / "turned.geojson"
    zones = some_zones().head(1)
    zones.set_geometry(shapely.transform(zones.geometry, lambda places: places[:, ::-1])).to_file(path)
    status, out, err = run("query", released, "--zones", path, "--format", "csv")
    assert (status, out.splitlines()[1].split(",")[2:]) == (0, ["0.0"] * 4)
    assert err == f"veilmap: warning: No zone overlaps the domain, {DOMAIN}. Check that x and y are in this order.\n"
    assert run("query", released, "--zones", written(tmp_path, ".gpkg"))[2] == ""


def test_a_table_and_csv_say_the_same(run, released, tmp_path):
    path = written(tmp_path, ".geojson")
    _, table, _ = run("query", released, "--zones", path)
    _, text, _ = run("query", released, "--zones", path, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == ["name", "code", *ADDED]
    answers = vm.load(released).count(some_zones())
    assert [float(row["count"]) for row in rows] == pytest.approx(answers.estimate, **CLOSE)
    for word in ("circle", "elsewhere", f"{answers.estimate[0]:,.1f}", f"{answers.stderr[1]:,.1f}", "95 % interval"):
        assert word in table


@pytest.mark.parametrize("ending", [".geojson", ".gpkg", ".parquet", ".csv"])
def test_counts_are_written_beside_the_zones(run, released, tmp_path, ending):
    out = tmp_path / f"counts{ending}"
    status, said, _ = run("query", released, "--zones", written(tmp_path, ".gpkg"), "-o", out)
    assert status == 0
    assert said.startswith(f"Wrote {out}: 4 zones with count, stderr, low, high.")
    answers = vm.load(released).count(some_zones())
    if ending == ".csv":
        rows = list(csv.DictReader(io.StringIO(out.read_text())))
        assert [float(row["count"]) for row in rows] == pytest.approx(answers.estimate)
        return
    assert run("query", released, "--zones", written(tmp_path, ".gpkg"), "-o", out, "--overwrite")[0] == 0
    got = geopandas.read_parquet(out) if ending == ".parquet" else geopandas.read_file(out)
    assert got["count"].to_numpy() == pytest.approx(answers.estimate)
    assert got["high"].to_numpy() == pytest.approx(answers.high)
    assert got.geometry[0].equals(some_zones().geometry[0])
    statement = vm.load(released).privacy.statement()
    if ending == ".parquet":
        assert got.attrs["privacy"] == statement
    elif ending == ".geojson":
        assert json.loads(out.read_text())["description"] == statement
    elif ending == ".gpkg":
        assert pyogrio.read_info(out)["layer_metadata"]["DESCRIPTION"] == statement


@pytest.mark.parametrize("name", ["count", "Count"])
def test_columns_of_the_same_name_stay(run, released, tmp_path, name):
    path, out, again = (tmp_path / name for name in ("zones.gpkg", "counts.gpkg", "again.gpkg"))
    some_zones().assign(**{name: 7}).to_file(path)
    assert run("query", released, "--zones", path, "-o", out)[0] == 0
    got = geopandas.read_file(out)
    assert list(got[name]) == [7] * 4
    assert list(got.columns) == ["name", "code", name, *(f"veilmap_{name}" for name in ADDED), "geometry"]
    status, _, err = run("query", released, "--zones", out, "-o", again)
    assert status == 2
    assert "The zones already have columns veilmap_count, veilmap_high, veilmap_low, veilmap_stderr. Rename" in err
    assert not again.exists()


def test_a_layer_is_chosen_by_name(run, released, tmp_path):
    path = tmp_path / "zones.gpkg"
    some_zones().to_file(path, layer="counties")
    some_zones().head(1).to_file(path, layer="states")
    status, _, err = run("query", released, "--zones", path)
    assert (status, "has several layers. Its layers are counties, states. Choose one with --layer" in err) == (2, True)
    status, _, err = run("query", released, "--zones", path, "--layer", "towns")
    assert (status, "has no layer 'towns'. Its layers are counties, states" in err) == (2, True)
    _, out, _ = run("query", released, "--zones", path, "--layer", "states", "--format", "json")
    assert len(json.loads(out)["answers"]) == 1


def test_crossing_borders_are_mended_on_request(run, released, tmp_path):
    path = tmp_path / "bow.geojson"
    bow = shapely.Polygon([(2, 42), (8, 48), (8, 42), (2, 48)])
    geopandas.GeoDataFrame({"name": ["bow"]}, geometry=[bow], crs="EPSG:4326").to_file(path)
    status, _, err = run("query", released, "--zones", path)
    assert status == 2
    assert "Zone 0 is not a valid polygon" in err
    assert "--make-valid" in err
    _, out, _ = run("query", released, "--zones", path, "--make-valid", "--format", "json")
    both = shapely.union(*(shapely.Polygon([(x, 42), (5, 45), (x, 48)]) for x in (2, 8)))
    assert json.loads(out)["answers"][0]["count"] == pytest.approx(vm.load(released).count(both).estimate[0], rel=1e-9)


def test_dates_and_odd_values_are_printed(run, released, tmp_path):
    path = tmp_path / "zones.parquet"
    zones = some_zones().assign(when=np.array(["2026-11-16", "NaT"] * 2, "datetime64[ns]"), share=[0.5, np.nan] * 2)
    zones.to_parquet(path)
    _, out, _ = run("query", released, "--zones", path, "--format", "json")
    assert [(row["when"], row["share"]) for row in json.loads(out)["answers"]][:2] == [
        ("2026-11-16 00:00:00", 0.5),
        (None, None),
    ]


def test_names_of_zones_do_not_command_the_terminal(run, released, tmp_path):
    path = tmp_path / "zones.gpkg"
    some_zones().assign(name="\x1b[31mred").to_file(path)
    _, out, _ = run("query", released, "--zones", path)
    assert "\x1b" not in out
    assert "red" in out


def bad_files(folder):
    points = geopandas.GeoDataFrame({"a": [1]}, geometry=[shapely.Point(1, 41)], crs="EPSG:4326")
    points.to_file(folder / "points.geojson")
    (folder / "text.geojson").write_text("not at all")
    (folder / "cut.gpkg").write_bytes((written(folder, ".gpkg")).read_bytes()[:5000])
    points.drop(columns="geometry").to_parquet(folder / "plain.parquet")
    (folder / "table.csv").write_text("a,b\n1,2\n")
    pyogrio.write_dataframe(points.drop(columns="geometry"), folder / "table.gpkg")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--zones", "nowhere.geojson"), "There is no zone file"),
        (("--zones", "/vsicurl/http://localhost/x.geojson"), "There is no zone file"),
        (("--zones", "points.geojson"), "zone 0 is a Point. Leave it out"),
        (
            ("--zones", "text.geojson"),
            "No zones can be read from 'text.geojson'. The file is damaged, its content does",
        ),
        (("--zones", "cut.gpkg"), "No zones can be read from"),
        (("--zones", "plain.parquet"), "No zones can be read from"),
        (("--zones", "plain.parquet", "--layer", "x"), "is a .parquet file, which has no layers"),
        (("--zones", "table.csv"), "from 'table.csv': the suffix selects the format and must be one of .gpkg"),
        (("--zones", "table.gpkg"), "has rows without shapes. Give a file with a polygon in each row"),
        (("--zones", "zones.gpkg", "--box", "0,40,1,41"), "or zones (--zones FILE), but not both"),
        (("--zones", "zones.gpkg", "--confidence", "95"), "confidence of an interval lies between 0 and 1"),
        (("--zones", "zones.gpkg", "-o", "zones.gpkg"), "zones.gpkg already exists. Choose another name"),
        (
            ("--zones", "zones.gpkg", "-o", "zones.gpkg", "--overwrite"),
            "zones.gpkg is the file of zones and would be lost",
        ),
        (("--zones", "zones.gpkg", "-o", "counts.shp"), "The suffix of a zone file must be one of .gpkg"),
        (("--zones", "zones.gpkg", "-o", "no/such/counts.gpkg"), "does not exist. Create it first"),
        (("--box", "0,40,1,41", "-o", "counts.csv"), "--layer, --make-valid and --out need --zones"),
    ],
)
def test_bad_questions_get_a_sentence_and_leave_nothing(run, released, tmp_path, monkeypatch, words, sentence):
    bad_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    status, out, err = run("query", released, *words)
    assert (status, out) == (2, "")
    assert err.startswith("veilmap: ")
    assert sentence in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_what_is_not_private_says_so(run, tmp_path):
    with fixed_entropy(1):
        vm.release(POINTS, DOMAIN, 1, "quad-opt", height=2).save(tmp_path / "made.parquet")
    status, _, err = run("query", tmp_path / "made.parquet", "--zones", written(tmp_path, ".geojson"))
    assert status == 0
    assert "not private" in err.lower()

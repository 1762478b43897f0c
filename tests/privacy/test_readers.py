"""One more record changes the output of a reader by at most that record, in every format and with any content.

A reader gets a file with some records, and the same file with one more record at any position. The rows may then differ
by one row; with a unit, the rows of one unit may differ by one row. Proof: proofs/readers.md.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import veilmap as vm
from tests import naive
from veilmap.domain import Domain
from veilmap.engines import open_points
from veilmap.errors import UnreadableInput
from veilmap.geofiles import sandbox
from veilmap.geofiles.geojson import Collection, NotACollection
from veilmap.kernels.parsing import scan_json, settle_records
from veilmap.testing import fixed_entropy

DOMAIN = Domain({"x": (0.0, 1.0), "y": (0.0, 1.0)})


class Record(NamedTuple):
    x: Any
    y: Any
    who: Any
    name: str


OTHER_FILE = (
    '<OGRVRTDataSource><OGRVRTLayer name="other"><SrcDataSource>{}</SrcDataSource></OGRVRTLayer></OGRVRTDataSource>'
)
FIRST_ID = 1_700_000_000_000_000_000
HOSTILE_NAMES = (
    OTHER_FILE.format("/etc/passwd"),
    '"coordRefSys": "http://www.opengis.net/def/crs/EPSG/0/25832"',
    '"}, {"type": "Feature", "geometry": null}',
    'two\nlines\n0.5,0.5,7,x\n"',
    '0.5,0.5,1,a\r\n0.5,0.5,2,b\r\n0.5,0.5,3,c',
    '"', '""', '",', '\\"', "x" * 300, "\0", "\x1e", "NaN", "=1+1", "", "ä\u2028€",
)  # fmt: skip
texts = st.one_of(st.sampled_from(HOSTILE_NAMES), st.text(st.characters(codec="utf-8"), max_size=20))
places = st.one_of(st.floats(0, 1), st.sampled_from([None, -1.0, 2.0, 1e308]))
ids = st.one_of(st.integers(FIRST_ID, FIRST_ID + 9), st.none())
odd = st.one_of(places, ids, texts, st.booleans(), st.just(0.5))
tidy = st.builds(Record, places, places, ids, texts)
"""Records with values of the types that a file declares."""
untidy = st.builds(Record, odd, odd, odd, texts)
"""Records with values of any types, for files that declare none."""

PEOPLE = [Record(0.1 + 0.05 * (k % 7), 0.3, FIRST_ID + k % 5, f"p{k}") for k in range(12)]
"""Rows of five people. Their ids are different, but equal when rounded to floats."""


def rows_of(points: object) -> Counter[tuple[int, ...]]:
    cells, _ = open_points(points, DOMAIN).rows(DOMAIN, lambda part: None)
    return Counter(zip(*(axis.tolist() for axis in cells), strict=True))


def units_of(points: object) -> Counter[tuple[tuple[int, ...], ...]]:
    """Return the number of units for each multiset of rows that a unit has."""
    cells, codes = open_points(points, DOMAIN, "who", 1000).rows(DOMAIN, lambda part: None)
    assert codes is not None
    units: dict[int, list[tuple[int, ...]]] = {}
    for code, *row in zip(codes.tolist(), *(axis.tolist() for axis in cells), strict=True):
        units.setdefault(code, []).append(tuple(row))
    return Counter(tuple(sorted(rows)) for rows in units.values())


def assert_one_apart(less: Counter[Any], more: Counter[Any]) -> None:
    """Check that ``more`` has at most one additional row and lacks none."""
    assert not less - more
    assert (more - less).total() <= 1


def assert_one_unit_apart(less: Counter[Any], more: Counter[Any]) -> None:
    """Check that at most one unit has one additional row, and all others are equal."""
    gone, come = list((less - more).elements()), list((more - less).elements())
    assert (len(gone), len(come)) in ((0, 0), (0, 1), (1, 1))
    assert_one_apart(Counter(gone[0] if gone else ()), Counter(come[0] if come else ()))


def assert_neighbours(write: Callable[[list[Any]], object], records: list[Any], record: Any, place: int) -> None:
    """Compare the rows read from some records with those read after one more record is inserted."""
    place %= len(records) + 1
    more = [*records[:place], record, *records[place:]]
    assert_one_apart(rows_of(write(records)), rows_of(write(more)))
    assert_one_unit_apart(units_of(write(records)), units_of(write(more)))


# Writers of records


def write_text(path: Path, records: list[Record | str], separator: str) -> str:
    """Write records with quoted fields where needed. Texts are written as lines without quoting."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=separator, lineterminator="\n")
        writer.writerow(Record._fields)
        for record in records:
            if isinstance(record, str):
                file.write(record + "\n")
            else:
                writer.writerow(["" if value is None else value for value in record])
    return str(path)


def feature(record: Record) -> dict[str, Any]:
    geometry = {"type": "Point", "coordinates": [record.x, record.y]}
    return {"type": "Feature", "properties": {"who": record.who, "name": record.name}, "geometry": geometry}


def write_geojson(path: Path, records: list[Any], *, before: bool = True) -> str:
    """Write a FeatureCollection. Members that are not a Record are written unchanged and may be any JSON."""
    features = [feature(record) if isinstance(record, Record) else record for record in records]
    crs = {"type": "name", "properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}
    parts = {"type": "FeatureCollection", "crs": crs, "features": features}
    path.write_text(json.dumps(parts if before else dict(reversed(parts.items()))))
    return str(path)


def write_geojson_lines(path: Path, records: list[Record | str]) -> str:
    """Write one record per line. Texts are written as lines unchanged."""
    lines = [json.dumps(feature(record)) if isinstance(record, Record) else record for record in records]
    path.write_text("".join(line + "\n" for line in lines), newline="")
    return str(path)


def as_table(records: list[Record]) -> pa.Table:
    kinds = (pa.float64(), pa.float64(), pa.int64(), pa.string())
    columns = zip(*records, strict=True) if records else [()] * 4
    return pa.table(dict(zip(Record._fields, map(pa.array, columns, kinds), strict=True)))


def as_geoframe(records: list[Record]) -> Any:
    geopandas, shapely = pytest.importorskip("geopandas"), pytest.importorskip("shapely")
    shapes = [None if None in (r.x, r.y) else shapely.Point(r.x, r.y) for r in records]
    table = {"who": [str(r.who) for r in records], "name": [r.name for r in records]}
    return geopandas.GeoDataFrame(table, geometry=shapes, crs="EPSG:4326")


def write_parquet(path: Path, table: pa.Table) -> str:
    pq.write_table(table, path, row_group_size=5)
    return str(path)


def write_geoparquet(path: Path, records: list[Record]) -> str:
    as_geoframe(records).to_parquet(path)
    return str(path)


def write_duckdb(path: Path, records: list[Record]) -> Any:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as connection:
        connection.register("given", as_table(records))
        connection.execute("CREATE TABLE people AS FROM given")
    return duckdb.connect(str(path), read_only=True).sql("FROM people")


def as_pandas(records: list[Record]) -> Any:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    columns = zip(*records, strict=True) if records else [()] * 4
    return pandas.DataFrame(
        {name: pandas.Series(list(values), dtype=object) for name, values in zip(Record._fields, columns, strict=True)}
    )


def as_polars(records: list[Record]) -> Any:
    return pytest.importorskip("polars", reason="polars is not installed").from_arrow(as_table(records))


Write = Callable[[Path, list[Any]], Any]
TIDY: dict[str, Write] = {
    "Parquet": lambda folder, records: write_parquet(folder / "p.parquet", as_table(records)),
    "GeoParquet": lambda folder, records: write_geoparquet(folder / "p.parquet", records),
    "DuckDB file": lambda folder, records: write_duckdb(folder / "p.duckdb", records),
    "polars": lambda folder, records: as_polars(records),
    "Arrow": lambda folder, records: as_table(records),
    "GeoDataFrame": lambda folder, records: as_geoframe(records),
}
UNTIDY: dict[str, Write] = {
    "CSV": lambda folder, records: write_text(folder / "p.csv", records, ","),
    "TSV": lambda folder, records: write_text(folder / "p.tsv", records, "\t"),
    "CSV, gzip": lambda folder, records: write_text(folder / "p.csv.gz", records, ","),
    "GeoJSON": lambda folder, records: write_geojson(folder / "p.geojson", records),
    "JSON, features first": lambda folder, records: write_geojson(folder / "p.json", records, before=False),
    "GeoJSONL": lambda folder, records: write_geojson_lines(folder / "p.geojsonl", records),
    "pandas objects": lambda folder, records: as_pandas(records),
}
anywhere = st.integers(0, 100)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readers")


@pytest.mark.parametrize("kind", TIDY)
@settings(max_examples=20)
@given(st.lists(tidy, max_size=6), tidy, anywhere)
def test_one_record_of_declared_types_changes_one_row(
    folder: Path, kind: str, records: list[Record], record: Record, place: int
) -> None:
    assert_neighbours(lambda some: TIDY[kind](folder, some), [*PEOPLE, *records], record, place)


@pytest.mark.parametrize("kind", UNTIDY)
@settings(max_examples=30)
@given(st.lists(untidy, max_size=6), untidy, anywhere)
@example([], Record(0.5, 0.5, 0.5, "half"), 3)
@example([], Record(0.5, 10**400, 10**400, "huge"), 3)
@example([], Record("north", "here", 7, HOSTILE_NAMES[0]), 0)
def test_one_record_of_any_types_changes_one_row(
    folder: Path, kind: str, records: list[Record], record: Record, place: int
) -> None:
    assert_neighbours(lambda some: UNTIDY[kind](folder, some), [*PEOPLE, *records], record, place)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
strange_features = st.fixed_dictionaries(
    {},
    optional={
        "type": st.one_of(st.just("Feature"), json_values),
        "coordRefSys": json_values,
        "crs": json_values,
        "features": json_values,
        "properties": st.one_of(json_values, st.dictionaries(st.sampled_from(["who", "x", "name"]), json_values)),
        "geometry": st.one_of(
            json_values,
            st.fixed_dictionaries(
                {"type": st.sampled_from(["Point", "Polygon", "GeometryCollection"]), "coordinates": json_values}
            ),
        ),
    },
)


@pytest.mark.parametrize("before", [True, False])
@given(st.one_of(strange_features, json_values), anywhere)
@example({"type": "Feature", "coordRefSys": "x", "geometry": None}, 0)
@example({"name": OTHER_FILE.format("/vsicurl/http://127.0.0.1:9/x.csv")}, 0)
def test_any_json_among_features_changes_one_row(folder: Path, before: bool, value: Any, place: int) -> None:
    assert_neighbours(lambda some: write_geojson(folder / "f.geojson", some, before=before), PEOPLE, value, place)


LINES = ("null", "7", "[]", "hello", "", "{", '{"type": "Feature"', '"', "]", "}{", "\x1e{}", "[" * 5000, "1" * 5000)


@given(st.one_of(st.sampled_from(LINES), st.text(st.characters(codec="utf-8", exclude_characters="\n"))), anywhere)
@example("hello", 1)
@example("[1", 1)
def test_any_line_among_features_changes_one_row(folder: Path, line: str, place: int) -> None:
    assert_neighbours(lambda some: write_geojson_lines(folder / "f.geojsonl", some), PEOPLE, line, place)


@given(st.one_of(texts, st.text('",;\tx01.')).map(lambda text: text.replace("\n", " ").replace("\r", " ")), anywhere)
@example('0.5,0.5,1,"open', 0)
def test_any_line_among_lines_without_quotes_changes_one_row(folder: Path, line: str, place: int) -> None:
    assert_neighbours(lambda some: write_text(folder / "l.csv", some, ","), PEOPLE, line, place)


def test_a_record_is_no_row_for_each_line_that_it_holds(folder: Path) -> None:
    """Otherwise the author of one text field could make it count any number of times."""
    forged = "\n".join(["", *["0.9,0.9,1,x"] * 50, ""])
    more = write_text(folder / "forged.csv", [*PEOPLE, Record(0.5, 0.5, 3, forged)], ",")
    assert rows_of(more).total() == len(PEOPLE) + 1
    assert not any(count > 1 for cell, count in rows_of(more).items() if cell == naive_cell(0.9, 0.9))


def naive_cell(x: float, y: float) -> tuple[int | None, ...]:
    return tuple(naive.cell(value, 0.0, 1.0, DOMAIN.side) for value in (x, y))


# Files that GDAL reads

HOSTILE = [
    Record(0.5, 0.5, FIRST_ID, OTHER_FILE.format("/etc/passwd")),
    Record(None, None, 7, "no place"),
    Record(0.25, 0.25, FIRST_ID + 99, "a\nb\0c\x1e" + "x" * 200),
]


@pytest.mark.parametrize("ending", ["gpkg", "fgb", "shp"])
def test_one_record_of_a_gis_file_changes_one_row(tmp_path: Path, ending: str) -> None:
    def write(name: str, records: list[Record]) -> str:
        path = tmp_path / f"{name}.{ending}"
        how = {"SPATIAL_INDEX": "NO"} if ending == "fgb" else {}  # which would need a place for each row
        as_geoframe([r._replace(name=r.name.replace("\0", " ")) for r in records]).to_file(path, **how)
        return str(path)

    less = units_of(write("less", PEOPLE))
    assert less.total() == 5
    for k, record in enumerate(HOSTILE):
        assert_one_unit_apart(less, units_of(write(f"more{k}", [*PEOPLE[:k], record, *PEOPLE[k:]])))


def test_a_value_of_another_type_in_a_geopackage_changes_one_row(tmp_path: Path) -> None:
    """SQLite stores values of any type in any column."""
    path = tmp_path / "p.gpkg"
    as_geoframe(PEOPLE).to_file(path)
    less = units_of(str(path))
    with sqlite3.connect(path) as database:
        database.execute("DROP TRIGGER IF EXISTS rtree_p_geom_insert")
        database.executemany(
            "INSERT INTO p (geom, who, name) VALUES (?, ?, ?)",
            [(b"no geometry", 0.5, b"\xff"), ("text", b"\xff\xfe", 7), (7, None, None)],
        )
    database.close()
    assert units_of(str(path)) == less


# The text of a row does not open another file


class Bait(NamedTuple):
    file: Path
    address: str
    asked: list[str]


@pytest.fixture
def bait(tmp_path: Path) -> Iterator[Bait]:
    """Provide a file with rows and a secret, and a local server that records its requests."""
    asked: list[str] = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *words: object) -> None:
            pass

    file = tmp_path / "other.csv"
    file.write_text("x,y,name,WKT\n" + '0.9,0.9,the secret,"POLYGON ((0 0, 1 0, 1 1, 0 0))"\n' * 777)
    with HTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield Bait(file, f"/vsicurl/http://127.0.0.1:{server.server_port}/other.csv", asked)
        server.shutdown()
        thread.join()


def vrt(source: object) -> str:
    return (
        f'<OGRVRTDataSource><OGRVRTLayer name="other"><SrcDataSource>{source}</SrcDataSource>'
        '<GeometryType>wkbPoint</GeometryType><GeometryField encoding="PointFromColumns" x="x" y="y"/>'
        "</OGRVRTLayer></OGRVRTDataSource>"
    )


@pytest.mark.parametrize("ending", ["geojson", "json", "geojsonl"])
@pytest.mark.parametrize("remote", [False, True])
def test_a_name_does_not_replace_the_data_set(tmp_path: Path, bait: Bait, ending: str, remote: bool) -> None:
    forged = Record(0.5, 0.5, 1, vrt(bait.address if remote else bait.file))
    people = [Record(0.25, 0.25, k, "someone") for k in range(3000)]
    write = write_geojson_lines if ending == "geojsonl" else write_geojson
    path = write(tmp_path / f"people.{ending}", [forged, *people])
    with fixed_entropy(3):
        counts = vm.release(path, DOMAIN, 1, "quad-opt", height=3).count([[0, 0, 0.375, 0.375], [0.75, 0.75, 1, 1]])
    assert counts.estimate == pytest.approx([3000, 0], abs=40)
    assert not bait.asked


ZONE_TRICKS = {
    "vrt": lambda bait: vrt(bait.file),
    "vrt over the network": lambda bait: vrt(bait.address),
    "feature": lambda bait: json.dumps({"type": "Feature", "properties": {"name": vrt(bait.file)}, "geometry": None}),
    "link": lambda bait: json.dumps(
        {
            "type": "FeatureCollection",
            "crs": {"type": "link", "properties": {"href": bait.address.removeprefix("/vsicurl/"), "type": "proj4"}},
            "features": [],
        }
    ),
    "CSV": lambda bait: f"WKT,name\n{bait.file},x\n",
}


@pytest.mark.parametrize(
    ("ending", "trick"),
    [
        *(("geojson", trick) for trick in ZONE_TRICKS),
        *((ending, "vrt") for ending in ("json", "gpkg", "fgb", "shp", "parquet")),
        *((ending, "vrt over the network") for ending in ("gpkg", "fgb")),
        ("geojsonl", "feature"),
    ],
)
def test_nothing_is_read_but_the_zones_that_were_named(tmp_path: Path, bait: Bait, ending: str, trick: str) -> None:
    pytest.importorskip("geopandas", reason="geopandas is not installed")
    from veilmap.answers.zone_files import read_zones

    path = tmp_path / f"zones.{ending}"
    path.write_text(ZONE_TRICKS[trick](bait))
    try:
        said = read_zones(path).to_csv()
    except UnreadableInput as error:
        said = str(error)
    assert "the secret" not in said
    assert not bait.asked


@pytest.mark.parametrize(
    "program",
    [
        "CREATE VIEW other AS SELECT * FROM p",
        "CREATE VIRTUAL TABLE other USING rtree(id, a, b); CREATE VIRTUAL TABLE text USING fts5(a)",
        "ALTER TABLE p ADD COLUMN other TEXT GENERATED ALWAYS AS (upper(name)) VIRTUAL",
    ],
)
def test_programs_in_a_geopackage_are_not_run(tmp_path: Path, program: str) -> None:
    path = tmp_path / "p.gpkg"
    as_geoframe(PEOPLE).to_file(path)
    with sqlite3.connect(path) as database:
        database.executescript(program)
    database.close()
    with pytest.raises(
        UnreadableInput, match=r"has views, virtual tables or computed columns, which are not supported"
    ):
        open_points(str(path), DOMAIN)


def test_a_geopackage_that_keeps_a_journal_is_read(tmp_path: Path) -> None:
    """GIS programs leave such files, for which SQLite would create another file in the folder."""
    path = tmp_path / "p.gpkg"
    as_geoframe(PEOPLE).to_file(path)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE more (a)")
    database.close()
    assert rows_of(str(path)).total() == len(PEOPLE)
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.skipif(not sandbox.version(), reason="this system has no Landlock")
def test_a_confined_process_opens_no_other_file_and_no_connection(bait: Bait) -> None:
    script = """if True:
        import socket, sys
        from veilmap.geofiles.sandbox import confine
        named, other, port = sys.argv[1:]
        assert confine([named])
        print(open(named).read())
        for attempt in (
            lambda: open(other),
            lambda: open("/etc/passwd"),
            lambda: open(named, "a"),
            lambda: open(named + ".new", "w"),
            lambda: socket.create_connection(("127.0.0.1", int(port))),
        ):
            try:
                attempt()
                print("it could")
            except PermissionError:
                print("refused")
    """
    named = bait.file.with_name("zones.geojson")
    named.write_text("the zones")
    port = re.findall(r":(\d+)/", bait.address)[0]
    done = subprocess.run(
        [sys.executable, "-c", script, named, bait.file, port], capture_output=True, text=True, check=True
    )
    connected = "refused" if sandbox.version() >= sandbox.FIRST_VERSION_WITH_TCP else "it could"
    assert done.stdout.split("\n") == ["the zones", *["refused"] * 4, connected, ""]


@pytest.mark.parametrize(("rows", "fits"), [(1 << 10, True), (1 << 23, False)])
def test_a_file_of_zones_that_takes_too_much_is_refused(tmp_path: Path, rows: int, fits: bool) -> None:
    pytest.importorskip("geopandas", reason="geopandas is not installed")
    from veilmap.answers.zone_files import read_zones

    path = tmp_path / "bomb.parquet"
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), ["x" * (1 << 10)])
    geometry = {"encoding": "WKB", "geometry_types": []}
    about = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": geometry}}
    table = pa.table({"geometry": pa.nulls(rows, pa.binary()), "name": names})
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:  # so that texts are read, not numbers
        writer.write_table(table)
        writer.add_key_value_metadata({"geo": json.dumps(about)})
    assert path.stat().st_size < 1 << 20
    if fits:
        assert len(read_zones(path)) == rows
        return
    with pytest.raises(UnreadableInput, match=r"No zones can be read from .* takes more than 2 GiB of memory or 5"):
        read_zones(path)


SPELT_OUT = (
    'GEOGCRS["x",DATUM["unknown",ELLIPSOID["WGS 84",6378137,298.257223563]],CS[ellipsoidal,2],AXIS["lat",north],'
    'AXIS["lon",east],ANGLEUNIT["degree",0.0174532925199433]{}]'
)
GRID = 'REMARK["PROJ CRS string: +proj=longlat +nadgrids={} +type=crs"]'


@pytest.mark.parametrize("remark", ["", "," + GRID], ids=["spelt out", "with a grid"])
def test_a_reference_system_that_a_file_spells_out_stays_in_its_process(tmp_path: Path, remark: str) -> None:
    """PROJ would open the files that it names, and the process that counts can open any file."""
    pytest.importorskip("geopandas", reason="geopandas is not installed")
    from veilmap.answers.zone_files import read_zones

    crs = SPELT_OUT.format(remark.format("/etc/passwd"))
    square = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]}
    features = [{"type": "Feature", "id": "DE1", "properties": {"n": 1}, "geometry": square}]
    named = {"type": "name", "properties": {"name": crs}}
    path = tmp_path / "zones.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "crs": named, "features": features}))
    found = read_zones(path)
    assert found.crs.to_authority() == ("OGC", "CRS84")
    assert found.geometry.total_bounds.tolist() == pytest.approx([0, 0, 1, 1], abs=1e-6)
    assert list(found["id"]) == ["DE1"]


def test_zones_with_a_second_geometry_are_read(tmp_path: Path) -> None:
    from veilmap.answers.zone_files import read_zones

    frame = as_geoframe(PEOPLE)
    frame.assign(more=frame.geometry).to_parquet(tmp_path / "z.parquet")
    assert list(read_zones(tmp_path / "z.parquet").columns) == ["who", "name", "geometry"]


def test_drivers_that_the_owner_has_disabled_cause_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.gpkg"
    as_geoframe(PEOPLE).to_file(path)
    listed = pytest.importorskip("pyogrio").list_drivers()
    monkeypatch.setattr("pyogrio.list_drivers", lambda: {name: how for name, how in listed.items() if name != "DXF"})
    monkeypatch.setenv("GDAL_SKIP", "DXF")
    assert rows_of(str(path)).total() == len(PEOPLE)


# Types that DuckDB guesses


def test_a_query_does_not_guess_types(tmp_path: Path) -> None:
    """One person with the id 0.5 would turn all ids into floats, and 400 people into a few."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    rows = [Record(0.5, 0.5, FIRST_ID + k, "") for k in range(400)] + [Record(0.5, 0.5, 0.5, "")]
    path = Path(write_text(tmp_path / "p.csv", rows, ","))
    (tmp_path / "p.json").write_text(json.dumps([row._asdict() for row in rows]))
    duckdb.sql(f"CREATE OR REPLACE VIEW hidden AS FROM '{path}'")
    many = " UNION ALL ".join(["FROM hidden"] * 40)
    sources = [f"'{path}'", f"read_csv('{path}', all_varchar = true)", f"'{tmp_path / 'p.json'}'", "hidden"]
    sources += [f"({many})", "(FROM range(3) JOIN hidden ON true)", "(WITH t AS MATERIALIZED (FROM hidden) FROM t)"]
    for source in sources:
        with pytest.raises(UnreadableInput, match=r"whose types DuckDB guesses from its rows\. Give the file itself"):
            open_points(duckdb.sql(f"SELECT x, y, who FROM {source} WHERE x IS NOT NULL"), DOMAIN, "who")  # noqa: S608
    with pytest.raises(UnreadableInput, match="whose types DuckDB guesses"):
        open_points(duckdb.read_csv(str(path)), DOMAIN)
    assert units_of(str(path)).total() == 401


def test_a_query_of_a_data_frame_does_not_guess_the_type_of_ids() -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    frame = as_pandas(PEOPLE)
    with pytest.raises(UnreadableInput, match=r"may guess the type of its column 'who'.* Give the data frame itself"):
        open_points(duckdb.from_df(frame), DOMAIN, "who")
    assert units_of(frame).total() == 5


# Kernels compared with slow reference implementations


@given(st.text('"{}[],:\\ a0', max_size=40), st.integers(1, 5))
def test_structure_of_json_is_found_in_blocks_of_any_size(text: str, size: int) -> None:
    data, state, found = np.frombuffer(text.encode(), np.uint8), np.zeros(2, np.int64), []
    for start in range(0, len(data), size):
        block, marks, depths = data[start : start + size], np.empty(size, np.int64), np.empty(size, np.int64)
        number = scan_json(block, state, marks, depths)
        found += [(start + m, d) for m, d in zip(marks[:number].tolist(), depths[:number].tolist(), strict=True)]
    assert found == naive.scan_json(text)


@given(json_values, st.integers(1, 7))
def test_members_of_a_collection_are_those_that_json_has(value: Any, size: int) -> None:
    document = {"type": "FeatureCollection", "a": value, "features": [value, value, 7], "b": value}
    text = json.dumps(document)

    class Drip:
        place = 0

        def read(self, _: int) -> bytes:
            block = text.encode()[self.place : self.place + size]
            self.place += size
            return block

    collection = Collection(Drip())  # type: ignore[arg-type]
    records = [json.loads(record) for block in collection.blocks() for record in block]
    assert json.dumps(records) == json.dumps(document["features"])
    assert json.dumps(collection.members) == json.dumps({k: v for k, v in document.items() if k != "features"})


@pytest.mark.parametrize("features", ["{}", "7", "null", '"x"'])
def test_features_that_are_not_a_list_are_refused(tmp_path: Path, features: str) -> None:
    path = tmp_path / "p.geojson"
    path.write_text(f'{{"type": "FeatureCollection", "features": {features}}}')
    with pytest.raises(UnreadableInput, match=r"is not a GeoJSON FeatureCollection"):
        open_points(str(path), DOMAIN)


def test_members_other_than_features_may_be_long(tmp_path: Path) -> None:
    path = tmp_path / "p.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "bbox": [1] * 500_000, "features": []}))
    assert not rows_of(str(path))


@pytest.mark.parametrize("ending", ["geojson", "geojsonl"])
@pytest.mark.parametrize("size", [5, 64, 1000])
def test_a_record_that_is_too_long_is_dropped_wherever_blocks_end(
    tmp_path: Path, ending: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from veilmap.geofiles import geojson

    monkeypatch.setattr(geojson, "BLOCK_BYTES", size)
    monkeypatch.setattr(geojson, "MAX_RECORD_BYTES", 200)
    long = [Record(0.5, 0.5, 1, "x" * length) for length in (60, 250, 900)]
    write = write_geojson_lines if ending == "geojsonl" else write_geojson
    assert rows_of(write(tmp_path / f"p.{ending}", [*PEOPLE, *long])).total() == len(PEOPLE) + 1


@given(st.text('{}[]",: ', max_size=12))
def test_text_that_is_not_a_collection_is_refused(text: str) -> None:
    import io

    with pytest.raises(NotACollection):
        list(Collection(io.BytesIO(text.encode())).blocks())


@given(st.text('",\n\rx', max_size=14), st.integers(0, 14), st.integers(0, 14))
@example('",\n"', 3, 14)
def test_settle_records_agrees_with_its_reference(text: str, cut: int, max_bytes: int) -> None:
    for final, some in ((True, text), (False, text[:cut])):
        data = np.frombuffer(some.encode(), np.uint8).copy()
        end = settle_records(data, ord(","), max_bytes, final)
        assert (data[:end].tobytes().decode(), end) == naive.settle_records(some, ",", max_bytes, final)

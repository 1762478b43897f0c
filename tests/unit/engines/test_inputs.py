"""The same points in any input give the same exact counts, and error messages are clear and reveal no data."""

from __future__ import annotations

import dataclasses
import decimal
import gzip
import json
import os
import struct
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import veilmap
from tests import naive
from veilmap.domain import Domain
from veilmap.engines import batches, open_points
from veilmap.engines.csv import _parse_numbers
from veilmap.engines.geometry import coordinates, crs_label
from veilmap.engines.tally import Grid
from veilmap.errors import BadInput, UnreadableInput
from veilmap.kernels.parsing import read_points

FLAT = Domain({"lon": (-10.0, 20.0), "lat": (0.0, 7.0)})
SOLID = Domain({"lon": (-10.0, 20.0), "lat": (0.0, 7.0), "age": (0.0, 100.0)})
PARTS = 8
NUMERIC = ("int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64")
SECRET = "7.31415926"  # noqa: S105 - a value that no message may quote


def grid_of(domain: Domain) -> Grid:
    return Grid((PARTS,) * domain.dimensions)


def count(points: object, domain: Domain = FLAT) -> np.ndarray:
    return open_points(points, domain).tally(domain, grid_of(domain), lambda part: None)


def naive_count(points: np.ndarray, domain: Domain = FLAT) -> np.ndarray:
    """Count one point at a time."""
    counts = np.zeros((PARTS,) * domain.dimensions, np.int64)
    for point in np.asarray(points, float):
        if not all(axis.lo <= value <= axis.hi for axis, value in zip(domain.axes, point, strict=True)):
            continue
        place = (point - domain.lo) / (domain.hi - domain.lo) * domain.side
        cell = np.minimum(np.floor(place), domain.side - 1)
        counts[tuple((cell * PARTS / domain.side).astype(int))] += 1
    return counts.ravel()


def cells_of(points: object, domain: Domain = FLAT) -> np.ndarray:
    return np.stack(open_points(points, domain).rows(domain, lambda part: None)[0], axis=1)


def naive_cells(points: np.ndarray, domain: Domain = FLAT) -> np.ndarray:
    """Return the cells of points that are not dropped, in order, computed one point at a time."""
    found = []
    for point in np.asarray(points, float):
        row = [naive.cell(x, a.lo, a.hi, domain.side) for x, a in zip(point, domain.axes, strict=True)]
        if None not in row:
            found.append(row)
    return np.array(found, np.int64).reshape(-1, domain.dimensions)


def some_points(rows: int = 400) -> np.ndarray:
    """Return three columns with values inside, outside and on the edges; some are NaN or infinite."""
    random = np.random.default_rng(7)
    points = np.column_stack(
        [random.uniform(-12, 22, rows), random.uniform(-0.5, 7.5, rows), random.uniform(-5, 105, rows)]
    ).round(6)
    odd = [
        [20.0, 7.0, 100.0],  # the upper corner counts in the last cell
        [-10.0, 0.0, 0.0],
        [20.0, 0.0, 50.0],
        [np.nextafter(20.0, 21.0), 1.0, 1.0],
        [5.0, 3.5, 50.0],  # on inner lines
        [np.nan, 1.0, 1.0],
        [1.0, np.nan, 1.0],
        [1.0, 1.0, np.nan],
        [np.inf, 1.0, 1.0],
        [1.0, -np.inf, 1.0],
    ]
    return np.concatenate([points, odd])


POINTS = some_points()


def table(points: np.ndarray = POINTS) -> pa.Table:
    """Return a table with NaN as null in every other row, and with unused columns."""
    odd = np.arange(len(points)) % 2 == 1
    columns = {
        name: pa.array(points[:, a], mask=np.isnan(points[:, a]) & odd) for a, name in enumerate(("lon", "lat", "age"))
    }
    return pa.table({"name": pa.array(["x"] * len(points)), **columns, "when": pa.nulls(len(points), pa.date32())})


def wkb(x: float, y: float, *, big: bool = False, kind: int = 1, srid: int | None = None, more: tuple = ()) -> bytes:
    order = ">" if big else "<"
    flag, middle = (0x20000000, struct.pack(order + "I", srid)) if srid is not None else (0, b"")
    head = struct.pack(order + "BI", 0 if big else 1, kind | flag)
    return head + middle + struct.pack(f"{order}{2 + len(more)}d", x, y, *more)


def wkb_column(points: np.ndarray = POINTS, **options: Any) -> pa.Array:
    return pa.array([None if np.isnan(p[:2]).all() else wkb(p[0], p[1], **options) for p in points], pa.binary())


def geo_metadata(column: str = "geometry", **about: Any) -> dict[bytes, bytes]:
    record = {"version": "1.1.0", "primary_column": column, "columns": {column: {"encoding": "WKB", **about}}}
    return {b"geo": json.dumps(record).encode()}


def geo_table(**about: Any) -> pa.Table:
    ages = table()["age"]
    return pa.table({"age": ages, "geometry": wkb_column()}).replace_schema_metadata(geo_metadata(**about))


def write_csv(path: Path, rows: np.ndarray = POINTS, separator: str = ",", header: str = "id,lon,lat,age") -> str:
    lines = [header.replace(",", separator)]
    for i, row in enumerate(rows):
        cells = ["" if np.isnan(value) else repr(float(value)) for value in row]
        lines.append(separator.join([f"r{i}", *cells]))
    text = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return str(path)


def write_parquet(path: Path, rows: pa.Table | None = None, **options: Any) -> str:
    pq.write_table(table() if rows is None else rows, path, **options)
    return str(path)


def geoframe(points: np.ndarray = POINTS, crs: object = None) -> Any:
    geopandas = pytest.importorskip("geopandas", reason="geopandas is not installed")
    shapely = pytest.importorskip("shapely")
    shapes = np.array([None if np.isnan(p[:2]).any() else shapely.Point(p[:2]) for p in points], object)
    return geopandas.GeoDataFrame({"age": points[:, 2], "odd": [{}] * len(points)}, geometry=shapes, crs=crs)


def write_layer(path: Path, frame: Any = None, **options: Any) -> str:
    pyogrio = pytest.importorskip("pyogrio", reason="pyogrio is not installed")
    frame = (geoframe() if frame is None else frame).drop(columns="odd", errors="ignore")
    frame = frame[~np.isinf(frame.bounds).any(axis=1)]  # a Shapefile has no infinite points
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pyogrio.write_dataframe(frame, path, **options)
    return str(path)


def pandas_frame() -> Any:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    return pandas.DataFrame(
        {"odd": [{1}] * len(POINTS), **{n: POINTS[:, a] for a, n in enumerate(SOLID.names)}}, index=POINTS[:, 0]
    )


def nullable_frame() -> Any:
    return pandas_frame().drop(columns="odd").astype("Float64")


def polars_frame() -> Any:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    return polars.concat([polars.DataFrame(table().slice(s, 100)) for s in range(0, len(POINTS), 100)], rechunk=False)


def relation() -> Any:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    kept = table()  # duckdb finds it by its name
    return duckdb.connect().from_arrow(kept)


def reader() -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table().schema, table().to_batches(max_chunksize=37))


def masked() -> np.ma.MaskedArray:
    filled = np.where(np.isnan(POINTS), 1.0, POINTS)
    return np.ma.MaskedArray(filled, mask=np.isnan(POINTS))


def with_none() -> list[list[float | None]]:
    return [[None if np.isnan(value) else value for value in row] for row in POINTS.tolist()]


def view_columns() -> pa.Table:
    """Return a slice of many chunks, with one dictionary-encoded column."""
    chunks = pa.concat_tables([table().slice(0, 11), table(), table().slice(0, 5)]).slice(11, len(POINTS))
    place = chunks.schema.get_field_index("age")
    return chunks.set_column(place, "age", chunks["age"].dictionary_encode())


IN_MEMORY: dict[str, Callable[[], object]] = {
    "array": lambda: POINTS,
    "Fortran array": lambda: np.asfortranarray(POINTS),
    "reversed array": lambda: POINTS[::-1],
    "masked array": masked,
    "nested list": POINTS.tolist,
    "nested list with None": with_none,
    "pandas": pandas_frame,
    "pandas with its own nulls": nullable_frame,
    "polars, chunked": polars_frame,
    "Arrow table": table,
    "Arrow table, chunked, sliced, dictionary": view_columns,
    "Arrow batch": lambda: table().to_batches()[0],
    "Arrow stream": reader,
    "DuckDB relation": relation,
    "GeoDataFrame": geoframe,
    "GeoDataFrame with crs": lambda: geoframe(crs="EPSG:4326"),
    "WKB table": geo_table,
    "WKB table without metadata": lambda: geo_table().replace_schema_metadata(None),
    "WKB in a stream": lambda: pa.RecordBatchReader.from_batches(geo_table().schema, geo_table().to_batches(50)),
}

IN_FILES: dict[str, Callable[[Path], object]] = {
    "csv": lambda d: write_csv(d / "a.csv"),
    "Path": lambda d: Path(write_csv(d / "a.CSV")),
    "csv.gz": lambda d: write_csv(d / "a.csv.gz"),
    "semicolons": lambda d: write_csv(d / "a.csv", separator=";"),
    "tabs": lambda d: write_csv(d / "a.tsv", separator="\t"),
    "padded names": lambda d: write_csv(d / "a.txt", header="id, lon , lat,age"),
    "quoted names": lambda d: write_csv(d / "a.csv", header='"id;x;y;z","lon","lat","age"'),
    "unnamed and doubled columns": lambda d: write_csv(d / "a.csv", np.c_[POINTS, POINTS], header=",lon,lat,age,x,x,"),
    "parquet": lambda d: write_parquet(d / "a.parquet"),
    "parquet, many row groups": lambda d: write_parquet(d / "a.pq", row_group_size=7),
    "parquet, brotli pages": lambda d: write_parquet(d / "a.parquet", compression="gzip", data_page_size=64),
    "GeoParquet": lambda d: write_parquet(d / "a.geoparquet", geo_table()),
    "GeoParquet by geopandas": lambda d: geoframe().drop(columns="odd").to_parquet(d / "g.parquet") or d / "g.parquet",
    "GeoParquet, GeoArrow encoding": lambda d: (
        geoframe().drop(columns="odd").to_parquet(d / "g.parquet", geometry_encoding="geoarrow") or d / "g.parquet"
    ),
    "GeoPackage": lambda d: write_layer(d / "a.gpkg"),
    "Shapefile": lambda d: write_layer(d / "a.shp"),
    "FlatGeobuf": lambda d: write_layer(d / "a.fgb", SPATIAL_INDEX="NO"),
    "GeoJSON": lambda d: write_layer(d / "a.geojson", COORDINATE_PRECISION=17),
    "list of many small files": lambda d: [
        write_csv(d / f"{i}.csv", rows) if i % 2 else write_parquet(d / f"{i}.parquet", table(rows))
        for i, rows in enumerate(np.array_split(POINTS, 60))
    ],
    "tuple of mixed kinds": lambda d: (
        write_csv(d / "a.csv", POINTS[:100]),
        Path(write_parquet(d / "b.parquet", table(POINTS[100:200]))),
        write_layer(d / "c.gpkg", geoframe(POINTS[200:])),
        write_csv(d / "empty.csv", POINTS[:0]),
    ),
}


class TestSamePointsSameCounts:
    @pytest.mark.parametrize("kind", IN_MEMORY)
    def test_in_memory(self, kind: str) -> None:
        np.testing.assert_array_equal(count(IN_MEMORY[kind](), SOLID), naive_count(POINTS, SOLID))

    @pytest.mark.parametrize("kind", IN_FILES)
    def test_in_files(self, kind: str, tmp_path: Path) -> None:
        np.testing.assert_array_equal(count(IN_FILES[kind](tmp_path), SOLID), naive_count(POINTS, SOLID))

    @pytest.mark.parametrize("kind", [k for k in IN_MEMORY if "array" not in k and "list" not in k])
    def test_two_axes_of_a_wider_table(self, kind: str) -> None:
        np.testing.assert_array_equal(count(IN_MEMORY[kind]()), naive_count(POINTS[:, :2]))

    @pytest.mark.parametrize("kind", IN_FILES)
    def test_two_axes_of_a_wider_file(self, kind: str, tmp_path: Path) -> None:
        np.testing.assert_array_equal(count(IN_FILES[kind](tmp_path)), naive_count(POINTS[:, :2]))

    @pytest.mark.parametrize("kind", [k for k in IN_MEMORY if k != "Arrow stream" and "stream" not in k])
    def test_inputs_other_than_streams_can_be_counted_again(self, kind: str) -> None:
        engine = open_points(IN_MEMORY[kind](), SOLID)
        for _ in range(2):
            counts = engine.tally(SOLID, grid_of(SOLID), lambda part: None)
            np.testing.assert_array_equal(counts, naive_count(POINTS, SOLID))

    @pytest.mark.parametrize("kind", IN_MEMORY)
    def test_cells_in_memory_are_those_of_the_points_in_their_order(self, kind: str) -> None:
        points = POINTS[::-1] if kind == "reversed array" else POINTS
        np.testing.assert_array_equal(cells_of(IN_MEMORY[kind](), SOLID), naive_cells(points, SOLID))

    @pytest.mark.parametrize("kind", IN_FILES)
    def test_cells_in_files_are_those_of_the_points_in_their_order(self, kind: str, tmp_path: Path) -> None:
        np.testing.assert_array_equal(cells_of(IN_FILES[kind](tmp_path), SOLID), naive_cells(POINTS, SOLID))

    def test_files_can_be_counted_again(self, tmp_path: Path) -> None:
        engine = open_points(IN_FILES["tuple of mixed kinds"](tmp_path), SOLID)
        for _ in range(2):
            counts = engine.tally(SOLID, grid_of(SOLID), lambda part: None)
            np.testing.assert_array_equal(counts, naive_count(POINTS, SOLID))

    def test_the_order_of_columns_does_not_matter(self, tmp_path: Path) -> None:
        turned = table().select(["age", "lat", "lon"])
        np.testing.assert_array_equal(count(turned, SOLID), naive_count(POINTS, SOLID))
        path = write_csv(tmp_path / "a.csv", POINTS[:, ::-1], header="id,age,lat,lon")
        np.testing.assert_array_equal(count(path, SOLID), naive_count(POINTS, SOLID))
        path = write_parquet(tmp_path / "a.parquet", turned)
        np.testing.assert_array_equal(count(path, SOLID), naive_count(POINTS, SOLID))

    def test_one_axis(self, tmp_path: Path) -> None:
        line = Domain({"age": (0.0, 100.0)})
        expected = naive_count(POINTS[:, 2:], line)
        assert (count(POINTS[:, 2], line) == expected).all()
        assert (count(table(), line) == expected).all()
        assert (count(write_csv(tmp_path / "a.csv"), line) == expected).all()
        assert (count(geo_table(), line) == expected).all()

    def test_a_release_takes_a_path(self, tmp_path: Path) -> None:
        release = veilmap.release(write_parquet(tmp_path / "a.parquet"), FLAT, epsilon=1, method="quad-opt", height=2)
        assert release.count([[-10.0, 0.0, 20.0, 7.0]]).estimate.shape == (1,)

    def test_rows_come_in_many_pieces(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        points = np.random.default_rng(3).uniform([-11, -1, 0], [21, 8, 1], (20_000, 3))
        monkeypatch.setattr("veilmap.engines.parquet.PIECE_BYTES", 8 * 2 * 999)
        monkeypatch.setattr("veilmap.engines.csv.BLOCK_BYTES", 1 << 14)
        monkeypatch.setattr("veilmap.engines.tally.ROWS_PER_CHUNK", 100)
        monkeypatch.setattr(batches, "MAX_ROWS_PER_SUM", 1500)
        inside = points[((points[:, :2] >= FLAT.lo) & (points[:, :2] <= FLAT.hi)).all(axis=1), :2]
        boxes = np.floor((inside - FLAT.lo) / (FLAT.hi - FLAT.lo) * PARTS).astype(int)
        expected = np.bincount(boxes[:, 0] * PARTS + boxes[:, 1], minlength=PARTS**2)
        for kind in (
            points[:, :2],
            write_parquet(tmp_path / "a.parquet", table(points), row_group_size=5000),
            write_csv(tmp_path / "a.csv", points),
            write_csv(tmp_path / "a.csv.gz", points),
        ):
            np.testing.assert_array_equal(count(kind), expected)
            np.testing.assert_array_equal(cells_of(kind), naive_cells(points[:, :2]))


class TestTypes:
    @pytest.mark.parametrize(
        "kind",
        [
            "int8",
            "uint16",
            "int32",
            "int64",
            "uint64",
            "float16",
            "float32",
            "float64",
            "decimal32",
            "decimal64",
            "decimal128",
            "decimal256",
        ],
    )
    def test_every_numeric_type(self, kind: str, tmp_path: Path) -> None:
        whole = np.random.default_rng(1).integers(0, 25, (200, 2))
        if kind.startswith("decimal"):
            columns = [pa.array([decimal.Decimal(int(v)) for v in c], getattr(pa, kind)(9, 3)) for c in whole.T]
        else:
            columns = [pa.array(c.astype(kind)) for c in whole.T]
        rows = pa.table(columns, names=FLAT.names)
        np.testing.assert_array_equal(count(rows), naive_count(whole))
        np.testing.assert_array_equal(count(write_parquet(tmp_path / "a.parquet", rows)), naive_count(whole))

    @pytest.mark.parametrize("kind", [np.int8, np.uint64, np.int64, np.float16, np.float32])
    def test_numpy_types(self, kind: type) -> None:
        whole = np.random.default_rng(1).integers(0, 25, (200, 2))
        np.testing.assert_array_equal(count(whole.astype(kind)), naive_count(whole))

    def test_nulls_are_dropped_and_what_lies_under_them_is_not_read(self) -> None:
        lon = pa.array([1.0, 2.0, 3.0], mask=np.array([False, True, False]))
        whole = pa.array([1, 2, 3], mask=np.array([False, False, True]))
        assert count(pa.table({"lon": lon, "lat": whole})).sum() == 1

    @pytest.mark.parametrize(
        "column",
        [["a"], [True], pa.array([0], pa.date32()), [b"a"], [[1.0]], pa.array([1], pa.duration("s"))],
        ids=["text", "bool", "date", "bytes", "list", "duration"],
    )
    def test_other_types_are_refused(self, column: Any, tmp_path: Path) -> None:
        rows = pa.table({"lon": [1.5], "lat": column})
        for points in (rows, write_parquet(tmp_path / "a.parquet", rows)):
            with pytest.raises(UnreadableInput, match=r"must have numbers in column 'lat'.*got .*Convert that column"):
                open_points(points, FLAT)

    def test_a_categorical_text_column_is_refused(self) -> None:
        rows = pa.table({"lon": [1.5], "lat": pa.array(["a"]).dictionary_encode()})
        with pytest.raises(UnreadableInput, match=r"got string\. Convert"):
            open_points(rows, FLAT)


class TestNoRows:
    @pytest.mark.parametrize(
        "points",
        [
            np.empty((0, 2)),
            table(POINTS[:0]),
            geo_table().slice(0, 0),
            pa.table({"lon": pa.nulls(0), "lat": pa.nulls(0)}),
        ],
        ids=["array", "table", "geometry", "null columns"],
    )
    def test_in_memory(self, points: object) -> None:
        assert not count(points).any()

    def test_frames(self) -> None:
        pandas = pytest.importorskip("pandas", reason="pandas is not installed")
        polars = pytest.importorskip("polars", reason="polars is not installed")
        for package in (pandas, polars):
            assert not count(package.DataFrame({"lon": [], "lat": []})).any()
        assert not count(geoframe(POINTS[:0])).any()

    def test_streams_without_batches(self) -> None:
        assert not count(pa.RecordBatchReader.from_batches(table().schema, [])).any()

    def test_in_files(self, tmp_path: Path) -> None:
        assert not count(write_parquet(tmp_path / "a.parquet", table(POINTS[:0]))).any()
        assert not count(write_layer(tmp_path / "a.gpkg", geoframe(POINTS[:0]), geometry_type="Point")).any()
        for i, text in enumerate(["lon,lat", "lon,lat\n", "\ufefflon,lat\r\n\r\n", "\n\nlon;lat\n \n\n"]):
            (tmp_path / f"{i}.csv").write_text(text, encoding="utf-8")
            assert not count(tmp_path / f"{i}.csv").any()


class TestText:
    def check(self, path: Path, text: str | bytes, expected: list[list[float]]) -> None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        np.testing.assert_array_equal(count(path), naive_count(np.array(expected)))

    def test_junk_drops_its_row_and_no_other(self, tmp_path: Path) -> None:
        text = 'lon,lat\n1.5,2\n-,2\n3, 4 \nNA,1\n+5,6\n1_0,1\n٣,3\n1e0,.5\n1.,1\n0x1,1\n1e999,1\n"2","3"\n,\n'
        self.check(tmp_path / "a.csv", text, [[1.5, 2], [3, 4], [5, 6], [1, 0.5], [1, 1], [2, 3]])

    def test_ragged_rows_are_skipped(self, tmp_path: Path) -> None:
        self.check(tmp_path / "a.csv", "lon,lat\n1,2\n1\n1,2,3\n3,4\n", [[1, 2], [3, 4]])

    def test_a_quoted_cell_may_hold_separators_and_line_breaks(self, tmp_path: Path) -> None:
        text = 'lon,note,lat\n1,"a,b;""c""",2\n5,"a line\n7,break,7\r\n",6\n3,,4\n'
        self.check(tmp_path / "a.csv", text, [[1, 2], [5, 6], [3, 4]])

    @pytest.mark.parametrize("stray", ['"', '"a', '"a""b', 'x,"', '"x"y,"z', '"\r"x'])
    def test_a_stray_quote_spoils_its_line_alone(self, stray: str, tmp_path: Path) -> None:
        for rest in ("", '"quoted, and closed",5,6\n', '5" pipe,5,6\n'):
            text = f"note,lon,lat\n,1,2\n3,4,{stray}\n,3,4\n{rest}"
            self.check(tmp_path / "a.csv", text, [[1, 2], [3, 4], *([[5, 6]] if rest else [])])

    def test_byte_order_mark_and_line_ends(self, tmp_path: Path) -> None:
        self.check(tmp_path / "a.csv", "\ufefflon,lat\r\n1,2\r\n3,4", [[1, 2], [3, 4]])

    def test_bytes_that_are_not_utf8_harm_only_their_row(self, tmp_path: Path) -> None:
        self.check(tmp_path / "a.csv", b"lon,na\xefve,lat\n1,\xff,2\n3,b,\xff4\n5,c,6\n", [[1, 2], [5, 6]])

    def test_a_bar_separates_too(self, tmp_path: Path) -> None:
        self.check(tmp_path / "a.txt", "lon|lat|note, long, with, commas\n1|2|x\n", [[1, 2]])

    @settings(deadline=None, max_examples=60)
    @given(
        cells=st.lists(
            st.one_of(
                st.floats().map(repr),
                st.integers().map(str),
                st.sampled_from(
                    ["", " ", "-", "+1", "1e5", "1E+5", ".", "1.", ".5", "nan", "-inf", "1,5", "1 2", "--1"]
                ),
                st.text(st.characters(codec="ascii", exclude_characters="\r\n\0"), max_size=6),
            ),
            min_size=1,
            max_size=8,
        )
    )
    def test_what_a_cell_becomes_does_not_depend_on_other_cells(self, cells: list[str]) -> None:
        """Otherwise the row of one person could change how the row of another is read."""
        together = _parse_numbers(pa.array(cells))
        alone = np.concatenate([_parse_numbers(pa.array([cell])) for cell in cells])
        finite = np.isfinite(together) | np.isfinite(alone)  # rows with NaN or infinite values are dropped
        np.testing.assert_array_equal(together[finite], alone[finite])

    def test_numbers_are_read_to_the_last_bit(self) -> None:
        values = np.random.default_rng(2).normal(size=500) * 10.0 ** np.arange(-250, 250)
        texts = [repr(float(value)) for value in values]
        np.testing.assert_array_equal(_parse_numbers(pa.array(texts)), values)
        np.testing.assert_array_equal(_parse_numbers(pa.array([*texts, "junk"]))[:-1], values)

    @pytest.mark.parametrize("column", ["north", "47,5", "12°"])
    def test_what_is_not_a_number_drops_its_row_even_if_no_row_has_one(self, column: str, tmp_path: Path) -> None:
        rows = f"lon;lat\n1;{column}\n2;{column}\n3;\n"
        self.check(tmp_path / "a.csv", rows, [[np.nan, np.nan]])
        self.check(tmp_path / "a.csv", rows + "4;5\n", [[4, 5]])

    def test_an_empty_column_is_not_refused(self, tmp_path: Path) -> None:
        self.check(tmp_path / "a.csv", "lon,lat\n1,\n2, \n", [[np.nan, np.nan]])

    def test_lines_that_do_not_fit_the_header_are_dropped_even_if_all_do_not(self, tmp_path: Path) -> None:
        self.check(tmp_path / "a.csv", "lon,lat\n1,1,2\n2,3,4\n", [[np.nan, np.nan]])

    def test_a_file_without_header_does_not_show_its_first_row(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text(f"Alice,{SECRET},2\nBob,3,4\n")
        refuses(path, "has no column 'lon'.*Name them, in a text file by a header in the first line", SECRET, "Alice")

    def test_another_encoding_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text(f"lon,lat\n{SECRET},2\n", encoding="utf-16")
        refuses(path, "not UTF-8 text")


class TestGeometry:
    OPTIONS = ({}, {"big": True}, {"srid": 4326}, {"srid": 4326, "big": True})

    @pytest.mark.parametrize("options", OPTIONS, ids=str)
    @pytest.mark.parametrize(
        ("kind", "more"),
        [(1, ()), (1001, (9.0,)), (2001, (9.0,)), (3001, (9.0, 9.0)), (0x80000001, (9.0,)), (0xC0000001, (9.0, 9.0))],
    )
    def test_every_form_of_wkb_point(self, options: dict[str, Any], kind: int, more: tuple) -> None:
        x, y = coordinates(wkb_column(POINTS, kind=kind, more=more, **options))
        np.testing.assert_array_equal(np.column_stack([x, y]), POINTS[:, :2])

    def test_what_is_not_a_point_has_no_coordinates(self) -> None:
        line = struct.pack("<BII4d", 1, 2, 2, 1.0, 1.0, 2.0, 2.0)
        several = struct.pack("<BII", 1, 4, 1) + wkb(1.0, 1.0)
        odd = [line, several, b"", b"\x01", wkb(1.0, 1.0)[:20], wkb(1.0, 1.0, srid=1)[:24], b"\x07" + wkb(1.0, 1.0)[1:]]
        empty = [wkb(np.nan, np.nan), None]
        for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
            x, y = coordinates(pa.array([*odd, *empty, wkb(3.0, 4.0)], kind))
            assert np.isnan(x[:-1]).all()
            assert np.isnan(y[:-1]).all()
            assert (x[-1], y[-1]) == (3.0, 4.0)

    def test_slices_and_chunks(self) -> None:
        column = wkb_column()
        for part in (column[13:77], pa.chunked_array([column[:5], column[5:5], column[5:]])[3:50], column[:0]):
            first = 13 if isinstance(part, pa.Array) else 3
            x, y = coordinates(part)
            np.testing.assert_array_equal(np.column_stack([x, y]), POINTS[first : first + len(part), :2])
        assert len(coordinates(pa.chunked_array([], pa.binary()))[0]) == 0

    def test_a_null_hides_the_point_under_it(self) -> None:
        whole = pa.array([wkb(1.0, 2.0), wkb(3.0, 4.0)])
        _, offsets, data = whole.buffers()
        hidden = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x01"), offsets, data])
        np.testing.assert_array_equal(coordinates(hidden)[0], [1.0, np.nan])

    def test_the_kernel_agrees_with_shapely_on_any_geometry(self) -> None:
        shapely = pytest.importorskip("shapely", reason="shapely is not installed")
        shapes = [shapely.Point(1, 2), shapely.Point(1, 2, 3), shapely.Point(), shapely.LineString([(0, 0), (1, 1)])]
        shapes += [shapely.MultiPoint([(1, 1)]), shapely.box(0, 0, 1, 1), shapely.GeometryCollection()]
        whole = [None if shape.is_empty else shape for shape in shapes]
        for flavor in ("extended", "iso"):
            for order in (0, 1):
                for dimension in (2, 3):
                    column = shapely.to_wkb(shapes, byte_order=order, output_dimension=dimension, flavor=flavor)
                    x, y = coordinates(pa.array(column.tolist()))
                    np.testing.assert_array_equal(x, shapely.get_x(whole))
                    np.testing.assert_array_equal(y, shapely.get_y(whole))

    def test_random_bytes_do_no_harm(self) -> None:
        random = np.random.default_rng(5)
        data = random.integers(0, 3, 5000).astype(np.uint8)
        offsets = np.sort(random.integers(0, 5000, 400))
        x, y = np.empty(399), np.empty(399)
        read_points(data, offsets, x, y)
        assert (np.isnan(x) == np.isnan(y)).all()
        read_points(data, offsets * 7 - 3000, x, y)  # outside the bytes
        assert (np.isnan(x) == np.isnan(y)).all()

    @pytest.mark.parametrize("metadata", [True, False])
    @pytest.mark.parametrize("interleaved", [True, False])
    def test_geoarrow_points(self, metadata: bool, interleaved: bool) -> None:
        xy = POINTS[:, :2]
        if interleaved:
            column = pa.FixedSizeListArray.from_arrays(pa.array(xy.ravel()), 2)
        else:
            column = pa.StructArray.from_arrays([pa.array(xy[:, 0]), pa.array(xy[:, 1])], ["x", "y"])
        said = {"ARROW:extension:name": "geoarrow.point", "ARROW:extension:metadata": '{"crs": "EPSG:4326"}'}
        field = pa.field("place" if metadata else "geometry", column.type, metadata=said if metadata else None)
        rows = pa.table([column], schema=pa.schema([field]))
        np.testing.assert_array_equal(count(rows), naive_count(xy))

    def test_columns_win_over_the_geometry(self) -> None:
        rows = table().append_column("geometry", pa.array([b""] * len(POINTS)))
        np.testing.assert_array_equal(count(rows), naive_count(POINTS[:, :2]))

    def test_single_other_shapes_are_dropped(self, tmp_path: Path) -> None:
        shapely = pytest.importorskip("shapely", reason="shapely is not installed")
        frame = geoframe(POINTS[:50])
        frame.loc[len(frame)] = [1.0, {}, shapely.box(1, 1, 2, 2)]
        frame.loc[len(frame)] = [1.0, {}, shapely.Point()]
        expected = naive_count(POINTS[:50, :2])
        np.testing.assert_array_equal(count(frame), expected)
        frame.drop(columns="odd").to_parquet(tmp_path / "a.parquet")
        np.testing.assert_array_equal(count(tmp_path / "a.parquet"), expected)

    def test_a_geoparquet_file_that_declares_other_shapes_is_refused(self, tmp_path: Path) -> None:
        path = write_parquet(tmp_path / "a.parquet", geo_table(geometry_types=["Polygon", "MultiPolygon"]))
        refuses(
            path,
            "must hold points.*'geometry' is declared as Polygon or MultiPolygon. Convert each geometry to a point",
        )
        path = write_parquet(tmp_path / "b.parquet", geo_table(encoding="linestring"))
        refuses(path, "is declared as linestring")
        assert count(write_parquet(tmp_path / "c.parquet", geo_table(geometry_types=["Point Z", "Polygon"]))).any()

    def test_a_layer_of_other_shapes_is_refused(self, tmp_path: Path) -> None:
        shapely = pytest.importorskip("shapely", reason="shapely is not installed")
        frame = geoframe(POINTS[:3])
        frame["geometry"] = [shapely.box(1, 1, 2, 2)] * 3
        refuses(write_layer(tmp_path / "a.gpkg", frame), "is declared as Polygon. Convert each geometry to a point")

    def test_the_layer_of_points_is_found_among_others(self, tmp_path: Path) -> None:
        shapely = pytest.importorskip("shapely", reason="shapely is not installed")
        frame = geoframe(POINTS[:3])
        frame["geometry"] = [shapely.box(1, 1, 2, 2)] * 3
        write_layer(tmp_path / "a.gpkg", frame, layer="areas")
        path = write_layer(tmp_path / "a.gpkg", layer="places", append=True)
        np.testing.assert_array_equal(count(path), naive_count(POINTS[:, :2]))
        write_layer(tmp_path / "a.gpkg", layer="more", append=True)
        refuses(path, "one layer.*got areas, places, more. Save the layer you mean")

    def test_a_missing_third_axis_is_named(self) -> None:
        refuses(geo_table().drop_columns("age"), r"has no column 'age'.*There are: geometry\.", domain=SOLID)

    def test_a_geometry_of_text_is_refused(self) -> None:
        rows = pa.table({"geometry": ["POINT (1 2)"]}).replace_schema_metadata(geo_metadata())
        refuses(rows, "must be WKB or GeoArrow points, got string. Convert it", "POINT")

    def test_invalid_metadata_is_ignored(self) -> None:
        for text in (b"{", b"[]", b'{"primary_column": "other", "columns": {}}', b'{"columns": 1}'):
            np.testing.assert_array_equal(
                count(geo_table().replace_schema_metadata({b"geo": text})), naive_count(POINTS[:, :2])
            )


class TestReferenceSystems:
    LABELS = (
        ("EPSG:4326", "OGC:CRS84"),
        ("ogc:crs84", "OGC:CRS84"),
        ("CRS84", "OGC:CRS84"),
        ("urn:ogc:def:crs:OGC:1.3:CRS84", "OGC:CRS84"),
        ("urn:ogc:def:crs:EPSG::3857", "EPSG:3857"),
        ({"id": {"authority": "EPSG", "code": 3857}}, "EPSG:3857"),
        ('{"id": {"authority": "EPSG", "code": 3857}}', "EPSG:3857"),
        ({"name": "home-made"}, None),
        ('GEOGCS["WGS 84"]', None),
        (None, None),
    )

    @pytest.mark.parametrize(("crs", "label"), LABELS, ids=str)
    def test_labels(self, crs: object, label: str | None) -> None:
        assert crs_label(crs) == label

    def in_crs(self, crs: str | None) -> Domain:
        return Domain({"lon": (-10.0, 20.0), "lat": (0.0, 7.0)}, crs=crs)

    @pytest.mark.parametrize("crs", ["EPSG:4326", "OGC:CRS84", None, "my own"])
    def test_the_same_or_an_unknown_one_is_fine(self, crs: str | None, tmp_path: Path) -> None:
        projjson = {"id": {"authority": "OGC", "code": "CRS84"}}
        for points in (
            geo_table(),
            geo_table(crs=projjson),
            geo_table(crs=None),
            table(),
            geoframe(crs=4326),
            geoframe(),
        ):
            assert count(points, self.in_crs(crs)).any()
        assert count(write_layer(tmp_path / "a.gpkg", geoframe(crs=4326)), self.in_crs(crs)).any()

    def test_another_one_is_refused(self, tmp_path: Path) -> None:
        metres, degrees = self.in_crs("EPSG:3857"), self.in_crs("EPSG:4326")
        sentence = "are in OGC:CRS84 but the domain is in EPSG:3857. Reproject"
        for points in (
            geo_table(),
            write_parquet(tmp_path / "a.parquet", geo_table()),
            geoframe(crs=4326),
            write_layer(tmp_path / "a.gpkg", geoframe(crs=4326)),
        ):
            with pytest.raises(BadInput, match=sentence):
                open_points(points, metres)
        for points in (geo_table(crs={"id": {"authority": "EPSG", "code": 3857}}), geoframe(crs=3857)):
            with pytest.raises(BadInput, match=r"are in EPSG:3857 but the domain is in EPSG:4326\. Reproject"):
                open_points(points, degrees)

    def test_the_crs_of_an_unused_geometry_is_ignored(self) -> None:
        rows = table().append_column("geometry", wkb_column()).replace_schema_metadata(geo_metadata())
        assert count(rows, self.in_crs("EPSG:3857")).any()


def told(error: BaseException | None) -> Iterator[str]:
    """Yield all texts of an exception, its cause and its context."""
    if error is not None:
        yield f"{error} {error!r} {getattr(error, '__notes__', '')}"
        yield from told(error.__cause__)
        yield from told(error.__context__)


def refuses(
    points: object, sentence: str, *secrets: str, domain: Domain = FLAT, kind: type[Exception] = UnreadableInput
) -> None:
    with pytest.raises(kind, match=sentence) as caught:
        count(points, domain)
    said = list(told(caught.value))
    assert len(said) == 1, "the library's own exception is still attached"
    assert not any(secret in said[0] for secret in (SECRET, *secrets))
    assert str(caught.value).endswith((".", "?"))


class TestRefusals:
    def test_missing_columns_are_named_with_near_misses(self, tmp_path: Path) -> None:
        rows = table().rename_columns(["name", "longitude", "Lat", "age", "when"])
        csv = tmp_path / "a.csv"
        pacsv.write_csv(rows.slice(0, 3), csv)
        frames = [rows, rows.to_reader(), write_parquet(tmp_path / "a.parquet", rows), csv]
        if pandas := pytest.importorskip("pandas", reason="pandas is not installed"):
            frames.append(pandas.DataFrame({name: [1.5] for name in rows.column_names}))
        for points in frames:
            refuses(
                points, r"has no column 'lon'.*Did you mean 'longitude'.*There are: name, longitude, Lat, age, when\."
            )

    def test_a_layer_without_geometry_or_columns(self, tmp_path: Path) -> None:
        pandas = pytest.importorskip("pandas", reason="pandas is not installed")
        pyogrio = pytest.importorskip("pyogrio", reason="pyogrio is not installed")
        path = tmp_path / "a.gpkg"
        pyogrio.write_dataframe(pandas.DataFrame({"lon": [1.0, 2.0], "lat": [1.0, 2.0]}), path)
        assert count(path).sum() == 2
        refuses(path, "has no column 'age'.*There are: lon, lat", domain=SOLID)

    def test_doubled_columns(self, tmp_path: Path) -> None:
        rows = pa.table([pa.array([1.5])] * 3, names=["lon", "lat", "lat"])
        (tmp_path / "a.csv").write_text("lon,lat,lat\n1,2,3\n")
        pandas = pytest.importorskip("pandas", reason="pandas is not installed")
        frame = pandas.DataFrame([[1.5, 2.5, 3.5]], columns=["lon", "lat", "lat"])
        for points in (rows, tmp_path / "a.csv", frame):
            refuses(points, "more than one column 'lat'. Rename")

    def test_a_table_whose_names_are_numbers_does_not_show_them(self) -> None:
        refuses(pa.table({SECRET: [1.5], "2": [1.5]}), "columns have no names")

    def test_objects_in_a_column_count_one_by_one(self) -> None:
        pandas = pytest.importorskip("pandas", reason="pandas is not installed")
        odd = [1.0, 2, "3.5", decimal.Decimal(4), np.int8(5), None, pandas.NA, {SECRET}, True, "x", 10**400, "4,0"]
        frame = pandas.DataFrame({"lon": 1.0, "lat": pandas.Series(odd, dtype=object)})
        expected = naive_count(np.array([[1, 1], [1, 2], [1, 3.5], [1, 4], [1, 5]]))
        np.testing.assert_array_equal(count(frame), expected)

    def test_a_stream_can_be_counted_once(self) -> None:
        engine = open_points(reader(), FLAT)
        engine.tally(FLAT, grid_of(FLAT), lambda part: None)
        with pytest.raises(UnreadableInput, match=r"can be read only once, and this one has been read\. Open it again"):
            engine.tally(FLAT, grid_of(FLAT), lambda part: None)

    def test_a_stream_that_breaks_off(self) -> None:
        def breaking() -> Iterator[pa.RecordBatch]:
            yield table().to_batches()[0]
            raise ValueError(f"cannot parse {SECRET}")

        refuses(pa.RecordBatchReader.from_batches(table().schema, breaking()), "failed before its end")

    def test_a_relation_that_fails_midway(self) -> None:
        duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
        text = f"select x::double as lon, 1.5 as lat from (values ('1.5'), ('{SECRET}x')) t(x)"  # noqa: S608
        refuses(duckdb.connect().sql(text), "failed before its end")

    def test_what_is_not_a_table(self) -> None:
        pandas = pytest.importorskip("pandas", reason="pandas is not installed")
        refuses(pandas.Series([float(SECRET)]), "cannot be read as a table. Give a data frame with .* lon, lat")

    @pytest.mark.parametrize(
        ("points", "sentence"),
        [
            ({"lon": [float(SECRET)]}, "Points must be an array, a data frame, the path.*got dict"),
            (None, "got NoneType"),
            ([[1.0, 2.0], [float(SECRET)]], "one list of numbers per point, all of one length"),
            ([[1.0, None], [SECRET + "x", 2.0]], "one list of numbers per point"),
            ([["a", SECRET]], "one list of numbers per point"),
            (["a.csv", float(SECRET)], "one list of numbers per point, all of one length, or only paths"),
            (np.array([["a", SECRET + "x"]], object), "must be numbers, got an array of type object. Convert"),
            ([["a.csv"], 1.0], "one list of numbers per point"),
            (np.array([[True, False]]), "must be numbers, got an array of type bool"),
            (np.ones((4, 3)), "for 2 axes .lon, lat. must have one column per axis, got 3"),
            (np.ones(4), "got 1 dimensions instead of 2"),
            (1.5, "got 0 dimensions instead of 2"),
        ],
        ids=[
            "dict",
            "None",
            "ragged",
            "text and None",
            "text",
            "path and number",
            "objects",
            "odd list",
            "bool",
            "3",
            "1",
            "0",
        ],
    )
    def test_odd_objects(self, points: object, sentence: str) -> None:
        refuses(points, sentence, kind=BadInput)


class TestBrokenFiles:
    def test_no_such_file(self, tmp_path: Path) -> None:
        refuses(tmp_path / "a.csv", "There is no file '.*a.csv'. Check its name")
        refuses([write_csv(tmp_path / "b.csv"), str(tmp_path / "a.parquet")], "There is no file '.*a.parquet'")

    def test_a_folder(self, tmp_path: Path) -> None:
        refuses(str(tmp_path), "is a folder. Give the list of its files")

    def test_not_a_regular_file(self) -> None:
        refuses(os.devnull, r"is not a regular file \(pipes.*Write the points to a file first")

    def test_no_permission(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write_csv(tmp_path / "a.csv")
        monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read anything
        refuses(path, "You do not have permission to read.*Ask its owner")

    @pytest.mark.parametrize("ending", ["csv", "parquet", "gpkg", "shp", "csv.gz"])
    def test_empty(self, ending: str, tmp_path: Path) -> None:
        (tmp_path / f"a.{ending}").touch()
        refuses(tmp_path / f"a.{ending}", "is empty")

    def test_blank_text(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("\n \n")
        refuses(tmp_path / "a.csv", "is empty. Its first line must name the columns lon, lat")
        (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b""))
        refuses(tmp_path / "a.csv.gz", "is empty")

    def test_an_unknown_ending(self, tmp_path: Path) -> None:
        for name in ("a.xlsx", "a"):
            (tmp_path / name).write_text(SECRET)
            refuses(
                tmp_path / name,
                r"decides how the file is read, and that of .* is not known.*Rename the file to one of \.csv,",
            )

    def test_text_renamed_parquet(self, tmp_path: Path) -> None:
        (tmp_path / "a.parquet").write_text(f"lon,lat\n{SECRET},1\n")
        refuses(tmp_path / "a.parquet", "has the name of a Parquet file but is not one.*Rename it")

    @pytest.mark.parametrize("ending", ["gpkg", "shp", "fgb"])
    def test_text_renamed_as_a_layer(self, ending: str, tmp_path: Path) -> None:
        pytest.importorskip("pyogrio", reason="pyogrio is not installed")
        (tmp_path / f"a.{ending}").write_text(f"lon,lat\n{SECRET},1\n")
        refuses(tmp_path / f"a.{ending}", "is truncated or damaged and cannot be read. Copy or export it again")

    def test_parquet_without_an_ending_is_not_guessed(self, tmp_path: Path) -> None:
        refuses(write_parquet(tmp_path / "part-0"), "decides how the file is read, and that of .* is not known")

    @pytest.mark.parametrize("keep", [0.2, 0.9, 0.999])
    def test_parquet_cut_short(self, keep: float, tmp_path: Path) -> None:
        path = Path(write_parquet(tmp_path / "a.parquet"))
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
        refuses(path, "is truncated or damaged")

    def test_parquet_with_damaged_pages(self, tmp_path: Path) -> None:
        path = Path(write_parquet(tmp_path / "a.parquet", row_group_size=50))
        whole = path.read_bytes()
        start = pq.read_metadata(path).row_group(3).column(1).data_page_offset
        path.write_bytes(whole[:start] + b"\xff" * 40 + whole[start + 40 :])
        refuses(path, "is truncated or damaged")

    def test_a_file_that_disappears(self, tmp_path: Path) -> None:
        for path in (
            write_parquet(tmp_path / "a.parquet"),
            write_csv(tmp_path / "a.csv"),
            write_layer(tmp_path / "a.fgb", SPATIAL_INDEX="NO"),
        ):
            engine = open_points(path, FLAT)
            os.remove(path)
            with pytest.raises(UnreadableInput, match="is truncated or damaged") as caught:
                engine.tally(FLAT, grid_of(FLAT), lambda part: None)
            assert len(list(told(caught.value))) == 1

    def test_gzip_cut_short(self, tmp_path: Path) -> None:
        path = Path(write_csv(tmp_path / "a.csv.gz"))
        path.write_bytes(path.read_bytes()[:-200])
        refuses(path, "is truncated or damaged")
        path.write_text(f"lon,lat\n{SECRET},1\n")
        refuses(path, "is truncated or damaged")

    def test_geopackage_cut_short(self, tmp_path: Path) -> None:
        path = Path(write_layer(tmp_path / "a.gpkg"))
        path.write_bytes(path.read_bytes()[:5000])
        refuses(path, "is truncated or damaged")

    def test_a_shapefile_without_its_companions(self, tmp_path: Path) -> None:
        path = write_layer(tmp_path / "a.shp")
        (tmp_path / "a.shx").unlink()
        refuses(path, r"needs its \.shx and \.dbf files in the same folder")

    def test_the_same_file_twice(self, tmp_path: Path) -> None:
        path = write_csv(tmp_path / "a.csv")
        again = str(tmp_path / "." / "a.csv")
        refuses([path, again], "is given twice, so its rows would count twice. Give each file once", kind=BadInput)

    def test_one_bad_file_among_many_stops_the_others(self, tmp_path: Path) -> None:
        paths = [Path(write_csv(tmp_path / f"{i}.csv", POINTS[:20])) for i in range(20)]
        cut = gzip.compress(np.random.default_rng(1).bytes(9000))[:5000]
        paths[7] = tmp_path / "7.csv.gz"
        paths[7].write_bytes(gzip.compress(b"id,lon,lat\n") + cut)
        refuses(paths, "7.csv.gz' is truncated or damaged")


class TestDiscretion:
    @pytest.mark.parametrize("kind", IN_MEMORY)
    def test_engines_show_nothing(self, kind: str) -> None:
        engine = open_points(np.full((3, 2), 7.25) if "array" in kind or "list" in kind else IN_MEMORY[kind](), FLAT)
        assert "7.25" not in repr(engine)
        shown = [f.name for f in dataclasses.fields(engine) if f.repr]
        assert set(shown) <= {"layout", "rereadable"}

    def test_files_show_only_their_schema(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text(f"lon,lat\n{SECRET},1\n")
        assert SECRET not in repr(open_points(tmp_path / "a.csv", FLAT))

    def test_progress_is_the_same_for_any_number_of_rows(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        parts = {rows: [part for part, _ in batches.equal_slices(rows)] for rows in (0, 10, 10**6)}
        assert len({tuple(p) for p in parts.values()}) == 1
        assert sum(parts[0]) == pytest.approx(1)

    def test_progress_runs_from_0_to_1_in_whole_percents_on_the_callers_thread(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(batches, "SECONDS_BETWEEN_REPORTS", 1e-4)
        monkeypatch.setattr("veilmap.engines.csv.BLOCK_BYTES", 1 << 12)
        many = np.tile(POINTS, (20, 1))
        paths = [
            write_csv(tmp_path / "a.csv", many),
            write_parquet(tmp_path / "b.parquet", table(many), row_group_size=99),
        ]
        seen: list[tuple[float, int]] = []
        open_points(paths, FLAT).tally(FLAT, grid_of(FLAT), lambda part: seen.append((part, threading.get_ident())))
        parts = [part for part, _ in seen]
        assert parts == sorted(parts)
        assert parts[-1] == 1.0
        assert all(0 <= part < 1 for part in parts[:-1])
        assert all(part * 100 == pytest.approx(round(part * 100)) for part in parts)
        assert {thread for _, thread in seen} == {threading.get_ident()}

    @pytest.mark.parametrize(
        "kind", ["csv", "csv.gz", "parquet, many row groups", "GeoPackage", "tuple of mixed kinds"]
    )
    def test_the_parts_of_files_add_up_to_one(self, kind: str, tmp_path: Path) -> None:
        engine = open_points(IN_FILES[kind](tmp_path), FLAT)
        assert sum(part for part, _ in engine.shares()) == pytest.approx(
            1, abs=0.02
        )  # header-only files have no shares

    def test_progress_may_stop_the_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(batches, "SECONDS_BETWEEN_REPORTS", 1e-3)
        release = threading.Event()

        def slow() -> Iterator[batches.Piece]:
            release.wait(5)
            yield batches.Piece([np.ones(1), np.ones(1)])

        def stop(part: float) -> None:
            release.set()
            raise KeyboardInterrupt

        taken: list[int] = []
        shares = ((taken.append(i) or 0.0, slow) for i in range(1000))
        with pytest.raises(KeyboardInterrupt):
            batches.tally_batches(FLAT, grid_of(FLAT), shares, stop)
        assert len(taken) < 1000

    def test_warnings_that_quote_a_cell_are_not_passed_on(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """GDAL prints on stderr, from a worker thread: Value '8abc' of field age parsed incompletely."""
        path = write_layer(tmp_path / "a.shp", geoframe(POINTS[:5]))
        cells = (tmp_path / "a.dbf").read_bytes()
        last = cells.rindex(b".")
        (tmp_path / "a.dbf").write_bytes(cells[: last - 1] + b"abc" + cells[last + 2 :])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            count(path, SOLID)
        assert not caught
        assert capfd.readouterr() == ("", "")


ROW_OF_TROUBLE = [
    '0.5,0.5,"Bob',
    '0.5,0.5,"Bob""',
    '0.5,0.5,a"b"c,"d',
    '"0.5,0.5,x',
]


@pytest.mark.parametrize("line", ROW_OF_TROUBLE)
def test_an_open_quote_spoils_its_own_line_and_no_other(line: str, tmp_path: Path) -> None:
    lines = [f'{x / 1000},{x / 1000},"name, {x}"' for x in range(1000)]
    domain = Domain({"x": (0, 1), "y": (0, 1)})

    def counted(rows: list[str]) -> NDArray[np.int64]:
        (tmp_path / "p.csv").write_text("x,y,name\n" + "\n".join(rows) + "\n")
        return open_points(tmp_path / "p.csv", domain).tally(domain, Grid((8, 8)), lambda part: None)

    before, after = counted(lines), counted([*lines[:500], line, *lines[500:]])
    assert before.sum() == 1000
    assert np.abs(after - before).sum() <= 1  # the two files differ by one line


def test_a_quoted_field_may_hold_separators_and_quotes(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text('name,x\n"a, ""b""",0.1\n5" pipe,0.2\n"",0.3\n')
    domain = Domain({"x": (0, 1)})
    counts = open_points(tmp_path / "p.csv", domain).tally(domain, Grid((2,)), lambda part: None)
    assert counts.tolist() == [3, 0]


def test_decimals_do_not_depend_on_each_other() -> None:
    """One row with many digits sets the scale of a column of decimals, but does not change the other rows."""
    from decimal import Decimal

    import pandas as pd

    domain = Domain({"x": (0, 1.024)}, bits=10)
    few = [Decimal("0.003")] * 100
    (alone,), _ = open_points(pd.DataFrame({"x": few}), domain).rows(domain, lambda part: None)
    (beside,), _ = open_points(pd.DataFrame({"x": [*few, Decimal("1e-20")]}), domain).rows(domain, lambda part: None)
    assert alone.tolist() == beside[:100].tolist() == [3] * 100


def test_line_that_is_not_utf8_spoils_nothing_and_is_not_quoted(tmp_path: Path, capfd) -> None:
    path = tmp_path / "names.csv"
    path.write_bytes(b"name,lon,lat\nJos\xe9,0.2,0.3,4\nJos\xe9,0.25,0.3\nAnn,0.5,0.5\n")
    (x, _), _ = open_points(str(path), FLAT).rows(FLAT, lambda part: None)
    assert len(x) == 2
    assert capfd.readouterr() == ("", "")


def test_file_under_another_name_is_the_same_file(tmp_path: Path) -> None:
    path, again = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text("lon,lat\n0.5,0.5\n")
    again.hardlink_to(path)
    with pytest.raises(BadInput, match="is given twice"):
        open_points([str(path), str(again)], FLAT)

"""Units: every input groups its rows exactly by their ids, and no message reveals an id."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
import subprocess
import sys
import uuid
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engines.test_inputs import (
    FLAT,
    POINTS,
    SECRET,
    SOLID,
    geo_metadata,
    geoframe,
    naive_cells,
    told,
    wkb_column,
    write_layer,
)
from veilmap.domain import Domain
from veilmap.engines import batches, open_points
from veilmap.engines.units import encode, id_type, read_ids, shared_type
from veilmap.errors import BadInput, UnreadableInput

ROWS, PLACES = len(POINTS), POINTS[:, :2]
NAMES = ("lon", "lat", "age")


def some_ids(rows: int = ROWS) -> list[str | None]:
    """Return ids of a few people with many rows and many people with one; some rows have no id."""
    random = np.random.default_rng(11)
    few, many = random.integers(0, 9, rows), random.integers(0, 10 * rows, rows)
    ids = [f"p{f}" if f < 6 else f"q{m}" for f, m in zip(few, many, strict=True)]
    return [None if k % 17 == 3 else name for k, name in enumerate(ids)]


IDS = some_ids()


def naive_rows(
    points: np.ndarray, ids: Sequence[Any], domain: Domain = FLAT
) -> tuple[list[tuple[int, ...]], list[Any]]:
    """Return the cells and ids of the rows that have both, computed one row at a time."""
    found = []
    for point, name in zip(np.asarray(points, float), ids, strict=True):
        cells = naive_cells(point[None], domain)
        if len(cells) and name is not None and name == name:  # noqa: PLR0124 - NaN
            found.append((tuple(cells[0].tolist()), name))
    return [cells for cells, _ in found], [name for _, name in found]


def rows_of(points: object, unit: object, domain: Domain = FLAT) -> tuple[list[tuple[int, ...]], np.ndarray]:
    cells, codes = open_points(points, domain, unit).rows(domain, lambda part: None)
    assert codes is not None
    assert codes.dtype == np.int64
    assert all(len(axis) == len(codes) for axis in cells)
    return list(zip(*(axis.tolist() for axis in cells), strict=True)), codes


def same_groups(codes: np.ndarray, ids: Sequence[Any]) -> bool:
    """Return whether codes are equal exactly where ids are, and are 0, 1, ... without a gap."""
    pairs = set(zip(codes.tolist(), ids, strict=True))
    return len(pairs) == len(set(ids)) and {code for code, _ in pairs} == set(range(len(pairs)))


def check(points: object, unit: object, ids: Sequence[Any] = IDS, domain: Domain = SOLID) -> None:
    cells, codes = rows_of(points, unit, domain)
    expected, names = naive_rows(POINTS[: len(ids), : domain.dimensions], ids, domain)
    assert cells == expected
    assert same_groups(codes, names)
    assert 1 < len(set(names)) < len(names)


def table(ids: Any = IDS, points: np.ndarray = POINTS) -> pa.Table:
    columns = {name: pa.array(points[:, a], from_pandas=True) for a, name in enumerate(NAMES)}
    return pa.table({"odd": [[1]] * len(points), **columns, "who": ids})


def geo_table() -> pa.Table:
    columns = {"who": IDS, "age": POINTS[:, 2], "geometry": wkb_column()}
    return pa.table(columns).replace_schema_metadata(geo_metadata())


def pandas_frame(ids: Any = IDS) -> Any:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    return pandas.DataFrame({"odd": [{1}] * ROWS, **{n: POINTS[:, a] for a, n in enumerate(NAMES)}, "who": ids})


def polars_frame() -> Any:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    return polars.concat([polars.DataFrame(table().slice(s, 100)) for s in range(0, ROWS, 100)], rechunk=False)


def polars_categories() -> Any:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    return polars_frame().with_columns(polars.col("who").cast(polars.Categorical))


def relation(kind: str = "varchar") -> Any:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    kept = table()
    return duckdb.connect().from_arrow(kept).project(f"lat, lon, age, who::{kind} as who")


def frame_of_shapes() -> Any:
    return geoframe().assign(who=IDS)


def write_csv(path: Path, ids: Sequence[str | None] = IDS, points: np.ndarray = POINTS) -> str:
    lines = ["lat,who,lon,age"]
    for name, row in zip(ids, points, strict=True):
        lon, lat, age = ("" if np.isnan(value) else repr(float(value)) for value in row)
        lines.append(f"{lat},{'' if name is None else name},{lon},{age}")
    text = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return str(path)


def write_parquet(path: Path, rows: pa.Table | None = None, **options: Any) -> str:
    pq.write_table(table() if rows is None else rows, path, **options)
    return str(path)


IN_MEMORY: dict[str, Callable[[], object]] = {
    "pandas": pandas_frame,
    "pandas categories": lambda: pandas_frame().astype({"who": "category"}),
    "pandas objects": lambda: pandas_frame().astype({"who": object}),
    "polars, chunked": polars_frame,
    "polars categories": polars_categories,
    "Arrow table": table,
    "Arrow table, chunked and sliced": lambda: pa.concat_tables(
        [table().slice(0, 11), table(), table().slice(0, 5)]
    ).slice(11, ROWS),
    "Arrow stream": lambda: pa.RecordBatchReader.from_batches(table().schema, table().to_batches(37)),
    "DuckDB relation": relation,
    "DuckDB blobs": lambda: relation("blob"),
    "GeoDataFrame": frame_of_shapes,
    "WKB table": geo_table,
}

IN_FILES: dict[str, Callable[[Path], object]] = {
    "csv": lambda d: write_csv(d / "a.csv"),
    "csv.gz": lambda d: write_csv(d / "a.csv.gz"),
    "parquet": lambda d: write_parquet(d / "a.parquet"),
    "parquet, many row groups": lambda d: write_parquet(d / "a.parquet", row_group_size=7),
    "GeoParquet": lambda d: write_parquet(d / "a.parquet", geo_table(), row_group_size=50),
    "GeoPackage": lambda d: write_shapes(d / "a.gpkg"),
    "FlatGeobuf": lambda d: write_shapes(d / "a.fgb", SPATIAL_INDEX="NO"),
    "two CSV files with the same people": lambda d: [
        write_csv(d / "a.csv", IDS[:150], POINTS[:150]),
        write_csv(d / "b.csv.gz", IDS[150:], POINTS[150:]),
    ],
    "many files of mixed kinds with the same people": lambda d: [
        write_csv(d / f"{i}.csv", ids, rows) if i % 2 else write_parquet(d / f"{i}.parquet", table(ids, rows))
        for i, (ids, rows) in enumerate(
            (IDS[start : start + 20], POINTS[start : start + 20]) for start in range(0, ROWS, 20)
        )
    ],
}


def write_shapes(path: Path, **options: Any) -> str:
    """Write all rows, even those with infinite coordinates, since the reference counts them."""
    pyogrio = pytest.importorskip("pyogrio", reason="pyogrio is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pyogrio.write_dataframe(frame_of_shapes().drop(columns="odd"), path, **options)
    return str(path)


class TestEveryInput:
    @pytest.mark.parametrize("kind", IN_MEMORY)
    def test_in_memory(self, kind: str) -> None:
        check(IN_MEMORY[kind](), "who")

    @pytest.mark.parametrize("kind", IN_FILES)
    def test_in_files(self, kind: str, tmp_path: Path) -> None:
        check(IN_FILES[kind](tmp_path), "who")

    @pytest.mark.parametrize("kind", IN_FILES)
    def test_two_axes_of_a_wider_file(self, kind: str, tmp_path: Path) -> None:
        check(IN_FILES[kind](tmp_path), "who", domain=FLAT)

    def test_files_of_several_formats_including_a_layer(self, tmp_path: Path) -> None:
        frame = frame_of_shapes().drop(columns="odd")
        paths = [
            write_layer(tmp_path / "a.gpkg", frame[:200]),
            write_parquet(tmp_path / "b.parquet", table().slice(200)),
        ]
        check(paths, "who", IDS)

    @pytest.mark.parametrize(
        "unit",
        [
            IDS,
            tuple(IDS),
            np.array(IDS, object),
            pa.array(IDS),
            pa.chunked_array([IDS[:30], IDS[30:]]),
            pa.array(IDS).dictionary_encode(),
        ],
        ids=["list", "tuple", "objects", "Arrow", "chunks", "dictionary"],
    )
    def test_ids_beside_points_without_names(self, unit: object) -> None:
        for points in (POINTS, POINTS.tolist(), np.asfortranarray(POINTS)):
            check(points, unit)

    def test_ids_of_data_frames_beside_points_without_names(self) -> None:
        pandas = pytest.importorskip("pandas", reason="pandas is not installed")
        polars = pytest.importorskip("polars", reason="polars is not installed")
        for column in (
            pandas.Series(IDS, index=range(ROWS, 0, -1)),
            pandas.Series(IDS, dtype=object),
            pandas.Series(IDS, dtype="category"),
            pandas.Index(IDS),
            polars.Series(IDS),
            polars.Series(IDS, dtype=polars.Categorical),
        ):
            check(POINTS, column)

    def test_ids_beside_one_axis(self) -> None:
        line = Domain({"age": (0.0, 100.0)})
        cells, codes = rows_of([1.0, 2.0, 200.0, 2.0], ["b", "a", "c", "b"], line)
        assert codes.tolist() == [0, 1, 0]
        assert cells[1] == cells[2]

    def test_without_a_unit_there_are_no_codes(self, tmp_path: Path) -> None:
        for points in (POINTS, table(), write_csv(tmp_path / "a.csv"), write_parquet(tmp_path / "a.parquet")):
            cells, codes = open_points(points, SOLID).rows(SOLID, lambda part: None)
            assert codes is None
            np.testing.assert_array_equal(np.stack(cells, axis=1), naive_cells(POINTS, SOLID))

    def test_counts_do_not_look_at_the_unit(self, tmp_path: Path) -> None:
        from tests.unit.engines.test_inputs import grid_of, naive_count

        for points, unit in ((POINTS, IDS), (table(), "who"), (write_csv(tmp_path / "a.csv"), "who")):
            counts = open_points(points, SOLID, unit).tally(SOLID, grid_of(SOLID), lambda part: None)
            np.testing.assert_array_equal(counts, naive_count(POINTS, SOLID))

    def test_a_unit_may_be_an_axis(self, tmp_path: Path) -> None:
        points = np.round(POINTS) + 0.0  # no -0, which is another text
        rows = table(points=points)
        ages = points[:, 2].tolist()
        expected, names = naive_rows(points, ages, SOLID)
        text = write_csv(tmp_path / "a.csv", points=points)
        for given_points in (
            rows,
            rows.to_pandas(),
            rows.to_reader(),
            write_parquet(tmp_path / "a.parquet", rows),
            text,
        ):
            cells, codes = rows_of(given_points, "age", SOLID)
            assert cells == expected
            assert same_groups(codes, names)

    def test_a_unit_may_be_one_of_the_axes_that_a_geometry_gives(self, tmp_path: Path) -> None:
        """Then not all axes have a column, so the geometry is read, and the unit is a column like any other."""
        rows = geo_table().append_column("lat", pa.array(IDS))
        check(rows, "lat")
        check(write_parquet(tmp_path / "a.parquet", rows), "lat")

    def test_a_layer_whose_places_are_columns(self, tmp_path: Path) -> None:
        frame = frame_of_shapes().drop(columns="odd").assign(lon=POINTS[:, 0], lat=POINTS[:, 1])
        path = write_layer(tmp_path / "a.gpkg", frame)
        kept = ~np.isinf(POINTS[:, :2]).any(axis=1)  # what write_layer leaves out is dropped anyway
        assert kept.sum() < ROWS
        check(path, "who")

    def test_what_can_be_read_again_gives_the_same(self, tmp_path: Path) -> None:
        for points in (table(), relation(), IN_FILES["parquet, many row groups"](tmp_path)):
            engine = open_points(points, SOLID, "who")
            first, again = (engine.rows(SOLID, lambda part: None) for _ in range(2))
            np.testing.assert_array_equal(first[0], again[0])
            np.testing.assert_array_equal(first[1], again[1])

    def test_no_rows(self, tmp_path: Path) -> None:
        empty = table().slice(0, 0)
        reader = pa.RecordBatchReader.from_batches(empty.schema, [])
        nobody = table(pa.nulls(ROWS))
        for points, unit in (
            (np.empty((0, 3)), []),
            (np.empty((0, 3)), np.empty(0, np.int64)),
            (empty, "who"),
            (reader, "who"),
            (write_parquet(tmp_path / "a.parquet", empty), "who"),
            (write_csv(tmp_path / "a.csv", [], POINTS[:0]), "who"),
            (nobody, "who"),
            (write_parquet(tmp_path / "b.parquet", nobody), "who"),
            (write_csv(tmp_path / "b.csv", [None] * ROWS), "who"),
            (POINTS, [None] * ROWS),
        ):
            cells, codes = rows_of(points, unit, SOLID)
            assert (cells, codes.tolist()) == ([], [])


class TestPieces:
    def test_many_pieces_on_many_threads(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        random, rows = np.random.default_rng(3), 12_000
        points = random.uniform([-11, -1, 0], [21, 8, 1], (rows, 3))
        numbers = random.integers(0, 3000, rows)
        ids = [f"p{n}" for n in numbers]
        monkeypatch.setattr("os.cpu_count", lambda: 6)
        monkeypatch.setattr("veilmap.engines.parquet.PIECE_BYTES", 8 * 3 * 99)
        monkeypatch.setattr("veilmap.engines.csv.BLOCK_BYTES", 1 << 13)
        cells = naive_cells(points[:, :2]).tolist()
        inside = ((points[:, :2] >= FLAT.lo) & (points[:, :2] <= FLAT.hi)).all(axis=1)
        expected = [tuple(row) for row in cells]
        names = [name for name, kept in zip(ids, inside, strict=True) if kept]
        half = rows // 2
        for kind, unit in (
            (points[:, :2], ids),
            (points[:, :2], numbers),
            (table(ids, points).to_reader(max_chunksize=101), "who"),
            (table(pa.array(ids).dictionary_encode(), points), "who"),
            (write_parquet(tmp_path / "a.parquet", table(ids, points), row_group_size=500), "who"),
            (write_parquet(tmp_path / "n.parquet", table(numbers, points), row_group_size=500), "who"),
            (write_csv(tmp_path / "a.csv", ids, points), "who"),
            (write_csv(tmp_path / "a.csv.gz", ids, points), "who"),
            (
                [
                    write_parquet(tmp_path / "b.parquet", table(ids[:half], points[:half]), row_group_size=500),
                    write_csv(tmp_path / "b.csv", ids[half:], points[half:]),
                ],
                "who",
            ),
        ):
            found, codes = rows_of(kind, unit)
            assert found == expected
            assert same_groups(codes, names)

    def test_codes_do_not_depend_on_rows_that_are_dropped(self, tmp_path: Path) -> None:
        """They do not depend on how the rows are cut into pieces either."""
        outside = np.full((50, 3), 1e6)
        strangers = [f"z{k}" for k in range(50)]
        more = np.concatenate([outside, POINTS, outside])
        names = strangers + IDS + strangers
        _, codes = rows_of(table(), "who", SOLID)
        for points, unit in (
            (more, names),
            (table(names, more), "who"),
            (table(names, more).to_reader(max_chunksize=3), "who"),
            (write_parquet(tmp_path / "a.parquet", table(names, more), row_group_size=11), "who"),
            (write_csv(tmp_path / "a.csv", names, more), "who"),
        ):
            np.testing.assert_array_equal(rows_of(points, unit, SOLID)[1], codes)

    @settings(deadline=None, max_examples=60)
    @given(st.lists(st.lists(st.one_of(st.none(), st.text(max_size=2)), max_size=6), max_size=6))
    def test_pieces_share_one_dictionary(self, pieces: list[list[str | None]]) -> None:
        read = [read_ids(pa.array(piece, pa.string())).drop_null() for piece in pieces]
        names = [name for piece in pieces for name in piece if name is not None]
        assert same_groups(encode(read, pa.large_string()), names)

    def test_what_a_piece_keeps_does_not_hold_the_rest_of_its_batch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """All columns of a batch stay in memory as long as one of them does, so ids are copied."""
        kept: list[pa.Array] = []
        monkeypatch.setattr("veilmap.engines.units.encode", lambda ids, kind: kept.extend(ids))
        rows = table(pa.array(np.arange(ROWS)))
        inside = rows.filter(pa.compute.and_(*(pa.compute.less(rows[n], 7) for n in ("lon", "lat"))))
        theirs = {buffer.address for buffer in inside["who"].combine_chunks().buffers() if buffer}
        open_points(pa.table(inside), FLAT, "who").rows(FLAT, lambda part: None)
        assert kept
        assert not {buffer.address for piece in kept for buffer in piece.buffers() if buffer} & theirs


BIG = [2**53 + k for k in range(5)]
DAY = datetime.date(2024, 2, 29)
UUIDS = [uuid.UUID(int=k * 2**100 + k) for k in range(5)]
VALUES: dict[str, tuple[list[Any], pa.DataType]] = {
    **{f"int{b}": ([0, 1, -1, 2 ** (b - 1) - 1, -(2 ** (b - 1))], getattr(pa, f"int{b}")()) for b in (8, 16, 32, 64)},
    **{f"uint{b}": ([0, 1, 2, 2**b - 1, 2 ** (b - 1)], getattr(pa, f"uint{b}")()) for b in (8, 16, 32, 64)},
    "big whole numbers": (BIG, pa.int64()),
    "floats": ([0.5, 1.0, float("inf"), -float("inf"), 1.0000000000000002], pa.float64()),
    "float32": ([0.5, 1.0, 1.5, -1.0, 0.0], pa.float32()),
    "float16": ([0.5, 1.0, 1.5, -1.0, 0.0], pa.float16()),
    "text": (["", "a", "A", "a ", "é"], pa.string()),
    "large text": (["", "a", "A", "a\0", "a" * 99], pa.large_string()),
    "text views": (["", "a", "A", "a\0", "a" * 99], pa.string_view()),
    "bytes": ([b"", b"a", b"a\0", b"\xff", b"a" * 99], pa.binary()),
    "large bytes": ([b"", b"a", b"a\0", b"\xff", b"a" * 99], pa.large_binary()),
    "byte views": ([b"", b"a", b"a\0", b"\xff", b"a" * 99], pa.binary_view()),
    "fixed bytes": ([u.bytes for u in UUIDS], pa.binary(16)),
    "truth": ([True, False, True, True, False], pa.bool_()),
    "date32": ([DAY + datetime.timedelta(k) for k in range(5)], pa.date32()),
    "date64": ([DAY + datetime.timedelta(k) for k in range(5)], pa.date64()),
    "time": ([datetime.time(1, 2, k) for k in range(5)], pa.time64("us")),
    "timestamp": ([datetime.datetime(2024, 1, 1, microsecond=k) for k in range(5)], pa.timestamp("us")),
    "duration": ([datetime.timedelta(k) for k in range(5)], pa.duration("s")),
    **{
        f"decimal{b}": ([decimal.Decimal(k) / 8 for k in (0, 1, 2, -1, 3)], getattr(pa, f"decimal{b}")(9, 3))
        for b in (32, 64, 128, 256)
    },
}


def spread(values: list[Any]) -> list[Any]:
    """Return each value many times, with nulls in between."""
    places = np.random.default_rng(5).integers(0, len(values) + 1, ROWS)
    return [None if place == len(values) else values[place] for place in places]


class TestTypes:
    @pytest.mark.parametrize("kind", VALUES)
    def test_every_simple_type(self, kind: str, tmp_path: Path) -> None:
        values, arrow = VALUES[kind]
        ids = spread(values)
        column = pa.array(ids, arrow)
        check(POINTS, column, ids)
        check(table(column), "who", ids)
        check(table(pa.chunked_array([column[:99], column[99:]])).to_reader(max_chunksize=50), "who", ids)
        check(write_parquet(tmp_path / "a.parquet", table(column), row_group_size=90), "who", ids)

    @pytest.mark.parametrize("kind", [k for k in VALUES if k not in ("float16", "text views", "byte views")])
    def test_dictionaries_of_every_simple_type(self, kind: str) -> None:
        values, arrow = VALUES[kind]
        ids = spread(values)
        places = pa.array([None if name is None else values.index(name) for name in ids], pa.int16())
        for words in (pa.array(values, arrow), pa.array([*values, None, *values], arrow)):
            check(table(pa.DictionaryArray.from_arrays(places, words)), "who", ids)

    def test_dictionaries_may_hold_nulls_and_doubles(self) -> None:
        words = pa.array(["a", None, "a", "b"], pa.string_view())
        places = np.arange(ROWS) % 4
        ids = [words[int(place)].as_py() for place in places]
        check(table(pa.DictionaryArray.from_arrays(places.astype("u4"), words)), "who", ids)

    def test_chunks_may_have_dictionaries_of_their_own(self) -> None:
        column = pa.chunked_array([pa.array(IDS[:50]).dictionary_encode(), pa.array(IDS[50:]).dictionary_encode()])
        assert column.chunk(0).dictionary != column.chunk(1).dictionary
        check(table(column), "who")
        check(POINTS, column)

    def test_floats_go_by_value(self) -> None:
        ids = [0.0, -0.0, float("nan"), np.float64(np.nan), 1.0, None]
        for column in (pa.array(ids), pa.array(ids, pa.float32()), pa.array(ids).dictionary_encode(), ids):
            _, codes = rows_of(np.ones((6, 3)), column, SOLID)
            assert codes.tolist() == [0, 0, 1]

    def test_uuids(self, tmp_path: Path) -> None:
        ids = spread(UUIDS)
        check(POINTS, ids, ids)
        column = pa.array([None if u is None else u.bytes for u in ids], pa.uuid())
        check(POINTS, column, ids)
        check(table(column), "who", ids)
        check(write_parquet(tmp_path / "a.parquet", table(column)), "who", ids)
        check(pandas_frame(ids), "who", ids)

    @pytest.mark.parametrize(
        "kind",
        ["i1", "u2", "i8", ">i8", "u8", "f4", ">f8", "U", "S", "M8[D]", "M8[us]", "m8[s]", "?", "object"],
    )
    def test_numpy_types(self, kind: str) -> None:
        values = (np.random.default_rng(5).integers(0, 2 if kind == "?" else 20, ROWS)).astype(kind)
        check(POINTS, values, values.astype(str).tolist())

    def test_masked_and_missing_values_of_numpy(self) -> None:
        points = np.ones((4, 3))
        masked = np.ma.MaskedArray([1, 2, 1, 2], mask=[False, True, False, False])
        assert rows_of(points, masked, SOLID)[1].tolist() == [0, 0, 1]
        assert rows_of(points, np.array([1.0, np.nan, 1.0, 2.0]), SOLID)[1].tolist() == [0, 0, 1]
        assert rows_of(points, np.array(["2020", "NaT", "2020", "2021"], "M8[s]"), SOLID)[1].tolist() == [0, 0, 1]

    def test_missing_values_of_pandas(self) -> None:
        pandas = pytest.importorskip("pandas", reason="pandas is not installed")
        points = np.ones((4, 3))
        for missing in (pandas.NA, pandas.NaT, None, float("nan")):
            for unit in (["b", missing, "b", "a"], pandas.Series(["b", missing, "b", "a"], dtype=object)):
                assert rows_of(points, unit, SOLID)[1].tolist() == [0, 0, 1]
        assert rows_of(points, pandas.Series([1, None, 1, 2], dtype="Int64"), SOLID)[1].tolist() == [0, 0, 1]

    @pytest.mark.parametrize(
        "ids",
        [
            [2**70, 2**70 + 1, -1, 2**70],
            [2**63, -1, 2**63 - 1, 2**63],
            [2**53 + 1, 2**53, 1.5, 2**53 + 1],
            [DAY, datetime.datetime(2024, 2, 29, 5), datetime.datetime(2024, 2, 29, 6), DAY],
            ["a", b"a", 1, "a"],
            [decimal.Decimal("1.5"), decimal.Decimal("1.50"), decimal.Decimal("1.500001"), decimal.Decimal("1.5")],
        ],
        ids=["huge", "wide", "whole and not", "dates and times", "mixed", "decimals"],
    )
    def test_python_objects_are_what_they_equal(self, ids: list[Any]) -> None:
        """Arrow would guess one type for all of them, and round values or fail."""
        for unit in (ids, np.array(ids, object)):
            assert same_groups(rows_of(np.ones((4, 3)), unit, SOLID)[1], ids)

    def test_big_whole_numbers_in_a_data_frame(self) -> None:
        check(pandas_frame(ids := spread([2**70, 2**70 + 1, -1])), "who", ids)

    @settings(deadline=None, max_examples=80)
    @given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2), min_size=1, max_size=20))
    def test_any_whole_numbers(self, ids: list[int]) -> None:
        points = np.ones((len(ids), 3))
        for unit in (ids, np.array(ids), pa.array(ids)):
            assert same_groups(rows_of(points, unit, SOLID)[1], ids)

    def test_what_is_not_simple_is_refused(self, tmp_path: Path) -> None:
        for column in (
            pa.array([[1]] * ROWS),
            pa.array([{"a": 1}] * ROWS),
            pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int64())),
            pa.array([(1, 2, 3)] * ROWS, pa.month_day_nano_interval()),
        ):
            for points in (table(column), table(column).to_reader()):
                refuses(points, "who", "must have whole numbers, text, .* in column 'who', .*got .*Convert that column")
            refuses(PLACES, column, "must be a list of ids, one per row, that are whole numbers, text")
        path = write_parquet(tmp_path / "a.parquet", table(pa.array([[1]] * ROWS)))
        refuses(path, "who", "the unit of privacy, got list<.*>. Convert that column to text")


class TestText:
    def codes(self, path: Path, text: str | bytes) -> list[int]:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return rows_of(path, "who", FLAT)[1].tolist()

    def test_blanks_around_a_field_are_ignored(self, tmp_path: Path) -> None:
        text = 'who,lon,lat\na,1,1\n a,1,1\na\t ,1,1\n"a",1,1\n" a ",1,1\na b,1,1\nab,1,1\n'
        assert self.codes(tmp_path / "a.csv", text) == [0, 0, 0, 0, 0, 1, 2]

    def test_a_quoted_field_is_what_is_inside(self, tmp_path: Path) -> None:
        text = 'lon,who,lat\n1,"a,b",1\n1,"a""b",1\n1,"a,b",1\n1,"a\n1,"a""b",1\n'
        assert self.codes(tmp_path / "a.csv", text) == [0, 1, 0, 1]

    def test_empty_and_missing_fields_drop_their_row(self, tmp_path: Path) -> None:
        text = 'lon,lat,who\n1,1,\n1,1, \n1,1,""\n1,1,"  "\n1,1\n1,1,b\n1,,b\n1,1,a,x\n1,1,c\n1,1,b\n'
        assert self.codes(tmp_path / "a.csv", text) == [0, 1, 0]

    @pytest.mark.parametrize("word", ["NA", "null", "NULL", "nan", "N/A", "#N/A", "-nan", "1.#QNAN"])
    def test_a_person_may_be_called_null_but_a_place_may_not(self, word: str, tmp_path: Path) -> None:
        text = f"lon,lat,who\n1,1,{word}\n1,1,a\n{word},1,{word}\n1,1,{word}\n"
        assert self.codes(tmp_path / "a.csv", text) == [0, 1, 0]

    def test_null_texts_in_coordinates_are_dropped_with_and_without_a_unit(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text("lon,lat,who\n1,NA,a\n2,null,b\n")
        for unit in (None, "who"):
            cells, _ = open_points(path, FLAT, unit).rows(FLAT, lambda part: None)
            assert not cells[0].size

    def test_numbers_are_text(self, tmp_path: Path) -> None:
        assert self.codes(tmp_path / "a.csv", "who;lon;lat\n7;1;1\n07;1;1\n7.0;1;1\n7;1;1\n") == [0, 1, 2, 0]

    def test_bytes_that_are_not_utf8(self, tmp_path: Path) -> None:
        text = b"who,lon,lat\n\xff,1,1\n\xfe,1,1\n \xff,1,1\n\xef\xbf\xbd,1,1\n"
        assert self.codes(tmp_path / "a.csv", text) == [0, 1, 0, 2]

    def test_the_unit_helps_to_find_the_separator(self, tmp_path: Path) -> None:
        line = Domain({"lon": (0.0, 10.0)})
        (tmp_path / "a.txt").write_text("who|lon|a,b,c,d\nx|1|2\nx|1|3\n")
        assert rows_of(tmp_path / "a.txt", "who", line)[1].tolist() == [0, 0]


class TestSeveralFiles:
    def test_whole_numbers_and_text_are_compared_as_text(self, tmp_path: Path) -> None:
        numbers = [None if k % 5 == 0 else int(k % 7) - 3 for k in range(ROWS)]
        texts = [None if n is None else str(n) for n in numbers]
        for kind in (pa.int64(), pa.int8(), pa.int32()):
            paths = [
                write_parquet(tmp_path / "a.parquet", table(pa.array(numbers[:100], kind), POINTS[:100])),
                write_csv(tmp_path / "a.csv", texts[100:200], POINTS[100:200]),
                write_parquet(tmp_path / "b.parquet", table(texts[200:], POINTS[200:])),
            ]
            check(paths, "who", texts)

    def test_whole_numbers_of_any_width_are_compared(self, tmp_path: Path) -> None:
        paths, kinds = [], (pa.int8(), pa.uint64(), pa.int64(), pa.uint16())
        ids = [k % 7 for k in range(ROWS)]
        for i, kind in enumerate(kinds):
            rows = slice(i * 100, (i + 1) * 100 if i < 3 else ROWS)
            paths.append(write_parquet(tmp_path / f"{i}.parquet", table(pa.array(ids[rows], kind), POINTS[rows])))
        check(paths, "who", ids)
        ends = [pa.array([2**64 - 1] * 3, pa.uint64()), pa.array([-1] * 3)]
        ends_paths = [write_parquet(tmp_path / f"e{i}.parquet", table(c, np.ones((3, 3)))) for i, c in enumerate(ends)]
        assert rows_of(ends_paths, "who")[1].tolist() == [0, 0, 0, 1, 1, 1]

    def test_a_file_without_ids_goes_with_any_type(self, tmp_path: Path) -> None:
        ids = [None] * 100 + [k % 7 for k in range(100, ROWS)]
        paths = [
            write_parquet(tmp_path / "a.parquet", table(pa.nulls(100), POINTS[:100])),
            write_parquet(tmp_path / "b.parquet", table(ids[100:], POINTS[100:])),
        ]
        check(paths, "who", ids)

    def test_other_types_are_not_compared(self, tmp_path: Path) -> None:
        paths = [
            write_parquet(tmp_path / "a.parquet", table(np.arange(ROWS))),
            write_parquet(tmp_path / "b.parquet", table(np.arange(ROWS) / 2)),
        ]
        refuses(paths, "who", "must have ids of one type in column 'who'.*got int64 and double. Convert")
        assert shared_type([pa.bool_(), pa.large_string()]) is None
        assert shared_type([pa.large_binary(), pa.large_string()]) is None

    def test_every_file_needs_the_unit(self, tmp_path: Path) -> None:
        paths = [write_csv(tmp_path / "a.csv"), write_parquet(tmp_path / "b.parquet", table().drop_columns("who"))]
        refuses(paths, "who", r"b.parquet' has no column 'who', which is the unit of privacy\. .*There are: odd, lon")


def refuses(
    points: object, unit: object, sentence: str, *secrets: str, kind: type[Exception] = UnreadableInput
) -> None:
    with pytest.raises(kind, match=sentence) as caught:
        open_points(points, FLAT, unit).rows(FLAT, lambda part: None)
    said = list(told(caught.value))
    assert len(said) == 1, "the library's own exception is still attached"
    assert not any(secret in said[0] for secret in (SECRET, str(ROWS), *secrets))
    assert str(caught.value).endswith((".", "?"))


class TestRefusals:
    def test_unknown_columns_are_named_with_near_misses(self, tmp_path: Path) -> None:
        sentence = "has no column 'whom', which is the unit of privacy. Did you mean 'who'.*There are: "
        for points in (
            table(),
            table().to_reader(),
            pandas_frame(),
            polars_frame(),
            relation(),
            frame_of_shapes(),
            write_csv(tmp_path / "a.csv"),
            write_parquet(tmp_path / "a.parquet"),
            write_shapes(tmp_path / "a.gpkg"),
        ):
            refuses(points, "whom", sentence, "p1")

    def test_doubled_columns(self, tmp_path: Path) -> None:
        rows = table().append_column("who", pa.array(IDS))
        (tmp_path / "a.csv").write_text("lon,lat,who,who\n1,1,a,b\n")
        pandas = pytest.importorskip("pandas", reason="pandas is not installed")
        frame = pandas.DataFrame([[1.5, 2.5, "a", "b"]], columns=["lon", "lat", "who", "who"])
        for points in (rows, frame, tmp_path / "a.csv"):
            refuses(points, "who", "more than one column 'who'. Rename")

    def test_a_file_without_header_does_not_show_its_first_row(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text(f"lon,lat,{SECRET}\n1,2,3\n")
        refuses(tmp_path / "a.csv", "who", "has no column 'who'.*columns have no names")

    def test_a_name_for_points_without_names(self) -> None:
        sentence = (
            r"have no column names, so there is no column 'who'\. Give the unit as a list of ids, one per row, "
            "or give the points"
        )
        for points in (PLACES, PLACES.tolist()):
            refuses(points, "who", sentence, kind=BadInput)

    def test_a_list_for_points_with_names(self, tmp_path: Path) -> None:
        for points in (table(), pandas_frame(), write_csv(tmp_path / "a.csv")):
            for unit in (IDS, np.array(IDS, object), pa.array(IDS), 7, ("who",)):
                refuses(
                    points,
                    unit,
                    "must be the name of one of the columns, got .* Add the ids to the points as a column and give its "
                    "name",
                    "p1",
                    kind=BadInput,
                )

    @pytest.mark.parametrize("length", [0, 1, ROWS - 1, ROWS + 1, 7 * ROWS])
    def test_ids_of_another_length(self, length: int) -> None:
        ids = [SECRET] * length
        for unit in (ids, np.array(ids), pa.array(ids)):
            with pytest.raises(BadInput, match="must have one id per row of points, but has more or fewer") as e:
                open_points(POINTS, SOLID, unit)
            assert not any(c.isdigit() for c in "".join(told(e.value)))

    @pytest.mark.parametrize(
        "unit",
        [
            [[SECRET]] * ROWS,
            [{SECRET: 1}] * ROWS,
            [(1, SECRET)] * ROWS,
            [object() for _ in range(ROWS)],
            [Path(SECRET), *IDS[1:]],
            [*IDS[1:], {SECRET}],
            [decimal.Decimal("sNaN")] * ROWS,
            {SECRET: 1},
            set(IDS),
            dict.fromkeys(range(ROWS), SECRET),
            (name for name in IDS),
            b"p" * ROWS,
            7,
            7.5,
            True,
            Path("who"),
            np.ones((ROWS, 1)),
            np.array(SECRET),
            np.ones(ROWS, complex),
            np.zeros(ROWS, [("a", "i8")]),
            pa.table({"who": IDS}),
        ],
        ids=lambda unit: type(unit).__name__,
    )
    def test_what_is_not_a_list_of_ids(self, unit: object) -> None:
        refuses(
            PLACES, unit, "must be a list of ids, one per row, that are whole numbers, text, .*Convert them to text"
        )

    def test_objects_in_a_data_frame(self) -> None:
        for odd in ([[SECRET]] * ROWS, [{SECRET: 1}] * ROWS, [object() for _ in range(ROWS)]):
            refuses(
                pandas_frame(odd),
                "who",
                "must have simple values in column 'who', which is the unit of privacy. Convert it to text",
            )


class TestDiscretion:
    def test_engines_show_no_ids(self, tmp_path: Path) -> None:
        ids = [SECRET] * ROWS
        for points, unit in (
            (POINTS, ids),
            (POINTS, pa.array(ids)),
            (table(ids), "who"),
            (table(ids).to_reader(), "who"),
            (pandas_frame(ids), "who"),
            (write_csv(tmp_path / "a.csv", ids), "who"),
            (write_parquet(tmp_path / "a.parquet", table(ids)), "who"),
        ):
            shown = repr(open_points(points, SOLID, unit))
            assert SECRET not in shown
            assert str(ROWS) not in shown

    def test_shares_are_the_same_with_and_without_a_unit(self) -> None:
        for points, unit in ((POINTS, IDS), (table(), "who")):
            engines = open_points(points, SOLID, unit), open_points(points, SOLID)
            parts = [[part for part, _ in engine.shares()] for engine in engines]
            assert parts[0] == parts[1]

    def test_a_failure_among_many_pieces_says_nothing(self, tmp_path: Path) -> None:
        path = Path(write_parquet(tmp_path / "a.parquet", row_group_size=50, use_dictionary=False, compression="none"))
        whole = path.read_bytes()
        start = pq.read_metadata(path).row_group(3).column(4).data_page_offset
        path.write_bytes(whole[:start] + b"\xff" * 40 + whole[start + 40 :])
        refuses(path, "who", "is truncated or damaged", "p1")

    def test_there_are_no_warnings(self, capfd: pytest.CaptureFixture[str]) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rows_of(POINTS, np.array([1e300, np.nan, *([np.inf] * (ROWS - 2))]), SOLID)
        assert not caught
        assert capfd.readouterr() == ("", "")

    def test_arrays_without_a_unit_need_no_pyarrow(self) -> None:
        code = (
            "import sys, numpy as np; from veilmap.domain import Domain; from veilmap.engines import open_points; "
            "d = Domain({'x': (0, 1)}); open_points(np.ones(3), d).rows(d, lambda part: None); "
            "assert 'pyarrow' not in sys.modules"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr


def test_same_groups_detects_wrong_groups() -> None:
    """It must detect groups that are merged, split, shifted by a row, or numbered with a gap."""
    ids = ["a", "b", "a", "c"]
    assert same_groups(np.array([0, 1, 0, 2]), ids)
    for wrong in ([0, 1, 0, 1], [0, 1, 2, 3], [1, 0, 2, 0], [0, 1, 0, 3], [1, 2, 1, 3]):
        assert not same_groups(np.array(wrong), ids)


def test_id_types_keep_ids_distinct() -> None:
    assert id_type(pa.uint64()) == pa.uint64()
    assert id_type(pa.uint32()) == pa.int64()
    assert id_type(pa.dictionary(pa.int8(), pa.string())) == pa.large_string()
    assert id_type(pa.decimal32(5, 2)) == pa.decimal128(38, 2)
    assert id_type(pa.list_(pa.int64())) is None
    assert batches.Piece([]).ids is None


def test_ids_in_geojson_are_texts_each_by_itself(tmp_path: Path) -> None:
    """One id of 0.5 among whole numbers turns no other id into a float, and never makes two people equal."""
    path, first = tmp_path / "people.geojson", 1_700_000_000_000_000_000
    ids = [first, first + 1, str(first), "0.5", 0.5, None, True, [7], "", "a"]
    features = [
        {"type": "Feature", "properties": {"who": who}, "geometry": {"type": "Point", "coordinates": [0.5, 0.5]}}
        for who in ids
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    domain = Domain({"x": (0, 1), "y": (0, 1)})
    _, codes = open_points(str(path), domain, "who").rows(domain, lambda part: None)
    assert codes is not None
    assert codes.tolist() == [0, 1, 0, 2, 2, 3]

"""Fuzz targets, one small function per reader: it takes any bytes, and may raise only veilmap's own errors.

Error messages must be printable and short, answers must be finite, and no library may warn. Add a target for each new
reader: a function with ``@target`` and a few seeds.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

import veilmap as vm
from veilmap.answers.zone_files import add_answers, frame_of
from veilmap.boxes import parse_box, read_boxes
from veilmap.cli._options import typed_settings
from veilmap.cli._output import Format
from veilmap.cli._zones import print_zones
from veilmap.cli.info import print_info
from veilmap.engines import open_points
from veilmap.engines.geometry import coordinates, find_geometry, must_be_points
from veilmap.errors import BadInput, VeilmapError
from veilmap.explore import requests
from veilmap.explore.security import Guard
from veilmap.geofiles import gdal_layers
from veilmap.geofiles.zone_reader import zones as read_zone_file
from veilmap.matching import protocol
from veilmap.matching.blocks import Side, leaves_only, open_side, read_blocks
from veilmap.matching.rule import Rule
from veilmap.method.registry import METHODS
from veilmap.method.request import ReleaseRequest
from veilmap.method.resources import must_fit
from veilmap.releases import release_file as file_format
from veilmap.releases.release import release_of
from veilmap.testing import fixed_entropy

CORPUS_FOLDER = Path(__file__).parent / "corpus"
MAX_MESSAGE_CHARACTERS = 1500
PLANE = vm.Domain({"x": (0, 4), "y": (-1, 1)})


@dataclass(frozen=True)
class Target:
    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    is_json: bool

    def inputs(self) -> list[bytes]:
        """Return the initial inputs: typical ones, and those that once failed."""
        kept = sorted((CORPUS_FOLDER / self.run.__name__).glob("*"))
        return [*self.seeds(), *(path.read_bytes() for path in kept)]


TARGETS: dict[str, Target] = {}


def target(seeds: Callable[[], Iterable[bytes]], is_json: bool = False) -> Callable[[Callable[[bytes], None]], None]:
    def add(read: Callable[[bytes], None]) -> None:
        def run(data: bytes) -> None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    read(data)
            except VeilmapError as error:
                sentence = str(error)
                assert sentence.isprintable(), sentence
                assert len(sentence) <= MAX_MESSAGE_CHARACTERS, sentence[:200]

        run.__name__ = read.__name__
        TARGETS[read.__name__] = Target(run, cache(lambda: list(seeds())), is_json)

    return add


def text(data: bytes) -> str:
    """Decode bytes as Python decodes command-line arguments."""
    return data.decode(errors="surrogateescape")


def parsed_json(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise BadInput("Not JSON.") from None


# Command-line arguments


@target(lambda: [b"lon=-124.82:-103.00,lat=31.33:49.00", b"x=0:1", b" a b =-1e9:1e-9,c=0:0x1p3"])
def domain(data: bytes) -> None:
    found = vm.Domain.parse(text(data))
    assert vm.Domain.parse(str(found)) == found
    assert vm.Domain.from_json(json.loads(json.dumps(found.to_json()))) == found


@target(
    lambda: [
        b"%s\n0.5\n1e-6\n0.01\n%s\nleast-squares\n6\n10\nswitch=2" % (m.encode(), n)
        for m in METHODS
        for n in (b"", b"discrete-gaussian")
    ]
)
def options(data: bytes) -> None:
    """Read the options of `veilmap release` and `plan`, one per line."""
    name, epsilon, delta, sample, noise, estimate, height, prune, *settings = (text(data) + "\n" * 7).split("\n")
    try:
        levels, below = int(height) if height else None, float(prune) if prune else None
    except ValueError:  # the command line refuses other texts itself
        return
    chosen = [s for s in settings if s]
    request = ReleaseRequest.of(
        epsilon,
        name,
        height=levels,
        prune=below,
        delta=delta or None,
        sample=sample or None,
        noise=noise or None,
        estimate=estimate or None,
        options=typed_settings(chosen),
    )
    request.settled(PLANE)


@target(lambda: [json.dumps(m.to_json()).encode() for m in METHODS.values()], is_json=True)
def method(data: bytes) -> None:
    found = vm.Method.from_json(parsed_json(data))  # type: ignore[arg-type]
    assert vm.Method.from_json(json.loads(json.dumps(found.to_json()))) == found
    must_fit(replace(found, structure=found.structure.settled(PLANE)), PLANE)


# Boxes


@cache
def releases() -> list[vm.Release]:
    """Return releases with different kinds of trees."""
    points = np.random.default_rng(3).normal([2, 0], [0.6, 0.3], (3000, 2))
    line, space = vm.Domain({"x": (0, 4)}), vm.Domain({"x": (0, 4), "y": (-1, 1), "z": (0, 1)})
    with fixed_entropy(5):
        return [
            vm.release(points, PLANE, 1, "quad-opt", 3),
            vm.release(points, PLANE, 1, "best"),
            vm.release(points, PLANE, 1, "kd-standard", 2),
            vm.release(points, PLANE, 1, "hilbert-r", 2, prune=50),
            vm.release(points, PLANE, 1, "quad-geo", 3, prune=20),
            vm.release(points[:, :1], line, 1, "best"),
            vm.release(np.abs(points[:, [0, 1, 1]]), space, 1, "adaptive-grid"),
        ]


def must_answer(release: vm.Release, boxes: object, confidence: object = 0.95) -> None:
    found = release.count(boxes, confidence)  # type: ignore[arg-type]
    for part in (found.estimate, found.stderr, found.low, found.high):
        assert np.isfinite(part).all(), part
    assert (found.stderr >= 0).all()
    assert (found.low >= 0).all()
    assert (found.low <= found.high).all()
    repr(found)


@target(lambda: [bytes([k, 2]) + np.arange(12.0).tobytes() for k in range(7)])
def boxes(data: bytes) -> None:
    """Query arrays of any floats. Two bytes choose the release and the shape."""
    which, columns, numbers = data[:1], data[1:2], data[2 : len(data) - (len(data) - 2) % 8]
    release = releases()[int.from_bytes(which) % len(releases())]
    axes = release.domain.dimensions
    wide = 2 * axes + (int.from_bytes(columns) == 1)
    array = np.frombuffer(numbers, np.float64)
    must_answer(release, array[: len(array) // wide * wide].reshape(-1, wide))


@target(lambda: [b"[0.95, [0, -1, 4, 1]]", b'[0.5, [[0, 0, "1", 1e3], [1, 0, 2, 0]]]', b"[1, []]"], is_json=True)
def box_values(data: bytes) -> None:
    """Query other Python values than arrays."""
    record = parsed_json(data)
    if isinstance(record, list) and len(record) == 2:
        must_answer(releases()[2], record[1], record[0])


@target(
    lambda: [
        b"0,-1,4,1",
        b"x_low,y_low,x_high,y_high\n0,-1,4,1\n\n1,0,2,1\n",
        b"id,y_high,y_low,x_low,x_high\r\na,1,-1,0,4",
    ]
)
def box_text(data: bytes) -> None:
    """Read --box and --boxes."""
    rows = read_boxes(file("boxes.csv", data), PLANE)
    must_answer(releases()[0], rows)
    must_answer(releases()[0], [parse_box(text(data), PLANE)])


# Zones


def geojson(*polygons: object) -> bytes:
    shapes = [{"type": "Polygon", "coordinates": rings} for rings in polygons]
    rows = [{"type": "Feature", "properties": {"name": "a", "count": 1}, "geometry": shape} for shape in shapes]
    return json.dumps({"type": "FeatureCollection", "features": rows}).encode()


OUTER_RING = [[0, -1], [4, -1], [3, 1.5], [0, 0], [0, -1]]
INNER_RING = [[1, -0.5], [2, -0.5], [1, 0], [1, -0.5]]


@target(
    lambda: [
        json.dumps(some).encode()
        for some in ([[OUTER_RING]], [[OUTER_RING, INNER_RING], [INNER_RING]], [[OUTER_RING[::2]], []])
    ],
    is_json=True,
)
def zones(data: bytes) -> None:
    """Query polygons with any corners, given by their rings, the outer one first."""
    requests, record = [], parsed_json(data)
    with np.errstate(all="ignore"):
        for rings in record if isinstance(record, list) else []:
            with suppress(TypeError, ValueError, LookupError, OverflowError, shapely.errors.GEOSException):
                requests.append(shapely.Polygon(rings[0], rings[1:]))
    for release in releases()[:5]:
        if requests:
            must_answer(release, requests)


@target(lambda: [geojson([OUTER_RING], [OUTER_RING, INNER_RING]), geojson([INNER_RING]), geojson()], is_json=True)
def zone_file(data: bytes) -> None:
    """Read --zones and print the answers. Files that crash the reading process are refused."""
    for mend in (False, True):
        with suppress(BadInput):
            frame = read_here(file("zones.geojson", data), mend)
            answers = releases()[1].count(frame)
            counted, added = add_answers(frame, answers)
            assert np.isfinite(answers.high).all()
            assert set(added) <= set(counted.columns)
            with redirect_stdout(io.StringIO()):
                print_zones(counted, added, answers, True, Format.JSON)


def read_here(path: Path, mend: bool = False) -> object:
    """Read zones in this process."""
    try:
        schema, about, batches = read_zone_file(str(path), None, mend)
        return frame_of(pa.Table.from_batches(batches, schema), about)
    except MemoryError:
        raise
    except Exception:
        raise BadInput("These zones are refused.") from None


# GIS files, read by GDAL with one driver in a separate process: see GDAL_DRIVER_OF_TARGET in fuzz.__main__


def gis_files(ending: str) -> list[bytes]:
    import geopandas  # before GDAL is opened without it

    shapes = [shapely.box(0, -1, 3, 1), shapely.Point(1, 0).buffer(0.5), shapely.Polygon()]
    points = geopandas.GeoDataFrame({"who": ["a", "b"]}, geometry=shapely.points([[1, 0], [2, 0.5]]), crs="EPSG:4326")
    zones = geopandas.GeoDataFrame({"name": ["a", "b", "c"], "n": [1, 2, 3]}, geometry=shapes, crs="EPSG:3857")
    made = []
    for number, frame in enumerate((points, zones)):
        path = folder() / f"seed{number}.{ending}"
        frame.to_file(path, **({"SPATIAL_INDEX": "NO"} if ending == "fgb" else {}))
        made.append(path.read_bytes())
    return made


def read_layer(ending: str, data: bytes) -> None:
    path = file(f"points.{ending}", data)
    with suppress(Exception):  # an error ends the reading process, and the file is refused
        _, about, _ = gdal_layers.describe(str(path))
        _, _, batches = gdal_layers.rows(str(path), about["layers"][0], [], True)
        for batch in batches:
            batch.validate(full=True)
    with suppress(BadInput):
        read_here(path)


@target(lambda: gis_files("gpkg"))
def gpkg(data: bytes) -> None:
    read_layer("gpkg", data)


@target(lambda: gis_files("fgb"))
def fgb(data: bytes) -> None:
    read_layer("fgb", data)


@target(lambda: gis_files("shp"))
def shp(data: bytes) -> None:
    """Read the main file of a Shapefile; the other two files are those of the last seed."""
    for ending in ("shx", "dbf"):
        (folder() / f"points.{ending}").write_bytes((folder() / f"seed1.{ending}").read_bytes())
    read_layer("shp", data)


# Requests over HTTP


@target(
    lambda: [
        b'{"boxes": [[0, -1, 4, 1], [1, 0, 2, 0.5]], "confidence": 0.9}',
        b'{"boxes": [0, -1, 4, 1]}',
        b'{"polygons": {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}}',
        b'{"polygons": {"type": "FeatureCollection", "features": [{"type": "Feature", "geometry": '
        b'{"type": "MultiPolygon", "coordinates": [[[[0, 0], [3, 0], [1, 1], [0, 0]]]]}}]}}',
        b'{"zones": [0, 2]}',
    ],
    is_json=True,
)
def http_body(data: bytes) -> None:
    """Read the body of a request to /api/count."""
    found = requests.record(data)
    requests.must_be_known(found, "boxes", "polygons", "zones", "confidence")
    sure = requests.confidence(found.get("confidence", 0.95))
    if "boxes" in found:
        must_answer(releases()[1], requests.boxes(found["boxes"], PLANE), sure)
    if "polygons" in found:
        must_answer(releases()[0], requests.polygons(found["polygons"]), sure)
    if "zones" in found:
        assert all(0 <= zone < 3 for zone in requests.zone_numbers(found["zones"], 3))


@target(lambda: [b"box=0,-1,4,1&confidence=0.5", b"axis=x&bins=7", b"bbox=1,2,3,4&limit=5", b"tile=3/1/2/dark"])
def http_query(data: bytes) -> None:
    """Read the query string of a URL."""
    for name, value in parse_qsl(text(data)):
        if name == "box":
            must_answer(releases()[0], requests.boxes_from_text([value], PLANE))
        elif name == "bbox":
            west, _, east, _ = requests.bounding_box(value)
            assert np.isfinite([west, east]).all()
        elif name == "axis":
            assert requests.axis(value, PLANE) in (0, 1)
        elif name == "tile" and value.count("/") == 3:
            zoom, x, y, _ = requests.tile(*value.split("/"))
            assert max(x, y) < 2**zoom
        elif name == "confidence":
            must_answer(releases()[0], [0, -1, 4, 1], requests.number(value, "A confidence"))
        else:
            assert 0 <= requests.whole_number(value, "A number", 0, 500) <= 500


@target(lambda: [b"127.0.0.1:8417\nhttp://127.0.0.1:8417", b"localhost", b"[::1]:80\nnull", b"evil.example"])
def http_headers(data: bytes) -> None:
    """Check Host and Origin: only an IP address or localhost is accepted, and only from its own page."""
    host, *origins = data.split(b"\n")
    let_in = Guard(None, "127.0.0.1")._refusal([(b"host", host), *((b"origin", one) for one in origins)]) is None
    if let_in:
        name = host.decode("latin-1").lower()
        assert re.fullmatch(r"(localhost|[0-9.]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?", name), host
        assert all(one.decode("latin-1").lower() == f"http://{name}" for one in origins), data


# Release files


def must_serve(release: vm.Release) -> None:
    """Do all that an analyst does with a file."""
    repr(release)
    json.dumps(release.header(), allow_nan=False)
    release.privacy.statement()
    lo, hi = release.domain.lo, release.domain.hi
    must_answer(release, [*lo, *hi])
    some = np.random.default_rng(1).random((40, 2, release.domain.dimensions))
    low, high = lo + (hi - lo) * some.min(axis=1), lo + (hi - lo) * some.max(axis=1)
    must_answer(release, np.concatenate([low, high], axis=1))
    assert release.nodes.num_rows == release.estimates.tree.size
    if release.domain.dimensions == 2:
        corners = lo + (hi - lo) * np.array([[0.1, 0.2], [0.9, 0.5], [0.4, 0.8]])
        must_answer(release, shapely.Polygon(corners))
    with suppress(BadInput):  # an empty release has no points to draw
        points = np.stack([column.to_numpy() for column in release.sample(20, seed=1).columns], axis=1)
        assert np.all((lo <= points) & (points <= hi))
    with redirect_stdout(io.StringIO()) as shown:
        print_info(release, Path("release.parquet"), "not signed")
    assert shown.getvalue().replace("\n", "").isprintable()


@cache
def release_files() -> list[bytes]:
    out = []
    for release in releases():
        release.save(place := file("made.parquet", b""))
        out.append(place.read_bytes())
    return out


def with_checksum(data: bytes) -> bytes:
    """Return a file with a valid checksum, which anyone can compute."""
    if (stated := file_format._stated_digest(data)) is None:
        return data
    blank = data[: stated.start(1)] + file_format.BLANK_DIGEST + data[stated.end(1) :]
    return blank.replace(file_format.BLANK_DIGEST, hashlib.sha256(blank).hexdigest().encode())


@target(release_files)
def release_file(data: bytes) -> None:
    must_serve(release_of("release.parquet", *file_format.parsed("release.parquet", with_checksum(data))))


def in_json() -> Iterable[bytes]:
    """Yield the headers and columns of small files as JSON."""
    for data in (
        p.read_bytes() for p in sorted((CORPUS_FOLDER.parents[1] / "tests" / "formats" / "golden").glob("*.parquet"))
    ):
        header, table = file_format.parsed("golden", data)
        if table.num_rows < 200:
            columns = {name: table[name].to_pylist() for name in table.column_names}
            yield json.dumps({"header": header, "columns": columns}).encode()


COLUMN_TYPES = {"parent": pa.int64(), "level": pa.int16(), "noisy_count": pa.int64(), "bbox": file_format._BOX}
COLUMN_TYPES |= {"key_from": pa.int64(), "key_to": pa.int64()}


@target(in_json, is_json=True)
def release_parts(data: bytes) -> None:
    """Build a release from a header and columns, after the checksum and Parquet checks."""
    record = parsed_json(data)
    try:
        header = file_format._header("release.parquet", json.dumps(record["header"]).encode())  # type: ignore[index]
        columns = record["columns"].items()  # type: ignore[index]
        table = pa.table({name: pa.array(values, COLUMN_TYPES.get(name, pa.float64())) for name, values in columns})
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError, pa.ArrowException):
        return  # a Parquet file cannot contain this
    must_serve(release := release_of("release.parquet", header, table))
    if release.domain in usual_domains():
        read_blocks(release, matching_rule(release.domain))


@cache
def usual_domains() -> set[vm.Domain]:
    return {vm.Domain.from_json(json.loads(data)["header"]["domain"]) for data in in_json()}


@cache
def matching_rule(domain: vm.Domain) -> Rule:
    return Rule.of(domain, [0] * domain.dimensions, [axis.hi - axis.lo for axis in domain.axes])


# Messages of the other party in record matching


@cache
def matching_side() -> Side:
    rule = matching_rule(PLANE)
    return open_side(np.zeros((0, 2)), rule, 1, leaves_only("quad-baseline", 0, rule, 1, None))


def hello() -> dict[str, object]:
    return protocol._hello(matching_side(), matching_rule(PLANE), left=True)


@target(lambda: [json.dumps(hello()).encode(), b"[" * 60_000], is_json=True)
def handshake(data: bytes) -> None:
    raise BadInput(protocol._difference(hello(), data))


# Points


@cache
def folder() -> Path:
    kept = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)  # noqa: S108
    OPEN_FOLDERS.append(kept)
    return Path(kept.name)


OPEN_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def file(name: str, data: bytes) -> Path:
    (folder() / name).write_bytes(data)
    return folder() / name


def read_points(path: Path, unit: str | None) -> None:
    """Read all rows of a file as the vault does, but outside of it."""
    engine = open_points(str(path), PLANE, unit)
    with engine.reading_context():  # type: ignore[attr-defined]
        for _, batch in engine.shares():  # type: ignore[attr-defined]
            for piece in batch():
                assert len({len(column) for column in piece.columns}) == 1


def csv_files() -> Iterable[bytes]:
    yield from (
        b"x,y\n1,0.5\n2,-1e-3\n,nan\n",
        b'"x";"y";who\r\n1;2;a\r\n"3";4,5;"b',
        b"\xef\xbb\xbfy\tx\twho\n0\t1\t\n",
    )
    yield gzip.compress(b"x,y,who\n1,2,\n" * 9, mtime=0)


@target(csv_files)
def csv(data: bytes) -> None:
    path = file("points.csv.gz" if data.startswith(b"\x1f\x8b") else "points.csv", data)
    for unit in (None, "who"):
        with suppress(BadInput):
            read_points(path, unit)


def point_features() -> list[bytes]:
    point = {"type": "Point", "coordinates": [1, 0.5]}
    rows = [{"type": "Feature", "properties": {"who": "a"}, "geometry": point}, {"geometry": None}, 7]
    crs = {"type": "name", "properties": {"name": "EPSG:4326"}}
    return [
        json.dumps(some).encode()
        for some in (
            {"type": "FeatureCollection", "crs": crs, "features": rows},
            {"features": [], "type": "x"},
            rows[0],
        )
    ]


@target(point_features, is_json=True)
def geojson_points(data: bytes) -> None:
    for name in ("points.geojson", "points.geojsonl"):
        for unit in (None, "who"):
            with suppress(BadInput):
                read_points(file(name, data), unit)


def parquet_files() -> Iterable[bytes]:
    numbers, who = [1.0, 2.5, None, float("nan")], ["a", None, "b", "a"]
    points = [bytes([1, 1, 0, 0, 0]) + np.array([1.0, 2.0]).tobytes(), None, b"\x00", b""]
    geo = {"primary_column": "p", "columns": {"p": {"encoding": "WKB", "geometry_types": ["Point"], "crs": None}}}
    tables = [
        pa.table({"x": numbers, "y": pa.array([1, 2, 3, None]), "who": who}),
        pa.table({"x": pa.array([1, 2, 3, 4], pa.decimal128(9, 2)), "y": pa.array([1, 1, 1, 2]).dictionary_encode()}),
        pa.table({"p": points, "who": pa.array(who).dictionary_encode()}).replace_schema_metadata(
            {"geo": json.dumps(geo)}
        ),
        pa.table({"geometry": pa.array([{"x": 1.0, "y": 2.0}, None])}),
    ]
    for table in tables:
        for packed in ("none", "zstd"):
            buffer = io.BytesIO()
            pq.write_table(table, buffer, compression=packed)
            yield buffer.getvalue()


@target(parquet_files)
def parquet(data: bytes) -> None:
    path = file("points.parquet", data)
    for unit in (None, "who"):
        with suppress(BadInput):
            read_points(path, unit)


@target(lambda: [bytes([21]) + bytes([1, 1, 0, 0, 0]) + bytes(16), bytes([25, 0, 0x20, 0, 0, 1]) + bytes(20)])
def wkb(data: bytes) -> None:
    """Read geometries, each preceded by its length."""
    shapes, at = [], 0
    while at < len(data):
        shapes.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    x, y = coordinates(pa.array([*shapes, None], pa.binary()))
    assert len(x) == len(y) == len(shapes) + 1
    assert np.isnan(x[-1])


@target(
    lambda: [
        b'{"primary_column": "p", "columns": {"p": {"encoding": "WKB", "crs": {"id": {"authority": "E", "code": 1}}}}}',
        b'{"primary_column": "p", "columns": {"p": {"encoding": "point", "geometry_types": ["Point Z"], "crs": null}}}',
    ],
    is_json=True,
)
def geo_metadata(data: bytes) -> None:
    """Read the metadata of a geometry column."""
    fields = [
        pa.field("p", pa.binary(), metadata={"ARROW:extension:name": "geoarrow.wkb", "ARROW:extension:metadata": data})
    ]
    for metadata in ({"geo": data}, {}):
        schema = pa.schema(fields, metadata=metadata)
        if (found := find_geometry(schema)) is not None:
            must_be_points(found, schema, PLANE, "The file 'points.parquet'")

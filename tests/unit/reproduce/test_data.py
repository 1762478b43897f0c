"""The study's points: towns and roads that are made up, files of one's own, and TIGER/Line."""

from __future__ import annotations

import zipfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilmap.domain import Domain
from veilmap.errors import BadInput, UnreadableInput
from veilmap.reproduce import data, tiger
from veilmap.reproduce.data import PAPER_BOX, describe, draw_points, read_points, skew, two_states
from veilmap.reproduce.tiger import read_tiger

Line = Sequence[tuple[float, float]]
SEATTLE, TACOMA, OLYMPIA, SPOKANE = (-122.33, 47.61), (-122.44, 47.25), (-122.9, 47.04), (-117.43, 47.66)


@pytest.fixture(scope="module")
def roads() -> np.ndarray:
    return two_states(120_000)


# --- generated points ---


@pytest.mark.parametrize("n", [1, 2, 3, 10, 999, 20_000])
def test_there_are_as_many_points_as_asked_for_all_in_the_box(n: int) -> None:
    points = two_states(n)
    assert points.shape == (n, 2)
    assert ((points >= PAPER_BOX.lo) & (points <= PAPER_BOX.hi)).all()


def test_the_paper_has_this_many_in_this_box() -> None:
    points = two_states()
    assert points.shape == (1_630_000, 2)
    assert points.flags.c_contiguous
    assert ((points >= PAPER_BOX.lo) & (points <= PAPER_BOX.hi)).all()
    assert len(np.unique(points @ [1e9, 1])) > 1_629_000  # an intersection is there once
    assert (np.ptp(points, axis=0) > 0.99 * (PAPER_BOX.hi - PAPER_BOX.lo)).all()


def test_a_seed_decides_everything() -> None:
    assert np.array_equal(two_states(5000, seed=7), two_states(5000, seed=7))
    assert not np.array_equal(two_states(5000, seed=7), two_states(5000, seed=8))


def test_no_points_cannot_be_made() -> None:
    with pytest.raises(BadInput, match="must be at least 1, got 0"):
        two_states(0)


def test_both_states_are_there_and_nothing_else(roads: np.ndarray) -> None:
    north = (roads[:, 1] > 45.5) & (roads[:, 0] < -116.9)
    south = (roads[:, 1] <= 37) & (roads[:, 0] >= -109.06)
    assert (north | south).all()
    assert north.mean() == pytest.approx(0.61, abs=1e-4)


def test_towns_stand_out_from_the_country(roads: np.ndarray) -> None:
    def near(place: tuple[float, float]) -> int:
        return int((np.abs(roads - place) < 0.1).all(axis=1).sum())

    assert near(SEATTLE) > 30 * near((-119.0, 47.6))
    assert near((-106.62, 35.1)) > 30 * near((-107.5, 33.8))  # Albuquerque


def test_an_outline_holds_what_a_ray_says() -> None:
    square = np.array([(0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (1.0, 1.0), (0.0, 2.0)])  # with a notch from above
    points = np.array([(0.5, 0.5), (1.0, 1.5), (0.2, 1.5), (1.8, 1.5), (2.5, 1.0), (-0.5, 1.0), (1.0, 0.9)])
    assert data._in_outline(points, square).tolist() == [True, False, True, True, False, False, True]


# --- skew ---


def test_generated_points_are_skewed_and_even_ones_are_not(roads: np.ndarray) -> None:
    even = np.random.default_rng(1).uniform(PAPER_BOX.lo, PAPER_BOX.hi, roads.shape)
    found, flat = skew(roads, PAPER_BOX), skew(even, PAPER_BOX)
    assert 0.8 < found.empty < 0.9
    assert flat.empty == 0
    assert (found.fullest > 0.35, found.half < 0.02, found.gini > 0.93) == (True, True, True)
    assert (flat.fullest < 0.02, flat.half > 0.4, flat.gini < 0.2) == (True, True, True)


def test_skew_of_known_counts() -> None:
    domain = Domain({"x": (0, 64), "y": (0, 64)})
    cells = np.stack(np.meshgrid(np.arange(64), np.arange(64)), axis=-1).reshape(-1, 2) + 0.5
    same, one = skew(cells, domain), skew(np.full((7, 2), 3.5), domain)
    assert (same.points, same.empty, same.half) == (4096, 0, 0.5)
    assert same.gini == pytest.approx(0, abs=1e-12)
    assert same.fullest == pytest.approx(41 / 4096)
    assert (one.points, one.empty, one.fullest, one.half) == (7, 4095 / 4096, 1, 1 / 4096)
    assert one.gini == pytest.approx(1 - 1 / 4096)


def test_gini_is_the_mean_difference_of_pairs(roads: np.ndarray) -> None:
    held = data._held(roads, PAPER_BOX)
    differences = np.abs(held[:, None] - held).mean()
    assert skew(roads, PAPER_BOX).gini == pytest.approx(differences / (2 * held.mean()), rel=1e-9)


def test_points_outside_do_not_count() -> None:
    domain = Domain({"x": (0, 1), "y": (0, 1)})
    assert skew(np.array([(0.5, 0.5), (2, 2)]), domain).points == 1
    with pytest.raises(BadInput, match="No point lies in the domain"):
        skew(np.array([(2.0, 2.0)]), domain)


def test_a_description_says_the_figures(roads: np.ndarray) -> None:
    found = skew(roads, PAPER_BOX)
    text = describe(roads, PAPER_BOX)
    assert text.startswith("120,000 points in lon=-124.82:-103.0,lat=31.33:49.0. Of 64 × 64 cells, ")
    assert f"{found.empty:.1%} are empty" in text
    assert f"Gini coefficient is {found.gini:.3f}." in text


# --- picture ---


@pytest.mark.parametrize("domain", [PAPER_BOX, Domain({"x": (-130, 900), "y": (30, 50)})])
def test_a_picture_is_drawn_twice_the_same(roads: np.ndarray, domain: Domain, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "again").mkdir()
    png, svg = draw_points(roads[:5000], domain, tmp_path, "a $5_{000 sample")
    again = draw_points(roads[:5000], domain, tmp_path / "again", "a $5_{000 sample")
    assert [png, svg] == [tmp_path / "data.png", tmp_path / "data.svg"]
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"<image" in svg.read_bytes()
    assert [file.read_bytes() for file in again] == [png.read_bytes(), svg.read_bytes()]


# --- tables ---

POINTS = np.array([(1.5, 2.0), (3.0, -4.25), (0.0, 7.0)])


def as_text(header: str | None, mark: str = ",", points: np.ndarray = POINTS) -> str:
    rows = [mark.join(map(repr, map(float, point))) for point in points]
    return "\n".join(([header] if header else []) + rows) + "\n"


@pytest.mark.parametrize(
    ("name", "text", "axes"),
    [
        ("a.csv", as_text("lon,lat"), ("lon", "lat")),
        ("a.csv", as_text(" X;Y", ";"), (" X", "Y")),
        ("a.tsv", as_text("Longitude\tLatitude", "\t"), ("Longitude", "Latitude")),
        ("a.txt", as_text("east,north"), ("east", "north")),
        ("a.csv", as_text(None), ("f0", "f1")),
        ("a.txt", as_text("x y", " "), ("x", "y")),
        ("a.csv", "id,lat,lon,name\n1,2,1.5,a\n2,-4.25,3,b\n3,7,0,c\n", ("lon", "lat")),
        ("a.csv", "\ufefflon,lat\n1.5,2\n3,-4.25\n,9\n0,7\nnan,1\n", ("lon", "lat")),
    ],
)
def test_tables_of_text_are_read(name: str, text: str, axes: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    points, domain, source = read_points(tmp_path / name)
    assert np.array_equal(points, POINTS)
    assert domain.names == axes
    assert (domain.lo.tolist(), domain.hi.tolist()) == ([0, -4.25], [3, 7])
    assert source == name


def test_degrees_are_known_by_their_names_and_range(tmp_path: Path) -> None:
    for header, scale, crs in (("lon,lat", 1, "OGC:CRS84"), ("x,y", 1, None), ("lon,lat", 100, None)):
        (tmp_path / "a.csv").write_text(as_text(header, points=POINTS * scale))
        assert read_points(tmp_path / "a.csv")[1].crs == crs


def test_parquet_is_read_and_the_domain_given_is_kept(tmp_path: Path) -> None:
    columns = {"u": POINTS[:, 0], "y": [9.0] * 3, "v": POINTS[:, 1].astype("f4"), "x": [8] * 3}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    domain = Domain({"u": (0, 10), "v": (0, 10)})
    points, same, _ = read_points(tmp_path / "a.parquet", domain)
    assert same is domain
    assert np.array_equal(points, POINTS[[0, 2]])  # one lies outside
    with pytest.raises(BadInput, match="lie on one line"):
        read_points(tmp_path / "a.parquet")  # x and y, then
    with pytest.raises(BadInput, match=r"No point of .*lies in the domain"):
        read_points(tmp_path / "a.parquet", Domain({"u": (50, 60), "v": (0, 10)}))


def test_a_folder_of_tables_is_one_set(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text(as_text("x,y", points=POINTS[1:]))
    pq.write_table(pa.table({"x": POINTS[:1, 0], "y": POINTS[:1, 1]}), tmp_path / "a.parquet")
    (tmp_path / "readme.md").write_text("two parts")
    points, _, source = read_points(tmp_path)
    assert np.array_equal(points, POINTS)
    assert source == tmp_path.name


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", b"", "cannot be read: it is empty, damaged or not a table"),
        ("a.parquet", b"PAR1 and nothing", "cannot be read"),
        ("a.csv", b"lon,lat\n\xff\xfe,2\n", r"cannot be read|numeric columns are: lat"),
        ("a.csv", b"lon,lat\n1,2\n3\n", "cannot be read"),
        ("a.csv", b"lon,lat\n", "contains no points|numeric columns are: none"),
        ("a.csv", b"lon,lat\na,b\n", "numeric columns are: none"),
        ("a.csv", b"a,b,c\n1,2,3\n", "numeric columns are: a, b, c"),
        ("a.csv", b"a,a\n1,2\n", r"distinct names\. Its numeric columns are: a, a"),
        ("a.csv", b"lon,lat,lat\n1,2,x\n", r"distinct names\. Its numeric columns are: lon, lat"),
        ("a.csv", b"lon,lat\n1,2\n1,3\n", r"lie on one line, so they have no bounding box\. Give a domain\."),
        ("a.csv", b"lon,lat\nnan,2\ninf,3\n", "contains no points"),
        ("a.docx", b"hello", r"The suffix of .*a.docx' is unknown, .*\. Use one of .parquet"),
    ],
)
def test_bad_tables_get_a_sentence(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=says):
        read_points(tmp_path / name)


def test_what_is_not_there_gets_a_sentence(tmp_path: Path) -> None:
    for read in (read_points, read_tiger):
        with pytest.raises(UnreadableInput, match="There is no file or folder"):
            read(tmp_path / "none.csv")
    with pytest.raises(UnreadableInput, match="contains no table of points"):
        read_points(tmp_path)
    with pytest.raises(UnreadableInput, match="contains no TIGER/Line file"):
        read_tiger(tmp_path)
    with pytest.raises(BadInput, match="two axes, got 1"):
        read_points(tmp_path, Domain({"x": (0, 1)}))


# --- TIGER/Line of 2006 ---


def record(start: tuple[float, float], end: tuple[float, float], kind: str = "A41") -> str:
    """A Record Type 1: only what lies in the places that count."""
    line = f"1{'1106':4}{7:>10}".ljust(55) + f"{kind:3}".ljust(135)
    return line + "".join(f"{round(x * 1e6):+10d}{round(y * 1e6):+9d}" for x, y in (start, end))


def sorted_points(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    return sorted({(round(x, 6), round(y, 6)) for x, y in points})


def seen(points: np.ndarray) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in points]


CHAINS = [record(SEATTLE, TACOMA), record(TACOMA, OLYMPIA, "A11"), record(SEATTLE, SPOKANE, "H11"), ""]
CORNERS = sorted_points([SEATTLE, TACOMA, OLYMPIA])


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
def test_records_give_both_ends_of_roads_once(ending: str, tmp_path: Path) -> None:
    assert {len(line) for line in CHAINS} == {228, 0}
    (tmp_path / "TGR53033.RT1").write_bytes((ending.join(CHAINS) + "\x1a").encode())
    assert seen(read_tiger(tmp_path / "TGR53033.RT1")) == CORNERS


def test_records_are_read_from_a_countys_zip_and_from_a_folder_of_states(tmp_path: Path) -> None:
    (tmp_path / "WA").mkdir()
    with zipfile.ZipFile(tmp_path / "WA" / "TGR53033.ZIP", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("TGR53033.RT1", "\r\n".join(CHAINS))
        archive.writestr("TGR53033.RT2", "2 of no use here")
    assert seen(read_tiger(tmp_path / "WA" / "TGR53033.ZIP")) == CORNERS
    (tmp_path / "WA" / "tgr53063.rt1").write_text(record(SPOKANE, SEATTLE) + "\n")
    assert seen(read_tiger(tmp_path)) == sorted_points([*CORNERS, SPOKANE])
    points, domain, source = read_points(tmp_path)
    assert (len(points), domain.names, domain.crs) == (4, ("lon", "lat"), "OGC:CRS84")
    assert source == f"road intersections of TIGER/Line, {tmp_path.name}"
    assert len(read_points(tmp_path, Domain({"lon": (-120, -110), "lat": (40, 50)}))[0]) == 1


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([CHAINS[0], CHAINS[1][:200]], "Line 2 of .*must begin with 1 and have 228 characters, but has 200"),
        (["", "2" + CHAINS[0][1:]], "Line 2 of .*is not a TIGER/Line Record Type 1"),
        ([CHAINS[0][:190] + "      here" + CHAINS[0][200:]], "is not a whole number"),
        ([CHAINS[0][:190] + "          " + CHAINS[0][200:]], "is not a whole number"),
        ([record((-181.0, 45.0), TACOMA)], "beyond 180 or 90"),
        ([CHAINS[2]], r"contains no roads\. The class of a road begins with A \(CFCC"),
        ([""], "contains no roads"),
    ],
)
def test_bad_records_get_a_sentence(lines: list[str], says: str, tmp_path: Path) -> None:
    (tmp_path / "a.RT1").write_text("\n".join(lines))
    with pytest.raises(UnreadableInput, match=says):
        read_tiger(tmp_path / "a.RT1")


def test_bad_zips_get_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK and nothing")
    with pytest.raises(UnreadableInput, match=r"is incomplete, damaged or password-protected\. Download it again\."):
        read_tiger(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(UnreadableInput, match=r"contains neither a \.RT1 nor a \.shp file"):
        read_tiger(tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("a.rt1", "\n".join(CHAINS))
    whole = bytearray((tmp_path / "c.zip").read_bytes())
    whole[100] ^= 1
    (tmp_path / "c.zip").write_bytes(whole)
    with pytest.raises(UnreadableInput, match="is incomplete, damaged"):
        read_tiger(tmp_path / "c.zip")
    (tmp_path / "d.gpkg").write_bytes(b"hello")
    with pytest.raises(UnreadableInput, match=r"A TIGER/Line file must end in \.rt1, \.shp, \.zip"):
        read_tiger(tmp_path / "d.gpkg")


# --- TIGER/Line of today ---


def write_roads(path: Path, lines: Sequence[Line], kinds: Sequence[str], column: str = "MTFCC") -> Path:
    pyogrio, shapely = pytest.importorskip("pyogrio"), pytest.importorskip("shapely")
    shapes = shapely.to_wkb(np.array([shapely.LineString(line) for line in lines]))
    pyogrio.raw.write(
        path,
        shapes,
        [np.array(kinds, object)],
        [column],
        geometry_type="LineString",
        crs="EPSG:4269",
        driver="ESRI Shapefile",
    )
    return path


def naive_crossings(lines: Sequence[Line]) -> list[tuple[float, float]]:
    """Where a line ends, or three or more places are next."""
    beside = defaultdict(set)
    for line in lines:
        for here, there in pairwise(line):
            if here != there:
                beside[here].add(there)
                beside[there].add(here)
    ends = {end for line in lines for end in (line[0], line[-1])}
    return sorted_points(ends | {place for place, others in beside.items() if len(others) > 2})


GRID = [[(float(x), 0.0), (float(x), 1.0), (float(x), 2.0)] for x in range(3)]
GRID += [[(0.0, float(y)), (1.0, float(y)), (2.0, float(y))] for y in range(3)]
BENT = [(2.0, 2.0), (2.5, 2.25), (3.0, 2.0)]


def test_shapes_give_ends_and_crossings_but_no_bends(tmp_path: Path) -> None:
    path = write_roads(tmp_path / "tl_2023_53033_roads.shp", [*GRID, BENT], ["S1400"] * 6 + ["S1200"])
    found = seen(read_tiger(path))
    assert found == naive_crossings([*GRID, BENT])
    assert len(found) == 10  # nine corners and the end of the bent road
    assert (2.5, 2.25) not in found


def test_a_road_with_two_names_makes_no_crossings_along_its_way(tmp_path: Path) -> None:
    path = write_roads(tmp_path / "a.shp", [BENT, BENT[::-1], [(2.0, 2.0), (2.0, 3.0)]], ["S1100", "S1200", "S1400"])
    assert seen(read_tiger(path)) == [(2.0, 2.0), (2.0, 3.0), (3.0, 2.0)]


def test_other_lines_are_left_out(tmp_path: Path) -> None:
    river = [(0.5, -1.0), (1.0, 1.0), (9.0, 9.0)]
    path = write_roads(tmp_path / "a.shp", [GRID[0], river], ["S1400", "H3010"])
    assert seen(read_tiger(path)) == [(0.0, 0.0), (0.0, 2.0)]
    with pytest.raises(UnreadableInput, match="contains no roads"):
        read_tiger(write_roads(tmp_path / "b.shp", [river], ["H3010"]))


def test_shapes_are_read_from_a_zip_and_beside_records(tmp_path: Path) -> None:
    path = write_roads(tmp_path / "tl_2023_53033_roads.shp", GRID, ["S1400"] * 6)
    (tmp_path / "set").mkdir()
    with zipfile.ZipFile(tmp_path / "set" / "my roads.zip", "w") as archive:
        for part in tmp_path.glob(f"{path.stem}.*"):
            archive.write(part, part.name)
    assert seen(read_tiger(tmp_path / "set" / "my roads.zip")) == naive_crossings(GRID)
    (tmp_path / "set" / "a.rt1").write_text(record(SEATTLE, (0.0, 0.0)))
    assert seen(read_tiger(tmp_path / "set")) == sorted_points([*naive_crossings(GRID), SEATTLE])


def test_bad_shapes_get_a_sentence(tmp_path: Path) -> None:
    path = write_roads(tmp_path / "a.shp", GRID, ["S1400"] * 6, column="KIND")
    with pytest.raises(UnreadableInput, match="has no column MTFCC"):
        read_tiger(path)
    far = write_roads(tmp_path / "b.shp", [[(500_000.0, 1.0), (2.0, 2.0)]], ["S1400"])
    with pytest.raises(UnreadableInput, match="beyond 180 or 90"):
        read_tiger(far)
    (tmp_path / "c.shp").write_bytes(b"no shapes")
    with pytest.raises(UnreadableInput, match="cannot be read as a shapefile"):
        read_tiger(tmp_path / "c.shp")
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.write(tmp_path / "c.shp", "c.shp")
    with pytest.raises(UnreadableInput, match="cannot be read as a shapefile"):
        read_tiger(tmp_path / "c.zip")
    whole = write_roads(tmp_path / "d.shp", GRID, ["S1400"] * 6)
    for length in (500, 150):
        whole.write_bytes(whole.read_bytes()[:length])
        with pytest.raises(UnreadableInput, match="is incomplete or damaged: some roads have no shape"):
            read_tiger(whole)


def test_other_shapes_than_lines_get_a_sentence(tmp_path: Path) -> None:
    pyogrio, shapely = pytest.importorskip("pyogrio"), pytest.importorskip("shapely")
    spots = shapely.to_wkb(shapely.points(POINTS))
    pyogrio.raw.write(
        tmp_path / "a.shp", spots, [np.array(["S1400"] * 3, object)], ["MTFCC"], geometry_type="Point", crs="EPSG:4269",
        driver="ESRI Shapefile",
    )  # fmt: skip
    with pytest.raises(UnreadableInput, match="must contain roads as lines"):
        read_tiger(tmp_path / "a.shp")


corner = st.tuples(st.integers(-3, 3).map(float), st.integers(-3, 3).map(float))


@given(st.lists(st.lists(corner, min_size=2, max_size=6), min_size=1, max_size=8))
def test_crossings_are_those_of_the_slow_way(lines: list[Line]) -> None:
    shapely = pytest.importorskip("shapely")
    shapes = shapely.to_wkb(np.array([shapely.LineString(line) for line in lines]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiger, "_road_lines", lambda source, where: shapes)
        keys = tiger._crossings("", "")
    points = (
        np.stack(np.divmod(keys, tiger.KEYS_PER_LONGITUDE), axis=1) - tiger.MAX_COORDINATES
    ) / tiger.UNITS_PER_DEGREE
    assert seen(points) == naive_crossings(lines)

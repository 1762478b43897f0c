"""The release file: identity, openness to other programs, refusal of what is not sound."""

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import veilmap as vm
from veilmap.budgets import Workload
from veilmap.errors import BadInput, Damaged, NewerVersion, ReleaseFileError
from veilmap.files.atomic_writes import staged_file
from veilmap.releases import release_file
from veilmap.structures import HilbertR
from veilmap.testing import fixed_entropy
from veilmap.trees import CurveTree

RNG = np.random.default_rng(5)
SQUARE = vm.Domain({"x": (0, 4), "y": (10, 12)})
CLUSTER = np.clip(RNG.normal([1, 11], [0.4, 0.2], (3000, 2)), [0, 10], [4, 12])
WITH_GAPS = vm.Method(
    structure=vm.Quadtree(3), budget=vm.Levels((0, 1, 0, 2)), estimate=vm.Estimate.NOISY_COUNTS, name="gaps"
)


def made(axes=2, **options):
    domain = SQUARE if axes == 2 else vm.Domain({f"a{k}": (0, k + 1) for k in range(axes)})
    points = CLUSTER if axes == 2 else RNG.random((2000, axes))
    if "height" in options:
        options.setdefault("method", "quad-opt")
    return vm.release(points, domain, epsilon=1, **options)


def uneven(axes=2, slopes=True, **options):
    """A release with numbers inside its leaves, whatever its method has of its own."""
    release = made(axes, **options)
    leaf, rng = release.estimates.tree.is_leaf, np.random.default_rng(3)
    slope = np.where(leaf[:, None], rng.normal(0, 9, (len(leaf), axes)).round(1), 0.0)  # with a negative zero
    unevenness = np.where(leaf, 2.0 ** (rng.integers(-9, 60, len(leaf)) / 4), 0.0)
    unevenness[-1] = 0
    return replace(
        release, estimates=replace(release.estimates, slope=slope if slopes else None, unevenness=unevenness)
    )


RELEASES = {
    "slopes": lambda: uneven(method="adaptive-grid"),
    "slopes, one axis": lambda: uneven(axes=1, height=5),
    "slopes in space": lambda: uneven(axes=3, height=2, method="kd-hybrid"),
    "slopes, pruned": lambda: uneven(height=4, prune=20),
    "unevenness": lambda: uneven(slopes=False, height=3),
    "unevenness of a curve": lambda: uneven(slopes=False, height=3, method="hilbert-r"),
    "unevenness, inconsistent": lambda: uneven(slopes=False, height=3, method="quad-geo", prune=20),
    "quad-opt": lambda: made(height=4),
    "default": made,
    "pruned": lambda: made(height=5, prune=20),
    "pruned to the root": lambda: made(height=3, prune=1e9),
    "inconsistent": lambda: made(height=3, method="quad-baseline"),
    "unmeasured levels": lambda: made(method=WITH_GAPS),
    "inconsistent and pruned": lambda: made(height=4, method="quad-geo", prune=30),
    "one axis": lambda: made(axes=1, height=6),
    "one axis, pruned": lambda: made(axes=1, height=6, prune=100),
    "three axes, pruned": lambda: made(axes=3, height=3, prune=40),
    "eight axes": lambda: made(axes=8, height=1),
    "height 0": lambda: made(height=0),
    "medians": lambda: made(height=3, method="kd-hybrid"),
    "a sample": lambda: made(height=2, method="kd-noisymean", sample=0.1),
    "curve": lambda: made(height=3, method="hilbert-r"),
    "curve, pruned": lambda: made(height=3, method="hilbert-r", prune=100),
    "curve in space": lambda: made(axes=3, height=2, method="hilbert-r"),
    "coarse curve": lambda: made(method=vm.Method(structure=HilbertR(4, order=2))),  # with ranges of no cell
    "cells": lambda: made(height=3, method="kd-cell"),
    "even grid": lambda: made(method="uniform-grid"),
    "adaptive grid": lambda: made(method="adaptive-grid"),
    "adaptive grid in space": lambda: made(axes=3, method="adaptive-grid"),
    "privtree": lambda: made(method="privtree"),
    "workload": lambda: made(method=vm.Method(structure=vm.Quadtree(3), budget=Workload([[0, 10, 1, 11]]))),
    "gaussian": lambda: made(height=3, noise="discrete-gaussian", delta=1e-6),
    "gaussian curve": lambda: made(height=2, method="hilbert-r", noise="discrete-gaussian", delta="1/3000000"),
    "delta": lambda: made(method=vm.Method(structure=vm.KdTree(2, median="smooth-sensitivity")), delta=1e-6),
    "people": lambda: made(height=2, unit=np.arange(3000) // 3, max_rows_per_unit=2),
    "exact": lambda: made(height=2, method="kd-pure", allow_nonprivate=True),
}


@pytest.mark.parametrize("make", RELEASES.values(), ids=RELEASES)
def test_save_load_save_is_the_identity(make, tmp_path):
    release = make()
    release.save(tmp_path / "a.parquet")
    loaded = vm.load(tmp_path / "a.parquet")
    loaded.save(tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert loaded.privacy == release.privacy
    assert loaded.domain == release.domain
    assert loaded.header() == release.header()
    assert loaded.nodes.equals(release.nodes)
    for name in ("noisy_count", "noise_variance", "estimate", "subtree_variance"):
        np.testing.assert_array_equal(getattr(loaded.estimates, name), getattr(release.estimates, name))
    for name in ("slope", "known_unevenness"):
        ours, theirs = getattr(release.estimates, name), getattr(loaded.estimates, name)
        assert (ours is None) == (theirs is None)
        assert ours is None or ours.tobytes() == theirs.tobytes()  # zeros with their signs, too
    for name in ("lo", "hi", "children", "level_start"):
        np.testing.assert_array_equal(getattr(loaded.estimates.tree, name), getattr(release.estimates.tree, name))
    lo, hi = release.domain.lo, release.domain.hi
    boxes = np.sort(RNG.uniform(lo - 0.1, hi + 0.1, (50, 2, len(lo))), axis=1).reshape(50, -1)
    before, after = release.count(boxes), loaded.count(boxes)
    np.testing.assert_array_equal(before.estimate, after.estimate)
    np.testing.assert_array_equal(before.stderr, after.stderr)
    np.testing.assert_array_equal(before.high, after.high)
    if isinstance(release.estimates.tree, CurveTree):
        ours, theirs = release.estimates.tree, loaded.estimates.tree
        assert (theirs.order, theirs.bits, theirs.axes) == (ours.order, ours.bits, ours.axes)
        np.testing.assert_array_equal(theirs.keys.lo, ours.keys.lo)
        np.testing.assert_array_equal(theirs.keys.hi, ours.keys.hi)
    assert isinstance(loaded.estimates.tree, CurveTree) == isinstance(release.estimates.tree, CurveTree)


SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "release.schema.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("make", RELEASES.values(), ids=RELEASES)
def test_every_header_fits_the_schema(make):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    header = json.loads(json.dumps(make().header()))
    fits = jsonschema.Draft202012Validator(SCHEMA)
    fits.validate(header)
    header["privacy"]["ledger"][0] |= {"epsilon": 1.0, "epsilon_exact": "1", "rho": 1.0, "rho_exact": "1"}
    assert not fits.is_valid(header)  # one or the other


def test_a_concentrated_release_says_what_it_spent_of_what(tmp_path):
    made(height=2, noise="discrete-gaussian", delta="1/3000000").save(tmp_path / "r.parquet")
    privacy = json.loads(pq.read_schema(tmp_path / "r.parquet").metadata[b"veilmap"])["privacy"]
    assert (privacy["epsilon_exact"], privacy["delta_exact"]) == ("1", "1/3000000")
    assert sum(Fraction(charge["rho_exact"]) for charge in privacy["ledger"]) == Fraction(privacy["rho_exact"])
    assert all({"epsilon", "epsilon_exact"}.isdisjoint(charge) for charge in privacy["ledger"])
    assert privacy["rho"] == float(Fraction(privacy["rho_exact"]))


def test_a_file_from_before_delta_and_rho_is_still_read(file):
    """Format 1 as it was first written."""
    privacy = vm.load(file).header()["privacy"]
    for name in ("delta_exact", "rho", "rho_exact"):
        privacy.pop(name)
    tree = vm.load(file).header()["tree"]
    tree.pop("curve")
    rewritten(file, {"privacy": privacy, "tree": tree})
    assert (vm.load(file).privacy.delta, vm.load(file).privacy.rho) == (0, None)


def test_columns_of_a_curve_are_its_keys(tmp_path):
    release = made(height=2, method="hilbert-r")
    release.save(tmp_path / "r.parquet")
    table, tree = pq.read_table(tmp_path / "r.parquet"), release.estimates.tree
    assert table["key_from"].to_pylist() == tree.keys.lo[:, 0].tolist()
    assert table["key_to"].to_pylist() == tree.keys.hi[:, 0].tolist()
    assert (table["key_from"][0].as_py(), table["key_to"][0].as_py()) == (0, 4**tree.order)
    assert "key_from" not in made(height=2).nodes.column_names


def test_an_axis_may_have_the_name_of_a_column(tmp_path):
    """Of a curve, too: its keys and an axis called key are not the same."""
    domain = vm.Domain({"key": (0, 1), "node": (0, 2), "level": (0, 4)})
    release = vm.release(RNG.random((500, 3)), domain, 1, "hilbert-r", 2)
    release.save(tmp_path / "r.parquet")
    assert np.array_equal(vm.load(tmp_path / "r.parquet").estimates.tree.lo, release.estimates.tree.lo)


def test_slopes_and_edges_are_told_apart_whatever_the_axes_are_called(tmp_path):
    domain = vm.Domain({"x": (0, 1), "x_low": (0, 2), "x_slope": (0, 4)})
    release = vm.release(RNG.random((500, 3)), domain, 1, "kd-hybrid", 2)
    slope = np.where(release.estimates.tree.is_leaf[:, None], RNG.random((release.estimates.tree.size, 3)), 0)
    release = replace(release, estimates=replace(release.estimates, slope=slope))
    release.save(tmp_path / "r.parquet")
    loaded = vm.load(tmp_path / "r.parquet").estimates
    assert np.array_equal(loaded.slope, slope)
    assert np.array_equal(loaded.tree.hi, release.estimates.tree.hi)


def test_only_leaves_have_slopes_and_unevenness(tmp_path):
    uneven(method="adaptive-grid").save(tmp_path / "r.parquet")
    rows = pq.read_table(tmp_path / "r.parquet").to_pandas()
    for name in ("x_slope", "y_slope", "unevenness"):
        assert (rows[name].notna() == rows["leaf"]).all()
    plain = made(height=2)
    plain = replace(plain, estimates=replace(plain.estimates, slope=None, unevenness=None, learn=None))
    assert not {"x_slope", "y_slope", "unevenness"} & set(plain.nodes.column_names)


def test_the_density_in_a_leaf_is_what_the_columns_say(tmp_path):
    """From the file alone, as docs/format.md has it."""
    release = uneven(method="adaptive-grid")
    release.save(tmp_path / "r.parquet")
    rows = pq.read_table(tmp_path / "r.parquet").to_pandas()
    leaf = rows[rows.leaf].iloc[7]
    box = leaf["bbox"]
    for u in (0.25, 0.5, 1.0):  # the part below u along x
        edge = box["xmin"] + u * (box["xmax"] - box["xmin"])
        got = release.count([box["xmin"], box["ymin"], edge, box["ymax"]])
        assert got.estimate[0] == pytest.approx(u * (leaf.estimate + leaf.x_slope * (u / 2 - 1 / 2)), abs=1e-6)
        assert got.error_parts.uneven[0] == pytest.approx(u * (1 - u) * leaf.unevenness, abs=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1.0, None])
@pytest.mark.parametrize("column", ["unevenness", "x_slope"])
def test_crafted_numbers_of_leaves_are_refused(column, value, tmp_path):
    path = tmp_path / "r.parquet"
    uneven(method="adaptive-grid").save(path)
    table, release = pq.read_table(path), vm.load(path)
    numbers = table[column].to_pylist()
    numbers[-5] = value
    place = table.column_names.index(column)
    release_file.write(path, [table.set_column(place, column, pa.array(numbers, pa.float64()))], *rest(release))
    if (column, value) == ("x_slope", -1.0):
        assert vm.load(path).estimates.slope[-5, 0] == -1
    else:
        with pytest.raises(Damaged):
            vm.load(path)


def test_crafted_numbers_of_inner_nodes_are_not_believed(tmp_path):
    path = tmp_path / "r.parquet"
    uneven(method="adaptive-grid").save(path)
    table, release = pq.read_table(path), vm.load(path)
    for column in ("unevenness", "x_slope"):
        numbers = [1e300, *table[column].to_pylist()[1:]]
        table = table.set_column(table.column_names.index(column), column, pa.array(numbers, pa.float64()))
    release_file.write(path, [table], *rest(release))
    assert vm.load(path).estimates.unevenness[0] == 0
    assert not vm.load(path).estimates.slope[0].any()


@pytest.mark.parametrize("kind", ["missing", "text"])
def test_crafted_columns_of_slopes_are_refused(kind, tmp_path):
    path = tmp_path / "r.parquet"
    uneven(method="adaptive-grid").save(path)
    table, release = pq.read_table(path), vm.load(path)
    place = table.column_names.index("y_slope")
    table = table.remove_column(place)
    if kind == "text":
        table = table.add_column(place, "y_slope", pa.array(["steep"] * table.num_rows))
    release_file.write(path, [table], *rest(release))
    with pytest.raises(Damaged):
        vm.load(path)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "release.parquet"
    made(height=3).save(path)
    return path


def test_geopandas_sees_boxes_and_estimates(file):
    geopandas = pytest.importorskip("geopandas", reason="geopandas is not installed")
    frame = geopandas.read_parquet(file)
    release = vm.load(file)
    leaves = frame[frame.leaf]
    assert leaves.geometry.area.sum() == pytest.approx(8)
    assert leaves.geometry.is_valid.all()
    assert leaves.estimate.sum() == release.estimates.estimate[0]
    assert frame.crs is None
    some = geopandas.read_parquet(file, bbox=(0, 10, 0.4, 10.2))  # the covering column lets it read less
    assert 0 < len(some) < len(frame)


@pytest.mark.parametrize("crs", ["OGC:CRS84", "EPSG:4326", "EPSG:3857"])
def test_geopandas_sees_the_coordinate_system(crs, tmp_path):
    geopandas = pytest.importorskip("geopandas", reason="geopandas is not installed")
    domain = vm.Domain({"x": (0, 4), "y": (10, 12)}, crs=crs)
    vm.release(CLUSTER, domain, epsilon=1, method="quad-opt", height=1).save(tmp_path / "r.parquet")
    expected = "OGC:CRS84" if crs == "EPSG:4326" else crs
    assert geopandas.read_parquet(tmp_path / "r.parquet").crs == expected


def test_an_unknown_coordinate_system_is_refused():
    pytest.importorskip("pyproj", reason="pyproj is not installed")
    domain = vm.Domain({"x": (0, 4), "y": (10, 12)}, crs="EPSG:nonsense")
    with pytest.raises(BadInput, match="EPSG:nonsense"):
        vm.release(CLUSTER, domain, epsilon=1, method="quad-opt", height=1)


def test_duckdb_reads_it_in_plain_sql(file):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    sql = f"SELECT sum(estimate) FROM read_parquet('{file}') WHERE leaf AND bbox.xmin >= 2"  # noqa: S608
    with duckdb.connect() as connection:
        total = connection.execute(sql).fetchone()[0]
    assert total == vm.load(file).count([2, 10, 4, 12]).estimate[0]


def test_pyarrow_reads_it_and_its_promise(file):
    table = pq.read_table(file)
    assert table.num_rows == 1 + 4 + 16 + 64
    header = json.loads(table.schema.metadata[b"veilmap"])
    assert header["format"] == 2
    assert header["privacy"]["epsilon_exact"] == "1"
    geo = json.loads(table.schema.metadata[b"geo"])
    assert geo["version"] == "1.1.0"
    assert geo["columns"]["geometry"]["covering"]["bbox"]["xmin"] == ["bbox", "xmin"]


def test_parents_are_the_sums_of_their_children_in_the_file(file):
    table = pq.read_table(file).to_pandas()
    sums = table.groupby("parent").estimate.sum()
    assert (sums == table.estimate[sums.index.astype(int)].to_numpy()).all()


def test_any_flipped_byte_is_noticed(tmp_path):
    path = tmp_path / "r.parquet"
    made(height=1).save(path)
    sound = path.read_bytes()
    for place in range(len(sound)):
        spoiled = bytearray(sound)
        spoiled[place] ^= 1 << (place % 8)
        path.write_bytes(spoiled)
        with pytest.raises(ReleaseFileError):
            vm.load(path)


@pytest.mark.parametrize("part", [0, 3, 100, 0.5, 0.99])
def test_a_file_cut_short_is_noticed(part, file):
    data = file.read_bytes()
    file.write_bytes(data[: part if isinstance(part, int) else int(part * len(data))])
    with pytest.raises(ReleaseFileError, match=r"is truncated|is not a Parquet file"):
        vm.load(file)


def rewritten(file, header):
    """The same file with another header, and a checksum that fits."""
    table = pq.read_table(file)
    release = vm.load(file)
    spoiled = {**release.header(), **header}
    release_file.write(file, [table], spoiled, release.domain)


def test_a_newer_format_says_so(file):
    rewritten(file, {"format": 3})
    with pytest.raises(NewerVersion, match=r"has format 3; this veilmap reads up to 2: pip install --upgrade"):
        vm.load(file)


@pytest.mark.parametrize(
    "header",
    [
        {"domain": {}},
        {"domain": {"axes": [], "crs": None, "bits": 3}},
        {"privacy": {"epsilon_exact": "1/0"}},
        {"tree": {"splits": [[2, 2]] * 9, "nodes": 1, "height": 9}},
        {"tree": {"splits": [[10**6, 10**6]] * 30}},
        {"tree": {"splits": [[-2, -2]] * 3}},
        {"tree": {"splits": [[4]] * 3}},
        {"tree": {"splits": [[2.0, 2.0]] * 3}},
        {"tree": None},
        {"method": None},
        {"provenance": 3},
        {"tree": {"splits": None, "curve": {"kind": "hilbert", "order": 2}, "nodes": 85, "height": 3}},
        {"tree": {"splits": None, "curve": {"kind": "peano", "order": 2}, "nodes": 85, "height": 3}},
        {"tree": {"splits": None, "curve": {}, "nodes": 85, "height": 3}},
    ],
    ids=str,
)
def test_a_header_that_makes_no_sense_is_refused(header, file):
    rewritten(file, header)
    with pytest.raises(ReleaseFileError):
        vm.load(file)


def test_other_files_are_refused_with_a_reason(tmp_path, file):
    pq.write_table(pq.read_table(file), tmp_path / "again.parquet")
    with pytest.raises(ReleaseFileError, match="another program has rewritten"):
        vm.load(tmp_path / "again.parquet")
    (tmp_path / "text.parquet").write_text("lon,lat\n1,2\n")
    with pytest.raises(ReleaseFileError, match="is not a Parquet file"):
        vm.load(tmp_path / "text.parquet")
    with pytest.raises(ReleaseFileError, match=r"Cannot read .*none.parquet: No such file"):
        vm.load(tmp_path / "none.parquet")
    with pytest.raises(ReleaseFileError, match="Is a directory"):
        vm.load(tmp_path)


def test_a_failed_save_leaves_nothing_behind(tmp_path, monkeypatch):
    release = made(height=2)
    with pytest.raises(BadInput, match="No such file or directory"):
        release.save(tmp_path / "no" / "such" / "folder.parquet")

    def full(*_):
        raise OSError(28, "No space left on device")

    release.save(tmp_path / "kept.parquet")
    before = (tmp_path / "kept.parquet").read_bytes()
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(BadInput, match="No space left"):
        release.save(tmp_path / "kept.parquet")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        release.save(tmp_path / "kept.parquet")
    assert [p.name for p in tmp_path.iterdir()] == ["kept.parquet"]
    assert (tmp_path / "kept.parquet").read_bytes() == before


BLOCKED = """
import os, sys, time, veilmap as vm
release = vm.release([[0.5]], vm.Domain({"x": (0, 1)}), 1, "quad-opt", 2)

def block(*_, **__):
    print("blocked", flush=True)
    time.sleep(600)

setattr(os, sys.argv[2], block)
release.save(sys.argv[1])
"""


def killed_in(call, path):
    """A process that saves a release, and is killed in this call of the system."""
    child = subprocess.Popen([sys.executable, "-c", BLOCKED, path, call], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "blocked\n"
    child.kill()
    child.communicate()
    assert child.returncode == -signal.SIGKILL


def contents(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


needs_unnamed_files = pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="this system has no files without a name")


@needs_unnamed_files
@pytest.mark.parametrize("call", ["fsync", "link"])
@pytest.mark.parametrize("before", [False, True], ids=["a new file", "a file that is there"])
def test_a_save_that_is_killed_leaves_no_release_behind(call, before, tmp_path):
    path = tmp_path / "r.parquet"
    if before:
        made(height=1).save(path)
    kept = path.read_bytes() if before else None
    killed_in(call, path)
    assert contents(tmp_path) == ["r.parquet"] * before
    assert kept is None or path.read_bytes() == kept


@needs_unnamed_files
@pytest.mark.parametrize("next_one", ["save", "export"])
def test_what_a_killed_process_left_is_gone_with_the_next_save(next_one, tmp_path):
    """To replace a file, the new one has a name for a moment: killed just then, it stays until the next save."""
    path = tmp_path / "r.parquet"
    made(height=1).save(path)
    kept = path.read_bytes()
    killed_in("replace", path)
    assert len(contents(tmp_path)) == 3
    assert path.read_bytes() == kept
    if next_one == "save":
        made(height=1).save(tmp_path / "s.parquet")
        assert contents(tmp_path) == ["r.parquet", "s.parquet"]
    else:
        made(height=1).export(tmp_path / "s.csv")
        assert contents(tmp_path) == ["r.parquet", "s.csv"]


def test_folders_of_living_processes_and_of_others_are_left_alone(tmp_path):
    (tmp_path / ".veilmap-mine.tmp").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f".veilmap-{'0' * 32}.tmp").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / f".veilmap-{'1' * 32}.tmp").mkdir()
    with staged_file(tmp_path / "slow.csv") as written:
        written.write_text("half")
        made(height=1).save(tmp_path / "r.parquet")
        made(height=1).save(tmp_path / "r.parquet")
        assert written.exists()
    assert contents(tmp_path) == [
        f".veilmap-{'0' * 32}.tmp",
        ".veilmap-mine.tmp",
        "elsewhere",
        "r.parquet",
        "slow.csv",
    ]


def test_where_there_are_no_unnamed_files_saving_works_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("veilmap.files.atomic_writes.unnamed_file", lambda *_: None)
    made(height=1).save(tmp_path / "r.parquet")
    made(height=1).save(tmp_path / "r.parquet")
    with pytest.raises(BadInput, match="File exists"):
        made(height=1).save(tmp_path / "r.parquet", overwrite=False)
    assert contents(tmp_path) == ["r.parquet"]
    assert vm.load(tmp_path / "r.parquet").height == 1


@pytest.mark.parametrize("why", [errno.EPERM, errno.ENOENT, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS])
def test_where_unnamed_files_cannot_be_named_saving_works_the_same(why, tmp_path, monkeypatch):
    def fails(_, place):
        seen = errno.EEXIST if place.exists() else why  # Linux looks at the name first
        raise OSError(seen, os.strerror(seen))

    monkeypatch.setattr("veilmap.files.atomic_writes.give_name", fails)
    made(height=1).save(tmp_path / "r.parquet", overwrite=False)
    made(height=2).save(tmp_path / "r.parquet")
    with pytest.raises(BadInput, match="File exists"):
        made(height=1).save(tmp_path / "r.parquet", overwrite=False)
    assert contents(tmp_path) == ["r.parquet"]
    assert vm.load(tmp_path / "r.parquet").height == 2


PACKED = {
    "a curve of few cells": (2, vm.Method(structure=HilbertR(8, order=1))),
    "an empty grid in space": (3, vm.Method(structure=vm.UniformGrid(cells=40), budget=vm.Levels(("1/50", "49/50")))),
    "an empty quadtree": (2, vm.Method(structure=vm.Quadtree(7))),
}


@pytest.mark.parametrize(("axes", "method"), PACKED.values(), ids=PACKED)
def test_files_that_pack_well_are_read(axes, method, tmp_path):
    """Nobody is there, and there is next to no noise: many nodes for each byte."""
    domain = vm.Domain({f"a{k}": (0, 1) for k in range(axes)})
    release = vm.release(np.zeros((0, axes)), domain, 100, method)
    release.save(tmp_path / "r.parquet")
    loaded, size = vm.load(tmp_path / "r.parquet"), (tmp_path / "r.parquet").stat().st_size
    assert loaded.estimates.tree.size == release.estimates.tree.size
    assert (release.estimates.tree.size > 2 * size) == (method.structure != vm.Quadtree(7))


EXTRA = {
    "text": lambda n: pa.array(["x" * 50] * n),
    "numbers": lambda n: pa.array(np.arange(n) * 1.5),
    "truths": lambda n: pa.array([True, None] * n)[:n],
    "structs": lambda n: pa.array([{"xmin": 1.0, "text": "a"}] * n),
    "categories": lambda n: pa.array(["a", "b"] * n).dictionary_encode()[:n],
}


@pytest.mark.parametrize("kind", EXTRA)
@pytest.mark.parametrize("method", ["quad-opt", "kd-hybrid", "hilbert-r"])
def test_columns_that_no_one_knows_are_not_read(method, kind, tmp_path, monkeypatch):
    path = tmp_path / "r.parquet"
    made(height=2, method=method).save(path)
    release, table = vm.load(path), pq.read_table(path)
    release_file.write(path, [table.append_column("more", EXTRA[kind](table.num_rows))], *rest(release))
    read, really = [], pq.ParquetFile.read
    monkeypatch.setattr(pq.ParquetFile, "read", lambda file, columns: read.append(columns) or really(file, columns))
    assert vm.load(path).nodes.equals(release.nodes)
    numbers = ["noisy_count", "noise_variance", "estimate", "subtree_variance"]
    places = {"quad-opt": [], "kd-hybrid": ["parent", "level", "bbox"]}
    places["hilbert-r"] = ["parent", "level", "key_from", "key_to"]
    assert read == [[*numbers, *places[method], "unevenness"]]


@pytest.mark.parametrize(
    "change",
    [{"nodes": 84}, {"nodes": 86}, {"nodes": 85.0}, {"height": 2}, {"height": 4}, {"splits": [[2, 2]] * 2}],
    ids=str,
)
@pytest.mark.parametrize("method", ["quad-opt", "kd-hybrid"])
def test_nothing_is_read_of_a_file_that_does_not_fit_its_header(method, change, tmp_path, monkeypatch):
    path = tmp_path / "r.parquet"
    made(height=3, method=method, options={"fanout": 2} if method == "kd-hybrid" else None).save(path)
    size = vm.load(path).estimates.tree.size
    change = {name: value + size - 85 if name == "nodes" else value for name, value in change.items()}
    rewritten(path, {"tree": {**vm.load(path).header()["tree"], **change}})
    if "height" not in change or method == "quad-opt":  # of other trees, only the rows say how high they are
        monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: pytest.fail("It is read."))
    with pytest.raises(Damaged):
        vm.load(path)


GOLDEN = ["quad-opt.parquet", "pruned-3d.parquet", "kd-hybrid.parquet", "hilbert-r.parquet"]


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_files_still_say_the_same(name, request):
    """Files written by format 1, kept for ever. `python tests/formats/golden/make.py` wrote them."""
    folder = request.path.parent / "golden"
    release = vm.load(folder / name)
    said = json.loads((folder / name).with_suffix(".json").read_text())
    answers = release.count(said["boxes"])
    assert answers.estimate.tolist() == pytest.approx(said["estimate"], rel=1e-12)
    assert answers.stderr.tolist() == pytest.approx(said["stderr"], rel=1e-12)
    assert not release.privacy.private
    assert (release.estimates.slope, release.estimates.unevenness) == (None, None)


def test_a_golden_file_of_format_2_still_says_the_same(request):
    """Its errors are kept by their parts: how these make an interval may get better."""
    folder = request.path.parent / "golden"
    release, said = vm.load(folder / "slopes.parquet"), json.loads((folder / "slopes.json").read_text())
    answers = release.count(said["boxes"])
    assert answers.estimate.tolist() == pytest.approx(said["estimate"], rel=1e-12)
    for name, values in said["errors"].items():
        assert getattr(answers.error_parts, name).tolist() == pytest.approx(values, rel=1e-9)
    assert max(said["errors"]["cut"]) > 3
    assert not release.privacy.private


PRIVATE_GOLDEN = ["private-best", "private-people", "private-medians", "private-privtree"]


@pytest.mark.parametrize("name", PRIVATE_GOLDEN)
def test_private_files_of_the_first_edition_pass_all_checks(name, request, run):
    """Their charges have older descriptions. Version 0.1.0 wrote them, and they are never written again."""
    path = request.path.parent / "golden" / f"{name}.parquet"
    release, stored = vm.load(path), json.loads(path.with_suffix(".json").read_text())
    assert release.privacy.private
    assert [[c.what, str(c.epsilon or c.rho)] for c in release.privacy.ledger] == stored["charges"]
    costs = release.path_costs()
    assert costs.agrees
    assert costs.total == pytest.approx(stored["total"], rel=1e-9)
    answers = release.count(stored["boxes"])
    assert answers.estimate.tolist() == pytest.approx(stored["estimate"], rel=1e-12)
    for part, values in stored["errors"].items():
        assert getattr(answers.error_parts, part).tolist() == pytest.approx(values, rel=1e-9)
    status, _, err = run("info", path, "--check")
    assert (status, err) == (0, "")


def test_fixed_entropy_is_written_into_the_file(tmp_path):
    with fixed_entropy(1):
        made(height=1).save(tmp_path / "r.parquet")
    header = json.loads(pq.read_schema(tmp_path / "r.parquet").metadata[b"veilmap"])
    assert header["privacy"]["private"] is False
    assert header["privacy"]["statement"].startswith("NOT PRIVATE")


def crafted(path, change):
    """A pruned release with other rows, and a checksum that fits: what an attacker can write."""
    made(height=4, prune=20).save(path)
    release = vm.load(path)
    table = change(pq.read_table(path).to_pandas())
    schema = pq.read_schema(path)
    header = {**release.header(), "tree": {"nodes": len(table), "height": 3, "splits": None}}
    release_file.write(path, [pa.Table.from_pandas(table, schema=schema, preserve_index=False)], header, release.domain)


@pytest.mark.parametrize("order", [0, -1, 2, 17, 19, 32, 2.0, "18", None, True])
def test_a_crafted_curve_cannot_leave_its_domain(order, tmp_path):
    path = tmp_path / "r.parquet"
    made(height=2, method="hilbert-r").save(path)  # of order 18
    rewritten(path, {"tree": {**vm.load(path).header()["tree"], "curve": {"kind": "hilbert", "order": order}}})
    with pytest.raises(ReleaseFileError):
        vm.load(path)


@pytest.mark.parametrize(("column", "value"), [("key_from", -1), ("key_from", 2**40), ("key_to", 2**40), ("key_to", 0)])
def test_crafted_keys_cannot_leave_the_curve(column, value, tmp_path):
    path = tmp_path / "r.parquet"
    made(height=2, method="hilbert-r").save(path)
    table, release = pq.read_table(path), vm.load(path)
    keys = table[column].to_numpy().copy()
    keys[5] = value
    release_file.write(
        path, [table.set_column(table.column_names.index(column), column, pa.array(keys))], *rest(release)
    )
    with pytest.raises(ReleaseFileError):
        vm.load(path)


def rest(release):
    return release.header(), release.domain


def chain(rows):
    """A path of 3,000 nodes, each the only child of the one before: deeper than any walk has room for."""
    rows = rows.iloc[np.zeros(3000, int)].reset_index(drop=True)
    rows["node"] = rows["level"] = np.arange(3000)
    rows["parent"] = rows["node"] - 1.0
    rows.loc[0, "parent"] = np.nan
    return rows


def with_column(name, value):
    def change(rows):
        rows.loc[rows.index[2:], name] = value
        return rows

    return change


def with_wider_boxes(rows):
    rows["bbox"] = [{**box, "xmax": box["xmax"] + 1} for box in rows["bbox"]]
    return rows


@pytest.mark.parametrize(
    "change",
    [chain, with_column("parent", 10**6), with_column("parent", -5), with_column("level", 7), with_wider_boxes],
    ids=["chain", "parent beyond", "parent below", "level", "boxes"],
)
def test_a_crafted_file_cannot_make_a_walk_leave_its_arrays(change, tmp_path):
    crafted(tmp_path / "r.parquet", change)
    with pytest.raises(ReleaseFileError):
        vm.load(tmp_path / "r.parquet")


@pytest.mark.parametrize("name", ["", ".", "a\0b", "x" * 300])
def test_a_place_that_cannot_be_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="Cannot write"):
        made(height=1).save(name)
    assert not list(tmp_path.iterdir())


def test_a_file_that_came_in_the_meantime_is_kept(tmp_path):
    (tmp_path / "r.parquet").write_text("mine")
    with pytest.raises(BadInput, match="File exists"):
        made(height=1).save(tmp_path / "r.parquet", overwrite=False)
    assert (tmp_path / "r.parquet").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1

"""The targets of `make fuzz`, for a few seconds; what once went wrong; and files made to do harm."""

import copy
import io
import json
import os
import pickle
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilmap as vm
from veilmap.errors import BadInput, Damaged, ReleaseFileError, TooLarge, VeilmapError
from veilmap.files import parquet_limits
from veilmap.method import resources
from veilmap.releases import release_file
from veilmap.structures.best import Best
from veilmap.structures.best_tuning import TUNING
from veilmap.structures.noisy_grid_kd import CellTree
from veilmap.testing import fixed_entropy

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from fuzz.__main__ import (  # noqa: E402
    GDAL_DRIVER_OF_TARGET,
    TARGET_NAMES,
    environment,
)
from fuzz.mutate import mutated  # noqa: E402
from fuzz.targets import TARGETS, with_checksum  # noqa: E402

RNG = np.random.default_rng(8)
POINTS = RNG.normal([2, 11], [0.5, 0.3], (4000, 2))
DOMAIN = vm.Domain({"x": (0, 4), "y": (10, 12)})


def test_make_fuzz_runs_every_target():
    assert set(TARGET_NAMES) == set(TARGETS)


HERE = [name for name in TARGETS if name not in GDAL_DRIVER_OF_TARGET]


@pytest.mark.parametrize("name", HERE)
def test_what_once_went_wrong_does_not_again(name):
    for data in TARGETS[name].inputs():
        TARGETS[name].run(data)


@pytest.mark.parametrize("name", GDAL_DRIVER_OF_TARGET)
def test_gis_files_with_changes_reach_no_other_file_and_end_no_process(name):
    command = [sys.executable, "-m", "fuzz.short", name, "150"]
    done = subprocess.run(command, cwd=ROOT, env=environment(name), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{name}: 150 rounds\n"), done.stderr[-2000:]


@pytest.mark.parametrize("name", HERE)
def test_readers_say_no_in_their_own_words(name):
    """Usual inputs with a few changes, and anything at all."""
    chosen = TARGETS[name]
    usual = chosen.inputs()
    for data in usual:  # so that most is compiled before time is taken
        chosen.run(data)

    @settings(max_examples=40, deadline=60_000, database=None)  # the rest may take long on a slow machine
    @given(st.data())
    def check(data):
        start = data.draw(st.sampled_from(usual), "start")
        if chosen.is_json:
            chosen.run(mutated(start, data.draw(st.integers(0, 2**32), "seed")))
            return
        at, length = data.draw(st.integers(0, len(start))), data.draw(st.integers(0, 8))
        chosen.run(start[:at] + data.draw(st.binary(max_size=12)) + start[at + length :])

    check()


def test_a_reader_that_fails_is_noticed(monkeypatch):
    """The same check fails on a near miss: a reader that lets another error out."""
    monkeypatch.setattr("veilmap.domain.float", lambda text: 1 / 0, raising=False)
    with pytest.raises(ZeroDivisionError):
        TARGETS["domain"].run(b"x=0:1")


@pytest.mark.parametrize(("text", "shown"), [("a\x1b[2Jb", r"a\x1b[2Jb"), ("a\nb", r"a\nb"), ("\ud800", r"\ud800")])
def test_no_error_says_what_a_terminal_would_obey(text, shown):
    assert str(VeilmapError(text)) == shown
    assert len(str(BadInput("x" * 10**6))) < 1100


# Release files that are made to do harm


def saved(path, release):
    release.save(path)
    return path.read_bytes()


def made(method="best", **options):
    with fixed_entropy(3):
        return vm.release(POINTS, DOMAIN, 1, method, **options)


def rewritten(path, change, method="quad-opt", **options):
    """A release whose header and table went through ``change``, with a checksum that fits."""
    release = made(method, **options)
    release.save(path)
    header, table = change(release.header(), pq.read_table(path))
    release_file.write(path, [table], header, release.domain)


def column_with(name, value, row=-1):
    def change(header, table):
        numbers = table[name].to_pylist()
        numbers[row] = value
        return header, table.set_column(table.column_names.index(name), name, pa.array(numbers, table[name].type))

    return change


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("estimate", np.nan),
        ("estimate", np.inf),
        ("estimate", -1e300),
        ("estimate", None),
        ("noise_variance", -1.0),
        ("noise_variance", np.nan),
        ("noise_variance", np.inf),
        ("subtree_variance", -1e-9),
        ("subtree_variance", np.nan),
        ("subtree_variance", None),
        ("subtree_variance", 1e300),
        ("unevenness", 1e300),
    ],
)
def test_numbers_that_cannot_be_are_refused(name, value, tmp_path):
    rewritten(tmp_path / "r.parquet", column_with(name, value), height=2)
    with pytest.raises(Damaged, match="have impossible values"):
        vm.load(tmp_path / "r.parquet")


@pytest.mark.parametrize("value", [1e300, -1e21])
def test_slopes_that_cannot_be_are_refused(value, tmp_path):
    rewritten(tmp_path / "r.parquet", column_with("x_slope", value), method="best")
    with pytest.raises(Damaged, match="have impossible values"):
        vm.load(tmp_path / "r.parquet")


@pytest.mark.parametrize(("name", "row"), [("parent", 3), ("level", 0), ("level", 5)])
def test_trees_with_gaps_are_refused(name, row, tmp_path):
    rewritten(tmp_path / "r.parquet", column_with(name, None, row), method="kd-standard", height=2)
    with pytest.raises(Damaged):
        vm.load(tmp_path / "r.parquet")


def header_with(*place, value):
    def change(header, table):
        *above, last = place
        at = header
        for key in above:
            at = at[key]
        at[last] = value
        return header, table

    return change


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("format",), "2"),
        (("format",), 10**30),
        (("privacy", "epsilon_exact"), "1e999999999"),
        (("privacy", "epsilon_exact"), "101"),
        (("privacy", "epsilon_exact"), "-1"),
        (("privacy", "delta_exact"), "1/2"),
        (("privacy", "private"), 1),
        (("privacy", "unit"), "one \x1b[31mrow"),
        (("privacy", "ledger", 0, "epsilon_exact"), "7/3"),  # more than there is
        (("privacy", "ledger", 0, "epsilon_exact"), "1/" + "3" * 900),
        (("privacy", "ledger", 0, "what"), None),
        (("method", "name"), "\x07"),
        (("method", "structure"), {}),
        (("provenance",), {}),
        (("provenance", "software"), "\x1b]0;title\x07"),
        (("tree", "splits"), [[1, 1]] * 300),
        (("tree", "splits"), [[10**4000, 1]]),
        (("borders",), {"across": [0, 1], "growth": 0}),
        (("borders",), {"across": [1, float("nan")], "growth": 0}),
        (("borders",), {"across": [1, 1], "growth": float("inf")}),
        (("provenance", "extra"), json.loads("[" * 500 + "]" * 500)),
    ],
    ids=str,
)
def test_headers_that_cannot_be_are_refused(place, value, tmp_path):
    if place == ("privacy", "ledger", 0, "epsilon_exact") and value.startswith("1/"):

        def change(header, table):  # each has digits of its own: their sum has ever more
            charge = header["privacy"]["ledger"][0]
            long = [{**charge, "epsilon_exact": f"1/{10**900 + k}"} for k in range(1, 300)]
            header["privacy"]["ledger"] = long
            return header, table
    else:
        change = header_with(*place, value=value)
    rewritten(tmp_path / "r.parquet", change, height=2)
    with pytest.raises(ReleaseFileError):
        vm.load(tmp_path / "r.parquet")


@pytest.mark.parametrize("text", [b"[" * 200_000, b"[]", b'{"format": 2}', b'{"format": NaN}', b"\xff", b"9" * 9000])
def test_headers_that_are_no_header_are_refused(text, tmp_path):
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, schema := pa.schema([("node", pa.int64())])) as writer:
        writer.write_table(pa.table({"node": [0]}, schema=schema))
        writer.add_key_value_metadata({"veilmap": text, "veilmap:checksum": f"sha256:{'0' * 64}"})
    path = tmp_path / "r.parquet"
    path.write_bytes(with_checksum(buffer.getvalue()))
    with pytest.raises(Damaged):
        vm.load(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_what_has_no_end_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.parquet")
    for path in (tmp_path / "pipe.parquet", Path("/dev/zero")):
        with pytest.raises(ReleaseFileError, match="pipe or a device"):
            vm.load(path)


def sealed_file(table, header=b'{"format": 2}', **options):
    """Any Parquet file, with a checksum that fits."""
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, table.schema, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"veilmap": header, "veilmap:checksum": f"sha256:{'0' * 64}"})
    return with_checksum(buffer.getvalue())


def test_a_file_that_unpacks_to_more_than_its_size_warrants_is_refused(tmp_path, monkeypatch):
    """Many rows of one value, and a page of a few bytes that unpacks to many: both are seen before they are read."""
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: pytest.fail("It is unpacked."))
    many = sealed_file(pa.table({"estimate": pa.array(np.zeros(3_000_000))}), compression="zstd")
    assert len(many) < 20_000
    text = sealed_file(pa.table({"estimate": ["0" * 10_000_000]}), compression="zstd", use_dictionary=False)
    assert len(text) < 20_000
    longer = pa.StructArray.from_arrays([pa.array(["0" * 10_000] * 1000)], ["a"])
    twice = sealed_file(pa.Table.from_arrays([pa.array(np.zeros(1000)), longer], ["estimate", "estimate"]))
    for data in (many, text, twice):
        with pytest.raises(Damaged):
            release_file.parsed("bomb", data)
    with pytest.raises(pytest.fail.Exception):
        release_file.parsed("none", (ROOT / "tests" / "formats" / "golden" / "kd-hybrid.parquet").read_bytes())


def test_a_curve_has_at_most_ten_nodes_for_each_byte():
    release = vm.release(np.zeros((9, 2)), vm.Domain({"x": (0, 1), "y": (0, 1)}), 1, "hilbert-r", height=1)
    rows = 1 << 20
    record = {**release.header(), "tree": {"nodes": rows, "height": 1, "splits": None}}
    record["tree"]["curve"] = {"kind": "hilbert", "order": 12}
    zeros = pa.table({"estimate": pa.array(np.zeros(rows))})
    for a_byte, fits in ((9, True), (12, False)):
        padding = rows // a_byte - len(sealed_file(zeros, json.dumps(record).encode(), compression="zstd"))
        data = sealed_file(zeros, json.dumps({**record, "more": "x" * padding}).encode(), compression="zstd")
        assert a_byte - 1 < rows / len(data) < a_byte + 1
        if fits:
            assert release_file.stated("curve", data) == (release.domain, rows)
        else:
            with pytest.raises(Damaged):
                release_file.stated("curve", data)


@pytest.mark.parametrize("name", ["quad-opt", "kd-hybrid", "slopes"])
def test_usual_files_hold_little(name):
    data = (ROOT / "tests" / "formats" / "golden" / f"{name}.parquet").read_bytes()
    rows = pq.read_metadata(io.BytesIO(data)).num_rows
    parquet_limits.must_be_within_limits(data, rows, 128, 1 << 14)
    with pytest.raises(ValueError, match="rows is too large"):
        parquet_limits.must_be_within_limits(data, rows - 1, 128, 1 << 14)
    with pytest.raises(ValueError, match="holds more data"):
        parquet_limits.must_be_within_limits(data, rows, 1, 0)


def test_sizes_of_pages_are_what_pyarrow_says_of_them():
    """A twin: pyarrow adds up the sizes of headers and pages when it writes."""
    for packed in ("none", "zstd", "gzip"):
        for rows in (1, 1000, 70_000):
            buffer, numbers = io.BytesIO(), RNG.random(rows)
            pq.write_table(pa.table({"a": numbers, "b": numbers.round(1)}), buffer, compression=packed, version="2.6")
            data, metadata = buffer.getvalue(), pq.read_metadata(buffer)
            reader = parquet_limits.Reader(data)
            for k, column in enumerate(
                reader.footer()[parquet_limits.FOOTER_ROW_GROUPS][0][parquet_limits.GROUP_COLUMNS]
            ):
                about, theirs = column[parquet_limits.COLUMN_METADATA], metadata.row_group(0).column(k)
                size = reader.uncompressed_size(about)
                headers = theirs.total_uncompressed_size - size
                assert 0 < headers < 60 * (2 + rows // 10_000)
                assert about[parquet_limits.COLUMN_VALUES] == rows


@pytest.mark.parametrize("inner", [b"\x00", b"\x19\x00" + b"\x00"], ids=["structs", "lists"])
def test_a_footer_that_never_ends_is_left_soon(inner):
    """Lists of nothings: a few bytes for each, and many in a file."""
    some = b"\x49" + b"\xfc" + b"\xff\xff\xff\x7f" + inner * 400_000
    data = b"PAR1" + some + len(some).to_bytes(4, "little") + b"PAR1"
    started = time.process_time()
    with pytest.raises(ValueError, match="too many values"):
        parquet_limits.must_be_within_limits(data, 10**9, 128, 1 << 14)
    assert time.process_time() - started < 5


def test_loading_executes_nothing(tmp_path):
    """Neither Python's own extension type, whose metadata is a pickle, nor a pickle that stands for JSON."""
    mark = tmp_path / "executed"

    class Harm:
        def __reduce__(self):
            return Path.touch, (mark,)

    field = pa.field(
        "estimate",
        pa.float64(),
        metadata={
            "ARROW:extension:name": "arrow.py_extension_type",
            "ARROW:extension:metadata": pickle.dumps(Harm(), 0),
        },
    )
    table = pa.Table.from_arrays([pa.array([1.0])], schema=pa.schema([field]))
    release, points = tmp_path / "r.parquet", tmp_path / "points.parquet"
    for header in (b'{"format": 2}', pickle.dumps(Harm(), 0)):
        release.write_bytes(sealed_file(table, header))
        with pytest.raises(ReleaseFileError):
            vm.load(release)
    pq.write_table(table.rename_columns(["x"]), points)
    vm.release(points, vm.Domain({"x": (0, 1)}), 1, "quad-opt", 1)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Harm()))
    assert mark.exists()  # so it would have been


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_small_file_takes_little_memory(tmp_path):
    """A page of 15 KB that unpacks to 150 MB."""
    path = tmp_path / "bomb.parquet"
    text = pa.table({"estimate": ["0" * 150_000_000]})
    path.write_bytes(sealed_file(text, compression="zstd", use_dictionary=False, write_statistics=False))
    del text
    assert path.stat().st_size < 20_000
    assert kilobytes_to_refuse(path) < 50_000


def kilobytes_to_refuse(path):
    """Memory that a process needs to refuse a file, beyond what it needs for a small one."""
    script = (
        "import re, sys, veilmap as vm\n"
        "from pathlib import Path\n"
        "from veilmap.errors import Damaged\n"
        # ru_maxrss would begin with what the process that started this one had
        "most = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])\n"
        "vm.load(sys.argv[2])\n"
        "before = most()\n"
        "try:\n    vm.load(sys.argv[1])\n"
        "except Damaged:\n    print(most() - before)\n"
    )
    words = [sys.executable, "-c", script, path, ROOT / "tests" / "formats" / "golden" / "kd-hybrid.parquet"]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def many_rows(path, axes, agreeing, extra, rows=8_000_000, size=510_000):
    """A file of 510 kB with 8 million rows of nothing: 16 for each byte, which few bytes can say."""
    domain = vm.Domain({f"a{k}": (0, 1) for k in range(axes)})
    with fixed_entropy(3):
        header = vm.release(RNG.random((100, axes)), domain, 1, "kd-standard", height=1).header()
    if agreeing:
        header["tree"] |= {"nodes": rows}
    nothing = pa.array(np.zeros(rows))
    columns = dict.fromkeys(("noise_variance", "estimate", "subtree_variance"), nothing)
    columns |= {"parent": nothing.cast(pa.int64()), "level": nothing.cast(pa.int16())}
    columns |= {"noisy_count": columns["parent"]} | {f"extra{k}": nothing for k in range(extra)}
    if axes == 2:
        columns["bbox"] = pa.StructArray.from_arrays([nothing] * 4, ["xmin", "ymin", "xmax", "ymax"])
    else:
        columns |= {f"{name}_{end}": nothing for name in domain.names for end in ("low", "high")}
    table = pa.table(columns)
    buffer = io.BytesIO()
    with pq.ParquetWriter(
        buffer, table.schema, compression="zstd", write_statistics=False, data_page_size=1 << 24
    ) as w:
        w.write_table(table, row_group_size=rows)
        room = max(0, size - buffer.tell())
        w.add_key_value_metadata({"veilmap": json.dumps(header), "veilmap:checksum": f"sha256:{'0' * 64}"})
        w.add_key_value_metadata({"room": RNG.bytes(room // 2).hex()})
    path.write_bytes(with_checksum(buffer.getvalue()))
    assert rows / 16 < path.stat().st_size < 2 * size


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("agreeing", [False, True], ids=["another header", "a header that agrees"])
def test_a_file_with_many_rows_of_nothing_takes_little_memory(axes, agreeing, tmp_path):
    many_rows(tmp_path / "r.parquet", axes, agreeing, extra=6)
    with pytest.raises(Damaged):
        vm.load(tmp_path / "r.parquet")
    assert kilobytes_to_refuse(tmp_path / "r.parquet") < 50_000


# Pickles and memory


@pytest.mark.parametrize("copied", [lambda r: pickle.loads(pickle.dumps(r)), copy.deepcopy])
def test_copies_hold_what_is_published_and_no_more(copied):
    release = made("quad-opt", height=5, prune=60.0)
    whole = sum(4**k for k in range(6))
    assert release.estimates.learn is not None
    twin = copied(release)
    assert twin.estimates.learn is None
    assert np.array_equal(twin.estimates.unevenness, release.estimates.known_unevenness)
    boxes = [[0, 10, 1.3, 11.2], [1, 10.5, 3, 12]]
    assert np.array_equal(twin.count(boxes).high, release.count(boxes).high)
    assert not twin.estimates.estimate.flags.writeable
    assert release.estimates.tree.size < whole / 4
    assert max(len(a) for a in arrays_in(twin, set())) < whole / 2
    assert max(len(a) for a in arrays_in(release, set())) >= whole  # the same search finds more where there is more


def arrays_in(thing, seen):
    """All arrays that hang on an object."""
    if id(thing) in seen or isinstance(thing, (type, str, bytes, int, float, Fraction)):
        return
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        yield thing.reshape(-1, 1) if thing.ndim == 0 else thing
    inside = [*vars(thing).values()] if hasattr(thing, "__dict__") else []
    inside += [getattr(thing, name) for name in getattr(type(thing), "__slots__", ()) if hasattr(thing, name)]
    inside += [thing.func, *thing.args] if hasattr(thing, "func") and hasattr(thing, "args") else []
    inside += list(thing.values()) if isinstance(thing, dict) else []
    inside += list(thing) if isinstance(thing, (list, tuple)) else []
    for part in inside:
        yield from arrays_in(part, seen)


def test_trees_that_choose_their_height_are_refused_where_they_would_not_fit(monkeypatch):
    monkeypatch.setattr(resources, "free_memory", lambda: 10 * 2**20)
    for method in ("best", "quad-opt"):
        with pytest.raises(TooLarge, match=rf"{method} may have about .* nodes and need .* GiB .* height 8"):
            vm.release(POINTS, DOMAIN, 1, method)
    monkeypatch.setattr(resources, "free_memory", lambda: 2**30)
    assert made().estimates.tree.size < Best.max_nodes == 2 * TUNING.max_leaves


# What fuzzing found in what is typed


@pytest.mark.parametrize(
    "record",
    [3, {}, {"name": ""}, {"structure": {"name": 4}}, {"noise": "pink"}, {"structure": {"name": "quadtree"}}],
    ids=str,
)
def test_json_that_is_no_method_is_refused(record):
    whole = vm.Method.from_json(made("quad-opt", height=2).method).to_json()
    with pytest.raises(BadInput, match=r"not a method as Method\.to_json|is not known here|needs a name"):
        vm.Method.from_json({**whole, **record} if record and isinstance(record, dict) else record)


def test_numbers_beyond_all_floats_are_refused():
    release, huge = made("quad-opt", height=1), 10**400
    for bad in (
        lambda: release.count([0, 10, huge, 12]),
        lambda: vm.Workload([[0, 0, huge, huge]]),
        lambda: vm.Geometric(huge),
        lambda: replace(vm.Method.from_json(release.method), prune_below=huge),
        lambda: CellTree(height=huge),
        lambda: vm.release(POINTS, DOMAIN, 1, "uniform-grid", options={"cells": huge}),
    ):
        with pytest.raises(BadInput):
            bad()


def test_a_name_that_cannot_be_printed_is_refused_before_it_is_in_a_file():
    with pytest.raises(BadInput, match="printable"):
        replace(vm.Method.from_json(made("quad-opt", height=1).method), name="a\nb")
    table = {"x": POINTS[:, 0], "y": POINTS[:, 1], "a\tb": np.arange(4000)}
    with pytest.raises(BadInput, match="Rename the column"):
        vm.release(pa.table(table), DOMAIN, 1, unit="a\tb", max_rows_per_unit=1)


def test_cell_trees_stay_within_what_readers_walk(tmp_path):
    """Cuts at grid lines next to a dense corner: a deep tree if nothing stops it."""
    line = vm.Domain({"x": (0, 1)})
    points = (2.0 ** -RNG.integers(1, 30, 20_000))[:, None]
    with fixed_entropy(1):
        deep = vm.release(points, line, 100, "kd-cell", 62)
    deep.save(tmp_path / "r.parquet")
    assert vm.load(tmp_path / "r.parquet").height == deep.height < 128

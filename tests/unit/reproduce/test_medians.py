"""Figure 4 of the study: trees by each kind of median, their rank errors, and what is claimed of them."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import veilmap as vm
from veilmap.reproduce import medians
from veilmap.reproduce.medians import DEPTH_COUNT, GRID_CELLS, MEDIAN_KINDS, VALUE_DOMAIN, NextLevel
from veilmap.reproduce.study import Row, Setting
from veilmap.testing import fixed_entropy

TINY = 2**12


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """A tiny run of all tasks."""
    return [row for kind in MEDIAN_KINDS.values() for row in medians.run(kind, 7, 0, TINY)]


def without_times(rows: list[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if not name.startswith("time_")} for row in rows]


def test_every_task_gives_a_row_a_depth(rows: list[Row]) -> None:
    assert len(rows) == len(MEDIAN_KINDS) * DEPTH_COUNT
    assert json.loads(json.dumps(rows)) == rows
    for row in rows:
        assert 0 <= row["error"] <= 1
        assert 1 <= row["nodes"] <= 2 ** row["depth"]
        assert min(row["time_once"], row["time_level"], row["time_alone"]) > 0


def test_the_experiment_has_a_task_for_each_tree() -> None:
    for quick, points in ((True, 2**17), (False, 2**20)):
        setting = Setting(np.zeros((0, 2)), vm.Domain({"x": (0, 1), "y": (0, 1)}), "none", quick=quick)
        experiment = medians.experiment(setting)
        names = [task.name for task in experiment.tasks]
        assert len(set(names)) == len(names) == setting.repeats * len(MEDIAN_KINDS)
        assert all(task.run.args[-1] == points for task in experiment.tasks)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", MEDIAN_KINDS.values(), ids=list(MEDIAN_KINDS))
def test_a_seed_gives_the_same_rows_again_and_another_gives_others(kind: medians.MedianKind) -> None:
    points = 2**17 if kind.name == "SS" else TINY  # its cuts would all be outside of less data
    of_seed = [(7, 0), (7, 0), (7, 1), (8, 0)]
    first, again, repeat, seed = (without_times(medians.run(kind, *which, points)) for which in of_seed)
    assert again == first
    assert seed != first
    assert [{**row, "repeat": 0} for row in repeat] != first


# Rank errors, and a slow obvious twin.


def slow_errors(points: list[float], borders: list[int], cut: list[int]) -> list[float]:
    def value(cell: int) -> float:
        return float(Fraction(cell, VALUE_DOMAIN.side) * 2**26)

    errors = []
    for lo, hi, at in zip(borders[:-1], borders[1:], cut, strict=True):
        inside = [x for x in points if value(lo) <= x < value(hi)]
        if inside:
            rank = sum(x < value(at) for x in inside)
            errors.append(abs(rank - len(inside) / 2) / (len(inside) / 2))
    return errors


@given(st.data())
def test_rank_errors_are_those_of_the_slow_twin(data: st.DataObject) -> None:
    points = sorted(data.draw(st.lists(st.floats(0, 2**26, exclude_max=True), max_size=40)))
    borders = [0, *sorted(data.draw(st.lists(st.integers(0, VALUE_DOMAIN.side), max_size=5))), VALUE_DOMAIN.side]
    cut = [data.draw(st.integers(lo, hi)) for lo, hi in pairwise(borders)]
    found = medians.rank_errors(np.array(points), np.array(borders), np.array(cut))
    assert found == pytest.approx(slow_errors(points, borders, cut))
    assert medians.with_cuts(np.array(borders), np.array(cut)).tolist() == sorted([*borders, *cut])


def test_a_true_median_has_no_error_and_one_outside_the_data_all_of_it() -> None:
    points, whole, cell = np.array([8.0, 9.0, 10.0, 11.0]), np.array([0, VALUE_DOMAIN.side]), 32  # cells in one unit
    for value, error in ((10, 0.0), (9, 0.5), (8, 1.0), (3, 1.0), (12, 1.0), (2**20, 1.0)):
        assert medians.rank_errors(points, whole, np.array([value * cell])).tolist() == [error]


# Trees.


def test_each_level_spends_its_own_budget_and_no_more() -> None:
    points = np.random.default_rng(1).uniform(0, 2**26, (TINY, 1))
    for kind in MEDIAN_KINDS.values():
        if kind.mechanism == "grid":
            continue
        method = vm.Method(structure=NextLevel(kind, []), budget=vm.LeafOnly())
        release = vm.release(points, VALUE_DOMAIN, 2 * kind.epsilon, method, delta=kind.delta)
        charge = next(charge for charge in release.privacy.ledger if "medians" in charge.what)
        assert (charge.epsilon, charge.delta) == (Fraction(1, 100), kind.delta or 0)
        assert charge.mechanism == kind.mechanism


@pytest.mark.parametrize("name", ["EM", "NM"])
def test_one_release_a_level_makes_the_trees_that_a_kd_tree_makes(name: str) -> None:
    """At a budget that leaves little to chance, the two doors lead to the same cuts but for a few ranks."""
    points = np.sort(np.random.default_rng(2).uniform(0, 2**26, TINY))
    structure = vm.KdTree(height=4, fanout=2, median=MEDIAN_KINDS[name].mechanism, median_share="1/2")
    with fixed_entropy(1):
        tree = vm.release(points[:, None], VALUE_DOMAIN, 80, vm.Method(structure=structure)).estimates.tree

    def apart(epsilon: Fraction) -> int:
        """Ranks between cuts of the kd-tree, which have ε = 10, and others."""
        kind = medians.MedianKind(name, MEDIAN_KINDS[name].mechanism, None, epsilon, "", "", "")
        with fixed_entropy(2):
            cuts, _, _ = medians.grow_tree(points, kind, 4)
        borders = [VALUE_DOMAIN.edges(tree.hi[tree.level(depth + 1), 0][::2], 0) for depth in range(4)]
        pairs = zip(borders, (VALUE_DOMAIN.edges(cut, 0) for cut in cuts), strict=True)
        return max(int(np.abs(np.searchsorted(points, a) - np.searchsorted(points, b)).max()) for a, b in pairs)

    assert apart(Fraction(10)) < 10 < apart(Fraction(1, 100))


def test_cells_are_cut_at_grid_lines_next_to_the_median() -> None:
    kind = medians.MedianKind("cell", "grid", None, Fraction(60), "", "", "")  # hardly any noise
    points = np.random.default_rng(3).uniform(0, 2**26, TINY)
    cuts, _, _ = medians.grow_tree(points, kind, 3)
    borders = np.array([0, VALUE_DOMAIN.side])
    for cut in cuts:
        assert not np.any(cut % (VALUE_DOMAIN.side // GRID_CELLS))
        assert medians.rank_errors(np.sort(points), borders, cut).max() < 0.01
        borders = medians.with_cuts(borders, cut)


def test_sample_is_of_one_level_and_worth_more_than_that_of_a_whole_tree() -> None:
    """SSs at depth 0: with the budget of a shared sample its noise would be several times as wide."""
    points = np.random.default_rng(4).uniform(0, 2**26, 2**17)

    def typical(kind: medians.MedianKind) -> float:
        with fixed_entropy(5):
            found = [int(medians.grow_tree(points, kind, 1)[0][0][0]) for _ in range(60)]
        return float(np.median(np.abs(np.array(found) / VALUE_DOMAIN.side - 0.5)))

    # S of the sample is about 2 / eξn, and the noise (2S / ε) Lap(1), whose median is ln 2.
    inner = float(np.log1p(100 * np.expm1(0.01)))
    xi = inner / (4 * (1 + np.log(2 / 0.01)))
    expected = 2 / inner * 2 / (np.e * xi * 2**17 / 100) * np.log(2)
    assert expected / 2 < typical(MEDIAN_KINDS["SSs"]) < expected * 2
    shared = medians.MedianKind(
        "", "smooth-sensitivity", Fraction(1, 100), Fraction(28, 10**4), "", "", ""
    )  # inside: 0.25
    assert typical(shared) > expected * 2


# What is said of the rows.

ERRORS = {"SS": 0.9, "SSs": 0.3, "NM": 0.1, "cell": 0.06, "cell/10": 0.4, "EMs": 0.0015, "EM": 0.001}
TIMES = {"SS": 20.0, "SSs": 2.0, "NM": 5.0, "cell": 90.0, "cell/10": 90.0, "EMs": 1.0, "EM": 10.0}


def doctored(
    errors: dict[str, float] | None = None, times: dict[str, float] | None = None, depth: int = 0
) -> list[Row]:
    """Rows as the paper has them, but for these, from a depth on."""
    made: list[Row] = []
    for name in MEDIAN_KINDS:
        for repeat in range(3):
            for d in range(DEPTH_COUNT):
                error = (errors or {}).get(name, ERRORS[name]) if d >= depth else ERRORS[name]
                time = (times or {}).get(name, TIMES[name])
                row: Row = {"mechanism": name, "repeat": repeat, "depth": d, "points": 2**20 >> d, "nodes": 2**d}
                spent = {f"time_{what}": time for what in ("once", "level", "alone")}
                made.append(row | {"error": error * (1 + 0.01 * repeat)} | spent)
    for row in made:
        if row["mechanism"] == "NM" and row["depth"] == DEPTH_COUNT - 1:
            row["error"] = float(row["error"]) * 2
    return made


def verdicts(rows: list[Row]) -> list[str]:
    return [claim.verdict for claim in medians.claims(rows)]


def test_claims_are_seen_where_rows_are_as_the_paper_has_them() -> None:
    assert verdicts(doctored()) == ["reproduced"] * 7


@pytest.mark.parametrize(
    ("claim", "rows", "verdict"),
    [
        (0, doctored({"cell": 0.0005}, depth=8), "partly reproduced"),
        (0, doctored({"NM": 0.0004}, depth=9), "not reproduced"),
        (0, doctored({"cell/10": 0.0005}, depth=9), "not reproduced"),
        (0, doctored({"cell": 0.00099}, depth=8), "reproduced"),  # repeats overlap
        (1, doctored({"EM": 0.02}), "not reproduced"),
        (2, doctored({"SSs": 0.95}), "not reproduced"),
        (2, doctored({"SSs": 0.95}, depth=9), "partly reproduced"),
        (3, doctored({"EMs": 0.0019}), "reproduced"),
        (3, doctored({"EMs": 0.0005}), "reproduced"),
        (3, doctored({"EMs": 0.0021}, depth=9), "partly reproduced"),
        (4, doctored(times={"EMs": 6.0}), "partly reproduced"),
        (4, doctored(times={"EMs": 11.0}), "not reproduced"),
        (5, doctored({"NM": 0.0004}), "not reproduced"),
        (5, doctored({"NM": 0.02}), "partly reproduced"),
        (6, doctored(times={"cell": 3.0}), "partly reproduced"),
        (6, doctored({"cell": 0.0005}), "partly reproduced"),
        (6, doctored({"cell": 0.0005}, {"cell": 3.0}), "not reproduced"),
    ],
)
def test_claims_follow_the_rows(claim: int, rows: list[Row], verdict: str) -> None:
    assert verdicts(rows)[claim] == verdict


def test_what_sampling_costs_is_told() -> None:
    claim = medians.claims(doctored({"EMs": 0.004}, depth=5))[3]
    assert claim.text == "Sampling costs EM little accuracy."
    assert "EMs has 1.5 to 4 times the error of EM" in claim.because


def test_tables_and_reasons_are_for_people(rows: list[Row]) -> None:
    for table in medians.tables(rows):
        assert all(len(row) == len(table.header) for row in table.rows)
        assert all(isinstance(cell, str) and cell and "nan" not in cell for row in table.rows for cell in row)
    error = medians.tables(doctored())[1]
    assert error.header[-1] == "EM"
    assert error.rows[0][-1] == "0.101 (0.1–0.102)"
    assert all(any(c.isdigit() for c in claim.because) for claim in medians.claims(rows))


def test_the_picture_is_drawn(rows: list[Row], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    paths = medians.draw(rows, tmp_path)
    assert [path.name for path in paths] == ["fig4.png", "fig4.svg"]
    assert all(path.stat().st_size > 10_000 for path in paths)

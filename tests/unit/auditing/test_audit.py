"""The audit command: what it certifies, what it refuses, and that its checks can fail."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import veilmap as vm
from veilmap.auditing import adversary, output_checks
from veilmap.auditing.epsilon_bound import Event, certify, choose
from veilmap.auditing.neighbours import KnownRows, Neighbours, usual
from veilmap.cli import app
from veilmap.engines.tally import Grid
from veilmap.kernels.counting import tally_grid
from veilmap.structures import Gate, Structure
from veilmap.testing import fixed_entropy
from veilmap.trees import RegularTree
from veilmap.vault.mechanisms.laplace import discrete_laplace

RUN = CliRunner()
FEW = {"releases": 1200, "confidence": 0.95}


def audited(method: str | vm.Method, epsilon: object, **how: Any) -> vm.Audit:
    with fixed_entropy(5):
        return vm.audit(method, epsilon, **(how or FEW))


@pytest.fixture(scope="module")
def sound() -> vm.Audit:
    return audited("quad-baseline", 2)


def failed(found: vm.Audit) -> set[str]:
    return {check.what for check in found.checks if not check.passed}


def test_a_sound_method_passes_and_the_bound_is_near(sound: vm.Audit) -> None:
    assert sound.passed
    assert 0.6 * sound.epsilon < sound.bound <= sound.epsilon
    assert [check.what for check in sound.checks] == [
        "noise",
        "noisy counts",
        "estimates",
        "release",
        "ledger",
        "trees",
    ]
    again = audited("quad-baseline", 2)
    assert (again.bound, again.event, again.checks) == (sound.bound, sound.event, sound.checks)
    assert 1000 <= sound.releases <= 1300


# --- its checks can fail ------------------------------------------------------------------------------------------


def test_noise_that_is_too_small_is_seen_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the bound, and in the noise: also when it is small by a quarter, where the bound has nothing to say."""
    monkeypatch.setattr(
        "veilmap.vault.noise_models.discrete_laplace", lambda e, n, keys: discrete_laplace(2 * e, n, keys)
    )
    found = audited("quad-baseline", 2)
    assert not found.within
    assert failed(found) == {"noise"}
    less = Fraction(13, 10)
    monkeypatch.setattr(
        "veilmap.vault.noise_models.discrete_laplace", lambda e, n, keys: discrete_laplace(less * e, n, keys)
    )
    found = audited("quad-baseline", "0.5")
    assert found.within
    assert failed(found) == {"noise"}
    assert not found.passed


def test_noise_that_was_hardly_drawn_is_not_said_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "% of all draws" in audited("quad-baseline", 2, releases=400).checks[0].found
    monkeypatch.setattr(output_checks, "MIN_DRAWS_PER_SCALE", 10**6)
    assert "not tested" in audited("quad-baseline", 2, releases=400).checks[0].found


def test_estimates_off_their_grid_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veilmap.estimate.pipeline.tree_sweeps.round_to_quanta", lambda *arrays: None)
    assert failed(audited("quad-post", 2, releases=400)) == {"estimates"}


def test_a_release_that_holds_more_than_its_counts_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    more = iter(range(10**6))
    monkeypatch.setattr(
        "veilmap.estimate.pipeline.least_squares", lambda noisy: (np.full(noisy.tree.size, next(more)), None)
    )
    assert "release" in failed(audited("quad-post", 2, releases=400))


@dataclass(frozen=True)
class Tells(Structure):
    """Splits the domain if something is dense; once, or in a build that does not hide what is."""

    height = None

    def nodes(self, dimensions: int) -> None:
        return None

    def grow(self, gate: Gate, epsilon: Fraction, budget: object) -> None:
        if gate.dense(epsilon / 2).all():
            gate.split(np.full((1, gate.domain.dimensions), 2))
        gate.count_leaves(epsilon / 2)


def test_a_tree_that_only_one_data_set_has_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    method = vm.Method(structure=Tells(), name="tells")
    assert audited(method, 2).passed
    monkeypatch.setattr("veilmap.vault.mechanisms.density_test.looks_dense", lambda counts, *rest: counts > 0)
    found = audited(method, 2)
    assert not found.within
    assert found.reading != "counts"
    assert "trees" in failed(found)


# --- bounds -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.lists(st.integers(-3, 3), min_size=1, max_size=40))
def test_the_chosen_event_proves_what_was_said_of_it(ours: list[int], theirs: list[int]) -> None:
    one, two = np.array(ours, float), np.array(theirs, float)
    said, event = choose(one, two, 0.1, 0.0)
    assert certify(event, one, two, 0.1, 0.0).bound == pytest.approx(said)
    others = [Event(float(at), sign, swapped) for at in range(-3, 4) for sign in (1, -1) for swapped in (False, True)]
    assert said == pytest.approx(max(certify(other, one, two, 0.1, 0.0).bound for other in others))


def test_bounds_are_those_of_clopper_and_pearson() -> None:
    """8 of 10 and 1 of 10, from their tables: 0.4439 to 0.9748 and 0.0025 to 0.4450 at 95 %."""
    one, two = np.repeat([1.0, 0.0], [8, 2]), np.repeat([1.0, 0.0], [1, 9])
    found = certify(Event(1.0, 1, False), one, two, 0.05, 0.0)
    assert (found.more, found.fewer) == (pytest.approx(0.4439, abs=1e-4), pytest.approx(0.4450, abs=1e-4))
    assert found.bound == pytest.approx(np.log(0.4439 / 0.4450), abs=1e-3)
    assert certify(Event(1.0, 1, False), one, two, 0.05, 0.5).bound == -np.inf


@pytest.mark.parametrize("gaussian", [False, True])
def test_the_fit_of_noise_accepts_its_law_and_refuses_a_near_one(gaussian: bool) -> None:
    draw = np.random.default_rng(3)
    keep = -np.expm1(-0.5)
    laplace = draw.geometric(keep, 20_000) - draw.geometric(keep, 20_000)
    normal = np.rint(draw.normal(0, 6, 20_000)).astype(np.int64)  # at this width, as good as a discrete one
    noise, variance = (normal, 36 + 1 / 12) if gaussian else (laplace, 2 * np.exp(-0.5) / keep**2)
    assert output_checks.goodness(noise, variance, gaussian) > 1e-6
    assert output_checks.goodness(noise, 1.15 * variance, gaussian) < 1e-6
    assert output_checks.goodness(noise, variance, not gaussian) < 1e-6


# --- neighbours ---------------------------------------------------------------------------------------------------


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 15), st.integers(0, 15), st.data())
def test_counts_of_known_rows_are_those_of_the_boxes(axes: int, bits: int, one: int, two: int, data: Any) -> None:
    side = 1 << bits
    case = Neighbours("any", axes, bits, both=3, beside=one % side, at=two % side)
    tree = RegularTree(side, axes, ((2,) * axes,) * data.draw(st.integers(0, bits)))
    look = case.look(tree)
    for one_more, counts in ((False, look.without), (True, look.having)):
        engine = case.sealed(one_more)._engine
        assert isinstance(engine, KnownRows)
        places = tree.places(tree.height)
        assert engine.tally(case.domain, Grid(places.shape), None).tolist() == counts[places].ravel().tolist()
        assert counts[0] == 3 + one_more
    parts = tuple(data.draw(st.lists(st.integers(1, 7), min_size=axes, max_size=axes)))
    for one_more, found in enumerate(case.on_grid(parts)):
        expected = np.zeros(len(found), np.int64)
        tally_grid(tuple(case.sealed(bool(one_more))._engine.cells), np.array(parts), bits, expected)
        assert found.tolist() == expected.tolist()


def test_a_person_has_more_rows_than_count() -> None:
    for case in usual(1, 3, 0):
        cells, units = case.sealed(True)._engine.rows(None, None)
        assert len(cells[0]) == case.both + 7
        assert np.bincount(units)[0] == 7
        assert case.look(RegularTree(2**case.bits, 1)).having[0] == case.both + 3


def test_what_trees_say_is_learned_where_it_is_no_chance() -> None:
    says = adversary.learned([1] * 90 + [2] * 10 + [3], [1] * 30 + [2] * 70 + [4] * 4)
    assert says[1] > 1
    assert says[2] < -1
    assert says[3] == says[4] == 0


# --- what is refused ----------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "400 releases or more": (("quad-opt", 1), {"releases": 10}),
    "confidence": (("quad-opt", 1), {"confidence": 1.0}),
    "non-private baseline": (("kd-pure", 1), {}),
    "no method": (("quad", 1), {}),
    "epsilon must be": (("quad-opt", 0), {}),
    "Give a delta": (("quad-opt", 1), {"noise": "discrete-gaussian"}),
    "max_rows_per_unit must be a whole number": (("quad-opt", 1), {"max_rows_per_unit": 0}),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_bad_input_is_refused(rule: str) -> None:
    given, how = REFUSED[rule]
    with pytest.raises(vm.BadInput, match=rule):
        vm.audit(*given, **how)


# --- the command --------------------------------------------------------------------------------------------------


def test_the_command_prints_and_draws(tmp_path: Path) -> None:
    few = ["--releases", "400", "--seed", "3"]
    done = RUN.invoke(app, ["audit", "quad-geo", "--epsilon", "2", *few, "-o", str(tmp_path / "a.png")])
    assert done.exit_code == 0, done.output
    assert "epsilon is at least" in done.stdout
    assert "does not prove the claim" in done.stdout
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    done = RUN.invoke(app, ["audit", "quad-geo", "kd-cell", "--epsilon", "2", *few, "--format", "csv"])
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["method"] for row in rows] == ["quad-geo", "kd-cell"]
    assert all(float(row["bound"]) <= 2 and row["passed"] == "True" for row in rows)


def test_the_command_takes_files_and_code_and_fails_when_a_claim_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    method = vm.Method(structure=vm.Quadtree(1), name="mine")
    Path("mine.json").write_text(json.dumps(method.to_json()))
    Path("my_audited_code.py").write_text("import veilmap as vm\nmine = vm.Method(structure=vm.Quadtree(1))\nno = 1\n")
    few = ["--epsilon", "2", "--releases", "400", "--seed", "3", "--format", "json"]
    for name in ("mine.json", "my_audited_code:mine"):
        done = RUN.invoke(app, ["audit", name, *few])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)[0]["within"]
    monkeypatch.setattr("veilmap.vault.noise_models.discrete_laplace", lambda e, n, keys: np.zeros(n, np.int64))
    done = RUN.invoke(app, ["audit", "mine.json", *few])
    assert done.exit_code == 1
    assert not json.loads(done.stdout)[0]["passed"]
    Path("bad.json").write_text("[1]")
    Path("deep.json").write_text("[" * 100_000)
    Path("my_broken_code.py").write_text("1 / 0")
    for name, rule in (
        ("deep.json", "does not describe a method"),
        ("my_broken_code:mine", "ZeroDivisionError"),  # and not exit status 1, which would blame a method
        ("none.json", "cannot be read"),
        ("bad.json", "does not describe a method"),
        ("my_audited_code:other", "Cannot import 'other'"),
        ("my_audited_code:no", "is not a veilmap.Method"),
    ):
        refused = RUN.invoke(app, ["audit", name, *few])
        assert isinstance(refused.exception, vm.BadInput)
        assert rule in str(refused.exception)


@pytest.mark.parametrize("name", ["release.parquet", "ledger.db", "picture"])
def test_a_picture_is_written_over_no_other_kind_of_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    refused = RUN.invoke(app, ["audit", "quad-opt", "--epsilon", "2", "--releases", "400", "-o", str(tmp_path / name)])
    assert isinstance(refused.exception, vm.BadInput)
    assert (tmp_path / name).read_text() == "precious"

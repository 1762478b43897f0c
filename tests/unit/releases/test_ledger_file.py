"""The ledger of budgets over many releases: exact, never beyond its total, whoever charges and whatever breaks."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from threading import Barrier, Thread
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilmap as vm
from veilmap.errors import LedgerError, VaultFailure
from veilmap.method.registry import METHODS
from veilmap.releases.ledger_file import Ledger, Receipt, exact_text, spent
from veilmap.structures import Gate
from veilmap.testing import fixed_entropy

SQUARE = vm.Domain({"x": (0, 1), "y": (0, 1)})
POINTS = np.random.default_rng(4).random((300, 2))
QUAD = {"method": "quad-opt", "height": 2}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "office.db")
    made.create("homes", 1)
    return made


def left(ledger: Ledger, dataset: str = "homes", part: str | None = None) -> Fraction:
    return ledger.account(dataset).left(part)[0]


def states(ledger: Ledger) -> list[str]:
    return [entry.state for entry in ledger.history()]


# --- what adds up -----------------------------------------------------------------------------------------------

prices = st.fractions(min_value="1/1000", max_value=1, max_denominator=1000)
asked = st.sampled_from([None, "west", "east"])


@given(st.lists(st.tuples(asked, prices)))
def test_spent_is_what_the_worst_placed_unit_has_lost(paid: list[tuple[str | None, Fraction]]) -> None:
    def lost(home: str | None) -> Fraction:
        return sum((amount for part, amount in paid if part in (None, home)), Fraction(0))

    assert spent(paid) == max(map(lost, (None, "west", "east")))
    assert spent(paid, "west") == lost("west")
    # a near miss: parts that are taken to be one after the other would lose more, and the best placed unit less
    if {part for part, _ in paid} >= {"west", "east"}:
        assert min(lost("west"), lost("east")) <= spent(paid) < sum(amount for _, amount in paid)


@settings(max_examples=15)
@given(st.lists(st.tuples(asked, prices, st.sampled_from([None, "1/1000000"])), min_size=4, max_size=10))
def test_whatever_is_charged_nobody_loses_more_than_the_budget(tmp_path_factory, wanted) -> None:
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "l.db")
    ledger.create("homes", "1.7", "2/1000000")
    ledger.split("homes", ["west", "east"])
    lost = {home: [Fraction(0), Fraction(0)] for home in (None, "west", "east")}
    for part, epsilon, delta in wanted:
        homes = [part] if part else [None, "west", "east"]
        chance = Fraction(delta or 0)
        fits = all(lost[h][0] + epsilon <= Fraction("1.7") and lost[h][1] + chance <= Fraction("2e-6") for h in homes)
        try:
            ledger.charge("homes", epsilon, delta, what="something", part=part)
        except vm.BudgetSpent:
            assert not fits
        else:
            assert fits
            for home in homes:
                lost[home][0] += epsilon
                lost[home][1] += chance
    account = ledger.account("homes")
    assert account.spent() == (max(e for e, _ in lost.values()), max(d for _, d in lost.values()))
    for part in ("west", "east"):
        assert account.spent(part) == tuple(lost[part])


def test_a_budget_is_spent_to_the_last_digit(ledger: Ledger) -> None:
    for _ in range(10):
        ledger.charge("homes", 0.1, what="a tenth")  # as floats, ten tenths are less than 1
    assert left(ledger) == 0
    ledger.create("thirds", 1)
    for _ in range(3):
        ledger.charge("thirds", Fraction(1, 3), what="a third")
    with pytest.raises(vm.BudgetSpent, match="thirds has epsilon=0 left, and this costs 1e-06"):
        ledger.charge("thirds", "0.000001", what="a little")


def test_sums_with_more_digits_than_can_be_printed_are_still_added_and_shown(run, tmp_path: Path) -> None:
    """Prices that share no divisor: after a dozen, Python refuses to print their sum."""
    ledger = Ledger(tmp_path / "long.db")
    ledger.create("homes", 1)
    prices = [Fraction(10**395, 10**397 + k) for k in range(1, 24, 2)]
    for price in prices:
        ledger.charge("homes", price, what="an odd price")
    assert left(ledger) == 1 - sum(prices)
    with pytest.raises(vm.BudgetSpent, match=r"epsilon=about 0\.88"):
        ledger.charge("homes", "0.9", what="too much")
    for how in ("table", "csv", "json"):
        code, out, _ = run("ledger", "show", "homes", "--ledger", str(ledger.path), "--format", how)
        assert code == 0
        assert "about 0.88" in out or how == "csv"


def test_amounts_are_text_of_fractions_in_the_file(ledger: Ledger) -> None:
    ledger.charge("homes", 0.1, what="a tenth")
    with sqlite3.connect(ledger.path) as db:
        assert db.execute("SELECT epsilon, delta, typeof(epsilon) FROM charges").fetchall() == [("1/10", "0", "text")]
    db.close()
    assert exact_text(Fraction(1, 10)) == "0.1"
    assert exact_text(Fraction(1, 3)) == "1/3"
    assert exact_text(Fraction(10**12 + 1, 10**13)) == f"{10**12 + 1}/{10**13}"  # not rounded


def test_what_is_spent_stays_spent_even_by_hand(ledger: Ledger) -> None:
    ledger.charge("homes", 0.1, what="a tenth")
    db = sqlite3.connect(ledger.path)
    for statement in (
        "DELETE FROM charges",
        "UPDATE charges SET epsilon = '0'",
        "UPDATE charges SET part = 'west'",
        "UPDATE charges SET unit = 'one person'",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="charges stay"):
            db.execute(statement)
    db.close()


def test_a_delta_is_paid_for_too(ledger: Ledger) -> None:
    with pytest.raises(vm.BudgetSpent, match="homes has delta=0 left, and this costs 1e-06"):
        ledger.charge("homes", 0.1, 1e-6, what="Gaussian noise")
    ledger.create("streets", 1, 1e-5)
    ledger.charge("streets", 0.1, 1e-6, what="Gaussian noise")
    assert ledger.account("streets").left() == (Fraction(9, 10), Fraction(9, 10**6))


# --- releases ---------------------------------------------------------------------------------------------------


def test_a_release_is_charged_before_the_data_is_looked_at_and_noted_when_saved(ledger: Ledger, tmp_path: Path) -> None:
    seen = []
    release = vm.release(
        POINTS, SQUARE, 0.3, **QUAD, ledger=ledger, dataset="homes", progress=lambda part: seen.append(states(ledger))
    )
    assert seen[0] == ["begun"]
    assert states(ledger) == ["made"]
    assert left(ledger) == Fraction(7, 10)
    release.save(tmp_path / "a.parquet")
    release.integers().save(tmp_path / "b.parquet")
    (entry,) = ledger.history("homes")
    assert entry.outputs == tuple(
        hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("a.parquet", "b.parquet")
    )
    loaded = vm.load(tmp_path / "a.parquet")
    assert entry.method == hashlib.sha256(json.dumps(loaded.method, sort_keys=True).encode()).hexdigest()
    assert (entry.epsilon, entry.delta, entry.rho, entry.unit) == (Fraction(3, 10), 0, None, None)
    assert loaded.receipt is None
    assert str(ledger.path).encode() not in (tmp_path / "a.parquet").read_bytes()


def test_a_release_beyond_the_budget_is_refused_and_reads_nothing(ledger: Ledger) -> None:
    vm.release(POINTS, SQUARE, 0.8, **QUAD, ledger=ledger.path, dataset="homes")
    seen: list[float] = []
    with pytest.raises(vm.BudgetSpent, match=r"homes has epsilon=0.2 left, and this costs 0.3. Spend less"):
        vm.release(POINTS, SQUARE, 0.3, **QUAD, ledger=ledger.path, dataset="homes", progress=seen.append)
    assert seen == []
    assert len(ledger.history()) == 1


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, MemoryError])
def test_a_run_that_fails_stays_charged(ledger: Ledger, error: type[BaseException]) -> None:
    def interrupt(part: float) -> None:
        raise error

    with pytest.raises((VaultFailure, KeyboardInterrupt, MemoryError)):
        vm.release(POINTS, SQUARE, 0.3, **QUAD, ledger=ledger, dataset="homes", progress=interrupt)
    assert states(ledger) == ["failed"]
    assert left(ledger) == Fraction(7, 10)


IMPOSSIBLE = {
    "epsilon": {"epsilon": -1},
    "method": {"method": "quad-optt"},
    "height": {"method": "quad-opt", "height": 40},
    "delta": {"delta": 1e-6},
    "unit": {"unit": np.zeros(300, int)},
    "axes of a curve": {"method": "hilbert-r", "domain": vm.Domain({"x": (0, 1)}), "points": POINTS[:, :1]},
    "columns": {"points": POINTS[:, :1]},
    "file": {"points": "nowhere.csv"},
    "budget": {"method": vm.Method(structure=vm.Quadtree(height=1), budget=vm.Levels([1]))},
    "yardstick": {"method": "kd-true", "allow_nonprivate": True},
    "data set": {"dataset": "home"},
    "no data set": {"dataset": None},
    "part": {"part": "west"},
    "unit of a row": {"unit": {"person": np.zeros(300, int)}, "max_rows_per_unit": 2},
    "unit without a name": {"unit": np.zeros(300, int), "max_rows_per_unit": 2},
    "one row per row": {"one_row_per_unit": True},
}


@pytest.mark.parametrize("change", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_can_be_refused_without_the_data_costs_nothing(ledger: Ledger, change: dict[str, object]) -> None:
    asked = {"points": POINTS, "domain": SQUARE, "epsilon": 0.1, "ledger": ledger, "dataset": "homes"} | change
    with pytest.raises(vm.VeilmapError):
        vm.release(**asked)
    assert ledger.history() == ()


class Stubborn(vm.Quadtree):
    """A structure of someone's own, which the gate refuses whatever the data is."""

    def grow(self, gate: Gate, epsilon: Fraction, budget: object) -> None:
        gate.refine((3, 0))


def test_a_rehearsal_finds_what_fails_without_any_data(ledger: Ledger) -> None:
    method = vm.Method(structure=Stubborn(height=1))
    with pytest.raises(vm.BadInput, match="1 or more parts"):
        vm.release(POINTS, SQUARE, 0.1, method, ledger=ledger, dataset="homes")
    assert ledger.history() == ()


@pytest.mark.parametrize("method", [method.name for method in METHODS.values() if method.private])
def test_every_method_can_be_rehearsed_and_paid_for(ledger: Ledger, method: str) -> None:
    vm.release(POINTS, SQUARE, 0.5, method, ledger=ledger, dataset="homes")
    assert states(ledger) == ["made"]


def test_a_release_with_fixed_random_bits_is_charged_and_marked(ledger: Ledger) -> None:
    with fixed_entropy(3):
        charged = vm.release(POINTS, SQUARE, 0.1, **QUAD, ledger=ledger, dataset="homes")
    with fixed_entropy(3):
        plain = vm.release(POINTS, SQUARE, 0.1, **QUAD)
    assert states(ledger) == ["not private"]
    assert left(ledger) == Fraction(9, 10)
    assert charged.estimates.noisy_count.tolist() == plain.estimates.noisy_count.tolist()  # a rehearsal uses no bits


def test_gaussian_noise_is_charged_what_it_states_and_its_rho_is_noted(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("homes", 1, 1e-5)
    release = vm.release(
        POINTS, SQUARE, 0.5, **QUAD, noise="discrete-gaussian", delta=1e-6, ledger=ledger, dataset="homes"
    )
    (entry,) = ledger.history()
    assert (entry.epsilon, entry.delta) == (Fraction(1, 2), Fraction(1, 10**6))
    assert entry.rho == release.privacy.rho


# --- the unit of a budget ---------------------------------------------------------------------------------------

DRIVERS = np.arange(1080) // 540  # two drivers with 540 rows each
COLUMNS = dict.fromkeys(("driver_id", "Driver_ID", "trip", "row"), DRIVERS)
TRIPS = pa.table({"x": np.linspace(0, 0.9, 1080), "y": np.full(1080, 0.5), **COLUMNS})


@pytest.fixture
def trips(ledger: Ledger) -> Ledger:
    ledger.create("trips", 1, unit="driver_id")
    return ledger


def release_trips(ledger: Ledger, points: object = TRIPS, **more: Any) -> vm.Release:
    return vm.release(points, SQUARE, 0.1, **QUAD, ledger=ledger, dataset="trips", **more)


def words(ledger: Ledger) -> list[str | None]:
    """What the history says of whom was protected."""
    return [entry.unit for entry in ledger.history("trips")]


def test_people_are_charged_to_people_and_rows_to_rows(trips: Ledger) -> None:
    who = {"unit": {"driver_id": np.arange(300) // 3}, "max_rows_per_unit": 2}
    made = release_trips(trips, POINTS, **who)
    assert made.privacy.unit == "one driver_id (2 rows at most)"
    release_trips(trips, unit="driver_id", max_rows_per_unit=3)
    with pytest.raises(vm.BadInput, match="protects a row, and a release with this unit protects a driver_id"):
        vm.release(POINTS, SQUARE, 0.1, **QUAD, **who, ledger=trips, dataset="homes")
    assert words(trips) == ["one driver_id (2 rows at most)", "one driver_id (3 rows at most)"]
    assert len(trips.history()) == 2


def test_a_budget_of_drivers_does_not_pay_for_a_release_of_rows(trips: Ledger) -> None:
    """The attack: with 540 rows per driver, what costs 0.1 for a row costs 54 for a driver."""
    seen: list[float] = []
    sentence = r"protects a driver_id, and a release without a unit protects one row\. Give"
    with pytest.raises(vm.BadInput, match=sentence) as no:
        release_trips(trips, progress=seen.append)
    assert "\n" not in str(no.value)
    assert (seen, trips.history(), left(trips, "trips")) == ([], (), 1)


OTHER_UNITS = {
    "a weaker column": {"unit": "trip"},
    "another spelling": {"unit": "Driver_ID"},
    "a row": {"unit": "row"},
    "ids of another name": {"unit": {"trip": DRIVERS[:300]}, "points": POINTS},
}


@pytest.mark.parametrize("change", OTHER_UNITS.values(), ids=OTHER_UNITS)
def test_a_budget_pays_for_its_own_unit_and_no_other(trips: Ledger, change: dict[str, Any]) -> None:
    with pytest.raises(vm.BadInput, match="protects a driver_id, and this protects a "):
        release_trips(trips, **change, max_rows_per_unit=100)
    assert trips.history() == ()


@pytest.mark.parametrize(
    "unit", [DRIVERS[:300], {"driver_id": None}, {"driver_id": "trip"}, {7: DRIVERS}, {}, {"a": DRIVERS, "b": DRIVERS}]
)
def test_ids_without_a_name_and_names_without_ids_are_not_charged(trips: Ledger, unit: object) -> None:
    """A name alone would pass for a unit, and rows would be released."""
    for more in ({}, {"max_rows_per_unit": 2}):
        with pytest.raises(vm.BadInput, match=r"like unit=\{'driver_id': ids\}"):
            release_trips(trips, POINTS, unit=unit, **more)
    assert trips.history() == ()


def test_ids_with_a_name_protect_as_ids_without_one() -> None:
    ids, found = np.arange(300) // 3, []
    for unit in (ids, {"driver_id": ids}):
        with fixed_entropy(5):
            found.append(vm.release(POINTS, SQUARE, 0.5, **QUAD, unit=unit, max_rows_per_unit=2))
    assert [made.privacy.unit for made in found] == ["one unit (2 rows at most)", "one driver_id (2 rows at most)"]
    np.testing.assert_array_equal(*(made.estimates.noisy_count for made in found))


def test_charges_by_hand_protect_the_unit_of_the_budget(trips: Ledger) -> None:
    for more in ({}, {"unit": "trip"}, {"unit": "driver_id ", "what": "spaces"}, {"unit": "one driver_id (2 rows)"}):
        with pytest.raises(vm.BadInput):
            trips.charge("trips", 0.1, **({"what": "a median"} | more))
    assert trips.history() == ()
    trips.charge("trips", 0.1, what="a median", unit="driver_id")
    assert words(trips) == ["one driver_id"]
    for most in (0, 2.5, "2"):
        with pytest.raises(vm.BadInput, match="max_rows_per_unit must be a whole number and needs a unit"):
            trips.charge("trips", 0.1, what="a median", unit="driver_id", max_rows_per_unit=most)  # type: ignore[arg-type]


STATED = "one row (the owner states: each driver_id has at most one row)"


def test_one_row_per_unit_is_stated_and_recorded_in_words(trips: Ledger) -> None:
    made = release_trips(trips, TRIPS.slice(539, 2), one_row_per_unit=True)
    trips.charge("trips", 0.1, what="a median", one_row_per_unit=True)
    assert words(trips) == [STATED, STATED]
    assert left(trips, "trips") == Fraction(8, 10)
    assert made.privacy.unit == "one row"  # what the release promises by itself


def test_one_row_per_unit_is_not_stated_for_nothing(trips: Ledger) -> None:
    both = {"one_row_per_unit": True, "unit": "driver_id"}
    with pytest.raises(vm.BadInput, match="is for work without a unit, and this work has one"):
        release_trips(trips, **both, max_rows_per_unit=2)
    with pytest.raises(vm.BadInput, match="is for work without a unit, and this work has one"):
        trips.charge("trips", 0.1, what="a median", **both)
    with pytest.raises(vm.BadInput, match="is a statement for a ledger to record"):
        vm.release(TRIPS, SQUARE, 0.1, **QUAD, one_row_per_unit=True)
    for use in (
        lambda: trips.charge("homes", 0.1, what="a median", one_row_per_unit=True),
        lambda: vm.release(POINTS, SQUARE, 0.1, **QUAD, ledger=trips, dataset="homes", one_row_per_unit=True),
    ):
        with pytest.raises(vm.BadInput, match=r"protects a row, so one_row_per_unit .* has no effect\. Leave it out"):
            use()
    for word in ("no", "false", 1, [0]):
        with pytest.raises(vm.BadInput, match="one_row_per_unit, a statement by the owner, must be True or False"):
            trips.charge("trips", 0.1, what="a median", one_row_per_unit=word)  # type: ignore[arg-type]
    with pytest.raises(vm.BadInput, match="A row is not the same unit as a driver_id"):
        trips.add_unit_column("trips", "Rows")
    assert trips.history() == ()


def test_the_owner_may_state_that_a_column_of_another_name_is_the_unit(trips: Ledger) -> None:
    other = TRIPS.rename_columns({"driver_id": "drv"})
    with pytest.raises(vm.BadInput, match="state this with 'veilmap ledger add-unit-column'"):
        release_trips(trips, other, unit="drv", max_rows_per_unit=2)
    for _ in range(2):  # saying it again changes nothing
        account = trips.add_unit_column("trips", "drv")
    assert account == trips.account("trips")
    assert (account.unit, account.unit_columns) == ("driver_id", ("driver_id", "drv"))
    assert trips.add_unit_column("trips", "driver_id") == account
    for table, name in ((other, "drv"), (TRIPS, "driver_id")):
        release_trips(trips, table, unit=name, max_rows_per_unit=2)
    assert words(trips) == ["one drv (2 rows at most)", "one driver_id (2 rows at most)"]
    with pytest.raises(vm.BadInput, match="Give the column driver_id or drv"):
        release_trips(trips, unit="trip", max_rows_per_unit=2)
    with pytest.raises(vm.BadInput, match="protects a row and has no column"):
        trips.add_unit_column("homes", "drv")
    assert trips.account("homes").unit_columns == ()


OLD = """
CREATE TABLE salts (salt BLOB NOT NULL);
CREATE TABLE datasets (name TEXT PRIMARY KEY, epsilon TEXT NOT NULL, delta TEXT NOT NULL, unit TEXT NOT NULL,
    created TEXT NOT NULL);
CREATE TABLE parts (dataset TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (dataset, name));
CREATE TABLE charges (id INTEGER PRIMARY KEY, dataset TEXT NOT NULL, part TEXT, at TEXT NOT NULL,
    what TEXT NOT NULL, unit TEXT, epsilon TEXT NOT NULL, delta TEXT NOT NULL, rho TEXT, method TEXT,
    state TEXT NOT NULL);
CREATE TABLE outputs (charge INTEGER NOT NULL, at TEXT NOT NULL, sha256 TEXT NOT NULL);
CREATE TABLE marks (mark BLOB NOT NULL, dataset TEXT NOT NULL, part TEXT);
CREATE TRIGGER charges_stay BEFORE DELETE ON charges BEGIN SELECT RAISE(ABORT, 'charges stay'); END;
CREATE TRIGGER amounts_stay BEFORE UPDATE OF dataset, part, epsilon, delta ON charges
    BEGIN SELECT RAISE(ABORT, 'charges stay'); END;
PRAGMA application_id = 1986357612;
PRAGMA user_version = 1;
INSERT INTO salts VALUES (x'00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff');
INSERT INTO datasets VALUES ('trips', '1', '0', 'person', '2026-01-01T00:00:00Z');
INSERT INTO charges VALUES (1, 'trips', NULL, '2026-01-02T00:00:00Z', 'release by best', NULL, '1/10', '0', NULL, NULL,
    'made');
INSERT INTO charges VALUES (2, 'trips', NULL, '2026-01-03T00:00:00Z', 'release by best', 'one trip (2 rows at most)',
    '1/10', '0', NULL, NULL, 'made');
"""
"""A ledger as it was before budgets were bound to their units, with two charges that would be refused now."""


@pytest.fixture
def old(tmp_path: Path) -> Ledger:
    db = sqlite3.connect(tmp_path / "old.db")
    db.executescript(OLD)
    db.close()
    return Ledger(tmp_path / "old.db")


def test_an_old_ledger_keeps_its_history_and_takes_new_charges_by_the_rule(old: Ledger, run) -> None:
    before = old.history()
    for more in ({}, {"unit": "driver_id", "max_rows_per_unit": 2}):
        with pytest.raises(vm.BadInput, match="protects a person"):
            release_trips(old, **more)
    assert old.history() == before
    old.add_unit_column("trips", "driver_id")
    release_trips(old, unit="driver_id", max_rows_per_unit=2)
    release_trips(old, one_row_per_unit=True)
    assert old.history()[:2] == before
    stated = "one row (the owner states: each person has at most one row)"
    assert words(old) == [None, "one trip (2 rows at most)", "one driver_id (2 rows at most)", stated]
    assert left(old, "trips") == Fraction(6, 10)
    assert run("ledger", "show", "trips", "--ledger", str(old.path))[0] == 0


def test_many_may_state_the_same_column_at_once(old: Ledger) -> None:
    barrier = Barrier(8)

    def state(k: int) -> None:
        barrier.wait()
        old.add_unit_column("trips", f"column {k % 2}")

    threads = [Thread(target=state, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(old.account("trips").unit_columns) == ["column 0", "column 1", "person"]


# --- who can read the file --------------------------------------------------------------------------------------


def mode(path: object) -> int:
    return stat.S_IMODE(os.stat(str(path)).st_mode)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_new_ledger_and_its_journal_are_for_their_owner_alone(tmp_path: Path, mask: int) -> None:
    ledger, before = Ledger(tmp_path / "l.db"), os.umask(mask)
    try:
        ledger.create("homes", 1)
        with ledger._open() as db:
            db.execute("INSERT INTO parts VALUES ('homes', 'west')")
            assert [mode(path) for path in sorted(tmp_path.iterdir())] == [0o600, 0o600]
    finally:
        os.umask(before)
    assert [path.name for path in tmp_path.iterdir()] == ["l.db"]


def test_the_mode_that_an_owner_has_set_stays(ledger: Ledger) -> None:
    os.chmod(ledger.path, 0o640)
    ledger.create("trips", 1)
    ledger.charge("homes", 0.1, what="something")
    assert mode(ledger.path) == 0o640


def test_a_ledger_that_cannot_be_created_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", Mock(side_effect=PermissionError))
    with pytest.raises(LedgerError, match="cannot be created: you need write access to its folder") as refused:
        Ledger(tmp_path / "l.db").create("homes", 1)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_one_row_of_a_person_may_lose_more_than_the_person() -> None:
    """Why a budget of rows pays for no release that protects people: the two data sets of proofs/ledger_file.md.

    With a person in place of a row, and a household in place of a person, why a coarser unit is refused, too.
    """
    epsilon = 0.7

    def chance(a: int, b: int) -> float:
        """To publish counts 0 and 1 of two boxes that hold a and b rows, but for a constant."""
        return float(np.exp(-epsilon * (abs(0 - a) + abs(1 - b))))

    before = chance(1, 0)  # someone with one row, in the first box; one row of a person is looked at
    after = (chance(1, 0) + chance(0, 1)) / 2  # they have one row more, in the second box: either is looked at
    assert epsilon < np.log(after / before) < 2 * epsilon


def test_parts_pay_apart_and_the_whole_pays_for_all(ledger: Ledger) -> None:
    ledger.split("homes", ["west", "east"])
    for part in ("west", "east"):
        vm.release(POINTS, SQUARE, 0.6, **QUAD, ledger=ledger, dataset="homes", part=part)
    assert left(ledger) == left(ledger, part="east") == Fraction(4, 10)
    vm.release(POINTS, SQUARE, 0.3, **QUAD, ledger=ledger, dataset="homes")
    with pytest.raises(vm.BudgetSpent, match=r"Part west of homes has epsilon=0.1 left"):
        vm.release(POINTS, SQUARE, 0.2, **QUAD, ledger=ledger, dataset="homes", part="west")
    for names in (["north"], ["a", "a"], ["north", "so,uth"]):
        with pytest.raises(vm.BadInput):
            ledger.split("homes", names)
    with pytest.raises(vm.BadInput, match="split into west, east already"):
        ledger.split("homes", ["young", "old"])


# --- the same file under another name ---------------------------------------------------------------------------


@pytest.fixture
def points_file(tmp_path: Path) -> Path:
    path = tmp_path / "points.csv"
    np.savetxt(path, POINTS, delimiter=",", header="x,y", comments="")
    return path


def test_the_same_file_under_another_name_is_told_of(ledger: Ledger, points_file: Path, tmp_path: Path) -> None:
    ledger.create("houses", 1)
    charge = {"what": "something", "files": [points_file]}
    ledger.charge("homes", 0.1, **charge)
    ledger.charge("homes", 0.1, **charge)  # says nothing
    with pytest.warns(vm.LedgerWarning, match="was read for 'homes' before. Charges to 'houses' and 'homes' add up"):
        ledger.charge("houses", 0.1, **charge)
    moved = points_file.rename(tmp_path / "other.csv")
    ledger.create("dwellings", 1)
    with pytest.warns(vm.LedgerWarning, match=r"other.csv was read for"):
        ledger.charge("dwellings", 0.1, what="something", files=[moved])
    moved.write_text("x,y\n0.5,0.5\n")  # another content, at the same place
    ledger.create("cottages", 1)
    with pytest.warns(vm.LedgerWarning):
        ledger.charge("cottages", 0.1, what="something", files=[moved])
    assert [entry.epsilon for entry in ledger.history()] == [Fraction(1, 10)] * 5  # told, not refused


def test_the_same_file_for_two_parts_is_told_of(ledger: Ledger, points_file: Path) -> None:
    ledger.split("homes", ["west", "east"])
    charge = {"what": "something", "files": [points_file]}
    ledger.charge("homes", 0.1, **charge)
    ledger.charge("homes", 0.1, **charge, part="west")
    with pytest.warns(vm.LedgerWarning, match="for part 'west' before, now for 'east'. Parts must not share people"):
        ledger.charge("homes", 0.1, **charge, part="east")


def test_the_ledger_holds_nothing_of_the_data(ledger: Ledger, points_file: Path) -> None:
    vm.release([str(points_file)], SQUARE, 0.1, **QUAD, ledger=ledger, dataset="homes")
    about, data = points_file.stat(), Path(ledger.path).read_bytes()
    content = points_file.read_bytes()
    secrets = [str(points_file), points_file.name, str(about.st_mtime_ns), str(len(content))]
    secrets += [hashlib.sha256(content).hexdigest(), *content.decode().split()[1:][:50]]
    for secret in secrets:
        assert secret.encode() not in data
    assert hashlib.sha256(content).digest() not in data
    assert hashlib.sha256(f"place:{points_file}".encode()).digest() not in data  # a hash without the salt


# --- files that are no ledger -----------------------------------------------------------------------------------


def broken(path: Path, how: str) -> None:
    if how == "no SQLite file":
        path.write_text("epsilon,3\n" * 100)
    elif how == "another SQLite file":
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE gpkg_contents (a)")
        db.commit()
        db.close()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "folder":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)
    else:
        ledger = Ledger(path)
        ledger.create("homes", 1)
        with ledger._open() as db:
            row = "INSERT INTO charges VALUES (NULL, 'homes', NULL, '', ?, NULL, '1/100', '0', NULL, NULL, 'made')"
            db.executemany(row, [("x" * 150,)] * 60)
        if how == "newer":
            statement = "PRAGMA user_version = 2"
        elif how == "negative":
            statement = "INSERT INTO charges VALUES (99, 'homes', NULL, '', '', NULL, '-1/2', '0', NULL, NULL, 'made')"
        elif how == "no number":
            statement = "INSERT INTO charges VALUES (99, 'homes', NULL, '', '', NULL, '1/0', '0', NULL, NULL, 'made')"
        else:
            data = path.read_bytes()
            path.write_bytes(data[: len(data) // 2 // 4096 * 4096] if how == "cut short" else flipped(data))
            return
        db = sqlite3.connect(path)
        db.execute(statement)
        db.commit()
        db.close()


def flipped(data: bytes) -> bytes:
    """One page of zeros in the middle."""
    middle = len(data) // 2 // 4096 * 4096
    return data[:middle] + bytes(4096) + data[middle + 4096 :]


BROKEN = {
    "no SQLite file": "is not a SQLite file. Give the path of a ledger",
    "another SQLite file": "is a SQLite file but not a ledger",
    "empty": "is a SQLite file but not a ledger",
    "folder": "is a folder",
    "pipe": "A ledger must be a regular file",
    "newer": "written by a later version of veilmap",
    "negative": "contains values that veilmap does not write",
    "no number": "contains values that veilmap does not write",
    "cut short": "is damaged",
    "flipped": "is damaged",
}


@pytest.mark.parametrize(("how", "says"), BROKEN.items(), ids=BROKEN)
def test_a_file_that_is_no_sound_ledger_is_one_sentence(tmp_path: Path, how: str, says: str) -> None:
    path = tmp_path / "l.db"
    broken(path, how)
    before = path.read_bytes() if path.is_file() else None
    for use in (
        lambda: Ledger(path).charge("homes", 0.1, what="something"),
        lambda: Ledger(path).account("homes"),
        lambda: vm.release(POINTS, SQUARE, 0.1, **QUAD, ledger=path, dataset="homes"),
    ):
        with pytest.raises(LedgerError, match=says) as refused:
            use()
        assert "\n" not in str(refused.value)
    if before is not None:
        assert path.read_bytes() == before
    if how not in ("empty", "negative", "no number"):
        with pytest.raises(LedgerError, match=says):
            Ledger(path).create("others", 1)


def test_a_ledger_that_cannot_be_written_is_one_sentence(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda at, *a, **k: connect(at.replace("mode=rw", "mode=ro"), *a, **k))
    with pytest.raises(LedgerError, match="you need write access to it and to its folder"):
        ledger.charge("homes", 0.1, what="something")
    assert left(ledger) == 1  # it can be read all the same


def test_a_ledger_in_use_is_waited_for_and_then_left(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veilmap.releases.ledger_file.SECONDS_TO_WAIT", 0.05)
    other = sqlite3.connect(ledger.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(LedgerError, match=r"was in use by other processes .* Nothing was charged"):
        ledger.charge("homes", 0.1, what="something")
    other.rollback()
    receipt = ledger.charge("homes", 0.1, what="something")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.warns(vm.LedgerWarning, match="could not record the outcome of the work"):  # the result is not lost
        receipt.note("made")
    other.rollback()
    other.close()
    assert states(ledger) == ["begun"]


@pytest.mark.parametrize("path", ["nowhere/l.db", "missing.db", "", ":memory:", "a\0b", 7])
def test_a_place_that_is_no_ledger_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: object) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(vm.VeilmapError):
        Ledger(path).charge("homes", 0.1, what="something")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


NAMES = ["", " homes", "homes\n", "a,b", "x" * 81, "\x1b[2J", "\ud800", None, 7]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_short_and_plain(ledger: Ledger, name: object) -> None:
    with pytest.raises(vm.BadInput, match="The name of a"):
        ledger.create(name, 1)  # type: ignore[arg-type]
    with pytest.raises(vm.BadInput, match="The name of a"):
        ledger.charge(name, 1, what="something")  # type: ignore[arg-type]
    with pytest.raises(vm.BadInput, match="The name of a part"):
        ledger.charge("homes", 1, what="something", part=name or "")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", " a", "two\nlines", "x" * 201, "\ud800"])
def test_what_is_noted_is_short_and_plain(ledger: Ledger, text: str) -> None:
    for more in ({"what": text}, {"what": "something", "unit": text}):
        with pytest.raises(vm.BadInput, match="printable characters on one line"):
            ledger.charge("homes", 1, **more)
    assert ledger.history() == ()


@pytest.mark.parametrize("unit", ["row", "rows", "Row"])
def test_a_row_is_a_row(ledger: Ledger, unit: str) -> None:
    assert ledger.create("others", 1, unit=unit).unit == "row"


def test_a_budget_is_set_once(ledger: Ledger) -> None:
    with pytest.raises(vm.BadInput, match=r"already\. A budget cannot be changed"):
        ledger.create("homes", 5)
    ledger.create("caf\u00e9", 1)
    with pytest.raises(vm.BadInput, match="already"):
        ledger.create("cafe\u0301", 1)  # the same letters, typed otherwise
    for budget in (0, -1, float("nan"), 101, "much"):
        with pytest.raises(vm.BadInput, match="epsilon must be"):
            ledger.create("others", budget)
    with pytest.raises(vm.BadInput, match="delta is"):
        ledger.create("others", 1, 1)


# --- many processes, and some of them killed --------------------------------------------------------------------

WORKER = """
import sys
from veilmap.releases.ledger_file import Ledger
from veilmap.errors import BudgetSpent
ledger, log, attempts, price = Ledger(sys.argv[1]), open(sys.argv[2], "a", buffering=1), int(sys.argv[3]), sys.argv[4]
for _ in range(attempts):
    try:
        receipt = ledger.charge("homes", price, what="an attempt")
    except BudgetSpent:
        continue
    print(receipt.number, file=log)
print("done", file=log)
"""


def start(ledger: Ledger, log: Path, attempts: int, price: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", WORKER, str(ledger.path), str(log), str(attempts), price]
    return subprocess.Popen(words, env=os.environ | {"PYTHONPATH": str(Path(vm.__file__).parents[1])})


def paid(logs: list[Path]) -> list[int]:
    lines = [line for log in logs if log.exists() for line in log.read_text().splitlines()]
    return [int(line) for line in lines if line != "done"]


def test_eight_processes_spend_the_last_of_a_budget_once(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("homes", "1.005")
    logs = [tmp_path / f"{k}.log" for k in range(8)]
    workers = [start(ledger, log, 200, "0.01") for log in logs]
    assert [worker.wait() for worker in workers] == [0] * 8
    numbers = paid(logs)
    assert sorted(numbers) == sorted(entry.number for entry in ledger.history())
    assert len(numbers) == len(set(numbers)) == 100  # of 1600 attempts; half a price is left and nobody gets it
    assert left(ledger) == Fraction(1, 200)


def test_processes_that_are_killed_spend_what_they_charged_and_no_more(tmp_path: Path) -> None:
    ledger, pauses = Ledger(tmp_path / "l.db"), np.random.default_rng(5)
    ledger.create("homes", "1.005")
    logs = [tmp_path / f"{k}.log" for k in range(8)]
    killed = 0
    for target in (10, 30, 50, 70):
        workers = [start(ledger, log, 200, "0.01") for log in logs]
        while len(ledger.history()) < target:
            time.sleep(0.01)
        for worker in workers:
            time.sleep(pauses.random() / 50)
            worker.send_signal(signal.SIGKILL)
            killed += worker.wait() == -signal.SIGKILL
    assert killed >= 16  # the others were done
    midway = len(ledger.history())
    last = tmp_path / "last.log"
    assert start(ledger, last, 200, "0.01").wait() == 0
    numbers = {entry.number for entry in ledger.history()}
    assert midway <= len(numbers) == 100
    assert set(paid([*logs, last])) <= numbers  # who was killed after a charge did not come to say so
    assert left(ledger) == Fraction(1, 200)


def in_step(ledger: Ledger, pay: Callable[[Barrier], None]) -> Fraction:
    """Eight at once go for the last of a budget; what is left of it."""
    ledger.create("last", "0.01")
    barrier, refused = Barrier(8), []

    def one() -> None:
        try:
            pay(barrier)
        except vm.BudgetSpent:
            refused.append(1)

    threads = [Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return left(ledger, "last")


def test_looking_and_paying_is_one_step(ledger: Ledger) -> None:
    def careful(barrier: Barrier) -> None:
        barrier.wait()
        ledger.charge("last", "0.01", what="something")

    assert in_step(ledger, careful) == 0


def test_looking_first_and_paying_later_would_spend_too_much(ledger: Ledger) -> None:
    def careless(barrier: Barrier) -> None:
        if left(ledger, "last") >= Fraction(1, 100):
            barrier.wait()
            with ledger._open() as db:
                db.execute(
                    "INSERT INTO charges (dataset, at, what, epsilon, delta, state) "
                    "VALUES ('last', '', '', '1/100', '0', 'begun')"
                )

    assert in_step(ledger, careless) == Fraction(-7, 100)


def test_many_may_make_the_same_ledger_at_once(tmp_path: Path) -> None:
    ledger, barrier = Ledger(tmp_path / "l.db"), Barrier(8)

    def create(k: int) -> None:
        barrier.wait()
        ledger.create(f"set {k}", 1)

    threads = [Thread(target=create, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(account.name for account in ledger.accounts()) == [f"set {k}" for k in range(8)]


def test_a_transaction_that_was_cut_off_is_rolled_back(tmp_path: Path) -> None:
    """A process that dies between its insert and its commit has charged nothing, and hinders nobody."""
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("homes", 1)
    code = (
        "import os, signal, sys\n"
        "from veilmap.releases.ledger_file import Ledger\n"
        "with Ledger(sys.argv[1])._open() as db:\n"
        "    db.execute('PRAGMA cache_size = 0')\n"
        "    for k in range(300):\n"
        '        db.execute("INSERT INTO charges (dataset, at, what, epsilon, delta, state) '
        "VALUES ('homes', '', ?, '1/1000', '0', 'begun')\", ('x' * 200,))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(ledger.path)], check=False)
    assert Path(f"{ledger.path}-journal").exists()  # half of it was on the disk
    assert ledger.history() == ()
    ledger.charge("homes", 1, what="all of it")


# --- the command line -------------------------------------------------------------------------------------------


@pytest.fixture
def run(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: object) -> tuple[int, str, str]:
        with warnings.catch_warnings():
            warnings.simplefilter("default", vm.LedgerWarning)
            return run(*words)

    return call


RELEASE = ("release", "points.csv", "--domain", "x=0:1,y=0:1", "--method", "quad-opt", "--height", "2")


def test_a_ledger_on_the_command_line(run, points_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, _ = run("ledger", "create", "homes", "--epsilon", "1", "--ledger", "l.db")
    assert (status, "homes has a budget of epsilon 1. It protects a row" in out) == (0, True)
    monkeypatch.setenv("VEILMAP_LEDGER", "l.db")
    assert run("ledger", "split", "homes", "--into", "west, east")[0] == 0
    status, out, _ = run(*RELEASE, "-o", "a.parquet", "--epsilon", "0.3", "--dataset", "homes")
    assert status == 0
    assert "l.db: epsilon 0.7 left for homes." in out
    assert run(*RELEASE, "-o", "b.parquet", "--epsilon", "0.6", "--dataset", "homes", "--part", "west")[0] == 0
    status, _, err = run(*RELEASE, "-o", "c.parquet", "--epsilon", "0.6", "--dataset", "homes", "--part", "east")
    assert (status, err.count("\n"), "warning: points.csv was read for part 'west'" in err) == (0, 1, True)
    status, _, err = run(*RELEASE, "-o", "d.parquet", "--epsilon", "0.2", "--dataset", "homes")
    assert (status, err.count("\n")) == (2, 1)
    assert "homes has epsilon=0.1 left, and this costs 0.2" in err
    assert not Path("d.parquet").exists()
    assert run("ledger", "charge", "homes", "--epsilon", "0.1", "--for", "table 3")[:1] == (0,)
    _, out, _ = run("ledger", "show")
    for words in ("homes", "part west", "epsilon 1 ", "epsilon 0 "):
        assert words in out
    _, out, _ = run("ledger", "show", "homes")
    digest = hashlib.sha256(Path("a.parquet").read_bytes()).hexdigest()
    for words in ("release by quad-opt", "saved", "table 3", digest[:12]):
        assert words in out
    _, out, _ = run("ledger", "show", "homes", "--format", "json")
    told = json.loads(out)
    assert told["datasets"][0]["epsilon_left"] == 0
    assert [entry["epsilon_exact"] for entry in told["history"]] == ["3/10", "3/5", "3/5", "1/10"]
    _, out, _ = run("ledger", "show", "homes", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["state"] for row in rows] == ["saved", "saved", "saved", "made"]
    _, out, _ = run("ledger", "show", "--format", "csv")
    assert [row["part"] for row in csv.DictReader(io.StringIO(out))] == ["", "west", "east"]


def test_whatever_is_wrong_with_the_output_costs_nothing(run, points_file: Path) -> None:
    run("ledger", "create", "homes", "--epsilon", "1", "--ledger", "l.db")
    Path("taken.parquet").write_text("something")
    vm.make_key("k")
    Path("signed.parquet.sig").write_text("something")
    paid = ("--epsilon", "0.3", "--ledger", "l.db")
    for words in (
        ("-o", "taken.parquet", *paid, "--dataset", "homes"),
        ("-o", "nowhere/a.parquet", *paid, "--dataset", "homes"),
        ("-o", "a.parquet", *paid),
        ("-o", "a.parquet", "--epsilon", "0.3", "--dataset", "homes"),
        ("-o", "a.parquet", "--epsilon", "0.3", "--part", "west"),
        ("-o", "a.parquet", *paid, "--dataset", "hoems"),
        ("-o", "a.parquet", *paid, "--dataset", "homes", "--sign", "k.pub"),
        ("-o", "a.parquet", *paid, "--dataset", "homes", "--sign", "nothing"),
        ("-o", "signed.parquet", *paid, "--dataset", "homes", "--sign", "k"),
    ):
        status, _, err = run(*RELEASE, *words)
        assert (status, err.count("\n")) == (2, 1), words
    assert Ledger("l.db").history() == ()
    assert not Path("a.parquet").exists()


def test_who_interrupts_a_release_is_told_that_it_stays_charged(run, points_file: Path, monkeypatch) -> None:
    run("ledger", "create", "homes", "--epsilon", "1", "--ledger", "l.db")
    with monkeypatch.context() as patch:
        patch.setattr(
            "veilmap.releases.make.measure", Mock(side_effect=[None, KeyboardInterrupt])
        )  # the rehearsal is done
        status, _, err = run(*RELEASE, "-o", "r.parquet", "--epsilon", "0.5", "--ledger", "l.db", "--dataset", "homes")
    assert status == 130
    assert err.count("stays charged") == 1
    assert not Path("r.parquet").exists()
    assert [entry.state for entry in Ledger("l.db").history()] == ["failed"]


def test_ledger_alone_says_what_it_can_do(run) -> None:
    status, out, _ = run("ledger")
    assert status == 0
    for word in ("create", "split", "charge", "show"):
        assert word in out


def test_a_receipt_notes_once(ledger: Ledger) -> None:
    with pytest.raises(ZeroDivisionError), ledger.charge("homes", 0.1, what="a median") as receipt:
        _ = 1 / 0
    receipt.note("made")
    with ledger.charge("homes", 0.1, what="another") as other:
        assert isinstance(other, Receipt)
    assert states(ledger) == ["failed", "made"]


def test_a_release_is_not_named_like_the_journal(run, points_file: Path) -> None:
    assert run("ledger", "create", "homes", "--epsilon", "1", "--ledger", "l.db")[0] == 0
    more = ("--epsilon", "0.3", "--ledger", "l.db", "--dataset", "homes")
    status, _, err = run(*RELEASE, "-o", "l.db-journal", *more)
    assert (status, "named like the journal" in err) == (2, True)
    assert not Ledger("l.db").history()


def test_a_match_says_that_it_is_not_charged(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEILMAP_LEDGER", "l.db")
    for name in ("a.csv", "b.csv"):
        Path(name).write_text("age\n" + "30\n" * 40)
    words = ("--on", "age=2", "--epsilon", "1", "--domain", "age=0:100", "--no-secure")
    status, _, err = run("match", "a.csv", "b.csv", *words)
    assert (status, "a match is not charged automatically" in err) == (0, True)


def test_the_commands_of_ledgers_know_a_usual_file(run, points_file: Path) -> None:
    status, out, _ = run("ledger", "create", "trips", "--epsilon", "3", "--unit", "person")
    assert (status, "--ledger veilmap-ledger.db --dataset trips" in out) == (0, True)
    more = ("--epsilon", "1", "--ledger", "veilmap-ledger.db", "--dataset", "trips")
    assert run(*RELEASE, "-o", "a.parquet", *more, "--one-row-per-unit")[0] == 0
    status, out, _ = run("ledger", "show")
    assert (status, "epsilon 2" in out) == (0, True)


def test_the_commands_pay_for_the_unit_of_a_budget_and_no_other(run, tmp_path: Path) -> None:
    rows = "".join(f"{k / 1080},0.5,{k // 540},{k // 5}\n" for k in range(1080))
    Path("points.csv").write_text("x,y,driver_id,trip\n" + rows)
    assert (
        "--unit driver_id --max-rows-per-unit K --ledger l.db"
        in run("ledger", "create", "trips", "--epsilon", "1", "--unit", "driver_id", "--ledger", "l.db")[1]
    )
    run("ledger", "create", "rows", "--epsilon", "1", "--ledger", "l.db")
    book = ("--epsilon", "0.1", "--ledger", "l.db")
    driver = ("--unit", "driver_id", "--max-rows-per-unit", "5")
    charge, release = ("ledger", "charge", "trips", *book, "--for", "x"), (*RELEASE, "-o", "a.parquet", *book)
    refused = [
        (*release, "--dataset", "trips"),
        (*release, "--dataset", "trips", "--unit", "trip", "--max-rows-per-unit", "5"),
        (*release, "--dataset", "trips", *driver, "--one-row-per-unit"),
        (*release, "--dataset", "rows", *driver),
        (*release, "--dataset", "rows", "--one-row-per-unit"),
        (*RELEASE, "-o", "a.parquet", "--epsilon", "0.1", "--one-row-per-unit"),
        charge,
        (*charge, "--unit", "trip"),
        (*charge, "--unit", "driver_id", "--one-row-per-unit"),
        ("ledger", "charge", "rows", *book, "--for", "x", "--one-row-per-unit"),
        ("ledger", "charge", "rows", *book, "--for", "x", "--unit", "driver_id"),
        ("ledger", "add-unit-column", "rows", "--column", "driver_id", "--ledger", "l.db"),
    ]
    for command in refused:
        status, out, err = run(*command)
        assert (status, out, err.count("\n")) == (2, "", 1), command
    assert Ledger("l.db").history() == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["l.db", "points.csv"]
    for k, more in enumerate((driver, ("--one-row-per-unit",))):
        assert run(*RELEASE, "-o", f"{k}.parquet", *book, "--dataset", "trips", *more)[0] == 0
    for more in (("--unit", "driver_id"), ("--one-row-per-unit",)):
        assert run(*charge, *more)[0] == 0
    expected = ["one driver_id (5 rows at most)", STATED, "one driver_id", STATED]
    show = ("ledger", "show", "trips", "--ledger", "l.db", "--format")
    assert run(*show, "table")[1].count(STATED) == 2
    assert [entry["unit"] for entry in json.loads(run(*show, "json")[1])["history"]] == expected
    assert [row["unit"] for row in csv.DictReader(io.StringIO(run(*show, "csv")[1]))] == expected


def test_the_commands_state_and_show_a_column_of_another_name(run) -> None:
    run("ledger", "create", "trips", "--epsilon", "1", "--unit", "driver_id", "--ledger", "l.db")
    status, out, _ = run("ledger", "add-unit-column", "trips", "--column", "drv", "--ledger", "l.db")
    assert status == 0
    assert "protect a driver_id, identified by the column driver_id or drv, as you declared" in out
    assert run("ledger", "charge", "trips", "--epsilon", "1", "--for", "x", "--unit", "drv", "--ledger", "l.db")[0] == 0
    show = ("ledger", "show", "--ledger", "l.db", "--format")
    assert "trips: the owner declared that the column drv also identifies a driver_id (20" in run(*show, "table")[1]
    assert json.loads(run(*show, "json")[1])["datasets"][0]["unit_columns"] == ["driver_id", "drv"]
    assert next(csv.DictReader(io.StringIO(run(*show, "csv")[1])))["unit_columns"] == "driver_id, drv"

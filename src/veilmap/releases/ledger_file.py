"""What data sets may spend over many releases, in one SQLite file. Proof: proofs/ledger_file.md.

Not to be confused with the ledger of one release, in the vault: that shares out what is paid here as a whole.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import sqlite3
import threading
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from types import TracebackType

from veilmap.errors import BadInput, BudgetSpent, LedgerError, LedgerWarning, near_misses
from veilmap.validation import exact_delta, exact_epsilon

APPLICATION, VERSION = 0x7665696C, 1
SECONDS_TO_WAIT = 60
ROW = "row"
LONGEST_NAME, LONGEST_TEXT = 80, 200
LONGEST_FRACTION = 10**400  # of a price, as it may be typed; sums may be longer, and are only shown
SCHEMA = f"""
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
CREATE TRIGGER amounts_stay BEFORE UPDATE OF dataset, part, unit, epsilon, delta ON charges
    BEGIN SELECT RAISE(ABORT, 'charges stay'); END;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""
UNIT_COLUMNS = """
CREATE TABLE IF NOT EXISTS unit_columns (dataset TEXT NOT NULL, name TEXT NOT NULL, at TEXT NOT NULL,
    PRIMARY KEY (dataset, name));
"""
"""Created when first needed, so that files of every age go the same way."""

Paid = tuple[str | None, Fraction]
"""The part that was asked, None for all of a data set, and what that cost."""


@dataclass(frozen=True, slots=True)
class Account:
    """What one data set may spend, and what it has spent."""

    name: str
    unit: str
    created: str
    epsilon: Fraction
    delta: Fraction
    parts: tuple[str, ...]
    paid: tuple[tuple[str | None, Fraction, Fraction], ...]  # part, ε and δ of each charge
    stated: tuple[tuple[str, str], ...] = ()  # further columns that name the unit, and when the owner said so

    @property
    def unit_columns(self) -> tuple[str, ...]:
        """Names of the column that says whose row it is: the unit's own, and those that the owner has added."""
        return () if self.unit == ROW else (self.unit, *(column for column, _ in self.stated))

    def spent(self, part: str | None = None) -> tuple[Fraction, Fraction]:
        """The ε and δ that a unit of this part, or of any, has lost at most."""
        return spent([(p, e) for p, e, _ in self.paid], part), spent([(p, d) for p, _, d in self.paid], part)

    def left(self, part: str | None = None) -> tuple[Fraction, Fraction]:
        """The ε and δ that a release of this part, or of the whole, may still cost."""
        epsilon, delta = self.spent(part)
        return self.epsilon - epsilon, self.delta - delta


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the history. Nothing in it depends on the data but the hashes of what was published."""

    number: int
    dataset: str
    part: str | None
    at: str
    what: str
    unit: str | None  # whom it protects, in words, with the owner's statement if there is one; None: one row
    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None  # of Gaussian noise: what was charged is the ε and δ that it buys
    method: str | None  # SHA-256 of its JSON
    state: str  # begun, failed, made, or not private
    outputs: tuple[str, ...]  # SHA-256 of each file that it was saved to


@dataclass(frozen=True, slots=True)
class Receipt:
    """Of one charge. It never gives anything back: it notes what became of the work that was paid for."""

    ledger: Ledger
    number: int

    def __enter__(self) -> Receipt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.note("made" if kind is None else "failed")

    def note(self, state: str) -> None:
        """What became of the work: said once."""
        self._write("UPDATE charges SET state = ? WHERE id = ? AND state = 'begun'", (state, self.number))

    def saved(self, path: str | os.PathLike[str]) -> None:
        """The result is in this file now."""
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._write("INSERT INTO outputs VALUES (?, ?, ?)", (self.number, _now(), digest))

    def _write(self, statement: str, values: tuple[object, ...]) -> None:
        try:
            with self.ledger._open() as db:
                db.execute(statement, values)
        except LedgerError as error:  # the budget is spent and the work done: no reason to lose it
            warnings.warn(f"The ledger could not note what was made: {error}", LedgerWarning, stacklevel=4)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Budgets of data sets, and a history of what was spent, in one file that many processes may use at once.

    Guarantees:

    - What the charges of a data set add up to never exceeds its budget, in ε and in δ, whoever charges when.
    - A charge is on the disk before anything that it pays for is computed, and stays whatever happens then.

    Parameters
    ----------
    path
        The file. ``create`` makes it; everything else needs it.
    """

    path: str | os.PathLike[str]

    def create(self, dataset: str, epsilon: object, delta: object = None, unit: str = ROW) -> Account:
        """Open an account for a data set, once and for all.

        Parameters
        ----------
        dataset
            What you call it: whatever speaks of the same rows belongs under the same name.
        epsilon, delta
            All that may ever be spent on it. Without a ``delta``, releases must have a pure promise.
        unit
            Whom the budget protects: ``row``, or those who may have many rows, by the name of the column that says
            whose row it is. Releases are then made with the same ``unit=``, and all others are refused.
        """
        name, whom, total = _name(dataset, "data set"), _name(unit, "unit"), exact_epsilon(epsilon)
        whom = ROW if whom.lower() in (ROW, "rows") else whom
        chance = Fraction(0) if delta is None else exact_delta(delta)
        with self._open(create=True) as db:
            if name in _names(db):
                raise BadInput(f"There is a data set {name!r} in {self.path} already: a budget is set once.")
            values = (name, str(total), str(chance), whom, _now())
            db.execute("INSERT INTO datasets VALUES (?, ?, ?, ?, ?)", values)
            return _account(db, name)

    def split(self, dataset: str, into: Sequence[str]) -> Account:
        """Declare parts that share no unit, so that what is spent on one is not spent on the others.

        Which part someone is in must be a matter of their own rows alone, and never change. A data set is split once.
        """
        names = tuple(_name(part, "part") for part in into)
        if len(set(names)) < len(names) or len(names) < 2:
            raise BadInput(
                f"A data set is split into two or more parts with names of their own, got {', '.join(names)}."
            )
        with self._open() as db:
            account = _account(db, dataset)
            if account.parts:
                raise BadInput(
                    f"{account.name} is split into {', '.join(account.parts)} already, and parts of two splits may "
                    f"share people: keep to these."
                )
            db.executemany("INSERT INTO parts VALUES (?, ?)", [(account.name, part) for part in names])
            return _account(db, account.name)

    def add_unit_column(self, dataset: str, column: str) -> Account:
        """State that in some tables a column of another name says whose row it is.

        It must tell the same units apart: one value per unit and one unit per value. A trip is less than a person,
        and a household is not the same either (proofs/ledger_file.md). The statement is recorded, and stays.
        """
        name = _name(column, "unit")
        with self._open() as db:
            account = _account(db, dataset)
            if account.unit == ROW:
                raise BadInput(f"The budget of {account.name} protects a row, which no column names: leave it so.")
            if name.lower() in (ROW, "rows"):
                raise BadInput(
                    f"A column of rows is less than a {account.unit}: name the column that tells them apart."
                )
            if name not in account.unit_columns:
                db.execute(UNIT_COLUMNS)
                db.execute("INSERT INTO unit_columns VALUES (?, ?, ?)", (account.name, name, _now()))
            return _account(db, account.name)

    def charge(
        self,
        dataset: str,
        epsilon: object,
        delta: object = None,
        *,
        what: str,
        part: str | None = None,
        unit: str | None = None,
        max_rows_per_unit: int | None = None,
        one_row_per_unit: bool = False,
        rho: Fraction | None = None,
        method: str | None = None,
        files: Iterable[str | os.PathLike[str]] = (),
    ) -> Receipt:
        """Pay for a look at the data, before that. Used as a context, the receipt notes whether the work was done.

        Parameters
        ----------
        dataset, part
            Whose rows are looked at: all of a data set, or one of its parts.
        epsilon, delta
            The price.
        what
            What for, in words.
        unit
            Whom the work protects, if not one row: the unit of the data set, by the name of its column.
        one_row_per_unit
            Your statement that each unit of the data set has at most one row in what is read, so that work without a
            ``unit`` protects it. The history records it in words.
        max_rows_per_unit, rho, method
            For the history: how many rows of a unit are looked at, ρ of Gaussian noise, and a hash of the method.
        files
            What is read. A warning is given if it has been read under another name.
        """
        amount, chance = exact_epsilon(epsilon), Fraction(0) if delta is None else exact_delta(delta)
        text = _text(what, "What a charge is for", LONGEST_TEXT)
        part = None if part is None else _name(part, "part")
        unit = None if unit is None else _name(unit, "unit")
        must_need_the_statement(one_row_per_unit, unit)
        traces = [(file, trace) for file in files for trace in _traces(file)]
        with self._open() as db:
            account = _account(db, dataset)
            if part is not None and part not in account.parts:
                known = near_misses(part, account.parts) if account.parts else "It is not split."
                raise BadInput(f"{account.name} has no part {part!r}. {known}")
            _must_protect_the_same(account, unit, one_row_per_unit)
            _must_fit(account, part, amount, chance)
            found = _elsewhere(db, account.name, part, traces)
            whom = _protected(account, unit, max_rows_per_unit)
            values = (account.name, part, _now(), text, whom, str(amount), str(chance))
            number = db.execute(
                "INSERT INTO charges (dataset, part, at, what, unit, epsilon, delta, rho, method, state) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'begun')",
                (*values, None if rho is None else str(rho), method),
            ).lastrowid
        if found is not None:
            warnings.warn(found, LedgerWarning, stacklevel=3)
        return Receipt(self, int(number or 0))

    def accounts(self) -> tuple[Account, ...]:
        """All data sets."""
        with self._open(write=False) as db:
            return tuple(_account(db, name) for name in _names(db))

    def account(self, dataset: str) -> Account:
        """One data set."""
        with self._open(write=False) as db:
            return _account(db, dataset)

    def history(self, dataset: str | None = None) -> tuple[Entry, ...]:
        """What was spent, the oldest first: on one data set, or on all."""
        with self._open(write=False) as db:
            name = None if dataset is None else _account(db, dataset).name
            outputs: dict[int, tuple[str, ...]] = {}
            for number, digest in db.execute("SELECT charge, sha256 FROM outputs ORDER BY rowid"):
                outputs[number] = (*outputs.get(number, ()), digest)
            rows = db.execute(
                "SELECT id, dataset, part, at, what, unit, epsilon, delta, rho, method, state FROM charges ORDER BY id"
            ).fetchall()
            found = []
            for number, which, part, at, what, unit, epsilon, delta, rho, method, state in rows:
                if name in (None, which):
                    amounts = _amount(epsilon), _amount(delta), None if rho is None else _amount(rho)
                    made = method, state, outputs.get(number, ())
                    found.append(Entry(number, which, part, at, what, unit, *amounts, *made))
            return tuple(found)

    @contextmanager
    def _open(self, *, create: bool = False, write: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it, or nothing. Who writes waits until nobody else does, and then reads."""
        place = _place(self.path, create)
        with _CREATION:
            if create and not place.exists():
                _create_private(place, self.path)
        address = f"{place.as_uri()}?mode={'rwc' if create else 'rw'}"
        try:
            with closing(sqlite3.connect(address, SECONDS_TO_WAIT, isolation_level=None, uri=True)) as db:
                db.execute("PRAGMA synchronous = EXTRA")  # a charge that is committed survives a power cut
                db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                try:
                    _must_be_a_ledger(db, self.path, create)
                    yield db
                except BaseException:
                    db.rollback()
                    raise
                db.execute("COMMIT")
        except sqlite3.Error as error:
            raise LedgerError(f"The ledger {self.path} {_why(error)}.") from None
        except (ValueError, TypeError, ArithmeticError) as error:
            if isinstance(error, BadInput):
                raise
            raise LedgerError(f"The ledger {self.path} holds what no veilmap wrote: {RESTORE}.") from None


def spent(paid: Iterable[Paid], part: str | None = None) -> Fraction:
    """What one unit has lost at most, by sequential composition: it is in one part, and in the whole.

    Of ``part``, or of whichever part was asked most.
    """
    whole, parts = Fraction(0), {part: Fraction(0)}
    for asked, amount in paid:
        if asked is None:
            whole += amount
        else:
            parts[asked] = parts.get(asked, Fraction(0)) + amount
    return whole + (max(parts.values()) if part is None else parts[part])


def _must_fit(account: Account, part: str | None, epsilon: Fraction, delta: Fraction) -> None:
    where = account.name if part is None else f"Part {part} of {account.name}"
    ways = ("ask for less, or answer from the releases that there are", "ask for less, or take a method without one")
    wanted, left = (epsilon, delta), account.left(part)
    for name, price, rest, way in zip(("epsilon", "delta"), wanted, left, ways, strict=True):
        if price > rest:
            raise BudgetSpent(f"{where} has {name}={exact_text(rest)} left, and this costs {exact_text(price)}: {way}.")


def exact_text(amount: Fraction) -> str:
    """A decimal number where that is exact, or a fraction."""
    short = f"{float(amount):.12g}"
    return short if Fraction(short) == amount else fraction_text(amount)


def fraction_text(amount: Fraction) -> str:
    """A fraction; rounded where it has more digits than anyone, and Python, would print."""
    return str(amount) if amount.denominator < LONGEST_FRACTION else f"about {float(amount):.12g}"


def must_need_the_statement(one_row_per_unit: bool, unit: object) -> None:
    """Refuse a statement of one row per unit for work that protects units however many rows they have."""
    if type(one_row_per_unit) is not bool:
        raise BadInput(f"one_row_per_unit is True or False, a statement of the owner's; got {one_row_per_unit!r}.")
    if one_row_per_unit and unit is not None:
        raise BadInput(
            "one_row_per_unit=True (--one-row-per-unit) is for work without a unit, and this has one: "
            "leave one of the two out."
        )


def _must_protect_the_same(account: Account, unit: str | None, one_row_per_unit: bool) -> None:
    """Refuse work for another unit than the account's: such promises do not add up, see the proof."""
    budget = f"The budget of {account.name} protects a {account.unit}"
    if account.unit == ROW:
        if unit is not None:
            raise BadInput(
                f"{budget}, and with a unit a release protects a {unit}: leave the unit out, or create a data set "
                f"for it with unit={unit!r} (--unit {unit})."
            )
        if one_row_per_unit:
            raise BadInput(f"{budget} whoever has it: leave one_row_per_unit (--one-row-per-unit) out.")
        return
    names = " or ".join(account.unit_columns)
    if unit is None and not one_row_per_unit:
        raise BadInput(
            f"{budget}, and without a unit one row is protected: give the column {names} with unit= (--unit), or, "
            f"only if each {account.unit} has at most one row, state so with one_row_per_unit=True "
            f"(--one-row-per-unit)."
        )
    if unit is not None and unit not in account.unit_columns:
        raise BadInput(
            f"{budget}, and this protects a {unit}: give the column {names}, or, only if {unit!r} has one value per "
            f"{account.unit} and one {account.unit} per value, state so with 'veilmap ledger add-unit-column'."
        )


def _protected(account: Account, unit: str | None, most: int | None) -> str | None:
    """Return whom a charge protects, in the words of the history: None for a row of a budget of rows."""
    if most is not None and (unit is None or type(most) is not int or most < 1):
        raise BadInput(f"max_rows_per_unit must be a whole number and needs a unit, got {most!r:.100}.")
    if unit is not None:
        return protected_unit(unit, most)
    return None if account.unit == ROW else f"one row (the owner states: each {account.unit} has at most one row)"


def protected_unit(unit: str, most: int | None) -> str:
    """Return whom work with a unit protects, in words."""
    return f"one {unit}" if most is None else f"one {unit} ({most} rows at most)"


def _traces(file: str | os.PathLike[str]) -> tuple[str, ...]:
    """What a file is known by: its place; and device, inode and time, if it moves. Nothing of its content."""
    try:
        place, about = Path(file).resolve(), os.stat(file)
    except (OSError, ValueError, RuntimeError):
        return ()
    return f"place:{place}", f"file:{about.st_dev}:{about.st_ino}:{about.st_mtime_ns}"


def _elsewhere(
    db: sqlite3.Connection, dataset: str, part: str | None, traces: Iterable[tuple[str | os.PathLike[str], str]]
) -> str | None:
    """Note which files are read, in hashes that only this ledger can make, and say if one had another name before."""
    salt, found = db.execute("SELECT salt FROM salts").fetchone()[0], None
    for file, trace in traces:
        mark = hmac.digest(salt, trace.encode("utf-8", "surrogateescape"), "sha256")
        seen = db.execute("SELECT dataset, part FROM marks WHERE mark = ?", (mark,)).fetchall()
        if (dataset, part) not in seen:
            db.execute("INSERT INTO marks VALUES (?, ?, ?)", (mark, dataset, part))
        for other, piece in seen:
            if other != dataset:
                found = f"{file} was read for {other!r} before: what is spent on {dataset!r} adds to that."
            elif part is not None and piece not in (None, part):
                found = f"{file} was read for part {piece!r} before, and now for {part!r}: parts must share nobody."
    return found


def _account(db: sqlite3.Connection, dataset: str) -> Account:
    name = _name(dataset, "data set")
    row = db.execute("SELECT unit, created, epsilon, delta FROM datasets WHERE name = ?", (name,)).fetchone()
    if row is None:
        known = near_misses(name, _names(db)) if _names(db) else "There is none yet: 'veilmap ledger create' makes one."
        raise BadInput(f"The ledger has no data set {name!r}. {known}")
    parts = tuple(part for (part,) in db.execute("SELECT name FROM parts WHERE dataset = ? ORDER BY rowid", (name,)))
    # all charges are read, so that no index can hide one
    charges = db.execute("SELECT dataset, part, epsilon, delta FROM charges NOT INDEXED ORDER BY id").fetchall()
    paid = tuple((part, _amount(e), _amount(d)) for which, part, e, d in charges if which == name)
    stated: list[tuple[str, str]] = []
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'unit_columns'").fetchone():
        stated = db.execute("SELECT name, at FROM unit_columns WHERE dataset = ? ORDER BY rowid", (name,)).fetchall()
    return Account(name, row[0], row[1], _amount(row[2]), _amount(row[3]), parts, paid, tuple(stated))


def _names(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM datasets ORDER BY rowid")]


def _amount(text: str) -> Fraction:
    amount = Fraction(text)
    if amount < 0:
        raise ArithmeticError
    return amount


def _name(text: object, what: str) -> str:
    name = _text(text, f"The name of a {what}", LONGEST_NAME)
    if "," in name:
        raise BadInput(f"The name of a {what} has no comma, got {name!r}.")
    return name


def _text(text: object, what: str, longest: int) -> str:
    name = unicodedata.normalize("NFC", text) if isinstance(text, str) else ""
    if not (0 < len(name) <= longest and name.isprintable() and name == name.strip()):
        raise BadInput(f"{what} is 1 to {longest} letters on one line, without spaces around them; got {text!r:.100}.")
    return name


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- the file -----------------------------------------------------------------------------------------------------

RESTORE = "restore it from a copy, and charge by hand what was spent since"


def _place(path: str | os.PathLike[str], create: bool) -> Path:
    try:
        place = Path(path).resolve()
        there, regular, folder = place.exists(), place.is_file(), place.parent.is_dir()
    except (TypeError, ValueError, OSError, RuntimeError):
        raise BadInput(f"A ledger is the path of a file, got {path!r:.100}.") from None
    if there and not regular:
        raise LedgerError(f"A ledger is a file, and {path} is {'a folder' if place.is_dir() else 'none'}.")
    if not there and not create:
        raise LedgerError(f"There is no ledger {path}: 'veilmap ledger create NAME --epsilon E' makes one.")
    if not folder:
        raise LedgerError(f"The folder of the ledger {path} does not exist: make it first.")
    return place


_CREATION = threading.Lock()
"""Held by every thread for a moment before it opens a file, and while one is created: closing a file drops all locks
that SQLite has on it in this process, so nobody may have one yet."""


def _create_private(place: Path, path: object) -> None:
    """Create an empty file that only its owner can read; its journal gets the same mode from SQLite."""
    try:
        os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return  # another process was faster
    except OSError:
        raise LedgerError(f"The ledger {path} cannot be created here: its folder must be yours to write.") from None


def _must_be_a_ledger(db: sqlite3.Connection, path: object, create: bool) -> None:
    kind, version = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if create and not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] and not kind and not version:
        for statement in filter(str.strip, _statements()):
            db.execute(statement)
        db.execute("INSERT INTO salts VALUES (?)", (secrets.token_bytes(32),))
        return
    if kind != APPLICATION:
        raise LedgerError(f"{path} is a SQLite file, but no ledger: give another.")
    if version > VERSION:
        raise LedgerError(f"The ledger {path} was written by a later veilmap: pip install --upgrade veilmap.")
    if db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        raise LedgerError(f"The ledger {path} is damaged: {RESTORE}.")


def _statements() -> Iterator[str]:
    """One by one: executescript would end the transaction."""
    statement = ""
    for line in SCHEMA.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _why(error: sqlite3.Error) -> str:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"was in use by others for {SECONDS_TO_WAIT} seconds: try again; nothing was charged"
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return "cannot be opened and written here: it and its folder must be yours to write"
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return "cannot be written, since the disk is full or fails: make room and try again"
    if name.startswith("SQLITE_NOTADB"):
        return "is no ledger, not even a SQLite file: give another"
    return f"is damaged: {RESTORE}"

"""The ledger: a SQLite file with the budgets of data sets and all charges to them. Proof: proofs/ledger_file.md.

The budget meter in the vault is something else: it divides the epsilon of one release, which is one charge here.
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
from veilmap.validation import exact_delta, exact_epsilon, is_whole_number

SQLITE_APPLICATION_ID = 0x7665696C  # "veil"
SCHEMA_VERSION = 1
SECONDS_TO_WAIT = 60
ROW_UNIT = "row"
MAX_NAME_CHARACTERS = 80
MAX_TEXT_CHARACTERS = 200
MAX_PRINTED_DENOMINATOR = 10**400  # of a price as it may be typed; sums may have larger ones, and are rounded in print
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
PRAGMA application_id = {SQLITE_APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""
UNIT_COLUMNS = """
CREATE TABLE IF NOT EXISTS unit_columns (dataset TEXT NOT NULL, name TEXT NOT NULL, at TEXT NOT NULL,
    PRIMARY KEY (dataset, name));
"""
"""Created when it is first needed, so that old and new files are treated in the same way."""

Paid = tuple[str | None, Fraction]
"""A part, or None for the whole data set, and the price of one charge to it."""


@dataclass(frozen=True, slots=True)
class Account:
    """The budget of one data set and the charges to it."""

    name: str
    unit: str
    epsilon: Fraction
    delta: Fraction
    parts: tuple[str, ...]
    paid: tuple[tuple[str | None, Fraction, Fraction], ...]  # part, ε and δ of each charge
    stated: tuple[tuple[str, str], ...] = ()  # further columns that identify the unit, and when the owner declared them

    @property
    def unit_columns(self) -> tuple[str, ...]:
        """Names of the columns that identify the unit: its own, and those that the owner has added."""
        return () if self.unit == ROW_UNIT else (self.unit, *(column for column, _ in self.stated))

    def spent(self, part: str | None = None) -> tuple[Fraction, Fraction]:
        """Return the ε and δ spent on this part, or on the part with the largest sum."""
        return spent([(p, e) for p, e, _ in self.paid], part), spent([(p, d) for p, _, d in self.paid], part)

    def left(self, part: str | None = None) -> tuple[Fraction, Fraction]:
        """Return the ε and δ that remain for a release of this part, or of the whole data set."""
        epsilon, delta = self.spent(part)
        return self.epsilon - epsilon, self.delta - delta


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the history. Only the hashes of published files depend on the data."""

    number: int
    dataset: str
    part: str | None
    at: str
    what: str
    unit: str | None  # protected unit in words, with the owner's statement if there is one; None for one row
    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None  # of Gaussian noise; the charge is the (ε, δ) that it implies
    method: str | None  # SHA-256 of its JSON
    state: str  # begun, failed, made, or not private
    outputs: tuple[str, ...]  # SHA-256 of each file that the result was saved to


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt of one charge. It records the outcome of the work. A charge is never refunded."""

    ledger: Ledger
    number: int

    def __enter__(self) -> Receipt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.note("made" if kind is None else "failed")

    def note(self, state: str) -> None:
        """Record the outcome of the work. Only the first call has an effect."""
        self._write("UPDATE charges SET state = ? WHERE id = ? AND state = 'begun'", (state, self.number))

    def saved(self, path: str | os.PathLike[str]) -> None:
        """Record the hash of the file that the result was saved to."""
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._write("INSERT INTO outputs VALUES (?, ?, ?)", (self.number, _now(), digest))

    def _write(self, statement: str, values: tuple[object, ...]) -> None:
        try:
            with self.ledger._open() as db:
                db.execute(statement, values)
        except LedgerError as error:  # the budget is spent, so the result must not be lost
            warnings.warn(f"The ledger could not record the outcome of the work: {error}", LedgerWarning, stacklevel=4)


@dataclass(frozen=True, slots=True)
class Ledger:
    """A file with the budgets of data sets and the history of charges. Many processes may use it at the same time.

    Guarantees:

    - The charges to a data set never exceed its budget, in ε and in δ, even if many processes charge at the same time.
    - A charge is written to disk before the work that it pays for begins. It remains if this work fails.

    Parameters
    ----------
    path
        The file. ``create`` makes it if it does not exist; all other methods need an existing file.

    Examples
    --------
    >>> ledger = vm.Ledger("office.db")
    >>> account = ledger.create("homes", epsilon=3)
    >>> release = vm.release(points, domain, epsilon=0.5, ledger=ledger, dataset="homes")
    >>> epsilon, delta = ledger.account("homes").left()
    >>> epsilon
    Fraction(5, 2)
    >>> [(entry.what, entry.state) for entry in ledger.history("homes")]
    [('release by best', 'made')]
    """

    path: str | os.PathLike[str]

    def create(self, dataset: str, epsilon: object, delta: object = None, unit: str = ROW_UNIT) -> Account:
        """Create the budget of a data set. It cannot be changed later.

        Parameters
        ----------
        dataset
            A name. All tables with the same rows belong to the same data set.
        epsilon, delta
            The total budget. Without a ``delta``, releases must have a pure guarantee.
        unit
            The unit that the budget protects: ``row``, or the name of the column that identifies a person with many
            rows. Releases must then have the same ``unit=``; all others are refused.
        """
        name, whom, total = _name(dataset, "data set"), _name(unit, "unit"), exact_epsilon(epsilon)
        whom = ROW_UNIT if whom.lower() in (ROW_UNIT, "rows") else whom
        chance = Fraction(0) if delta is None else exact_delta(delta)
        with self._open(create=True) as db:
            if name in _names(db):
                raise BadInput(f"The data set {name!r} is in {self.path} already. A budget cannot be changed.")
            values = (name, str(total), str(chance), whom, _now())
            db.execute("INSERT INTO datasets VALUES (?, ?, ?, ?, ?)", values)
            return _account(db, name)

    def split(self, dataset: str, into: Sequence[str]) -> Account:
        """Declare parts that share no unit, so that a charge to one part does not reduce the budget of the others.

        The part of a unit must depend on its own rows alone, and must never change. A data set can be split only once.
        """
        names = tuple(_name(part, "part") for part in into)
        if len(set(names)) < len(names) or len(names) < 2:
            raise BadInput(
                f"A data set must be split into two or more parts with different names, got {', '.join(names)}."
            )
        with self._open() as db:
            account = _account(db, dataset)
            if account.parts:
                raise BadInput(
                    f"{account.name} is split into {', '.join(account.parts)} already, and the parts of two splits may "
                    f"share people. Use these parts."
                )
            db.executemany("INSERT INTO parts VALUES (?, ?)", [(account.name, part) for part in names])
            return _account(db, account.name)

    def add_unit_column(self, dataset: str, column: str) -> Account:
        """State that a column with another name identifies the same units in some tables.

        The column must have one value per unit and one unit per value. Neither a trip nor a household is the same unit
        as a person (proofs/ledger_file.md). The statement is recorded and cannot be withdrawn.
        """
        name = _name(column, "unit")
        with self._open() as db:
            account = _account(db, dataset)
            if account.unit == ROW_UNIT:
                raise BadInput(f"The budget of {account.name} protects a row and has no column to identify a unit.")
            if name.lower() in (ROW_UNIT, "rows"):
                raise BadInput(f"A row is not the same unit as a {account.unit}. Name the column that identifies it.")
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
        """Charge a data set for work that reads it. Call this before the work begins.

        The receipt is a context manager that records whether the work succeeded.

        Parameters
        ----------
        dataset, part
            The data set that is read, or one of its parts.
        epsilon, delta
            The price.
        what
            A description of the work.
        unit
            The unit that the work protects, if it is not one row: the unit of the data set, by the name of its column.
        one_row_per_unit
            State that each unit of the data set has at most one row in the data that is read, so that work without a
            ``unit`` protects it. The history records this statement.
        max_rows_per_unit, rho, method
            For the history: the maximum number of rows per unit, the ρ of Gaussian noise, and a hash of the method.
        files
            The files that are read. A warning is issued if they have been read for another data set or part.
        """
        amount, chance = exact_epsilon(epsilon), Fraction(0) if delta is None else exact_delta(delta)
        text = _text(what, "The description of a charge", MAX_TEXT_CHARACTERS)
        part = None if part is None else _name(part, "part")
        unit = None if unit is None else _name(unit, "unit")
        must_need_the_statement(one_row_per_unit, unit)
        identities = [(file, identity) for file in files for identity in _file_identities(file)]
        with self._open() as db:
            account = _account(db, dataset)
            if part is not None and part not in account.parts:
                known = near_misses(part, account.parts) if account.parts else "It is not split."
                raise BadInput(f"{account.name} has no part {part!r}. {known}")
            _must_protect_the_same(account, unit, one_row_per_unit)
            _must_fit(account, part, amount, chance)
            warning = _other_use(db, account.name, part, identities)
            whom = _protected(account, unit, max_rows_per_unit)
            values = (account.name, part, _now(), text, whom, str(amount), str(chance))
            number = db.execute(
                "INSERT INTO charges (dataset, part, at, what, unit, epsilon, delta, rho, method, state) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'begun')",
                (*values, None if rho is None else str(rho), method),
            ).lastrowid
        if warning is not None:
            warnings.warn(warning, LedgerWarning, stacklevel=3)
        return Receipt(self, int(number or 0))

    def accounts(self) -> tuple[Account, ...]:
        """Return the accounts of all data sets."""
        with self._open(write=False) as db:
            return tuple(_account(db, name) for name in _names(db))

    def account(self, dataset: str) -> Account:
        """Return the account of one data set."""
        with self._open(write=False) as db:
            return _account(db, dataset)

    def history(self, dataset: str | None = None) -> tuple[Entry, ...]:
        """Return the charges to one data set, or to all, oldest first."""
        with self._open(write=False) as db:
            name = None if dataset is None else _account(db, dataset).name
            outputs: dict[int, tuple[str, ...]] = {}
            for number, digest in db.execute("SELECT charge, sha256 FROM outputs ORDER BY rowid"):
                outputs[number] = (*outputs.get(number, ()), digest)
            rows = db.execute(
                "SELECT id, dataset, part, at, what, unit, epsilon, delta, rho, method, state FROM charges ORDER BY id"
            ).fetchall()
            entries = []
            for number, which, part, at, what, unit, epsilon, delta, rho, method, state in rows:
                if name in (None, which):
                    amounts = _amount(epsilon), _amount(delta), None if rho is None else _amount(rho)
                    made = method, state, outputs.get(number, ())
                    entries.append(Entry(number, which, part, at, what, unit, *amounts, *made))
            return tuple(entries)

    @contextmanager
    def _open(self, *, create: bool = False, write: bool = True) -> Iterator[sqlite3.Connection]:
        """Open a transaction. A writer waits for other writers before it reads. An error rolls everything back."""
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
            raise LedgerError(
                f"The ledger {self.path} contains values that veilmap does not write. {RESTORE_HINT}."
            ) from None


def spent(paid: Iterable[Paid], part: str | None = None) -> Fraction:
    """Return what was spent on a unit of ``part``, or of the part with the largest sum, by sequential composition.

    A unit is in one part and in the whole data set, so charges to both add up.
    """
    whole, parts = Fraction(0), {part: Fraction(0)}
    for charged_part, amount in paid:
        if charged_part is None:
            whole += amount
        else:
            parts[charged_part] = parts.get(charged_part, Fraction(0)) + amount
    return whole + (max(parts.values()) if part is None else parts[part])


def _must_fit(account: Account, part: str | None, epsilon: Fraction, delta: Fraction) -> None:
    """Refuse a charge that exceeds the remaining budget."""
    where = account.name if part is None else f"Part {part} of {account.name}"
    hints = ("Spend less, or use the existing releases", "Spend less, or choose a method without a delta")
    prices, left = (epsilon, delta), account.left(part)
    for name, price, rest, hint in zip(("epsilon", "delta"), prices, left, hints, strict=True):
        if price > rest:
            raise BudgetSpent(
                f"{where} has {name}={exact_text(rest)} left, and this costs {exact_text(price)}. {hint}."
            )


def exact_text(amount: Fraction) -> str:
    """Return an amount as a decimal number if that is exact, else as a fraction."""
    short = f"{float(amount):.12g}"
    return short if Fraction(short) == amount else fraction_text(amount)


def fraction_text(amount: Fraction) -> str:
    """Return an amount as a fraction, rounded if it has more digits than Python prints."""
    return str(amount) if amount.denominator < MAX_PRINTED_DENOMINATOR else f"about {float(amount):.12g}"


def must_need_the_statement(one_row_per_unit: bool, unit: object) -> None:
    """Refuse a statement of one row per unit for work that has a unit, which needs no such statement."""
    if type(one_row_per_unit) is not bool:
        raise BadInput(f"one_row_per_unit, a statement by the owner, must be True or False, got {one_row_per_unit!r}.")
    if one_row_per_unit and unit is not None:
        raise BadInput(
            "one_row_per_unit=True (--one-row-per-unit) is for work without a unit, and this work has one. "
            "Leave one of the two out."
        )


def _must_protect_the_same(account: Account, unit: str | None, one_row_per_unit: bool) -> None:
    """Refuse work for another unit than the account's: such guarantees do not add up (see the proof)."""
    budget = f"The budget of {account.name} protects a {account.unit}"
    if account.unit == ROW_UNIT:
        if unit is not None:
            raise BadInput(
                f"{budget}, and a release with this unit protects a {unit}. Leave the unit out, or create a data set "
                f"for it with unit={unit!r} (--unit {unit})."
            )
        if one_row_per_unit:
            raise BadInput(f"{budget}, so one_row_per_unit (--one-row-per-unit) has no effect. Leave it out.")
        return
    names = " or ".join(account.unit_columns)
    if unit is None and not one_row_per_unit:
        raise BadInput(
            f"{budget}, and a release without a unit protects one row. Give the column {names} with unit= (--unit). "
            f"Only if each {account.unit} has at most one row, state this with one_row_per_unit=True "
            f"(--one-row-per-unit)."
        )
    if unit is not None and unit not in account.unit_columns:
        raise BadInput(
            f"{budget}, and this protects a {unit}. Give the column {names}. Only if {unit!r} has one value per "
            f"{account.unit} and one {account.unit} per value, state this with 'veilmap ledger add-unit-column'."
        )


def _protected(account: Account, unit: str | None, max_rows: int | None) -> str | None:
    """Return the unit that a charge protects, as the history records it: None for a budget of rows."""
    if max_rows is not None and (unit is None or not is_whole_number(max_rows, 1)):
        raise BadInput(f"max_rows_per_unit must be a whole number and needs a unit, got {max_rows!r:.100}.")
    if unit is not None:
        return protected_unit(unit, max_rows)
    return None if account.unit == ROW_UNIT else f"one row (the owner states: each {account.unit} has at most one row)"


def protected_unit(unit: str, max_rows: int | None) -> str:
    """Return the unit that work with a unit protects, in words."""
    return f"one {unit}" if max_rows is None else f"one {unit} ({max_rows} rows at most)"


def _file_identities(file: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return two identities of a file: its path, and its device, inode and time, which survive a move."""
    try:
        path, status = Path(file).resolve(), os.stat(file)
    except (OSError, ValueError, RuntimeError):
        return ()
    return f"place:{path}", f"file:{status.st_dev}:{status.st_ino}:{status.st_mtime_ns}"


def _other_use(
    db: sqlite3.Connection, dataset: str, part: str | None, identities: Iterable[tuple[str | os.PathLike[str], str]]
) -> str | None:
    """Record which files are read, as salted hashes, and return a warning if one was read under another name."""
    salt, warning = db.execute("SELECT salt FROM salts").fetchone()[0], None
    for file, identity in identities:
        mark = hmac.digest(salt, identity.encode("utf-8", "surrogateescape"), "sha256")
        earlier = db.execute("SELECT dataset, part FROM marks WHERE mark = ?", (mark,)).fetchall()
        if (dataset, part) not in earlier:
            db.execute("INSERT INTO marks VALUES (?, ?, ?)", (mark, dataset, part))
        for other, other_part in earlier:
            if other != dataset:
                warning = f"{file} was read for {other!r} before. Charges to {dataset!r} and {other!r} add up."
            elif part is not None and other_part not in (None, part):
                warning = (
                    f"{file} was read for part {other_part!r} before, now for {part!r}. Parts must not share people."
                )
    return warning


def _account(db: sqlite3.Connection, dataset: str) -> Account:
    """Read the account of a data set."""
    name = _name(dataset, "data set")
    row = db.execute("SELECT unit, epsilon, delta FROM datasets WHERE name = ?", (name,)).fetchone()
    if row is None:
        known = (
            near_misses(name, _names(db))
            if _names(db)
            else "It has no data sets yet: 'veilmap ledger create' makes one."
        )
        raise BadInput(f"The ledger has no data set {name!r}. {known}")
    parts = tuple(part for (part,) in db.execute("SELECT name FROM parts WHERE dataset = ? ORDER BY rowid", (name,)))
    # all charges are read without an index, because a damaged index could hide some
    charges = db.execute("SELECT dataset, part, epsilon, delta FROM charges NOT INDEXED ORDER BY id").fetchall()
    paid = tuple((part, _amount(e), _amount(d)) for which, part, e, d in charges if which == name)
    stated: list[tuple[str, str]] = []
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'unit_columns'").fetchone():
        stated = db.execute("SELECT name, at FROM unit_columns WHERE dataset = ? ORDER BY rowid", (name,)).fetchall()
    return Account(name, row[0], _amount(row[1]), _amount(row[2]), parts, paid, tuple(stated))


def _names(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM datasets ORDER BY rowid")]


def _amount(text: str) -> Fraction:
    amount = Fraction(text)
    if amount < 0:
        raise ArithmeticError
    return amount


def _name(text: object, what: str) -> str:
    name = _text(text, f"The name of a {what}", MAX_NAME_CHARACTERS)
    if "," in name:
        raise BadInput(f"The name of a {what} must not contain a comma, got {name!r}.")
    return name


def _text(text: object, what: str, max_characters: int) -> str:
    normal = unicodedata.normalize("NFC", text) if isinstance(text, str) else ""
    if not (0 < len(normal) <= max_characters and normal.isprintable() and normal == normal.strip()):
        raise BadInput(
            f"{what} must have 1 to {max_characters} printable characters on one line, without spaces around them, got "
            f"{text!r:.100}."
        )
    return normal


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- the file -----------------------------------------------------------------------------------------------------

RESTORE_HINT = "Restore it from a backup, and charge by hand what was spent since"


def _place(path: str | os.PathLike[str], create: bool) -> Path:
    try:
        place = Path(path).resolve()
        there, regular, folder = place.exists(), place.is_file(), place.parent.is_dir()
    except (TypeError, ValueError, OSError, RuntimeError):
        raise BadInput(f"A ledger must be the path of a file, got {path!r:.100}.") from None
    if there and not regular:
        raise LedgerError(
            f"A ledger must be a regular file, and {path} is {'a folder' if place.is_dir() else 'not one'}."
        )
    if not there and not create:
        raise LedgerError(f"The ledger {path} does not exist. 'veilmap ledger create NAME --epsilon E' makes one.")
    if not folder:
        raise LedgerError(f"The folder of the ledger {path} does not exist. Create it first.")
    return place


_CREATION = threading.Lock()
"""Held by each thread for a moment before it opens a file, and while a file is created: closing a file releases all
locks that SQLite has on it in this process, so no thread may hold one yet."""


def _create_private(place: Path, path: object) -> None:
    """Create an empty file that only its owner can read. SQLite gives its journal the same mode."""
    try:
        os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return  # another process has created it
    except OSError:
        raise LedgerError(f"The ledger {path} cannot be created: you need write access to its folder.") from None


def _must_be_a_ledger(db: sqlite3.Connection, path: object, create: bool) -> None:
    """Check the format of an existing file, or create the tables in a new one."""
    kind, version = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if create and not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] and not kind and not version:
        for statement in filter(str.strip, _statements()):
            db.execute(statement)
        db.execute("INSERT INTO salts VALUES (?)", (secrets.token_bytes(32),))
        return
    if kind != SQLITE_APPLICATION_ID:
        raise LedgerError(f"{path} is a SQLite file but not a ledger. Give another file.")
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f"The ledger {path} was written by a later version of veilmap: pip install --upgrade veilmap."
        )
    if db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        raise LedgerError(f"The ledger {path} is damaged. {RESTORE_HINT}.")


def _statements() -> Iterator[str]:
    """Yield the statements of the schema one by one: ``executescript`` would end the transaction."""
    statement = ""
    for line in SCHEMA.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _why(error: sqlite3.Error) -> str:
    """Return the end of a sentence about an error of SQLite."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"was in use by other processes for {SECONDS_TO_WAIT} seconds. Nothing was charged. Try again"
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return "cannot be opened for writing: you need write access to it and to its folder"
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return "cannot be written because the disk is full or has failed. Free some space and try again"
    if name.startswith("SQLITE_NOTADB"):
        return "is not a SQLite file. Give the path of a ledger"
    return f"is damaged. {RESTORE_HINT}"

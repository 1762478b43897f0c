"""Rows that a query gives: of DuckDB, which also reads files by itself, or of Postgres."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NoReturn

from veilmap.errors import BadInput, UnreadableInput, need

ADDRESSES = ("postgres://", "postgresql://")
WRONG_QUERY = ("42", "25006")  # what Postgres's states begin with, if the query is at fault and not the data


def sql_points(sql: str, database: str | None) -> AbstractContextManager[Any]:
    """The rows of a query, which sees one state of its database and changes nothing in it."""
    if database is not None and database.startswith(ADDRESSES):
        return _of_postgres(sql, database)
    return _of_duckdb(sql, database)


@contextmanager
def _of_duckdb(sql: str, database: str | None) -> Iterator[Any]:
    duckdb = need("duckdb", "sql", "--sql")
    if database is not None and not os.path.isfile(database):
        raise UnreadableInput(
            f"There is no database file {database!r}: check its name and folder, "
            f"or give the address of one, like {ADDRESSES[1]}host/name."
        )
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="veilmap-") as folder:
        settings = {
            "python_enable_replacements": "false",  # names in a query are those of its database, not of this program
            "temp_directory": folder,  # rows that it sorts or joins: nobody else may look there
            "temp_file_encryption": "true",  # nor read what a killed process leaves
            "autoinstall_known_extensions": "false",  # a query downloads no code
            "allow_community_extensions": "false",
        }
        try:
            connection = duckdb.connect(database or ":memory:", read_only=database is not None, config=settings)
        except duckdb.Error:
            raise UnreadableInput(
                f"{database!r} cannot be opened by DuckDB {duckdb.__version__}: it is no DuckDB database, of another "
                "version, or another program writes to it."
            ) from None
        with connection, _stopped_by(connection.interrupt):
            yield _relation(duckdb, connection, sql)


def _relation(duckdb: Any, connection: Any, sql: str) -> Any:
    about_the_query = duckdb.ParserException, duckdb.CatalogException, duckdb.BinderException
    try:
        connection.execute("SET enable_progress_bar = false")  # which it would print among our own lines
        found = duckdb.extract_statements(sql)
        if [statement.type for statement in found] != [duckdb.StatementType.SELECT]:
            raise BadInput("--sql takes one query that gives rows and changes nothing: SELECT lon, lat FROM trips.")
        if found[0].named_parameters:
            raise BadInput("The query of --sql has places for values, and nobody gives them: write the values there.")
        connection.begin()  # so that every reading sees the same rows
        return connection.sql(sql)
    except about_the_query as error:
        _refuse(error)
    except duckdb.IOException:
        _refuse("a file that it reads is not there, or cannot be read.")
    except duckdb.Error as error:  # whose message may quote rows
        _refuse(f"DuckDB stops with {type(error).__name__}. Ask DuckDB itself to learn more: its words may quote rows.")


@contextmanager
def _of_postgres(sql: str, database: str) -> Iterator[Any]:
    need("adbc_driver_postgresql", "postgres", f"--database {ADDRESSES[1]}…")
    from concurrent.futures import ThreadPoolExecutor

    from adbc_driver_manager import Error
    from adbc_driver_postgresql import dbapi

    try:
        connection = dbapi.connect(database)
    except Error:  # whose message may quote the password
        raise UnreadableInput(
            "The Postgres database cannot be reached: check the address, the user and the password, "
            f"{ADDRESSES[1]}user:password@host:port/name."
        ) from None
    with connection, connection.cursor() as cursor, _stopped_by(cursor.adbc_cancel):
        try:
            with ThreadPoolExecutor(1) as aside:  # in the main thread, the driver would keep an interrupt to itself
                aside.submit(cursor.execute, "SET TRANSACTION READ ONLY").result()
                aside.submit(cursor.execute, sql).result()
            rows = cursor.fetch_record_batch()
        except Error as error:
            at_fault = (error.sqlstate or "").startswith(WRONG_QUERY)
            _refuse(error if at_fault else type(error).__name__)
        yield rows


@contextmanager
def _stopped_by(cancel: Callable[[], object]) -> Iterator[None]:
    """An interrupt ends the query too: other threads read its rows, and wait for it, and this one waits for them.

    So does the signal that schedulers end a program with: a query's temporary files must not stay.
    """

    def stop(*_: object) -> NoReturn:
        with suppress(Exception):
            cancel()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _refuse(why: object) -> NoReturn:
    first = str(why).splitlines()[0]
    raise BadInput(f"The query of --sql cannot be asked: {first}") from None

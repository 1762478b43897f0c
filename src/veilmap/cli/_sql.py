"""Read the rows of an SQL query, from DuckDB (which also reads files) or from Postgres."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NoReturn

from veilmap.errors import BadInput, UnreadableInput, need

POSTGRES_SCHEMES = ("postgres://", "postgresql://")
SQLSTATES_OF_BAD_QUERIES = ("42", "25006")  # prefixes of Postgres error codes that concern the query and not the data


def sql_points(sql: str, database: str | None) -> AbstractContextManager[Any]:
    """Return a context with the rows of a query. It reads one state of the database and changes nothing."""
    if database is not None and database.startswith(POSTGRES_SCHEMES):
        return _from_postgres(sql, database)
    return _from_duckdb(sql, database)


@contextmanager
def _from_duckdb(sql: str, database: str | None) -> Iterator[Any]:
    duckdb = need("duckdb", "sql", "--sql")
    if database is not None and not os.path.isfile(database):
        raise UnreadableInput(
            f"There is no database file {database!r}. Check its name and folder, "
            f"or give the address of a database, for example {POSTGRES_SCHEMES[1]}host/name."
        )
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="veilmap-") as folder:
        settings = {
            "python_enable_replacements": "false",  # a query must not read variables of this program as tables
            "temp_directory": folder,  # sorts and joins write rows here, and only this user may read them
            "temp_file_encryption": "true",  # a killed process may leave these files behind
            "autoinstall_known_extensions": "false",  # a query must not download code
            "allow_community_extensions": "false",
        }
        try:
            connection = duckdb.connect(database or ":memory:", read_only=database is not None, config=settings)
        except duckdb.Error:
            raise UnreadableInput(
                f"{database!r} cannot be opened by DuckDB {duckdb.__version__}. It is not a DuckDB database, has "
                "another version, or is being written by another program."
            ) from None
        with connection, _cancelled_by_signals(connection.interrupt):
            yield _relation(duckdb, connection, sql)


def _relation(duckdb: Any, connection: Any, sql: str) -> Any:
    errors_in_the_query = duckdb.ParserException, duckdb.CatalogException, duckdb.BinderException
    try:
        connection.execute("SET enable_progress_bar = false")  # veilmap prints its own
        statements = duckdb.extract_statements(sql)
        if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
            raise BadInput(
                "--sql takes one query that returns rows and changes nothing, for example SELECT lon, lat FROM trips."
            )
        if statements[0].named_parameters:
            raise BadInput(
                "The --sql query has parameter placeholders but no values were given. Write the values into the query."
            )
        connection.begin()  # all passes over the rows must read the same state
        return connection.sql(sql)
    except errors_in_the_query as error:
        _refuse_query(error)
    except duckdb.IOException:
        _refuse_query("a file that it reads does not exist or cannot be read.")
    except duckdb.Error as error:  # its message may quote rows
        name = type(error).__name__
        _refuse_query(f"DuckDB raised {name}. Its message may quote rows; run the query in DuckDB to see it.")


@contextmanager
def _from_postgres(sql: str, database: str) -> Iterator[Any]:
    need("adbc_driver_postgresql", "postgres", f"--database {POSTGRES_SCHEMES[1]}…")
    from concurrent.futures import ThreadPoolExecutor

    from adbc_driver_manager import Error
    from adbc_driver_postgresql import dbapi

    try:
        connection = dbapi.connect(database)
    except Error:  # its message may quote the password
        raise UnreadableInput(
            "The Postgres database cannot be reached. Check the address, the user and the password: "
            f"{POSTGRES_SCHEMES[1]}user:password@host:port/name."
        ) from None
    with connection, connection.cursor() as cursor, _cancelled_by_signals(cursor.adbc_cancel):
        try:
            with ThreadPoolExecutor(1) as worker:  # in the main thread, the driver would swallow Ctrl-C
                worker.submit(cursor.execute, "SET TRANSACTION READ ONLY").result()
                worker.submit(cursor.execute, sql).result()
            rows = cursor.fetch_record_batch()
        except Error as error:
            concerns_query = (error.sqlstate or "").startswith(SQLSTATES_OF_BAD_QUERIES)
            _refuse_query(error if concerns_query else type(error).__name__)
        yield rows


@contextmanager
def _cancelled_by_signals(cancel: Callable[[], object]) -> Iterator[None]:
    """Cancel the query on SIGINT and SIGTERM.

    Without this, the main thread would wait for threads that wait for the rows of the query. SIGTERM, which schedulers
    send, must end the query too, so that its temporary files are removed.
    """

    def stop(*_: object) -> NoReturn:
        with suppress(Exception):
            cancel()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _refuse_query(reason: object) -> NoReturn:
    first_line = str(reason).splitlines()[0]
    raise BadInput(f"The --sql query cannot be run: {first_line}") from None

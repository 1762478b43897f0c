"""Rows that a query gives, of DuckDB and of a real Postgres."""

import glob
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import veilmap as vm
from veilmap.cli._sql import sql_points
from veilmap.testing import fixed_entropy

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")

DOMAIN = "lon=0:10,lat=0:10"
ASK = "SELECT lon, lat FROM trips"
POINTS = np.random.default_rng(5).random((2000, 2)) * 11 - 0.5
TRIPS = pa.table({"lon": POINTS[:, 0], "lat": POINTS[:, 1], "who": [f"secret{k}" for k in range(len(POINTS))]})

pytestmark = pytest.mark.xdist_group("sql")  # what they share is made once


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("sql") / "trips.duckdb")
    with duckdb.connect(path) as connection:
        connection.register("rows", TRIPS)
        connection.execute("CREATE TABLE trips AS FROM rows")
        connection.execute("INSERT INTO trips VALUES (NULL, 1, 'a'), (1, 'NaN', 'b'), ('inf', 1, 'c')")
    return path


@pytest.fixture
def asked(run, tmp_path):
    """Publish what a query gives: the file, or the complaint."""

    def ask(*options, status=0):
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        common = ("-o", out, "--epsilon", "1", "--domain", DOMAIN, "--method", "quad-opt", "--height", "4")
        with fixed_entropy(7):
            done, _, complaint = run("release", *options, *common)
        assert done == status, complaint
        assert out.exists() == (status == 0)
        return vm.load(out) if status == 0 else complaint

    return ask


def same_as_points(release, points=POINTS):
    with fixed_entropy(7):
        expected = vm.release(points, vm.Domain.parse(DOMAIN), 1, "quad-opt", 4)
    return release.nodes.equals(expected.nodes)


def test_a_table_in_a_database_file_is_released_as_its_points_are(asked, database):
    assert same_as_points(asked("--sql", ASK, "--database", database))


def test_a_query_may_choose_rows_and_stand_alone(asked, database, tmp_path):
    few = POINTS[POINTS[:, 0] < 3]
    assert same_as_points(asked("--sql", f"{ASK} WHERE lon < 3", "--database", database), few)
    pq.write_table(TRIPS, tmp_path / "p.parquet")
    assert same_as_points(asked("--sql", ASK.replace("trips", f"'{tmp_path / 'p.parquet'}'")))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--sql", "SELECT lon, lat FROM tripz"), "Table with name tripz does not exist"),
        (("--sql", "SELECT lon, lat FROM trips WHERE"), "syntax error"),
        (("--sql", "SELECT lon FROM trips"), "no column 'lat'"),
        (("--sql", "FROM trips a JOIN trips b USING (who)"), "more than one column 'lon'"),
        (("--sql", "SELECT *, 1 AS LON FROM trips"), "more than one column 'lon'"),
        (("--sql", "DELETE FROM trips"), "changes nothing"),
        (("--sql", f"{ASK}; {ASK}"), "one query"),
        (("--sql", ""), "one query"),
        (("--sql", f"{ASK} WHERE lon < ?"), "Write the values into the query"),
        (("--sql", "SELECT lon, lat FROM 'nowhere.csv'"), "a file that it reads does not exist"),
        (("--sql", ASK, "--engine", "spark"), "--engine and --master go with INPUT"),
        (("--sql", ASK, "--master", "local[2]"), "--engine and --master go with INPUT"),
        (("--sql", ASK, "some.csv"), "either INPUT files, or a query with --sql"),
        ((), "either INPUT files, or a query with --sql"),
        (("some.csv",), "--database needs --sql"),
    ],
)
def test_what_is_no_query_is_refused_in_a_sentence(asked, database, options, complaint):
    more = ("--database", database) if options else ()
    assert complaint in asked(*options, *more, status=2)


def test_a_file_that_is_no_database_is_refused(asked, database, tmp_path):
    assert "There is no database file" in asked("--sql", ASK, "--database", f"{database}x", status=2)
    (tmp_path / "no.duckdb").write_text("lon,lat\n1,2\n" * 5000)
    assert "cannot be opened by DuckDB" in asked("--sql", ASK, "--database", str(tmp_path / "no.duckdb"), status=2)


def test_an_error_in_the_data_says_nothing_of_the_data(asked, database):
    complaint = asked("--sql", "SELECT lon, who::DOUBLE AS lat FROM trips", "--database", database, status=2)
    assert "failed before its end" in complaint
    assert "secret" not in complaint


def test_a_query_sees_no_variables_of_this_program(asked):
    assert "Table with name points does not exist" in asked("--sql", "FROM points", status=2)


def test_rows_that_a_query_puts_aside_are_for_nobody_else():
    ask = "SELECT current_setting('temp_directory'), current_setting('enable_progress_bar')"
    with sql_points(ask, None) as relation:
        place, bar = relation.fetchall()[0]
        folder = Path(place)
        assert not bar  # it would be printed among our own lines
        assert folder.parent == Path(tempfile.gettempdir())
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


@pytest.fixture
def interrupted(run, tmp_path, monkeypatch):
    """Ask for rows that take for ever, and send a signal."""

    def ask(how, *options):
        before = signal.getsignal(how)
        (tmp_path / "tmp").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
        timers = [
            threading.Timer(3, os.kill, (os.getpid(), how)),
            threading.Timer(60, os._exit, (1,)),  # or nothing would end it
        ]
        for timer in timers:
            timer.start()
        out = tmp_path / "o.parquet"
        status, _, complaint = run("release", *options, "-o", out, "--epsilon", "1", "--domain", "x=0:1")
        for timer in timers:
            timer.cancel()
        assert status == 130, complaint
        assert "veilmap: Interrupted." in complaint
        assert [*tmp_path.rglob("*")] == [tmp_path / "tmp"]
        assert signal.getsignal(how) == before

    return ask


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_a_query_that_takes_long(interrupted, how):
    interrupted(how, "--sql", "SELECT max(hash(a.range * b.range)) AS x FROM range(10000000) a, range(10000000) b")


@pytest.fixture(scope="module")
def postgres():
    """The address of a server on loopback, for as long as it is needed."""
    pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")
    found = shutil.which("initdb") or max(glob.glob("/usr/lib/postgresql/*/bin/initdb"), default=None)
    if found is None:
        pytest.skip("Postgres is not installed")
    root = os.geteuid() == 0  # as whom it refuses to run
    with closing(socket.socket()) as some:
        some.bind(("127.0.0.1", 0))
        port = some.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="pg"))

    def run(program, *args):
        who = "postgres" if root else None
        command = [Path(found).parent / program, *args]
        subprocess.run(command, user=who, check=True, stdout=subprocess.DEVNULL, cwd=folder)

    if root:
        shutil.chown(folder, "postgres")
    data = ("-D", folder / "data")
    run("initdb", *data, "-A", "trust", "-U", "postgres")
    where = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder}"
    run("pg_ctl", *data, "-o", where, "-l", folder / "log", "-w", "start")
    try:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        run("pg_ctl", *data, "-m", "fast", "-w", "stop")
        shutil.rmtree(folder)


def test_postgres_is_asked_through_the_same_door(asked, postgres):
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(postgres) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("trips", TRIPS)
        cursor.execute("INSERT INTO trips VALUES (NULL, 1, 'a'), (1, 'NaN', 'b'), ('Infinity', 1, 'c')")
        connection.commit()
    door = ("--database", postgres)
    assert same_as_points(asked("--sql", ASK, *door))
    assert '"tripz" does not exist' in asked("--sql", "SELECT lon, lat FROM tripz", *door, status=2)
    assert "read-only transaction" in asked("--sql", "DELETE FROM trips RETURNING lon, lat", *door, status=2)
    complaint = asked("--sql", "SELECT lon, who::float8 AS lat FROM trips", *door, status=2)
    assert "failed before its end" in complaint
    assert "secret" not in complaint


def test_one_row_of_postgres_more_changes_one_row(postgres):
    from adbc_driver_postgresql import dbapi

    from tests.privacy.test_readers import FIRST_ID, HOSTILE, PEOPLE, Record, as_table, assert_one_unit_apart, units_of

    def read(records):
        with dbapi.connect(postgres) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest("people", as_table(records), mode="replace")
            connection.commit()
        with sql_points("SELECT * FROM people", postgres) as rows:
            return units_of(rows)

    less = read(PEOPLE)
    assert less.total() == 5
    for record in (*HOSTILE, Record(0.5, 0.5, FIRST_ID - 1, "'; DROP TABLE people; --")):
        assert_one_unit_apart(less, read([record._replace(name=record.name.replace("\0", "")), *PEOPLE]))


def test_what_duckdb_puts_aside_is_encrypted_and_it_installs_nothing():
    names = ("temp_file_encryption", "autoinstall_known_extensions", "allow_community_extensions")
    ask = "SELECT " + ", ".join(f"current_setting('{name}')" for name in names)
    with sql_points(ask, None) as relation:
        assert relation.fetchall() == [(True, False, False)]


def test_a_file_with_guessed_types_is_not_asked(asked, tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("lon,lat,who\n" + "".join(f"1,2,{17 * 10**17 + k}\n" for k in range(400)) + "1,2,0.5\n")
    query = f"SELECT lon, lat, who FROM '{path}'"  # noqa: S608
    for unit in ((), ("--unit", "who", "--max-rows-per-unit", "1")):
        assert "types DuckDB guesses from its rows. Give the file itself" in asked("--sql", query, *unit, status=2)


def test_an_interrupt_ends_a_query_of_postgres(interrupted, postgres):
    interrupted(signal.SIGINT, "--sql", "SELECT 1.0::float8 AS x, pg_sleep(100)", "--database", postgres)


def test_a_postgres_that_is_not_there_is_said_without_its_password(asked):
    pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")
    complaint = asked("--sql", ASK, "--database", "postgresql://me:hunter2@127.0.0.1:9/trips", status=2)
    assert "cannot be reached" in complaint
    assert "hunter2" not in complaint

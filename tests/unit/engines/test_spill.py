"""Rows on disk give the same release as rows in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import veilmap as vm
from veilmap.engines import spill
from veilmap.testing import fixed_entropy

METHODS = ["best", "quad-opt", "privtree", "adaptive-grid", "uniform-grid", "kd-hybrid", "kd-cell", "hilbert-r"]


@pytest.fixture
def points(tmp_path: Path):
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.random((20_000, 2)), 0.1 * rng.standard_normal((20_000, 2)) + 0.4])
    rows[::97] = np.nan
    path = tmp_path / "points.csv"
    np.savetxt(path, rows, delimiter=",", header="x,y", comments="", fmt="%.9f")
    return path


@pytest.mark.parametrize("method", METHODS)
def test_rows_on_disk_give_the_same_release(points, monkeypatch, method):
    domain, made = vm.Domain({"x": (0, 1), "y": (0, 1)}), []
    for max_bytes in (1 << 28, 0):
        monkeypatch.setattr(spill, "MAX_CELL_BYTES_IN_MEMORY", max_bytes)
        with fixed_entropy(3):
            made.append(vm.release(points, domain, 1.0, method=method).nodes)
    assert made[0].equals(made[1])

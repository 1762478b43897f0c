"""Releases under fixed entropy stay as they were: every method, noise, budget and kind of domain.

``golden/releases.json`` holds, per case, a hash of everything that is a whole number (boxes, noisy counts, prices) and
checksums of everything that is not. Floats may differ in their last bits between processors, so they are compared
within 1e-9; ``python -m tests.formats.test_same_releases --bits`` prints hashes of all bits, to compare on one machine.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import veilmap as vm
from veilmap.method.registry import METHODS
from veilmap.testing import fixed_entropy

STORED = Path(__file__).parent / "golden" / "releases.json"
GAUSSIAN = {"noise": "discrete-gaussian", "delta": 1e-6}
BOXES = [[1, 1, 4, 3], [0.5, 0, 6.5, 7], [2, 2, 2.25, 5]]

PLANE: dict[str, dict[str, Any]] = {name: {"method": name} for name in METHODS}
PLANE |= {f"{name} gaussian": {"method": name, **GAUSSIAN} for name, method in METHODS.items() if method.private}
PLANE |= {f"{name} people": {"method": name, "max_rows_per_unit": 3} for name in METHODS if METHODS[name].private}
PLANE |= {
    "best few rows": {"rows": 300},
    "best some rows": {"rows": 2000},
    "best most rows": {"rows": 120_000},
    "best small epsilon": {"epsilon": "0.1"},
    "quad-opt height": {"method": "quad-opt", "height": 5, "prune": 20},
    "quad-opt check": {"method": "quad-opt", "height": 5, "options": {"check": "1/20"}},
    "quad-opt levels": {"method": "quad-opt", "height": 2, "budget": vm.Levels([0, "1/3", 2])},
    "quad-opt workload": {"method": "quad-opt", "height": 5, "budget": vm.Workload(BOXES)},
    "quad-opt workload levels": {"method": "quad-opt", "height": 5, "budget": vm.Workload(BOXES, per="level")},
    "kd-standard check": {"method": "kd-standard", "height": 4, "options": {"check": "1/20"}},
    "kd-standard smooth": {"method": "kd-standard", "options": {"median": "smooth-sensitivity"}, "delta": 1e-6},
    "kd-standard paper": {"method": "kd-standard", "options": {"median": "exponential-paper"}},
    "kd-standard sample": {"method": "kd-standard", "sample": "0.1"},
    "kd-standard binary": {"method": "kd-standard", "options": {"fanout": 2}, "budget": vm.Workload(BOXES)},
    "kd-hybrid sample smooth": {
        "method": "kd-hybrid",
        "sample": "0.5",
        "delta": 1e-6,
        "options": {"median": "smooth-sensitivity", "switch": 3},
    },
    "hilbert-r order": {"method": "hilbert-r", "height": 4, "options": {"order": 9}},
    "adaptive-grid people gaussian": {"method": "adaptive-grid", "max_rows_per_unit": 3, **GAUSSIAN},
}
PLANE |= {
    f"{name} {estimate}": {"method": name, "estimate": estimate}
    for name in ("best", "quad-opt", "kd-hybrid", "hilbert-r", "privtree")
    for estimate in ("noisy-counts", "least-squares", "shrink", "nonnegative")
}
CASES = {name: (2, options) for name, options in PLANE.items()}
CASES |= {
    f"{name} on {axes} axes": (axes, {"method": name})
    for axes in (1, 3, 5)
    for name in ("best", "quad-opt", "kd-hybrid", "kd-cell", "uniform-grid", "adaptive-grid", "privtree")
}


def released(name: str) -> tuple[vm.Release, vm.Answers]:
    """The release of a case, and its answers to some boxes."""
    axes, options = CASES[name]
    options = {"epsilon": 1, **options}
    rows = options.pop("rows", 12_000)
    rng = np.random.default_rng(axes)
    domain = vm.Domain({f"axis{k}": (0, 7) for k in range(axes)})
    clumps = rng.uniform(0, 7, (12, axes))
    points = np.vstack(
        [rng.normal(clumps[rng.integers(0, 12, rows - rows // 4)], 0.2), rng.uniform(0, 7, (rows // 4, axes))]
    )
    if "max_rows_per_unit" in options:
        options["unit"] = rng.integers(0, rows // 4, rows)
    if not METHODS[options.get("method", "best")].private:
        options["allow_nonprivate"] = True
    with fixed_entropy(9):
        release = vm.release(points, domain, **options)
    ends = np.sort(rng.uniform(0, 7, (40, 2, axes)), axis=1)
    return release, release.count(ends.reshape(40, 2 * axes))


def whole_numbers(release: vm.Release) -> str:
    nodes = release.estimates
    digest = hashlib.sha256()
    for array in (nodes.tree.lo, nodes.tree.hi, nodes.tree.first_child, nodes.noisy_count):
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    prices = [(str(charge.epsilon), str(charge.delta), str(charge.rho)) for charge in release.privacy.ledger]
    digest.update(json.dumps(prices).encode())
    return digest.hexdigest()[:16]


def real_numbers(release: vm.Release, answers: vm.Answers) -> dict[str, np.ndarray]:
    nodes = release.estimates
    found = {
        "noise_variance": nodes.noise_variance,
        "estimate": nodes.estimate,
        "subtree_variance": nodes.subtree_variance,
        "unevenness": nodes.known_unevenness,
        "slope": nodes.slope,
        "borders": None if nodes.borders is None else np.array([*nodes.borders.across, nodes.borders.growth]),
        "answer": answers.estimate,
        "low": answers.low,
        "high": answers.high,
    }
    return {key: np.asarray(value, np.float64) for key, value in found.items() if value is not None}


def checksums(numbers: np.ndarray) -> list[float]:
    """The sum of the finite ones, weighted so that none can take another's place, and how many they are."""
    flat = np.ascontiguousarray(numbers).ravel()
    finite = np.isfinite(flat)
    weights = 1 + np.arange(len(flat)) % 97 / 97
    return [float(np.sum(flat * weights, where=finite)), float(np.sum(np.abs(flat), where=finite)), int(finite.sum())]


def summary(name: str) -> dict[str, Any]:
    release, answers = released(name)
    real = {key: checksums(numbers) for key, numbers in real_numbers(release, answers).items()}
    return {"whole numbers": whole_numbers(release), "real numbers": real}


@pytest.mark.parametrize("name", CASES)
def test_a_release_is_the_same_as_ever(name: str) -> None:
    stored, now = json.loads(STORED.read_text())[name], summary(name)
    assert now["whole numbers"] == stored["whole numbers"]
    assert now["real numbers"].keys() == stored["real numbers"].keys()
    for key, (weighted, total, finite) in stored["real numbers"].items():
        close = 1e-9 * total + 1e-12
        assert now["real numbers"][key] == [pytest.approx(weighted, abs=close), pytest.approx(total, abs=close), finite]


def test_a_hash_sees_one_count_off_by_one() -> None:
    release, _ = released("quad-opt height")
    before = whole_numbers(release)
    counts = release.estimates.noisy_count.copy()
    counts[5] += 1
    object.__setattr__(release.estimates, "noisy_count", counts)
    assert whole_numbers(release) != before


def main() -> None:
    if "--bits" in sys.argv:
        for name in CASES:
            release, answers = released(name)
            real = b"".join(a.tobytes() for a in real_numbers(release, answers).values())
            print(name, whole_numbers(release), hashlib.sha256(real).hexdigest()[:16])
        return
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(summary(name))}" for name in CASES)
    STORED.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()

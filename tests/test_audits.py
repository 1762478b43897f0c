"""Whole releases, audited from outside: no method tells more of a row than it claims, and broken builds are caught."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, fields, replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from auditor import least_epsilon
from veilmap.curve import CurveTree
from veilmap.domain import Domain
from veilmap.method import METHODS, Method, Noise
from veilmap.structures import Quadtree
from veilmap.testing import fixed_entropy
from veilmap.vault import NoisyTree, Sealed, measure
from veilmap.vault.noise import discrete_laplace
from veilmap.vault.rows import Rows

CLAIM, RUNS = Fraction(1), 1000
NAMES = [name for name, method in METHODS.items() if method.private]
LITTLE = Fraction(1, 20)  # what finding the boxes may cost: the audit looks at counts


@dataclass(frozen=True)
class KnownRows:
    """Rows whose cells are known: an audit draws thousands of releases, and reading rows is not its subject."""

    cells: list[NDArray[np.int64]]
    units: NDArray[np.int64] | None = None
    again = True

    def rows(self, domain: object, progress: object) -> tuple[list[NDArray[np.int64]], NDArray[np.int64] | None]:
        return self.cells, self.units

    def count_leaves(self, domain: Domain, tree: object, progress: object) -> NDArray[np.int64]:
        counts = np.zeros(tree.level_start[-1] - tree.level_start[-2], np.int64)
        counts[0] = len(self.cells[0])  # all of them lie in the first cell
        return counts


def small(name: str) -> Method:
    """A method whose trees are small and whose budget goes to counts."""
    method = METHODS[name]
    has = {field.name for field in fields(method.structure)}
    options = {"height": 1, "median_share": LITTLE, "split_share": LITTLE}
    return replace(method, structure=replace(method.structure, **{k: v for k, v in options.items() if k in has}))


def score(noisy: NoisyTree) -> float:
    """Nearly the log-likelihood ratio of one row in the first cell against none: every count on its path has a say."""
    tree = noisy.tree.keys if isinstance(noisy.tree, CurveTree) else noisy.tree
    path = (tree.lo == 0).all(axis=1) & (tree.hi > 0).all(axis=1) & np.isfinite(noisy.noise_variance)
    say = np.where(noisy.noisy_count[path] >= 1, 1, -1) / np.sqrt(noisy.noise_variance[path])
    return float(np.round(say.sum(), 6))


def audited(
    method: Method, rows: int = 1, unit: bool = False, delta: Fraction = Fraction(0), runs: int = RUNS
) -> float:
    axes = 2 if method.name == "hilbert-r" else 1
    domain = Domain({f"x{a}": (0, 1) for a in range(axes)}, bits=1)
    scores = []
    for n in (rows, 0):
        engine = KnownRows([np.zeros(n, np.int64)] * axes, np.zeros(n, np.int64) if unit else None)
        sealed = Sealed(engine, domain, 1 if unit else None)
        scores.append(np.array([score(measure(sealed, method, CLAIM, delta=delta)) for _ in range(runs)]))
    return least_epsilon(*scores, delta=float(delta))


def sharper(monkeypatch: pytest.MonkeyPatch, factor: int) -> None:
    """A build whose noise is so many times too small."""
    for room in ("price", "dense"):
        module = importlib.import_module(f"veilmap.vault.{room}")
        monkeypatch.setattr(module, "discrete_laplace", lambda part, n, keys: discrete_laplace(factor * part, n, keys))


@pytest.mark.parametrize("name", NAMES)
def test_audit_finds_no_more_than_the_claim(name: str) -> None:
    with fixed_entropy(50):
        bound = audited(small(name))
    print(f"{name}: epsilon ≥ {bound:.3f} of {CLAIM}")
    assert 0.25 * CLAIM < bound <= CLAIM


@pytest.mark.parametrize("name", NAMES)
def test_audit_catches_half_the_noise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sharper(monkeypatch, 2)
    with fixed_entropy(51):
        bound = audited(small(name))
    print(f"{name} with half the noise: epsilon ≥ {bound:.3f} of {CLAIM}")
    assert bound > CLAIM


@pytest.mark.parametrize("name", ["quad-opt", "kd-standard", "privtree"])
def test_audit_catches_a_cap_that_is_ignored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person with 3 rows, of whom 1 is to be looked at."""
    with fixed_entropy(52):
        assert audited(small(name), rows=3, unit=True) <= CLAIM
    monkeypatch.setattr(Rows, "capped", lambda self, most, keys: self)
    with fixed_entropy(53):
        assert audited(small(name), rows=3, unit=True) > CLAIM


def test_audit_of_gaussian_noise_allows_for_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    method, delta = Method(structure=Quadtree(1), noise=Noise.DISCRETE_GAUSSIAN), Fraction(1, 20)
    with fixed_entropy(54):
        assert audited(method, delta=delta, runs=200) <= CLAIM
    price = importlib.import_module("veilmap.vault.price")
    true = price.discrete_gaussian
    monkeypatch.setattr(price, "discrete_gaussian", lambda variance, n, keys: true(variance / 400, n, keys))
    with fixed_entropy(55):
        assert audited(method, delta=delta, runs=200) > CLAIM

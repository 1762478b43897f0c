"""Whole releases, audited from outside: no method tells more of a row than it claims, and broken builds are caught.

An audit is a method, two neighbouring data sets and a number read off the release. Each is run on the build as it is
and, all else the same, on builds with one thing broken: what it says of the first is within the claim, and what it
says of the others is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from auditor import least_epsilon
from veilmap.budget import Levels
from veilmap.curve import CurveTree
from veilmap.domain import Domain
from veilmap.method import METHODS, Method, Noise
from veilmap.structures import KdTree, Quadtree
from veilmap.testing import fixed_entropy
from veilmap.tree import Tree
from veilmap.vault import NoisyTree, Sealed, measure
from veilmap.vault.dense import decay
from veilmap.vault.exponential import exponential_cuts
from veilmap.vault.gaussian import concentrated, discrete_gaussian
from veilmap.vault.noise import discrete_laplace
from veilmap.vault.rows import Rows
from veilmap.vault.sampling import inner_epsilon
from veilmap.vault.smooth import geometric

Break = Callable[[pytest.MonkeyPatch], None]
Ints = NDArray[np.int64]

CLAIM = Fraction(2)
NAMES = [name for name, method in METHODS.items() if method.private]
MOST, LITTLE = Fraction(19, 20), Fraction(1, 20)  # of the budget: for what an audit looks at, and for the rest


@dataclass(frozen=True)
class KnownRows:
    """Rows whose cells are known: an audit draws thousands of releases, and reading rows is not its subject."""

    cells: list[Ints]
    units: Ints | None = None
    again = True

    def rows(self, domain: object, progress: object) -> tuple[list[Ints], Ints | None]:
        return self.cells, self.units

    def count_leaves(self, domain: Domain, tree: Tree, progress: object) -> Ints:
        assert not np.any(self.cells), "rows of regular trees lie in the first cell"
        counts = np.zeros(tree.level_start[-1] - tree.level_start[-2], np.int64)
        counts[0] = len(self.cells[0])
        return counts


# --- numbers read off a release -----------------------------------------------------------------------------------


def on_path(noisy: NoisyTree) -> NDArray[np.bool_]:
    """The nodes that hold the first cell."""
    tree = noisy.tree.keys if isinstance(noisy.tree, CurveTree) else noisy.tree
    path: NDArray[np.bool_] = (tree.lo == 0).all(axis=1) & (tree.hi > 0).all(axis=1)
    return path


def odds(noisy: NoisyTree) -> float:
    """The log-likelihood ratio of one row in the first cell against none, of Laplace noise: all on its path has a say."""
    path = on_path(noisy) & np.isfinite(noisy.noise_variance)
    rate = np.arccosh(1 + 1 / noisy.noise_variance[path])
    return float(np.round(np.where(noisy.noisy_count[path] >= 1, rate, -rate).sum(), 6))


def gaussian_odds(noisy: NoisyTree) -> float:
    """The same of Gaussian noise, but for a constant."""
    path = on_path(noisy) & np.isfinite(noisy.noise_variance)
    return float(np.round((noisy.noisy_count[path] / noisy.noise_variance[path]).sum(), 6))


def first_cut(noisy: NoisyTree) -> float:
    tree = noisy.tree.keys if isinstance(noisy.tree, CurveTree) else noisy.tree
    return float(tree.hi[1, 0])


def size(noisy: NoisyTree) -> float:
    return float(noisy.tree.size)


def first_level(noisy: NoisyTree) -> float:
    """How many nodes it has."""
    return float(noisy.tree.level_start[2] - noisy.tree.level_start[1])


def depth(noisy: NoisyTree) -> float:
    """Of the leaf that holds the first cell."""
    return float(on_path(noisy).sum())


# --- audits -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Audit:
    """Everything but the build: what is released, of which neighbours, what is read off, and how often."""

    method: Method
    look: Callable[[NoisyTree], float] = odds
    axes: int = 1
    bits: int = 1
    base: int = 0  # rows that both neighbours have, ...
    at: tuple[int, ...] = (0,)  # ... all in this cell ...
    more: int = 1  # ... and those in the first cell that only one has
    cap: int | None = None  # rows that count, of the one person who has them all
    delta: Fraction = Fraction(0)
    runs: int = 1000

    def bound(self, seed: int, broken: Break | None = None) -> float:
        """A lower bound for ε, of the build as it is or of a broken one."""
        domain = Domain({f"x{axis}": (0, 1) for axis in range(self.axes)}, bits=self.bits)
        seen = []
        with pytest.MonkeyPatch.context() as patch, fixed_entropy(seed):
            if broken is not None:
                broken(patch)
            for rows in (self.more, 0):
                cells = [np.repeat(np.array([self.at[axis % len(self.at)], 0]), [self.base, rows]) for axis in range(self.axes)]
                engine = KnownRows(cells, None if self.cap is None else np.zeros(self.base + rows, np.int64))
                sealed = Sealed(engine, domain, self.cap)
                release = (measure(sealed, self.method, CLAIM, delta=self.delta) for _ in range(self.runs))
                seen.append(np.array([self.look(noisy) for noisy in release]))
        return least_epsilon(*seen, delta=float(self.delta))


def fitted(name: str, **options: object) -> Method:
    """A method of the registry whose structure has these options."""
    return replace(METHODS[name], structure=replace(METHODS[name].structure, **options))  # type: ignore[type-var]


# --- broken builds ------------------------------------------------------------------------------------------------


def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    for room in ("price", "dense"):
        patch.setattr(f"veilmap.vault.{room}.discrete_laplace", lambda part, n, keys: discrete_laplace(2 * part, n, keys))


def gaussian_noise_a_third(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("veilmap.vault.price.discrete_gaussian", lambda part, n, keys: discrete_gaussian(part / 9, n, keys))


def sharp_weights(patch: pytest.MonkeyPatch) -> None:
    """Medians by the exponential mechanism as if the score changed by 1/4 at most."""
    patch.setattr("veilmap.vault.medians.exponential_cuts", lambda *args: exponential_cuts(*args[:4], 2 * args[4], args[5]))


def small_sum(patch: pytest.MonkeyPatch) -> None:
    """A sum of positions with noise for a quarter of what it can change by."""
    patch.setattr(
        "veilmap.vault.medians.discrete_laplace",
        lambda part, n, keys: discrete_laplace(4 * part if part < Fraction(1, 100) else part, n, keys),
    )


def smooth_noise_a_quarter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("veilmap.vault.smooth.geometric", lambda rate, scale, bits: geometric(4 * rate, scale, bits))


def no_lowering(patch: pytest.MonkeyPatch) -> None:
    """PrivTree that asks whether plain noisy counts are above 0, for the price of one level."""
    patch.setattr("veilmap.vault.gate.decay", lambda part, fanout: (decay(part, fanout)[0], 0))


def dense_noise_a_quarter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("veilmap.vault.gate.decay", lambda part, fanout: (4 * decay(part, fanout)[0], decay(part, fanout)[1]))


def no_cap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rows, "capped", lambda self, most, keys: self)


def no_sample(patch: pytest.MonkeyPatch) -> None:
    """Everyone is looked at, with what may be spent on a sample."""
    patch.setattr(Rows, "sampled", lambda self, rate, keys: self)


def sample_worth_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("veilmap.vault.gate.inner_epsilon", lambda rate, part: 2 * inner_epsilon(rate, part))

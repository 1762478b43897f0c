"""Whole releases, audited from outside: no method tells more of a row than it claims, and broken builds are caught.

An audit is a method, two neighbouring data sets and a number read off the release. Each is run on the build as it is
and, all else the same, on builds with one thing broken: what it says of the first is within the claim, and what it
says of the others is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from veilmap.auditing.bound import least_epsilon
from veilmap.budget import Levels
from veilmap.curve import CurveTree
from veilmap.domain import Domain
from veilmap.method import METHODS, Method, Noise
from veilmap.structures import Gate, KdTree, Quadtree
from veilmap.testing import fixed_entropy
from veilmap.tree import Tree
from veilmap.vault import NoisyTree, Sealed, measure
from veilmap.vault.dense import decay
from veilmap.vault.exponential import exponential_cuts
from veilmap.vault.gaussian import concentrated, discrete_gaussian
from veilmap.vault.halves import uneven_halves
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
    """The log-likelihood ratio of one row in the first cell against none, of Laplace noise on all of its path."""
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


inner_once, decay_once, concentrated_once = cache(inner_epsilon), cache(decay), cache(concentrated)
ONCE = (  # public arithmetic that every release would do anew
    ("veilmap.vault.gate.inner_epsilon", inner_once),
    ("veilmap.vault.gate.decay", decay_once),
    ("veilmap.vault.gate.concentrated", concentrated_once),
)


@dataclass(frozen=True)
class Audit:
    """Everything but the build: what is released, of which neighbours, what is read off, and how often."""

    method: Method
    look: Callable[[NoisyTree], float] = odds
    axes: int = 1
    bits: int = 1
    base: tuple[int, ...] = (0,)  # along the last axis, the cells of rows that both neighbours have ...
    more: tuple[int, ...] = (0,)  # ... and of those that only one has
    both: int = 0  # times that the first are there
    cap: int | None = None  # rows that count, of the one person who has them all
    delta: Fraction = Fraction(0)
    runs: int = 600
    settings: tuple[tuple[str, object], ...] = ()  # of structures, in any build: they decide nothing about privacy

    def sealed(self, more: tuple[int, ...]) -> Sealed:
        last = np.array(self.base * self.both + more, np.int64)
        cells = [np.zeros_like(last)] * (self.axes - 1) + [last]
        domain = Domain({f"x{axis}": (0, 1) for axis in range(self.axes)}, bits=self.bits)
        return Sealed(KnownRows(cells, None if self.cap is None else np.zeros_like(last)), domain, self.cap)

    def bound(self, seed: int, broken: Break | None = None) -> float:
        """A lower bound for ε, of the build as it is or of a broken one."""
        seen = []
        with pytest.MonkeyPatch.context() as patch, fixed_entropy(seed):
            for name, value in (*ONCE, *self.settings):
                patch.setattr(name, value)
            if broken is not None:
                broken(patch)
            for sealed in (self.sealed(self.more), self.sealed(())):
                releases = (measure(sealed, self.method, CLAIM, delta=self.delta) for _ in range(self.runs))
                seen.append(np.array([self.look(noisy) for noisy in releases]))
        return least_epsilon(*seen, delta=float(self.delta))


def fitted(name: str, **options: object) -> Method:
    """A method of the registry whose structure has these options."""
    return replace(METHODS[name], structure=replace(METHODS[name].structure, **options))  # type: ignore[type-var]


# --- broken builds ------------------------------------------------------------------------------------------------


def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    for room in ("price", "dense"):
        patch.setattr(
            f"veilmap.vault.{room}.discrete_laplace", lambda part, n, keys: discrete_laplace(2 * part, n, keys)
        )


def gaussian_noise_a_quarter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("veilmap.vault.price.discrete_gaussian", lambda part, n, keys: discrete_gaussian(part / 16, n, keys))


def sharp_weights(patch: pytest.MonkeyPatch, times: int = 2) -> None:
    """Medians by the exponential mechanism as if the score changed by half as much as it can."""
    patch.setattr(
        "veilmap.vault.medians.exponential_cuts",
        lambda values, start, lo, hi, part, keys: exponential_cuts(values, start, lo, hi, times * part, keys),
    )


def sharpest_weights(patch: pytest.MonkeyPatch) -> None:
    sharp_weights(patch, 4)


def small_sum(patch: pytest.MonkeyPatch) -> None:
    """A sum of positions with noise for a quarter of what it can change by."""
    patch.setattr(
        "veilmap.vault.medians.discrete_laplace",
        lambda part, n, keys: discrete_laplace(4 * part if part < Fraction(1, 100) else part, n, keys),
    )


def smooth_noise_a_sixth(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("veilmap.vault.smooth.geometric", lambda rate, scale, bits: geometric(6 * rate, scale, bits))


def no_lowering(patch: pytest.MonkeyPatch) -> None:
    """PrivTree that asks at every level whether plain noisy counts are above 0, as if all cost no more than one."""
    patch.setattr("veilmap.vault.gate.decay", lambda part, fanout: (part, 0))


def dense_noise_a_quarter(patch: pytest.MonkeyPatch) -> None:
    def quarter(part: Fraction, fanout: int) -> tuple[Fraction, int]:
        rate, step = decay_once(part, fanout)
        return 4 * rate, step

    patch.setattr("veilmap.vault.gate.decay", quarter)


def halves_of_one_axis(patch: pytest.MonkeyPatch) -> None:
    """Noise as if a row changed the halves along one axis only."""

    def careless(grid: Ints, side: Ints, axes: int, scales: int, part: Fraction, *rest: Any) -> Ints:
        return uneven_halves(grid, side, axes, scales, axes * part, *rest)

    patch.setattr("veilmap.vault.gate.uneven_halves", careless)


def no_cap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rows, "capped", lambda self, most, keys: self)


def no_sample(patch: pytest.MonkeyPatch) -> None:
    """Everyone is looked at, with what may be spent on a sample."""
    patch.setattr(Rows, "sampled", lambda self, rate, keys: self)


def sample_worth_too_much(patch: pytest.MonkeyPatch) -> None:
    """Three times of what may be spent on it is spent."""
    patch.setattr("veilmap.vault.gate.inner_epsilon", lambda rate, part: 3 * inner_once(rate, part))


# --- a structure of halves ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Halved:
    """As many leaves as the noisy sum of its halves says."""

    height = None

    def nodes(self, dimensions: int) -> None:
        return None

    def grow(self, gate: Gate, epsilon: Fraction, budget: object) -> None:
        uneven = int(gate.halves(np.array([0]), 1, MOST * epsilon)[0])
        gate.split(np.array([[min(max(8 + uneven, 1), 32), 1]]))
        gate.count_leaves(LITTLE * epsilon)


# --- counts -------------------------------------------------------------------------------------------------------

FLAT = {"axes": 2, "bits": 2}
COUNTS = {
    # As they are in the registry: a noisy root chooses the height of quadtrees and the cells of grids. What
    # quad-post and quad-opt add to the two others is made of noisy counts alone.
    "best": Audit(METHODS["best"], **FLAT),
    "quad-baseline": Audit(METHODS["quad-baseline"], **FLAT),
    "quad-geo": Audit(METHODS["quad-geo"], **FLAT),
    "quad-post": Audit(METHODS["quad-post"], **FLAT),
    "quad-opt": Audit(METHODS["quad-opt"], **FLAT),
    "uniform-grid": Audit(METHODS["uniform-grid"], **FLAT),
    "adaptive-grid": Audit(fitted("adaptive-grid", cells=2), **FLAT),
    "privtree": Audit(fitted("privtree", split_share=LITTLE), **FLAT),
    "kd-standard": Audit(fitted("kd-standard", height=1, median_share=LITTLE), axes=2),
    "kd-hybrid": Audit(fitted("kd-hybrid", height=2, median_share=LITTLE), bits=2, runs=1000),  # a median, then middles
    "kd-cell": Audit(fitted("kd-cell", height=1, median_share=LITTLE), bits=2),
    "kd-noisymean": Audit(fitted("kd-noisymean", height=1, median_share=LITTLE), bits=2),
    "hilbert-r": Audit(fitted("hilbert-r", height=1, median_share=LITTLE), axes=2),
}


def check(name: str, audit: Audit, seed: int, *broken: Break) -> None:
    """The build is within the claim and none of the broken ones is."""
    bound = audit.bound(seed)
    print(f"{name}: epsilon ≥ {bound:.2f} of {CLAIM}")
    assert bound <= CLAIM
    for build in broken:
        worse = audit.bound(seed + 100, build)
        print(f"{name}, {build.__name__}: epsilon ≥ {worse:.2f} of {CLAIM}")
        assert worse > CLAIM, build.__name__


@pytest.mark.parametrize("name", NAMES)
def test_counts_tell_no_more_than_the_claim(name: str) -> None:
    check(name, COUNTS[name], NAMES.index(name), half_the_noise)


@pytest.mark.parametrize("name", ["quad-opt", "kd-standard", "privtree"])
def test_a_cap_that_is_ignored_is_caught(name: str) -> None:
    """A person with 3 rows, of whom 1 is to be looked at."""
    audit = replace(COUNTS[name], more=(0, 0, 0), cap=1, runs=500)
    check(f"{name} of people", audit, 20 + NAMES.index(name), no_cap)


def test_gaussian_counts_tell_no_more_than_the_claim() -> None:
    """The claim is looser than the noise, for ρ is turned into (ε, δ): half the noise is within it, nearly."""
    method = Method(structure=Quadtree(1), noise=Noise.DISCRETE_GAUSSIAN)
    audit = Audit(method, gaussian_odds, delta=Fraction(1, 100), runs=1200)
    check("gaussian", audit, 40, gaussian_noise_a_quarter)


# --- where trees are cut and split --------------------------------------------------------------------------------

# When all rows lie in cell 1, every cut has all of them on one side, and none is better than another. One more row, in
# cell 0, makes the cut between them e^ε times as likely as any other. There are many, so that it is rare without.
EVEN = {"look": first_cut, "base": (1,), "both": 1, "bits": 6, "runs": 600}
# A row in the last cell, of none: it moves both the count and the sum of positions as far as a row can.
LAST = {"look": first_cut, "more": (63,), "bits": 6}
COARSE = (("veilmap.structures.grids.FEWEST", 1),)  # grids of few cells, for few rows
CUTS: dict[str, tuple[Audit, tuple[Break, ...]]] = {
    "kd-standard": (
        Audit(fitted("kd-standard", height=1, median_share=MOST), **{**EVEN, "runs": 2000}),
        (sharp_weights,),
    ),
    "kd-hybrid": (Audit(fitted("kd-hybrid", height=2, median_share=MOST), **EVEN), (sharpest_weights,)),
    "hilbert-r": (  # one cut of 64 keys; the key of cell (0, 1) is 1
        Audit(fitted("hilbert-r", height=1, fanout=2, median_share=MOST), **{**EVEN, "axes": 2, "bits": 3}),
        (sharpest_weights,),
    ),
    "kd-noisymean": (Audit(fitted("kd-noisymean", height=1, median_share=MOST), **LAST, runs=1000), (small_sum,)),
    # Rows (3, 0) in two cells are uneven, (2, 0) are not.
    "kd-cell": (Audit(fitted("kd-cell", height=1, median_share=MOST), size, both=2, runs=1000), (half_the_noise,)),
    # 15 rows have height 1, and 16 have 2.
    "quad-opt": (
        Audit(METHODS["quad-opt"], size, **FLAT, both=15, settings=(("veilmap.structures.quadtree.ROOT_SHARE", MOST),)),
        (half_the_noise,),
    ),
    # 5 rows in all have a grid of 1 cell, and 6 one of 2 × 2.
    "uniform-grid": (
        Audit(replace(METHODS["uniform-grid"], budget=Levels([MOST, LITTLE])), size, **FLAT, both=5, settings=COARSE),
        (half_the_noise,),
    ),
    # 80 rows in all have a first level of 1 cell, and 81 one of 2 × 2.
    "adaptive-grid": (
        Audit(
            replace(METHODS["adaptive-grid"], budget=Levels([MOST, LITTLE / 2, LITTLE / 2])),
            first_level,
            **FLAT,
            both=80,
            settings=COARSE,
        ),
        (half_the_noise,),
    ),
    # A cell of the first level with 100 rows is left whole, and one with 101 is cut.
    "adaptive-grid, its cells": (
        Audit(
            replace(fitted("adaptive-grid", cells=1), budget=Levels([LITTLE / 2, MOST, LITTLE / 2])),
            size,
            **FLAT,
            both=100,
        ),
        (half_the_noise,),
    ),
    # Each of four levels tells whether the first cell's box holds a row.
    "privtree": (
        Audit(fitted("privtree", split_share=MOST), depth, axes=2, bits=4, runs=800),
        (no_lowering, dense_noise_a_quarter),
    ),
    "smooth-sensitivity": (
        Audit(
            Method(structure=KdTree(1, median="smooth-sensitivity", median_share=MOST)),
            **LAST,
            delta=Fraction(1, 100),
            runs=500,
        ),
        (smooth_noise_a_sixth,),
    ),
    # Of many rows in cell 1 some are in the sample, and how many does not matter. A build whose levels each take what
    # the sample is worth for their own share is not caught here: the first cut spends less than all levels may, a
    # cut that shows a row parts it from the others so that later ones show nothing more, and at rates where the sum
    # is far too much a row is too rarely in the sample. test_levels_that_share_a_sample_pay_for_their_sum has it.
    "sample of a half": (
        Audit(
            Method(structure=KdTree(1, median_share=MOST, sample=Fraction(1, 2))),
            **{**EVEN, "both": 40, "bits": 7, "runs": 1000},
        ),
        (sample_worth_too_much,),
    ),
    "sample of a sixteenth": (
        Audit(
            Method(structure=KdTree(1, median_share=MOST, sample=Fraction(1, 16))),
            **{**EVEN, "both": 200, "runs": 1000},
        ),
        (no_sample,),
    ),
    # 199 rows in all get a second look, at the domain whole, and 200 are split at once.
    "best": (
        Audit(METHODS["best"], first_level, **FLAT, both=199, settings=(("veilmap.structures.best.TOTAL", 95),)),
        (half_the_noise,),
    ),
    # A row of none changes the halves along both axes, and those of what is released here are all it says.
    "halves": (Audit(Method(structure=Halved()), size, axes=2, bits=5, runs=1000), (halves_of_one_axis,)),
}


@pytest.mark.parametrize("name", CUTS)
def test_cuts_tell_no_more_than_the_claim(name: str) -> None:
    audit, broken = CUTS[name]
    check(f"cuts of {name}", audit, 60 + list(CUTS).index(name), *broken)


def test_every_structure_of_the_registry_has_its_cuts_audited() -> None:
    def kinds(methods: Iterable[Method]) -> set[object]:
        return {
            (type(m.structure), getattr(m.structure, "median", None), getattr(m.structure, "switch", None))
            for m in methods
        }

    assert kinds(METHODS[name] for name in NAMES) <= kinds(audit.method for audit, _ in CUTS.values())


# --- the auditor --------------------------------------------------------------------------------------------------


def test_the_auditor_finds_most_of_a_known_loss_and_hardly_ever_more() -> None:
    """Counts with two-sided geometric noise of ε = 1: of 500 audits, one in 1,000 may err."""
    draw, keep = np.random.default_rng(7), -np.expm1(-1.0)

    def noise() -> NDArray[np.float64]:
        return (draw.geometric(keep, 1000) - draw.geometric(keep, 1000)).astype(np.float64)

    bounds = np.array([least_epsilon(noise() + 1, noise()) for _ in range(500)])
    assert np.median(bounds) > 0.6
    assert np.sum(bounds > 1) <= 2
    loose = np.array([least_epsilon(noise() + 1, noise(), doubt=0.9) for _ in range(500)])
    assert np.sum(loose > 1) > 20  # one that takes its samples at their word errs often

"""Whole releases, audited from outside: no method tells more of a row than it claims, and broken builds are caught.

An audit is a method, two neighbouring data sets and a number read off the release. Each is run on the build as it is
and, all else the same, on builds with one thing broken: what it says of the first is within the claim, and what it
says of the others is not. What is common to all data (boxes that share no row) can be audited in many fields at once.
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

from tests.privacy.epsilon_bounds import least_epsilon
from veilmap.auditing.adversary import laplace_rate
from veilmap.auditing.neighbours import KnownRows
from veilmap.budgets import LeafOnly, Levels
from veilmap.domain import Domain
from veilmap.method.method import Method, Noise
from veilmap.method.registry import METHODS
from veilmap.structures import Gate, KdTree, Quadtree, Structure
from veilmap.structures.best_tuning import TUNING
from veilmap.testing import fixed_entropy
from veilmap.trees import CurveTree
from veilmap.vault import GridPrediction, Measured, NoisyTree, Sealed, measure
from veilmap.vault.mechanisms.density_test import decay
from veilmap.vault.mechanisms.exponential import exponential_cuts
from veilmap.vault.mechanisms.gaussian import concentrated, discrete_gaussian
from veilmap.vault.mechanisms.laplace import discrete_laplace
from veilmap.vault.mechanisms.residuals import noisy_residual
from veilmap.vault.mechanisms.roughness import noisy_roughness
from veilmap.vault.mechanisms.sampling import inner_epsilon
from veilmap.vault.mechanisms.smooth import geometric
from veilmap.vault.rows import Rows

Break = Callable[[pytest.MonkeyPatch], None]
Ints = NDArray[np.int64]

CLAIM = Fraction(2)
NAMES = [name for name, method in METHODS.items() if method.private]
MOST, LITTLE = Fraction(19, 20), Fraction(1, 20)  # of the budget: for what an audit looks at, and for the rest


# --- numbers read off a release -----------------------------------------------------------------------------------


def on_path(noisy: NoisyTree) -> NDArray[np.bool_]:
    """The nodes that hold the first cell."""
    tree = noisy.tree.keys if isinstance(noisy.tree, CurveTree) else noisy.tree
    path: NDArray[np.bool_] = (tree.lo == 0).all(axis=1) & (tree.hi > 0).all(axis=1)
    return path


def odds(noisy: NoisyTree) -> float:
    """The log-likelihood ratio of one row in the first cell against none, of Laplace noise on all of its path."""
    path = on_path(noisy) & np.isfinite(noisy.noise_variance)
    rate = laplace_rate(noisy.noise_variance[path])
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
    ("veilmap.vault.measurement.inner_epsilon", inner_once),
    ("veilmap.vault.mechanisms.density_test.decay", decay_once),
    ("veilmap.vault.noise_models.concentrated", concentrated_once),
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
    runs: int = 400
    settings: tuple[tuple[str, object], ...] = ()  # of structures, in any build: they decide nothing about privacy
    predictions: tuple[GridPrediction, ...] = ()  # for a check: then its residuals are all that is read

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
                seen.append(np.array([self.read(made) for made in releases]))
        return least_epsilon(*seen, delta=float(self.delta))

    def read(self, made: Measured) -> float:
        if not self.predictions:
            return self.look(made.tree)
        assert made.check is not None
        return float(sum(residual > 0 for residual, _ in made.check(self.predictions)))


FIELDS = 2048


@dataclass(frozen=True)
class InFields(KdTree):
    """A kd-tree in each of many fields: they share no row, so that one release is as many audits of its cuts."""

    def grow(self, gate: Gate, epsilon: Fraction, budget: Any) -> None:
        gate.refine((FIELDS,))
        KdTree.grow(self, gate, epsilon, budget)


@dataclass(frozen=True)
class FieldAudit:
    """The same of every field alone: every other one has a row more."""

    method: Method
    bits: int = 6  # of a field
    base: tuple[int, ...] = ()  # cells of a field's rows ...
    both: int = 1  # ... and how often each is there
    more: tuple[int, ...] = (0,)
    delta: Fraction = Fraction(0)
    runs: int = 2

    def bound(self, seed: int, broken: Break | None = None) -> float:
        field = np.arange(FIELDS) << self.bits
        rows = [np.repeat(field + cell, self.both) for cell in self.base] + [field[::2] + cell for cell in self.more]
        domain = Domain({"x": (0, 1)}, bits=self.bits + FIELDS.bit_length() - 1)
        sealed = Sealed(KnownRows([np.sort(np.concatenate(rows))]), domain)
        with pytest.MonkeyPatch.context() as patch, fixed_entropy(seed):
            if broken is not None:
                broken(patch)
            trees = [measure(sealed, self.method, CLAIM, delta=self.delta).tree.tree for _ in range(self.runs)]
        cuts = [tree.hi[first] - tree.lo[first] for tree in trees for first in (tree.first_child[tree.level(1)],)]
        seen = np.stack(cuts)[:, :, 0].astype(np.float64)
        return least_epsilon(seen[:, ::2].ravel(), seen[:, 1::2].ravel(), delta=float(self.delta))


def fields(delta: Fraction = Fraction(0), runs: int = 2, **options: Any) -> dict[str, Any]:
    """An audit of medians in fields; the leaves are counted with what is left."""
    structure = InFields(**{"height": 1, "median_share": MOST, **options})
    return {"method": Method(structure=structure, budget=LeafOnly()), "delta": delta, "runs": runs}


def fitted(name: str, **options: object) -> Method:
    """A method of the registry whose structure has these options."""
    return replace(METHODS[name], structure=replace(METHODS[name].structure, **options))  # type: ignore[type-var]


# --- broken builds ------------------------------------------------------------------------------------------------


def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    for module in ("noise_models", "mechanisms.density_test"):
        patch.setattr(
            f"veilmap.vault.{module}.discrete_laplace", lambda part, n, keys: discrete_laplace(2 * part, n, keys)
        )


def gaussian_noise_a_quarter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "veilmap.vault.noise_models.discrete_gaussian", lambda part, n, keys: discrete_gaussian(part / 16, n, keys)
    )


def sharp_weights(patch: pytest.MonkeyPatch, times: int = 2) -> None:
    """Medians by the exponential mechanism as if the score changed by half as much as it can."""
    patch.setattr(
        "veilmap.vault.mechanisms.medians.exponential_cuts",
        lambda values, start, lo, hi, part, keys: exponential_cuts(values, start, lo, hi, times * part, keys),
    )


def sharpest_weights(patch: pytest.MonkeyPatch) -> None:
    sharp_weights(patch, 4)


def small_sum(patch: pytest.MonkeyPatch) -> None:
    """A sum of positions with noise for a quarter of what it can change by."""
    patch.setattr(
        "veilmap.vault.mechanisms.medians.discrete_laplace",
        lambda part, n, keys: discrete_laplace(4 * part if part < Fraction(1, 100) else part, n, keys),
    )


def smooth_noise_a_sixth(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "veilmap.vault.mechanisms.smooth.geometric", lambda rate, scale, bits: geometric(6 * rate, scale, bits)
    )


def no_lowering(patch: pytest.MonkeyPatch) -> None:
    """PrivTree that asks at every level whether plain noisy counts are above 0, as if all cost no more than one."""
    patch.setattr("veilmap.vault.mechanisms.density_test.decay", lambda part, fanout: (part, 0))


def dense_noise_a_quarter(patch: pytest.MonkeyPatch) -> None:
    def quarter(part: Fraction, fanout: int) -> tuple[Fraction, int]:
        rate, step = decay_once(part, fanout)
        return 4 * rate, step

    patch.setattr("veilmap.vault.mechanisms.density_test.decay", quarter)


def halves_of_one_axis(patch: pytest.MonkeyPatch) -> None:
    """Noise as if a row changed the halves along one axis only."""

    def careless(grid: Ints, side: Ints, axes: int, scales: int, part: Fraction, *rest: Any) -> Ints:
        return noisy_roughness(grid, side, axes, scales, axes * part, *rest)

    patch.setattr("veilmap.vault.measurement.noisy_roughness", careless)


def no_cap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rows, "capped", lambda self, most, keys: self)


def no_sample(patch: pytest.MonkeyPatch) -> None:
    """Everyone is looked at, with what may be spent on a sample."""
    patch.setattr(Rows, "sampled", lambda self, rate, keys: self)


def sample_worth_too_much(patch: pytest.MonkeyPatch) -> None:
    """Three times of what may be spent on it is spent."""
    patch.setattr("veilmap.vault.measurement.inner_epsilon", lambda rate, part: 3 * inner_once(rate, part))


def level_at_a_time(patch: pytest.MonkeyPatch) -> None:
    """Each of some looks at one sample takes what a sample is worth for its own share."""
    patch.setattr("veilmap.vault.measurement.inner_epsilon", lambda rate, part: LOOKS * inner_once(rate, part / LOOKS))


def level_not_paid_for(patch: pytest.MonkeyPatch) -> None:
    """Each level has noise as if it were the only one."""
    patch.setattr("veilmap.vault.noise_models.discrete_laplace", lambda part, n, keys: discrete_laplace(CLAIM, n, keys))


def misses_of_no_price(patch: pytest.MonkeyPatch) -> None:
    """A check that is paid for once, of two grids: each has noise for all that was paid."""

    def careless(cells: Ints, places: Ints, expected: Ints, part: Fraction, *rest: Any) -> int:
        return noisy_residual(cells, places, expected, 2 * part, *rest)

    patch.setattr("veilmap.vault.mechanisms.residuals.noisy_residual", careless)


# --- structures of halves, of looks at a sample, and of a check ---------------------------------------------------


@dataclass(frozen=True)
class Halved(Structure):
    """As many leaves as the noisy sum of its halves says."""

    height = None

    def nodes(self, dimensions: int) -> None:
        return None

    def grow(self, gate: Gate, epsilon: Fraction, budget: object) -> None:
        uneven = int(gate.roughness(np.array([0]), 1, MOST * epsilon)[0])
        gate.split(np.array([[min(max(8 + uneven, 1), 32), 1]]))
        gate.count_leaves(LITTLE * epsilon)


LOOKS, RATE = 2, Fraction(1, 16)


@dataclass(frozen=True)
class Looks(KdTree):
    """How often a noisy mean of each field's sample is as far to the right as can be, in some looks."""

    def grow(self, gate: Gate, epsilon: Fraction, budget: Any) -> None:
        gate.refine((FIELDS,))
        left = gate.sample(RATE, MOST * epsilon, Fraction(0), "noisy-mean")
        cuts = [gate.medians(0, left / LOOKS, Fraction(0), "noisy-mean") for _ in range(LOOKS)]
        newest = gate.tree().level(1)
        far = sum((gate.tree().hi[newest, 0] - cut == 1).astype(np.int64) for cut in cuts)
        gate.cut(0, gate.tree().lo[newest, 0] + 1 + far, None)
        gate.count_leaves(LITTLE * epsilon)


@dataclass(frozen=True)
class Checked(Structure):
    """One noisy count, and nearly all of the budget for a check of it."""

    height = None

    def nodes(self, dimensions: int) -> None:
        return None

    def grow(self, gate: Gate, epsilon: Fraction, budget: object) -> None:
        gate.count_leaves(LITTLE * epsilon)
        gate.reserve_check(MOST * epsilon)


# --- counts -------------------------------------------------------------------------------------------------------

FLAT = {"axes": 2, "bits": 2}
DEAR_TOTAL = (("veilmap.structures.best.TUNING", replace(TUNING, total_units=92)),)
COUNTS = {
    # As they are in the registry: a noisy root chooses the height of quadtrees and the cells of grids.
    "best": Audit(METHODS["best"], **FLAT),
    "quad-baseline": Audit(METHODS["quad-baseline"], **FLAT),
    "quad-geo": Audit(METHODS["quad-geo"], **FLAT),
    "uniform-grid": Audit(METHODS["uniform-grid"], **FLAT),
    "adaptive-grid": Audit(fitted("adaptive-grid", cells=2), **FLAT, runs=600),
    "privtree": Audit(fitted("privtree", split_share=LITTLE), **FLAT),
    "kd-standard": Audit(fitted("kd-standard", height=1, median_share=LITTLE), axes=2),
    "kd-hybrid": Audit(fitted("kd-hybrid", height=2, median_share=LITTLE), bits=2, runs=1000),  # a median, then middles
    "kd-cell": Audit(fitted("kd-cell", height=1, median_share=LITTLE), bits=2),
    "kd-noisymean": Audit(fitted("kd-noisymean", height=1, median_share=LITTLE), bits=2),
    "hilbert-r": Audit(fitted("hilbert-r", height=1, median_share=LITTLE), axes=2, runs=600),
}


def check(name: str, audit: Audit | FieldAudit, seed: int, *broken: Break) -> None:
    """The build is within the claim and none of the broken ones is."""
    bound = audit.bound(seed)
    print(f"{name}: epsilon ≥ {bound:.2f} of {CLAIM}")
    assert bound <= CLAIM
    for build in broken:
        worse = audit.bound(seed + 100, build)
        print(f"{name}, {build.__name__}: epsilon ≥ {worse:.2f} of {CLAIM}")
        assert worse > CLAIM, build.__name__


@pytest.mark.parametrize("name", COUNTS)
def test_counts_tell_no_more_than_the_claim(name: str) -> None:
    check(name, COUNTS[name], NAMES.index(name), half_the_noise)


@pytest.mark.parametrize(("name", "same"), [("quad-post", "quad-baseline"), ("quad-opt", "quad-geo")])
def test_what_some_methods_add_is_made_of_noisy_counts_alone(name: str, same: str) -> None:
    one, two = METHODS[name], METHODS[same]
    assert replace(one, estimate=two.estimate, name=same) == two
    assert set(NAMES) == {*COUNTS, "quad-post", "quad-opt"}


@pytest.mark.parametrize("name", ["kd-standard", "privtree"])
def test_a_cap_that_is_ignored_is_caught(name: str) -> None:
    check(f"{name} of people", of_people(COUNTS[name]), 20 + NAMES.index(name), no_cap)


def of_people(audit: Audit) -> Audit:
    """A person with 3 rows, of whom 1 is to be looked at."""
    return replace(audit, more=(0, 0, 0), cap=1, runs=400)


def test_gaussian_counts_tell_no_more_than_the_claim() -> None:
    """The claim is looser than the noise, for ρ is turned into (ε, δ): half the noise is within it, nearly."""
    method = Method(structure=Quadtree(1), noise=Noise.DISCRETE_GAUSSIAN)
    audit = Audit(method, gaussian_odds, delta=Fraction(1, 100), runs=1200)
    check("gaussian", audit, 40, gaussian_noise_a_quarter)


# --- where trees are cut and split --------------------------------------------------------------------------------

# When all rows lie in cell 1, every cut has all of them on one side, and none is better than another. One more row, in
# cell 0, makes the cut between them e^ε times as likely as any other. There are many, so that it is rare without.
EVEN = {"look": first_cut, "base": (1,), "both": 1, "bits": 6, "runs": 500}
COARSE = (("veilmap.structures.grids.MIN_FIRST_LEVEL_BOXES", 1),)  # grids of few cells, for few rows
CUTS: dict[str, tuple[Audit | FieldAudit, tuple[Break, ...]]] = {
    "kd-standard": (FieldAudit(**fields(runs=16), base=(1,)), (sharp_weights,)),
    "kd-hybrid": (FieldAudit(**fields(runs=16, switch="half", height=2), base=(1,)), (sharp_weights,)),
    "hilbert-r": (  # one cut of 64 keys; the key of cell (0, 1) is 1
        Audit(fitted("hilbert-r", height=1, fanout=2, median_share=MOST), **{**EVEN, "axes": 2, "bits": 3}),
        (sharpest_weights,),
    ),
    # A row in the last cell, of none: it moves both the count and the sum of positions as far as a row can.
    "kd-noisymean": (FieldAudit(**fields(runs=8, median="noisy-mean"), more=(63,)), (small_sum,)),
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
        FieldAudit(**fields(Fraction(1, 100), 2, median="smooth-sensitivity"), more=(63,)),
        (smooth_noise_a_sixth,),
    ),
    # Of many rows in cell 1 some are in the sample, and how many does not matter.
    "sample of a half": (
        FieldAudit(**fields(runs=8, sample=Fraction(1, 2)), base=(1,), both=20, bits=7),
        (sample_worth_too_much,),
    ),
    "sample of a sixteenth": (FieldAudit(**fields(runs=8, sample=Fraction(1, 16)), base=(1,), both=100), (no_sample,)),
    # A row is rarely in the sample, but if it is, each look shows it.
    "looks at a sample": (
        FieldAudit(Method(structure=Looks(), budget=LeafOnly()), more=(63,), runs=100),
        (sample_worth_too_much,),
    ),
    # The first split of 249 rows is planned from their noisy count; that of 250 rows, before a probe, is fixed.
    "best": (
        Audit(METHODS["best"], first_level, **FLAT, both=249, settings=DEAR_TOTAL),
        (half_the_noise,),
    ),
    # A row of none changes the halves along both axes, and those of what is released here are all it says.
    "halves": (Audit(Method(structure=Halved()), size, axes=2, bits=5, runs=800), (halves_of_one_axis,)),
    # Nothing is expected anywhere, of one box and of two: a row of none is a miss of each.
    "a check": (
        Audit(
            Method(structure=Checked()),
            predictions=tuple(((n,), np.arange(n), np.zeros(n, np.int64)) for n in (1, 2)),
        ),
        (misses_of_no_price,),
    ),
}


# Five ways to be wrong that are easily overlooked, each caught from outside.
BUGS: dict[str, tuple[Audit | FieldAudit, Break]] = {
    "halved noise": (Audit(Method(structure=Quadtree(1))), half_the_noise),
    "a level missing in the budget": (Audit(Method(structure=Quadtree(1)), runs=800), level_not_paid_for),
    "wrong weight of medians": (CUTS["kd-standard"][0], sharp_weights),
    "one sample charged level by level": (CUTS["looks at a sample"][0], level_at_a_time),
    "no limit on the rows per person": (of_people(COUNTS["quad-geo"]), no_cap),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_caught(bug: str) -> None:
    audit, broken = BUGS[bug]
    check(bug, audit, 90 + list(BUGS).index(bug), broken)


@pytest.mark.parametrize("name", CUTS)
def test_cuts_tell_no_more_than_the_claim(name: str) -> None:
    audit, broken = CUTS[name]
    check(f"cuts of {name}", audit, 60 + list(CUTS).index(name), *broken)


def test_every_structure_of_the_registry_has_its_cuts_audited() -> None:
    def kinds(methods: Iterable[Method]) -> set[object]:
        return {
            (
                KdTree if isinstance(m.structure, InFields) else type(m.structure),
                getattr(m.structure, "median", None),
                getattr(m.structure, "switch", None),
            )
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

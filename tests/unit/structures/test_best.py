"""The structure ``best``: every path pays all there is, and noisy answers alone decide. Proof: proofs/best.md."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests import naive
from veilmap.budgets import Chosen, Geometric, LeafOnly, Levels, Uniform
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.kernels.sibling_contrasts import add_contrasts
from veilmap.method.method import Method, Noise
from veilmap.method.registry import METHODS
from veilmap.structures import Best, Gate, Quadtree, Structure, best
from veilmap.structures.best_tuning import PRICE_UNITS, TUNING
from veilmap.testing import fixed_entropy
from veilmap.trees import CutTree, RegularTree, Tree
from veilmap.vault import LaplaceNoise, NoisyTree, measure, noise_and_budget, seal
from veilmap.vault.arguments import MAX_NODES

BEST = METHODS["best"]
Floats = NDArray[np.float64]


def domain_of(axes: int, bits: int | None = None) -> Domain:
    return Domain({f"x{k}": (0, 1) for k in range(axes)}, bits=bits)


def rows_of(kind: str, n: int, axes: int) -> Floats:
    rng = np.random.default_rng([n, axes])
    if kind == "uniform":
        return rng.random((n, axes))
    if kind == "clustered":
        return np.clip(rng.random((8, axes))[rng.integers(0, 8, n)] + rng.normal(0, 0.01, (n, axes)), 0, 1)
    if kind == "lines":
        return np.repeat(rng.random((n, 1)), axes, axis=1) ** np.arange(1, axes + 1)
    if kind == "tied":
        return np.full((n, axes), 0.3)
    return np.full((n, axes), 7.0)  # outside: nothing is left of it


@dataclass
class Release:
    """A release, and in which units it was paid for."""

    noisy: NoisyTree
    checked: bool  # whether a check was paid for
    price: LaplaceNoise
    total: Fraction

    @property
    def tree(self) -> Tree:
        return self.noisy.tree

    def units(self) -> NDArray[np.int64]:
        """What each node paid, read off its variance; 0 where it was not counted."""
        worth = {self.price.variance(self.total * k / PRICE_UNITS): k for k in range(1, PRICE_UNITS + 1)}
        return np.array([worth.get(v, 0) for v in self.noisy.noise_variance.tolist()])

    def spent(self, what: str = "") -> Fraction:
        return sum((c.epsilon + c.rho for c in self.noisy.charges if what in c.what), Fraction(0))


def release(
    points: object, domain: Domain, epsilon: Fraction, method: Method = BEST, seed: int = 1, **unit: Any
) -> Release:
    delta = Fraction(1, 10**6) if method.needs_delta else Fraction(0)
    with fixed_entropy(seed):
        made = measure(seal(points, domain, **unit), method, epsilon, delta=delta)
    noise, budget = noise_and_budget(method, epsilon, delta, unit.get("max_rows_per_unit", 1))
    return Release(made.tree, made.check is not None, noise, budget)


def reserved_units(load: Fraction | float) -> int:
    """Return what a probe and a check cost together."""
    return TUNING.reserved_units_most if load >= TUNING.most_rows_load else TUNING.reserved_units


def must_be_sound(made: Release) -> None:
    """The leaves are the domain and are counted, and every path pays all there is, to the last unit."""
    tree, side = made.tree, float(made.tree.hi[0, 0])
    volume = np.prod((tree.hi - tree.lo) / side, axis=1)
    assert volume[tree.is_leaf].sum() == pytest.approx(1)
    cells = np.random.default_rng(0).integers(0, tree.hi[0], (20, tree.lo.shape[1]))
    lo, hi = tree.lo[tree.is_leaf], tree.hi[tree.is_leaf]
    assert all(((lo <= cell) & (cell < hi)).all(axis=1).sum() == 1 for cell in cells)
    assert np.isfinite(made.noisy.noise_variance).all()
    assert tree.size <= 3 * TUNING.max_leaves
    paid = made.units()
    assert paid.all()
    probed = made.spent("roughness") * PRICE_UNITS / made.total
    aside = probed + made.spent("calibration") * PRICE_UNITS / made.total
    path = paid.copy()
    for level in range(1, tree.height + 1):
        nodes = tree.level(level)
        path[nodes] += path[tree.parent[nodes]]
    assert (path[tree.is_leaf] == PRICE_UNITS - aside).all()
    assert made.spent() == made.total
    rows = max(int(made.noisy.noisy_count[0]), 1)
    load = rows * made.price.sharpness(made.total)
    assert aside == (reserved_units(load) if load >= TUNING.min_probe_load else 0)
    wide = side > TUNING.max_parts_per_axis
    # few rows may have no box to probe
    assert probed in ((aside / 2,) if load >= TUNING.many_rows_load and wide else (0, aside / 2))
    assert (aside > probed) == made.checked
    assert {c.mechanism for c in made.noisy.charges} == {made.price.mechanism}


# --- any data ---------------------------------------------------------------------------------------------------

EPSILONS = [Fraction(1, 100), Fraction(1, 10), Fraction(1), Fraction(10)]


@pytest.mark.parametrize("axes", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["uniform", "clustered", "lines", "tied", "outside"])
@pytest.mark.parametrize("n", [0, 1, 3000])
def test_every_path_pays_exactly_epsilon(kind: str, n: int, axes: int) -> None:
    points, domain = rows_of(kind, n, axes), domain_of(axes)
    for epsilon in EPSILONS:
        must_be_sound(release(points, domain, epsilon))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_few_rows_are_probed_too(axes: int) -> None:
    """In larger cells, so that few rows say something, too."""
    made = release(rows_of("uniform", 3000, axes), domain_of(axes), Fraction(1))
    must_be_sound(made)
    cost = Fraction(TUNING.reserved_units, PRICE_UNITS)
    assert made.spent("roughness") == made.spent("calibration") == cost / 2


@pytest.mark.parametrize("axes", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("kind", "epsilon"), [("clustered", Fraction(1, 20)), ("uniform", Fraction(1)), ("tied", Fraction(10))]
)
def test_many_rows_are_probed_and_every_path_pays_for_it(kind: str, epsilon: Fraction, axes: int) -> None:
    made = release(rows_of(kind, 200_000, axes), domain_of(axes), epsilon)
    must_be_sound(made)
    cost = epsilon * reserved_units(200_000 * epsilon) / PRICE_UNITS
    assert made.spent("roughness") == made.spent("calibration") == cost / 2


@pytest.mark.parametrize("axes", [1, 2, 4, 8])
@pytest.mark.parametrize("bits", [1, 2, 5])
@pytest.mark.parametrize("rows", [3000, 20_000])
def test_a_domain_of_few_cells(rows: int, axes: int, bits: int) -> None:
    """Boxes that cannot be cut any further pay what is left, and what was not asked is not paid."""
    made = release(rows_of("uniform", rows, axes), domain_of(axes, bits), Fraction(1))
    must_be_sound(made)
    assert (made.tree.hi > made.tree.lo).all()


@pytest.mark.parametrize("kind", ["clustered", "outside"])
@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("rows", [8000, 50_000])
def test_gaussian_noise(kind: str, axes: int, rows: int) -> None:
    made = release(
        rows_of(kind, rows, axes), domain_of(axes), Fraction(1), replace(BEST, noise=Noise.DISCRETE_GAUSSIAN)
    )
    must_be_sound(made)
    assert {c.epsilon for c in made.noisy.charges} == {0}


@pytest.mark.parametrize("most", [1, 4])
@pytest.mark.parametrize("n", [16_000, 60_000])
def test_people(n: int, most: int) -> None:
    rows = rows_of("clustered", n, 2)
    points = pa.table({"x0": rows[:, 0], "x1": rows[:, 1], "who": np.arange(len(rows)) // 4})
    made = release(points, domain_of(2), Fraction(1), unit="who", max_rows_per_unit=most)
    must_be_sound(made)
    assert abs(int(made.noisy.noisy_count[0]) - n // 4 * most) < 100 * most * 30


def test_the_tree_follows_the_data() -> None:
    """More leaves for more rows and a larger budget, and leaves where the rows are."""
    sizes = [
        release(rows_of("uniform", n, 2), domain_of(2), Fraction(e)).tree.size
        for n, e in [(500, 1), (20_000, 1), (20_000, 8)]
    ]
    assert sizes[0] < sizes[1] < sizes[2]
    made = release(rows_of("tied", 20_000, 2), domain_of(2), Fraction(1))
    lo, hi = made.tree.lo / made.tree.hi[0], made.tree.hi / made.tree.hi[0]
    here = ((lo <= 0.3) & (hi > 0.3)).all(axis=1) & made.tree.is_leaf
    assert np.prod(hi - lo, axis=1)[here] < np.prod(hi - lo, axis=1)[made.tree.is_leaf].mean() / 10


# --- what it may be told ----------------------------------------------------------------------------------------


def test_the_same_bits_make_the_same_release() -> None:
    one, two, other = (release(rows_of("clustered", 30_000, 2), domain_of(2), Fraction(1), seed=s) for s in (1, 1, 2))
    assert np.array_equal(one.tree.lo, two.tree.lo)
    assert np.array_equal(one.noisy.noisy_count, two.noisy.noisy_count)
    assert not np.array_equal(one.noisy.noisy_count[:1], other.noisy.noisy_count[:1])


def test_the_method_is_written_and_read() -> None:
    assert Method.from_json(BEST.to_json()) == BEST
    assert BEST.to_json()["budget"] == {"name": "chosen", "configuration": {}}
    assert isinstance(Method(structure=Best()).budget, Chosen)


@pytest.mark.parametrize("budget", [Geometric(), Uniform(), LeafOnly()], ids=lambda b: type(b).__name__)
def test_another_budget_is_refused_with_a_way_out(budget: object) -> None:
    with pytest.raises(BadInput, match="Leave the budget out"):
        release(rows_of("uniform", 10, 1), domain_of(1), Fraction(1), Method(structure=Best(), budget=budget))  # type: ignore[arg-type]


def test_budgets_that_do_not_fit_at_all() -> None:
    with pytest.raises(BadInput, match="best divides its budget itself"):
        Method(structure=Best(), budget=Levels([1, 1]))
    with pytest.raises(BadInput, match="Give it a budget like Geometric"):
        release(rows_of("uniform", 10, 1), domain_of(1), Fraction(1), Method(structure=Quadtree(2), budget=Chosen()))


# --- noisy answers alone decide the tree --------------------------------------------------------------------------

ASKS = ("count_each", "roughness", "reserve_check")


@dataclass
class Overheard(Structure):
    """``best``, with every question and answer written down."""

    log: list[tuple[Any, ...]] = field(default_factory=list)
    height: None = field(default=None, init=False)

    def nodes(self, dimensions: int) -> None:
        return None

    def grow(self, gate: Gate, epsilon: Fraction, budget: Chosen) -> None:
        def heard(name: str) -> Any:
            def ask(*question: Any) -> Any:
                answer = getattr(gate, name)(*question)
                self.log.append((name, question, None if answer is None else answer.copy()))
                return answer

            return ask

        Best().grow(replace(gate, **{name: heard(name) for name in ASKS}), epsilon, budget)


class Retold:
    """A gate without data: it gives the answers that it was given, and none beside."""

    def __init__(self, domain: Domain, answer: Any, epsilon: Fraction, rows: int = 1) -> None:
        self.domain, self.price = domain, LaplaceNoise(rows)
        self.tree: Tree = RegularTree(domain.side, domain.dimensions)
        self.answer, self.asked = answer, list[tuple[Any, ...]]()
        nothing = dict.fromkeys(f.name for f in fields(Gate))
        mine = {name: lambda *question, name=name: self.ask(name, *question) for name in ASKS}
        self.gate = Gate(**nothing | mine | {  # type: ignore[arg-type]
            "domain": domain,
            "power": self.price.power,
            "sharpness": self.price.sharpness,
            "tree": lambda: self.tree,
            "boxes": lambda: self.tree,
            "split": self.split,
        })  # fmt: skip
        Best().grow(self.gate, epsilon, Chosen())

    def split(self, parts: NDArray[np.int64]) -> None:
        self.tree = self.tree.split(parts)

    def ask(self, name: str, *question: Any) -> Any:
        self.asked.append((name, question))
        return self.answer(self.tree, name, *question)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 500, 30_000])
def test_the_answers_alone_decide_the_tree(n: int, axes: int) -> None:
    """What was overheard of a release, told again where there is no data, leads to the same questions and boxes."""
    spy, domain = Overheard(), domain_of(axes)
    method = Method(structure=spy, budget=Chosen())
    made = release(rows_of("clustered", n, axes), domain, Fraction(1), method)
    answers = iter([answer for *_, answer in spy.log])
    again = Retold(domain, lambda *question: next(answers), Fraction(1))
    assert np.array_equal(again.tree.lo, made.tree.lo)
    assert np.array_equal(again.tree.hi, made.tree.hi)
    assert np.array_equal(again.tree.children, made.tree.children)
    assert not list(answers)
    for (name, question), (heard, before, _) in zip(again.asked, spy.log, strict=True):
        assert name == heard
        assert all(np.array_equal(a, b) for a, b in zip(question, before, strict=True))


def even(tree: Tree, rows: float) -> Floats:
    """What nodes have of rows that lie evenly."""
    return rows * np.prod((tree.hi - tree.lo) / float(tree.hi[0, 0]), axis=1)


def crowded(tree: Tree, rows: float) -> Floats:
    """All rows in the first cell."""
    return np.where((tree.lo == 0).all(axis=1), rows, 0.0)


@pytest.mark.parametrize("spread", [even, crowded])
@pytest.mark.parametrize("axes", [1, 2, 3, 4])
@pytest.mark.parametrize("rows", [10**5, 10**8, 10**15])
def test_trees_have_no_more_leaves_than_they_may(
    spread: Any, rows: int, axes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows there are, and however they lie; and the probe asks for no more than the gate would give."""
    small = replace(TUNING, max_leaves=2**11)
    monkeypatch.setattr(best, "TUNING", small)

    def answer(tree: Tree, name: str, *question: Any) -> Any:
        if name == "count_each":
            return spread(tree, rows)[question[0]].astype(np.int64)
        if name == "reserve_check":
            return None
        depth, scales, _ = question
        parts = np.where(depth < 0, 0, 2.0 ** (depth + 1))
        newest = tree.level(tree.height)
        assert (parts <= (tree.hi - tree.lo)[newest].min(axis=1)).all()
        assert (parts**axes).sum() <= MAX_NODES
        return np.full(scales, rows)

    tree = Retold(domain_of(axes), answer, Fraction(1)).tree
    assert tree.is_leaf.sum() <= 4 * small.max_leaves
    assert tree.height <= PRICE_UNITS


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.sampled_from([1.0, 1e3, 1e5]))
def test_answers_that_make_no_sense_do_no_harm(seed: int, axes: int, far: float) -> None:
    """Whatever it is told, it comes to an end, and asks along no path for more than there is."""
    rng = np.random.default_rng(seed)
    paid, aside = np.zeros(0, np.int64), Fraction(0)

    def answer(tree: Tree, name: str, *question: Any) -> Any:
        nonlocal paid, aside
        if name != "count_each":
            aside += question[-1] * PRICE_UNITS  # on every path
        if name == "reserve_check":
            return None
        if name == "roughness":
            return rng.normal(0, far, question[1]).astype(np.int64)
        nodes, grains, one = question
        assert one == Fraction(1, PRICE_UNITS)
        assert (grains > 0).all()
        paid = np.concatenate([paid, np.zeros(tree.size - len(paid), np.int64)])
        paid[nodes] += grains
        return rng.normal(0, far / max(len(nodes), 1), len(nodes)).astype(np.int64)

    tree = Retold(domain_of(axes, 10), answer, Fraction(1)).tree
    for level in range(1, tree.height + 1):
        paid[tree.level(level)] += paid[tree.parent[tree.level(level)]]
    assert (paid[tree.is_leaf] == PRICE_UNITS - aside).all()


# --- kernels ------------------------------------------------------------------------------------------------------


def random_tree(rng: np.random.Generator, axes: int) -> Tree:
    """Two levels of splits, of 0 to 4 parts an axis."""
    tree = CutTree.root(512, axes).split(rng.integers(1, 4, (1, axes)))
    parts = rng.integers(1, 5, (tree.size - 1, axes))
    parts[rng.random(len(parts)) < 0.2] = 0
    return tree.split(parts)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_siblings_are_compared_as_by_the_slow_twin(seed: int, axes: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, axes)
    above, newest = tree.level(tree.height - 1), tree.level(tree.height)
    count = rng.normal(5, 40, newest.stop - newest.start).round()
    noise = rng.choice([0.0, 1.0, 60.0], above.stop - above.start)
    pairs, unlike = np.zeros((2, 4))
    first = tree.first_child[above.start : above.stop + 1] - newest.start
    add_contrasts(first, tree.lo[newest], count, noise, pairs, unlike)
    slow = naive.unlike_siblings(tree, count, noise, 4)
    assert pairs.tolist() == slow[0].tolist()
    np.testing.assert_allclose(unlike, slow[1], atol=1e-9)

"""Path costs: what the noise of a file says that it cost must agree with what the file states."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import veilmap as vm
from veilmap.budgets import Workload
from veilmap.errors import Damaged
from veilmap.method.method import Noise
from veilmap.method.registry import METHODS
from veilmap.releases.cost_check import count_prices
from veilmap.testing import fixed_entropy
from veilmap.vault.mechanisms.gaussian import gaussian_variance
from veilmap.vault.mechanisms.laplace import noise_variance
from veilmap.vault.noise_models import GaussianNoise, LaplaceNoise

RNG = np.random.default_rng(11)
SQUARE = vm.Domain({"x": (0, 4), "y": (10, 12)})
POINTS = np.clip(RNG.normal([1, 11], [0.4, 0.2], (3000, 2)), [0, 10], [4, 12])
GAUSSIAN = {"noise": "discrete-gaussian", "delta": 1e-6}
PEOPLE = {"unit": np.arange(3000) // 3, "max_rows_per_unit": 3}
PRIVATE = [name for name, method in METHODS.items() if method.private]

Make = Callable[[], vm.Release]


def made(epsilon: object = 1, **options: object) -> vm.Release:
    return vm.release(POINTS, SQUARE, epsilon, **options)  # type: ignore[arg-type]


def usual(name: str, noise: str, people: bool) -> Make:
    options: dict[str, object] = (GAUSSIAN if noise == "gaussian" else {}) | (PEOPLE if people else {})
    return lambda: made(method=name, **options)


USUAL = {
    f"{name}, {noise}{', people' if people else ''}": usual(name, noise, people)
    for name, noise, people in product(PRIVATE, ("laplace", "gaussian"), (False, True))
}
OTHERS: dict[str, Make] = {
    "a sample": lambda: made(method="kd-standard", height=3, sample=0.1),
    "a sample of people, gaussian": lambda: made(method="kd-hybrid", height=3, sample=0.1, **GAUSSIAN, **PEOPLE),
    "smooth medians": lambda: made(method=vm.Method(structure=vm.KdTree(2, median="smooth-sensitivity")), delta=1e-6),
    "prices of nodes": lambda: made(method="quad-opt", height=3, budget=Workload([[0, 10, 1, 11]])),
    "prices of nodes, gaussian": lambda: made(
        method="kd-hybrid", height=3, budget=Workload([[0, 10, 1, 11]]), **GAUSSIAN
    ),
    "prices of levels": lambda: made(method="quad-opt", height=3, budget=Workload([[0, 10, 1, 11]], per="level")),
    "levels that are not counted": lambda: made(method="quad-opt", height=3, budget=vm.Levels((0, 1, 0, 2))),
    "a check": lambda: made(method="quad-opt", height=4, options={"check": "1/20"}),
    "leaves only": lambda: made(method="kd-standard", height=3, budget=vm.LeafOnly()),
    "one cut per level": lambda: made(method="kd-standard", height=5, options={"fanout": 2}),
    "whole numbers": lambda: made(method="quad-opt", height=3).integers(),
    "little budget": lambda: made("1/1000000", method="quad-opt", height=3),
    "much budget": lambda: made(100, method="quad-opt", height=2),
    "much budget, gaussian": lambda: made(100, method="quad-opt", height=2, **GAUSSIAN),
    "height 0, much budget, gaussian": lambda: made(100, method="quad-opt", height=0, **GAUSSIAN),
}
CASES = USUAL | OTHERS


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_noise_of_every_method_says_what_its_ledger_says(make: Make, tmp_path: Path) -> None:
    release = make()
    release.save(tmp_path / "r.parquet")
    costs = vm.load(tmp_path / "r.parquet").path_costs()
    assert costs.agrees
    assert costs.counts == pytest.approx(float(costs.charged), rel=1e-6)
    assert costs.total == pytest.approx(float(costs.budget), rel=1e-6)
    assert costs.currency == ("epsilon" if release.privacy.rho is None else "rho")


def test_a_pruned_release_costs_no_more_than_was_paid(tmp_path: Path) -> None:
    made(method="quad-opt", height=5, prune=1e9).save(tmp_path / "r.parquet")
    costs = vm.load(tmp_path / "r.parquet").path_costs()
    assert costs.agrees
    assert 0 < costs.counts < float(costs.charged)


def count_variance(release: vm.Release, price: float) -> float:
    """Of the noise that a count has for a price."""
    rows = release.privacy.rows_per_unit
    if release.method["noise"] == Noise.DISCRETE_GAUSSIAN.value:
        return gaussian_variance(rows**2 / (2 * Fraction(price)))
    return noise_variance(Fraction(price) / rows)


def with_path_of(release: vm.Release, times: float) -> vm.Release:
    """The same with one leaf of the dearest path so much more precise that the path costs so many times the budget."""
    costs, tree = release.path_costs(), release.estimates.tree
    price = costs.levels[-1][2] + times * float(costs.budget) - costs.total
    variance = release.estimates.noise_variance.copy()
    node = int(np.flatnonzero((variance == costs.levels[-1][1]) & tree.is_leaf & np.isfinite(variance))[0])
    variance[node] = count_variance(release, price)
    return replace(release, estimates=replace(release.estimates, noise_variance=variance))


@pytest.mark.parametrize("make", USUAL.values(), ids=USUAL)
def test_one_count_that_costs_a_hundredth_too_much_is_refused(make: Make, tmp_path: Path) -> None:
    release = make()
    with_path_of(release, 1.01).save(tmp_path / "more.parquet")
    with pytest.raises(Damaged, match=r"is less private than it states: a path costs (epsilon|rho) \d.* original\.$"):
        vm.load(tmp_path / "more.parquet")
    with_path_of(release, 0.99).save(tmp_path / "less.parquet")
    assert vm.load(tmp_path / "less.parquet").path_costs().agrees


@pytest.mark.parametrize("where", ["everywhere", "at one leaf"])
@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_private_file_with_counts_without_noise_is_refused(
    noise: str, zero: float, where: str, tmp_path: Path
) -> None:
    release = usual("quad-opt", noise, False)()
    variance = release.estimates.noise_variance.copy()
    variance[slice(None) if where == "everywhere" else -1] = zero
    exact = replace(release, estimates=replace(release.estimates, noise_variance=variance))
    exact.save(tmp_path / "r.parquet")
    with pytest.raises(Damaged, match=r"is less private than it states: .* has counts without noise"):
        vm.load(tmp_path / "r.parquet")
    replace(exact, privacy=replace(exact.privacy, private=False)).save(tmp_path / "r.parquet")
    assert not vm.load(tmp_path / "r.parquet").privacy.private  # what says so itself is read


@pytest.mark.parametrize("variance", [0.0, 0.1])
@pytest.mark.parametrize("name", ["quad-opt", "kd-hybrid", "hilbert-r"])
def test_a_count_that_was_not_paid_for_is_refused_before_columns_are_read(
    name: str, variance: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = made(method=name, height=3)
    noise = release.estimates.noise_variance.copy()
    noise[-1] = variance
    replace(release, estimates=replace(release.estimates, noise_variance=noise)).save(tmp_path / "r.parquet")
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: pytest.fail("It is read."))
    monkeypatch.setattr("veilmap.releases.release_file.ROWS_PER_BATCH", 10)
    with pytest.raises(Damaged, match=r"is less private than it states: a path (has|costs)"):
        vm.load(tmp_path / "r.parquet")


def uncounted(release: vm.Release, which: object = slice(None)) -> vm.Release:
    """The same with exact estimates of nodes that nobody counted with noise."""
    variance = release.estimates.noise_variance.copy()
    variance[which] = np.inf
    exact = replace(
        release.estimates, noise_variance=variance, subtree_variance=np.zeros_like(release.estimates.subtree_variance)
    )
    return replace(release, estimates=exact)


@pytest.mark.parametrize("name", ["quad-opt", "kd-hybrid", "hilbert-r"])
@pytest.mark.parametrize("where", ["everywhere", "one path", "one leaf"])
def test_a_private_file_with_estimates_that_nothing_was_counted_for_is_refused(
    name: str, where: str, tmp_path: Path
) -> None:
    release = made(method=name, height=3)
    node, path = release.estimates.tree.size - 1, []
    while node >= 0:
        path.append(node)
        node = int(release.estimates.tree.parent[node])
    forged = uncounted(release, {"everywhere": slice(None), "one path": path, "one leaf": path[0]}[where])
    forged.save(tmp_path / "r.parquet")
    assert not forged.path_costs().agrees
    with pytest.raises(Damaged, match="is less private than it states: a path has counts without noise"):
        vm.load(tmp_path / "r.parquet")
    replace(forged, privacy=replace(release.privacy, private=False)).save(tmp_path / "r.parquet")
    assert not vm.load(tmp_path / "r.parquet").privacy.private


@pytest.mark.parametrize("prune", [None, 20, 1e9])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    "budget",
    [vm.LeafOnly(), vm.Levels((0, 0, 0, 1)), vm.Levels((0, 1, 0, 2)), Workload([[3.9, 11.9, 4, 12]])],
    ids=lambda budget: type(budget).__name__,
)
@pytest.mark.parametrize("name", ["quad-opt", "kd-standard"])
def test_releases_that_count_some_levels_only_are_read(
    name: str, budget: object, noise: str, prune: float | None, tmp_path: Path
) -> None:
    options = GAUSSIAN if noise == "gaussian" else {}
    release = made(method=name, height=3, budget=budget, prune=prune, **options)
    release.save(tmp_path / "r.parquet")
    costs = vm.load(tmp_path / "r.parquet").path_costs()
    assert costs.agrees
    assert costs.levels
    if prune == 1e9 and not np.isfinite(release.estimates.noise_variance[0]):  # one node, by counts that were dropped
        precise = np.array([count_variance(release, 1.01 * float(costs.charged))])
        forged = replace(release.estimates, subtree_variance=precise)
        replace(release, estimates=forged).save(tmp_path / "r.parquet")
        with pytest.raises(Damaged, match=r"a path costs .* according to the noise of its counts"):
            vm.load(tmp_path / "r.parquet")


def test_a_private_file_with_leaves_of_which_nothing_is_known_is_refused(tmp_path: Path) -> None:
    release = uncounted(made(method="quad-opt", height=2))
    unknown = np.full_like(release.estimates.subtree_variance, np.inf)
    assert not replace(release, estimates=replace(release.estimates, subtree_variance=unknown)).path_costs().agrees


def test_what_paid_for_other_things_does_not_pay_for_counts(tmp_path: Path) -> None:
    """Within epsilon in all, but what the ledger calls medians has bought noise of counts."""
    release = made(method="kd-standard", height=2)
    charges = tuple(
        replace(c, what="medians of level 9") if c.what == "noisy counts of level 0" else c
        for c in release.privacy.ledger
    )
    replace(release, privacy=replace(release.privacy, ledger=charges)).save(tmp_path / "r.parquet")
    with pytest.raises(Damaged, match="was charged"):
        vm.load(tmp_path / "r.parquet")


RHO = Fraction(1, 10)


@pytest.mark.parametrize(
    "change",
    [
        {"rho": RHO},  # of Laplace noise
        {"unit": "one household"},
        {"ledger": ()},
        {"neighbours": "add or remove nothing"},
        {"unit": "one household (0 rows at most)"},
        {"unit": "one row ( rows at most)"},
    ],
    ids=str,
)
def test_guarantees_that_nobody_gives_are_refused(change: dict[str, object], tmp_path: Path) -> None:
    release = made(method="quad-opt", height=1)
    replace(release, privacy=replace(release.privacy, **change)).save(tmp_path / "r.parquet")
    with pytest.raises(Damaged, match=r"The header of .* is not valid\. Ask for the file again"):
        vm.load(tmp_path / "r.parquet")


def test_rho_buys_no_better_guarantee_than_it_can(tmp_path: Path) -> None:
    release = made(method="quad-opt", height=1, **GAUSSIAN)
    for change in ({"delta": Fraction(1, 10**7)}, {"epsilon": Fraction(99, 100)}, {"rho": None}):
        replace(release, privacy=replace(release.privacy, **change)).save(tmp_path / "r.parquet")  # type: ignore[arg-type]
        with pytest.raises(Damaged):
            vm.load(tmp_path / "r.parquet")
    worse = replace(release.privacy, delta=Fraction(1, 10**5), epsilon=Fraction(101, 100))
    replace(release, privacy=worse).save(tmp_path / "r.parquet")
    assert vm.load(tmp_path / "r.parquet").path_costs().agrees


def test_more_delta_than_is_stated_is_refused(tmp_path: Path) -> None:
    release = OTHERS["smooth medians"]()
    replace(release, privacy=replace(release.privacy, delta=Fraction(1, 10**7))).save(tmp_path / "r.parquet")
    with pytest.raises(Damaged, match=r"The header of .* is not valid\. Ask for the file again"):
        vm.load(tmp_path / "r.parquet")


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_prices_follow_from_variances(rows: int) -> None:
    """A twin: what the vault writes for a price, read back."""
    parts = [Fraction(k, 10**6) for k in np.geomspace(1, 10**8, 400).astype(int).tolist()]
    for kind, price in ((Noise.DISCRETE_LAPLACE, LaplaceNoise(rows)), (Noise.DISCRETE_GAUSSIAN, GaussianNoise(rows))):
        variance = np.array([price.variance(part) for part in parts])
        np.testing.assert_allclose(count_prices(variance, kind, rows), np.array(parts, float), rtol=2e-7)
        assert count_prices(np.array([np.inf, 0.0]), kind, rows).tolist() == [0, np.inf]
        assert count_prices(np.array([5e-324]), kind, rows)[0] > 300 * rows


# --- the command line -------------------------------------------------------------------------------------------


@pytest.fixture
def run(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return run


def test_info_check_shows_the_dearest_path_and_a_verdict(run) -> None:  # type: ignore[no-untyped-def]
    made(method="kd-standard", height=2, **PEOPLE).save("r.parquet")
    status, out, err = run("info", "r.parquet", "--check")
    assert (status, err) == (0, "")
    steps = [line.split("  ")[1] for line in out.splitlines() if line.startswith("  ") and line.strip()]
    assert steps[1:4] == ["count on level 0", "count on level 2", "count on level 4"]
    assert steps[-2:] == ["sum", "stated epsilon"]
    assert "medians of level 3 (exponential)" in out
    assert "The noise agrees with the guarantee" in out
    assert "epsilon 1, for one unit (3 rows at most)" in out


def test_info_check_is_there_for_programs(run) -> None:  # type: ignore[no-untyped-def]
    made(method="quad-opt", height=2, **GAUSSIAN).save("r.parquet")
    status, out, _ = run("info", "r.parquet", "--check", "--format", "json")
    found = json.loads(out)
    assert (status, found["path"]["agrees"], found["path"]["currency"]) == (0, True, "rho")
    assert found["path"]["sum"] == pytest.approx(found["rho"], rel=1e-6)
    assert [count["level"] for count in found["path"]["counts"]] == [0, 1, 2]
    status, out, _ = run("info", "r.parquet", "--check", "--format", "csv")
    assert (status, out.splitlines()[0], len(out.splitlines())) == (0, "step,noise_variance,price", 6)


def test_info_check_says_of_what_is_not_private_that_it_is_not(run) -> None:  # type: ignore[no-untyped-def]
    with fixed_entropy(1):
        made(method="quad-opt", height=2).save("r.parquet")
    for words in ((), ("--format", "json"), ("--format", "csv")):
        status, out, err = run("info", "r.parquet", "--check", *words)
        assert status == 0
        assert "not private" in (out + err).lower()


def test_info_check_does_not_agree_with_a_file_in_which_nothing_was_counted(run) -> None:  # type: ignore[no-untyped-def]
    uncounted(made(method="quad-opt", height=2)).save("r.parquet")
    status, out, err = run("info", "r.parquet", "--check")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "a path has counts without noise" in err


def test_info_refuses_a_file_that_costs_more_than_it_states(run) -> None:  # type: ignore[no-untyped-def]
    with_path_of(made(method="quad-opt", height=2), 1.01).save("r.parquet")
    for words in (("--check",), ()):
        status, out, err = run("info", "r.parquet", *words)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert "a path costs epsilon 1.01 according to the noise of its counts, but 1 was charged" in err


def test_leaves_without_cells_cost_nothing(tmp_path):
    """Noisy means cut at borders, and pruning drops the counts below: everyone knows that such leaves are empty."""
    for _ in range(20):
        made = vm.release(np.tile([0.0, 10.0], (500, 1)), SQUARE, 1, "kd-noisymean", prune=30.0)
        made.save(tmp_path / "r.parquet")
        assert vm.load(tmp_path / "r.parquet").privacy.private

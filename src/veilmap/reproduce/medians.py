"""Figure 4: private medians by depth, how good they are and what time they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

import veilmap as vm
from veilmap.arrays import Flags, Floats, Ints
from veilmap.budgets import Budget
from veilmap.kernels.grid_cuts import find_median_cuts, summed_area
from veilmap.reproduce.figures import drawing, pictures
from veilmap.reproduce.study import Claim, Experiment, Row, Setting, Table, Task
from veilmap.structures import Gate, Structure
from veilmap.testing import fixed_entropy

DEPTHS = 10
DOMAIN = vm.Domain({"value": (0, 2**26)})
GRID = 2**16  # cells of length 2^10
EPSILON, DELTA = Fraction(1, 100), Fraction(1, 10**4)  # of each level; the latter for smooth sensitivity alone
RATE = Fraction(1, 100)  # of samples
TRIES = 3  # of a median on its own: the fastest counts


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to find medians, and how it is drawn."""

    name: str
    mechanism: str  # in the library; "grid" for cells
    rate: Fraction | None
    epsilon: Fraction  # of a level, or of the grid that serves all levels
    says: str
    colour: str
    marker: str
    line: str = "-"

    @property
    def delta(self) -> Fraction | None:
        return DELTA if self.mechanism == "smooth-sensitivity" else None


KINDS = {
    kind.name: kind
    for kind in (
        Kind("SS", "smooth-sensitivity", None, EPSILON, "smooth sensitivity", "#D55E00", "s"),
        Kind("SSs", "smooth-sensitivity", RATE, EPSILON, "smooth sensitivity on a 1 % sample", "#E69F00", "D", "--"),
        Kind("NM", "noisy-mean", None, EPSILON, "noisy mean", "#CC79A7", "v"),
        # A grid serves all levels. For what ten levels cost the others it has ε = 0.1; the paper may have meant 0.01.
        Kind("cell", "grid", None, DEPTHS * EPSILON, "cells of length 2^10, ε = 0.1 for all levels", "#009E73", "^"),
        Kind("cell/10", "grid", None, EPSILON, "the same, ε = 0.01 for all levels", "#000000", "x", ":"),
        Kind("EMs", "exponential", RATE, EPSILON, "exponential mechanism on a 1 % sample", "#56B4E9", "P", "--"),
        Kind("EM", "exponential", None, EPSILON, "exponential mechanism", "#0072B2", "o"),
    )
}


class NextLevel(Structure):
    """One more level of a binary tree: cuts that are public already, and then private medians of the newest boxes.

    Each level is a release of its own, since a release has one sample. That of a whole kd-tree is reckoned by what
    all of its levels spend: of ε = 0.1 a sample of 1 % makes 2.44, and ten levels have 0.24 each. A sample a level
    makes 0.70 of 0.01, and that is what the paper measures ("about 50 times").
    """

    height: ClassVar[None] = None
    leaves_only: ClassVar[bool] = True

    def __init__(self, kind: Kind, cuts: Sequence[Ints]) -> None:
        self._median, self._rate, self._cuts = kind.mechanism, kind.rate, cuts
        self.found = np.zeros(0, np.int64)
        self.once = self.level = 0.0

    @property
    def median_mechanism(self) -> str:
        return self._median

    def nodes(self, dimensions: int) -> int | None:
        return None

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        begun = perf_counter()
        gate.split(np.ones((1, 1), np.int64))  # changes no box, but has the rows read and sorted now
        self.once = perf_counter() - begun
        for at in self._cuts:
            gate.cut(0, at, None)
        begun = perf_counter()
        part, delta = epsilon / 2, gate.delta
        if self._rate is not None:
            part, delta = gate.sample(self._rate, part, delta, self._median), delta / self._rate
        self.found = gate.medians(0, part, delta, self._median)
        self.level = perf_counter() - begun
        gate.count_leaves(epsilon / 2)  # nobody looks at these


def grown(points: Floats, kind: Kind, depths: int) -> tuple[list[Ints], float, list[float]]:
    """The cuts of a tree, level by level; the time of what is done once, and of each level."""
    return _by_grid(points, kind, depths) if kind.mechanism == "grid" else _by_medians(points, kind, depths)


def _by_medians(points: Floats, kind: Kind, depths: int) -> tuple[list[Ints], float, list[float]]:
    cuts: list[Ints] = []
    once, times = np.inf, list[float]()
    for _ in range(depths):
        level = NextLevel(kind, cuts)
        method = vm.Method(structure=level, budget=vm.LeafOnly(), estimate=vm.Estimate.NOISY_COUNTS)
        vm.release(points[:, None], DOMAIN, 2 * kind.epsilon, method, delta=kind.delta)
        cuts, once, times = [*cuts, level.found], min(once, level.once), [*times, level.level]
    return cuts, once, times


def _by_grid(points: Floats, kind: Kind, depths: int) -> tuple[list[Ints], float, list[float]]:
    """Medians read off the noisy counts of one grid, by the rule of kd-cell.

    A ``CellTree`` would leave boxes whole that look even, and of uniform points it would cut hardly any.
    """
    begun = perf_counter()
    method = vm.Method(structure=vm.UniformGrid(GRID), budget=vm.Levels([0, 1]), estimate=vm.Estimate.NOISY_COUNTS)
    release = vm.release(points[:, None], DOMAIN, kind.epsilon, method)
    table = summed_area(release.estimates.estimate[release.estimates.tree.level(1)])
    once = perf_counter() - begun
    cuts: list[Ints] = []
    times, borders = [], np.array([0, GRID])
    for _ in range(depths):
        begun = perf_counter()
        at = np.empty(len(borders) - 1, np.int64)
        find_median_cuts(table, GRID, borders[:-1, None].copy(), borders[1:, None].copy(), 0, 1.0, -np.inf, at)
        at = np.where(at < 0, borders[1:], at)  # a box of one cell cannot be cut: all of it stays on the left
        times.append(perf_counter() - begun)
        cuts.append(at * (DOMAIN.side // GRID))
        borders = with_cuts(borders, at)
    return cuts, once, times


def with_cuts(borders: Ints, cut: Ints) -> Ints:
    """The borders of the next level's boxes."""
    return np.append(np.stack([borders[:-1], cut], axis=1).ravel(), borders[-1])


def rank_errors(points: Floats, borders: Ints, cut: Ints) -> Floats:
    """|rank of the cut − n/2| / (n/2) in each box that holds any of the sorted points: 1 if it leaves all on one side.

    The paper says "normalized", and 100 % for a median outside the data: that is n/2.
    """
    below = np.searchsorted(points, DOMAIN.edges(borders, 0))
    n, rank = np.diff(below), np.searchsorted(points, DOMAIN.edges(cut, 0)) - below[:-1]
    errors: Floats = (np.abs(2 * rank - n) / np.maximum(n, 1))[n > 0]
    return errors


def run(kind: Kind, seed: int, repeat: int, points: int) -> list[Row]:
    """One tree: a row a depth."""
    values: Floats = np.random.default_rng([seed, repeat]).uniform(0, 2**26, points)
    grown(values, kind, 1)  # what is about to be timed is compiled, and has its memory
    with fixed_entropy(1000 * seed + 10 * repeat + list(KINDS).index(kind.name)):
        cuts, once, times = grown(values, kind, DEPTHS)
    in_order, borders, rows = np.sort(values), np.array([0, DOMAIN.side]), list[Row]()
    for depth, cut in enumerate(cuts):
        errors = rank_errors(in_order, borders, cut)
        rows.append(
            {
                "mechanism": kind.name,
                "repeat": repeat,
                "depth": depth,
                "points": points >> depth,  # of a node, if all cuts were medians
                "nodes": len(errors),  # those with points: of an empty one no median is wrong
                "error": float(errors.mean()),
                "time_once": once,
                "time_level": times[depth],
                "time_alone": _alone(values[: points >> depth], kind),
            }
        )
        borders = with_cuts(borders, cut)
    return rows


def _alone(values: Floats, kind: Kind) -> float:
    """The time of one median of values in no order: reading, sampling and sorting them, and the call itself."""
    times = []
    for _ in range(TRIES):
        begun = perf_counter()
        if kind.mechanism == "grid":
            grown(values, kind, 1)
        else:
            lo, hi = DOMAIN.axes[0].lo, DOMAIN.axes[0].hi
            vm.private_median(values, lo, hi, kind.epsilon, kind.mechanism, delta=kind.delta, sample=kind.rate)
        times.append(perf_counter() - begun)
    return min(times)


def experiment(setting: Setting) -> Experiment:
    points = 2**17 if setting.quick else 2**20
    tasks = [
        Task(f"{kind.name} {repeat}", partial(run, kind, setting.seed, repeat, points), cost=points / 2**20)
        for repeat in range(setting.repeats)
        for kind in KINDS.values()
    ]
    return Experiment("fig4", "Figure 4: private medians by depth, quality and time", tasks, tables, draw, claims)


def of(rows: list[Row], name: str, column: str) -> Floats:
    """One column of one mechanism: a row a repeat, a column a depth."""
    found = {(int(r["repeat"]), int(r["depth"])): float(r[column]) for r in rows if r["mechanism"] == name}
    repeats, depths = (sorted({key[k] for key in found}) for k in (0, 1))
    return np.array([[found[repeat, depth] for depth in depths] for repeat in repeats])


def tables(rows: list[Row]) -> list[Table]:
    error = {name: 100 * of(rows, name, "error") for name in KINDS}
    level, alone = ({name: 1000 * of(rows, name, f"time_{what}") for name in KINDS} for what in ("level", "alone"))
    once = {name: 1000 * of(rows, name, "time_once")[:, :1] for name in KINDS}
    depths = range(error["EM"].shape[1])
    by_depth = [str(depth) for depth in depths]
    return [
        Table("Mechanisms", ["name", "what it is"], [[kind.name, kind.says] for kind in KINDS.values()]),
        _table("Rank error of private medians, % of half the points of a node", "depth", by_depth, error),
        _table("Nodes that hold points", "depth", by_depth, {name: of(rows, name, "nodes") for name in KINDS}),
        _table(
            "Time to find all medians of a depth, ms (once: reading and sorting the points, or counting the grid)",
            "depth",
            ["once", *by_depth],
            {name: np.hstack([once[name], level[name]]) for name in KINDS},
        ),
        _table(
            "Time of one median on its own, ms",
            "points",
            [str(int(n)) for n in of(rows, "EM", "points")[0]],
            alone,
        ),
    ]


def _table(title: str, first: str, labels: list[str], columns: dict[str, Floats]) -> Table:
    body = [[label, *(_spread(column[:, k]) for column in columns.values())] for k, label in enumerate(labels)]
    return Table(f"{title}: mean (lowest–highest of the repeats)", [first, *columns], body)


def _spread(values: Floats) -> str:
    if values.min() == values.max():
        return f"{values[0]:.3g}"
    return f"{values.mean():.3g} ({values.min():.3g}–{values.max():.3g})"


def claims(rows: list[Row]) -> list[Claim]:
    """What the paper says of figure 4. Of two mechanisms one is clearly better if all its repeats are."""
    error = {name: 100 * of(rows, name, "error") for name in KINDS}
    whole = {name: (of(rows, name, "time_once")[:, 0] + of(rows, name, "time_level").sum(1)).mean() for name in KINDS}
    return [
        _best(error),
        _nearly_true(error["EM"], int(of(rows, "EM", "points")[0, 0])),
        _sampling_helps(error, of(rows, "SS", "nodes").mean(0)),
        _sampling_costs(error),
        _sampling_is_fast(rows),
        _mean_is_poor(error),
        _cells(error, whole),
    ]


def _best(error: dict[str, Floats]) -> Claim:
    exact = error["EM"]
    better = {
        name: [d for d in range(exact.shape[1]) if other[:, d].max() < exact[:, d].min()]
        for name, other in error.items()
        if name != "EM"
    }
    better = {name: where for name, where in better.items() if where}
    last = f"at depth {exact.shape[1] - 1} " + ", ".join(f"{n} {e[:, -1].mean():.3g} %" for n, e in error.items())
    verdict = "seen" if not better else "different" if set(better) == {"cell"} else "not seen"
    because = f"No other is clearly better at any depth; {last}."
    if better:
        where = "; ".join(f"{name} is clearly better at depth {_listed(depths)}" for name, depths in better.items())
        because = f"{where}; {last}."
    if verdict == "different":
        because += " One grid has the budget of all ten levels at once; with that of one level (cell/10) it is not."
    return Claim("EM is the most accurate at every depth.", verdict, because)


def _listed(depths: Sequence[int]) -> str:
    return ", ".join(map(str, depths))


def _nearly_true(exact: Floats, points: int) -> Claim:
    root = exact[:, 0]
    because = f"At depth 0, with {points:,} points, its rank is wrong by {_spread(root)} % of half the points."
    return Claim("EM finds nearly true medians of much data.", "seen" if root.max() < 1 else "not seen", because)


def _sampling_helps(error: dict[str, Floats], nodes: Floats) -> Claim:
    all_rows, sample = error["SS"].mean(0), error["SSs"].mean(0)
    worse = np.flatnonzero(sample >= all_rows).tolist()
    because = f"Error of SS and SSs: {_pairs(all_rows, sample)}. The noise of SS is about as wide as the domain"
    because += f", and at the last depth only {nodes[-1]:.3g} of its nodes hold points."
    if worse:
        because += f" SSs is not better at depth {_listed(worse)}."
    return Claim("Sampling improves SS.", _verdict(sample < all_rows), because)


LITTLE = 2  # times the error


def _sampling_costs(error: dict[str, Floats]) -> Claim:
    all_rows, sample = error["EM"].mean(0), error["EMs"].mean(0)
    ratio = sample / np.maximum(all_rows, 1e-12)
    because = f"Error of EM and EMs: {_pairs(all_rows, sample)}: {ratio.min():.2g} to {ratio.max():.2g} times as much."
    if ratio.max() >= LITTLE:
        because += " In a sample of 1 % ranks are a hundred times smaller, and the budget is some fifty times larger."
    verdict = "seen" if ratio.max() < LITTLE else "different" if ratio.min() < LITTLE else "not seen"
    return Claim("Sampling costs EM little accuracy.", verdict, because)


def _verdict(holds: Flags) -> str:
    """Of something said of every depth."""
    return "seen" if holds.all() else "different" if 2 * holds.sum() > len(holds) else "not seen"


def _pairs(a: Floats, b: Floats) -> str:
    return ", ".join(f"{a[d]:.3g} and {b[d]:.3g} % at depth {d}" for d in (0, len(a) // 2, len(a) - 1))


def _sampling_is_fast(rows: list[Row]) -> Claim:
    level, alone = ({n: of(rows, n, f"time_{what}").mean(0) for n in KINDS} for what in ("level", "alone"))
    pairs = (("SS", "SSs"), ("EM", "EMs"))
    times = [float(np.exp(np.log(level[a] / level[b]).mean())) for a, b in pairs]
    single = [float(alone[a][0] / alone[b][0]) for a, b in pairs]
    verdict = "seen" if min(times) >= 5 else "different" if min(*times, *single) > 1 else "not seen"
    because = (
        f"Levels of a tree are found {times[0]:.2g} times as fast by SSs as by SS, and {times[1]:.2g} times by EMs; a "
        f"single median of all points {single[0]:.2g} and {single[1]:.2g} times."
    )
    if verdict != "seen":
        because += (
            " The points are sorted once for all levels, and what is left of EM takes hardly longer than to draw for "
            "each point whether it is in the sample."
        )
    return Claim("Sampling makes medians about ten times faster.", verdict, because)


def _mean_is_poor(error: dict[str, Floats]) -> Claim:
    mean, exact = error["NM"][:, -1], error["EM"][:, -1]
    verdict = "not seen" if mean.mean() <= exact.mean() else "different"
    verdict = "seen" if mean.min() > max(exact.max(), 10) else verdict
    because = f"At the last depth its error is {_spread(mean)} %, that of EM {_spread(exact)} %."
    return Claim("NM is poor for little data.", verdict, because)


def _cells(error: dict[str, Floats], whole: dict[str, float]) -> Claim:
    cell, exact = error["cell"].mean(0), error["EM"].mean(0)
    large, slow = cell[0] > exact[0], whole["cell"] > max(whole[name] for name in ("EM", "NM"))
    because = (
        f"Error of cell and EM: {_pairs(cell, exact)}. All levels take {1000 * whole['cell']:.3g} ms by cell, "
        f"{1000 * whole['EM']:.3g} ms by EM and {1000 * whole['NM']:.3g} ms by NM."
    )
    if not slow:
        because += " A grid is counted without sorting, and one table of running sums gives every median."
    verdict = "seen" if large and slow else "different" if large or slow else "not seen"
    return Claim("Cells have larger errors for much data, and are slower.", verdict, because)


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """Two panels, like figure 4: means, and from the lowest to the highest of the repeats."""
    with drawing(folder, "fig4", 2, height=3.1) as (quality, time):
        for place, kind in enumerate(KINDS.values()):
            _line(quality, kind, 100 * of(rows, kind.name, "error"))
            if kind.name != "cell/10":  # whose time is that of cell
                _line(time, kind, 1000 * of(rows, kind.name, "time_level"))
                once = 1000 * of(rows, kind.name, "time_once")[:, 0].mean()
                time.plot([-1.5 + 0.12 * place], [once], color=kind.colour, marker=kind.marker)
        depths = range(of(rows, "EM", "error").shape[1])
        for axes, title, label in (
            (quality, "(a) quality", "rank error, %"),
            (time, "(b) time", "all medians of a depth, ms"),
        ):
            axes.set(yscale="log", title=title, xlabel="depth", ylabel=label, xticks=depths)
            axes.yaxis.set_major_formatter("{x:g}")
        time.set_xticks([-1.2, *depths], ["once", *map(str, depths)])
        lines, names = quality.get_legend_handles_labels()
        quality.figure.legend(lines, names, loc="outside lower center", ncols=len(names))
    return pictures(folder, "fig4")


def _line(axes: Any, kind: Kind, values: Floats) -> None:
    depths = range(values.shape[1])
    axes.plot(depths, values.mean(0), label=kind.name, color=kind.colour, marker=kind.marker, ls=kind.line)
    axes.fill_between(depths, values.min(0), values.max(0), color=kind.colour, alpha=0.15, lw=0)

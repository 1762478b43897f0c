"""Figure 4: the quality and running time of private medians, by depth."""

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
from veilmap.reproduce.study import PARTLY_REPRODUCED, REPRODUCED, Claim, Experiment, Row, Setting, Table, Task, judge
from veilmap.structures import Gate, Structure
from veilmap.testing import fixed_entropy

DEPTH_COUNT = 10
VALUE_DOMAIN = vm.Domain({"value": (0, 2**26)})
GRID_CELLS = 2**16  # cells of length 2^10
LEVEL_EPSILON = Fraction(1, 100)
LEVEL_DELTA = Fraction(1, 10**4)  # for smooth sensitivity only
SAMPLE_RATE = Fraction(1, 100)
TIMING_RUNS = 3  # the fastest run of a single median is reported
SMALL_ERROR_RATIO = 2  # a larger error within this factor counts as a small loss


@dataclass(frozen=True, slots=True)
class MedianKind:
    """A mechanism for private medians, and its style in the figure."""

    name: str
    mechanism: str  # its name in the library; "grid" for cells
    rate: Fraction | None  # sampling rate
    epsilon: Fraction  # per level, or of the grid that is used for all levels
    description: str
    colour: str
    marker: str
    line: str = "-"

    @property
    def delta(self) -> Fraction | None:
        return LEVEL_DELTA if self.mechanism == "smooth-sensitivity" else None


MEDIAN_KINDS = {
    kind.name: kind
    for kind in (
        MedianKind("SS", "smooth-sensitivity", None, LEVEL_EPSILON, "smooth sensitivity", "#D55E00", "s"),
        MedianKind(
            "SSs",
            "smooth-sensitivity",
            SAMPLE_RATE,
            LEVEL_EPSILON,
            "smooth sensitivity on a 1 % sample",
            "#E69F00",
            "D",
            "--",
        ),
        MedianKind("NM", "noisy-mean", None, LEVEL_EPSILON, "noisy mean", "#CC79A7", "v"),
        # One grid is used for all levels. It gets ε = 0.1, the cost of ten levels of the other mechanisms; the paper
        # may have meant 0.01.
        MedianKind(
            "cell",
            "grid",
            None,
            DEPTH_COUNT * LEVEL_EPSILON,
            "cells of length 2^10, ε = 0.1 for all levels",
            "#009E73",
            "^",
        ),
        MedianKind("cell/10", "grid", None, LEVEL_EPSILON, "the same, ε = 0.01 for all levels", "#000000", "x", ":"),
        MedianKind(
            "EMs",
            "exponential",
            SAMPLE_RATE,
            LEVEL_EPSILON,
            "exponential mechanism on a 1 % sample",
            "#56B4E9",
            "P",
            "--",
        ),
        MedianKind("EM", "exponential", None, LEVEL_EPSILON, "exponential mechanism", "#0072B2", "o"),
    )
}


class NextLevel(Structure):
    """A structure that repeats known splits of a binary tree, and then finds private medians of the frontier.

    Each level is a separate release, because a release draws one sample. If one sample served all levels of a kd-tree,
    a 1 % sample would turn ε = 0.1 into 2.44 on the sample, which is 0.24 for each of ten levels. With one sample per
    level, 0.01 becomes 0.70, and that is what the paper measures ("about 50 times").
    """

    height: ClassVar[None] = None
    leaves_only: ClassVar[bool] = True

    def __init__(self, kind: MedianKind, cuts: Sequence[Ints]) -> None:
        self._median, self._rate, self._cuts = kind.mechanism, kind.rate, cuts
        self.medians = np.zeros(0, np.int64)
        self.preparation_seconds = self.level_seconds = 0.0

    @property
    def median_mechanism(self) -> str:
        return self._median

    def nodes(self, dimensions: int) -> int | None:
        return None

    def grow(self, gate: Gate, epsilon: Fraction, budget: Budget) -> None:
        begun = perf_counter()
        gate.split(np.ones((1, 1), np.int64))  # changes no box, but makes the gate read and sort the rows now
        self.preparation_seconds = perf_counter() - begun
        for at in self._cuts:
            gate.cut(0, at, None)
        begun = perf_counter()
        price, delta = epsilon / 2, gate.delta
        if self._rate is not None:
            price, delta = gate.sample(self._rate, price, delta, self._median), delta / self._rate
        self.medians = gate.medians(0, price, delta, self._median)
        self.level_seconds = perf_counter() - begun
        gate.count_leaves(epsilon / 2)  # a release needs counts; these are not used


def grow_tree(points: Floats, kind: MedianKind, depths: int) -> tuple[list[Ints], float, list[float]]:
    """Return the splits of a tree level by level, the seconds of the preparation, and the seconds of each level."""
    return _by_grid(points, kind, depths) if kind.mechanism == "grid" else _by_medians(points, kind, depths)


def _by_medians(points: Floats, kind: MedianKind, depths: int) -> tuple[list[Ints], float, list[float]]:
    cuts: list[Ints] = []
    once, times = np.inf, list[float]()
    for _ in range(depths):
        level = NextLevel(kind, cuts)
        method = vm.Method(structure=level, budget=vm.LeafOnly(), estimate=vm.Estimate.NOISY_COUNTS)
        vm.release(points[:, None], VALUE_DOMAIN, 2 * kind.epsilon, method, delta=kind.delta)
        cuts, once, times = [*cuts, level.medians], min(once, level.preparation_seconds), [*times, level.level_seconds]
    return cuts, once, times


def _by_grid(points: Floats, kind: MedianKind, depths: int) -> tuple[list[Ints], float, list[float]]:
    """Read all medians from the noisy counts of one grid, by the rule of kd-cell.

    A ``CellTree`` cannot be used: it does not split boxes that look uniform, and these points are uniform.
    """
    begun = perf_counter()
    method = vm.Method(
        structure=vm.UniformGrid(GRID_CELLS), budget=vm.Levels([0, 1]), estimate=vm.Estimate.NOISY_COUNTS
    )
    release = vm.release(points[:, None], VALUE_DOMAIN, kind.epsilon, method)
    table = summed_area(release.estimates.estimate[release.estimates.tree.level(1)])
    once = perf_counter() - begun
    cuts: list[Ints] = []
    times, borders = [], np.array([0, GRID_CELLS])
    for _ in range(depths):
        begun = perf_counter()
        at = np.empty(len(borders) - 1, np.int64)
        find_median_cuts(table, GRID_CELLS, borders[:-1, None].copy(), borders[1:, None].copy(), 0, 1.0, -np.inf, at)
        at = np.where(at < 0, borders[1:], at)  # a box of one cell cannot be split: all of it goes to the left
        times.append(perf_counter() - begun)
        cuts.append(at * (VALUE_DOMAIN.side // GRID_CELLS))
        borders = with_cuts(borders, at)
    return cuts, once, times


def with_cuts(borders: Ints, cut: Ints) -> Ints:
    """Return the borders of the next level's boxes."""
    return np.append(np.stack([borders[:-1], cut], axis=1).ravel(), borders[-1])


def rank_errors(points: Floats, borders: Ints, cut: Ints) -> Floats:
    """Return |rank of the split − n/2| / (n/2) for each box that is not empty: 1 if all points are on one side.

    The points must be sorted. The paper says "normalized", and 100 % for a median outside the data, which implies n/2.
    """
    below = np.searchsorted(points, VALUE_DOMAIN.edges(borders, 0))
    n, rank = np.diff(below), np.searchsorted(points, VALUE_DOMAIN.edges(cut, 0)) - below[:-1]
    errors: Floats = (np.abs(2 * rank - n) / np.maximum(n, 1))[n > 0]
    return errors


def run(kind: MedianKind, seed: int, repeat: int, points: int) -> list[Row]:
    """Grow one tree and return one row per depth."""
    values: Floats = np.random.default_rng([seed, repeat]).uniform(0, 2**26, points)
    grow_tree(values, kind, 1)  # compiles the kernels and allocates memory before anything is timed
    with fixed_entropy(1000 * seed + 10 * repeat + list(MEDIAN_KINDS).index(kind.name)):
        cuts, once, times = grow_tree(values, kind, DEPTH_COUNT)
    in_order, borders, rows = np.sort(values), np.array([0, VALUE_DOMAIN.side]), list[Row]()
    for depth, cut in enumerate(cuts):
        errors = rank_errors(in_order, borders, cut)
        rows.append(
            {
                "mechanism": kind.name,
                "repeat": repeat,
                "depth": depth,
                "points": points >> depth,  # per node, if all splits were exact medians
                "nodes": len(errors),  # nodes with points: an empty node has no rank error
                "error": float(errors.mean()),
                "time_once": once,
                "time_level": times[depth],
                "time_alone": _alone(values[: points >> depth], kind),
            }
        )
        borders = with_cuts(borders, cut)
    return rows


def _alone(values: Floats, kind: MedianKind) -> float:
    """Return the seconds for one median of unsorted values, including reading, sampling and sorting them."""
    times = []
    for _ in range(TIMING_RUNS):
        begun = perf_counter()
        if kind.mechanism == "grid":
            grow_tree(values, kind, 1)
        else:
            lo, hi = VALUE_DOMAIN.axes[0].lo, VALUE_DOMAIN.axes[0].hi
            vm.private_median(values, lo, hi, kind.epsilon, kind.mechanism, delta=kind.delta, sample=kind.rate)
        times.append(perf_counter() - begun)
    return min(times)


def experiment(setting: Setting) -> Experiment:
    points = 2**17 if setting.quick else 2**20
    tasks = [
        Task(f"{kind.name} {repeat}", partial(run, kind, setting.seed, repeat, points), cost=points / 2**20)
        for repeat in range(setting.repeats)
        for kind in MEDIAN_KINDS.values()
    ]
    return Experiment("fig4", "Figure 4: private medians by depth, quality and time", tasks, tables, draw, claims)


def by_depth(rows: list[Row], name: str, column: str) -> Floats:
    """Return a column of one mechanism as a matrix: one row per repeat, one column per depth."""
    found = {(int(r["repeat"]), int(r["depth"])): float(r[column]) for r in rows if r["mechanism"] == name}
    repeats, depths = (sorted({key[k] for key in found}) for k in (0, 1))
    return np.array([[found[repeat, depth] for depth in depths] for repeat in repeats])


def tables(rows: list[Row]) -> list[Table]:
    error = {name: 100 * by_depth(rows, name, "error") for name in MEDIAN_KINDS}
    level, alone = (
        {name: 1000 * by_depth(rows, name, f"time_{what}") for name in MEDIAN_KINDS} for what in ("level", "alone")
    )
    once = {name: 1000 * by_depth(rows, name, "time_once")[:, :1] for name in MEDIAN_KINDS}
    depths = range(error["EM"].shape[1])
    labels = [str(depth) for depth in depths]
    return [
        Table("Mechanisms", ["name", "what it is"], [[kind.name, kind.description] for kind in MEDIAN_KINDS.values()]),
        _table("Rank error of private medians, % of half the points of a node", "depth", labels, error),
        _table(
            "Nodes that contain points", "depth", labels, {name: by_depth(rows, name, "nodes") for name in MEDIAN_KINDS}
        ),
        _table(
            "Time to find all medians of a depth, ms (once: reading and sorting the points, or counting the grid)",
            "depth",
            ["once", *labels],
            {name: np.hstack([once[name], level[name]]) for name in MEDIAN_KINDS},
        ),
        _table(
            "Time of a single median, ms",
            "points",
            [str(int(n)) for n in by_depth(rows, "EM", "points")[0]],
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
    """Return the paper's claims on figure 4. A mechanism is clearly better if all of its repeats are better."""
    error = {name: 100 * by_depth(rows, name, "error") for name in MEDIAN_KINDS}
    whole = {
        name: (by_depth(rows, name, "time_once")[:, 0] + by_depth(rows, name, "time_level").sum(1)).mean()
        for name in MEDIAN_KINDS
    }
    return [
        _best(error),
        _nearly_true(error["EM"], int(by_depth(rows, "EM", "points")[0, 0])),
        _sampling_helps(error, by_depth(rows, "SS", "nodes").mean(0)),
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
    verdict = judge(not better, partly=set(better) == {"cell"})
    because = f"No other mechanism is clearly better at any depth; {last}."
    if better:
        where = "; ".join(f"{name} is clearly better at depth {_listed(depths)}" for name, depths in better.items())
        because = f"{where}; {last}."
    if verdict == PARTLY_REPRODUCED:
        because += (
            " The grid of cell has the budget of all ten levels at once. With the budget of one level (cell/10) it is "
            "not better."
        )
    return Claim("EM is the most accurate at every depth.", verdict, because)


def _listed(depths: Sequence[int]) -> str:
    return ", ".join(map(str, depths))


def _nearly_true(exact: Floats, points: int) -> Claim:
    root = exact[:, 0]
    because = f"At depth 0, with {points:,} points, its rank error is {_spread(root)} % of half the points."
    return Claim("EM finds nearly exact medians of large data sets.", judge(root.max() < 1), because)


def _sampling_helps(error: dict[str, Floats], nodes: Floats) -> Claim:
    all_rows, sample = error["SS"].mean(0), error["SSs"].mean(0)
    worse = np.flatnonzero(sample >= all_rows).tolist()
    because = f"Errors of SS and SSs: {_pairs(all_rows, sample)}. The noise of SS is about as wide as the domain"
    because += f", and at the last depth only {nodes[-1]:.3g} of its nodes contain points."
    if worse:
        because += f" SSs is not better at depth {_listed(worse)}."
    return Claim("Sampling improves SS.", _verdict(sample < all_rows), because)


def _sampling_costs(error: dict[str, Floats]) -> Claim:
    all_rows, sample = error["EM"].mean(0), error["EMs"].mean(0)
    ratio = sample / np.maximum(all_rows, 1e-12)
    because = (
        f"Errors of EM and EMs: {_pairs(all_rows, sample)}. EMs has {ratio.min():.2g} to {ratio.max():.2g} times the "
        "error of EM."
    )
    if ratio.max() >= SMALL_ERROR_RATIO:
        because += (
            " In a sample of 1 %, ranks are a hundred times smaller, but the budget is only about fifty times larger."
        )
    verdict = judge(ratio.max() < SMALL_ERROR_RATIO, partly=ratio.min() < SMALL_ERROR_RATIO)
    return Claim("Sampling costs EM little accuracy.", verdict, because)


def _verdict(holds: Flags) -> str:
    """Return the verdict on a claim about every depth."""
    return judge(holds.all(), partly=2 * holds.sum() > len(holds))


def _pairs(a: Floats, b: Floats) -> str:
    return ", ".join(f"{a[d]:.3g} and {b[d]:.3g} % at depth {d}" for d in (0, len(a) // 2, len(a) - 1))


def _sampling_is_fast(rows: list[Row]) -> Claim:
    level, alone = ({n: by_depth(rows, n, f"time_{what}").mean(0) for n in MEDIAN_KINDS} for what in ("level", "alone"))
    pairs = (("SS", "SSs"), ("EM", "EMs"))
    times = [float(np.exp(np.log(level[a] / level[b]).mean())) for a, b in pairs]
    single = [float(alone[a][0] / alone[b][0]) for a, b in pairs]
    verdict = judge(min(times) >= 5, partly=min(*times, *single) > 1)
    because = (
        f"For the levels of a tree, SSs is {times[0]:.2g} times as fast as SS, and EMs {times[1]:.2g} times as fast "
        f"as EM; for a single median of all points, {single[0]:.2g} and {single[1]:.2g} times."
    )
    if verdict != REPRODUCED:
        because += (
            " The points are sorted once for all levels, and the rest of EM takes hardly longer than drawing the "
            "sample."
        )
    return Claim("Sampling makes medians about ten times faster.", verdict, because)


def _mean_is_poor(error: dict[str, Floats]) -> Claim:
    mean, exact = error["NM"][:, -1], error["EM"][:, -1]
    verdict = judge(mean.min() > max(exact.max(), 10), partly=mean.mean() > exact.mean())
    because = f"At the last depth its error is {_spread(mean)} %, that of EM {_spread(exact)} %."
    return Claim("NM is poor for small data sets.", verdict, because)


def _cells(error: dict[str, Floats], whole: dict[str, float]) -> Claim:
    cell, exact = error["cell"].mean(0), error["EM"].mean(0)
    large, slow = cell[0] > exact[0], whole["cell"] > max(whole[name] for name in ("EM", "NM"))
    because = (
        f"Errors of cell and EM: {_pairs(cell, exact)}. All levels take {1000 * whole['cell']:.3g} ms with cell, "
        f"{1000 * whole['EM']:.3g} ms with EM and {1000 * whole['NM']:.3g} ms with NM."
    )
    if not slow:
        because += " A grid is counted without sorting, and all medians are read from one table of cumulative sums."
    verdict = judge(large and slow, partly=large or slow)
    return Claim("Cells have larger errors for large data sets, and are slower.", verdict, because)


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """Draw two panels as in figure 4: means, with bands from the lowest to the highest repeat."""
    with drawing(folder, "fig4", 2, height=3.1) as (quality, time):
        for place, kind in enumerate(MEDIAN_KINDS.values()):
            _line(quality, kind, 100 * by_depth(rows, kind.name, "error"))
            if kind.name != "cell/10":  # it takes the same time as cell
                _line(time, kind, 1000 * by_depth(rows, kind.name, "time_level"))
                once = 1000 * by_depth(rows, kind.name, "time_once")[:, 0].mean()
                time.plot([-1.5 + 0.12 * place], [once], color=kind.colour, marker=kind.marker)
        depths = range(by_depth(rows, "EM", "error").shape[1])
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


def _line(axes: Any, kind: MedianKind, values: Floats) -> None:
    depths = range(values.shape[1])
    axes.plot(depths, values.mean(0), label=kind.name, color=kind.colour, marker=kind.marker, ls=kind.line)
    axes.fill_between(depths, values.min(0), values.max(0), color=kind.colour, alpha=0.15, lw=0)

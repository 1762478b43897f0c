"""Compare all methods of the library on the same points and boxes: errors, build time, bytes, queries per second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

import veilmap as vm
from veilmap.arrays import Floats
from veilmap.method.method import Method
from veilmap.method.registry import METHODS
from veilmap.releases.release import Release
from veilmap.reproduce.accuracy import (
    PAPER_HEIGHTS,
    QUERY_SHAPES,
    STUDY_EPSILONS,
    adapt_methods,
    as_in_the_paper,
    distinct_values,
    errors,
    format_number,
    format_per_cent,
    format_ratio,
    make_release,
    pruned_quadtree,
    quad_height,
    queries,
    release_seconds,
    shape_size,
    values,
)
from veilmap.reproduce.figures import LINE_COLOURS, LINE_MARKERS, drawing, pictures
from veilmap.reproduce.study import Claim, Experiment, Row, Setting, Table, Task, judge, seed_of

TIMED_BOXES = 10_000  # to measure the queries per second
BASELINE_QUADTREES = ("quad-baseline", "quad-geo", "quad-post")  # in the paper for comparison only
REFERENCE_METHOD = "quad-opt"
SETUP_NOTES = (
    "All private methods. Quadtrees have height 10. kd-trees and hilbert-r have height 8, are pruned below 32, as in "
    "the paper, and spend 0.3 of ε on medians. quad-opt-pruned is quad-opt with the same pruning. The other methods "
    "choose their own parameters. flat-grid is a uniform grid as fine as the leaves of the quadtrees."
)


def methods(setting: Setting) -> dict[str, Method]:
    """Return all private methods (the paper's with its parameters), a pruned quadtree, and a grid of its leaf size."""
    known = {name: as_in_the_paper(method) for name, method in METHODS.items() if method.private}
    known["quad-opt-pruned"] = pruned_quadtree()
    grid = Method(name="flat-grid", structure=vm.UniformGrid(2 ** quad_height(setting)), budget=vm.LeafOnly())
    return adapt_methods(setting, known) | {grid.name: grid}


def experiment(setting: Setting) -> Experiment:
    tasks = [
        Task(
            f"{name} epsilon {epsilon}",
            partial(score, setting, {name: method}, [epsilon]),
            cost=0.5 + setting.repeats * release_seconds(setting, None),
        )
        for name, method in methods(setting).items()
        for epsilon in STUDY_EPSILONS
    ]
    return Experiment(
        "rivals",
        "Every method, and a flat grid, on the same points and queries",
        tasks,
        tables,
        draw,
        claims,
        SETUP_NOTES,
    )


def score(setting: Setting, chosen: Mapping[str, Method], epsilons: Sequence[str]) -> list[Row]:
    """Return one row per method, epsilon, shape and repeat. Times are in seconds; bytes are of the first repeat."""
    asked, many, rows = queries(setting), _many_boxes(setting), list[Row]()
    for (name, method), epsilon, repeat in product(chosen.items(), epsilons, range(setting.repeats)):
        begun = perf_counter()
        release = make_release(setting, method, epsilon, "rivals", name, repeat)
        build = perf_counter() - begun
        begun = perf_counter()
        release.count(many)
        spent: Row = {"time_build": build, "time_query": (perf_counter() - begun) / len(many)}
        size: Row = {} if repeat else {"bytes": _bytes(release)}
        known: Row = {"method": name, "epsilon": epsilon, "repeat": repeat}
        found = errors(release, asked)
        rows += [known | {"shape": shape, "error": error} | size | spent for shape, error in found.items()]
    return rows


def _many_boxes(setting: Setting) -> Floats:
    """Return random boxes of all shapes."""
    rng, domain = np.random.default_rng(seed_of(setting.seed, "many boxes")), setting.domain
    sizes = np.array([shape_size(shape, domain) for shape in QUERY_SHAPES])
    size = np.repeat(sizes, (TIMED_BOXES // 10 if setting.quick else TIMED_BOXES) // len(QUERY_SHAPES), axis=0)
    low = rng.uniform(domain.lo, domain.hi - size)
    return np.hstack([low, low + size])


def _bytes(release: Release) -> int:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "release.parquet"
        release.save(path)
        return path.stat().st_size


def tables(rows: list[Row]) -> list[Table]:
    header = ["method", "ε", *QUERY_SHAPES, "build, s", "file, MB", "queries per second"]
    body = []
    for name, epsilon in product(distinct_values(rows, "method"), distinct_values(rows, "epsilon")):
        of = partial(values, rows, method=name, epsilon=epsilon)
        shapes = [format_per_cent(of(shape=shape)) for shape in QUERY_SHAPES]
        build, query = float(np.median(of("time_build"))), float(np.median(of("time_query")))
        size = of("bytes", repeat=0).mean() / 1e6
        body.append([name, str(epsilon), *shapes, f"{build:.2g}", f"{size:.2g}", f"{1 / query:,.0f}"])
    title = (
        "Median relative error by shape, %: mean (lowest–highest of the repeats); median time to build; size of the "
        f"file; speed when {TIMED_BOXES:,} boxes are counted at once (a tenth of them in a quick study)"
    )
    return [Table(title, header, body)]


def means(rows: list[Row]) -> dict[str, Floats]:
    """Return the mean errors of each method: one row per epsilon, one column per shape."""
    return {
        name: np.array(
            [[values(rows, method=name, epsilon=e, shape=s).mean() for s in QUERY_SHAPES] for e in STUDY_EPSILONS]
        )
        for name in distinct_values(rows, "method")
    }


def _typical(found: Floats) -> float:
    return float(np.exp(np.log(found).mean()))


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """Draw errors relative to quad-opt: one panel per epsilon, one line per method, one marker per shape."""
    found = means(rows)
    names = sorted(found, key=lambda name: -_typical(found[name]))
    with drawing(folder, "rivals", len(STUDY_EPSILONS), shared=True, height=1.0 + 0.27 * len(names)) as panels:
        for axes, epsilon in zip(panels, STUDY_EPSILONS, strict=True):
            axes.axvline(1, color="#333333", lw=0.8)
            axes.grid(False, axis="y")
            for line in range(0, len(names), 2):
                axes.axhspan(line - 0.5, line + 0.5, color="#f3f3f3", lw=0, zorder=0)
            for k, shape in enumerate(QUERY_SHAPES):
                base = values(rows, method=REFERENCE_METHOD, epsilon=epsilon, shape=shape).mean()
                ratio = [values(rows, method=name, epsilon=epsilon, shape=shape) / base for name in names]
                mean = np.array([r.mean() for r in ratio])
                reach = [mean - [r.min() for r in ratio], [r.max() for r in ratio] - mean]
                at = np.arange(len(names)) + 0.24 - 0.16 * k
                look = {"color": LINE_COLOURS[k], "marker": LINE_MARKERS[k], "ms": 3.5, "ls": "none"}
                axes.errorbar(mean, at, xerr=reach, elinewidth=0.6, label=shape, **look)
            axes.set(title=f"ε = {epsilon}", xscale="log", xlabel=f"error over that of {REFERENCE_METHOD}")
            axes.set_yticks(range(len(names)), names)
            axes.set_ylim(-0.6, len(names) - 0.4)
            axes.tick_params(axis="y", length=0)
        _same_axes(panels)
        lines, labels = panels[0].get_legend_handles_labels()
        shown = panels[0].figure.legend(lines, labels, loc="outside lower center", ncols=len(labels))
        shown.set_title("query shape, degrees of the paper's box", prop={"size": 7})
    return pictures(folder, "rivals")


def _same_axes(panels: list[Any]) -> None:
    lows, highs = zip(*(axes.get_xlim() for axes in panels), strict=True)
    ticks = [t for t in (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300) if min(lows) <= t <= max(highs)]
    for axes in panels:
        axes.set_xlim(min(lows), max(highs))
        axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
        axes.minorticks_off()


def claims(rows: list[Row]) -> list[Claim]:
    found = means(rows)
    ours = {name: e for name, e in found.items() if name in PAPER_HEIGHTS}
    return [_single_digits(ours), _quadtree_is_best(ours), _later_ones(found)]


def _single_digits(ours: dict[str, Floats]) -> Claim:
    errors = {name: 100 * e for name, e in ours.items() if name not in BASELINE_QUADTREES}
    total, below = sum(e.size for e in errors.values()), sum(int((e < 10).sum()) for e in errors.values())
    verdict = judge(below == total, partly=2 * below > total)
    because = f"{below} of {total} errors of {', '.join(errors)} are below 10 %"
    above = [
        f"{name} has {int((e >= 10).sum())} of {e.size} above, up to {format_number(float(e.max()))} %"
        for name, e in errors.items()
        if (e >= 10).any()
    ]
    return Claim("Relative errors are single-digit percentages.", verdict, "; ".join([because, *above]) + ".")


def _quadtree_is_best(ours: dict[str, Floats]) -> Claim:
    typical = {name: 100 * _typical(e) for name, e in ours.items()}
    order = sorted(typical, key=lambda name: typical[name])
    verdict = judge(order[0] == REFERENCE_METHOD, partly=REFERENCE_METHOD in order[:2])
    because = "Geometric means over all shapes and ε: " + ", ".join(
        f"{name} {format_number(typical[name])} %" for name in order
    )
    if order[0] == "hilbert-r":
        because += ". For hilbert-r, see figure 6"
    return Claim("quad-opt is the best overall of the paper's methods.", verdict, because + ".")


def _later_ones(found: dict[str, Floats]) -> Claim:
    later = [name for name in found if name not in PAPER_HEIGHTS]
    paper = np.min([e for name, e in found.items() if name in PAPER_HEIGHTS], axis=0)
    ratio = {name: found[name] / paper for name in later}
    typical = {name: _typical(r) for name, r in ratio.items()}
    best = min(typical, key=lambda name: typical[name])
    won = int((np.min(list(ratio.values()), axis=0) < 1).sum())
    verdict = judge(won == 0, partly=typical[best] >= 1)
    because = (
        f"In {won} of {paper.size} settings one of {', '.join(later)} has the lowest error; "
        + "; ".join(_first(found, k) for k in range(len(STUDY_EPSILONS)))
        + ". Ratio to the error of the paper's best method in each setting: "
        + ", ".join(f"{name} {format_ratio(typical[name])}" for name in sorted(typical, key=lambda name: typical[name]))
    )
    text = "(Not a claim of the paper:) no other method is more accurate than the best of the paper's methods."
    return Claim(text, verdict, because + ".")


def _first(found: dict[str, Floats], k: int) -> str:
    """Return which method is the best on which shapes at one epsilon."""
    best = [min(found, key=lambda name: found[name][k, s]) for s in range(len(QUERY_SHAPES))]
    words = (
        f"{name} on "
        + ", ".join(
            f"{s} ({format_number(100 * float(found[name][k, i]))} %)"
            for i, s in enumerate(QUERY_SHAPES)
            if best[i] == name
        )
        for name in dict.fromkeys(best)
    )
    return f"lowest at ε {STUDY_EPSILONS[k]}: " + " and ".join(words)

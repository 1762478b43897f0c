"""Every method of the library on the same points and boxes: errors, time to build, bytes, and queries a second."""

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
    EPSILONS,
    HEIGHTS,
    SHAPES,
    as_in_the_paper,
    errors,
    in_order,
    made,
    per_cent,
    plain,
    pruned_quadtree,
    quad_height,
    queries,
    seconds,
    size_of,
    suited,
    times,
    values,
)
from veilmap.reproduce.figures import COLOURS, MARKERS, drawing, pictures
from veilmap.reproduce.study import Claim, Experiment, Row, Setting, Table, Task, seed_of

BOXES = 10_000  # that queries a second are measured with
NAIVE = ("quad-baseline", "quad-geo", "quad-post")  # the paper uses them for comparison only
AGAINST = "quad-opt"
NOTES = (
    "Every private method. Quadtrees have height 10; kd-trees and hilbert-r height 8, and are pruned below 32, as in "
    "the paper, with 0.3 of ε for medians; quad-opt-pruned is quad-opt pruned like them. The others choose for "
    "themselves; flat-grid is an even grid as fine as the leaves of the quadtrees."
)


def methods(setting: Setting) -> dict[str, Method]:
    """All that are private, the paper's as in the paper; a pruned quadtree, and a grid as fine as its leaves."""
    known = {name: as_in_the_paper(method) for name, method in METHODS.items() if method.private}
    known["quad-opt-pruned"] = pruned_quadtree()
    grid = Method(name="flat-grid", structure=vm.UniformGrid(2 ** quad_height(setting)), budget=vm.LeafOnly())
    return suited(setting, known) | {grid.name: grid}


def experiment(setting: Setting) -> Experiment:
    tasks = [
        Task(
            f"{name} epsilon {epsilon}",
            partial(score, setting, {name: method}, [epsilon]),
            cost=0.5 + setting.repeats * seconds(setting, None),
        )
        for name, method in methods(setting).items()
        for epsilon in EPSILONS
    ]
    return Experiment(
        "rivals", "Every method, and a flat grid, on the same points and queries", tasks, tables, draw, claims, NOTES
    )


def score(setting: Setting, chosen: Mapping[str, Method], epsilons: Sequence[str]) -> list[Row]:
    """A row for each method, epsilon, shape and repeat; bytes are those of the first repeat, times are in seconds."""
    asked, many, rows = queries(setting), _many_boxes(setting), list[Row]()
    for (name, method), epsilon, repeat in product(chosen.items(), epsilons, range(setting.repeats)):
        begun = perf_counter()
        release = made(setting, method, epsilon, "rivals", name, repeat)
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
    """Random boxes of all shapes."""
    rng, domain = np.random.default_rng(seed_of(setting.seed, "many boxes")), setting.domain
    sizes = np.array([size_of(shape, domain) for shape in SHAPES])
    size = np.repeat(sizes, (BOXES // 10 if setting.quick else BOXES) // len(SHAPES), axis=0)
    low = rng.uniform(domain.lo, domain.hi - size)
    return np.hstack([low, low + size])


def _bytes(release: Release) -> int:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "release.parquet"
        release.save(path)
        return path.stat().st_size


def tables(rows: list[Row]) -> list[Table]:
    header = ["method", "ε", *SHAPES, "build, s", "file, MB", "queries a second"]
    body = []
    for name, epsilon in product(in_order(rows, "method"), in_order(rows, "epsilon")):
        of = partial(values, rows, method=name, epsilon=epsilon)
        shapes = [per_cent(of(shape=shape)) for shape in SHAPES]
        build, query = float(np.median(of("time_build"))), float(np.median(of("time_query")))
        size = of("bytes", repeat=0).mean() / 1e6
        body.append([name, str(epsilon), *shapes, f"{build:.2g}", f"{size:.2g}", f"{1 / query:,.0f}"])
    title = (
        "Median relative error by shape, %: mean (lowest–highest of the repeats); median time to build; size of the "
        f"file; speed when {BOXES:,} boxes are asked at once (a tenth of them in a quick study)"
    )
    return [Table(title, header, body)]


def means(rows: list[Row]) -> dict[str, Floats]:
    """Mean errors of each method: a row an epsilon, a column a shape."""
    return {
        name: np.array([[values(rows, method=name, epsilon=e, shape=s).mean() for s in SHAPES] for e in EPSILONS])
        for name in in_order(rows, "method")
    }


def _typical(found: Floats) -> float:
    return float(np.exp(np.log(found).mean()))


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """Errors over those of quad-opt: a panel an epsilon, a line a method, a marker a shape."""
    found = means(rows)
    names = sorted(found, key=lambda name: -_typical(found[name]))
    with drawing(folder, "rivals", len(EPSILONS), shared=True, height=1.0 + 0.27 * len(names)) as panels:
        for axes, epsilon in zip(panels, EPSILONS, strict=True):
            axes.axvline(1, color="#333333", lw=0.8)
            axes.grid(False, axis="y")
            for line in range(0, len(names), 2):
                axes.axhspan(line - 0.5, line + 0.5, color="#f3f3f3", lw=0, zorder=0)
            for k, shape in enumerate(SHAPES):
                base = values(rows, method=AGAINST, epsilon=epsilon, shape=shape).mean()
                ratio = [values(rows, method=name, epsilon=epsilon, shape=shape) / base for name in names]
                mean = np.array([r.mean() for r in ratio])
                reach = [mean - [r.min() for r in ratio], [r.max() for r in ratio] - mean]
                at = np.arange(len(names)) + 0.24 - 0.16 * k
                look = {"color": COLOURS[k], "marker": MARKERS[k], "ms": 3.5, "ls": "none"}
                axes.errorbar(mean, at, xerr=reach, elinewidth=0.6, label=shape, **look)
            axes.set(title=f"ε = {epsilon}", xscale="log", xlabel=f"error over that of {AGAINST}")
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
    ours = {name: e for name, e in found.items() if name in HEIGHTS}
    return [_single_digits(ours), _quadtree_is_best(ours), _later_ones(found)]


def _single_digits(ours: dict[str, Floats]) -> Claim:
    errors = {name: 100 * e for name, e in ours.items() if name not in NAIVE}
    total, below = sum(e.size for e in errors.values()), sum(int((e < 10).sum()) for e in errors.values())
    verdict = "seen" if below == total else "different" if 2 * below > total else "not seen"
    because = f"{below} of {total} errors of {', '.join(errors)} are below 10 %"
    above = [
        f"{name} has {int((e >= 10).sum())} of {e.size} above, up to {plain(float(e.max()))} %"
        for name, e in errors.items()
        if (e >= 10).any()
    ]
    return Claim("Relative errors are in single-digit per cent.", verdict, "; ".join([because, *above]) + ".")


def _quadtree_is_best(ours: dict[str, Floats]) -> Claim:
    typical = {name: 100 * _typical(e) for name, e in ours.items()}
    order = sorted(typical, key=lambda name: typical[name])
    verdict = "seen" if order[0] == AGAINST else "different" if AGAINST in order[:2] else "not seen"
    because = "Geometric means over all shapes and ε: " + ", ".join(
        f"{name} {plain(typical[name])} %" for name in order
    )
    if order[0] == "hilbert-r":
        because += ". Of hilbert-r see figure 6"
    return Claim("quad-opt is the best overall of the paper's methods.", verdict, because + ".")


def _later_ones(found: dict[str, Floats]) -> Claim:
    later = [name for name in found if name not in HEIGHTS]
    paper = np.min([e for name, e in found.items() if name in HEIGHTS], axis=0)
    ratio = {name: found[name] / paper for name in later}
    typical = {name: _typical(r) for name, r in ratio.items()}
    best = min(typical, key=lambda name: typical[name])
    won = int((np.min(list(ratio.values()), axis=0) < 1).sum())
    verdict = "seen" if won == 0 else "different" if typical[best] >= 1 else "not seen"
    because = (
        f"In {won} of {paper.size} settings one of {', '.join(later)} has the lowest error; "
        + "; ".join(_first(found, k) for k in range(len(EPSILONS)))
        + ". Over what the paper's best has in each setting: "
        + ", ".join(f"{name} {times(typical[name])}" for name in sorted(typical, key=lambda name: typical[name]))
    )
    text = "(Ours, not the paper's:) no other method does better than the best of the paper's."
    return Claim(text, verdict, because + ".")


def _first(found: dict[str, Floats], k: int) -> str:
    """Who is the best on which shapes."""
    best = [min(found, key=lambda name: found[name][k, s]) for s in range(len(SHAPES))]
    words = (
        f"{name} on "
        + ", ".join(f"{s} ({plain(100 * float(found[name][k, i]))} %)" for i, s in enumerate(SHAPES) if best[i] == name)
        for name in dict.fromkeys(best)
    )
    return f"lowest at ε {EPSILONS[k]}: " + " and ".join(words)

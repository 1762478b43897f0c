"""Figure 7(a): the time to build each tree and to post-process its counts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter

import veilmap as vm
from veilmap.arrays import Floats
from veilmap.estimate.pipeline import estimate
from veilmap.method.method import Method, PostProcessing
from veilmap.reproduce.accuracy import (
    METHOD_STYLES,
    adapt_methods,
    distinct_values,
    paper_methods,
    release_seconds,
    study_points,
    values,
)
from veilmap.reproduce.figures import drawing, pictures
from veilmap.reproduce.study import Claim, Experiment, Row, Setting, Table, Task, judge, seed_of
from veilmap.testing import fixed_entropy
from veilmap.vault import NoisyTree

TIMED_METHODS = paper_methods("quad-opt", "kd-hybrid", "kd-noisymean", "kd-standard", "kd-cell", "hilbert-r")
BUILD_EPSILON = "0.5"
WARM_UP_POINTS = 2000  # enough to compile the kernels before they are timed
DATA_DEPENDENT = ("kd-standard", "kd-noisymean", "kd-cell", "hilbert-r")


def experiment(setting: Setting) -> Experiment:
    tasks = [
        Task(f"{name} {repeat}", partial(run, setting, method, repeat), cost=2 * release_seconds(setting, None))
        for repeat in range(setting.repeats)
        for name, method in adapt_methods(setting, TIMED_METHODS).items()
    ]
    return Experiment("fig7a", "Figure 7(a): construction time", tasks, tables, draw, claims)


def run(setting: Setting, method: Method, repeat: int) -> list[Row]:
    """Return the times of one method and repeat."""
    points = study_points(setting)
    seed = seed_of(setting.seed, "fig7a", method.name, repeat)
    _timed(setting, method, points[:WARM_UP_POINTS], seed)  # compiles the kernels
    nodes, build, post = _timed(setting, method, points, seed)
    return [{"method": method.name, "repeat": repeat, "nodes": nodes, "time_build": build, "time_post": post}]


def _timed(setting: Setting, method: Method, points: Floats, seed: int) -> tuple[int, float, float]:
    """Return the number of published nodes, and the seconds for the noisy tree and for post-processing and pruning."""
    plain = replace(method, estimate=PostProcessing.NOISY_COUNTS, slopes=False, prune_below=None)
    with fixed_entropy(seed):
        begun = perf_counter()
        found = vm.release(points, setting.domain, BUILD_EPSILON, plain).estimates
        build = perf_counter() - begun
    noisy = NoisyTree(found.tree, found.noisy_count, found.noise_variance, (), False)
    begun = perf_counter()
    size = estimate(noisy, method).tree.size
    return size, build, perf_counter() - begun


def tables(rows: list[Row]) -> list[Table]:
    def spread(name: str, column: str) -> str:
        found = values(rows, column, method=name)
        return f"{found.min():.3g}–{found.max():.3g}"

    body = [
        [
            name,
            spread(name, "time_build"),
            spread(name, "time_post"),
            f"{values(rows, 'nodes', method=name).mean():,.0f}",
        ]
        for name in distinct_values(rows, "method")
    ]
    header = ["method", "noisy tree, s", "post-processing and pruning, s", "published nodes"]
    return [Table("Construction time: from the fastest to the slowest of the repeats", header, body)]


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """Draw the fastest repeat as a bar, with a line to the slowest."""
    names = distinct_values(rows, "method")
    with drawing(folder, "fig7a", 1) as (axes,):
        axes.grid(False, axis="y")
        for at, name in enumerate(names):
            build, post = (values(rows, f"time_{what}", method=name) for what in ("build", "post"))
            look, fastest = METHOD_STYLES[name], build.min() + post.min()
            axes.barh(at, build.min(), color=look.colour, edgecolor="white", hatch=look.hatch, lw=0.4)
            axes.barh(at, post.min(), left=build.min(), color="#777777", label="post-processing, pruning")
            axes.plot([fastest, (build + post).max()], [at, at], color="#333333", lw=0.8, marker="|", ms=4)
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        axes.set(xlabel="construction time, s", xlim=(0, None))
        axes.legend(*([part[0]] for part in axes.get_legend_handles_labels()), loc="best")
    return pictures(folder, "fig7a")


def claims(rows: list[Row]) -> list[Claim]:
    build, post = (
        {name: float(values(rows, f"time_{what}", method=name).min()) for name in TIMED_METHODS}
        for what in ("build", "post")
    )
    whole = {name: build[name] + post[name] for name in TIMED_METHODS}
    return [_fastest(whole), _between(whole), _slow(whole), _post(post, whole)]


def _listed(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {found[name]:.2g} s" for name in sorted(found, key=lambda name: found[name]))


def _fastest(whole: dict[str, float]) -> Claim:
    next_one = min(whole[name] for name in DATA_DEPENDENT)
    verdict = judge(2 * whole["quad-opt"] <= next_one, partly=whole["quad-opt"] < next_one)
    text = "Trees that divide the domain only are much faster to build than trees that depend on the data."
    return Claim(text, verdict, f"{_listed(whole)}.")


def _between(whole: dict[str, float]) -> Claim:
    quad, hybrid, standard = (whole[name] for name in ("quad-opt", "kd-hybrid", "kd-standard"))
    verdict = judge(quad < hybrid < standard, partly=hybrid < standard)
    because = (
        f"quad-opt {quad:.2g} s, kd-hybrid {hybrid:.2g} s, kd-standard {standard:.2g} s; in the paper it took a minute."
    )
    return Claim("kd-hybrid lies in between.", verdict, because)


def _slow(whole: dict[str, float]) -> Claim:
    standard, cell, hilbert = (whole[name] for name in ("kd-standard", "kd-cell", "hilbert-r"))
    verdict = judge(hilbert > cell > standard, partly=max(cell, hilbert) > standard)
    because = f"kd-standard takes {standard:.2g} s, kd-cell {cell:.2g} s, hilbert-r {hilbert:.2g} s."
    if cell <= standard:
        because += " All medians of a grid are read from one table of cumulative sums."
    if hilbert <= cell or hilbert <= standard:
        because += " Points are mapped to the curve once, by compiled code, and sorted along one axis only."
    return Claim("kd-cell is slow, and hilbert-r is slower.", verdict, because)


def _post(post: dict[str, float], whole: dict[str, float]) -> Claim:
    most = max(post, key=lambda name: post[name])
    share = max(post[name] / whole[name] for name in post)
    verdict = judge(post[most] < 5)
    because = f"At most {post[most]:.2g} s ({most}), and at most {100 * share:.0f} % of the total."
    if most == "hilbert-r":
        because += " For hilbert-r, most of it is spent on the boxes around its ranges of the curve."
    return Claim("Post-processing adds at most a few seconds.", verdict, because)

"""Figure 7(a): the time it takes to build each tree, and to post-process its counts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter

import veilmap as vm
from veilmap.arrays import Floats
from veilmap.estimate.pipeline import estimate
from veilmap.method.method import Method, PostProcessing
from veilmap.reproduce.accuracy import LOOKS, in_order, paper_methods, points_of, seconds, suited, values
from veilmap.reproduce.figures import drawing, pictures
from veilmap.reproduce.study import Claim, Experiment, Row, Setting, Table, Task, seed_of
from veilmap.testing import fixed_entropy
from veilmap.vault import NoisyTree

TREES = paper_methods("quad-opt", "kd-hybrid", "kd-noisymean", "kd-standard", "kd-cell", "hilbert-r")
EPSILON = "0.5"
FEW = 2000  # points to warm up with
BY_DATA = ("kd-standard", "kd-noisymean", "kd-cell", "hilbert-r")


def experiment(setting: Setting) -> Experiment:
    tasks = [
        Task(f"{name} {repeat}", partial(run, setting, method, repeat), cost=2 * seconds(setting, None))
        for repeat in range(setting.repeats)
        for name, method in suited(setting, TREES).items()
    ]
    return Experiment("fig7a", "Figure 7(a): construction time", tasks, tables, draw, claims)


def run(setting: Setting, method: Method, repeat: int) -> list[Row]:
    points = points_of(setting)
    seed = seed_of(setting.seed, "fig7a", method.name, repeat)
    _timed(setting, method, points[:FEW], seed)  # what is about to be timed is compiled
    nodes, build, post = _timed(setting, method, points, seed)
    return [{"method": method.name, "repeat": repeat, "nodes": nodes, "time_build": build, "time_post": post}]


def _timed(setting: Setting, method: Method, points: Floats, seed: int) -> tuple[int, float, float]:
    """Nodes that are published; seconds for the noisy tree, and for making the best of its counts and pruning."""
    plain = replace(method, estimate=PostProcessing.NOISY_COUNTS, slopes=False, prune_below=None)
    with fixed_entropy(seed):
        begun = perf_counter()
        found = vm.release(points, setting.domain, EPSILON, plain).estimates
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
        for name in in_order(rows, "method")
    ]
    header = ["method", "noisy tree, s", "post-processing and pruning, s", "published nodes"]
    return [Table("Construction time: from the fastest to the slowest of the repeats", header, body)]


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """The fastest of the repeats, and a line to the slowest."""
    names = in_order(rows, "method")
    with drawing(folder, "fig7a", 1) as (axes,):
        axes.grid(False, axis="y")
        for at, name in enumerate(names):
            build, post = (values(rows, f"time_{what}", method=name) for what in ("build", "post"))
            look, fastest = LOOKS[name], build.min() + post.min()
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
        {name: float(values(rows, f"time_{what}", method=name).min()) for name in TREES} for what in ("build", "post")
    )
    whole = {name: build[name] + post[name] for name in TREES}
    return [_fastest(whole), _between(whole), _slow(whole), _post(post, whole)]


def _listed(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {found[name]:.2g} s" for name in sorted(found, key=lambda name: found[name]))


def _fastest(whole: dict[str, float]) -> Claim:
    next_one = min(whole[name] for name in BY_DATA)
    verdict = (
        "seen" if 2 * whole["quad-opt"] <= next_one else "different" if whole["quad-opt"] < next_one else "not seen"
    )
    text = "What divides the domain alone takes much less time than what looks at the data."
    return Claim(text, verdict, f"{_listed(whole)}.")


def _between(whole: dict[str, float]) -> Claim:
    quad, hybrid, standard = (whole[name] for name in ("quad-opt", "kd-hybrid", "kd-standard"))
    verdict = "seen" if quad < hybrid < standard else "different" if hybrid < standard else "not seen"
    because = (
        f"quad-opt {quad:.2g} s, kd-hybrid {hybrid:.2g} s, kd-standard {standard:.2g} s; the paper's took a minute."
    )
    return Claim("kd-hybrid lies between.", verdict, because)


def _slow(whole: dict[str, float]) -> Claim:
    standard, cell, hilbert = (whole[name] for name in ("kd-standard", "kd-cell", "hilbert-r"))
    verdict = "seen" if hilbert > cell > standard else "different" if max(cell, hilbert) > standard else "not seen"
    because = f"kd-standard takes {standard:.2g} s, kd-cell {cell:.2g} s, hilbert-r {hilbert:.2g} s."
    if cell <= standard:
        because += " Of a grid every median is read off one table of running sums."
    if hilbert <= cell or hilbert <= standard:
        because += " Points are put on the curve once, by compiled code, and it has one axis to sort them along."
    return Claim("kd-cell takes long, and hilbert-r longer still.", verdict, because)


def _post(post: dict[str, float], whole: dict[str, float]) -> Claim:
    most = max(post, key=lambda name: post[name])
    part = max(post[name] / whole[name] for name in post)
    verdict = "seen" if post[most] < 5 else "not seen"
    because = f"At most {post[most]:.2g} s ({most}), and {100 * part:.0f} % of the whole."
    if most == "hilbert-r":
        because += " Of hilbert-r most of that is for the boxes around its ranges of the curve."
    return Claim("Post-processing adds a few seconds at most.", verdict, because)

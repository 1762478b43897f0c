"""Figure 3: how a geometric budget and post-processing improve a quadtree."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from veilmap.arrays import Floats
from veilmap.reproduce.accuracy import (
    EXACT_QUADTREE,
    STUDY_EPSILONS,
    adapt_methods,
    compare_methods,
    draw_bars,
    make_release,
    paper_methods,
    quad_height,
    queries,
    tables_by_shape,
    tasks_of,
    values,
)
from veilmap.reproduce.study import REPRODUCED, Claim, Experiment, Row, Setting, Table, Task, judge

PAPER_QUADTREES = paper_methods("quad-baseline", "quad-geo", "quad-post", "quad-opt")
EXACT_NAME = EXACT_QUADTREE.name
METHOD_DESCRIPTIONS = {
    "quad-baseline": "uniform budget, no post-processing",
    "quad-geo": "geometric budget, no post-processing",
    "quad-post": "uniform budget, post-processed",
    "quad-opt": "geometric budget, post-processed",
    EXACT_NAME: "no noise (not private): the remaining error comes from uneven points in leaves that the box cuts",
}


def experiment(setting: Setting) -> Experiment:
    tasks = tasks_of(setting, "fig3", PAPER_QUADTREES | {EXACT_NAME: EXACT_QUADTREE}, STUDY_EPSILONS)
    tasks.append(Task("noise", partial(_noise, setting)))
    title = f"Figure 3: query accuracy of quadtree optimisations, height {quad_height(setting)}"
    return Experiment("fig3", title, tasks, tables, draw, claims)


def _noise(setting: Setting) -> list[Row]:
    """Return the ratio of the noise of quad-baseline to that of quad-opt, by shape. It depends on variances only."""
    trees = adapt_methods(setting, PAPER_QUADTREES)
    before, after = (
        make_release(setting, trees[name], STUDY_EPSILONS[0], "fig3") for name in ("quad-baseline", "quad-opt")
    )
    rows: list[Row] = []
    for shape, (boxes, _) in queries(setting).items():
        less = before.count(boxes).stderr / after.count(boxes).stderr
        rows.append(
            {"method": "noise", "shape": shape, "less_noise": float(np.median(less)), "most": float(less.max())}
        )
    return rows


def tables(rows: list[Row]) -> list[Table]:
    noise = [row for row in rows if row["method"] == "noise"]
    body = [[str(r["shape"]), f"{r['less_noise']:.2f}", f"{r['most']:.2f}"] for r in noise]
    title = "Standard error of the noise in answers: quad-baseline divided by quad-opt"
    what = Table("Quadtrees", ["method", "what it is"], list(METHOD_DESCRIPTIONS.items()))
    return [what, *tables_by_shape(_errors(rows)), Table(title, ["shape", "median box", "maximum"], body)]


def draw(rows: list[Row], folder: Path) -> list[Path]:
    return draw_bars(_errors(rows), folder, "fig3", floor=EXACT_NAME)


def _errors(rows: list[Row]) -> list[Row]:
    return [row for row in rows if "error" in row]


def claims(rows: list[Row]) -> list[Claim]:
    errors = _errors(rows)
    return [
        _cuts(errors, "A geometric budget reduces the error significantly.", "quad-geo", ["quad-baseline"]),
        _cuts(errors, "Post-processing reduces the error significantly.", "quad-post", ["quad-baseline"]),
        _cuts(errors, "Both together are better than either alone.", "quad-opt", ["quad-geo", "quad-post"]),
        _order_of_magnitude(errors, values(rows, "less_noise", method="noise"), values(rows, "most", method="noise")),
    ]


def _cuts(rows: list[Row], text: str, better: str, others: list[str]) -> Claim:
    """Return a claim that is reproduced if the error is lower everywhere, and clearly so at the smallest epsilon."""
    found = [compare_methods(rows, better, other) for other in others]
    private = [compare_methods(rows, better, other, STUDY_EPSILONS[:1]) for other in others]
    everywhere = all(c.lower == len(c.ratio) for c in found)
    clearly = all(c.clearly == len(c.ratio) for c in private)
    mostly = all(2 * c.lower > len(c.ratio) for c in found)
    verdict = judge(everywhere and clearly, partly=mostly)
    because = " ".join(
        f"The error of {better} is {c} that of {other}. It is lower in {c.lower} of {len(c.ratio)} settings, and in "
        f"every repeat in {c.clearly}."
        for other, c in zip(others, found, strict=True)
    )
    if verdict != REPRODUCED:
        because += (
            f" With few points or a large ε, the error from uneven points in cut leaves hides the difference: "
            f"{_floor(rows, better)}"
        )
    return Claim(text, verdict, because)


def _floor(rows: list[Row], name: str) -> str:
    part = compare_methods(rows, EXACT_NAME, name).ratio
    return (
        f"the same tree without noise ({EXACT_NAME}) has {part.min():.2f} to {part.max():.2f} times the error of "
        f"{name}."
    )


def _order_of_magnitude(rows: list[Row], less_noise: Floats, most: Floats) -> Claim:
    c = compare_methods(rows, "quad-opt", "quad-baseline")
    best = int(c.ratio.argmin())
    gain, typical = (
        1 / c.ratio[best],
        {e: 1 / compare_methods(rows, "quad-opt", "quad-baseline", [e]).typical for e in STUDY_EPSILONS},
    )
    grows = typical[STUDY_EPSILONS[0]] > typical[STUDY_EPSILONS[-1]]
    verdict = judge(gain >= 8 and grows, partly=gain >= 3)
    because = (
        f"The error of quad-opt is up to {gain:.2g} times lower than that of quad-baseline (at {c.where[best]}). The "
        f"geometric mean over the shapes is " + ", ".join(f"{t:.2g} times at ε {e}" for e, t in typical.items()) + "."
    )
    if verdict != REPRODUCED:
        because += (
            f" The variances explain this: for any points, the noise in the answer to the median box is "
            f"{less_noise.min():.2g} to {less_noise.max():.2g} times lower, depending on the shape, and in the answer "
            f"to any box at most {most.max():.2g} times lower. The error from uneven points in cut leaves does not "
            f"fall with the noise: {_floor(rows, 'quad-opt')}"
        )
    text = "Together they reduce the error by up to an order of magnitude, most at ε = 0.1."
    return Claim(text, verdict, because)

"""Figure 3: what a geometric budget and post-processing do for a quadtree."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from veilmap.arrays import Floats
from veilmap.reproduce.accuracy import (
    EPSILONS,
    EXACT_QUADTREE,
    compared,
    draw_bars,
    made,
    paper_methods,
    quad_height,
    queries,
    suited,
    tables_by_shape,
    tasks_of,
    values,
)
from veilmap.reproduce.study import Claim, Experiment, Row, Setting, Table, Task

QUADTREES = paper_methods("quad-baseline", "quad-geo", "quad-post", "quad-opt")
EXACT = EXACT_QUADTREE.name
SAYS = {
    "quad-baseline": "a uniform budget, noisy counts as they are",
    "quad-geo": "a geometric budget, noisy counts as they are",
    "quad-post": "a uniform budget, post-processed",
    "quad-opt": "a geometric budget, post-processed",
    EXACT: "no noise (not private): what is left is that points lie unevenly in cells which a border cuts",
}


def experiment(setting: Setting) -> Experiment:
    tasks = tasks_of(setting, "fig3", QUADTREES | {EXACT: EXACT_QUADTREE}, EPSILONS)
    tasks.append(Task("noise", partial(_noise, setting)))
    title = f"Figure 3: query accuracy of quadtree optimisations, height {quad_height(setting)}"
    return Experiment("fig3", title, tasks, tables, draw, claims)


def _noise(setting: Setting) -> list[Row]:
    """How much less noise quad-opt has than quad-baseline, box by box: a matter of variances, not of chance."""
    trees = suited(setting, QUADTREES)
    before, after = (made(setting, trees[name], EPSILONS[0], "fig3") for name in ("quad-baseline", "quad-opt"))
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
    title = "Standard error of the noise in answers of quad-baseline, over that of quad-opt"
    what = Table("Quadtrees", ["method", "what it is"], list(SAYS.items()))
    return [what, *tables_by_shape(_errors(rows)), Table(title, ["shape", "median box", "most of any"], body)]


def draw(rows: list[Row], folder: Path) -> list[Path]:
    return draw_bars(_errors(rows), folder, "fig3", floor=EXACT)


def _errors(rows: list[Row]) -> list[Row]:
    return [row for row in rows if "error" in row]


def claims(rows: list[Row]) -> list[Claim]:
    errors = _errors(rows)
    return [
        _cuts(errors, "A geometric budget cuts the error significantly.", "quad-geo", ["quad-baseline"]),
        _cuts(errors, "Post-processing cuts the error significantly.", "quad-post", ["quad-baseline"]),
        _cuts(errors, "Both together do better than either.", "quad-opt", ["quad-geo", "quad-post"]),
        _order_of_magnitude(errors, values(rows, "less_noise", method="noise"), values(rows, "most", method="noise")),
    ]


def _cuts(rows: list[Row], text: str, better: str, others: list[str]) -> Claim:
    """Seen if the error is lower everywhere, and for the smallest epsilon clearly so."""
    found = [compared(rows, better, other) for other in others]
    private = [compared(rows, better, other, EPSILONS[:1]) for other in others]
    everywhere = all(c.lower == len(c.ratio) for c in found)
    clearly = all(c.clearly == len(c.ratio) for c in private)
    mostly = all(2 * c.lower > len(c.ratio) for c in found)
    verdict = "seen" if everywhere and clearly else "different" if mostly else "not seen"
    because = " ".join(
        f"The error of {better} is {c} that of {other}: lower in {c.lower} of {len(c.ratio)} settings, and in "
        f"{c.clearly} in all repeats."
        for other, c in zip(others, found, strict=True)
    )
    if verdict != "seen":
        because += f" Where the data is little or ε large, unevenness in cut cells hides it: {_floor(rows, better)}"
    return Claim(text, verdict, because)


def _floor(rows: list[Row], name: str) -> str:
    part = compared(rows, EXACT, name).ratio
    return f"the same tree without noise ({EXACT}) has {part.min():.2f} to {part.max():.2f} times the error of {name}."


def _order_of_magnitude(rows: list[Row], less_noise: Floats, most: Floats) -> Claim:
    c = compared(rows, "quad-opt", "quad-baseline")
    best = int(c.ratio.argmin())
    gain, typical = (
        1 / c.ratio[best],
        {e: 1 / compared(rows, "quad-opt", "quad-baseline", [e]).typical for e in EPSILONS},
    )
    grows = typical[EPSILONS[0]] > typical[EPSILONS[-1]]
    verdict = "seen" if gain >= 8 and grows else "different" if gain >= 3 else "not seen"
    because = (
        f"quad-opt has up to {gain:.2g} times less error than quad-baseline (at {c.where[best]}); over the shapes "
        + ", ".join(f"{t:.2g} times at ε {e}" for e, t in typical.items())
        + "."
    )
    if verdict != "seen":
        because += (
            f" That is what variances say: whatever the points are, noise in the answer of the median box falls "
            f"{less_noise.min():.2g} to {less_noise.max():.2g} times, depending on the shape, and in that of the "
            f"luckiest box {most.max():.2g} times. Unevenness in cut cells does not fall with the noise: "
            f"{_floor(rows, 'quad-opt')}"
        )
    text = "Together they cut the error by up to an order of magnitude, most of all at ε = 0.1."
    return Claim(text, verdict, because)

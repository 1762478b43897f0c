"""Figure 5: the accuracy of kd-trees, and how much of their error comes from noise."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np

import veilmap as vm
from veilmap.arrays import Floats
from veilmap.method.method import Method, Noise, PostProcessing
from veilmap.reproduce.accuracy import (
    GRID_CELLS_PER_AXIS,
    KD_HEIGHT,
    PRUNE_BELOW_COUNT,
    QUERY_SHAPES,
    STUDY_EPSILONS,
    Comparison,
    compare_methods,
    draw_bars,
    error_rows,
    format_number,
    format_ratio,
    paper_methods,
    release_seconds,
    tables_by_shape,
    tasks_of,
    values,
)
from veilmap.reproduce.study import Claim, Experiment, Row, Setting, Table, Task, judge

PRIVATE_METHODS = ("kd-standard", "kd-hybrid", "kd-cell", "kd-noisymean")
PAPER_KDTREES = paper_methods("kd-pure", "kd-true", *PRIVATE_METHODS)

# Non-private baselines that are not in the paper, shown in the tables only. They separate the error that comes from
# noisy medians from the error that comes from noisy counts.
MEDIANS_ONLY = Method(
    name="kd-medians",
    structure=vm.KdTree(KD_HEIGHT),
    noise=Noise.NONE,
    estimate=PostProcessing.NOISY_COUNTS,
    prune_below=PRUNE_BELOW_COUNT,
)
EXACT_HYBRID = Method(
    name="kd-pure, half",
    structure=vm.KdTree(KD_HEIGHT, switch="half", median="exact"),
    noise=Noise.NONE,
    estimate=PostProcessing.NOISY_COUNTS,
    prune_below=PRUNE_BELOW_COUNT,
)
NOISELESS_GRID_EPSILON = Fraction(90)  # large enough for almost no noise
METHOD_DESCRIPTIONS = {
    "kd-pure": "exact medians, exact counts (not private)",
    "kd-true": "exact medians, noisy counts (not private)",
    "kd-standard": "medians by the exponential mechanism",
    "kd-hybrid": "the same on the upper half of the levels, midpoints below",
    "kd-cell": f"medians read from a noisy grid of {GRID_CELLS_PER_AXIS} × {GRID_CELLS_PER_AXIS} cells",
    "kd-noisymean": "noisy means instead of medians",
    MEDIANS_ONLY.name: "kd-standard with exact counts (not private); its medians also get 0.3 ε",
    EXACT_HYBRID.name: "kd-hybrid with exact medians and counts (not private)",
    "cell-true": "kd-cell with a nearly noiseless grid (not private); its counts also get 0.7 ε",
}
SETUP_NOTES = (
    "Medians get 0.3 of ε and counts get 0.7. kd-hybrid uses medians on the first half of its levels. kd-true spends "
    "all of ε on its counts, because its exact medians cost nothing. kd-cell counts only its leaves, so geometric "
    f"budgets and post-processing do not apply to it; its grid has {GRID_CELLS_PER_AXIS} × {GRID_CELLS_PER_AXIS} "
    "cells, the number that the paper's cell length of 0.01 gives in its box. All trees are pruned, as the paper does "
    "for all of its kd-trees."
)


def experiment(setting: Setting) -> Experiment:
    trees = PAPER_KDTREES | {m.name: m for m in (MEDIANS_ONLY, EXACT_HYBRID)}
    tasks = tasks_of(setting, "fig5", trees, STUDY_EPSILONS, leaves=True)
    for epsilon in STUDY_EPSILONS:
        method, spent = _cell_true(epsilon)
        run = partial(error_rows, setting, "fig5", method, epsilon, spent=spent, leaves=True)
        tasks.append(
            Task(f"{method.name} epsilon {epsilon}", run, cost=setting.repeats * release_seconds(setting, None))
        )
    title = f"Figure 5: query accuracy of kd-trees, height {KD_HEIGHT}, pruned below {PRUNE_BELOW_COUNT:g}"
    return Experiment("fig5", title, tasks, tables, draw, claims, SETUP_NOTES)


def _cell_true(epsilon: str) -> tuple[Method, str]:
    total = NOISELESS_GRID_EPSILON + Fraction(epsilon) * Fraction(7, 10)
    structure = vm.CellTree(KD_HEIGHT, GRID_CELLS_PER_AXIS, median_share=NOISELESS_GRID_EPSILON / total)
    return Method(name="cell-true", structure=structure, prune_below=PRUNE_BELOW_COUNT), str(float(total))


def tables(rows: list[Row]) -> list[Table]:
    return [Table("Kd-trees", ["method", "what it is"], list(METHOD_DESCRIPTIONS.items())), *tables_by_shape(rows)]


def draw(rows: list[Row], folder: Path) -> list[Path]:
    return draw_bars(rows, folder, "fig5")


def claims(rows: list[Row]) -> list[Claim]:
    return [
        _true_is_near_pure(rows),
        _medians_matter_more(rows),
        _mean_is_weak(rows),
        _cells_lose(rows),
        _below_ten(rows),
        _hybrid_is_reliable(rows),
    ]


def _means(rows: list[Row], name: str, epsilons: tuple[str, ...] = STUDY_EPSILONS) -> Floats:
    """Return the mean errors in per cent: one row per epsilon, one column per shape."""
    return np.array(
        [[100 * values(rows, method=name, epsilon=e, shape=s).mean() for s in QUERY_SHAPES] for e in epsilons]
    )


def _in_long(rows: list[Row], name: str) -> float:
    """Return the percentage of points in long leaves."""
    return 100 * float(values(rows, "in_long_leaves", method=name).mean())


def _long(rows: list[Row], name: str) -> str:
    share = _in_long(rows, name)
    return f"{share:.2g} %" if share >= 0.005 else "almost none"


def _listed(found: Floats) -> str:
    return ", ".join(format_number(v) for v in found.tolist())


def _true_is_near_pure(rows: list[Row]) -> Claim:
    true, pure = _means(rows, "kd-true"), _means(rows, "kd-pure")
    costs = true - pure
    verdict = judge(true.max() < 1, partly=(costs < 1).mean() > 0.5)
    because = f"The error of kd-pure is {_listed(pure[0])} % on the four shapes, that of kd-true " + ", ".join(
        f"{_listed(true[k])} % at ε {e}" for k, e in enumerate(STUDY_EPSILONS)
    )
    because += f". Noise in counts adds at most {format_number(float(costs.max()))} percentage points."
    if true.max() >= 1 and pure.max() >= 1:
        because += " Here even exact trees have errors above 1 %."
        middles = _means(rows, EXACT_HYBRID.name)[0]
        if helped := [k for k in range(len(QUERY_SHAPES)) if middles[k] < pure[0, k] / 2]:
            because += (
                f" Their leaves extend over empty areas: {_long(rows, 'kd-pure')} of the points are in leaves longer "
                f"than a third of the domain. With midpoints below the fourth level, {_long(rows, EXACT_HYBRID.name)} "
                f"are in such leaves, and the error without noise is {_listed(middles[helped])} % on "
                f"{' and '.join(list(QUERY_SHAPES)[k] for k in helped)}."
            )
    return Claim("Noise in counts alone (kd-true) leaves the error below 1 %.", verdict, because)


def _medians_matter_more(rows: list[Row]) -> Claim:
    pure, counts, medians = (_means(rows, name) for name in ("kd-pure", "kd-true", MEDIANS_ONLY.name))
    more = medians > counts
    verdict = judge(more.all(), partly=more.any())
    because = (
        f"Noisy medians with exact counts ({MEDIANS_ONLY.name}) have a larger error than exact medians with noisy "
        f"counts (kd-true) in {more.sum()} of {more.size} settings: {_listed(medians[0])} % and {_listed(counts[0])} % "
        f"at ε {STUDY_EPSILONS[0]}, {_listed(medians[-1])} % and {_listed(counts[-1])} % at ε {STUDY_EPSILONS[-1]}."
    )
    if not more.all() and (medians < pure).any():
        where = [shape for k, shape in enumerate(QUERY_SHAPES) if (medians < pure)[:, k].any()]
        because += f" On {', '.join(where)}, noisy medians have a lower error than exact ones at some ε."
        if _in_long(rows, MEDIANS_ONLY.name) < _in_long(rows, "kd-pure"):
            because += (
                f" An exact median lies among points, so the leaf beside it extends over the empty area. A noisy "
                f"median often falls into the empty area and cuts it off: {_long(rows, MEDIANS_ONLY.name)} of the "
                f"points are in leaves longer than a third of the domain, instead of {_long(rows, 'kd-pure')}."
            )
    return Claim("Noise in medians costs more accuracy than noise in counts.", verdict, because)


def _mean_is_weak(rows: list[Row]) -> Claim:
    found = {other: compare_methods(rows, "kd-noisymean", other) for other in ("kd-standard", "kd-hybrid")}
    higher = [len(c.ratio) - c.lower for c in found.values()]
    n = len(found["kd-hybrid"].ratio)
    weak = min(higher) > 0.75 * n and min(c.typical for c in found.values()) > 1.2
    verdict = judge(weak, partly=min(higher) > n / 2)
    because = "Its error is " + " and ".join(f"{c} that of {other}" for other, c in found.items())
    because += f". It is larger in {higher[0]} and {higher[1]} of {n} settings."
    return Claim("kd-noisymean is inaccurate.", verdict, because)


def _cells_lose(rows: list[Row]) -> Claim:
    small, large = (
        compare_methods(rows, "kd-cell", "kd-hybrid", shapes=shapes) for shapes in (["(1, 1)"], ["(5, 5)", "(10, 10)"])
    )
    good, loses = small.lower == len(small.ratio), small.typical < large.typical and large.typical > 1
    verdict = judge(good and loses, partly=good or loses)
    because = f"Its error is {_ratios(small)} that of kd-hybrid on (1, 1) and {_ratios(large)} on (5, 5) and (10, 10)."
    grid, true = _means(rows, "kd-cell")[0], _means(rows, "cell-true")[0]
    if not good and grid[0] > 2 * true[0]:
        noise = math.sqrt(2) / (0.3 * float(STUDY_EPSILONS[0]))
        because += (
            f" The paper's cell length gives too many cells: at ε = {STUDY_EPSILONS[0]} each has noise of {noise:.2g} "
            f"points, a quarter of them together {round(noise * GRID_CELLS_PER_AXIS / 2, -3):,.0f}, so the splits "
            f"follow the noise. With a nearly noiseless grid the errors would be {_listed(true)} %; they are "
            f"{_listed(grid)} %."
        )
    return Claim("kd-cell is good on small squares, and worse than kd-hybrid on larger queries.", verdict, because)


def _ratios(c: Comparison) -> str:
    return f"{format_ratio(c.typical)} ({format_number(float(c.ratio.min()))} to {format_number(float(c.ratio.max()))})"


def _below_ten(rows: list[Row]) -> Claim:
    at = {name: _means(rows, name, STUDY_EPSILONS[:1])[0] for name in PRIVATE_METHODS}
    above = [name for name, found in at.items() if found.max() >= 10]
    verdict = judge(not above, partly=len(above) < len(PRIVATE_METHODS))
    because = (
        f"At ε {STUDY_EPSILONS[0]}: " + "; ".join(f"{name} {_listed(found)} %" for name, found in at.items()) + "."
    )
    if "kd-cell" in above:
        because += " For kd-cell, see above."
    return Claim("Errors are below 10 % even at ε = 0.1.", verdict, because)


def _hybrid_is_reliable(rows: list[Row]) -> Claim:
    errors = {name: _means(rows, name).ravel() for name in PRIVATE_METHODS}
    best = np.min(list(errors.values()), axis=0)
    worst = {name: float((found / best).max()) for name, found in errors.items()}
    typical = {name: float(np.exp(np.log(found).mean())) for name, found in errors.items()}
    least = [min(score, key=lambda name: score[name]) for score in (worst, typical)]
    verdict = judge(least == ["kd-hybrid"] * 2, partly="kd-hybrid" in least)
    first = {name: int((found <= best).sum()) for name, found in errors.items()}
    because = "Maximum ratio to the error of the best private kd-tree in the same setting: " + ", ".join(
        f"{name} {format_number(worst[name])} (best in {first[name]} of {best.size}, geometric mean "
        f"{format_number(typical[name])} %)"
        for name in sorted(PRIVATE_METHODS, key=lambda name: worst[name])
    )
    return Claim("kd-hybrid is the most reliably accurate.", verdict, because + ".")

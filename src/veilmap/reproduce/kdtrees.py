"""Figure 5: kd-trees, and what their noise costs."""

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
    CELLS,
    EPSILONS,
    KD_HEIGHT,
    PRUNE,
    SHAPES,
    Compared,
    compared,
    draw_bars,
    paper_methods,
    plain,
    rows_of,
    seconds,
    tables_by_shape,
    tasks_of,
    times,
    values,
)
from veilmap.reproduce.study import Claim, Experiment, Row, Setting, Table, Task

PRIVATE = ("kd-standard", "kd-hybrid", "kd-cell", "kd-noisymean")
KDTREES = paper_methods("kd-pure", "kd-true", *PRIVATE)

# Yardsticks of our own, in the tables only: they say which of two kinds of noise an error comes from.
MEDIANS_ONLY = Method(
    name="kd-medians",
    structure=vm.KdTree(KD_HEIGHT),
    noise=Noise.NONE,
    estimate=PostProcessing.NOISY_COUNTS,
    prune_below=PRUNE,
)
MIDDLES = Method(
    name="kd-pure, half",
    structure=vm.KdTree(KD_HEIGHT, switch="half", median="exact"),
    noise=Noise.NONE,
    estimate=PostProcessing.NOISY_COUNTS,
    prune_below=PRUNE,
)
SURE_GRID = Fraction(90)  # an epsilon that leaves hardly any noise
SAYS = {
    "kd-pure": "exact medians, exact counts (not private)",
    "kd-true": "exact medians, noisy counts (not private)",
    "kd-standard": "medians by the exponential mechanism",
    "kd-hybrid": "the same on the upper half of the levels, midpoints below",
    "kd-cell": f"medians read off a noisy grid of {CELLS} × {CELLS} cells",
    "kd-noisymean": "noisy means in place of medians",
    MEDIANS_ONLY.name: "kd-standard with exact counts (not private): its medians have 0.3 ε as there",
    MIDDLES.name: "kd-hybrid with exact medians and counts (not private)",
    "cell-true": "kd-cell with a grid of hardly any noise (not private): its counts have 0.7 ε as there",
}


NOTES = (
    "Medians have 0.3 of ε and counts 0.7; kd-hybrid has medians on the first half of its levels; kd-true, whose "
    "medians are free, has all of ε for its counts. kd-cell counts its leaves only, so that neither geometric budgets "
    f"nor post-processing apply; its grid has {CELLS} × {CELLS} cells, as many as the paper's length of 0.01 gives in "
    "its box. All are pruned, which the paper says of its kd-trees without exception."
)


def experiment(setting: Setting) -> Experiment:
    trees = KDTREES | {m.name: m for m in (MEDIANS_ONLY, MIDDLES)}
    tasks = tasks_of(setting, "fig5", trees, EPSILONS, leaves=True)
    for epsilon in EPSILONS:
        method, spent = _cell_true(epsilon)
        run = partial(rows_of, setting, "fig5", method, epsilon, spent=spent, leaves=True)
        tasks.append(Task(f"{method.name} epsilon {epsilon}", run, cost=setting.repeats * seconds(setting, None)))
    title = f"Figure 5: query accuracy of kd-trees, height {KD_HEIGHT}, pruned below {PRUNE:g}"
    return Experiment("fig5", title, tasks, tables, draw, claims, NOTES)


def _cell_true(epsilon: str) -> tuple[Method, str]:
    total = SURE_GRID + Fraction(epsilon) * Fraction(7, 10)
    structure = vm.CellTree(KD_HEIGHT, CELLS, median_share=SURE_GRID / total)
    return Method(name="cell-true", structure=structure, prune_below=PRUNE), str(float(total))


def tables(rows: list[Row]) -> list[Table]:
    return [Table("Kd-trees", ["method", "what it is"], list(SAYS.items())), *tables_by_shape(rows)]


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


def _means(rows: list[Row], name: str, epsilons: tuple[str, ...] = EPSILONS) -> Floats:
    """Per cent, a row an epsilon, a column a shape."""
    return np.array([[100 * values(rows, method=name, epsilon=e, shape=s).mean() for s in SHAPES] for e in epsilons])


def _in_long(rows: list[Row], name: str) -> float:
    """The share of points in long leaves, in per cent."""
    return 100 * float(values(rows, "in_long_leaves", method=name).mean())


def _long(rows: list[Row], name: str) -> str:
    part = _in_long(rows, name)
    return f"{part:.2g} %" if part >= 0.005 else "next to none"


def _listed(found: Floats) -> str:
    return ", ".join(plain(v) for v in found.tolist())


def _true_is_near_pure(rows: list[Row]) -> Claim:
    true, pure = _means(rows, "kd-true"), _means(rows, "kd-pure")
    costs = true - pure
    verdict = "seen" if true.max() < 1 else "different" if (costs < 1).mean() > 0.5 else "not seen"
    because = f"kd-pure has {_listed(pure[0])} % on the four shapes, kd-true " + ", ".join(
        f"{_listed(true[k])} % at ε {e}" for k, e in enumerate(EPSILONS)
    )
    because += f": noise in counts adds {plain(float(costs.max()))} points of per cent at most."
    if true.max() >= 1 and pure.max() >= 1:
        because += " Here even exact trees are off by more than 1 %."
        middles = _means(rows, MIDDLES.name)[0]
        if helped := [k for k in range(len(SHAPES)) if middles[k] < pure[0, k] / 2]:
            because += (
                f" Their leaves reach across empty land: {_long(rows, 'kd-pure')} of the points lie in leaves longer "
                f"than a third of the box. With midpoints below the fourth level {_long(rows, MIDDLES.name)} do, and "
                f"the exact error is {_listed(middles[helped])} % on {' and '.join(list(SHAPES)[k] for k in helped)}."
            )
    return Claim("Noise in counts alone (kd-true) leaves the error below 1 %.", verdict, because)


def _medians_matter_more(rows: list[Row]) -> Claim:
    pure, counts, medians = (_means(rows, name) for name in ("kd-pure", "kd-true", MEDIANS_ONLY.name))
    more = medians > counts
    verdict = "seen" if more.all() else "different" if more.any() else "not seen"
    because = (
        f"Noisy medians with exact counts ({MEDIANS_ONLY.name}) have a larger error than exact medians with noisy "
        f"counts (kd-true) in {more.sum()} of {more.size} settings: {_listed(medians[0])} % and {_listed(counts[0])} % "
        f"at ε {EPSILONS[0]}, {_listed(medians[-1])} % and {_listed(counts[-1])} % at ε {EPSILONS[-1]}."
    )
    if not more.all() and (medians < pure).any():
        where = [shape for k, shape in enumerate(SHAPES) if (medians < pure)[:, k].any()]
        because += f" On {', '.join(where)} noisy medians even beat exact ones at some ε."
        if _in_long(rows, MEDIANS_ONLY.name) < _in_long(rows, "kd-pure"):
            because += (
                f" An exact median lies among points, and the leaf beside it reaches across empty land; a noisy one "
                f"often falls there and cuts it off: {_long(rows, MEDIANS_ONLY.name)} of the points are in leaves "
                f"longer than a third of the box, in place of {_long(rows, 'kd-pure')}."
            )
    return Claim("Noise in medians costs more than noise in counts.", verdict, because)


def _mean_is_weak(rows: list[Row]) -> Claim:
    found = {other: compared(rows, "kd-noisymean", other) for other in ("kd-standard", "kd-hybrid")}
    higher = [len(c.ratio) - c.lower for c in found.values()]
    n = len(found["kd-hybrid"].ratio)
    weak = min(higher) > 0.75 * n and min(c.typical for c in found.values()) > 1.2
    verdict = "seen" if weak else "different" if min(higher) > n / 2 else "not seen"
    because = "Its error is " + " and ".join(f"{c} that of {other}" for other, c in found.items())
    because += f": larger in {higher[0]} and {higher[1]} of {n} settings."
    return Claim("kd-noisymean is weak.", verdict, because)


def _cells_lose(rows: list[Row]) -> Claim:
    small, large = (
        compared(rows, "kd-cell", "kd-hybrid", shapes=shapes) for shapes in (["(1, 1)"], ["(5, 5)", "(10, 10)"])
    )
    good, loses = small.lower == len(small.ratio), small.typical < large.typical and large.typical > 1
    verdict = "seen" if good and loses else "different" if good or loses else "not seen"
    because = f"Its error is {_ratios(small)} that of kd-hybrid on (1, 1), {_ratios(large)} on (5, 5) and (10, 10)."
    grid, true = _means(rows, "kd-cell")[0], _means(rows, "cell-true")[0]
    if not good and grid[0] > 2 * true[0]:
        noise = math.sqrt(2) / (0.3 * float(EPSILONS[0]))
        because += (
            f" Cells of that length are too many: at ε = {EPSILONS[0]} each has noise of {noise:.2g} points, a quarter "
            f"of them together {round(noise * CELLS / 2, -3):,.0f}, and cuts follow the noise. With hardly any noise "
            f"in the grid the errors would be {_listed(true)} %; they are {_listed(grid)} %."
        )
    return Claim("kd-cell is good on small squares, and loses to kd-hybrid as queries grow.", verdict, because)


def _ratios(c: Compared) -> str:
    return f"{times(c.typical)} ({plain(float(c.ratio.min()))} to {plain(float(c.ratio.max()))})"


def _below_ten(rows: list[Row]) -> Claim:
    at = {name: _means(rows, name, EPSILONS[:1])[0] for name in PRIVATE}
    above = [name for name, found in at.items() if found.max() >= 10]
    verdict = "seen" if not above else "different" if len(above) < len(PRIVATE) else "not seen"
    because = f"At ε {EPSILONS[0]}: " + "; ".join(f"{name} {_listed(found)} %" for name, found in at.items()) + "."
    if "kd-cell" in above:
        because += " Of kd-cell see above."
    return Claim("Errors are below 10 % even at ε = 0.1.", verdict, because)


def _hybrid_is_reliable(rows: list[Row]) -> Claim:
    errors = {name: _means(rows, name).ravel() for name in PRIVATE}
    best = np.min(list(errors.values()), axis=0)
    worst = {name: float((found / best).max()) for name, found in errors.items()}
    typical = {name: float(np.exp(np.log(found).mean())) for name, found in errors.items()}
    least = [min(score, key=lambda name: score[name]) for score in (worst, typical)]
    verdict = "seen" if least == ["kd-hybrid"] * 2 else "different" if "kd-hybrid" in least else "not seen"
    first = {name: int((found <= best).sum()) for name, found in errors.items()}
    because = "At most so many times the error of the best private kd-tree in each setting: " + ", ".join(
        f"{name} {plain(worst[name])} (best in {first[name]} of {best.size}, geometric mean {plain(typical[name])} %)"
        for name in sorted(PRIVATE, key=lambda name: worst[name])
    )
    return Claim("kd-hybrid is the most reliably accurate.", verdict, because + ".")

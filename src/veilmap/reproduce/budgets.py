"""Figure 2: the worst-case error of uniform and geometric budgets, by height of a quadtree."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache, partial
from pathlib import Path

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.budgets import Geometric, LevelBudget, Uniform, level_shares
from veilmap.reproduce.accuracy import in_order, values
from veilmap.reproduce.figures import COLOURS, MARKERS, drawing, pictures
from veilmap.reproduce.study import Claim, Experiment, Row, Setting, Table, Task

HEIGHTS = range(5, 11)
BUDGETS: dict[str, LevelBudget] = {"uniform": Uniform(), "geometric": Geometric()}
RATIO = 2 ** (1 / 3)  # by which the shares of a quadtree's levels grow
UNIT = 16  # errors are multiples of 16 / ε², as in the paper
BLOCK = 1024
KINDS = {
    "formula": "the paper's closed form",
    "lemma": "our shares, n_i = 8·2^(h−i) nodes",
    "capped": "our shares, n_i = min(8·2^(h−i), 4^(h−i))",
    "exact": "our shares, the worst of all boxes",
}


def formula(budget: str, h: int) -> float:
    """Section 4.2."""
    if budget == "uniform":
        return float((h + 1) ** 2 * (2 ** (h + 1) - 1))
    return float(((2 ** ((h + 1) / 3) - 1) / (2 ** (1 / 3) - 1)) ** 3)


def variances(budget: str, h: int) -> Floats:
    """2 / ε², of a count on each level, root first, of the shares that the library has for ε = 1."""
    return np.array([2 / float(e) ** 2 for e in level_shares(BUDGETS[budget], Fraction(1), h, RATIO)])


def lemma_nodes(h: int, capped: bool) -> Ints:
    """Lemma 2, or its footnote: the most nodes that a box takes from each level, root first."""
    level = np.arange(h + 1)
    return np.minimum(8 * 2**level, 4**level) if capped else 8 * 2**level


@cache
def intervals(h: int) -> Ints:
    """Of intervals of the 2^h columns of leaves: how many columns of each level lie in them. Each kind once.

    A box takes from level l those of its nodes that no node of the level above holds. If x_l columns and y_l rows of
    the level lie in it, these are x_l·y_l − 4·x_(l−1)·y_(l−1).
    """
    lo, hi = np.triu_indices(2**h + 1, 1)
    width = 2 ** np.arange(h, -1, -1)
    inside = np.maximum(hi[:, None] // width - -(-lo[:, None] // width), 0)
    more = inside[:, 1:] - 2 * inside[:, :-1]  # than the level above explains: 0, 1 or 2
    _, one_of_each = np.unique(inside[:, 0] * 3**h + more @ 3 ** np.arange(h), return_index=True)
    kinds: Ints = inside[one_of_each]
    return kinds


def worst(variance: Floats) -> float:
    """The largest variance of any box's answer: over all pairs of intervals, Σ x_l·y_l·(v_l − 4·v_(l+1))."""
    columns = intervals(len(variance) - 1).astype(np.float64)
    weighted = columns * (variance - 4 * np.append(variance[1:], 0))
    blocks = (weighted[k : k + BLOCK] @ columns.T for k in range(0, len(columns), BLOCK))
    return float(max(block.max() for block in blocks))


def run(h: int) -> list[Row]:
    rows: list[Row] = []
    for budget in BUDGETS:
        v = variances(budget, h)
        rows.append(
            {
                "height": h,
                "budget": budget,
                "formula": formula(budget, h),
                "lemma": float(lemma_nodes(h, False) @ v) / UNIT,
                "capped": float(lemma_nodes(h, True) @ v) / UNIT,
                "exact": worst(v) / UNIT,
            }
        )
    return rows


def experiment(setting: Setting) -> Experiment:
    """It has no points, and nothing random."""
    tasks = [Task(f"height {h}", partial(run, h), cost=0.1 + 4 * 4.0 ** (h - HEIGHTS[-1])) for h in HEIGHTS]
    return Experiment(
        "fig2", "Figure 2: worst-case error of uniform and geometric budgets", tasks, tables, draw, claims
    )


def tables(rows: list[Row]) -> list[Table]:
    found = {(kind, budget): values(rows, kind, budget=budget) for kind in KINDS for budget in BUDGETS}
    header = ["Err(Q)", "budget", *(f"height {h}" for h in in_order(rows, "height"))]
    body = [[KINDS[kind], budget, *(f"{v:,.0f}" for v in line)] for (kind, budget), line in found.items()]
    for kind, words in KINDS.items():
        ratio = found[kind, "uniform"] / found[kind, "geometric"]
        body.append([words, "uniform / geometric", *(f"{v:.2f}" for v in ratio)])
    return [Table("Variance of the worst answer, in units of 16 / ε²", header, body)]


def draw(rows: list[Row], folder: Path) -> list[Path]:
    with drawing(folder, "fig2", 1, height=3.0) as (axes,):
        for k, budget in enumerate(BUDGETS):
            look = {"color": COLOURS[k], "marker": MARKERS[k]}
            axes.plot(
                in_order(rows, "height"), values(rows, "formula", budget=budget), label=f"{budget}, formula", **look
            )
            line = values(rows, "exact", budget=budget)
            axes.plot(in_order(rows, "height"), line, label=f"{budget}, worst box", ls=":", mfc="white", **look)
        axes.set(yscale="log", xlabel="height of the quadtree", ylabel="worst-case Err(Q), 16 / ε²")
        axes.legend(loc="upper left")
    return pictures(folder, "fig2")


def claims(rows: list[Row]) -> list[Claim]:
    ratio = {kind: values(rows, kind, budget="uniform") / values(rows, kind, budget="geometric") for kind in KINDS}
    return [_beats(ratio, in_order(rows, "height")), _grows(ratio, in_order(rows, "height")), _closed_form(rows)]


def _between(ratio: Floats, heights: Sequence[int]) -> str:
    return f"{ratio[0]:.2f} times at height {heights[0]} and {ratio[-1]:.2f} times at height {heights[-1]}"


def _beats(ratio: dict[str, Floats], heights: Sequence[int]) -> Claim:
    all_of_them = [bool((found > 1).all()) for found in ratio.values()]
    verdict = "seen" if all(all_of_them) else "different" if any(all_of_them) else "not seen"
    because = (
        f"The uniform budget's worst variance is {_between(ratio['formula'], heights)} that of the geometric one by "
        f"the paper's formulas, and {_between(ratio['exact'], heights)} for the worst of all boxes."
    )
    return Claim("A geometric budget has less error than a uniform one at every height.", verdict, because)


def _grows(ratio: dict[str, Floats], heights: Sequence[int]) -> Claim:
    rises = {kind: bool((np.diff(found) > 0).all()) for kind, found in ratio.items()}
    verdict = "seen" if all(rises.values()) else "different" if any(rises.values()) else "not seen"
    because = f"Their ratio rises with every level, to {ratio['formula'][-1]:.2f} by formula at height {heights[-1]}."
    if verdict != "seen":
        still = " and ".join(KINDS[kind] for kind, does in rises.items() if not does)
        because = f"Their ratio does not rise with every level for {still}: {_between(ratio['exact'], heights)}."
    return Claim("The error of a uniform budget grows much faster.", verdict, because)


def _closed_form(rows: list[Row]) -> Claim:
    off = {
        b: float(np.abs(values(rows, "lemma", budget=b) / values(rows, "formula", budget=b) - 1).max()) for b in BUDGETS
    }
    below = {b: values(rows, "exact", budget=b) / values(rows, "formula", budget=b) for b in BUDGETS}
    safe = all(float(part.max()) <= 1 for part in below.values())
    verdict = "seen" if max(off.values()) < 1e-4 and safe else "different" if safe else "not seen"
    because = (
        f"With Lemma 2's numbers of nodes the library's shares give the closed forms, to within "
        f"{max(off.values()):.1g}. No box is that bad: the worst of all has {below['uniform'].min():.2f} to "
        f"{below['uniform'].max():.2f} of the uniform bound, {below['geometric'].min():.2f} to "
        f"{below['geometric'].max():.2f} of the geometric one."
    )
    if not safe:
        because = (
            f"Some box is worse than the bound: {below['uniform'].max():.2f} and {below['geometric'].max():.2f} of it."
        )
    return Claim("Section 4.2's closed forms bound the error of every box.", verdict, because)

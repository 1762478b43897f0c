"""Figure 2: the worst-case error of uniform and geometric budgets, by the height of a quadtree."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache, partial
from pathlib import Path

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.budgets import Geometric, LevelBudget, Uniform, level_shares
from veilmap.reproduce.accuracy import distinct_values, values
from veilmap.reproduce.figures import LINE_COLOURS, LINE_MARKERS, drawing, pictures
from veilmap.reproduce.study import REPRODUCED, Claim, Experiment, Row, Setting, Table, Task, judge

TREE_HEIGHTS = range(5, 11)
COMPARED_BUDGETS: dict[str, LevelBudget] = {"uniform": Uniform(), "geometric": Geometric()}
LEVEL_SHARE_RATIO = 2 ** (1 / 3)  # growth of the geometric budget's shares from one level of a quadtree to the next
ERROR_UNIT = 16  # errors are multiples of 16 / ε², as in the paper
INTERVALS_PER_BLOCK = 1024  # bounds the memory of a matrix product
BOUND_NAMES = {
    "formula": "the paper's closed form",
    "lemma": "our shares, n_i = 8·2^(h−i) nodes",
    "capped": "our shares, n_i = min(8·2^(h−i), 4^(h−i))",
    "exact": "our shares, the worst of all boxes",
}


def formula(budget: str, h: int) -> float:
    """Return the worst-case error by the closed forms of section 4.2."""
    if budget == "uniform":
        return float((h + 1) ** 2 * (2 ** (h + 1) - 1))
    return float(((2 ** ((h + 1) / 3) - 1) / (2 ** (1 / 3) - 1)) ** 3)


def variances(budget: str, h: int) -> Floats:
    """Return the noise variance 2 / ε² of a count on each level, root first, with the library's shares for ε = 1."""
    return np.array(
        [2 / float(e) ** 2 for e in level_shares(COMPARED_BUDGETS[budget], Fraction(1), h, LEVEL_SHARE_RATIO)]
    )


def lemma_nodes(h: int, capped: bool) -> Ints:
    """Return the maximum number of nodes that a box uses from each level, root first (Lemma 2, or its footnote)."""
    level = np.arange(h + 1)
    return np.minimum(8 * 2**level, 4**level) if capped else 8 * 2**level


@cache
def intervals(h: int) -> Ints:
    """Return, for each distinct kind of interval of the 2^h leaf columns, the number of columns of each level inside.

    From level l, a box uses the nodes inside it whose parent is not inside it. If x_l columns and y_l rows of the
    level lie in the box, these are x_l·y_l − 4·x_(l−1)·y_(l−1) nodes.
    """
    lo, hi = np.triu_indices(2**h + 1, 1)
    width = 2 ** np.arange(h, -1, -1)
    inside = np.maximum(hi[:, None] // width - -(-lo[:, None] // width), 0)
    more = inside[:, 1:] - 2 * inside[:, :-1]  # columns whose parent column is not inside: 0, 1 or 2
    _, one_of_each = np.unique(inside[:, 0] * 3**h + more @ 3 ** np.arange(h), return_index=True)
    kinds: Ints = inside[one_of_each]
    return kinds


def worst(variance: Floats) -> float:
    """Return the largest variance of any box's answer: the maximum of Σ x_l·y_l·(v_l − 4·v_(l+1)) over all boxes."""
    columns = intervals(len(variance) - 1).astype(np.float64)
    weighted = columns * (variance - 4 * np.append(variance[1:], 0))
    blocks = (weighted[k : k + INTERVALS_PER_BLOCK] @ columns.T for k in range(0, len(columns), INTERVALS_PER_BLOCK))
    return float(max(block.max() for block in blocks))


def run(h: int) -> list[Row]:
    """Return the worst-case errors at one height, one row per budget."""
    rows: list[Row] = []
    for budget in COMPARED_BUDGETS:
        v = variances(budget, h)
        rows.append(
            {
                "height": h,
                "budget": budget,
                "formula": formula(budget, h),
                "lemma": float(lemma_nodes(h, False) @ v) / ERROR_UNIT,
                "capped": float(lemma_nodes(h, True) @ v) / ERROR_UNIT,
                "exact": worst(v) / ERROR_UNIT,
            }
        )
    return rows


def experiment(_: Setting) -> Experiment:
    """Return the experiment. It uses no points and no random numbers."""
    tasks = [Task(f"height {h}", partial(run, h), cost=0.1 + 4 * 4.0 ** (h - TREE_HEIGHTS[-1])) for h in TREE_HEIGHTS]
    return Experiment(
        "fig2", "Figure 2: worst-case error of uniform and geometric budgets", tasks, tables, draw, claims
    )


def tables(rows: list[Row]) -> list[Table]:
    found = {(kind, budget): values(rows, kind, budget=budget) for kind in BOUND_NAMES for budget in COMPARED_BUDGETS}
    header = ["Err(Q)", "budget", *(f"height {h}" for h in distinct_values(rows, "height"))]
    body = [[BOUND_NAMES[kind], budget, *(f"{v:,.0f}" for v in line)] for (kind, budget), line in found.items()]
    for kind, words in BOUND_NAMES.items():
        ratio = found[kind, "uniform"] / found[kind, "geometric"]
        body.append([words, "uniform / geometric", *(f"{v:.2f}" for v in ratio)])
    return [Table("Variance of the worst answer, in units of 16 / ε²", header, body)]


def draw(rows: list[Row], folder: Path) -> list[Path]:
    with drawing(folder, "fig2", 1, height=3.0) as (axes,):
        for k, budget in enumerate(COMPARED_BUDGETS):
            look = {"color": LINE_COLOURS[k], "marker": LINE_MARKERS[k]}
            axes.plot(
                distinct_values(rows, "height"),
                values(rows, "formula", budget=budget),
                label=f"{budget}, formula",
                **look,
            )
            line = values(rows, "exact", budget=budget)
            axes.plot(distinct_values(rows, "height"), line, label=f"{budget}, worst box", ls=":", mfc="white", **look)
        axes.set(yscale="log", xlabel="height of the quadtree", ylabel="worst-case Err(Q), 16 / ε²")
        axes.legend(loc="upper left")
    return pictures(folder, "fig2")


def claims(rows: list[Row]) -> list[Claim]:
    ratio = {
        kind: values(rows, kind, budget="uniform") / values(rows, kind, budget="geometric") for kind in BOUND_NAMES
    }
    return [
        _beats(ratio, distinct_values(rows, "height")),
        _grows(ratio, distinct_values(rows, "height")),
        _closed_form(rows),
    ]


def _between(ratio: Floats, heights: Sequence[int]) -> str:
    return f"{ratio[0]:.2f} times at height {heights[0]} and {ratio[-1]:.2f} times at height {heights[-1]}"


def _beats(ratio: dict[str, Floats], heights: Sequence[int]) -> Claim:
    all_of_them = [bool((found > 1).all()) for found in ratio.values()]
    verdict = judge(all(all_of_them), partly=any(all_of_them))
    because = (
        f"By the paper's formulas, the worst-case variance of the uniform budget is "
        f"{_between(ratio['formula'], heights)} that of the geometric budget. For the worst of all boxes it is "
        f"{_between(ratio['exact'], heights)}."
    )
    return Claim("A geometric budget has less error than a uniform one at every height.", verdict, because)


def _grows(ratio: dict[str, Floats], heights: Sequence[int]) -> Claim:
    rises = {kind: bool((np.diff(found) > 0).all()) for kind, found in ratio.items()}
    verdict = judge(all(rises.values()), partly=any(rises.values()))
    because = (
        f"By the paper's formulas, the ratio of the two errors rises with every level and reaches "
        f"{ratio['formula'][-1]:.2f} at height {heights[-1]}."
    )
    if verdict != REPRODUCED:
        others = " and ".join(BOUND_NAMES[kind] for kind, does in rises.items() if not does)
        because = (
            f"The ratio of the two errors does not rise with every level for {others}: "
            f"{_between(ratio['exact'], heights)}."
        )
    return Claim("The error of a uniform budget grows much faster.", verdict, because)


def _closed_form(rows: list[Row]) -> Claim:
    off = {
        b: float(np.abs(values(rows, "lemma", budget=b) / values(rows, "formula", budget=b) - 1).max())
        for b in COMPARED_BUDGETS
    }
    below = {b: values(rows, "exact", budget=b) / values(rows, "formula", budget=b) for b in COMPARED_BUDGETS}
    safe = all(float(part.max()) <= 1 for part in below.values())
    verdict = judge(max(off.values()) < 1e-4 and safe, partly=safe)
    because = (
        f"With the node counts of Lemma 2, the library's budget shares give the closed forms to within "
        f"{max(off.values()):.1g}. No box reaches the bound: the worst box has {below['uniform'].min():.2f} to "
        f"{below['uniform'].max():.2f} of the uniform bound and {below['geometric'].min():.2f} to "
        f"{below['geometric'].max():.2f} of the geometric bound."
    )
    if not safe:
        because = (
            f"The worst box exceeds the bound: it has {below['uniform'].max():.2f} of the uniform and "
            f"{below['geometric'].max():.2f} of the geometric bound."
        )
    return Claim("Section 4.2's closed forms bound the error of every box.", verdict, because)

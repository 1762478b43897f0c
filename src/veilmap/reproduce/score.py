"""How the default method compares with its rivals over many sets of points: one number, and how sure it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from veilmap.arrays import Floats
from veilmap.errors import BadInput
from veilmap.reproduce.accuracy import (
    EPSILONS,
    SHAPES,
    TINY,
    errors,
    in_order,
    made,
    plain,
    points_of,
    queries,
    seconds,
    values,
)
from veilmap.reproduce.data import PAPER_BOX
from veilmap.reproduce.figures import COLOURS, drawing, pictures
from veilmap.reproduce.rivals import methods
from veilmap.reproduce.study import Claim, Experiment, Row, Setting, Table, Task, fingerprint

OURS, AGAINST = "best", "adaptive-grid"
NAMES = (OURS, AGAINST, "privtree", "uniform-grid", "quad-opt-pruned", "kd-hybrid")
BAR = 0.75  # of the error of the adaptive grid
NOTES = (
    "Shapes are the paper's, scaled to each domain. A set's score is the geometric mean, over ε, shapes and "
    f"repetitions, of the median relative error of {OURS} over that of {AGAINST}: below 1 is better. Intervals of a "
    "set and of these sets are over repetitions; that of sets like these takes them for a sample of what else there is."
)
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 10: 2.228, 20: 2.086, np.inf: 1.960}
"""How many standard errors make 95 %, for a mean of one value more than this."""


@dataclass(frozen=True, slots=True, eq=False)
class Repeated(Setting):
    """What all sets share; each has a setting of its own."""

    times: int = 5

    @property
    def repeats(self) -> int:
        return self.times


def shared_setting(seed: int, quick: bool, repeats: int | None) -> Repeated:
    times = repeats or (3 if quick else 5)
    return Repeated(np.zeros((0, 2)), PAPER_BOX, "the sets in the tables below", seed, quick, times=times)


def experiment(setting: Setting, sets: Mapping[str, Setting]) -> Experiment:
    """A task for each set and repetition: more of either leave what is done as it is."""
    tasks = [
        Task(
            f"{name} {fingerprint(one)[:8]} repetition {repeat + 1}",
            partial(score, name, one, repeat),
            cost=len(NAMES) * len(EPSILONS) * seconds(one, None),
        )
        for name, one in sets.items()
        for repeat in range(setting.repeats)
    ]
    said = "; ".join(f"{name} ({one.source})" for name, one in sets.items())
    notes = f"{NOTES} The sets: {said}."
    return Experiment("score", f"{OURS} and its rivals on many sets of points", tasks, tables, draw, claims, notes)


def score(name: str, setting: Setting, repeat: int) -> list[Row]:
    """A row for each method, epsilon and shape."""
    try:
        asked = queries(setting)
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from None
    known = methods(setting)
    return [
        {
            "set": name,
            "points": len(points_of(setting)),
            "method": method,
            "epsilon": epsilon,
            "shape": shape,
            "repeat": repeat,
            "error": error,
        }
        for method, epsilon in product(NAMES, EPSILONS)
        for shape, error in errors(made(setting, known[method], epsilon, "score", repeat), asked).items()
    ]


# From rows to scores.


class Score(NamedTuple):
    """A geometric mean, and where it may truly lie."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f}–{self.high:.3f})"


def typical(logs: Floats) -> Score:
    """The geometric mean of two or more independent values, given as logarithms, with Student's interval at 95 %."""
    mean, n = float(logs.mean()), len(logs)
    known = [1 / freedom for freedom in STUDENT]
    reach = np.interp(1 / (n - 1), known[::-1], list(STUDENT.values())[::-1]) * logs.std(ddof=1) / np.sqrt(n)
    return Score(*np.exp([mean, mean - reach, mean + reach]).tolist())


def ratios(rows: Sequence[Row], name: str, method: str = OURS) -> Floats:
    """Logarithms of a method's errors over those of the adaptive grid: by epsilon and shape, and repetition."""
    mine = [row for row in rows if row["set"] == name]
    first, second = (
        np.array([values(mine, method=m, epsilon=e, shape=s) for e, s in product(EPSILONS, SHAPES)])
        for m in (method, AGAINST)
    )
    return np.asarray(np.log(np.maximum(first, TINY) / np.maximum(second, TINY)))


def scores(rows: Sequence[Row], method: str = OURS) -> dict[str, Score]:
    """Of each set."""
    return {name: typical(ratios(rows, name, method).mean(axis=0)) for name in in_order(rows, "set")}


def these(rows: Sequence[Row], method: str = OURS) -> Score:
    """Of all sets; done again with the same sets, it would lie in the interval."""
    return typical(np.mean([ratios(rows, name, method).mean(axis=0) for name in in_order(rows, "set")], axis=0))


def like_these(rows: Sequence[Row]) -> Score | None:
    """The same, but with other sets of their kind; not known of one set."""
    values = [score.value for score in scores(rows).values()]
    return typical(np.log(values)) if len(values) > 1 else None


def worst(found: Mapping[str, Score]) -> str:
    return max(found, key=lambda name: found[name].value)


# For people to read.


def tables(rows: list[Row]) -> list[Table]:
    return [*(_errors(rows, name) for name in in_order(rows, "set")), _rivals(rows), _summary(rows)]


def _errors(rows: list[Row], name: str) -> Table:
    mine, body = [row for row in rows if row["set"] == name], []
    for epsilon, method in product(EPSILONS, NAMES):
        found = [values(mine, method=method, epsilon=epsilon, shape=shape).mean() for shape in SHAPES]
        body.append([method, epsilon, *(plain(100 * error, 3) for error in found)])
    title = f"{name}, {mine[0]['points']:,} points: median relative error by shape, %, mean of the repetitions"
    return Table(title, ["method", "ε", *SHAPES], body)


def _rivals(rows: list[Row]) -> Table:
    found = {method: scores(rows, method) for method in NAMES if method != AGAINST}
    body = [[name, *(f"{one[name].value:.2f}" for one in found.values())] for name in in_order(rows, "set")]
    body.append(["all sets", *(f"{these(rows, method).value:.2f}" for method in found)])
    return Table(f"Every method over {AGAINST}: geometric mean over ε and shapes", ["set", *found], body)


def _summary(rows: list[Row]) -> Table:
    found, body = scores(rows), []
    for name, one in found.items():
        cells, points = np.exp(ratios(rows, name).mean(axis=1)), next(r["points"] for r in rows if r["set"] == name)
        below = f"{int((cells < 1).sum())} of {len(cells)}"
        body.append([name, f"{points:,}", *_words(one), below, f"{cells.max():.2f}"])
    low = sum(score.value < 1 for score in found.values())
    body.append([f"worst: {worst(found)}", "", *_words(found[worst(found)]), "", ""])
    body.append(["these sets", "", *_words(these(rows)), f"{low} of {len(found)}", ""])
    if others := like_these(rows):
        body.append(["sets like these", "", *_words(others), "", ""])
    header = ["set", "points", "score", "95 % interval", "below 1", "highest"]
    title = (
        f"{OURS} ÷ {AGAINST}: geometric mean over ε, shapes and repetitions; how many of the {len(EPSILONS)} × "
        f"{len(SHAPES)} ε and shapes are below 1, and the highest of them"
    )
    return Table(title, header, body)


def _words(score: Score) -> tuple[str, str]:
    return f"{score.value:.3f}", f"{score.low:.3f}–{score.high:.3f}"


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """A line a set, from the best to the worst, and one for all of them."""
    found = scores(rows)
    ordered = dict(sorted(found.items(), key=lambda item: -item[1].value)) | {"these sets": these(rows)}
    if others := like_these(rows):
        ordered["sets like these"] = others
    with drawing(folder, "score", 1, height=1.0 + 0.2 * len(ordered)) as (axes,):
        axes.axvline(1, color="#333333", lw=0.8)
        for line, one in enumerate(ordered.values()):
            colour = COLOURS[0 if line < len(found) else 1]
            reach = [[one.value - one.low], [one.high - one.value]]
            axes.errorbar(one.value, line, xerr=reach, color=colour, fmt="o", ms=4, elinewidth=1)
        axes.set_yticks(range(len(ordered)), list(ordered))
        axes.set_xlabel(f"{OURS} ÷ {AGAINST}")
        axes.set_xlim(0, max(1.05, *(1.1 * one.value for one in ordered.values())))
        axes.grid(False, axis="y")
    return pictures(folder, "score")


def claims(rows: list[Row]) -> list[Claim]:
    found = scores(rows)
    every, last = these(rows), worst(found)
    above = [f"{name} {one}" for name, one in found.items() if one.value > 1]
    surely = any(one.low > 1 for one in found.values())
    return [
        Claim(
            f"The error of {OURS} is at most {BAR} of that of {AGAINST}, over all sets.",
            "seen" if every.value <= BAR else "not seen" if every.low > BAR else "different",
            f"{every} over {len(found)} {'set' if len(found) == 1 else 'sets'}"
            + (f", and {others} for others like these." if (others := like_these(rows)) else "."),
        ),
        Claim(
            f"On no set is the error of {OURS} above that of {AGAINST}.",
            "seen" if not above else "not seen" if surely else "different",
            f"The worst is {last}: {found[last]}." if not above else f"Above: {'; '.join(above)}.",
        ),
    ]

"""Compare the default method with competing methods over many sets of points: a score with a confidence interval."""

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
    MIN_RELATIVE_ERROR,
    QUERY_SHAPES,
    STUDY_EPSILONS,
    distinct_values,
    errors,
    format_number,
    make_release,
    queries,
    release_seconds,
    study_points,
    values,
)
from veilmap.reproduce.data import PAPER_BOX
from veilmap.reproduce.figures import LINE_COLOURS, drawing, pictures
from veilmap.reproduce.rivals import methods
from veilmap.reproduce.study import Claim, Experiment, Row, Setting, Table, Task, fingerprint, judge

SCORED_METHOD = "best"
REFERENCE_METHOD = "adaptive-grid"
COMPARED_METHODS = (SCORED_METHOD, REFERENCE_METHOD, "privtree", "uniform-grid", "quad-opt-pruned", "kd-hybrid")
TARGET_RATIO = 0.75  # error of the scored method / error of the reference method
SETUP_NOTES = (
    "Shapes are the paper's, scaled to each domain. A set's score is the geometric mean, over ε, shapes and "
    f"repetitions, of the median relative error of {SCORED_METHOD} divided by that of {REFERENCE_METHOD}: below 1 is "
    "better. The intervals of a single set and of these sets are over repetitions. The interval of sets like these "
    "treats the sets as a random sample of all such sets."
)
STUDENT_T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 10: 2.228, 20: 2.086, np.inf: 1.960}
"""Half-width of a 95 % confidence interval in standard errors, by degrees of freedom (Student's t distribution)."""


@dataclass(frozen=True, slots=True, eq=False)
class RepeatedSetting(Setting):
    """The setting that all sets share, with a given number of repetitions. Each set also has its own setting."""

    times: int = 5

    @property
    def repeats(self) -> int:
        """Return the number of repetitions."""
        return self.times


def shared_setting(seed: int, quick: bool, repeats: int | None) -> RepeatedSetting:
    """Return the shared setting, with 5 repetitions by default, or 3 if it is quick."""
    times = repeats or (3 if quick else 5)
    return RepeatedSetting(np.zeros((0, 2)), PAPER_BOX, "the sets in the tables below", seed, quick, times=times)


def experiment(setting: Setting, sets: Mapping[str, Setting]) -> Experiment:
    """Return the experiment with one task per set and repetition, so that adding more keeps the finished ones."""
    tasks = [
        Task(
            f"{name} {fingerprint(one)[:8]} repetition {repeat + 1}",
            partial(score, name, one, repeat),
            cost=len(COMPARED_METHODS) * len(STUDY_EPSILONS) * release_seconds(one, None),
        )
        for name, one in sets.items()
        for repeat in range(setting.repeats)
    ]
    sources = "; ".join(f"{name} ({one.source})" for name, one in sets.items())
    notes = f"{SETUP_NOTES} The sets: {sources}."
    return Experiment(
        "score", f"{SCORED_METHOD} and competing methods on many sets of points", tasks, tables, draw, claims, notes
    )


def score(name: str, setting: Setting, repeat: int) -> list[Row]:
    """Return one row per method, epsilon and shape."""
    try:
        asked = queries(setting)
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from None
    known = methods(setting)
    return [
        {
            "set": name,
            "points": len(study_points(setting)),
            "method": method,
            "epsilon": epsilon,
            "shape": shape,
            "repeat": repeat,
            "error": error,
        }
        for method, epsilon in product(COMPARED_METHODS, STUDY_EPSILONS)
        for shape, error in errors(make_release(setting, known[method], epsilon, "score", repeat), asked).items()
    ]


# From rows to scores.


class Score(NamedTuple):
    """A geometric mean with its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f}–{self.high:.3f})"


def typical(logs: Floats) -> Score:
    """Return the geometric mean of two or more independent values, given as logarithms, with its 95 % interval."""
    mean, n = float(logs.mean()), len(logs)
    known = [1 / freedom for freedom in STUDENT_T_95]
    reach = np.interp(1 / (n - 1), known[::-1], list(STUDENT_T_95.values())[::-1]) * logs.std(ddof=1) / np.sqrt(n)
    return Score(*np.exp([mean, mean - reach, mean + reach]).tolist())


def ratios(rows: Sequence[Row], name: str, method: str = SCORED_METHOD) -> Floats:
    """Return log(error / error of the reference method): one row per epsilon and shape, one column per repetition."""
    mine = [row for row in rows if row["set"] == name]
    first, second = (
        np.array([values(mine, method=m, epsilon=e, shape=s) for e, s in product(STUDY_EPSILONS, QUERY_SHAPES)])
        for m in (method, REFERENCE_METHOD)
    )
    return np.asarray(np.log(np.maximum(first, MIN_RELATIVE_ERROR) / np.maximum(second, MIN_RELATIVE_ERROR)))


def scores(rows: Sequence[Row], method: str = SCORED_METHOD) -> dict[str, Score]:
    """Return the score of each set."""
    return {name: typical(ratios(rows, name, method).mean(axis=0)) for name in distinct_values(rows, "set")}


def overall_score(rows: Sequence[Row], method: str = SCORED_METHOD) -> Score:
    """Return the score over all sets. Its interval covers repetitions with the same sets."""
    return typical(np.mean([ratios(rows, name, method).mean(axis=0) for name in distinct_values(rows, "set")], axis=0))


def population_score(rows: Sequence[Row]) -> Score | None:
    """Return the score for the population of sets like these, or None if there is only one set."""
    values = [score.value for score in scores(rows).values()]
    return typical(np.log(values)) if len(values) > 1 else None


def worst(found: Mapping[str, Score]) -> str:
    """Return the name of the set with the highest score."""
    return max(found, key=lambda name: found[name].value)


# Tables, picture and claims.


def tables(rows: list[Row]) -> list[Table]:
    return [*(_errors(rows, name) for name in distinct_values(rows, "set")), _rivals(rows), _summary(rows)]


def _errors(rows: list[Row], name: str) -> Table:
    mine, body = [row for row in rows if row["set"] == name], []
    for epsilon, method in product(STUDY_EPSILONS, COMPARED_METHODS):
        found = [values(mine, method=method, epsilon=epsilon, shape=shape).mean() for shape in QUERY_SHAPES]
        body.append([method, epsilon, *(format_number(100 * error, 3) for error in found)])
    title = f"{name}, {mine[0]['points']:,} points: median relative error by shape, %, mean of the repetitions"
    return Table(title, ["method", "ε", *QUERY_SHAPES], body)


def _rivals(rows: list[Row]) -> Table:
    found = {method: scores(rows, method) for method in COMPARED_METHODS if method != REFERENCE_METHOD}
    body = [[name, *(f"{one[name].value:.2f}" for one in found.values())] for name in distinct_values(rows, "set")]
    body.append(["all sets", *(f"{overall_score(rows, method).value:.2f}" for method in found)])
    return Table(f"Every method ÷ {REFERENCE_METHOD}: geometric mean over ε and shapes", ["set", *found], body)


def _summary(rows: list[Row]) -> Table:
    found, body = scores(rows), []
    for name, one in found.items():
        cells, points = np.exp(ratios(rows, name).mean(axis=1)), next(r["points"] for r in rows if r["set"] == name)
        below = f"{int((cells < 1).sum())} of {len(cells)}"
        body.append([name, f"{points:,}", *_words(one), below, f"{cells.max():.2f}"])
    low = sum(score.value < 1 for score in found.values())
    body.append([f"worst: {worst(found)}", "", *_words(found[worst(found)]), "", ""])
    body.append(["these sets", "", *_words(overall_score(rows)), f"{low} of {len(found)}", ""])
    if others := population_score(rows):
        body.append(["sets like these", "", *_words(others), "", ""])
    header = ["set", "points", "score", "95 % interval", "below 1", "highest"]
    title = (
        f"{SCORED_METHOD} ÷ {REFERENCE_METHOD}: geometric mean over ε, shapes and repetitions; number of the "
        f"{len(STUDY_EPSILONS)} × {len(QUERY_SHAPES)} combinations of ε and shape below 1, and the highest of them"
    )
    return Table(title, header, body)


def _words(score: Score) -> tuple[str, str]:
    return f"{score.value:.3f}", f"{score.low:.3f}–{score.high:.3f}"


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """Draw one line per set, ordered by score, and lines for all sets together."""
    found = scores(rows)
    ordered = dict(sorted(found.items(), key=lambda item: -item[1].value)) | {"these sets": overall_score(rows)}
    if others := population_score(rows):
        ordered["sets like these"] = others
    with drawing(folder, "score", 1, height=1.0 + 0.2 * len(ordered)) as (axes,):
        axes.axvline(1, color="#333333", lw=0.8)
        for line, one in enumerate(ordered.values()):
            colour = LINE_COLOURS[0 if line < len(found) else 1]
            reach = [[one.value - one.low], [one.high - one.value]]
            axes.errorbar(one.value, line, xerr=reach, color=colour, fmt="o", ms=4, elinewidth=1)
        axes.set_yticks(range(len(ordered)), list(ordered))
        axes.set_xlabel(f"{SCORED_METHOD} ÷ {REFERENCE_METHOD}")
        axes.set_xlim(0, max(1.05, *(1.1 * one.value for one in ordered.values())))
        axes.grid(False, axis="y")
    return pictures(folder, "score")


def claims(rows: list[Row]) -> list[Claim]:
    found = scores(rows)
    every, last = overall_score(rows), worst(found)
    above = [f"{name} {one}" for name, one in found.items() if one.value > 1]
    surely = any(one.low > 1 for one in found.values())
    return [
        Claim(
            f"The error of {SCORED_METHOD} is at most {TARGET_RATIO} of that of {REFERENCE_METHOD}, over all sets.",
            judge(every.value <= TARGET_RATIO, partly=every.low <= TARGET_RATIO),
            f"{every} over {len(found)} {'set' if len(found) == 1 else 'sets'}"
            + (f", and {others} for other sets like these." if (others := population_score(rows)) else "."),
        ),
        Claim(
            f"On no set is the error of {SCORED_METHOD} above that of {REFERENCE_METHOD}.",
            judge(not above, partly=not surely),
            f"The worst is {last}: {found[last]}." if not above else f"Above: {'; '.join(above)}.",
        ),
    ]

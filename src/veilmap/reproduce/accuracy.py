"""How far answers are off: boxes of the paper's shapes, what they truly hold, and the errors of releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import veilmap as vm
from veilmap.arrays import Floats, Ints
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.method.method import Method, Noise, PostProcessing
from veilmap.method.registry import METHODS
from veilmap.releases.release import Release
from veilmap.reproduce.data import PAPER_BOX
from veilmap.reproduce.figures import COLOURS, MARKERS, drawing, pictures
from veilmap.reproduce.study import FEWER, Row, Setting, Table, Task, seed_of
from veilmap.testing import fixed_entropy

SHAPES = {"(1, 1)": (1.0, 1.0), "(5, 5)": (5.0, 5.0), "(10, 10)": (10.0, 10.0), "(15, 0.2)": (15.0, 0.2)}  # degrees
EPSILONS = ("0.1", "0.5", "1")
ASKED = 600  # boxes of each shape
MOST_TRIES = 300_000  # to find them
QUAD_HEIGHT, KD_HEIGHT, PRUNE = 10, 8, 32.0  # the paper's
HEIGHTS = dict.fromkeys(("quad-baseline", "quad-geo", "quad-post", "quad-opt"), QUAD_HEIGHT) | dict.fromkeys(
    ("kd-pure", "kd-true", "kd-standard", "kd-hybrid", "kd-cell", "kd-noisymean", "hilbert-r"), KD_HEIGHT
)
"""The methods of the paper, and how high it grows them where height is not what it studies."""
TINY = 1e-9  # an error, where there is none at all
LONG = 1 / 3  # of the domain, along some axis
CELLS = 1964  # a side: as many in all as of the paper's length of 0.01 in the paper's box


class Look(NamedTuple):
    """A method looks the same in every figure."""

    colour: str
    marker: str
    hatch: str


LOOKS = {
    name: Look(COLOURS[colour], MARKERS[marker], hatch)
    for name, colour, marker, hatch in (
        ("quad-opt", 0, 0, ""),
        ("kd-hybrid", 1, 1, "///"),
        ("kd-cell", 2, 2, "..."),
        ("hilbert-r", 3, 3, "xxx"),
        ("kd-standard", 4, 4, "\\\\\\"),
        ("kd-noisymean", 5, 5, "---"),
        ("kd-pure", 6, 6, ""),
        ("kd-true", 7, 7, "|||"),
        ("quad-baseline", 1, 1, "///"),
        ("quad-geo", 4, 4, "\\\\\\"),
        ("quad-post", 2, 2, "..."),
        ("quad-exact", 6, 6, ""),
        ("quad-opt-pruned", 7, 7, "|||"),
        ("privtree", 6, 6, ""),
        ("best", 0, 0, ""),
    )
}


# Boxes, and what they hold.


class Asked(NamedTuple):
    """Boxes of one shape, each with a point in it at least."""

    boxes: Floats
    truth: Ints


def size_of(shape: str, domain: Domain) -> Floats:
    """The sides of a shape: degrees in the paper's box, and the same parts of another."""
    part: Floats = np.array(SHAPES[shape]) / (PAPER_BOX.hi - PAPER_BOX.lo)
    return part * (domain.hi - domain.lo)


@lru_cache(maxsize=2)
def points_of(setting: Setting) -> Floats:
    """All points, or some of them for a quick study."""
    if not setting.quick or len(setting.points) <= FEWER:
        return setting.points
    some = np.random.default_rng(seed_of(setting.seed, "points")).choice(len(setting.points), FEWER, replace=False)
    return np.ascontiguousarray(setting.points[np.sort(some)])


@lru_cache(maxsize=2)
def queries(setting: Setting) -> dict[str, Asked]:
    """600 random boxes of each shape that hold a point, the same for every experiment of a run."""
    points = points_of(setting)
    ordered = points[np.argsort(points[:, 0])]
    return {shape: _ask(ordered, setting, shape) for shape in SHAPES}


def _ask(ordered: Floats, setting: Setting, shape: str) -> Asked:
    rng = np.random.default_rng(seed_of(setting.seed, "queries", shape))
    size, boxes, truth = size_of(shape, setting.domain), [np.zeros((0, 4))], [np.zeros(0, np.int64)]
    found = tried = 0
    while found < ASKED:
        if tried >= MOST_TRIES:
            raise BadInput(
                f"Of {tried:,} random boxes of the shape {shape} fewer than {ASKED} hold a point: "
                f"give a domain that is closer around the points, or more points."
            )
        low = rng.uniform(setting.domain.lo, setting.domain.hi - size, (ASKED, 2))
        tries = np.hstack([low, low + size])
        held = held_by(ordered, tries)
        boxes.append(tries[held > 0])
        truth.append(held[held > 0])
        found, tried = found + len(truth[-1]), tried + len(tries)
    return Asked(np.concatenate(boxes)[:ASKED], np.concatenate(truth)[:ASKED])


def held_by(ordered: Floats, boxes: Floats) -> Ints:
    """How many points each box holds, its borders included. The points are in order of their first coordinate."""
    x, y = np.ascontiguousarray(ordered[:, 0]), np.ascontiguousarray(ordered[:, 1])
    first, last = np.searchsorted(x, boxes[:, 0]), np.searchsorted(x, boxes[:, 2], "right")
    parts = (y[a:b] for a, b in zip(first, last, strict=True))
    counts = (
        np.count_nonzero((part >= lo) & (part <= hi)) for part, (lo, hi) in zip(parts, boxes[:, [1, 3]], strict=True)
    )
    return np.fromiter(counts, np.int64, len(boxes))


def errors(release: Release, asked: Mapping[str, Asked]) -> dict[str, float]:
    """|answer − truth| / truth, the median of the boxes of each shape."""
    answers = release.count(np.concatenate([a.boxes for a in asked.values()])).estimate
    out, at = {}, 0
    for shape, (boxes, truth) in asked.items():
        out[shape] = float(np.median(np.abs(answers[at : at + len(boxes)] - truth) / truth))
        at += len(boxes)
    return out


# Methods, and rows of their errors.


def as_in_the_paper(method: Method) -> Method:
    """With the height, the pruning and the cells of the paper's study, if it is one of the paper's."""
    if method.name not in HEIGHTS:
        return method
    below = None if isinstance(method.structure, vm.Quadtree) else PRUNE
    method = replace(at_height(method, HEIGHTS[method.name]), prune_below=below)
    if isinstance(method.structure, vm.CellTree):
        return replace(method, structure=replace(method.structure, cells=CELLS))
    return method


def at_height(method: Method, height: int) -> Method:
    return replace(method, structure=replace(method.structure, height=height))  # type: ignore[type-var]


def paper_methods(*names: str) -> dict[str, Method]:
    return {name: as_in_the_paper(METHODS[name]) for name in names}


def suited(setting: Setting, methods: Mapping[str, Method]) -> dict[str, Method]:
    """A quick study has fewer points, and its quadtrees one level less."""
    if not setting.quick:
        return dict(methods)
    return {
        name: at_height(method, quad_height(setting)) if isinstance(method.structure, vm.Quadtree) else method
        for name, method in methods.items()
    }


def quad_height(setting: Setting) -> int:
    return QUAD_HEIGHT - 1 if setting.quick else QUAD_HEIGHT


def pruned_quadtree() -> Method:
    """quad-opt, pruned as the paper prunes its kd-trees: it does not say whether it pruned quadtrees."""
    return replace(as_in_the_paper(METHODS["quad-opt"]), name="quad-opt-pruned", prune_below=PRUNE)


EXACT_QUADTREE = Method(
    name="quad-exact", structure=vm.Quadtree(QUAD_HEIGHT), noise=Noise.NONE, estimate=PostProcessing.NOISY_COUNTS
)
"""What is left of the error without any noise, since points do not lie evenly in cells that a border cuts."""


def made(setting: Setting, method: Method, epsilon: str, *what: object) -> Release:
    """A release whose random numbers depend on the study's seed, and on what it is for."""
    with fixed_entropy(seed_of(setting.seed, method.name, epsilon, *what)):
        return vm.release(points_of(setting), setting.domain, epsilon, method, allow_nonprivate=True)


def rows_of(
    setting: Setting,
    figure: str,
    method: Method,
    epsilon: str,
    *,
    height: int | None = None,
    spent: str | None = None,
    leaves: bool = False,
) -> list[Row]:
    """The errors of one method, once for every shape and repeat.

    ``spent`` is for yardsticks that spend more than they are compared at; ``leaves`` adds how these look.
    """
    asked, rows = queries(setting), list[Row]()
    known: Row = {"method": method.name, "epsilon": epsilon}
    if height is not None:
        method, known = at_height(method, height), known | {"height": height}
    for repeat in range(setting.repeats):
        release = made(setting, method, spent or epsilon, figure, height, repeat)
        more = leaf_shape(release) if leaves else {}
        rows += [
            {**known, "shape": shape, "repeat": repeat, "error": error, **more}
            for shape, error in errors(release, asked).items()
        ]
    return rows


def leaf_shape(release: Release) -> Row:
    """The share of points in long leaves."""
    nodes = release.estimates
    leaf = nodes.tree.children == 0
    side: Floats = (nodes.tree.hi[leaf] - nodes.tree.lo[leaf]) / release.domain.side
    held = np.maximum(nodes.estimate[leaf], 0)
    return {"in_long_leaves": float(held[side.max(axis=1) > LONG].sum() / max(held.sum(), 1))}


def seconds(setting: Setting, height: int | None) -> float:
    """About what a release takes, with its answers: by points, and by leaves."""
    leaves = 0.0 if height is None else 4.0 ** (height - KD_HEIGHT)
    return 0.05 + 0.4 * min(len(setting.points), FEWER if setting.quick else 10**9) / 1e6 + 0.06 * leaves


def tasks_of(
    setting: Setting, figure: str, methods: Mapping[str, Method], epsilons: Sequence[str], leaves: bool = False
) -> list[Task]:
    """A task for each method and epsilon."""
    return [
        Task(
            f"{name} epsilon {epsilon}",
            partial(rows_of, setting, figure, method, epsilon, leaves=leaves),
            cost=setting.repeats * seconds(setting, None),
        )
        for name, method in suited(setting, methods).items()
        for epsilon in epsilons
    ]


# Reading rows.


def values(rows: Sequence[Row], column: str = "error", **where: object) -> Floats:
    """A column of the rows that fit, a value a repeat."""
    found = [float(row[column]) for row in rows if all(row[name] == value for name, value in where.items())]
    return np.array(found)


def in_order(rows: Sequence[Row], column: str) -> list[Any]:
    """What a column has, each once, as it first comes."""
    return list(dict.fromkeys(row[column] for row in rows))


def plain(value: float, digits: int = 2) -> str:
    """With so many digits, and never as a power of ten."""
    return f"{value:.{digits}g}" if value < 10**digits else f"{value:.0f}"


def times(ratio: float) -> str:
    return f"{ratio:.2f} times" if ratio < 10 else f"{ratio:.0f} times"


class Compared(NamedTuple):
    """Errors of one method and of another, mean by mean, over epsilons and shapes."""

    where: list[str]
    ratio: Floats  # of the first to the second
    clearly: int  # so many times every repeat of the first is below every one of the second

    @property
    def lower(self) -> int:
        return int((self.ratio < 1).sum())

    @property
    def typical(self) -> float:
        return float(np.exp(np.log(self.ratio).mean()))

    def __str__(self) -> str:
        low, high = int(self.ratio.argmin()), int(self.ratio.argmax())
        return (
            f"{times(self.typical)} (from {self.ratio[low]:.2f} at {self.where[low]} to {self.ratio[high]:.2f} at "
            f"{self.where[high]})"
        )


def compared(
    rows: Sequence[Row], first: str, second: str, epsilons: Sequence[str] = EPSILONS, shapes: Sequence[str] = ()
) -> Compared:
    where, ratio, clearly = [], [], 0
    for epsilon, shape in product(epsilons, shapes or SHAPES):
        a, b = (values(rows, method=name, epsilon=epsilon, shape=shape) for name in (first, second))
        where.append(f"ε {epsilon} {shape}")
        ratio.append(max(a.mean(), TINY) / max(b.mean(), TINY))
        clearly += int(a.max() < b.min())
    return Compared(where, np.array(ratio), clearly)


def per_cent(found: Floats) -> str:
    """Mean, and from the lowest to the highest."""
    mean, low, high = (plain(100 * float(v), 3) for v in (found.mean(), found.min(), found.max()))
    return mean if found.min() == found.max() else f"{mean} ({low}–{high})"


def tables_by_shape(rows: list[Row]) -> list[Table]:
    """A table for each epsilon."""
    return [
        Table(
            f"Median relative error at ε = {epsilon}, %: mean (lowest–highest of the repeats)",
            ["method", *SHAPES],
            [
                [name, *(per_cent(values(rows, method=name, epsilon=epsilon, shape=s)) for s in SHAPES)]
                for name in in_order(rows, "method")
            ],
        )
        for epsilon in in_order(rows, "epsilon")
    ]


def draw_bars(rows: list[Row], folder: Path, figure: str, floor: str = "") -> list[Path]:
    """A panel for each epsilon; ``floor`` is a yardstick that is drawn as a line across each group."""
    names = [name for name in in_order(rows, "method") if name in LOOKS and name != floor]
    width = 0.84 / len(names)
    with drawing(folder, figure, len(EPSILONS), shared=True) as panels:
        for axes, epsilon in zip(panels, EPSILONS, strict=True):
            axes.grid(False, axis="x")
            for k, name in enumerate(names):
                _bars(axes, np.arange(len(SHAPES), dtype=float) - 0.42 + (k + 0.5) * width, width, rows, name, epsilon)
            if floor:
                heights = [100 * values(rows, method=floor, epsilon=epsilon, shape=s).mean() for s in SHAPES]
                for at, height in enumerate(heights):
                    axes.plot([at - 0.46, at + 0.46], [height] * 2, color="black", lw=1.2, ls=(0, (3, 1)), label=floor)
            axes.set(title=f"ε = {epsilon}", yscale="log", xlabel="query shape, degrees of the paper's box")
            axes.set_xticks(range(len(SHAPES)), list(SHAPES))
            axes.tick_params(axis="x", length=0)
        panels[0].set_ylabel("median relative error, %")
        for axes in panels:
            axes.yaxis.set_major_formatter("{x:g}")
        known = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
        shown = [*names, floor] if floor else names
        words = [*names, f"{floor} (no noise)"] if floor else names
        panels[0].figure.legend([known[n] for n in shown], words, loc="outside lower center", ncols=len(shown))
    return pictures(folder, figure)


def _bars(axes: Any, at: Floats, width: float, rows: list[Row], name: str, epsilon: str) -> None:
    found = [100 * values(rows, method=name, epsilon=epsilon, shape=shape) for shape in SHAPES]
    mean = np.array([v.mean() for v in found])
    reach = [mean - [v.min() for v in found], [v.max() for v in found] - mean]
    look = LOOKS[name]
    axes.bar(at, mean, width, color=look.colour, hatch=look.hatch, edgecolor="white", linewidth=0.4, label=name)
    axes.errorbar(at, mean, reach, fmt="none", ecolor="#333333", elinewidth=0.7, capsize=1.2)

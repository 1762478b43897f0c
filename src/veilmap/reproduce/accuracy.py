"""Query accuracy: boxes of the paper's shapes, their true counts, and the errors of releases."""

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
from veilmap.reproduce.figures import LINE_COLOURS, LINE_MARKERS, drawing, pictures
from veilmap.reproduce.study import QUICK_POINTS, Row, Setting, Table, Task, seed_of
from veilmap.testing import fixed_entropy

QUERY_SHAPES = {
    "(1, 1)": (1.0, 1.0),
    "(5, 5)": (5.0, 5.0),
    "(10, 10)": (10.0, 10.0),
    "(15, 0.2)": (15.0, 0.2),
}  # degrees
STUDY_EPSILONS = ("0.1", "0.5", "1")
BOXES_PER_SHAPE = 600
MAX_BOXES_TRIED = 300_000  # random boxes per shape, to find enough that are not empty
QUAD_HEIGHT = 10  # as in the paper
KD_HEIGHT = 8  # as in the paper
PRUNE_BELOW_COUNT = 32.0  # as in the paper
PAPER_HEIGHTS = dict.fromkeys(("quad-baseline", "quad-geo", "quad-post", "quad-opt"), QUAD_HEIGHT) | dict.fromkeys(
    ("kd-pure", "kd-true", "kd-standard", "kd-hybrid", "kd-cell", "kd-noisymean", "hilbert-r"), KD_HEIGHT
)
"""The methods of the paper, with the heights that it uses in the experiments that do not vary the height."""
MIN_RELATIVE_ERROR = 1e-9  # replaces an error of 0 in ratios
LONG_LEAF_FRACTION = 1 / 3  # a leaf is long if it spans more than this fraction of the domain along an axis
GRID_CELLS_PER_AXIS = 1964  # gives as many cells as the paper's cell length of 0.01 in the paper's box


class MethodStyle(NamedTuple):
    """The style of a method, which is the same in every figure."""

    colour: str
    marker: str
    hatch: str


METHOD_STYLES = {
    name: MethodStyle(LINE_COLOURS[colour], LINE_MARKERS[marker], hatch)
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


# Boxes and their true counts.


class ShapeQueries(NamedTuple):
    """Non-empty boxes of one shape, and their true counts."""

    boxes: Floats
    truth: Ints


def shape_size(shape: str, domain: Domain) -> Floats:
    """Return the sides of a shape: degrees in the paper's box, and the same fractions of any other domain."""
    fraction: Floats = np.array(QUERY_SHAPES[shape]) / (PAPER_BOX.hi - PAPER_BOX.lo)
    return fraction * (domain.hi - domain.lo)


@lru_cache(maxsize=2)
def study_points(setting: Setting) -> Floats:
    """Return all points, or a random sample of them for a quick study."""
    if not setting.quick or len(setting.points) <= QUICK_POINTS:
        return setting.points
    some = np.random.default_rng(seed_of(setting.seed, "points")).choice(
        len(setting.points), QUICK_POINTS, replace=False
    )
    return np.ascontiguousarray(setting.points[np.sort(some)])


@lru_cache(maxsize=2)
def queries(setting: Setting) -> dict[str, ShapeQueries]:
    """Return 600 random non-empty boxes of each shape, the same for every experiment of a run."""
    points = study_points(setting)
    ordered = points[np.argsort(points[:, 0])]
    return {shape: _draw_queries(ordered, setting, shape) for shape in QUERY_SHAPES}


def _draw_queries(ordered: Floats, setting: Setting, shape: str) -> ShapeQueries:
    rng = np.random.default_rng(seed_of(setting.seed, "queries", shape))
    size, boxes, truth = shape_size(shape, setting.domain), [np.zeros((0, 4))], [np.zeros(0, np.int64)]
    found = tried = 0
    while found < BOXES_PER_SHAPE:
        if tried >= MAX_BOXES_TRIED:
            raise BadInput(
                f"Fewer than {BOXES_PER_SHAPE} of {tried:,} random boxes of the shape {shape} contain a point. "
                f"Give a domain that fits the points more closely, or more points."
            )
        low = rng.uniform(setting.domain.lo, setting.domain.hi - size, (BOXES_PER_SHAPE, 2))
        candidates = np.hstack([low, low + size])
        counts = count_in_boxes(ordered, candidates)
        boxes.append(candidates[counts > 0])
        truth.append(counts[counts > 0])
        found, tried = found + len(truth[-1]), tried + len(candidates)
    return ShapeQueries(np.concatenate(boxes)[:BOXES_PER_SHAPE], np.concatenate(truth)[:BOXES_PER_SHAPE])


def count_in_boxes(ordered: Floats, boxes: Floats) -> Ints:
    """Return the number of points in each box, borders included. The points must be sorted by first coordinate."""
    x, y = np.ascontiguousarray(ordered[:, 0]), np.ascontiguousarray(ordered[:, 1])
    first, last = np.searchsorted(x, boxes[:, 0]), np.searchsorted(x, boxes[:, 2], "right")
    parts = (y[a:b] for a, b in zip(first, last, strict=True))
    counts = (
        np.count_nonzero((part >= lo) & (part <= hi)) for part, (lo, hi) in zip(parts, boxes[:, [1, 3]], strict=True)
    )
    return np.fromiter(counts, np.int64, len(boxes))


def errors(release: Release, asked: Mapping[str, ShapeQueries]) -> dict[str, float]:
    """Return the median of |answer − truth| / truth over the boxes of each shape."""
    answers = release.count(np.concatenate([a.boxes for a in asked.values()])).estimate
    out, at = {}, 0
    for shape, (boxes, truth) in asked.items():
        out[shape] = float(np.median(np.abs(answers[at : at + len(boxes)] - truth) / truth))
        at += len(boxes)
    return out


# Methods, and the rows of their errors.


def as_in_the_paper(method: Method) -> Method:
    """Return a method with the height, pruning and cells of the paper's study, or as it is if not in the paper."""
    if method.name not in PAPER_HEIGHTS:
        return method
    below = None if isinstance(method.structure, vm.Quadtree) else PRUNE_BELOW_COUNT
    method = replace(at_height(method, PAPER_HEIGHTS[method.name]), prune_below=below)
    if isinstance(method.structure, vm.CellTree):
        return replace(method, structure=replace(method.structure, cells=GRID_CELLS_PER_AXIS))
    return method


def at_height(method: Method, height: int) -> Method:
    """Return a method with another height."""
    return replace(method, structure=replace(method.structure, height=height))  # type: ignore[type-var]


def paper_methods(*names: str) -> dict[str, Method]:
    """Return methods with the parameters of the paper's study."""
    return {name: as_in_the_paper(METHODS[name]) for name in names}


def adapt_methods(setting: Setting, methods: Mapping[str, Method]) -> dict[str, Method]:
    """Return the methods for a setting. A quick study has fewer points, so its quadtrees have one level fewer."""
    if not setting.quick:
        return dict(methods)
    return {
        name: at_height(method, quad_height(setting)) if isinstance(method.structure, vm.Quadtree) else method
        for name, method in methods.items()
    }


def quad_height(setting: Setting) -> int:
    return QUAD_HEIGHT - 1 if setting.quick else QUAD_HEIGHT


def pruned_quadtree() -> Method:
    """Return quad-opt with the pruning of the paper's kd-trees. The paper does not say whether it prunes quadtrees."""
    return replace(as_in_the_paper(METHODS["quad-opt"]), name="quad-opt-pruned", prune_below=PRUNE_BELOW_COUNT)


EXACT_QUADTREE = Method(
    name="quad-exact", structure=vm.Quadtree(QUAD_HEIGHT), noise=Noise.NONE, estimate=PostProcessing.NOISY_COUNTS
)
"""A non-private baseline without noise: its error comes only from uneven points in leaves that the box cuts."""


def make_release(setting: Setting, method: Method, epsilon: str, *labels: object) -> Release:
    """Return a release whose random numbers are determined by the study's seed and the given labels."""
    with fixed_entropy(seed_of(setting.seed, method.name, epsilon, *labels)):
        return vm.release(study_points(setting), setting.domain, epsilon, method, allow_nonprivate=True)


def error_rows(
    setting: Setting,
    figure: str,
    method: Method,
    epsilon: str,
    *,
    height: int | None = None,
    spent: str | None = None,
    leaves: bool = False,
) -> list[Row]:
    """Return the errors of one method, one row per shape and repeat.

    ``spent`` is the epsilon of non-private baselines that spend more than the epsilon at which they are compared.
    ``leaves`` adds a column on the shape of the leaves.
    """
    asked, rows = queries(setting), list[Row]()
    known: Row = {"method": method.name, "epsilon": epsilon}
    if height is not None:
        method, known = at_height(method, height), known | {"height": height}
    for repeat in range(setting.repeats):
        release = make_release(setting, method, spent or epsilon, figure, height, repeat)
        more = leaf_shape(release) if leaves else {}
        rows += [
            {**known, "shape": shape, "repeat": repeat, "error": error, **more}
            for shape, error in errors(release, asked).items()
        ]
    return rows


def leaf_shape(release: Release) -> Row:
    """Return the fraction of points in long leaves."""
    nodes = release.estimates
    leaf = nodes.tree.children == 0
    side: Floats = (nodes.tree.hi[leaf] - nodes.tree.lo[leaf]) / release.domain.side
    held = np.maximum(nodes.estimate[leaf], 0)
    return {"in_long_leaves": float(held[side.max(axis=1) > LONG_LEAF_FRACTION].sum() / max(held.sum(), 1))}


def release_seconds(setting: Setting, height: int | None) -> float:
    """Return the approximate seconds that a release and its answers take, by the number of points and leaves."""
    leaves = 0.0 if height is None else 4.0 ** (height - KD_HEIGHT)
    return 0.05 + 0.4 * min(len(setting.points), QUICK_POINTS if setting.quick else 10**9) / 1e6 + 0.06 * leaves


def tasks_of(
    setting: Setting, figure: str, methods: Mapping[str, Method], epsilons: Sequence[str], leaves: bool = False
) -> list[Task]:
    """Return one task per method and epsilon."""
    return [
        Task(
            f"{name} epsilon {epsilon}",
            partial(error_rows, setting, figure, method, epsilon, leaves=leaves),
            cost=setting.repeats * release_seconds(setting, None),
        )
        for name, method in adapt_methods(setting, methods).items()
        for epsilon in epsilons
    ]


# Reading rows.


def values(rows: Sequence[Row], column: str = "error", **where: object) -> Floats:
    """Return a column of the rows that meet all conditions."""
    return np.array([float(row[column]) for row in rows if all(row[name] == value for name, value in where.items())])


def distinct_values(rows: Sequence[Row], column: str) -> list[Any]:
    """Return the distinct values of a column in the order of their first appearance."""
    return list(dict.fromkeys(row[column] for row in rows))


def format_number(value: float, digits: int = 2) -> str:
    """Return a number with the given significant digits, without an exponent."""
    return f"{value:.{digits}g}" if value < 10**digits else f"{value:.0f}"


def format_ratio(ratio: float) -> str:
    """Return a ratio as text, like "2.50 times"."""
    return f"{ratio:.2f} times" if ratio < 10 else f"{ratio:.0f} times"


class Comparison(NamedTuple):
    """The ratios of one method's mean errors to another's, one per epsilon and shape."""

    where: list[str]
    ratio: Floats  # error of the first method / error of the second
    clearly: int  # number of settings in which every repeat of the first is below every repeat of the second

    @property
    def lower(self) -> int:
        """Return the number of settings in which the first method has the lower mean error."""
        return int((self.ratio < 1).sum())

    @property
    def typical(self) -> float:
        """Return the geometric mean of the ratios."""
        return float(np.exp(np.log(self.ratio).mean()))

    def __str__(self) -> str:
        low, high = int(self.ratio.argmin()), int(self.ratio.argmax())
        return (
            f"{format_ratio(self.typical)} (from {self.ratio[low]:.2f} at {self.where[low]} to {self.ratio[high]:.2f} "
            f"at {self.where[high]})"
        )


def compare_methods(
    rows: Sequence[Row], first: str, second: str, epsilons: Sequence[str] = STUDY_EPSILONS, shapes: Sequence[str] = ()
) -> Comparison:
    where, ratio, clearly = [], [], 0
    for epsilon, shape in product(epsilons, shapes or QUERY_SHAPES):
        a, b = (values(rows, method=name, epsilon=epsilon, shape=shape) for name in (first, second))
        where.append(f"ε {epsilon} {shape}")
        ratio.append(max(a.mean(), MIN_RELATIVE_ERROR) / max(b.mean(), MIN_RELATIVE_ERROR))
        clearly += int(a.max() < b.min())
    return Comparison(where, np.array(ratio), clearly)


def format_per_cent(found: Floats) -> str:
    """Return the mean, lowest and highest value in per cent, as text."""
    mean, low, high = (format_number(100 * float(v), 3) for v in (found.mean(), found.min(), found.max()))
    return mean if found.min() == found.max() else f"{mean} ({low}–{high})"


def tables_by_shape(rows: list[Row]) -> list[Table]:
    """Return one table of errors per epsilon."""
    return [
        Table(
            f"Median relative error at ε = {epsilon}, %: mean (lowest–highest of the repeats)",
            ["method", *QUERY_SHAPES],
            [
                [name, *(format_per_cent(values(rows, method=name, epsilon=epsilon, shape=s)) for s in QUERY_SHAPES)]
                for name in distinct_values(rows, "method")
            ],
        )
        for epsilon in distinct_values(rows, "epsilon")
    ]


def draw_bars(rows: list[Row], folder: Path, figure: str, floor: str = "") -> list[Path]:
    """Draw one panel per epsilon. ``floor`` is a non-private baseline, drawn as a line across each group of bars."""
    names = [name for name in distinct_values(rows, "method") if name in METHOD_STYLES and name != floor]
    width = 0.84 / len(names)
    with drawing(folder, figure, len(STUDY_EPSILONS), shared=True) as panels:
        for axes, epsilon in zip(panels, STUDY_EPSILONS, strict=True):
            axes.grid(False, axis="x")
            for k, name in enumerate(names):
                _bars(
                    axes,
                    np.arange(len(QUERY_SHAPES), dtype=float) - 0.42 + (k + 0.5) * width,
                    width,
                    rows,
                    name,
                    epsilon,
                )
            if floor:
                heights = [100 * values(rows, method=floor, epsilon=epsilon, shape=s).mean() for s in QUERY_SHAPES]
                for at, height in enumerate(heights):
                    axes.plot([at - 0.46, at + 0.46], [height] * 2, color="black", lw=1.2, ls=(0, (3, 1)), label=floor)
            axes.set(title=f"ε = {epsilon}", yscale="log", xlabel="query shape, degrees of the paper's box")
            axes.set_xticks(range(len(QUERY_SHAPES)), list(QUERY_SHAPES))
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
    found = [100 * values(rows, method=name, epsilon=epsilon, shape=shape) for shape in QUERY_SHAPES]
    mean = np.array([v.mean() for v in found])
    reach = [mean - [v.min() for v in found], [v.max() for v in found] - mean]
    look = METHOD_STYLES[name]
    axes.bar(at, mean, width, color=look.colour, hatch=look.hatch, edgecolor="white", linewidth=0.4, label=name)
    axes.errorbar(at, mean, reach, fmt="none", ecolor="#333333", elinewidth=0.7, capsize=1.2)

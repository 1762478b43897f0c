"""Measure what each constant of the model is worth.

    python -m benchmarks.ablation [--repeats N] [--only TEXT] [FILE ...]

Every constant of ``best``, of unevenness and of calibration is halved and doubled, and every step that can be left out
is left out. A variant is compared with the model as it is, on the same data and with the same random bits:

- error ÷ now: the geometric mean, over data sets, epsilons and shapes, of the median relative error of random non-empty
  boxes. Above 1, the constant as it is helps.
- score ÷ now: the same for the interval score of 95 % intervals (their length, and 40 times what misses them), over the
  true count plus a thousandth of all rows. It punishes intervals that are too long and those that are too short.

Both have a 95 % interval over repetitions. A variant without a constant that is worse by less than half a per cent in
both, and by less than 3 % on every data set, is a reason to delete the constant. Constants of unevenness are
also measured with ``quad-opt`` and ``kd-hybrid``, whose error bars are not calibrated. Without files, the data
sets are those of ``veilmap reproduce rivals --score --quick``, rows on stripes, and generated rows on other axes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from unittest import mock
from zlib import crc32

import numpy as np
from rich.progress import track

import veilmap as vm
from benchmarks.coverage import questions, towns
from veilmap.answers import calibration
from veilmap.estimate import unevenness
from veilmap.method.method import Method, PostProcessing
from veilmap.method.registry import METHODS
from veilmap.reproduce.point_sets import default_sets, read_sets
from veilmap.reproduce.score import typical
from veilmap.structures import best
from veilmap.testing import fixed_entropy

DATA_SEED = 6
EPSILONS = ("0.1", "0.5", "1")
BOXES_PER_SHAPE = 200
SMALLEST_COUNT_SHARE = 0.001
SCORE_PENALTY = 2 / 0.05
TUNED_MODULES = {"best": best, "unevenness": unevenness, "calibration": calibration}


@dataclass(frozen=True)
class Variant:
    """The model with something changed: patches of module attributes, and fields of the method."""

    patches: Mapping[str, object] = field(default_factory=dict)
    method: Mapping[str, object] = field(default_factory=dict)
    methods: tuple[str, ...] = ("best",)


STEPS_LEFT_OUT = {
    "best: no probe": Variant({"veilmap.structures.best.probe": lambda *_: None}),
    "best: leaf sizes that do not follow siblings": Variant(
        {"veilmap.structures.best.TUNING": replace(best.TUNING, dissimilarity_exponent=0.0)}
    ),
    "estimate: flat leaves": Variant(method={"slopes": False}),
    "estimate: no shrinkage of empty leaves": Variant(method={"estimate": PostProcessing.LEAST_SQUARES}),
    "estimate: no estimate below 0": Variant(method={"estimate": PostProcessing.NONNEGATIVE}),
    "estimate: no correction of selection bias": Variant(
        {"veilmap.estimate.selection_bias.MIN_BIAS_IN_VARIANCES": 1e18}
    ),
    "intervals: symmetric": Variant(
        {"veilmap.answers.answerer.skew_shift": lambda estimate, *_: np.zeros_like(estimate)}
    ),
}


def variants() -> Iterator[tuple[str, Variant]]:
    """Yield every constant halved and doubled, and every step left out."""
    for name, module in TUNED_MODULES.items():
        methods = ("best", "quad-opt", "kd-hybrid") if module is unevenness else ("best",)
        for constant in fields(module.TUNING):
            value = getattr(module.TUNING, constant.name)
            if isinstance(value, dict):
                changed = {
                    "half": {k: max(v // 2, 1) for k, v in value.items()},
                    "double": {k: 2 * v for k, v in value.items()},
                }
            elif isinstance(value, int):
                changed = {"half": max(value // 2, 1), "double": 2 * value}
            else:
                changed = {"half": value / 2, "double": 2 * value}
            for how, other in changed.items():
                if other != value:
                    patch = {f"{module.__name__}.TUNING": replace(module.TUNING, **{constant.name: other})}
                    yield f"{name}: {constant.name} {how} ({other})", Variant(patch, methods=methods)
    yield from STEPS_LEFT_OUT.items()


def data_sets(files: list[Path]) -> Iterator[tuple[str, np.ndarray, vm.Domain]]:
    """Yield names, points and domains."""
    found = read_sets(files, None, DATA_SEED, False) if files else default_sets(DATA_SEED, True)
    for name, setting in found.items():
        yield name, setting.points, setting.domain
    if files:
        return
    rng = np.random.default_rng(DATA_SEED)
    stripes = np.stack([rng.random(60_000), (rng.integers(0, 37, 60_000) + 0.5) / 37], axis=1)
    yield "stripes", stripes, box_around(stripes)
    for axes, (name, points) in product((1, 3), (("towns", towns), ("bell", None))):
        some = rng.standard_normal((40_000, axes)) if points is None else points(40_000, axes)
        yield f"{name} on {axes} axes", some, box_around(some)


def box_around(points: np.ndarray) -> vm.Domain:
    """Return the bounding box: generated points are public."""
    return vm.Domain({f"x{k}": (float(axis.min()), float(axis.max())) for k, axis in enumerate(points.T)})


@dataclass(frozen=True)
class DataSet:
    """Points, and boxes with their true counts: (shapes, boxes, …)."""

    name: str
    points: np.ndarray
    domain: vm.Domain
    boxes: np.ndarray
    truth: np.ndarray


def measure(data: DataSet, method: Method, repeats: int) -> np.ndarray:
    """Return log error and log interval score by repetition, averaged over epsilons and shapes: (repeats, 2)."""
    out, smallest = np.zeros((repeats, 2)), SMALLEST_COUNT_SHARE * len(data.points)
    for repeat, epsilon in product(range(repeats), EPSILONS):
        with fixed_entropy(crc32(f"{data.name} {method.name} {epsilon} {repeat}".encode())):
            release = vm.release(data.points, data.domain, epsilon, method)
        answers = release.count(data.boxes.reshape(-1, data.boxes.shape[-1]))
        low, high, estimate = (a.reshape(data.truth.shape) for a in (answers.low, answers.high, answers.estimate))
        error = np.median(np.abs(estimate - data.truth) / data.truth, axis=1)
        missed = np.maximum(low - data.truth, 0) + np.maximum(data.truth - high, 0)
        score = np.mean((high - low + SCORE_PENALTY * missed) / (data.truth + smallest), axis=1)
        out[repeat] += np.array([np.log(error).mean(), np.log(score).mean()]) / len(EPSILONS)
    return out


def measure_variant(variant: Variant, sets: list[DataSet], repeats: int) -> dict[tuple[str, str], np.ndarray]:
    """Return what :func:`measure` does, by method and data set."""
    with ExitStack() as stack:
        for name, value in variant.patches.items():
            stack.enter_context(mock.patch(name, value))
        return {
            (name, data.name): measure(data, replace(METHODS[name], **variant.method), repeats)
            for name, data in product(variant.methods, sets)
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="only variants whose name contains this text")
    options = parser.parse_args()
    sets = [
        DataSet(name, points, domain, *questions(points, domain, BOXES_PER_SHAPE))
        for name, points, domain in data_sets(options.files)
    ]
    chosen = {name: variant for name, variant in variants() if options.only in name}
    used = sorted({name for variant in chosen.values() for name in variant.methods})
    now = measure_variant(Variant(methods=tuple(used)), sets, options.repeats)
    print("| variant | method | error ÷ now | worst set | score ÷ now | worst set |\n|---|---|---:|---|---:|---|")
    for what, variant in track(chosen.items(), "variants"):
        found = measure_variant(variant, sets, options.repeats)
        for method in variant.methods:
            by_set = {data.name: found[method, data.name] - now[method, data.name] for data in sets}
            columns = []
            for k in (0, 1):
                worst = max(by_set, key=lambda name, k=k: by_set[name][:, k].mean())
                ratio = typical(np.mean([logs[:, k] for logs in by_set.values()], axis=0))
                columns += [str(ratio), f"{worst} {np.exp(by_set[worst][:, k].mean()):.2f}"]
            print(f"| {what} | {method} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()

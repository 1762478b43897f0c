"""What each piece of `best` is worth: `python -m benchmarks.ablation [--repeats N] [--quick] [FILE ...]`.

A variant lacks one piece. Its score is the geometric mean, over sets, epsilons and shapes, of its median relative
error over that of `best` as it is, with an interval over repetitions: above 1, the piece helps. Without files, the
sets are those of `veilmap reproduce rivals --score`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
from rich.progress import track

from veilmap.method.method import PostProcessing
from veilmap.method.registry import METHODS
from veilmap.reproduce.accuracy import EPSILONS, errors, made, queries
from veilmap.reproduce.point_sets import read_sets, usual_sets
from veilmap.reproduce.score import typical
from veilmap.reproduce.study import Setting

SEED = 6


@dataclass(frozen=True)
class Variant:
    """Constants of the structure, and parts of the method, that are not as they should be."""

    structure: Mapping[str, object] = field(default_factory=dict)
    method: Mapping[str, object] = field(default_factory=dict)


VARIANTS = {
    "without the probe": Variant({"probe": lambda *_: 0.0, "FIRST": 4.0}),
    "a dearer first split of few rows": Variant({"GLANCE": 28}),
    "the first split as fine as all": Variant({"FIRST": 4.0}),
    "no second look at few rows": Variant({"SURE": 0.0}),
    "cells that do not follow how alike siblings are": Variant({"LOCAL": 0.0}),
    "levels paid by what a border cuts of them alone": Variant({"DOWN": (1.0001, 1.0001)}),
    "splits into 16 parts": Variant({"FANOUT": 16.0}),
    "splits into 100 parts": Variant({"FANOUT": 100.0}),
    "flat leaves": Variant(method={"slopes": False}),
    "empty leaves as they are": Variant(method={"estimate": PostProcessing.LEAST_SQUARES}),
    "no estimate below 0": Variant(method={"estimate": PostProcessing.NONNEGATIVE}),
}


def logs(setting: Setting, variant: Variant, repeats: int) -> np.ndarray:
    """The logarithm of the error, by repetition, averaged over epsilons and shapes."""
    method, asked = replace(METHODS["best"], **variant.method), queries(setting)
    out = np.zeros(repeats)
    with ExitStack() as stack:
        for name, value in variant.structure.items():
            stack.enter_context(mock.patch(f"veilmap.structures.best.{name}", value))
        for repeat, epsilon in product(range(repeats), EPSILONS):
            found = errors(made(setting, method, epsilon, "ablation", repeat), asked)
            out[repeat] += np.log(list(found.values())).mean() / len(EPSILONS)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer points")
    given = parser.parse_args()
    sets = read_sets(given.files, None, SEED, given.quick) if given.files else usual_sets(SEED, given.quick)
    whole = {name: logs(one, Variant(), given.repeats) for name, one in track(sets.items(), "best")}
    print("| without | error ÷ best | by set, lowest and highest |\n|---|---:|---|")
    for what, variant in VARIANTS.items():
        by_set = {name: logs(one, variant, given.repeats) - whole[name] for name, one in sets.items()}
        score = typical(np.mean(list(by_set.values()), axis=0))
        order = sorted(by_set, key=lambda name: by_set[name].mean())
        ends = ", ".join(f"{name} {np.exp(by_set[name].mean()):.2f}" for name in (order[0], order[-1]))
        print(f"| {what} | {score} | {ends} |", flush=True)


if __name__ == "__main__":
    main()

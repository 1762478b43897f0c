"""Median relative error of the quadtree family: the paper's first experiment, as a table.

python -m benchmarks.accuracy --epsilon 0.1 --height 10
"""

from __future__ import annotations

import argparse

import numpy as np

import veilmap as vm
from benchmarks.data import PAPER_SHAPES, domain_of, non_empty_queries, roads

METHODS = (("quad-baseline", None), ("quad-geo", None), ("quad-post", None), ("quad-opt", None), ("quad-opt", 32.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="road_west_cities", help="a road file's name")
    parser.add_argument("--epsilon", default="0.1")
    parser.add_argument("--height", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3, help="releases a method; the mean of their medians is shown")
    args = parser.parse_args()

    points, source = roads(args.data)
    domain = domain_of(points, source)
    asked = {shape: non_empty_queries(points, domain, shape) for shape in PAPER_SHAPES}
    print(f"{source}: epsilon {args.epsilon}, height {args.height}, 600 non-empty queries a shape,")
    print(f"median relative error in per cent (mean of {args.repeats} releases), and its ratio to quad-baseline\n")
    print("| method | " + " | ".join(f"{w:g} × {h:g}" for w, h in PAPER_SHAPES) + " |")
    print("|---" * (1 + len(PAPER_SHAPES)) + "|")
    baseline = None
    for method, prune in METHODS:
        errors = np.zeros(len(PAPER_SHAPES))
        for _ in range(args.repeats):
            made = vm.release(points, domain, args.epsilon, method=method, height=args.height, prune=prune)
            for k, (boxes, truth) in enumerate(asked.values()):
                errors[k] += np.median(np.abs(made.count(boxes).estimate - truth) / truth) / args.repeats
        baseline = errors if baseline is None else baseline
        name = method if prune is None else f"{method}, pruned below {prune:g}"
        cells = [f"{100 * e:.2f} ({e / b:.2f})" for e, b in zip(errors, baseline, strict=True)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

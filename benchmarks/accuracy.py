"""Median relative error on the road files, as a table: the quadtree family, or every method.

python -m benchmarks.accuracy --epsilon 0.1 --height 10
python -m benchmarks.accuracy --every --epsilon 0.5
python -m benchmarks.accuracy --every --epsilon 0.5 --data road_dimacs_ny --kd-height 7
"""

from __future__ import annotations

import argparse

import numpy as np

import veilmap as vm
from benchmarks.data import PAPER_SHAPES, domain_of, non_empty_queries, roads

QUADTREES = (
    ("quad-baseline", {}),
    ("quad-geo", {}),
    ("quad-post", {}),
    ("quad-opt", {}),
    ("quad-opt", {"prune": 32.0}),
)
PRUNED = {"prune": 32.0}  # as the paper grows its kd-trees
EVERY = (
    ("kd-pure", {}),
    ("kd-true", {}),
    ("kd-true", PRUNED),
    ("kd-hybrid", PRUNED),
    ("kd-standard", PRUNED),
    ("kd-noisymean", PRUNED),
    ("kd-cell", {}),
    ("hilbert-r", PRUNED),
    ("quad-opt", {}),
    ("quad-opt", {"prune": 32.0}),
    ("uniform-grid", {}),
    ("adaptive-grid", {}),
    ("privtree", {}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="road_west_cities", help="a road file's name")
    parser.add_argument("--epsilon", default="0.1")
    parser.add_argument("--height", type=int, default=10, help="of quadtrees")
    parser.add_argument("--kd-height", type=int, default=8, help="of kd-trees and Hilbert R-trees")
    parser.add_argument("--repeats", type=int, default=3, help="releases a method; the mean of their medians is shown")
    parser.add_argument("--every", action="store_true", help="every method, not only quadtrees")
    args = parser.parse_args()

    points, source = roads(args.data)
    domain = domain_of(points, source)
    # The shapes of the paper are for its box of 21.8 by 17.7 degrees; other boxes get the same parts of theirs.
    paper = np.array([21.82, 17.67])
    shapes = [tuple(np.array(shape) / paper * (domain.hi - domain.lo)) for shape in PAPER_SHAPES]
    asked = [non_empty_queries(points, domain, shape) for shape in shapes]
    methods = EVERY if args.every else QUADTREES
    print(f"{source}: epsilon {args.epsilon}, height {args.height} (kd-trees {args.kd_height}), 600 queries a shape,")
    print(f"median relative error in per cent (mean of {args.repeats} releases), and its ratio to {methods[0][0]}\n")
    print("| method | " + " | ".join(f"{w:g} × {h:g}" for w, h in PAPER_SHAPES) + " |")
    print("|---" * (1 + len(PAPER_SHAPES)) + "|")
    first = None
    for method, options in methods:
        height = {"quad": args.height, "kd": args.kd_height, "hilbert": args.kd_height}.get(method.split("-")[0])
        errors = np.zeros(len(shapes))
        for _ in range(args.repeats):
            made = vm.release(points, domain, args.epsilon, method, height, allow_nonprivate=True, **options)
            for k, (boxes, truth) in enumerate(asked):
                errors[k] += np.median(np.abs(made.count(boxes).estimate - truth) / truth) / args.repeats
        first = errors if first is None else first
        name = f"{method}, pruned below {options['prune']:g}" if "prune" in options else method
        cells = [f"{100 * e:.2f} ({e / b:.2f})" for e, b in zip(errors, first, strict=True)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

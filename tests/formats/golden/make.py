"""Write the golden files of the current format. Files of a released format are never written again."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

import veilmap as vm
from veilmap.testing import fixed_entropy

HERE = Path(__file__).parent


def with_slopes(release: vm.Release) -> vm.Release:
    """Numbers inside leaves as format 2 has them, whatever the method makes of its own."""
    leaf, rng = release.estimates.tree.is_leaf, np.random.default_rng(8)
    slope = np.where(leaf[:, None], rng.normal(0, 30, (len(leaf), release.domain.dimensions)), 0.0)
    unevenness = np.where(leaf, 2.0 ** (rng.integers(0, 40, len(leaf)) / 4), 0.0)
    return replace(release, estimates=replace(release.estimates, slope=slope, unevenness=unevenness))


def main() -> None:
    rng = np.random.default_rng(7)
    gaussian = {"noise": "discrete-gaussian", "delta": 1e-6}
    cases = {
        "quad-opt": (vm.Domain({"lon": (-10, 10), "lat": (40, 50)}, crs="OGC:CRS84"), {"height": 2}),
        "pruned-3d": (vm.Domain({"x": (0, 1), "y": (0, 2), "z": (0, 4)}), {"height": 2, "prune": 300}),
        "kd-hybrid": (vm.Domain({"lon": (-10, 10), "lat": (40, 50)}), {"method": "kd-hybrid", "height": 2}),
        "hilbert-r": (vm.Domain({"x": (0, 1), "y": (0, 2)}), {"method": "hilbert-r", "height": 2, **gaussian}),
        "slopes": (vm.Domain({"lon": (-10, 10), "lat": (40, 50)}), {"method": "adaptive-grid"}),
    }
    for name, (domain, options) in cases.items():
        points = rng.beta(2, 5, (5000, domain.dimensions)) * (domain.hi - domain.lo) + domain.lo
        ends = rng.uniform(domain.lo, domain.hi, (2, 5, domain.dimensions)).round(3)
        boxes = np.hstack([ends.min(axis=0), ends.max(axis=0)])
        if (HERE / f"{name}.parquet").exists():
            continue
        with fixed_entropy(1):
            release = vm.release(points, domain, epsilon=1, **options)
        release = with_slopes(release) if name == "slopes" else release
        release.save(HERE / f"{name}.parquet")
        answers = release.count(boxes)
        errors = {part: values.tolist() for part, values in answers.error_parts._asdict().items()}
        said = {"boxes": boxes.tolist(), "estimate": answers.estimate.tolist(), "errors": errors}
        (HERE / f"{name}.json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()

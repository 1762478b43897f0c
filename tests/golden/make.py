"""Write the golden files of the current format. Files of a released format are never written again."""

import json
from pathlib import Path

import numpy as np

import veilmap as vm
from veilmap.testing import fixed_entropy

HERE = Path(__file__).parent


def main() -> None:
    rng = np.random.default_rng(7)
    gaussian = {"noise": "discrete-gaussian", "delta": 1e-6}
    cases = {
        "quad-opt": (vm.Domain({"lon": (-10, 10), "lat": (40, 50)}, crs="OGC:CRS84"), {"height": 2}),
        "pruned-3d": (vm.Domain({"x": (0, 1), "y": (0, 2), "z": (0, 4)}), {"height": 2, "prune": 300}),
        "kd-hybrid": (vm.Domain({"lon": (-10, 10), "lat": (40, 50)}), {"method": "kd-hybrid", "height": 2}),
        "hilbert-r": (vm.Domain({"x": (0, 1), "y": (0, 2)}), {"method": "hilbert-r", "height": 2, **gaussian}),
    }
    for name, (domain, options) in cases.items():
        points = rng.beta(2, 5, (5000, domain.dimensions)) * (domain.hi - domain.lo) + domain.lo
        ends = rng.uniform(domain.lo, domain.hi, (2, 5, domain.dimensions)).round(3)
        boxes = np.hstack([ends.min(axis=0), ends.max(axis=0)])
        if (HERE / f"{name}.parquet").exists():
            continue
        with fixed_entropy(1):
            release = vm.release(points, domain, epsilon=1, **options)
        release.save(HERE / f"{name}.parquet")
        answers = release.count(boxes)
        said = {"boxes": boxes.tolist(), "estimate": answers.estimate.tolist(), "stderr": answers.stderr.tolist()}
        (HERE / f"{name}.json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()

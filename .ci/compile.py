"""Compile the kernels of a fresh checkout once, while its set-up waits for the network.

Tests run in two processes, which would both compile them, and so would every command that a test starts.
"""

import numpy as np

import veilmap as vm
from veilmap.method.registry import METHODS

for axes in (2, 1, 3):
    domain = vm.Domain({f"x{axis}": (0, 1) for axis in range(axes)})
    points = np.random.default_rng(0).random((3000, axes)) ** 2
    for name in [name for name in METHODS if axes > 1 or name != "hilbert-r"]:
        made = vm.release(points, domain, 1, name, allow_nonprivate=True)
        made.count([[0.2] * axes + [0.7] * axes] * 3)
        made.sample(100)

"""Run one target under atheris: python -m fuzz.one TARGET FOLDER [options of libFuzzer]."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import atheris

KERNEL_FOLDER = Path(__file__).parents[1] / "src" / "veilmap" / "kernels"
COMPILED_MODULES = [
    "veilmap.vault.mechanisms.laplace",
    *(f"veilmap.kernels.{path.stem}" for path in KERNEL_FOLDER.glob("*.py")),
]

# functions that numba compiles must not be instrumented
with atheris.instrument_imports(include=["veilmap"], exclude=COMPILED_MODULES):
    from fuzz.targets import TARGETS
    from fuzz.targets import folder as scratch

from fuzz.mutate import mutated  # noqa: E402
from veilmap.geofiles.sandbox import confine  # noqa: E402


def main() -> None:
    name, folder, *options = sys.argv[1:]
    chosen = TARGETS[name]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for data in chosen.inputs():
        (Path(folder) / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
        chosen.run(data)  # compiles all kernels before the time limits apply

    def mutate_json(data: bytes, max_bytes: int, seed: int) -> bytes:
        changed = atheris.Mutate(data, max_bytes) if seed % 8 == 0 else mutated(data, seed)
        return changed if len(changed) <= max_bytes else data

    confine([], [".fuzz", str(scratch().parent)])  # the target may open no other file and make no connection
    extra = {"custom_mutator": mutate_json} if chosen.is_json else {}
    atheris.Setup([sys.argv[0], folder, *options], chosen.run, **extra)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

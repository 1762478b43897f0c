"""Run one target under atheris: python -m fuzz.one TARGET FOLDER [options of libFuzzer]."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import atheris

KERNELS = Path(__file__).parents[1] / "src" / "veilmap" / "kernels"
COMPILED = ["veilmap.vault.mechanisms.laplace", *(f"veilmap.kernels.{path.stem}" for path in KERNELS.glob("*.py"))]

# What numba compiles must stay as it is.
with atheris.instrument_imports(include=["veilmap"], exclude=COMPILED):
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
        chosen.run(data)  # so that everything is compiled before time is taken

    def of_json(data: bytes, most: int, seed: int) -> bytes:
        out = atheris.Mutate(data, most) if seed % 8 == 0 else mutated(data, seed)
        return out if len(out) <= most else data

    confine([], [".fuzz", str(scratch().parent)])  # no other file may be opened, and no connection made
    extra = {"custom_mutator": of_json} if chosen.is_json else {}
    atheris.Setup([sys.argv[0], folder, *options], chosen.run, **extra)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

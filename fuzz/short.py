"""Run one target on its inputs and on random changes of them: python -m fuzz.short TARGET ROUNDS.

The tests use this: it needs no fuzzer, and each run is the same. The target may open no other file and make no
connection.
"""

from __future__ import annotations

import random
import sys

from fuzz.mutate import mutated
from fuzz.targets import TARGETS, folder
from veilmap.geofiles.sandbox import confine


def main(name: str, rounds: int) -> None:
    chosen, rng = TARGETS[name], random.Random(name)  # noqa: S311
    inputs = chosen.inputs()
    for data in inputs:
        chosen.run(data)
    confine([], [str(folder().parent)])
    for _ in range(rounds):
        data = bytearray(rng.choice(inputs))
        if chosen.is_json:
            chosen.run(mutated(bytes(data), rng.getrandbits(32)))
            continue
        for _ in range(rng.randint(1, 8)):
            start = rng.randrange(len(data) + 1)
            data[start : start + rng.randint(0, 8)] = rng.randbytes(rng.randint(0, 8))
        chosen.run(bytes(data))
    print(f"{name}: {rounds} rounds")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

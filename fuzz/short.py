"""Run one target on its inputs and some random changes of them: python -m fuzz.short TARGET ROUNDS.

For the tests: it needs no fuzzer, and is the same in every run. No other file may be opened, and no connection made.
"""

from __future__ import annotations

import random
import sys

from fuzz.mutate import mutated
from fuzz.targets import TARGETS, folder
from veilmap.geofiles.sandbox import confine


def main(name: str, rounds: int) -> None:
    chosen, chance = TARGETS[name], random.Random(name)  # noqa: S311
    usual = chosen.inputs()
    for data in usual:
        chosen.run(data)
    confine([], [str(folder().parent)])
    for _ in range(rounds):
        data = bytearray(chance.choice(usual))
        if chosen.is_json:
            chosen.run(mutated(bytes(data), chance.getrandbits(32)))
            continue
        for _ in range(chance.randint(1, 8)):
            at = chance.randrange(len(data) + 1)
            data[at : at + chance.randint(0, 8)] = chance.randbytes(chance.randint(0, 8))
        chosen.run(bytes(data))
    print(f"{name}: {rounds} rounds")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

"""Changes to JSON that keep it JSON: a fuzzer that flips bytes would mostly break it."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

NASTY: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 31, 32, 62, 63, 127, 128, 2**31, 2**32, 2**53 + 1, 2**63, -(2**63), 10**400,
    0.0, -0.0, 0.1, 1e-320, 1e308, -1e308, float("nan"), float("inf"), float("-inf"),
    "", "0", "1", "1/0", "1/3", "1e999999999", "nan", "best", "x", "all", "half", "\x1b[31m", "\ud800", "a" * 500,
    [], {}, [[]], [1], [None], [1, 2], [2, 2], {"name": "x"}, [[2, 2]] * 5, [[1, 1]] * 200,
)  # fmt: skip


def mutated(data: bytes, seed: int) -> bytes:
    """One to four changes somewhere in it."""
    lot = random.Random(seed)  # noqa: S311
    try:
        whole = [json.loads(data)]
    except (ValueError, RecursionError):
        whole = [deepcopy(lot.choice(NASTY))]
    for _ in range(lot.choice((1, 1, 2, 4))):
        _change(whole, lot)
    return json.dumps(whole[0]).encode()


def _change(at: Any, lot: random.Random) -> None:
    """Go down at random, and change what is there."""
    while True:
        keys = list(at) if isinstance(at, dict) else range(len(at))
        if not keys:
            return
        key = lot.choice(keys)
        value = at[key]
        if isinstance(value, (dict, list)) and value and lot.random() < 0.85:
            at = value
            continue
        what = lot.random()
        if what < 0.5:
            at[key] = deepcopy(lot.choice(NASTY))
        elif what < 0.65 and isinstance(value, (int, float)) and not isinstance(value, bool):
            small = abs(value) < 2**60  # else it may be infinite
            at[key] = lot.choice(
                (-value, value + 1, value - 1, value * 2, value / 3 if small else 0, int(value) if small else 1)
            )
        elif what < 0.75 and isinstance(value, str):
            place = lot.randint(0, len(value))
            at[key] = value[:place] + lot.choice(("", "/", "0", "e", "\x00", "é", value)) + value[place + 1 :]
        elif what < 0.85 and isinstance(at, list):
            at[key:key] = [deepcopy(value) for _ in range(lot.choice((1, 1, 7)))]
        elif what < 0.9:
            at[lot.choice(keys)] = deepcopy(value)
        elif len(at) > 1 or isinstance(at, dict):
            del at[key]
        return

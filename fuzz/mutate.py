"""Mutate JSON so that it remains valid JSON: flipping bytes would mostly break it."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

HOSTILE_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 31, 32, 62, 63, 127, 128, 2**31, 2**32, 2**53 + 1, 2**63, -(2**63), 10**400,
    0.0, -0.0, 0.1, 1e-320, 1e308, -1e308, float("nan"), float("inf"), float("-inf"),
    "", "0", "1", "1/0", "1/3", "1e999999999", "nan", "best", "x", "all", "half", "\x1b[31m", "\ud800", "a" * 500,
    [], {}, [[]], [1], [None], [1, 2], [2, 2], {"name": "x"}, [[2, 2]] * 5, [[1, 1]] * 200,
)  # fmt: skip


def mutated(data: bytes, seed: int) -> bytes:
    """Return JSON data with one to four random changes."""
    rng = random.Random(seed)  # noqa: S311
    try:
        holder = [json.loads(data)]
    except (ValueError, RecursionError):
        holder = [deepcopy(rng.choice(HOSTILE_VALUES))]
    for _ in range(rng.choice((1, 1, 2, 4))):
        _change(holder, rng)
    return json.dumps(holder[0]).encode()


def _change(container: Any, rng: random.Random) -> None:
    """Descend to a random place and change it."""
    while True:
        keys = list(container) if isinstance(container, dict) else range(len(container))
        if not keys:
            return
        key = rng.choice(keys)
        value = container[key]
        if isinstance(value, (dict, list)) and value and rng.random() < 0.85:
            container = value
            continue
        what = rng.random()
        if what < 0.5:
            container[key] = deepcopy(rng.choice(HOSTILE_VALUES))
        elif what < 0.65 and isinstance(value, (int, float)) and not isinstance(value, bool):
            small = abs(value) < 2**60  # else it may be infinite
            container[key] = rng.choice(
                (-value, value + 1, value - 1, value * 2, value / 3 if small else 0, int(value) if small else 1)
            )
        elif what < 0.75 and isinstance(value, str):
            place = rng.randint(0, len(value))
            container[key] = value[:place] + rng.choice(("", "/", "0", "e", "\x00", "é", value)) + value[place + 1 :]
        elif what < 0.85 and isinstance(container, list):
            container[key:key] = [deepcopy(value) for _ in range(rng.choice((1, 1, 7)))]
        elif what < 0.9:
            container[rng.choice(keys)] = deepcopy(value)
        elif len(container) > 1 or isinstance(container, dict):
            del container[key]
        return

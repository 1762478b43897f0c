"""What an experiment of the study is made of: tasks that give rows, a picture, and claims that are seen or not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from veilmap.arrays import Floats
from veilmap.domain import Domain

FEWER = 100_000  # points, for a quick study

Value: TypeAlias = str | int | float
Row: TypeAlias = dict[str, Value]


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What all experiments of one run share."""

    points: Floats
    domain: Domain
    source: str  # of the points, in words
    seed: int = 2012
    quick: bool = False
    people: Floats | None = None  # to be matched; made up if there are none

    @property
    def repeats(self) -> int:
        """How often everything random is done again, with other seeds."""
        return 2 if self.quick else 5


def fingerprint(setting: Setting) -> str:
    """Changes with whatever the rows of a task depend on."""
    people = np.zeros(0) if setting.people is None else setting.people
    shapes = (setting.points.shape, people.shape)
    words = (setting.domain.to_json(), setting.source, setting.seed, setting.quick, shapes)
    mark = hashlib.sha256(repr(words).encode())
    for array in (setting.points, people):
        mark.update(np.ascontiguousarray(array).tobytes())
    return mark.hexdigest()


def seed_of(*what: object) -> int:
    """A seed of its own for everything that is done once."""
    return int.from_bytes(hashlib.sha256(repr(what).encode()).digest()[:6], "little")


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work that is done at one go and remembered: the rows it gives depend on the setting alone."""

    name: str  # unique in its experiment
    run: Callable[[], list[Row]]
    cost: float = 1.0  # expected time, in any unit that the tasks of a run share


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that the paper says, and whether it is seen here."""

    text: str
    verdict: str  # "seen", "not seen" or "different"
    because: str  # figures, and the reason where it is not as the paper says


@dataclass(frozen=True, slots=True)
class Table:
    """Rows for people to read."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Experiment:
    """One figure of the paper."""

    name: str  # like "fig4"
    title: str
    tasks: Sequence[Task]
    tables: Callable[[list[Row]], list[Table]]
    draw: Callable[[list[Row], Path], list[Path]]  # into a folder, as PNG and SVG
    claims: Callable[[list[Row]], list[Claim]]
    notes: str = ""  # how it is set up, where the reader might wonder

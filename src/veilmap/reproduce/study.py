"""The parts of an experiment: tasks that return rows, tables, a picture, and claims with a verdict."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from veilmap.arrays import Floats
from veilmap.domain import Domain

QUICK_POINTS = 100_000  # maximum number of points in a quick study
REPRODUCED = "reproduced"
PARTLY_REPRODUCED = "partly reproduced"
NOT_REPRODUCED = "not reproduced"

Value: TypeAlias = str | int | float
Row: TypeAlias = dict[str, Value]


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """The parameters that all experiments of one run share."""

    points: Floats
    domain: Domain
    source: str  # description of the points
    seed: int = 2012
    quick: bool = False
    people: Floats | None = None  # records for record matching; generated if not given

    @property
    def repeats(self) -> int:
        """Return the number of repetitions, each with its own seed."""
        return 2 if self.quick else 5


def fingerprint(setting: Setting) -> str:
    """Return a hash of everything that the rows of a task depend on."""
    people = np.zeros(0) if setting.people is None else setting.people
    shapes = (setting.points.shape, people.shape)
    words = (setting.domain.to_json(), setting.source, setting.seed, setting.quick, shapes)
    digest = hashlib.sha256(repr(words).encode())
    for array in (setting.points, people):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def seed_of(*labels: object) -> int:
    """Return a seed that is determined by the given labels."""
    return int.from_bytes(hashlib.sha256(repr(labels).encode()).digest()[:6], "little")


@dataclass(frozen=True, slots=True)
class Task:
    """A unit of work whose rows are stored when it is done. They depend on the setting only."""

    name: str  # unique in its experiment
    run: Callable[[], list[Row]]
    cost: float = 1.0  # expected time, in a unit shared by all tasks of a run


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper, and whether this study reproduces it."""

    text: str
    verdict: str  # REPRODUCED, PARTLY_REPRODUCED or NOT_REPRODUCED
    because: str  # the numbers, and the reason if the result differs from the paper's


def judge(holds: object, *, partly: object = False) -> str:
    """Return the verdict on a claim that holds fully, partly or not at all."""
    return REPRODUCED if holds else PARTLY_REPRODUCED if partly else NOT_REPRODUCED


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the report."""

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
    draw: Callable[[list[Row], Path], list[Path]]  # writes a PNG and an SVG file into a folder
    claims: Callable[[list[Row]], list[Claim]]
    notes: str = ""  # details of the setup

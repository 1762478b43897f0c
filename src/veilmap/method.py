"""A method: everything about a release that is decided before the data is touched. All of it is public."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass, replace
from enum import Enum
from numbers import Real
from typing import Any

from veilmap.budget import Geometric, LeafOnly, LevelBudget, Levels, Uniform
from veilmap.errors import BadInput, near_misses
from veilmap.structures import KdTree, Quadtree, Structure

_LIKE = {"structure": "Quadtree(10)", "budget": "Geometric()"}


class Noise(Enum):
    """The noise a release may carry. Closed: a member needs a proof page and a statistical test."""

    DISCRETE_LAPLACE = "discrete-laplace"


class Estimate(Enum):
    """What is made of the noisy counts before they are published."""

    NOISY_COUNTS = "noisy-counts"  # nothing: answers add up noisy counts
    LEAST_SQUARES = "least-squares"  # the best consistent counts that are linear and unbiased


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """Structure, budget, noise and estimate of a release, with a name to cite it by."""

    structure: Structure
    budget: LevelBudget = Geometric()
    noise: Noise = Noise.DISCRETE_LAPLACE
    estimate: Estimate = Estimate.LEAST_SQUARES
    prune_below: float | None = None
    name: str = "custom"

    def __post_init__(self) -> None:
        below = self.prune_below
        if below is not None and not _finite(below):
            raise BadInput(f"The pruning threshold must be a finite number, got {below!r}.")
        for part, needs in (("structure", "grow"), ("budget", "weights")):
            if not callable(getattr(getattr(self, part), needs, None)):
                raise BadInput(f"The {part} of a method is a value like {_LIKE[part]}, got {getattr(self, part)!r}.")
        for part, kind in (("noise", Noise), ("estimate", Estimate)):
            if not isinstance(getattr(self, part), kind):
                raise BadInput(f"The {part} of a method is one of {list(kind)}, got {getattr(self, part)!r}.")

        if isinstance(self.budget, Levels) and self.structure.height is None:
            raise BadInput("A share for each level needs a known number of levels: give the structure a height.")

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "structure": _to_json(self.structure, STRUCTURES),
            "budget": _to_json(self.budget, BUDGETS),
            "noise": self.noise.value,
            "estimate": self.estimate.value,
            "prune_below": None if self.prune_below is None else float(self.prune_below),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Method:
        return cls(
            name=record["name"],
            structure=_from_json(record["structure"], STRUCTURES),
            budget=_from_json(record["budget"], BUDGETS),
            noise=Noise(record["noise"]),
            estimate=Estimate(record["estimate"]),
            prune_below=record["prune_below"],
        )


STRUCTURES: dict[str, type] = {"quadtree": Quadtree, "kd-tree": KdTree}
BUDGETS: dict[str, type] = {
    "uniform": Uniform,
    "geometric": Geometric,
    "leaf-only": LeafOnly,
    "levels": Levels,
}

DEFAULT_METHOD = "quad-opt"
METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method(name="quad-baseline", structure=Quadtree(), budget=Uniform(), estimate=Estimate.NOISY_COUNTS),
        Method(name="quad-geo", structure=Quadtree(), estimate=Estimate.NOISY_COUNTS),
        Method(name="quad-post", structure=Quadtree(), budget=Uniform()),
        Method(name="quad-opt", structure=Quadtree()),
        Method(name="kd-standard", structure=KdTree(8)),
        Method(name="kd-hybrid", structure=KdTree(8, switch="half")),
    )
}


def named(name: str, *, height: int | None = None, prune_below: float | None = None) -> Method:
    """A method of the registry, with its height and pruning threshold set."""
    if name not in METHODS:
        raise BadInput(f"There is no method {name!r}. {near_misses(name, METHODS)}")
    method = METHODS[name]
    structure = method.structure if height is None else replace(method.structure, height=height)  # type: ignore[type-var]
    return replace(method, structure=structure, prune_below=prune_below)


def _finite(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


def _to_json(value: Any, known: Mapping[str, type]) -> dict[str, Any]:
    """``{"name": "geometric", "configuration": {"ratio": 1.26}}``; a user's own type goes by its class name."""
    name = next((name for name, kind in known.items() if type(value) is kind), type(value).__qualname__)
    fields = asdict(value) if is_dataclass(value) and not isinstance(value, type) else {}
    return {"name": name, "configuration": {k: _plain(v) for k, v in fields.items()}}


def _plain(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _from_json(record: Mapping[str, Any], known: Mapping[str, type]) -> Any:
    if record["name"] not in known:
        raise BadInput(f"There is no {record['name']!r} here. {near_misses(record['name'], known)}")
    return known[record["name"]](**record["configuration"])

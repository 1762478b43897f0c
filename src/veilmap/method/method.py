"""A method: everything about a release that is decided before the data is touched. All of it is public."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from enum import Enum
from numbers import Real
from typing import Any

from veilmap.budget import Chosen, Geometric, LeafOnly, Levels, Uniform
from veilmap.errors import BadInput, near_misses
from veilmap.structures import (
    AdaptiveGrid,
    Best,
    Budget,
    CellTree,
    HilbertR,
    KdTree,
    PrivTree,
    Quadtree,
    Structure,
    UniformGrid,
    Workload,
)

USUAL = Geometric()
_LIKE = {"structure": "Quadtree(10)", "budget": "Geometric()"}


class Noise(Enum):
    """The noise a release may carry. Closed: a member needs a proof page and a statistical test."""

    DISCRETE_LAPLACE = "discrete-laplace"  # pure ε
    DISCRETE_GAUSSIAN = "discrete-gaussian"  # concentrated: accounted in ρ, stated as (ε, δ)
    NONE = "none"  # exact counts, for yardsticks: not private


class Estimate(Enum):
    """What is made of the noisy counts before they are published."""

    NOISY_COUNTS = "noisy-counts"  # nothing: answers add up noisy counts
    LEAST_SQUARES = "least-squares"  # the best consistent counts that are linear and unbiased
    SHRINK = "shrink"  # these, but leaves that are probably empty hand what they have to their siblings
    NONNEGATIVE = "nonnegative"  # the consistent counts of 0 or more that are nearest to these


def _threshold(below: object) -> float | None:
    """As a plain number."""
    try:
        if below is None or (not isinstance(below, bool) and isinstance(below, Real) and math.isfinite(below)):
            return None if below is None else float(below)
    except OverflowError:  # a whole number beyond all floats
        pass
    raise BadInput(f"The pruning threshold must be a finite number, got {below!r}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """Structure, budget, noise and estimate of a release, with a name to cite it by."""

    structure: Structure
    budget: Budget = USUAL  # or what its structure usually has
    noise: Noise = Noise.DISCRETE_LAPLACE
    estimate: Estimate = Estimate.LEAST_SQUARES
    prune_below: float | None = None
    slopes: bool = False  # whether density may change inside a leaf
    name: str = "custom"

    def __post_init__(self) -> None:
        if self.budget is USUAL:
            object.__setattr__(self, "budget", getattr(self.structure, "usual_budget", USUAL))
        if not (isinstance(self.name, str) and self.name and self.name.isprintable()):
            raise BadInput(f"A method needs a name of one or more printable characters, got {self.name!r}.")
        object.__setattr__(self, "prune_below", _threshold(self.prune_below))
        for part, needs in (("structure", ("grow",)), ("budget", ("weights", "grains"))):
            if not any(callable(getattr(getattr(self, part), name, None)) for name in needs):
                raise BadInput(f"The {part} of a method is a value like {_LIKE[part]}, got {getattr(self, part)!r}.")
        for part, kind in (("noise", Noise), ("estimate", Estimate)):
            if not isinstance(getattr(self, part), kind):
                raise BadInput(f"The {part} of a method is one of {list(kind)}, got {getattr(self, part)!r}.")

        if not isinstance(self.slopes, bool):
            raise BadInput(f"Whether a method has slopes is True or False, got {self.slopes!r}.")
        if self.slopes and self.estimate is Estimate.NOISY_COUNTS:
            raise BadInput("Slopes come from consistent estimates: choose least-squares, or leave the slopes out.")
        if self.slopes and isinstance(self.structure, HilbertR):
            raise BadInput("Ranges of a curve have no sides to slope to: leave the slopes out.")
        if getattr(self.structure, "leaves_only", False) and not isinstance(self.budget, LeafOnly):
            raise BadInput(f"A {type(self.structure).__name__} counts its leaves only: its budget is LeafOnly().")
        chooses = self.structure.height is None and not hasattr(self.structure, "settled")
        if isinstance(self.budget, Levels | Workload) and chooses:
            raise BadInput(
                "best shares its budget out itself: take a quadtree or a kd-tree with --method and --height "
                "(method= and height= in Python)."
                if isinstance(self.structure, Best)
                else "A workload, or a share for each level, needs a known number of levels: give a height (--height)."
            )
        if self.noise is Noise.DISCRETE_GAUSSIAN and self._median == "smooth-sensitivity":
            raise BadInput("Smooth-sensitivity medians are not concentrated: choose other medians, or Laplace noise.")

    @property
    def _median(self) -> str | None:
        return getattr(self.structure, "median", None)

    @property
    def needs_delta(self) -> bool:
        """Whether its promise is (ε, δ) and not pure."""
        return self.noise is Noise.DISCRETE_GAUSSIAN or self._median == "smooth-sensitivity"

    @property
    def private(self) -> bool:
        """False for yardsticks, which publish something exact."""
        return self.noise is not Noise.NONE and self._median != "exact"

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "structure": _to_json(self.structure, STRUCTURES),
            "budget": _to_json(self.budget, BUDGETS),
            "noise": self.noise.value,
            "estimate": self.estimate.value,
            "prune_below": self.prune_below,
            "slopes": self.slopes,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Method:
        try:
            return cls(
                name=record["name"],
                structure=_from_json(record["structure"], STRUCTURES),
                budget=_from_json(record["budget"], BUDGETS),
                noise=Noise(record["noise"]),
                estimate=Estimate(record["estimate"]),
                prune_below=record["prune_below"],
                slopes=record.get("slopes", False),
            )
        except BadInput:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            why = f"{type(error).__name__}: {error}"
        raise BadInput(f"A method is read from what Method.to_json() makes of one, and this is none ({why}).")


STRUCTURES: dict[str, type] = {
    "quadtree": Quadtree,
    "kd-tree": KdTree,
    "cell-tree": CellTree,
    "hilbert-r": HilbertR,
    "uniform-grid": UniformGrid,
    "adaptive-grid": AdaptiveGrid,
    "privtree": PrivTree,
    "best": Best,
}
BUDGETS: dict[str, type] = {
    "uniform": Uniform,
    "geometric": Geometric,
    "leaf-only": LeafOnly,
    "levels": Levels,
    "workload": Workload,
    "chosen": Chosen,
}

DEFAULT_METHOD = "best"
METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method(name="best", structure=Best(), estimate=Estimate.SHRINK, slopes=True),
        Method(name="quad-baseline", structure=Quadtree(), budget=Uniform(), estimate=Estimate.NOISY_COUNTS),
        Method(name="quad-geo", structure=Quadtree(), estimate=Estimate.NOISY_COUNTS),
        Method(name="quad-post", structure=Quadtree(), budget=Uniform()),
        Method(name="quad-opt", structure=Quadtree()),
        Method(name="kd-standard", structure=KdTree()),
        Method(name="kd-hybrid", structure=KdTree(switch="half")),
        Method(name="kd-cell", structure=CellTree()),
        Method(name="kd-noisymean", structure=KdTree(median="noisy-mean")),
        Method(name="hilbert-r", structure=HilbertR()),
        Method(name="uniform-grid", structure=UniformGrid()),
        Method(name="adaptive-grid", structure=AdaptiveGrid()),
        Method(name="privtree", structure=PrivTree()),
        # Yardsticks, not private: exact medians with noisy counts, and nothing but the truth.
        Method(name="kd-true", structure=KdTree(median="exact")),
        Method(name="kd-pure", structure=KdTree(median="exact"), noise=Noise.NONE, estimate=Estimate.NOISY_COUNTS),
    )
}


def named(
    name: str,
    *,
    height: int | None = None,
    prune_below: float | None = None,
    sample: object = None,
    options: Mapping[str, object] | None = None,
) -> Method:
    """A method of the registry, with its height, pruning threshold, sampling rate and further options set."""
    if name not in METHODS:
        raise BadInput(f"There is no method {name!r}. {near_misses(name, METHODS)}")
    method = METHODS[name]
    given = {key: value for key, value in (("height", height), ("sample", sample)) if value is not None}
    given |= options or {}
    for option in given:
        if option not in _options(method):
            able = [m.name for m in METHODS.values() if m.private and option in _options(m)]
            way = f", or take one of {', '.join(able)}" if able else ""
            if not able and _options(method):
                way = f", or it has {', '.join(_options(method))}"
            raise BadInput(f"{name} has no {option} to set: leave it out{way}.")
    structure = replace(method.structure, **given)  # type: ignore[type-var]
    return replace(method, structure=structure, prune_below=prune_below)


def _options(method: Method) -> list[str]:
    """What can be set of its structure."""
    return [field.name for field in fields(method.structure)]  # type: ignore[arg-type]


def _to_json(value: Any, known: Mapping[str, type]) -> dict[str, Any]:
    """``{"name": "geometric", "configuration": {"ratio": 1.26}}``; a user's own type goes by its class name."""
    name = next((name for name, kind in known.items() if type(value) is kind), type(value).__qualname__)
    configuration = asdict(value) if is_dataclass(value) and not isinstance(value, type) else {}
    return {"name": name, "configuration": {k: _plain(v) for k, v in configuration.items()}}


def _plain(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _from_json(record: Mapping[str, Any], known: Mapping[str, type]) -> Any:
    if record["name"] not in known:
        raise BadInput(f"There is no {record['name']!r} here. {near_misses(record['name'], known)}")
    return known[record["name"]](**record["configuration"])

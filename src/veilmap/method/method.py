"""A method: structure, budget, noise and post-processing of a release. It is chosen before the data is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from enum import Enum
from typing import Any

from veilmap.budgets import (
    Budget,
    Chosen,
    Geometric,
    LeafOnly,
    LevelBudget,
    Levels,
    NodeBudget,
    Uniform,
    Workload,
)
from veilmap.errors import BadInput, near_misses
from veilmap.structures import (
    AdaptiveGrid,
    Best,
    CellTree,
    HilbertR,
    KdTree,
    PrivTree,
    Quadtree,
    Structure,
    UniformGrid,
)
from veilmap.validation import is_finite_number

STRUCTURE_DEFAULT_BUDGET = Geometric()
"""Stands for the default budget of the structure."""


class Noise(Enum):
    """The noise of a release. A new member needs a proof page and a statistical test."""

    DISCRETE_LAPLACE = "discrete-laplace"  # pure ε
    DISCRETE_GAUSSIAN = "discrete-gaussian"  # zero-concentrated: accounted in ρ, stated as (ε, δ)
    NONE = "none"  # exact counts, for non-private baselines


class PostProcessing(Enum):
    """The post-processing of noisy counts before they are published. It costs no privacy."""

    NOISY_COUNTS = "noisy-counts"  # no post-processing: answers add up noisy counts
    LEAST_SQUARES = "least-squares"  # the best linear unbiased consistent estimates
    SHRINK = "shrink"  # least squares; leaves that are probably empty then pass their count to siblings
    NONNEGATIVE = "nonnegative"  # the consistent estimates of 0 or more closest to least squares


Estimate = PostProcessing  # its older public name


def _threshold(below: object) -> float | None:
    """Return the pruning threshold as a ``float``."""
    if below is None:
        return None
    if not is_finite_number(below):
        raise BadInput(f"The pruning threshold must be a finite number, got {below!r}.")
    return float(below)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """The structure, budget, noise and post-processing of a release, with a name.

    Examples
    --------
    >>> method = vm.Method(structure=vm.Quadtree(4), budget=vm.Uniform(), name="my-quadtree")
    >>> vm.release(points, domain, epsilon=1, method=method).height
    4
    """

    structure: Structure
    budget: Budget = STRUCTURE_DEFAULT_BUDGET
    noise: Noise = Noise.DISCRETE_LAPLACE
    estimate: PostProcessing = PostProcessing.LEAST_SQUARES
    prune_below: float | None = None
    slopes: bool = False  # whether density may change inside a leaf
    name: str = "custom"

    def __post_init__(self) -> None:
        if not isinstance(self.structure, Structure):
            raise BadInput(
                f"The structure of a method must be a value like Quadtree(10), or of your own subclass of "
                f"veilmap.structures.Structure, got {self.structure!r}."
            )
        if self.budget is STRUCTURE_DEFAULT_BUDGET:
            object.__setattr__(self, "budget", self.structure.usual_budget)
        object.__setattr__(self, "prune_below", _threshold(self.prune_below))
        self._check_fields()
        self._check_combination()

    def _check_fields(self) -> None:
        if not isinstance(self.budget, LevelBudget | NodeBudget):
            raise BadInput(f"The budget of a method must be a value like Geometric(), got {self.budget!r}.")
        if not (isinstance(self.name, str) and self.name and self.name.isprintable()):
            raise BadInput(f"A method needs a name of one or more printable characters, got {self.name!r}.")
        if not isinstance(self.noise, Noise):
            raise BadInput(f"The noise of a method must be one of {list(Noise)}, got {self.noise!r}.")
        if not isinstance(self.estimate, PostProcessing):
            raise BadInput(f"The estimate of a method must be one of {list(PostProcessing)}, got {self.estimate!r}.")
        if not isinstance(self.slopes, bool):
            raise BadInput(f"slopes must be True or False, got {self.slopes!r}.")

    def _check_combination(self) -> None:
        structure, chooses_height = self.structure, self.structure.height is None
        if self.slopes and self.estimate is PostProcessing.NOISY_COUNTS:
            raise BadInput("Slopes need consistent estimates. Choose the estimate least-squares, or leave slopes out.")
        if self.slopes and isinstance(structure, HilbertR):
            raise BadInput("Leaves along a Hilbert curve cannot have slopes. Leave slopes out.")
        if structure.leaves_only and not isinstance(self.budget, LeafOnly):
            raise BadInput(f"A {type(structure).__name__} counts only its leaves. Its budget must be LeafOnly().")
        if isinstance(self.budget, Levels | Workload) and chooses_height and not structure.height_from_domain:
            raise BadInput(
                "best divides its budget itself. For a budget of your own, choose a quadtree or a kd-tree with "
                "--method and --height (method= and height= in Python)."
                if isinstance(structure, Best)
                else "A workload, or a share for each level, needs a known number of levels. Give a height (--height)."
            )
        if self.noise is Noise.DISCRETE_GAUSSIAN and structure.median_mechanism == "smooth-sensitivity":
            raise BadInput(
                "Smooth-sensitivity medians cannot be combined with Gaussian noise. Choose other medians, or "
                "discrete-laplace noise."
            )

    @property
    def needs_delta(self) -> bool:
        """Whether the guarantee is (ε, δ), not pure ε."""
        return self.noise is Noise.DISCRETE_GAUSSIAN or self.structure.median_mechanism == "smooth-sensitivity"

    @property
    def private(self) -> bool:
        """False for non-private baselines, which publish exact values."""
        return self.noise is not Noise.NONE and self.structure.median_mechanism != "exact"

    def to_json(self) -> dict[str, Any]:
        """Return the method as it is stored in a release file."""
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
        """Return the method that ``to_json`` stored."""
        try:
            return cls(
                name=record["name"],
                structure=_from_json(record["structure"], STRUCTURES),
                budget=_from_json(record["budget"], BUDGETS),
                noise=Noise(record["noise"]),
                estimate=PostProcessing(record["estimate"]),
                prune_below=record["prune_below"],
                slopes=record.get("slopes", False),
            )
        except BadInput:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
        raise BadInput(f"This is not a method as Method.to_json() returns it ({reason}).")


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


def _to_json(value: Any, known: Mapping[str, type]) -> dict[str, Any]:
    """Return ``{"name": "geometric", "configuration": {"ratio": 1.26}}``. A user's own type has its class name."""
    name = next((name for name, kind in known.items() if type(value) is kind), type(value).__qualname__)
    configuration = asdict(value) if is_dataclass(value) and not isinstance(value, type) else {}
    return {"name": name, "configuration": {k: _plain(v) for k, v in configuration.items()}}


def _plain(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _from_json(record: Mapping[str, Any], known: Mapping[str, type]) -> Any:
    if record["name"] not in known:
        raise BadInput(f"{record['name']!r} is not known here. {near_misses(record['name'], known)}")
    return known[record["name"]](**record["configuration"])

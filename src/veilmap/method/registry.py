"""The named methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from veilmap.budgets import Uniform
from veilmap.errors import BadInput, near_misses
from veilmap.method.method import Method, Noise, PostProcessing
from veilmap.structures import AdaptiveGrid, Best, CellTree, HilbertR, KdTree, PrivTree, Quadtree, UniformGrid

DEFAULT_METHOD = "best"
METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method(name="best", structure=Best(), estimate=PostProcessing.SHRINK, slopes=True),
        Method(name="quad-baseline", structure=Quadtree(), budget=Uniform(), estimate=PostProcessing.NOISY_COUNTS),
        Method(name="quad-geo", structure=Quadtree(), estimate=PostProcessing.NOISY_COUNTS),
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
        # non-private baselines: exact medians with noisy counts, and exact medians with exact counts
        Method(name="kd-true", structure=KdTree(median="exact")),
        Method(
            name="kd-pure", structure=KdTree(median="exact"), noise=Noise.NONE, estimate=PostProcessing.NOISY_COUNTS
        ),
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
    """Return the method with a name, with its height, pruning threshold, sampling rate and further options set."""
    if name not in METHODS:
        raise BadInput(f"There is no method {name!r}. {near_misses(name, METHODS)}")
    method = METHODS[name]
    settings = {key: value for key, value in (("height", height), ("sample", sample)) if value is not None}
    settings |= options or {}
    for option in settings:
        if option not in _options(method):
            others = [m.name for m in METHODS.values() if m.private and option in _options(m)]
            hint = f", or choose one of {', '.join(others)}" if others else ""
            if not others and _options(method):
                hint = f". Its options are {', '.join(_options(method))}"
            raise BadInput(f"{name} has no option {option}. Leave it out{hint}.")
    structure = replace(method.structure, **settings)  # type: ignore[type-var]
    return replace(method, structure=structure, prune_below=prune_below)


def _options(method: Method) -> list[str]:
    """Return the names of the options of a method's structure."""
    return [field.name for field in fields(method.structure)]  # type: ignore[arg-type]

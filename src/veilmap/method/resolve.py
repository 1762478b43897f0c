"""The method that a caller means, from a name and options or a Method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from veilmap.budgets import Budget
from veilmap.errors import BadInput
from veilmap.method.method import Method, Noise, PostProcessing
from veilmap.method.registry import named
from veilmap.validation import exact_delta


def checked_delta(method: Method, delta: object) -> Fraction:
    """The δ of a release: given if its method needs one, and only then."""
    if method.needs_delta and delta is None:
        raise BadInput(
            f"The promise of {method.name} with this noise or these medians is (epsilon, delta): give a delta."
        )
    if delta is not None and not method.needs_delta:
        raise BadInput(f"The promise of {method.name} is pure: leave delta out, or choose the noise discrete-gaussian.")
    return Fraction(0) if delta is None else exact_delta(delta)


def resolve(
    method: str | Method,
    height: int | None,
    prune: float | None,
    sample: object = None,
    noise: str | Noise | None = None,
    budget: Budget | None = None,
    options: Mapping[str, object] | None = None,
    estimate: str | PostProcessing | None = None,
) -> Method:
    """The method that a caller means."""
    if isinstance(method, str):
        found = named(method, height=height, prune_below=prune, sample=sample, options=options)
        if noise is not None and found.noise is Noise.NONE:
            raise BadInput(f"{method} has exact counts: leave the noise out, or take another method.")
        found = found if noise is None else replace(found, noise=_noise(noise))
        found = found if estimate is None else _estimated(found, estimate)
        return found if budget is None else replace(found, budget=budget)
    if not isinstance(method, Method):
        raise BadInput(f"A method is a name or a veilmap.Method, got {type(method).__name__}.")
    if any(option is not None for option in (height, prune, sample, noise, estimate, budget, options)):
        raise BadInput(
            "estimate, height, prune, sample, noise, budget and options go with a method's name: "
            "a veilmap.Method has its own."
        )
    return method


def _noise(noise: str | Noise) -> Noise:
    kinds = [kind.value for kind in Noise if kind is not Noise.NONE]
    value = noise.value if isinstance(noise, Noise) else noise
    if value not in kinds:
        raise BadInput(f"The noise of a release is {' or '.join(kinds)}, got {value!r}.")
    return Noise(value)


def _estimated(method: Method, estimate: str | PostProcessing) -> Method:
    """The method with another estimate; noisy counts have no slopes."""
    kinds = [kind.value for kind in PostProcessing]
    value = estimate.value if isinstance(estimate, PostProcessing) else estimate
    if value not in kinds:
        raise BadInput(f"The estimate of a release is {', '.join(kinds[:-1])} or {kinds[-1]}, got {value!r}.")
    kind = PostProcessing(value)
    return replace(method, estimate=kind, slopes=method.slopes and kind is not PostProcessing.NOISY_COUNTS)

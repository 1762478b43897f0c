"""Find the method for a name with options, or check a ``Method``."""

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
    """Return the exact δ of a release. It is required if the method needs one, and refused otherwise."""
    if method.needs_delta and delta is None:
        raise BadInput(
            f"The guarantee of {method.name} with this noise or these medians is (epsilon, delta). Give a delta."
        )
    if delta is not None and not method.needs_delta:
        raise BadInput(
            f"The guarantee of {method.name} is pure. Leave delta out, or choose the noise discrete-gaussian."
        )
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
    """Return the method with a name and these options, or a ``Method`` as it is, which takes no options."""
    if isinstance(method, str):
        chosen = named(method, height=height, prune_below=prune, sample=sample, options=options)
        if noise is not None and chosen.noise is Noise.NONE:
            raise BadInput(f"{method} has exact counts. Leave the noise out, or choose another method.")
        chosen = chosen if noise is None else replace(chosen, noise=_noise(noise))
        chosen = chosen if estimate is None else _with_estimate(chosen, estimate)
        return chosen if budget is None else replace(chosen, budget=budget)
    if not isinstance(method, Method):
        raise BadInput(f"The method must be a name or a veilmap.Method, got {type(method).__name__}.")
    if any(option is not None for option in (height, prune, sample, noise, estimate, budget, options)):
        raise BadInput(
            "The arguments estimate, height, prune, sample, noise, budget and options need the name of a method. "
            "A veilmap.Method has its own."
        )
    return method


def _noise(noise: str | Noise) -> Noise:
    kinds = [kind.value for kind in Noise if kind is not Noise.NONE]
    value = noise.value if isinstance(noise, Noise) else noise
    if value not in kinds:
        raise BadInput(f"The noise of a release must be {' or '.join(kinds)}, got {value!r}.")
    return Noise(value)


def _with_estimate(method: Method, estimate: str | PostProcessing) -> Method:
    """Return the method with another post-processing. Noisy counts have no slopes."""
    kinds = [kind.value for kind in PostProcessing]
    value = estimate.value if isinstance(estimate, PostProcessing) else estimate
    if value not in kinds:
        raise BadInput(f"The estimate of a release must be {', '.join(kinds[:-1])} or {kinds[-1]}, got {value!r}.")
    kind = PostProcessing(value)
    return replace(method, estimate=kind, slopes=method.slopes and kind is not PostProcessing.NOISY_COUNTS)

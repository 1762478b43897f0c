"""Numbers that a caller gives, exact and in their range."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction

from veilmap.amounts import exact_number
from veilmap.domain import KEY_BITS
from veilmap.errors import BadInput


def whole_height(height: object) -> int:
    """A height that a caller gave, as a plain number."""
    try:
        whole = -1 if isinstance(height, bool) else operator.index(height)  # type: ignore[arg-type]
    except TypeError:
        whole = -1
    if whole < 0:
        raise BadInput(f"The height of a tree is a whole number, 0 or more, got {height!r}.")
    if whole > KEY_BITS:
        raise BadInput(
            f"No domain can be halved more than {KEY_BITS} times, got height={height}: choose a smaller one."
        )
    return whole


def exact_share(share: object, of: str = "medians") -> Fraction:
    """A part of a budget, from 0 to 1 and not all of it."""
    return _between(share, f"The share of the {of} is a number from 0 to below 1", lambda x: 0 <= x < 1)


def exact_rate(rate: object) -> Fraction:
    """The rate of a sample."""
    return _between(rate, "The rate of a sample is a number above 0, up to 1", lambda x: 0 < x <= 1)


def _between(value: object, rule: str, fits: Callable[[Fraction], bool]) -> Fraction:
    try:
        exact = exact_number(value)
    except ValueError:
        exact = Fraction(-1)
    if isinstance(value, bool) or not fits(exact):
        raise BadInput(f"{rule}, got {value!r}.")
    return exact

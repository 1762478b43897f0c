"""Amounts of privacy as they were typed, exactly."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from numbers import Real

from veilmap.domain import KEY_BITS
from veilmap.errors import BadInput

LEAST_EPSILON, MOST_EPSILON = Fraction(1, 10**6), Fraction(100)


def exact_number(value: object) -> Fraction:
    """The number that was typed, exactly: 0.1 is one tenth. ValueError if it is none, or absurdly long."""
    if isinstance(value, Fraction):
        return value
    text = str(value)
    exponent = text.lower().partition("e")[2]
    if len(text) > 400 or len(exponent.lstrip("+-0")) > 3:  # or its digits would fill the memory
        raise ValueError
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise ValueError from None


def exact_epsilon(epsilon: object) -> Fraction:
    """The exact number that was typed: 0.1 means one tenth, not the float nearest to it."""
    rule = f"epsilon must be a number from {float(LEAST_EPSILON)} to {float(MOST_EPSILON):g}"
    if isinstance(epsilon, bool) or not isinstance(epsilon, (Real, str, Decimal)):
        raise BadInput(f"{rule}, got {epsilon!r}.")
    try:
        exact = exact_number(epsilon)
    except ValueError:
        raise BadInput(f"{rule}, got {str(epsilon)[:40]!r}.") from None
    if not LEAST_EPSILON <= exact <= MOST_EPSILON:
        hint = "it says how much one row may matter: 0.1 is strict, 1 usual, above 10 hides little"
        raise BadInput(f"{rule}, got {epsilon}: {hint}.")
    return exact


def exact_delta(delta: object) -> Fraction:
    """The chance that a promise may fail with, as it was typed."""
    try:
        exact = Fraction(-1) if isinstance(delta, bool) else exact_number(delta)
    except ValueError:
        exact = Fraction(-1)
    if not 0 < exact <= Fraction(1, 10):
        raise BadInput(f"delta is a number between 0 and 0.1, far below one over the number of people; got {delta!r}.")
    return exact


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

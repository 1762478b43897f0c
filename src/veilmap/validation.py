"""Checks of numbers that users give: privacy parameters, heights, shares and rates. They are kept exact."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from numbers import Real

from veilmap.domain import KEY_BITS
from veilmap.errors import BadInput

MIN_EPSILON = Fraction(1, 10**6)
MAX_EPSILON = Fraction(100)
MAX_ROWS_PER_UNIT = 10**6
MAX_DELTA = Fraction(1, 10)
MAX_NUMBER_CHARACTERS = 400
MAX_EXPONENT_DIGITS = 3  # 1e9999999 as a fraction would fill the memory


def exact_number(value: object) -> Fraction:
    """Return a number exactly as it was written: 0.1 is one tenth. Raise ValueError if it is no number or too long."""
    if isinstance(value, Fraction):
        return value
    text = str(value)
    exponent = text.lower().partition("e")[2]
    if len(text) > MAX_NUMBER_CHARACTERS or len(exponent.lstrip("+-0")) > MAX_EXPONENT_DIGITS:
        raise ValueError
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise ValueError from None


def exact_epsilon(epsilon: object) -> Fraction:
    """Return a valid epsilon exactly as it was written: 0.1 is one tenth, not the nearest float."""
    rule = f"epsilon must be a number from {float(MIN_EPSILON)} to {float(MAX_EPSILON):g}"
    if isinstance(epsilon, bool) or not isinstance(epsilon, (Real, str, Decimal)):
        raise BadInput(f"{rule}, got {epsilon!r}.")
    try:
        exact = exact_number(epsilon)
    except ValueError:
        raise BadInput(f"{rule}, got {str(epsilon)[:40]!r}.") from None
    if not MIN_EPSILON <= exact <= MAX_EPSILON:
        hint = "It limits the influence of one row: 0.1 is strict, 1 is usual, above 10 protects little"
        raise BadInput(f"{rule}, got {epsilon}. {hint}.")
    return exact


def exact_delta(delta: object) -> Fraction:
    """Return a valid delta (the probability with which the guarantee may fail) exactly as it was written."""
    try:
        exact = Fraction(-1) if isinstance(delta, bool) else exact_number(delta)
    except ValueError:
        exact = Fraction(-1)
    if not 0 < exact <= MAX_DELTA:
        raise BadInput(
            f"delta is a number between 0 and {float(MAX_DELTA):g}, far below 1 / (number of people), got {delta!r}."
        )
    return exact


def whole_height(height: object) -> int:
    """Return a valid height of a tree as an int."""
    try:
        whole = -1 if isinstance(height, bool) else operator.index(height)  # type: ignore[arg-type]
    except TypeError:
        whole = -1
    if whole < 0:
        raise BadInput(f"The height of a tree is a whole number, 0 or more, got {height!r}.")
    if whole > KEY_BITS:
        raise BadInput(
            f"A domain can be halved at most {KEY_BITS} times, got height={height}. Choose a smaller height."
        )
    return whole


def exact_share(share: object, of: str = "medians") -> Fraction:
    """Return a valid share of a budget: at least 0 and below 1."""
    return _in_range(share, f"The share of the {of} is a number from 0 to below 1", lambda x: 0 <= x < 1)


def exact_rate(rate: object) -> Fraction:
    """Return a valid sampling rate: above 0 and at most 1."""
    return _in_range(rate, "The rate of a sample is a number above 0, up to 1", lambda x: 0 < x <= 1)


def _in_range(value: object, rule: str, is_valid: Callable[[Fraction], bool]) -> Fraction:
    try:
        exact = exact_number(value)
    except ValueError:
        exact = Fraction(-1)
    if isinstance(value, bool) or not is_valid(exact):
        raise BadInput(f"{rule}, got {value!r}.")
    return exact


def is_whole_number(value: object, least: int, most: float = math.inf) -> bool:
    """Return whether a value is an ``int`` from ``least`` to ``most``."""
    return type(value) is int and least <= value <= most


def must_be_rows_per_unit(value: object) -> None:
    """Refuse a limit on the rows per unit that is not a whole number in range."""
    if not is_whole_number(value, 1, MAX_ROWS_PER_UNIT):
        raise BadInput(f"max_rows_per_unit must be a whole number from 1 to {MAX_ROWS_PER_UNIT}, got {value!r}.")


def is_finite_number(value: object) -> bool:
    """Return whether a value is a real number, neither infinite nor NaN."""
    try:
        return type(value) is not bool and isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # an integer beyond the range of floats
        return False

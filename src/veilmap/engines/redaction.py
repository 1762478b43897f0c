"""Replace the messages of other libraries, which may quote values of the data."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import TypeVar

from veilmap.errors import UnreadableInput, VeilmapError

T = TypeVar("T")


def guard(read: Callable[[], T], message: str) -> T:
    """Return what ``read`` returns. If it fails, raise an error with this message and without the original error."""
    try:
        return read()
    except (VeilmapError, MemoryError):
        raise
    except Exception:  # noqa: S110 - any message may quote a value
        pass
    # Raised outside the handler, so that __context__ does not keep the original error.
    raise UnreadableInput(message)


def guard_each(items: Iterator[T], message: str) -> Iterator[T]:
    """Yield the items of an iterator that reads as it goes, with each step guarded."""
    while (item := guard(lambda: next(items, None), message)) is not None:
        yield item


@contextlib.contextmanager
def no_warnings() -> Iterator[None]:
    """Suppress warnings: those of GDAL, which pyogrio passes on, quote values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield

"""What other libraries say about the data stays here: they quote cells."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import TypeVar

from veilmap.errors import UnreadableInput, VeilmapError

T = TypeVar("T")


def guard(read: Callable[[], T], sentence: str) -> T:
    """What ``read`` returns; or, if it fails, the sentence and nothing of what went wrong inside."""
    try:
        return read()
    except (VeilmapError, MemoryError):
        raise
    except Exception:  # noqa: S110 - whatever it is, it may quote a cell
        pass
    # Raised outside the handler: not even __context__ remembers.
    raise UnreadableInput(sentence)


def guard_each(items: Iterator[T], sentence: str) -> Iterator[T]:
    """The items of an iterator that reads as it goes, guarded."""
    while (item := guard(lambda: next(items, None), sentence)) is not None:
        yield item


@contextlib.contextmanager
def no_warnings() -> Iterator[None]:
    """GDAL's warnings quote cells too, and pyogrio hands them on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield

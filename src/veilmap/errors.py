"""The exceptions of veilmap.

Every message names the rule, the value that broke it and the way out. It contains public parameters only, and never a
count, a coordinate or a rank of the data.

    VeilmapError
    ├── BadInput (ValueError)        an argument, a file or a query that breaks a rule
    │   ├── UnreadableInput          data that cannot be opened, is truncated or lacks a column
    │   └── TooLarge                 a request that would not fit in memory
    ├── BudgetSpent                  a request for more epsilon than is left
    ├── LedgerError                  a ledger file that cannot be opened or trusted
    ├── ReleaseFileError             a release file that cannot be trusted or understood
    │   ├── NewerVersion             a file written by a later version of veilmap
    │   └── Damaged                  a truncated or altered file
    ├── MissingExtra (ImportError)   a missing optional package; the message says how to install it
    └── VaultFailure                 an error while the data was open; the message names only its type
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType

MAX_MESSAGE_CHARACTERS = 1000


def printable(text: str) -> str:
    """Return the text with control characters escaped, so that a terminal does not obey them."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class VeilmapError(Exception):
    """The base of all errors that veilmap raises on purpose. Messages are printable and of limited length."""

    def __init__(self, message: str = "") -> None:
        message = printable(message)
        if len(message) > MAX_MESSAGE_CHARACTERS:
            half = MAX_MESSAGE_CHARACTERS // 2
            message = f"{message[:half]} … {message[-half:]}"
        super().__init__(message)


class BadInput(VeilmapError, ValueError):
    """An argument, a file or a query that breaks a rule."""


class UnreadableInput(BadInput):
    """Data that cannot be opened, is truncated or lacks a column."""


class TooLarge(BadInput):
    """A request that would not fit in memory."""


class BudgetSpent(VeilmapError):
    """A request for more epsilon than is left."""


class LedgerError(VeilmapError):
    """A ledger file that cannot be opened or trusted."""


class LedgerWarning(UserWarning):
    """A warning about a ledger that its owner should consider."""


class ReleaseFileError(VeilmapError):
    """A release file that cannot be trusted or understood."""


class NewerVersion(ReleaseFileError):
    """A release file that was written by a later version of veilmap."""


class Damaged(ReleaseFileError):
    """A release file that was truncated or altered."""


class MissingExtra(VeilmapError, ImportError):
    """An optional package that is needed but not installed."""


class VaultFailure(VeilmapError):
    """An error that occurred while the data was open."""


def near_misses(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: similar known words, and the list of all."""
    known = list(known)
    by_lower = {name.lower(): name for name in known}
    close = [by_lower[name] for name in difflib.get_close_matches(word.lower(), by_lower, n=3, cutoff=0.5)]
    suggestion = f"Did you mean {' or '.join(map(repr, close))}? " if close else ""
    return f"{suggestion}There are: {', '.join(known)}."


def need(module: str, extra: str, why: str) -> ModuleType:
    """Import and return an optional package. If it is missing, raise an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtra(f"{why} needs the package {module}: pip install 'veilmap[{extra}]'.") from None

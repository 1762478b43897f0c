"""What can go wrong, in sentences.

Every message names the rule, the value that broke it and the way out, and is made of public
parameters only: never of a count, a coordinate or a rank of the data.

    VeilmapError
    ├── BadInput (ValueError)        an argument, a file or a query that breaks a rule
    │   ├── UnreadableInput          data that cannot be opened, is cut short or lacks a column
    │   └── TooLarge                 would not fit in memory
    ├── BudgetSpent                  more epsilon was asked for than is left
    ├── LedgerError                  a ledger file that cannot be opened or trusted
    ├── ReleaseFileError             a release file that cannot be trusted or understood
    │   ├── NewerVersion             written by a later veilmap
    │   └── Damaged                  cut short or altered
    ├── MissingExtra (ImportError)   an optional package is needed; says which command installs it
    └── VaultFailure                 something broke while the data was open; says only what kind of thing
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from types import ModuleType

MOST_SAID = 1000


def printable(text: str) -> str:
    """The same with nothing in it that a terminal might obey."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class VeilmapError(Exception):
    """Any error that veilmap raises on purpose: a printable sentence, whatever it quotes, and no page of it."""

    def __init__(self, sentence: str = "") -> None:
        sentence = printable(sentence)
        if len(sentence) > MOST_SAID:
            sentence = f"{sentence[: MOST_SAID // 2]} … {sentence[-MOST_SAID // 2 :]}"
        super().__init__(sentence)


class BadInput(VeilmapError, ValueError):
    """An argument, a file or a query breaks a rule."""


class UnreadableInput(BadInput):
    """The data cannot be opened, is cut short or lacks a column."""


class TooLarge(BadInput):
    """What was asked for would not fit in memory."""


class BudgetSpent(VeilmapError):
    """More epsilon was asked for than is left."""


class LedgerError(VeilmapError):
    """A ledger file cannot be opened or trusted."""


class LedgerWarning(UserWarning):
    """Something that a ledger knows, and that its owner should think about."""


class ReleaseFileError(VeilmapError):
    """A release file cannot be trusted or understood."""


class NewerVersion(ReleaseFileError):
    """The release file was written by a later veilmap."""


class Damaged(ReleaseFileError):
    """The release file was cut short or altered."""


class MissingExtra(VeilmapError, ImportError):
    """An optional package is needed."""


class VaultFailure(VeilmapError):
    """Something broke while the data was open."""


def near_misses(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: what was probably meant, and what there is."""
    known = list(known)
    by_lower = {name.lower(): name for name in known}
    close = [by_lower[name] for name in difflib.get_close_matches(word.lower(), by_lower, n=3, cutoff=0.5)]
    meant = f"Did you mean {' or '.join(map(repr, close))}? " if close else ""
    return f"{meant}There are: {', '.join(known)}."


def need(module: str, extra: str, why: str) -> ModuleType:
    """Import an optional package, or say how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtra(f"{why} needs the package {module}: pip install 'veilmap[{extra}]'.") from None

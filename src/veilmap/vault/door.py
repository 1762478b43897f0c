"""The door of the gate: one call at a time, in one thread, of plain copies. Proof: proofs/measure.md."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

from veilmap.errors import BadInput
from veilmap.vault.arguments import plain


class Door:
    """Open for the thread that made it, until it is closed."""

    def __init__(self) -> None:
        self._open_for: int | None = get_ident()
        self._closed = False

    def close(self) -> None:
        """Let no further call in."""
        self._closed, self._open_for = True, None

    def guard(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        """Return the verb as a structure may call it."""

        def call(*args: object) -> Any:
            if self._open_for != get_ident():
                raise BadInput("The gate serves one call at a time, in one thread, while its tree grows.")
            self._open_for = None
            try:
                return plain(verb(*map(plain, args)))
            finally:
                self._open_for = None if self._closed else get_ident()

        return call

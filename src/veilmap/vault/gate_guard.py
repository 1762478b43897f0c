"""The guard of the gate: one call at a time, from one thread, with plain copies. Proof: proofs/measure.md."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

from veilmap.errors import BadInput
from veilmap.vault.arguments import plain


class GateGuard:
    """A guard that lets in the thread that created it, until it is closed."""

    def __init__(self) -> None:
        self._open_for: int | None = get_ident()
        self._closed = False

    def close(self) -> None:
        """Refuse every further call."""
        self._closed, self._open_for = True, None

    def wrap(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        """Return the verb in the form that a structure may call."""

        def call(*args: object) -> Any:
            if self._open_for != get_ident():
                raise BadInput("The gate serves one call at a time, from one thread, and only while the tree grows.")
            self._open_for = None
            try:
                return plain(verb(*map(plain, args)))
            finally:
                self._open_for = None if self._closed else get_ident()

        return call

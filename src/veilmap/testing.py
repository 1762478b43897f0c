"""Support for tests and studies of programs that use veilmap."""

from __future__ import annotations

from veilmap.vault.entropy import fixed_entropy

__all__ = ["fixed_entropy"]

"""Black-box audits: make many releases of two neighbouring data sets, and bound epsilon from below."""

from __future__ import annotations

from veilmap.auditing.audits import Audit, audit

__all__ = ["Audit", "audit"]

"""Black-box audits: many releases of two made-up data sets that differ by one row, and what can be told of them."""

from __future__ import annotations

from veilmap.auditing.audits import Audit, audit

__all__ = ["Audit", "audit"]

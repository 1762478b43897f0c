"""Publish the map, veil the people: differentially private spatial decompositions.

>>> import veilmap as vm
>>> domain = vm.Domain({"lon": (-124.82, -103.00), "lat": (31.33, 49.00)})
>>> release = vm.release(points, domain, epsilon=0.5)      # doctest: +SKIP
>>> release.count([[-120, 45, -119, 46]]).estimate         # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

# Names are loaded when they are first used, so that `veilmap --help` does not wait for numba.
_HOME = {
    "AdaptiveGrid": "structures",
    "Answers": "answer",
    "Audit": "auditing",
    "BadInput": "errors",
    "Best": "structures",
    "BudgetSpent": "errors",
    "CellTree": "structures",
    "Domain": "domain",
    "Estimate": "method",
    "Geometric": "budget",
    "HilbertR": "structures",
    "KdTree": "structures",
    "LeafOnly": "budget",
    "Ledger": "accounts",
    "LedgerError": "errors",
    "LedgerWarning": "errors",
    "Levels": "budget",
    "Match": "matching",
    "Method": "method",
    "Noise": "method",
    "PrivTree": "structures",
    "Privacy": "privacy",
    "Quadtree": "structures",
    "Release": "published",
    "ReleaseFileError": "errors",
    "Uniform": "budget",
    "UniformGrid": "structures",
    "VeilmapError": "errors",
    "Workload": "structures",
    "audit": "auditing",
    "load": "published",
    "make_key": "signatures",
    "match": "matching",
    "private_median": "vault",
    "release": "publish",
    "sign": "signatures",
    "verify": "signatures",
}
__all__ = sorted(_HOME)  # noqa: PLE0605

if TYPE_CHECKING:
    from veilmap.accounts import Ledger as Ledger
    from veilmap.answer import Answers as Answers
    from veilmap.auditing import Audit as Audit
    from veilmap.auditing import audit as audit
    from veilmap.budget import Geometric as Geometric
    from veilmap.budget import LeafOnly as LeafOnly
    from veilmap.budget import Levels as Levels
    from veilmap.budget import Uniform as Uniform
    from veilmap.domain import Domain as Domain
    from veilmap.errors import BadInput as BadInput
    from veilmap.errors import BudgetSpent as BudgetSpent
    from veilmap.errors import LedgerError as LedgerError
    from veilmap.errors import LedgerWarning as LedgerWarning
    from veilmap.errors import ReleaseFileError as ReleaseFileError
    from veilmap.errors import VeilmapError as VeilmapError
    from veilmap.matching import Match as Match
    from veilmap.matching import match as match
    from veilmap.method import Estimate as Estimate
    from veilmap.method import Method as Method
    from veilmap.method import Noise as Noise
    from veilmap.privacy import Privacy as Privacy
    from veilmap.publish import release as release
    from veilmap.published import Release as Release
    from veilmap.published import load as load
    from veilmap.signatures import make_key as make_key
    from veilmap.signatures import sign as sign
    from veilmap.signatures import verify as verify
    from veilmap.structures import AdaptiveGrid as AdaptiveGrid
    from veilmap.structures import Best as Best
    from veilmap.structures import CellTree as CellTree
    from veilmap.structures import HilbertR as HilbertR
    from veilmap.structures import KdTree as KdTree
    from veilmap.structures import PrivTree as PrivTree
    from veilmap.structures import Quadtree as Quadtree
    from veilmap.structures import UniformGrid as UniformGrid
    from veilmap.structures import Workload as Workload
    from veilmap.vault import private_median as private_median


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'veilmap' has no attribute {name!r}")
    value = getattr(import_module(f"veilmap.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])

"""Publish the map, veil the people: differentially private spatial decompositions.

>>> import veilmap as vm
>>> domain = vm.Domain({"lon": (-124.82, -103.00), "lat": (31.33, 49.00)})
>>> release = vm.release(points, domain, epsilon=0.5)
>>> estimate = release.count([[-116, 39, -114, 41]]).estimate
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

# Names are imported when they are first used, so that `veilmap --help` does not wait for numba.
_HOME = {
    "AdaptiveGrid": "structures",
    "Answers": "answers.answerer",
    "Audit": "auditing",
    "BadInput": "errors",
    "Best": "structures",
    "BudgetSpent": "errors",
    "CellTree": "structures",
    "Domain": "domain",
    "Estimate": "method.method",
    "Geometric": "budgets",
    "HilbertR": "structures",
    "KdTree": "structures",
    "LeafOnly": "budgets",
    "Ledger": "releases.ledger_file",
    "LedgerError": "errors",
    "LedgerWarning": "errors",
    "Levels": "budgets",
    "Match": "matching",
    "Method": "method.method",
    "Noise": "method.method",
    "Plan": "planning.planner",
    "PostProcessing": "method.method",
    "PrivTree": "structures",
    "Privacy": "releases.privacy",
    "Quadtree": "structures",
    "Release": "releases.release",
    "ReleaseFileError": "errors",
    "Uniform": "budgets",
    "UniformGrid": "structures",
    "VeilmapError": "errors",
    "Workload": "budgets",
    "audit": "auditing",
    "load": "releases.release",
    "make_key": "releases.signatures",
    "match": "matching",
    "plan": "planning.planner",
    "private_median": "vault",
    "release": "releases.make",
    "sign": "releases.signatures",
    "verify": "releases.signatures",
}
__all__ = sorted(_HOME)  # noqa: PLE0605

if TYPE_CHECKING:
    from veilmap.answers.answerer import Answers as Answers
    from veilmap.auditing import Audit as Audit
    from veilmap.auditing import audit as audit
    from veilmap.budgets import Geometric as Geometric
    from veilmap.budgets import LeafOnly as LeafOnly
    from veilmap.budgets import Levels as Levels
    from veilmap.budgets import Uniform as Uniform
    from veilmap.budgets import Workload as Workload
    from veilmap.domain import Domain as Domain
    from veilmap.errors import BadInput as BadInput
    from veilmap.errors import BudgetSpent as BudgetSpent
    from veilmap.errors import LedgerError as LedgerError
    from veilmap.errors import LedgerWarning as LedgerWarning
    from veilmap.errors import ReleaseFileError as ReleaseFileError
    from veilmap.errors import VeilmapError as VeilmapError
    from veilmap.matching import Match as Match
    from veilmap.matching import match as match
    from veilmap.method.method import Estimate as Estimate
    from veilmap.method.method import Method as Method
    from veilmap.method.method import Noise as Noise
    from veilmap.method.method import PostProcessing as PostProcessing
    from veilmap.planning.planner import Plan as Plan
    from veilmap.planning.planner import plan as plan
    from veilmap.releases.ledger_file import Ledger as Ledger
    from veilmap.releases.make import release as release
    from veilmap.releases.privacy import Privacy as Privacy
    from veilmap.releases.release import Release as Release
    from veilmap.releases.release import load as load
    from veilmap.releases.signatures import make_key as make_key
    from veilmap.releases.signatures import sign as sign
    from veilmap.releases.signatures import verify as verify
    from veilmap.structures import AdaptiveGrid as AdaptiveGrid
    from veilmap.structures import Best as Best
    from veilmap.structures import CellTree as CellTree
    from veilmap.structures import HilbertR as HilbertR
    from veilmap.structures import KdTree as KdTree
    from veilmap.structures import PrivTree as PrivTree
    from veilmap.structures import Quadtree as Quadtree
    from veilmap.structures import UniformGrid as UniformGrid
    from veilmap.vault import private_median as private_median


def __getattr__(name: str) -> object:
    if name == "basemap":  # its first public location; it has coastlines and land for maps of your own
        return import_module("veilmap.geography.basemap")
    if name not in _HOME:
        raise AttributeError(f"module 'veilmap' has no attribute {name!r}")
    value = getattr(import_module(f"veilmap.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])

"""Private record matching (section 8.3 of the paper): which records of two parties must be compared at all.

Each party publishes a private decomposition of its own records. Boxes that lie too far apart cannot hold a match,
so only the others need the expensive secure comparison. Inan, Kantarcioglu, Ghinita, Bertino, EDBT 2010.
"""

from __future__ import annotations

from veilmap.matching.blocks import Blocks
from veilmap.matching.local_match import Match, match
from veilmap.matching.rule import Rule

__all__ = ["Blocks", "Match", "Rule", "match"]

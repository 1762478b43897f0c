"""Private record matching (section 8.3 of the paper): find which records of two parties must be compared securely.

Each party publishes a private decomposition of its own records. Two boxes that lie too far apart cannot contain a
match, so only the remaining pairs need the expensive secure comparison (Inan, Kantarcioglu, Ghinita and Bertino,
EDBT 2010).
"""

from __future__ import annotations

from veilmap.matching.blocks import Blocks
from veilmap.matching.local_match import Match, match
from veilmap.matching.rule import Rule

__all__ = ["Blocks", "Match", "Rule", "match"]

"""Text that people read is plain English: a short list of turns stays out of it.

Read are the strings and docstrings of the package, the pages of the documentation, and the texts of the web map.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "proofs").glob("*.md")])
WEB = sorted([*(ROOT / "web" / "src").glob("*.ts"), ROOT / "web" / "index.html"])
SOURCES = sorted((ROOT / "src" / "veilmap").rglob("*.py"))

COUNTED = (
    "rows|cells|ids|bytes|megabytes|boxes|points|counts|nodes|leaves|steps|draws|releases|requests|lists|parts|bits"
)
PER = "row|person|user|side|axis|second|level|leaf|node|thread|block|unit|cell|line|column|query|party|slot"
BANNED = {
    rf"\b(?:{COUNTED}) an? (?:{PER})\b": "write 'per': rows per person, cells per axis",
    r"\bone (?:id|number|epsilon|node|key|value) an? (?:row|node|level|block|leaf)\b": "write 'per'",
    r"cannot be told (?:from|apart)": "cannot be distinguished from",
    r"\byardsticks?\b": "non-private baseline",
    r"had any .{0,40} been left out or put in": "than if any one row had been left out",
    r"would have concluded": "Any conclusion drawn from this file is at most … times more or less likely",
    r"each at its own price": "with its own share of the budget",
    r", and nobody\b": "say what is missing",
    r"how far off answers are": "calibration of error bars",
    r"\bhalves of the boxes\b": "roughness",
    r"\bkeep(?:s|ing)? company\b": "correlated",
    r"\bso manieth\b": "every k-th",
    r"\bdearest path\b": "most expensive path",
}


def strings_of(path: Path) -> list[tuple[int, str]]:
    """Return every string of a Python file, docstrings too, with its line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def found_in(text: str) -> list[str]:
    """Return the banned turns of a text, with what to write instead."""
    flat = re.sub(r"\s+", " ", text)
    return [
        f"{match.group()!r}: {instead}"
        for pattern, instead in BANNED.items()
        for match in re.finditer(pattern, flat, re.IGNORECASE)
    ]


@pytest.mark.parametrize("path", [*PAGES, *WEB], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_pages_are_plain(path: Path) -> None:
    assert found_in(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_strings_of_the_package_are_plain(path: Path) -> None:
    assert [(line, turn) for line, text in strings_of(path) for turn in found_in(text)] == []


def test_banned_turns_are_found() -> None:
    assert found_in("at most five rows\n  a person") == [
        "'rows a person': write 'per': rows per person, cells per axis",
    ]
    assert found_in("what has no colour cannot be told from empty")
    assert not found_in("at most five rows per person, in a row, for a person")

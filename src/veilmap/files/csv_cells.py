"""Make text in CSV files safe, so that no spreadsheet runs it as a formula.

Names of axes and zones may come from someone else. A spreadsheet runs a cell that begins with =, +, - or @ as a
formula, which can send other cells to a server or start a program. An apostrophe before the text prevents this, as
OWASP recommends:
https://owasp.org/www-community/attacks/CSV_Injection
"""

from __future__ import annotations

import re
from typing import Any

FORMULA_STARTS = frozenset("=+-@＝＋－＠")  # the last four are the full-width forms of East Asian keyboards
LEADING_CONTROLS = ("\t", "\r", "\n")
AFTER_SEPARATOR = re.compile(r"(;\s*|(?<=\S)\t\s*)(?=[=+\-@＝＋－＠])")
"""Positions at which a formula would begin if a program read a semicolon or a tab as the end of a cell."""
CELL_NUMBER_PATTERN = r"[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?"
CELL_OF_NUMBERS = re.compile(rf"{CELL_NUMBER_PATTERN}(,{CELL_NUMBER_PATTERN})*", re.ASCII)


def safe_cell(value: Any) -> Any:
    """Return a cell for a CSV file: text that a spreadsheet might run gets an apostrophe, other values stay unchanged.

    A number, or several numbers with commas between them, is no formula and stays unchanged. Carriage returns become
    line feeds: Python does not quote a cell with a lone carriage return, so the text after it would begin a new row.
    """
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    first = next((c for c in text if c.isprintable() and not c.isspace()), "")  # readers may drop other characters
    may_run = first in FORMULA_STARTS or text.startswith(LEADING_CONTROLS)
    text = AFTER_SEPARATOR.sub(r"\1'", text)
    return f"'{text}" if may_run and not CELL_OF_NUMBERS.fullmatch(text) else text


def safe_cells(values: Any) -> list[Any]:
    return [safe_cell(value) for value in values]

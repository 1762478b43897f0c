"""Text in CSV files that no spreadsheet runs as a formula.

Names of axes and zones may come from someone else. A spreadsheet runs a cell that begins with =, +, - or @ as a
formula, which can send other cells away or start a program. An apostrophe before it makes it text, as OWASP recommends:
https://owasp.org/www-community/attacks/CSV_Injection
"""

from __future__ import annotations

import re
from typing import Any

FORMULA_STARTS = frozenset("=+-@＝＋－＠")  # the last four as East Asian keyboards write them
LEADING_CONTROLS = ("\t", "\r", "\n")
AFTER_SEPARATOR = re.compile(r"(;\s*|(?<=\S)\t\s*)(?=[=+\-@＝＋－＠])")
"""Where a formula would begin if a program took a semicolon or a tab for the end of a cell."""
NUMBER = r"[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?"
NUMBERS = re.compile(rf"{NUMBER}(,{NUMBER})*", re.ASCII)


def safe_cell(value: Any) -> Any:
    """Return a cell for a CSV file: text that a spreadsheet might run begins with an apostrophe, all else is as it was.

    Numbers, also several with commas between, stay as they are: they call nothing. Carriage returns become line feeds,
    since Python writes a cell with a lone one without quotes, and what follows it would begin a row.
    """
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    first = next((c for c in text if c.isprintable() and not c.isspace()), "")  # readers may drop what comes before
    runs = first in FORMULA_STARTS or text.startswith(LEADING_CONTROLS)
    text = AFTER_SEPARATOR.sub(r"\1'", text)
    return f"'{text}" if runs and not NUMBERS.fullmatch(text) else text


def safe_cells(values: Any) -> list[Any]:
    return [safe_cell(value) for value in values]

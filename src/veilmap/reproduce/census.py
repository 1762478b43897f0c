"""Generated census-like records with correlated columns: age, years of education, weekly hours, capital gain."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from veilmap.arrays import Floats
from veilmap.domain import Domain
from veilmap.errors import UnreadableInput

PEOPLE_DOMAIN = Domain({"age": (17, 90), "education": (1, 16), "hours": (1, 99), "gain": (0, 99_999)})
PEOPLE_THRESHOLDS = (1, 0, 2, 100)
ADULT_COLUMN_INDEX = {"age": 0, "education": 4, "hours": 12, "gain": 10}  # if the file has no header
ADULT_COLUMN_NAMES = {"age": "age", "education": "education-num", "hours": "hours-per-week", "gain": "capital-gain"}
EDUCATION_PER_CENT = {
    3: 2,
    4: 2,
    5: 2,
    6: 3,
    7: 4,
    8: 1,
    9: 32,
    10: 22,
    11: 4,
    12: 3,
    13: 17,
    14: 5,
    15: 2,
    16: 1,
}  # per cent


def census(n: int, seed: int) -> Floats:
    """Return ``n`` generated people as whole numbers, with ties like those of real files.

    About half of them work 40 hours, and about nine in ten have no capital gain. Age, hours and gain increase with
    education; young and old people work less.
    """
    rng = np.random.default_rng(seed)
    weight = np.array(list(EDUCATION_PER_CENT.values())) / sum(EDUCATION_PER_CENT.values())
    education = rng.choice(list(EDUCATION_PER_CENT), n, p=weight)
    age = np.clip(17 + rng.gamma(2.6, 8.5, n) + 5 * (education > 12), 17, 90).round()
    usual = 40 + 0.9 * (education - 10) - 12 * (age < 23) - 10 * (age > 63)
    hours = np.where(rng.random(n) < 0.47, 40, np.clip(usual + 11 * rng.normal(size=n), 1, 99)).round()
    chance = 1 / (1 + np.exp(3.4 - 0.22 * (education - 10) - 0.03 * (age - 38)))
    amount = np.exp(rng.normal(8.6 + 0.1 * (education - 10), 0.8))
    gain = np.where(rng.random(n) < chance, np.clip(amount, 100, 99_999), 0).round()
    return np.stack([age, education, hours, gain], axis=1)


def read_adult(path: Path) -> Floats:
    """Return the four columns of the UCI repository's Adult file, which may have a header."""
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise UnreadableInput(f"Cannot read {path}: {reason}.") from None
    cells = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip("| ") and line[0] != "|"]
    places = list(ADULT_COLUMN_INDEX.values())
    if cells and not cells[0][0].isdecimal():
        header = [cell.lower().replace("_", "-").replace(".", "-") for cell in cells.pop(0)]
        wanted = [
            ADULT_COLUMN_NAMES[name] if ADULT_COLUMN_NAMES[name] in header else name for name in ADULT_COLUMN_INDEX
        ]
        if missing := [name for name in wanted if name not in header]:
            raise UnreadableInput(
                f"{path} has no column {missing[0]!r}. The Adult file has {', '.join(ADULT_COLUMN_NAMES.values())}."
            )
        places = [header.index(name) for name in wanted]
    rows = [[row[k] for k in places] for row in cells if len(row) > max(places)]
    kept = [row for row in rows if all(re.fullmatch(r"-?\d+(\.\d*)?", cell) for cell in row)]
    if len(kept) < 30:
        raise UnreadableInput(
            f"{path} has fewer than 30 complete records of {', '.join(ADULT_COLUMN_INDEX)}. Is it the Adult file?"
        )
    return np.array(kept, np.float64)

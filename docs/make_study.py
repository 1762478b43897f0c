"""Write docs/study.md from two full runs of the study: python docs/make_study.py FOLDER FOLDER

The first folder is a run on the default data (veilmap reproduce -o FOLDER). The second is a run on the western roads
(veilmap reproduce fig3 fig5 fig6 fig7 rivals --data road_west_cities.parquet --domain ... -o FOLDER).
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from pathlib import Path

DOCS_FOLDER = Path(__file__).parent
PICTURES_FOLDER = DOCS_FOLDER / "images" / "study"
LINE_CHARACTERS = 120
UNBREAKABLE_SPACE = "\x00"  # stands for a space at which lines must not be broken
PAGE_TOP = """\
# The study

<!-- Written by docs/make_study.py from the reports of two full runs. -->

`veilmap reproduce` runs the experiments of section 8 of the paper on this implementation and on competing methods. For
each claim of the paper it states whether the claim is *reproduced*, *partly reproduced* or *not reproduced*. This page
shows two full runs:

<!-- not run: ten minutes each, and it needs a file -->
```console
$ veilmap reproduce -o study
$ veilmap reproduce fig3 fig5 fig6 fig7 rivals --data road_west_cities.parquet \\
>     --domain "lon=-124.82:-103.00,lat=31.33:49.00" -o study-west
```

The first run uses *generated* points: 1.63 million road intersections of towns and roads in Washington and New Mexico,
generated to resemble those of the paper, whose own file is not available here. The second run uses *real* points: 1.25
million road intersections of 87 cities in the same box (© OpenStreetMap contributors, ODbL), which are far more skewed.

`--quick` runs the same experiments in two minutes, on fewer points. If you have the Census files, you can run the study
on the original data: `--data` reads TIGER/Line in the format of 2006 (record type 1) and in the current one.

Random numbers are fixed by `--seed`, so the same command gives the same tables, except for times and for other versions
of numpy. These releases are marked *not private*. Times were measured on two cores that were also doing other work, so
compare them with care; `make bench` gives better ones.

Every error is the median of |estimate − truth| / truth over 600 random non-empty boxes of one shape. Spreads are over
five repetitions. Shapes are in degrees.
"""


def sections(folder: Path) -> dict[str, str]:
    """Return the text of each section of a report by its title."""
    parts = re.split(r"^## (.*)$", (folder / "report.md").read_text("utf-8"), flags=re.M)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def illustrated(text: str, folder: Path, name: str) -> str:
    """Copy the pictures of a section to the docs, and return the text with links to the copies."""
    for picture in re.findall(r"\]\(([\w.-]+\.png)\)", text):
        (PICTURES_FOLDER / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / picture, PICTURES_FOLDER / name / picture)
        text = text.replace(f"]({picture})", f"](images/study/{name}/{picture})")
    return text


def wrapped(text: str) -> str:
    """Return the text with paragraphs and list items wrapped; tables, pictures and headings stay on one line.

    Shapes like (1, 1), percentages, and numbers after a word stay together, because a line that begins with a number
    may be read as an item of a list.
    """
    return "\n".join(
        line if line.startswith(("|", "![", "#")) else _filled(line) for line in text.splitlines()
    ).replace(UNBREAKABLE_SPACE, " ")


def _filled(line: str) -> str:
    joined = re.sub(r"\((\d[\d.]*), (?=\d)", rf"(\1,{UNBREAKABLE_SPACE}", line)
    joined = re.sub(r" (?=%)|(?<=\w) (?=\d)| (?=\d+[.)](?: |$))", UNBREAKABLE_SPACE, joined)
    return textwrap.fill(
        joined,
        LINE_CHARACTERS,
        subsequent_indent="  " if line.startswith("- ") else "",
        break_long_words=False,
        break_on_hyphens=False,
    )


def main() -> None:
    generated, west = map(Path, sys.argv[1:])
    real = sections(west)
    page = [PAGE_TOP.strip()]
    for title, text in sections(generated).items():
        page += [f"## {title}", wrapped(illustrated(text, generated, "generated"))]
        if title in real and "record matching" not in title:
            page += ["### The same on the western roads", wrapped(illustrated(real[title], west, "west"))]
    (DOCS_FOLDER / "study.md").write_text("\n\n".join(page) + "\n", "utf-8")


if __name__ == "__main__":
    main()

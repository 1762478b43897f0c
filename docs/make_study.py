"""Write docs/study.md from two full runs of the study: python docs/make_study.py FOLDER FOLDER

The first folder is of the default data (veilmap reproduce -o FOLDER), the second of the western roads
(veilmap reproduce fig3 fig5 fig6 fig7 rivals --data road_west_cities.parquet --domain ... -o FOLDER).
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

DOCS_FOLDER = Path(__file__).parent
PICTURES_FOLDER = DOCS_FOLDER / "images" / "study"
PAGE_TOP = """\
# The study

<!-- Written by docs/make_study.py from the reports of two full runs. -->

`veilmap reproduce` runs the experiments of section 8 of the paper on this implementation, and on its rivals, and says
of every claim whether it is seen. This page holds two full runs:

<!-- not run: ten minutes each, and it needs a file -->
```console
$ veilmap reproduce -o study
$ veilmap reproduce fig3 fig5 fig6 fig7 rivals --data road_west_cities.parquet \\
>     --domain "lon=-124.82:-103.00,lat=31.33:49.00" -o study-west
```

The first is on *generated* points: 1.63 million road intersections of towns and roads in Washington and New Mexico,
made up like those of the paper, whose own file is not to be had here. The second is on *real* ones: 1.25 million road
intersections of 87 cities in the same box (© OpenStreetMap contributors, ODbL), far more skewed. `--quick` shows the
same in two minutes, on fewer points. Anyone with the Census files can have the original: `--data` reads TIGER/Line,
of 2006 (record type 1) and of today. Random numbers are fixed by `--seed`, so that the same command gives the same
tables (but for times, and for other versions of numpy); these releases are marked *not private*. Times are of two cores
that had other work to do meanwhile: compare them with care; `make bench` has better ones.

Every error is the median, over 600 random non-empty boxes of a shape, of |estimate − truth| / truth; spreads are over
five repetitions. Shapes are in degrees.
"""


def sections(folder: Path) -> dict[str, str]:
    """Title of each part of a report, and what it says; a description of the points comes under no title."""
    parts = re.split(r"^## (.*)$", (folder / "report.md").read_text("utf-8"), flags=re.M)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def illustrated(text: str, folder: Path, name: str) -> str:
    """The text with its pictures copied beside the page."""
    for picture in re.findall(r"\]\(([\w.-]+\.png)\)", text):
        (PICTURES_FOLDER / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / picture, PICTURES_FOLDER / name / picture)
        text = text.replace(f"]({picture})", f"](images/study/{name}/{picture})")
    return text


def main() -> None:
    generated, west = map(Path, sys.argv[1:])
    real = sections(west)
    page = [PAGE_TOP]
    for title, text in sections(generated).items():
        page += [f"## {title}", illustrated(text, generated, "generated")]
        if title in real and "record matching" not in title:
            page += ["### The same on the western roads", illustrated(real[title], west, "west")]
    (DOCS_FOLDER / "study.md").write_text("\n\n".join(page) + "\n", "utf-8")


if __name__ == "__main__":
    main()

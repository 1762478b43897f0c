"""`veilmap demo`: release, query and draw a public data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilmap.cli._output import print_table, progress, say

HELP_EXAMPLE = "Example: veilmap demo -o demo"


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the release and the map.")] = Path("demo"),
) -> None:
    """Run a complete example: release a public data set, query it, compare with the exact counts, draw a map.

    The data are 235 thousand populated places of the world. The extra veilmap[demo] installs them.
    """
    from veilmap.demo import DEMO_EPSILON, run

    with progress("Places") as tell:
        result = run(out, tell)
    say(f"Released the populated places of the world with epsilon {DEMO_EPSILON}. Places per area:")
    print_table(
        ["area", "estimate", "95 % interval", "exact count", "exact count is"],
        [
            [
                row.where,
                f"{row.estimate:,.0f}",
                f"{row.low:,.0f} to {row.high:,.0f}",
                f"{row.truth:,}",
                "in the interval" if row.inside else "outside",
            ]
            for row in result.rows
        ],
    )
    say("Exact counts are shown only because these places are public. A release does not contain them.")
    say(f"Wrote {result.release} and {result.picture}. Next: veilmap info {result.release}")

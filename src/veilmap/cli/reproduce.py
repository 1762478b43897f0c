"""veilmap reproduce: the experimental study of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilmap.cli.show import print_table, progress, say
from veilmap.errors import BadInput, near_misses

EXAMPLE = "Example: veilmap reproduce fig3 fig5 --quick -o study"


def reproduce(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIGURE]...", help="fig2 to fig7, as in the paper, or rivals; all when not given."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for tables, pictures and the report.")] = Path(
        "study"
    ),
    data: Annotated[
        Path | None, typer.Option("--data", help="Points of your own: two columns, or TIGER/Line files.")
    ] = None,
    domain: Annotated[
        str | None, typer.Option("--domain", help="Their box, like lon=-125:-103,lat=31:49; around them if not given.")
    ] = None,
    people: Annotated[Path | None, typer.Option("--people", help="The Adult file, for record matching.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same tables.")] = 2012,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer points and repetitions: two minutes in all.")] = False,
) -> None:
    """Run the paper's experiments on this implementation and on its rivals.

    Writes a page with every table and picture (index.html, report.md), and says for each claim of the paper whether it
    is seen. What is done is remembered in the folder: an interrupted run goes on where it was. Random numbers are
    fixed, so the releases in it are not private: give public data only.
    """
    from veilmap.reproduce import EXPERIMENTS, prepare
    from veilmap.reproduce.runner import run

    chosen = what or list(EXPERIMENTS)
    for name in chosen:
        if name not in EXPERIMENTS:
            raise BadInput(f"The study has no {name!r}. {near_misses(name, EXPERIMENTS)}")
    if people is not None and "fig7" not in chosen:
        raise BadInput("--people is for record matching, in fig7: leave it out.")
    with progress("Study") as tell:
        tell(0.0, "points")
        setting, known = prepare(data, domain, people, seed, quick)
        experiments = [experiment for name in dict.fromkeys(chosen) for experiment in known[name]]
        others = [e for name in known if name not in chosen for e in known[name]]
        try:
            rows = run(experiments, setting, out, tell, others)
        except KeyboardInterrupt:
            typer.echo(f"veilmap: interrupted; the same command with -o {out} goes on where it was.", err=True)
            raise typer.Exit(130) from None
    for experiment in experiments:
        say(experiment.title)
        claims = experiment.claims(rows[experiment.name])
        print_table(["claim", "verdict"], [[claim.text, claim.verdict] for claim in claims])
    say(f"Wrote {out / 'index.html'}: every table and picture, and the reasons for each verdict.")

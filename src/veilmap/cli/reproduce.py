"""`veilmap reproduce`: run the experiments of the paper, and compare the default method with rival methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilmap.cli._output import print_table, progress, say
from veilmap.errors import BadInput, near_misses

if TYPE_CHECKING:
    from veilmap.reproduce.study import Claim

HELP_EXAMPLE = "Example: veilmap reproduce fig3 fig5 --quick -o study"


def reproduce(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="FIGURE", help="fig2 to fig7, as in the paper, or rivals; all if not given."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The folder for tables, pictures and the report; ./study or ./score if not given."
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data", help="Your own points: two columns, or TIGER/Line files. With --score, may be repeated."
        ),
    ] = None,
    domain: Annotated[
        str | None,
        typer.Option(
            "--domain",
            help="The domain of --data, for example lon=-125:-103,lat=31:49; their bounding box if not given.",
        ),
    ] = None,
    people: Annotated[
        Path | None, typer.Option("--people", help="The UCI Adult file, for record matching (fig7).")
    ] = None,
    score: Annotated[
        bool, typer.Option("--score", help="With rivals: compare 'best' with rival methods on many point sets.")
    ] = False,
    repeats: Annotated[
        int | None,
        typer.Option("--repeats", min=2, help="Repetitions with --score; 5 if not given, or 3 with --quick."),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="The seed of the random numbers. The same seed gives the same tables.")
    ] = 2012,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use fewer points and repetitions; takes about two minutes.")
    ] = False,
) -> None:
    """Run the experiments of the paper with this implementation and with rival methods.

    Writes a page with all tables and pictures (index.html, report.md) that states for each claim of the paper whether
    it was reproduced. Results are kept in the folder, so that an interrupted run continues where it stopped. Random
    numbers are fixed, so the releases are not private: use public data only.

    With --score, prints the errors of 'best' relative to those of the adaptive grid, per point set and over all sets,
    on your own files or on synthetic point sets.
    """
    from veilmap.reproduce import EXPERIMENTS

    chosen = what or list(EXPERIMENTS)
    for name in chosen:
        if name not in EXPERIMENTS:
            raise BadInput(f"There is no experiment {name!r}. {near_misses(name, EXPERIMENTS)}")
    if people is not None and "fig7" not in chosen:
        raise BadInput("--people is for record matching (fig7), which was not chosen. Leave --people out, or add fig7.")
    files = data or []
    if score:
        if set(chosen) != {"rivals"}:
            raise BadInput("--score works with rivals alone. Run: veilmap reproduce rivals --score.")
        _score(files, domain, repeats, seed, quick, out or Path("score"))
        return
    if len(files) > 1:
        names = ", ".join(map(str, files))
        raise BadInput(f"The study takes one point set, got {names}. Give --data once, or use rivals --score.")
    if repeats is not None:
        raise BadInput("--repeats works with rivals --score only. Leave it out.")
    _study(list(dict.fromkeys(chosen)), files[0] if files else None, domain, people, seed, quick, out or Path("study"))


def _study(
    chosen: list[str], data: Path | None, domain: str | None, people: Path | None, seed: int, quick: bool, out: Path
) -> None:
    from veilmap.reproduce import prepare
    from veilmap.reproduce.runner import run

    with _resumable_progress("Study", out) as tell:
        setting, known = prepare(data, domain, people, seed, quick)
        experiments = [experiment for name in chosen for experiment in known[name]]
        others = [e for name in known if name not in chosen for e in known[name]]
        rows = run(experiments, setting, out, tell, others)
    for experiment in experiments:
        say(experiment.title)
        _print_claims(experiment.claims(rows[experiment.name]))
    say(f"Wrote {out / 'index.html'} with all tables and pictures, and the reasons for each verdict.")


def _score(files: list[Path], domain: str | None, repeats: int | None, seed: int, quick: bool, out: Path) -> None:
    from veilmap.domain import Domain
    from veilmap.reproduce.point_sets import default_sets, read_sets
    from veilmap.reproduce.runner import run
    from veilmap.reproduce.score import experiment, shared_setting

    if domain is not None and not files:
        raise BadInput("--domain needs --data: it is the domain of your own points. Add --data, or leave --domain out.")
    data_domain = None if domain is None else Domain.parse(domain)
    with _resumable_progress("Score", out) as tell:
        sets = read_sets(files, data_domain, seed, quick) if files else default_sets(seed, quick)
        setting = shared_setting(seed, quick, repeats)
        compared = experiment(setting, sets)
        rows = run([compared], setting, out, tell)[compared.name]
    for table in compared.tables(rows):
        say(table.title)
        print_table(list(table.header), [list(row) for row in table.rows])
    _print_claims(compared.claims(rows))
    say(f"Wrote {out / 'score.csv'}, {out / 'score.md'} and {out / 'index.html'}.")


@contextmanager
def _resumable_progress(task_name: str, out: Path) -> Iterator[Callable[..., None]]:
    """Show progress. If interrupted, say how to continue."""
    with progress(task_name) as tell:
        tell(0.0, "points")
        try:
            yield tell
        except KeyboardInterrupt:
            typer.echo(f"veilmap: Interrupted. Run the same command with -o {out} to continue.", err=True)
            raise SystemExit(130) from None  # so that main() prints no second message


def _print_claims(claims: list[Claim]) -> None:
    print_table(["claim", "verdict"], [[claim.text, claim.verdict] for claim in claims])

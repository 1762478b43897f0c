"""veilmap reproduce: the experimental study of the paper, and a score of the default method against its rivals."""

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

EXAMPLE = "Example: veilmap reproduce fig3 fig5 --quick -o study"


def reproduce(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIGURE]...", help="fig2 to fig7, as in the paper, or rivals; all when not given."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The folder for tables, pictures and the report: study, or score, when not given."
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data", help="Points of your own: two columns, or TIGER/Line files. May be repeated with --score."
        ),
    ] = None,
    domain: Annotated[
        str | None, typer.Option("--domain", help="Their box, like lon=-125:-103,lat=31:49; around them if not given.")
    ] = None,
    people: Annotated[Path | None, typer.Option("--people", help="The Adult file, for record matching.")] = None,
    score: Annotated[
        bool, typer.Option("--score", help="With rivals: compare best with its rivals on many sets of points.")
    ] = False,
    repeats: Annotated[
        int | None, typer.Option("--repeats", min=2, help="Repetitions of a score; 5, or 3 when it is quick.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same tables.")] = 2012,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer points and repetitions: two minutes in all.")] = False,
) -> None:
    """Run the paper's experiments on this implementation and on its rivals.

    Writes a page with every table and picture (index.html, report.md), and says for each claim of the paper whether it
    is seen. What is done is remembered in the folder: an interrupted run goes on where it was. Random numbers are
    fixed, so the releases in it are not private: give public data only.

    With --score: the errors of best over those of the adaptive grid, by set and over all of them, on files of your own
    or on sets that are made up.
    """
    from veilmap.reproduce import EXPERIMENTS

    chosen = what or list(EXPERIMENTS)
    for name in chosen:
        if name not in EXPERIMENTS:
            raise BadInput(f"The study has no {name!r}. {near_misses(name, EXPERIMENTS)}")
    if people is not None and "fig7" not in chosen:
        raise BadInput("--people is for record matching, in fig7: leave it out.")
    files = data or []
    if score:
        if set(chosen) != {"rivals"}:
            raise BadInput("--score is of rivals, and of nothing else: veilmap reproduce rivals --score.")
        _score(files, domain, repeats, seed, quick, out or Path("score"))
        return
    if len(files) > 1:
        given = ", ".join(map(str, files))
        raise BadInput(f"The study is of one set of points, got {given}: give --data once, or rivals --score.")
    if repeats is not None:
        raise BadInput("--repeats is for rivals --score: leave it out.")
    _study(list(dict.fromkeys(chosen)), files[0] if files else None, domain, people, seed, quick, out or Path("study"))


def _study(
    chosen: list[str], data: Path | None, domain: str | None, people: Path | None, seed: int, quick: bool, out: Path
) -> None:
    from veilmap.reproduce import prepare
    from veilmap.reproduce.runner import run

    with _telling("Study", out) as tell:
        setting, known = prepare(data, domain, people, seed, quick)
        experiments = [experiment for name in chosen for experiment in known[name]]
        others = [e for name in known if name not in chosen for e in known[name]]
        rows = run(experiments, setting, out, tell, others)
    for experiment in experiments:
        say(experiment.title)
        _print_claims(experiment.claims(rows[experiment.name]))
    say(f"Wrote {out / 'index.html'}: every table and picture, and the reasons for each verdict.")


def _score(files: list[Path], domain: str | None, repeats: int | None, seed: int, quick: bool, out: Path) -> None:
    from veilmap.domain import Domain
    from veilmap.reproduce.point_sets import read_sets, usual_sets
    from veilmap.reproduce.runner import run
    from veilmap.reproduce.score import experiment, shared_setting

    if domain is not None and not files:
        raise BadInput("--domain is of points that you give: add --data, or leave it out.")
    box = None if domain is None else Domain.parse(domain)
    with _telling("Score", out) as tell:
        sets = read_sets(files, box, seed, quick) if files else usual_sets(seed, quick)
        setting = shared_setting(seed, quick, repeats)
        compared = experiment(setting, sets)
        rows = run([compared], setting, out, tell)[compared.name]
    for table in compared.tables(rows):
        say(table.title)
        print_table(list(table.header), [list(row) for row in table.rows])
    _print_claims(compared.claims(rows))
    say(f"Wrote {out / 'score.csv'}, {out / 'score.md'} and {out / 'index.html'}.")


@contextmanager
def _telling(what: str, out: Path) -> Iterator[Callable[..., None]]:
    with progress(what) as tell:
        tell(0.0, "points")
        try:
            yield tell
        except KeyboardInterrupt:
            typer.echo(f"veilmap: interrupted; the same command with -o {out} goes on where it was.", err=True)
            raise SystemExit(130) from None  # and no more is said


def _print_claims(claims: list[Claim]) -> None:
    print_table(["claim", "verdict"], [[claim.text, claim.verdict] for claim in claims])

"""The command line. It parses and prints; the library does the work."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from veilmap.cli import audit, explore, export, info, key, ledger, match, plan, plot, query, release, reproduce, sample
from veilmap.cli._output import print_table, progress, say
from veilmap.errors import LedgerWarning, VeilmapError

# Everything heavy is imported inside the commands: `veilmap --help` answers at once.

app = typer.Typer(
    name="veilmap",
    help="Publish the map, veil the people: differentially private maps of points.",
    epilog="Start with: veilmap demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a pretty traceback would print local variables
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


INTERRUPTED = 130
_UsageError: Any = typer.BadParameter.__base__  # typer carries its own copy of click


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"veilmap {version('veilmap')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


app.command(epilog=release.EXAMPLE)(release.release)
app.command(epilog=query.EXAMPLE)(query.query)
app.command(epilog=info.EXAMPLE)(info.info)
app.command(epilog=plan.EXAMPLE)(plan.plan)
app.command(epilog=plot.EXAMPLE)(plot.plot)
app.command(epilog=explore.EXAMPLE)(explore.explore)
app.command(epilog=export.EXAMPLE)(export.export)
app.command(epilog=match.EXAMPLE)(match.match)
app.command(epilog=reproduce.EXAMPLE)(reproduce.reproduce)
app.add_typer(ledger.app, name="ledger", epilog=ledger.EXAMPLE)
app.command(epilog=key.KEY_EXAMPLE)(key.key)
app.command(epilog=key.SIGN_EXAMPLE)(key.sign)
app.command(epilog=audit.EXAMPLE)(audit.audit)
app.command(epilog=sample.EXAMPLE)(sample.sample)


@app.command(epilog="Example: veilmap demo -o demo")
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the release and the map.")] = Path("demo"),
) -> None:
    """End to end on data it brings itself: release, questions, truth, map."""
    from veilmap.demo import run

    with progress("Places") as tell:
        result = run(out, tell)
    print_table(
        ["where", "estimate", "95 % interval", "truth", ""],
        [
            [
                r.where,
                f"{r.estimate:,.0f}",
                f"{r.low:,.0f} to {r.high:,.0f}",
                f"{r.truth:,}",
                "inside" if r.inside else "outside",
            ]
            for r in result.rows
        ],
    )
    say("The truth is printed because these places are public; a release never holds it.")
    say(f"Wrote {result.release} and {result.picture}. Next: veilmap info {result.release}")


def main() -> None:
    """Run the command line: bad input is one sentence on standard error and exit status 2."""
    warnings.showwarning = _show_warning
    try:
        status = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except _UsageError as error:
        command = error.ctx.command_path if error.ctx else "veilmap"
        typer.echo(f"veilmap: {error.format_message().rstrip('.')}. See '{command} --help'.", err=True)
        sys.exit(2)
    except VeilmapError as error:
        typer.echo(f"veilmap: {error}", err=True)
        sys.exit(2)
    except MemoryError:
        typer.echo("veilmap: there is not enough memory: choose a smaller height or a coarser method.", err=True)
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    if status == INTERRUPTED:  # typer makes that of Ctrl-C, without a word
        typer.echo("veilmap: interrupted; nothing is half-written, and what was charged stays charged.", err=True)
    sys.exit(status)


_show_other_warnings = warnings.showwarning


def _show_warning(message: Any, category: Any, *where: Any, **more: Any) -> None:
    """What a ledger warns of is for people, in a sentence."""
    if issubclass(category, LedgerWarning):
        typer.echo(f"veilmap: warning: {message}", err=True)
    else:
        _show_other_warnings(message, category, *where, **more)

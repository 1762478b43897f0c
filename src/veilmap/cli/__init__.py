"""The command line: it parses arguments and prints results; the library does the work.

Each command has a module of its name. Helper modules begin with an underscore.
"""

from __future__ import annotations

import sys
import warnings
from inspect import cleandoc
from typing import Annotated, Any

import typer

from veilmap.cli import (
    audit,
    demo,
    explore,
    export,
    info,
    key,
    ledger,
    match,
    plan,
    plot,
    query,
    release,
    reproduce,
    sample,
    sign,
)
from veilmap.errors import LedgerWarning, VeilmapError

# Commands import heavy packages (numpy, numba, pyarrow) inside their functions, so that `veilmap --help` starts fast.

app = typer.Typer(
    name="veilmap",
    help="Publish differentially private maps of points. Publish the map, veil the people.",
    epilog="Start with: veilmap demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # pretty tracebacks print local variables, which may hold rows
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


EXIT_STATUS_INTERRUPTED = 130
_UsageError: Any = typer.BadParameter.__base__  # typer has its own copy of click


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"veilmap {version('veilmap')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


app.command(epilog=release.HELP_EXAMPLE)(release.release)
app.command(epilog=query.HELP_EXAMPLE)(query.query)
app.command(epilog=info.HELP_EXAMPLE)(info.info)
app.command(epilog=plan.HELP_EXAMPLE)(plan.plan)
app.command(epilog=plot.HELP_EXAMPLE)(plot.plot)
app.command(epilog=explore.HELP_EXAMPLE)(explore.explore)
app.command(epilog=export.HELP_EXAMPLE)(export.export)
app.command(epilog=match.HELP_EXAMPLE)(match.match)
app.command(epilog=reproduce.HELP_EXAMPLE)(reproduce.reproduce)
app.add_typer(ledger.app, name="ledger", epilog=ledger.HELP_EXAMPLE)
app.command(epilog=key.HELP_EXAMPLE)(key.key)
app.command(epilog=sign.HELP_EXAMPLE)(sign.sign)
app.command(epilog=audit.HELP_EXAMPLE)(audit.audit)
app.command(epilog=sample.HELP_EXAMPLE)(sample.sample)
app.command(epilog=demo.HELP_EXAMPLE)(demo.demo)


def _unwrapped(text: str) -> str:
    """Join the lines of each paragraph: typer would print the line breaks of a docstring as they are."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in cleandoc(text).split("\n\n"))


for _command in (*app.registered_commands, *ledger.app.registered_commands):
    _command.help = _unwrapped(_command.callback.__doc__ or "") if _command.callback else None


def main() -> None:
    """Run the command line. Bad input ends with one line on standard error and exit status 2."""
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
        typer.echo("veilmap: There is not enough memory. Choose a smaller height or a coarser method.", err=True)
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        status = EXIT_STATUS_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    if status == EXIT_STATUS_INTERRUPTED:  # typer returns this status after Ctrl-C and prints nothing
        typer.echo("veilmap: Interrupted. No file is half-written. What was charged stays charged.", err=True)
    sys.exit(status)


_show_other_warnings = warnings.showwarning


def _show_warning(message: Any, category: Any, *place: Any, **more: Any) -> None:
    """Print warnings of a ledger as one line, and all others as Python does."""
    if issubclass(category, LedgerWarning):
        typer.echo(f"veilmap: warning: {message}", err=True)
    else:
        _show_other_warnings(message, category, *place, **more)

"""Write docs/cli.md from the commands themselves: python docs/make_cli.py"""

from __future__ import annotations

from pathlib import Path

import typer
from typer.main import get_command

from veilmap.cli import app

WIDTH = 100
PAGE = Path(__file__).with_name("cli.md")
TOP = """\
# Command line

<!-- Written by docs/make_cli.py: change the commands, then run it. -->

Everything here is also printed by `veilmap --help` and `veilmap COMMAND --help`.

A command that succeeds ends with exit status 0. Bad input ends with exit status 2, and standard error says why.
Files are put in their place once they are complete, so that nothing half-written is left there.
"""


def render() -> str:
    """The whole page."""
    group = get_command(app)
    top = _context(group, "veilmap", None)
    parts = [TOP, _section("veilmap", group, top)]
    for name, command in group.commands.items():
        context = _context(command, name, top)
        parts.append(_section(f"veilmap {name}", command, context))
        for inner, below in getattr(command, "commands", {}).items():
            parts.append(_section(f"veilmap {name} {inner}", below, _context(below, inner, context)))
    return "\n".join(parts)


def _context(command: typer.core.TyperCommand, name: str, parent: typer.Context | None) -> typer.Context:
    command.rich_markup_mode = None  # plain text: no boxes, no colours, whatever the terminal
    return command.context_class(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=["-h", "--help"],
    )


def _section(title: str, command: typer.core.TyperCommand, context: typer.Context) -> str:
    lines = [line.rstrip() for line in command.get_help(context).splitlines()]
    text = "\n".join(lines).rstrip()
    return f"## {title}\n\n```text\n{text}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")

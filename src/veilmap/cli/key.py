"""`veilmap key`: make a key pair for signing releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilmap.cli._output import say

HELP_EXAMPLE = "Example: veilmap key statistics-office.key"


def key(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="Private key file to write. The public key goes to FILE.pub.")
    ],
) -> None:
    """Make a key pair for signing releases.

    Keep FILE secret; its permissions let only you read it. Publish FILE.pub where people know that it is yours.
    """
    import veilmap as vm

    public = vm.make_key(path)
    say(f"Wrote the private key {path} (keep it secret) and the public key {public} (publish it).")

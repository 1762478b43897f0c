"""veilmap key, veilmap sign: who made a release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilmap.cli._options import ReleaseArgument
from veilmap.cli._output import say
from veilmap.errors import BadInput

if TYPE_CHECKING:
    from veilmap.releases.signatures import Verification

KEY_EXAMPLE = "Example: veilmap key statistics-office.key"
SIGN_EXAMPLE = "Example: veilmap sign roads.parquet --key statistics-office.key"


def key(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The private key to write; FILE.pub is the public one.")],
) -> None:
    """Make a key pair, to sign releases with.

    Keep FILE to yourself: only you can read it. Publish FILE.pub where people know that it is yours.
    """
    import veilmap as vm

    public = vm.make_key(path)
    say(f"Wrote {path}, which is secret, and {public}, for everyone who wants to verify what you sign.")


def sign(
    path: ReleaseArgument,
    private: Annotated[Path, typer.Option("--key", help="Your private key.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing signature.")] = False,
) -> None:
    """Sign a release: RELEASE.sig shows that it came from you, unaltered."""
    import veilmap as vm

    must_be_ready(private, path, overwrite)
    say(f"Wrote {vm.sign(path, private, overwrite)}: hand it out with the release.")


def must_be_ready(private: Path, path: Path, overwrite: bool) -> None:
    """Refuse a key or a place that will not do, before any work."""
    from veilmap.releases.signatures import read_private, signature_place

    read_private(private)
    if signature_place(path).exists() and not overwrite:
        raise BadInput(f"{signature_place(path)} exists already: add --overwrite, or move it away.")


def look(path: Path, public: Path | None) -> Verification:
    """What can be said of the signature of a release."""
    from veilmap.releases.signatures import Verification, signature_place, verify

    if public is not None:
        return verify(path, public)
    there = signature_place(path).exists()
    return Verification(False, f"not checked: give --key to check {signature_place(path)}" if there else "none")

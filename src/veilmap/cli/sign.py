"""`veilmap sign`: sign a release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilmap.cli._options import ReleaseArgument
from veilmap.cli._output import say
from veilmap.errors import BadInput

HELP_EXAMPLE = "Example: veilmap sign roads.parquet --key statistics-office.key"


def sign(
    path: ReleaseArgument,
    private: Annotated[Path, typer.Option("--key", help="Your private key, made with 'veilmap key'.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing signature.")] = False,
) -> None:
    """Sign a release. The signature RELEASE.sig proves that the file comes from you and was not altered."""
    import veilmap as vm

    must_be_able_to_sign(private, path, overwrite)
    say(f"Wrote {vm.sign(path, private, overwrite)}. Publish it together with the release.")


def must_be_able_to_sign(private: Path, path: Path, overwrite: bool) -> None:
    """Check the private key and the place of the signature before any work is done."""
    from veilmap.releases.signatures import read_private, signature_place

    read_private(private)
    if signature_place(path).exists() and not overwrite:
        raise BadInput(f"{signature_place(path)} already exists. Add --overwrite, or move it away.")

"""veilmap explore: a release in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilmap.cli._options import ReleaseArgument
from veilmap.cli._output import say, warn

EXAMPLE = "Example: veilmap explore roads.parquet --zones counties.geojson"


def explore(
    path: ReleaseArgument,
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="Where to listen; 8417 or a free one if not given.")
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Who may connect: by default this machine alone.")] = "127.0.0.1",
    zones: Annotated[
        Path | None, typer.Option("--zones", help="Zones to click on: GeoJSON, GeoPackage, Shapefile or GeoParquet.")
    ] = None,
    layer: Annotated[str | None, typer.Option("--layer", help="Of --zones, where there are several.")] = None,
    make_valid: Annotated[
        bool, typer.Option("--make-valid", help="Mend zones whose borders cross themselves.")
    ] = False,
    browse: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """A local web map: draw a box or pick a zone, see the count and its error.

    The page comes from this machine and asks no other. Programs may ask too: /api says how, /ogc is for GIS.
    """
    import veilmap as vm
    from veilmap.explore.server import explore as serve
    from veilmap.explore.server import is_loopback
    from veilmap.explore.zones import zones_of

    found = vm.load(path)
    warn(found)
    if not is_loopback(host):
        typer.echo(f"veilmap: warning: at {host}, others on the network can ask this release too.", err=True)
    serve(
        found,
        path.name,
        host,
        port,
        None if zones is None else zones_of(found, zones, layer, make_valid),
        lambda url: say(f"Explore {path} at {url} (Ctrl-C ends it)."),
        browse,
    )

"""`veilmap explore`: serve a release as a local web map."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilmap.cli._options import LayerOption, MakeValidOption, ReleaseArgument
from veilmap.cli._output import say, warn_if_not_private

HELP_EXAMPLE = "Example: veilmap explore roads.parquet --zones counties.geojson"


def explore(
    path: ReleaseArgument,
    port: Annotated[
        int | None,
        typer.Option("--port", min=1, max=65535, help="The port to listen on; 8417 or a free one if not given."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on. The default accepts only this machine.")
    ] = "127.0.0.1",
    zones: Annotated[
        Path | None, typer.Option("--zones", help="Zones to click on: GeoJSON, GeoPackage, Shapefile or GeoParquet.")
    ] = None,
    layer: LayerOption = None,
    make_valid: MakeValidOption = False,
    browse: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Open a release as a local web map. Draw a box or click a zone to see the count and its error.

    The page loads nothing from the internet. Programs can query it too: /api describes the interface, and GIS programs
    can use /ogc.
    """
    import veilmap as vm
    from veilmap.explore.server import explore as serve
    from veilmap.explore.server import is_loopback
    from veilmap.explore.zones import zones_of

    release = vm.load(path)
    warn_if_not_private(release)
    if not is_loopback(host):
        typer.echo(f"veilmap: warning: At {host}, others on the network can query this release too.", err=True)
    serve(
        release,
        path.name,
        host,
        port,
        None if zones is None else zones_of(release, zones, layer, make_valid),
        lambda url: say(f"Explore {path} at {url} (press Ctrl-C to stop)."),
        browse,
    )

"""Files of zones: read as whoever made them meant them, and written with what was counted in each."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilmap.errors import BadInput, UnreadableInput, need
from veilmap.fileformat import put_in_place
from veilmap.zones import quietly

if TYPE_CHECKING:
    from veilmap.answer import Answers
    from veilmap.published import Release

PARQUET = (".parquet", ".geoparquet")
DRIVERS = {".gpkg": "GPKG", ".geojson": "GeoJSON", ".json": "GeoJSON"}
WRITTEN = (*DRIVERS, *PARQUET, ".csv")
ADDED = ("count", "stderr", "low", "high")


def read_zones(path: str | os.PathLike[str], layer: str | None = None, make_valid: bool = False) -> Any:
    """The zones of a file, a GeoDataFrame: GeoJSON, GeoPackage, Shapefile, FlatGeobuf, GeoParquet, or what GDAL reads.

    With ``make_valid``, borders that cross themselves are mended: rings are made whole first, holes then taken away.
    """
    name = os.fspath(path)
    geopandas = need("geopandas", "geo", "Reading zones")
    need("pyogrio", "geo", "Reading zones")
    if not os.path.isfile(name):  # GDAL would take names of other kinds for addresses
        raise UnreadableInput(f"There is no file of zones {name!r}: check its name and folder.")
    unreadable = f"No zones can be read from {name!r}: give GeoJSON, GeoPackage, Shapefile or GeoParquet."
    if name.lower().endswith(PARQUET):
        if layer is not None:
            raise BadInput(f"A Parquet file has no layers, and {name!r} is one: leave --layer out.")
        frame = quietly(lambda: geopandas.read_parquet(name), unreadable)
    else:
        layers = quietly(lambda: [str(one) for one in geopandas.list_layers(name)["name"]], unreadable)
        if not layers:
            raise UnreadableInput(unreadable)
        if (layer or layers[0]) not in layers or (layer is None and len(layers) > 1):
            said = "has several layers" if layer is None else f"has no layer {layer!r}"
            raise BadInput(f"{name!r} {said}, but {', '.join(layers)}: choose one with --layer.")
        frame = quietly(lambda: geopandas.read_file(name, layer=layer, engine="pyogrio"), unreadable)
    if not isinstance(frame, geopandas.GeoDataFrame) or frame._geometry_column_name is None:
        raise UnreadableInput(f"{name!r} has rows without places: give a file with a polygon for each row.")
    if make_valid:
        frame = frame.set_geometry(
            quietly(lambda: frame.geometry.make_valid(method="structure", keep_collapsed=False), unreadable)
        )
    return frame


def count_zones(release: Release, zones: Any, confidence: float = 0.95) -> tuple[Any, list[str], Answers]:
    """The table of zones with four more columns, the names of these, and what they are made of.

    They are named count, stderr, low and high; or, if the table has any of these already, veilmap_count and so on.
    """
    answers = release.count(zones, confidence)
    added, taken = list(ADDED), {str(name).lower() for name in zones.columns}  # to GeoPackage, Count is count
    if set(added) & taken:
        added = [f"veilmap_{name}" for name in ADDED]
    if clash := set(added) & taken:
        raise BadInput(f"The zones have columns {', '.join(sorted(clash))} already: rename or drop them.")
    columns = (answers.estimate, answers.stderr, answers.low, answers.high)
    return zones.assign(**dict(zip(added, columns, strict=True))), added, answers


def must_be_writable(path: Path) -> None:
    if path.suffix.lower() not in WRITTEN:
        raise BadInput(f"The ending of a file of zones is one of {', '.join(WRITTEN)}, got {str(path)!r}.")


def write_zones(frame: Any, path: Path, statement: str, overwrite: bool = True) -> None:
    """Write zones with their geometries, in CSV without, and what is promised of them where the format has a place."""
    ending, buffer = path.suffix.lower(), io.BytesIO()
    if ending == ".csv":
        buffer.write(frame.drop(columns=frame.geometry.name).to_csv(index=False).encode())
    elif ending in PARQUET:
        frame = frame.copy()
        frame.attrs["privacy"] = statement
        quietly(
            lambda: frame.to_parquet(buffer, index=False), f"These zones cannot be written as {ending}: choose another."
        )
    else:
        how = {"driver": DRIVERS[ending], "engine": "pyogrio", "index": False, "DESCRIPTION": statement}
        quietly(lambda: frame.to_file(buffer, **how), f"These zones cannot be written as {ending}: choose another.")
    put_in_place(path, buffer.getvalue(), overwrite)

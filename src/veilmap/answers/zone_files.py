"""Files of zones: read as whoever made them meant them, and written with what was counted in each."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilmap.answers.zones import quietly
from veilmap.errors import BadInput, UnreadableInput, need
from veilmap.files.atomic_writes import write_atomically
from veilmap.files.csv_cells import safe_cell, safe_cells
from veilmap.geofiles import GDAL_DRIVERS
from veilmap.geofiles.process import metadata_of, reading
from veilmap.geofiles.zone_files import MAX_CPU_SECONDS, MAX_MEMORY_BYTES, PARQUET_EXTENSIONS, ZONE_EXTENSIONS

if TYPE_CHECKING:
    from veilmap.answers.answerer import Answers

WRITERS = {".gpkg": "GPKG", ".geojson": "GeoJSON", ".json": "GeoJSON"}
WRITTEN = (*WRITERS, *PARQUET_EXTENSIONS, ".csv")
ADDED = ("count", "stderr", "low", "high")


def read_zones(path: str | os.PathLike[str], layer: str | None = None, make_valid: bool = False) -> Any:
    """Read a GeoJSON, GeoPackage, Shapefile, FlatGeobuf or GeoParquet file of zones as a GeoDataFrame.

    Anyone may have sent it: so another process reads it, by the one parser that the name asks for and within limits of
    memory and time. With ``make_valid``, borders that cross themselves are mended: rings are made whole first, holes
    then taken away.
    """
    name = os.path.abspath(path)  # GDAL takes names of other forms for addresses
    for package in ("geopandas", "pyogrio"):
        need(package, "geo", "Reading zones")
    if not os.path.isfile(name):
        raise UnreadableInput(f"There is no file of zones {os.fspath(path)!r}: check its name and folder.")
    ending = os.path.splitext(name)[1].lower()
    if ending not in ZONE_EXTENSIONS:
        raise UnreadableInput(
            f"The ending of a file's name says how to read it, and zones are not read from {os.fspath(path)!r}: "
            f"use one of {', '.join(ZONE_EXTENSIONS)}."
        )
    unreadable = (
        f"No zones can be read from {os.fspath(path)!r}: it is damaged, holds something else than its name says, or "
        f"takes more than {MAX_MEMORY_BYTES >> 30} GiB of memory or {MAX_CPU_SECONDS // 60} minutes."
    )
    options = {"path": name, "layer": layer, "make_valid": make_valid}
    with reading("zones", options, unreadable, [GDAL_DRIVERS[ending]] if ending in GDAL_DRIVERS else []) as batches:
        about, table = metadata_of(batches.schema), quietly(batches.read_all, unreadable)
    return frame_of(table, about)


def frame_of(table: Any, about: Mapping[str, Any]) -> Any:
    """Make a GeoDataFrame of what the other process sends."""
    geopandas, shapely = (need(name, "geo", "Reading zones") for name in ("geopandas", "shapely"))
    shapes = shapely.from_wkb(table[about["geometry"]].to_numpy(zero_copy_only=False))
    columns = table.drop_columns([about["geometry"]]).to_pandas()
    return geopandas.GeoDataFrame(columns, geometry=shapes, crs=about["crs"])


def add_answers(zones: Any, answers: Answers) -> tuple[Any, list[str]]:
    """Return the table of zones with four more columns, and the names of these.

    They are named count, stderr, low and high; or, if the table has any of these already, veilmap_count and so on.
    """
    added, taken = list(ADDED), {str(name).lower() for name in zones.columns}  # to GeoPackage, Count is count
    if set(added) & taken:
        added = [f"veilmap_{name}" for name in ADDED]
    if clash := set(added) & taken:
        raise BadInput(f"The zones have columns {', '.join(sorted(clash))} already: rename or drop them.")
    columns = (answers.estimate, answers.stderr, answers.low, answers.high)
    return zones.assign(**dict(zip(added, columns, strict=True))), added


def must_be_writable(path: Path) -> None:
    if path.suffix.lower() not in WRITTEN:
        raise BadInput(f"The ending of a file of zones is one of {', '.join(WRITTEN)}, got {str(path)!r}.")


def write_zones(frame: Any, path: Path, statement: str, overwrite: bool = True) -> None:
    """Write zones with their geometries, in CSV without, and what is promised of them where the format has a place."""
    ending, buffer = path.suffix.lower(), io.BytesIO()
    if ending == ".csv":
        buffer.write(_safe_table(frame.drop(columns=frame.geometry.name)).to_csv(index=False).encode())
    elif ending in PARQUET_EXTENSIONS:
        frame = frame.copy()
        frame.attrs["privacy"] = statement
        quietly(
            lambda: frame.to_parquet(buffer, index=False), f"These zones cannot be written as {ending}: choose another."
        )
    else:
        how = {"driver": WRITERS[ending], "engine": "pyogrio", "index": False, "DESCRIPTION": statement}
        quietly(lambda: frame.to_file(buffer, **how), f"These zones cannot be written as {ending}: choose another.")
    write_atomically(path, buffer.getvalue(), overwrite)


def _safe_table(table: Any) -> Any:
    """Return a table with names and texts that no spreadsheet runs as formulas."""
    table = table.set_axis(safe_cells(table.columns), axis="columns")
    for k, kind in enumerate(table.dtypes):
        if kind.kind not in "biufcmM":  # neither numbers nor times
            table.isetitem(k, table.iloc[:, k].astype(object).map(safe_cell))
    return table

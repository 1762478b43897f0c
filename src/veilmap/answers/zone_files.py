"""Read files of zones, and write zones with their counts."""

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
from veilmap.geofiles.zone_reader import MAX_CPU_SECONDS, MAX_MEMORY_BYTES, PARQUET_EXTENSIONS, ZONE_EXTENSIONS

if TYPE_CHECKING:
    from veilmap.answers.answerer import Answers

DRIVER_BY_SUFFIX = {".gpkg": "GPKG", ".geojson": "GeoJSON", ".json": "GeoJSON"}
WRITABLE_SUFFIXES = (*DRIVER_BY_SUFFIX, *PARQUET_EXTENSIONS, ".csv")
ANSWER_COLUMNS = ("count", "stderr", "low", "high")


def read_zones(path: str | os.PathLike[str], layer: str | None = None, make_valid: bool = False) -> Any:
    """Read a GeoJSON, GeoPackage, Shapefile, FlatGeobuf or GeoParquet file of zones as a GeoDataFrame.

    The file is not trusted: a separate process reads it, with only the parser that its suffix names and within limits
    of memory and time. With ``make_valid``, self-intersecting borders are repaired: each ring is repaired first, then
    holes are subtracted.
    """
    name = os.path.abspath(path)  # GDAL would read some relative names as URLs or connection strings
    for package in ("geopandas", "pyogrio"):
        need(package, "geo", "Reading zones")
    if not os.path.isfile(name):
        raise UnreadableInput(f"There is no zone file {os.fspath(path)!r}. Check its name and folder.")
    ending = os.path.splitext(name)[1].lower()
    if ending not in ZONE_EXTENSIONS:
        raise UnreadableInput(
            f"Zones cannot be read from {os.fspath(path)!r}: the suffix selects the format and must be one of "
            f"{', '.join(ZONE_EXTENSIONS)}."
        )
    unreadable = (
        f"No zones can be read from {os.fspath(path)!r}. The file is damaged, its content does not match its suffix, "
        f"or reading it takes more than {MAX_MEMORY_BYTES >> 30} GiB of memory or {MAX_CPU_SECONDS // 60} minutes."
    )
    options = {"path": name, "layer": layer, "make_valid": make_valid}
    with reading("zones", options, unreadable, [GDAL_DRIVERS[ending]] if ending in GDAL_DRIVERS else []) as batches:
        about, table = metadata_of(batches.schema), quietly(batches.read_all, unreadable)
    return frame_of(table, about)


def frame_of(table: Any, about: Mapping[str, Any]) -> Any:
    """Return a GeoDataFrame of the table that the reading process sent."""
    geopandas, shapely = (need(name, "geo", "Reading zones") for name in ("geopandas", "shapely"))
    shapes = shapely.from_wkb(table[about["geometry"]].to_numpy(zero_copy_only=False))
    columns = table.drop_columns([about["geometry"]]).to_pandas()
    return geopandas.GeoDataFrame(columns, geometry=shapes, crs=about["crs"])


def add_answers(zones: Any, answers: Answers) -> tuple[Any, list[str]]:
    """Return the table of zones with four columns of answers added, and the names of these columns.

    The columns are count, stderr, low and high, or veilmap_count and so on if the table has any of these already.
    """
    added, taken = list(ANSWER_COLUMNS), {str(name).lower() for name in zones.columns}  # GeoPackage ignores case
    if set(added) & taken:
        added = [f"veilmap_{name}" for name in ANSWER_COLUMNS]
    if clash := set(added) & taken:
        raise BadInput(f"The zones already have columns {', '.join(sorted(clash))}. Rename or drop them.")
    columns = (answers.estimate, answers.stderr, answers.low, answers.high)
    return zones.assign(**dict(zip(added, columns, strict=True))), added


def must_be_writable(path: Path) -> None:
    """Raise ``BadInput`` unless zones can be written to a file with this suffix."""
    if path.suffix.lower() not in WRITABLE_SUFFIXES:
        raise BadInput(f"The suffix of a zone file must be one of {', '.join(WRITABLE_SUFFIXES)}; got {str(path)!r}.")


def write_zones(frame: Any, path: Path, statement: str, overwrite: bool = True) -> None:
    """Write zones with their geometries (CSV: without), and the privacy statement in formats with room for metadata."""
    suffix, buffer = path.suffix.lower(), io.BytesIO()
    not_writable = f"These zones cannot be written as {suffix}. Choose another format."
    if suffix == ".csv":
        buffer.write(_safe_table(frame.drop(columns=frame.geometry.name)).to_csv(index=False).encode())
    elif suffix in PARQUET_EXTENSIONS:
        frame = frame.copy()
        frame.attrs["privacy"] = statement
        quietly(lambda: frame.to_parquet(buffer, index=False), not_writable)
    else:
        options = {"driver": DRIVER_BY_SUFFIX[suffix], "engine": "pyogrio", "index": False, "DESCRIPTION": statement}
        quietly(lambda: frame.to_file(buffer, **options), not_writable)
    write_atomically(path, buffer.getvalue(), overwrite)


def _safe_table(table: Any) -> Any:
    """Return a table whose column names and texts no spreadsheet runs as formulas."""
    table = table.set_axis(safe_cells(table.columns), axis="columns")
    for k, kind in enumerate(table.dtypes):
        if kind.kind not in "biufcmM":  # everything but numbers and times
            table.isetitem(k, table.iloc[:, k].astype(object).map(safe_cell))
    return table

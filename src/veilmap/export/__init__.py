"""Exports of a release to GeoPackage, FlatGeobuf, GeoJSON, GeoTIFF and CSV, as leaves, hexagons or pixels."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from veilmap.errors import BadInput
from veilmap.export.leaves import ExportTable, leaf_rows
from veilmap.export.raster import RASTER_VALUES, write_raster
from veilmap.export.vector import GDAL_DRIVERS, write_csv, write_vector
from veilmap.files.atomic_writes import staged_file
from veilmap.releases.release import Release

RASTER_SUFFIXES = (".tif", ".tiff")
EXPORT_SUFFIXES = (*GDAL_DRIVERS, *RASTER_SUFFIXES, ".csv")


def export(
    release: Release,
    path: str | os.PathLike[str],
    *,
    value: str | None = None,
    pixels: int | tuple[int, int] | None = None,
    resolution: float | None = None,
    h3: int | None = None,
    confidence: float = 0.95,
    overwrite: bool = True,
    progress: Callable[[float], None] = lambda fraction: None,
) -> None:
    """Write a release for other programs: see ``Release.export``."""
    suffix = must_fit(release, path, value, pixels, resolution, h3)
    with staged_file(path, overwrite) as staged:
        if suffix in RASTER_SUFFIXES:
            write_raster(release, staged, value or "density", pixels, resolution, progress)
            return
        table = leaf_rows(release, confidence) if h3 is None else _hexagons(release, h3, confidence)
        if suffix == ".csv":
            write_csv(release, table, staged, progress)
        else:
            write_vector(release, table, staged, progress)


def must_fit(
    release: Release,
    path: str | os.PathLike[str],
    value: str | None,
    pixels: object,
    resolution: float | None,
    h3: int | None,
) -> str:
    """Check that the options fit the file format and the release; return the suffix of the file name."""
    suffix, axes = Path(path).suffix.lower(), release.domain.dimensions
    if suffix not in EXPORT_SUFFIXES:
        raise BadInput(f"The name of an export must end in one of {', '.join(EXPORT_SUFFIXES)}, got {str(path)!r}.")
    if axes != 2 and suffix != ".csv":
        raise BadInput(f"A {suffix} file needs a release with two axes; this one has {axes}. Export to .csv instead.")
    if suffix not in RASTER_SUFFIXES and not value is pixels is resolution is None:
        raise BadInput(
            f"value, pixels and resolution apply to rasters only, and {suffix} is not a raster format. "
            "Export to .tif, or leave them out."
        )
    if suffix in RASTER_SUFFIXES and h3 is not None:
        raise BadInput(
            f"Hexagons are polygons, and {suffix} holds pixels. Export them to .gpkg, .fgb, .geojson or .csv."
        )
    if value is not None and value not in RASTER_VALUES:
        raise BadInput(
            f"The value of a raster must be {', '.join(RASTER_VALUES[:-1])} or {RASTER_VALUES[-1]}, got {value!r}."
        )
    if pixels is not None and resolution is not None:
        raise BadInput("pixels and resolution both set the size of a pixel. Give one of them.")
    return suffix


def _hexagons(release: Release, resolution: int, confidence: float) -> ExportTable:
    from veilmap.export.hexagons import hexagon_rows

    return hexagon_rows(release, resolution, confidence)

"""A release in the formats of other programs: GeoPackage, FlatGeobuf, GeoJSON, GeoTIFF, CSV; its cells or hexagons."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from veilmap.errors import BadInput
from veilmap.export.leaves import Cells, cells_of
from veilmap.export.raster import VALUES, write_raster
from veilmap.export.vector import DRIVERS, write_csv, write_vector
from veilmap.files.atomic_writes import staged_file
from veilmap.releases.release import Release

RASTERS = (".tif", ".tiff")
KINDS = (*DRIVERS, *RASTERS, ".csv")


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
    progress: Callable[[float], None] = lambda part: None,
) -> None:
    """Write a release for other programs: see ``Release.export``."""
    kind = must_fit(release, path, value, pixels, resolution, h3)
    with staged_file(path, overwrite) as place:
        if kind in RASTERS:
            write_raster(release, place, value or "density", pixels, resolution, progress)
            return
        cells = cells_of(release, confidence) if h3 is None else _hexagons(release, h3, confidence)
        if kind == ".csv":
            write_csv(release, cells, place, progress)
        else:
            write_vector(release, cells, place, progress)


def must_fit(
    release: Release,
    path: str | os.PathLike[str],
    value: str | None,
    pixels: object,
    resolution: float | None,
    h3: int | None,
) -> str:
    """The ending of the file, if all that is asked for can be."""
    kind, axes = Path(path).suffix.lower(), release.domain.dimensions
    if kind not in KINDS:
        raise BadInput(f"The ending of an export is one of {', '.join(KINDS)}, got {str(path)!r}.")
    if axes != 2 and kind != ".csv":
        raise BadInput(f"A {kind} file needs two axes, and this release has {axes}: export .csv instead.")
    if kind not in RASTERS and not value is pixels is resolution is None:
        raise BadInput(
            f"A value, pixels and a resolution are of a raster, and {kind} is none: export .tif, or leave them out."
        )
    if kind in RASTERS and h3 is not None:
        raise BadInput(f"Hexagons are polygons, and {kind} has pixels: export .gpkg, .fgb, .geojson or .csv.")
    if value is not None and value not in VALUES:
        raise BadInput(f"A raster shows {', '.join(VALUES[:-1])} or {VALUES[-1]}, got {value!r}.")
    if pixels is not None and resolution is not None:
        raise BadInput("Pixels and a resolution say the same: give one of them.")
    return kind


def _hexagons(release: Release, resolution: int, confidence: float) -> Cells:
    from veilmap.export.hexagons import hexagons_of

    return hexagons_of(release, resolution, confidence)

"""A writer of cloud-optimised GeoTIFF."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from veilmap.arrays import Floats
from veilmap.errors import BadInput, need
from veilmap.geography.crs import Ground
from veilmap.releases.release import Release
from veilmap.trees import RegularTree

RASTER_VALUES = "density", "count", "stderr"
DEFAULT_PIXELS = 1024  # along the longer side
MAX_PIXELS = 8192  # along the longer side
PIXELS_PER_STRIP = 1 << 18  # counted together, to bound the memory that is needed


def write_raster(
    release: Release,
    path: Path,
    value: str,
    pixels: int | tuple[int, int] | None,
    resolution: float | None,
    progress: Callable[[float], None],
) -> None:
    """Write one band, north up. Pixels tile the domain, so their counts add up to the total of the release."""
    rasterio = need("rasterio", "raster", "Writing a GeoTIFF")
    from rasterio.transform import Affine

    domain = release.domain
    edges, (pixel_width, pixel_height) = _edges(release, pixels, resolution)
    profile = {
        "driver": "COG",
        "width": len(edges[0]) - 1,
        "height": len(edges[1]) - 1,
        "count": 1,
        "dtype": "float64" if value == "count" else "float32",
        "nodata": math.nan,
        "crs": Ground(domain).crs_name,
        "transform": Affine(pixel_width, 0, domain.axes[0].lo, 0, -pixel_height, domain.axes[1].hi),
        "compress": "DEFLATE",
        "predictor": "YES",
        "overview_resampling": "AVERAGE",
    }
    unit = f"rows per {Ground(domain).area_unit}" if value == "density" else "rows"
    statement = release.privacy.statement()
    with rasterio.Env(GDAL_PAM_ENABLED="NO"), rasterio.open(path, "w", **profile) as out:
        out.update_tags(PRIVACY=statement, TIFFTAG_IMAGEDESCRIPTION=statement, UNIT=unit)
        out.set_band_description(1, f"{value}, {unit}" if release.privacy.private else f"NOT PRIVATE: {value}, {unit}")
        for top, strip in _strips(release, edges, value):
            window = rasterio.windows.Window(0, top, strip.shape[1], strip.shape[0])
            out.write(strip.astype(profile["dtype"]), 1, window=window)
            progress((top + len(strip)) / profile["height"])


def _edges(
    release: Release, pixels: int | tuple[int, int] | None, resolution: float | None
) -> tuple[tuple[Floats, Floats], tuple[float, float]]:
    """Return the edges of columns from the west and of rows from the north, and the width and height of a pixel."""
    domain, tree = release.domain, release.estimates.tree
    width = (domain.hi - domain.lo).tolist()
    if resolution is not None:
        if not (math.isfinite(resolution) and resolution > 0):
            raise BadInput(
                f"A resolution is the side of a pixel in units of the axes and must be above 0, got {resolution!r}."
            )
        # The tolerance keeps a rounding error from adding a column or row that is almost empty.
        shape = [max(1, math.ceil(min(side / resolution, 1e9) - 1e-9)) for side in width]
        size = [resolution, resolution]
    else:
        shape = _shape(tree.grid(tree.height) if isinstance(tree, RegularTree) else None, width, pixels)
        size = [side / n for side, n in zip(width, shape, strict=True)]
    if max(shape) > MAX_PIXELS:
        raise BadInput(
            f"A raster may have at most {MAX_PIXELS:,} pixels per side; this one would have {max(shape):,}. "
            "Choose fewer pixels or a coarser resolution."
        )
    (x, y), (columns, rows) = domain.axes, shape
    east = np.minimum(x.lo + size[0] * np.arange(columns + 1), x.hi)
    south = np.maximum(y.hi - size[1] * np.arange(rows + 1), y.lo)
    east[-1], south[-1] = x.hi, y.lo
    return (east, south), (size[0], size[1])


def _shape(grid: tuple[int, ...] | None, width: list[float], pixels: int | tuple[int, int] | None) -> list[int]:
    """Return the numbers of columns and rows: as requested, or those of the leaves if they form a small enough grid."""
    if isinstance(pixels, tuple):
        shape = list(pixels)
    elif pixels is not None or grid is None or max(grid) > DEFAULT_PIXELS or min(grid) < 2:
        longer = DEFAULT_PIXELS if pixels is None else pixels
        shape = [max(1, round(longer * side / max(width))) if longer > 0 else 0 for side in width]
    else:
        shape = list(grid)
    if len(shape) != 2 or not all(isinstance(n, int) and n > 0 for n in shape):
        raise BadInput(
            f"pixels must be one whole number for the longer side, or two for columns and rows, got {pixels!r}."
        )
    return shape


def _strips(release: Release, edges: tuple[Floats, Floats], value: str) -> Iterator[tuple[int, Floats]]:
    """Yield strips of pixel rows from the north, each with the index of its first row."""
    (east, south), ground = edges, Ground(release.domain)
    columns = len(east) - 1
    rows_per_strip = max(1, PIXELS_PER_STRIP // columns)
    for top in range(0, len(south) - 1, rows_per_strip):
        y = south[top : top + rows_per_strip + 1]
        lo = np.stack([a.ravel() for a in np.meshgrid(east[:-1], y[1:])], axis=1)
        hi = np.stack([a.ravel() for a in np.meshgrid(east[1:], y[:-1])], axis=1)
        answers = release.count(np.hstack([lo, hi]))
        values = answers.stderr if value == "stderr" else answers.estimate
        if value == "density":
            values = values / ground.areas(lo, hi)
        yield top, values.reshape(len(y) - 1, columns)

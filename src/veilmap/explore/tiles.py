"""The density map and its tiles: boxes with a density, as fine as the noise allows, painted as PNG images."""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilmap.arrays import Floats
from veilmap.explore.projection import Plane
from veilmap.kernels.rasterize import rasterize_boxes
from veilmap.plot.density import density_image, significant, visible_nodes
from veilmap.releases.release import Release
from veilmap.trees import CurveTree

TILE_PIXELS = 512  # per side
MAX_ZOOM = 22
MARGINAL_GRIDS = (256, 128, 64, 32, 16, 8, 4, 2, 1)  # boxes per side, tried in this order from three axes on
COLOURED_SHADES = 255  # of a palette with 256 entries; the first is transparent
LEGEND_QUANTILES = (0.005, 0.99)  # of the rows that are shown, between which the colours range
# Perceptually even steps of one ramp, from violet-blue over teal to yellow. On a light background it starts with a
# colour that fades into the background.
COLOUR_RAMPS = {
    "light": ("#d9ebe5", "#a9d6c8", "#73bfb0", "#43a49d", "#23878a", "#176a77", "#164d63", "#17314c", "#131a30"),
    "dark": ("#16323e", "#174a55", "#1c646b", "#2c7f7c", "#479b88", "#6db690", "#9bd09a", "#cfe7a8", "#fbf9c4"),
}


@dataclass(frozen=True, eq=False)
class DensityMap:
    """Boxes on the square of the map, which do not overlap, and their densities."""

    lo: Floats  # (boxes, 2): west and north ends
    hi: Floats
    density: Floats
    low: float  # densities at the ends of the colour ramp
    high: float

    def tile(self, zoom: int, x: int, y: int, theme: str) -> bytes:
        """Return one tile of the map as a PNG image."""
        return _png(self._shades(self._pixels(zoom, x, y)), COLOUR_RAMPS[theme])

    def _pixels(self, zoom: int, x: int, y: int) -> Floats:
        """Return the density of each pixel; NaN where no box lies."""
        corner, side = np.array([x, y]) / 2**zoom, 1 / 2**zoom
        inside = np.flatnonzero(np.all((self.hi > corner) & (self.lo < corner + side), axis=1))
        scale = TILE_PIXELS / side
        lo, hi = (np.clip((ends[inside] - corner) * scale, 0, TILE_PIXELS) for ends in (self.lo, self.hi))
        image = np.full((TILE_PIXELS, TILE_PIXELS), np.nan)
        rasterize_boxes(lo, hi, self.density[inside], image)
        return image

    def _shades(self, image: Floats) -> NDArray[np.uint8]:
        """Return shades from 1 to 255 on a log scale; 0 is transparent."""
        coloured = np.isfinite(image) & (image > 0)
        fraction = np.log(np.where(coloured, image, self.low) / self.low) / math.log(self.high / self.low)
        return np.where(coloured, 1 + np.clip(fraction, 0, 1) * (COLOURED_SHADES - 1), 0).astype(np.uint8)


def density_map(release: Release, plane: Plane) -> DensityMap:
    """Return the boxes whose estimates can be distinguished from 0."""
    tree, domain = release.estimates.tree, release.domain
    if isinstance(tree, CurveTree):
        lo, hi, rows = _pixel_boxes(density_image(release).density * float(np.prod(domain.hi - domain.lo)))
    elif domain.dimensions == 2:
        drawn, density, _ = visible_nodes(release)
        lo, hi = tree.lo[drawn] / domain.side, tree.hi[drawn] / domain.side
        rows = density[drawn] * np.prod(hi - lo, axis=1)
    else:
        lo, hi, rows = _marginal(release)
    start, width = domain.lo[:2], (domain.hi - domain.lo)[:2]
    low, high = start + width * lo, start + width * hi
    density = rows / plane.ground.areas(low, high)
    (west, south), (east, north) = ((plane.east(ends[:, 0]), plane.south(ends[:, 1])) for ends in (low, high))
    corners = np.stack([west, north], axis=1), np.stack([east, south], axis=1)
    return DensityMap(*corners, density, *_legend_range(density, rows))


def _pixel_boxes(image: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the pixels that have a value as boxes, and the rows in each; the image is in rows per domain."""
    y, x = np.nonzero(np.isfinite(image))
    lo = np.stack([x, y], axis=1)
    size = np.array(image.shape[::-1])
    return lo / size, (lo + 1) / size, image[y, x] / image.size


def _marginal(release: Release) -> tuple[Floats, Floats, Floats]:
    """Return a grid over the first two of many axes: the finest in which over half of the rows lie in boxes whose
    counts can be distinguished from 0.
    """
    domain = release.domain
    for side in MARGINAL_GRIDS:
        index = np.stack([a.ravel() for a in np.meshgrid(*[np.arange(side)] * 2)], axis=1)
        lo, hi = np.tile(domain.lo, (len(index), 1)), np.tile(domain.hi, (len(index), 1))
        lo[:, :2] = domain.lo[:2] + (domain.hi - domain.lo)[:2] * (index / side)
        hi[:, :2] = domain.lo[:2] + (domain.hi - domain.lo)[:2] * ((index + 1) / side)
        answers = release.count(np.hstack([lo, hi]))
        with np.errstate(divide="ignore", invalid="ignore"):
            drawn = significant(answers.estimate / answers.stderr)
        if answers.estimate[drawn].sum() > answers.estimate.sum() / 2:
            break
    return index[drawn] / side, (index[drawn] + 1) / side, answers.estimate[drawn]


def _legend_range(density: Floats, rows: Floats) -> tuple[float, float]:
    """Return the densities at the ends of the colour ramp: most of the rows that are shown lie between them."""
    positive = density > 0
    if not positive.any():
        return 1.0, 10.0
    order = np.argsort(density[positive])
    cumulated = np.cumsum(rows[positive][order])
    ends = np.searchsorted(cumulated, np.array(LEGEND_QUANTILES) * cumulated[-1])
    low, high = density[positive][order][np.minimum(ends, len(order) - 1)].tolist()
    return low, max(high, 10 * low)


def palette(ramp: tuple[str, ...]) -> NDArray[np.uint8]:
    """Return the RGB colours of all shades, interpolated along the ramp."""
    anchors = np.array([list(bytes.fromhex(colour[1:])) for colour in ramp], np.float64)
    position = np.linspace(0, len(ramp) - 1, COLOURED_SHADES)
    channels = [np.interp(position, np.arange(len(ramp)), anchors[:, k]) for k in range(3)]
    return np.stack(channels, axis=1).astype(np.uint8)


def _png(shades: NDArray[np.uint8], ramp: tuple[str, ...]) -> bytes:
    """Return a PNG image with a palette whose first colour is transparent."""
    size = len(shades)
    lines = np.zeros((size, size + 1), np.uint8)  # a line begins with the number of its filter: 0, none
    lines[:, 1:] = shades
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", size, size, 8, 3, 0, 0, 0),
        b"PLTE": bytes(3) + palette(ramp).tobytes(),
        b"tRNS": bytes([0]),
        b"IDAT": zlib.compress(lines.tobytes(), 3),
        b"IEND": b"",
    }
    encoded = [
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks.items()
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(encoded)

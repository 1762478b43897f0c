"""What the map shows: boxes with a density, as fine as the noise allows, and tiles painted of them."""

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
from veilmap.plot.density import density_image, shown_nodes, well_above
from veilmap.releases.release import Release
from veilmap.trees import CurveTree

PIXELS = 512  # a side of a tile
MOST_ZOOM = 22
ROUGH = (256, 128, 64, 32, 16, 8, 4, 2, 1)  # cells a side, where leaves lie one behind the other
SHADES = 255  # beside the transparent one
# Perceptually even steps of one dark-to-light ramp, from violet-blue over teal to yellow; on light ground it starts
# where it is light enough to fade into the paper.
RAMPS = {
    "light": ("#d9ebe5", "#a9d6c8", "#73bfb0", "#43a49d", "#23878a", "#176a77", "#164d63", "#17314c", "#131a30"),
    "dark": ("#16323e", "#174a55", "#1c646b", "#2c7f7c", "#479b88", "#6db690", "#9bd09a", "#cfe7a8", "#fbf9c4"),
}


@dataclass(frozen=True, eq=False)
class Shown:
    """Boxes on the map's square, which do not overlap, and how dense they are."""

    lo: Floats  # (boxes, 2): west and north ends
    hi: Floats
    density: Floats
    low: float  # where colours begin and end
    high: float

    def tile(self, zoom: int, x: int, y: int, theme: str) -> bytes:
        """A picture of one tile of the map."""
        return _png(self._shades(self._painted(zoom, x, y)), RAMPS[theme])

    def _painted(self, zoom: int, x: int, y: int) -> Floats:
        """Densities of its pixels; NaN where nothing is shown."""
        corner, side = np.array([x, y]) / 2**zoom, 1 / 2**zoom
        here = np.flatnonzero(np.all((self.hi > corner) & (self.lo < corner + side), axis=1))
        lo, hi = (np.clip((ends[here] - corner) * (PIXELS / side), 0, PIXELS) for ends in (self.lo, self.hi))
        image = np.full((PIXELS, PIXELS), np.nan)
        rasterize_boxes(lo, hi, self.density[here], image)
        return image

    def _shades(self, image: Floats) -> NDArray[np.uint8]:
        """1 to 255 on a log scale; 0 is nothing."""
        seen = np.isfinite(image) & (image > 0)
        part = np.log(np.where(seen, image, self.low) / self.low) / math.log(self.high / self.low)
        return np.where(seen, 1 + np.clip(part, 0, 1) * (SHADES - 1), 0).astype(np.uint8)


def shown(release: Release, plane: Plane) -> Shown:
    """All that can be told from empty."""
    tree, domain = release.estimates.tree, release.domain
    if isinstance(tree, CurveTree):
        lo, hi, held = _of_image(density_image(release).density * float(np.prod(domain.hi - domain.lo)))
    elif domain.dimensions == 2:
        last, density, _ = shown_nodes(release)
        lo, hi = tree.lo[last] / domain.side, tree.hi[last] / domain.side
        held = density[last] * np.prod(hi - lo, axis=1)
    else:
        lo, hi, held = _marginal(release)
    start, width = domain.lo[:2], (domain.hi - domain.lo)[:2]
    low, high = start + width * lo, start + width * hi
    density = held / plane.ground.areas(low, high)
    (west, south), (east, north) = ((plane.east(ends[:, 0]), plane.south(ends[:, 1])) for ends in (low, high))
    places = np.stack([west, north], axis=1), np.stack([east, south], axis=1)
    return Shown(*places, density, *_limits(density, held))


def _of_image(image: Floats) -> tuple[Floats, Floats, Floats]:
    """The pixels of an image of points a domain as boxes, and what each of them holds."""
    y, x = np.nonzero(np.isfinite(image))
    lo = np.stack([x, y], axis=1)
    size = np.array(image.shape[::-1])
    return lo / size, (lo + 1) / size, image[y, x] / image.size


def _marginal(release: Release) -> tuple[Floats, Floats, Floats]:
    """Cells of a grid over two of many axes: the finest in which most of what there is can be told from empty."""
    domain = release.domain
    for cells in ROUGH:
        place = np.stack([a.ravel() for a in np.meshgrid(*[np.arange(cells)] * 2)], axis=1)
        lo, hi = np.tile(domain.lo, (len(place), 1)), np.tile(domain.hi, (len(place), 1))
        lo[:, :2] = domain.lo[:2] + (domain.hi - domain.lo)[:2] * (place / cells)
        hi[:, :2] = domain.lo[:2] + (domain.hi - domain.lo)[:2] * ((place + 1) / cells)
        answers = release.count(np.hstack([lo, hi]))
        with np.errstate(divide="ignore", invalid="ignore"):
            sure = well_above(answers.estimate / answers.stderr)
        if answers.estimate[sure].sum() > answers.estimate.sum() / 2:
            break
    return place[sure] / cells, (place[sure] + 1) / cells, answers.estimate[sure]


def _limits(density: Floats, held: Floats) -> tuple[float, float]:
    """Of the colours: of what is shown, most lies between them."""
    seen = density > 0
    if not seen.any():
        return 1.0, 10.0
    order = np.argsort(density[seen])
    part = np.cumsum(held[seen][order])
    at = np.searchsorted(part, np.array([0.005, 0.99]) * part[-1])
    low, high = density[seen][order][np.minimum(at, len(order) - 1)].tolist()
    return low, max(high, 10 * low)


def palette(ramp: tuple[str, ...]) -> NDArray[np.uint8]:
    """Its colours at as many steps as there are shades."""
    anchors = np.array([list(bytes.fromhex(colour[1:])) for colour in ramp], np.float64)
    at = np.linspace(0, len(ramp) - 1, SHADES)
    return np.stack([np.interp(at, np.arange(len(ramp)), anchors[:, k]) for k in range(3)], axis=1).astype(np.uint8)


def _png(shades: NDArray[np.uint8], ramp: tuple[str, ...]) -> bytes:
    """A picture with a palette, whose first colour is transparent."""
    size = len(shades)
    lines = np.zeros((size, size + 1), np.uint8)  # each begins with the number of its filter, none
    lines[:, 1:] = shades
    colours = bytes(3) + palette(ramp).tobytes()
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", size, size, 8, 3, 0, 0, 0),
        b"PLTE": colours,
        b"tRNS": bytes([0]),
        b"IDAT": zlib.compress(lines.tobytes(), 3),
        b"IEND": b"",
    }
    chunks = [
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in parts.items()
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)

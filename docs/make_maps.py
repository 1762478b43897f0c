"""Draw the pictures of docs/maps.md and the README: python docs/make_maps.py

The data are the demo's places (GeoNames), so that anyone may draw them again; noise makes each run a little different.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import veilmap as vm
from veilmap.demo import WORLD_DOMAIN, places
from veilmap.plot import rendered

IMAGES = Path(__file__).parent / "images"
TITLE = "Populated places of the world, under differential privacy"


def main() -> None:
    rows = places()
    world = vm.release(rows, WORLD_DOMAIN, epsilon=1)
    alps = vm.release(rows, vm.Domain({"lon": (4, 18), "lat": (43.5, 49)}), epsilon=1)
    heights = vm.release(np.abs(rows[:, 1:]), vm.Domain({"degrees from the equator": (0, 75)}), epsilon=0.1)
    three = np.column_stack([rows, np.abs(rows[:, 1])])
    box = vm.Domain({"lon": (-180, 180), "lat": (-60, 75), "degrees from the equator": (0, 75)})
    save("places", world, title=TITLE)
    save("maps/uncertainty", world, uncertainty=True)
    save("maps/cells", alps, cells=True, title="Places around the Alps")
    save("maps/dark", alps, theme="dark", title="Places around the Alps")
    save("maps/steps", heights)
    save("maps/pairs", vm.release(three, box, epsilon=1), size=(7, 7))


def save(name: str, release: vm.Release, **look: Any) -> None:
    """As a PNG of few colours: half as large, and as good to the eye."""
    picture = Image.open(io.BytesIO(rendered(release, "png", **{"dpi": 150, **look}))).convert("RGB")
    path = IMAGES / f"{name}.png"
    path.parent.mkdir(exist_ok=True)
    picture.quantize(255, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()

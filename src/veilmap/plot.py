"""Maps of releases."""

from __future__ import annotations

import io
import os

import numpy as np
from numpy.typing import NDArray

from veilmap.errors import BadInput, need
from veilmap.estimate import standard_errors
from veilmap.fileformat import put_in_place
from veilmap.kernels.painting import paint
from veilmap.published import Release

FINEST = 11  # a raster never has more than 2^11 pixels a side
SURE = 3.0  # standard errors above zero from which a cell is shown


def density_image(release: Release) -> NDArray[np.float64]:
    """Points per unit area, as finely as the noise allows; NaN where nothing can be told from empty.

    A node is shown when its estimate is well above its error and its parent is shown; a shown node
    without shown children keeps its own even density.
    """
    tree, domain = release.estimates.tree, release.domain
    pixels = 2 ** min(release.height, FINEST)
    sure = release.estimates.estimate > SURE * standard_errors(release.estimates, release.consistent)
    shown = sure.copy()
    shown[0] = True
    for level in range(1, tree.height + 1):
        nodes = tree.level(level)
        shown[nodes] &= shown[tree.parent[nodes]]
    lo, hi = tree.lo * pixels // domain.side, tree.hi * pixels // domain.side
    unit = np.prod((domain.hi - domain.lo) / domain.side)
    density = release.estimates.estimate / (np.prod((tree.hi - tree.lo).astype(np.float64), axis=1) * unit)
    image = np.full((pixels, pixels), density[0] if sure[0] else np.nan)
    paint(tree.first_child, lo, hi, shown, density, image)
    return image


def draw_map(release: Release, path: str | os.PathLike[str], title: str) -> None:
    """A density map of a release with two axes, as a PNG."""
    if release.domain.dimensions != 2:
        raise BadInput(f"A map needs a release with two axes, this one has {release.domain.dimensions}.")
    need("matplotlib", "plot", "Drawing a map")
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    x_axis, y_axis = release.domain.axes
    ratio = (y_axis.hi - y_axis.lo) / (x_axis.hi - x_axis.lo)
    image = density_image(release)
    finite = image[np.isfinite(image) & (image > 0)]
    low, high = np.quantile(finite, [0.02, 0.999]) if len(finite) else (1.0, 10.0)

    figure = Figure(figsize=(10, np.clip(8.2 * ratio, 2.5, 10) + 1), dpi=130, layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor("#efefea")
    drawn = axes.imshow(
        image,
        origin="lower",
        extent=(x_axis.lo, x_axis.hi, y_axis.lo, y_axis.hi),
        norm=LogNorm(low, max(high, low * 10)),
        cmap="viridis",
        interpolation="none",
    )
    axes.set(xlabel=x_axis.name, ylabel=y_axis.name, title=title)
    bar = figure.colorbar(drawn, ax=axes, fraction=0.046 * min(ratio, 1), pad=0.015, extend="both")
    bar.set_label(f"estimated points per square unit of {x_axis.name} × {y_axis.name}", fontsize=8)
    promise = f"ε = {float(release.privacy.epsilon):g} for one row" if release.privacy.private else "NOT PRIVATE"
    notes = f"{promise} · {release.method['name']}, height {release.height} · grey: cannot be told from empty"
    axes.annotate(notes, (1, -0.09), xycoords="axes fraction", ha="right", va="top", fontsize=8, color="#555555")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    put_in_place(path, buffer.getvalue())

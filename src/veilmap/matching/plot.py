"""A picture of the work saved by blocking: numbers of pairs as bars, and published boxes as a map."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.errors import need
from veilmap.files.atomic_writes import write_atomically

if TYPE_CHECKING:
    from veilmap.matching.local_match import Match


BLUE_COLOUR = "#0072B2"
ORANGE_COLOUR = "#D55E00"
PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
MAX_OUTLINED_BOXES = 150  # more outlines would hide the map
MAX_PIXELS_PER_AXIS = 256


def draw_match(found: Match, path: str | os.PathLike[str]) -> None:
    """Draw bars of all pairs, compared pairs and matches, and beside them a map of the left party's slots."""
    need("matplotlib", "plot", "Drawing a picture")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 3.6), dpi=160, layout="constrained")
    bars, boxes = figure.subplots(1, 2, width_ratios=(1, 1.25))
    _draw_bars(bars, found)
    _draw_boxes(boxes, found)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=Path(path).suffix.lower()[1:])
    write_atomically(path, buffer.getvalue(), mode=0o600)  # only the owner may read what both files contain


def _draw_bars(axes: Any, found: Match) -> None:
    counts = {
        "matches": found.matches,
        "compared records": found.compared,
        "compared, with dummies": found.work,
        "all pairs": found.every,
    }
    colours = [ORANGE_COLOUR, BLUE_COLOUR, "#56B4E9", "#999999"]
    drawn = axes.barh(list(counts), [max(n, 0.5) for n in counts.values()], color=colours)
    axes.bar_label(drawn, [f"{n:,}" for n in counts.values()], padding=3, fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(0.5, max(found.every, found.work, 10) * 40)
    axes.set_xlabel("pairs of records (log scale)")
    axes.set_title(f"reduction ratio {found.reduction_ratio:.3f}, recall {found.recall:.3f}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_boxes(axes: Any, found: Match) -> None:
    """Draw the left party's slots, spread evenly over their boxes, and the boxes of both parties if they are few."""
    rule, blocks = found.rule, found.left.blocks
    steps = np.array([float(step) for step in rule.steps[:2]])
    edges = [(rule.first[a] - 0.5 + np.arange(len(rule.cells[a]) + 1)) * steps[a] for a in range(len(steps))]
    low, high = blocks.lo[:, :2], blocks.hi[:, :2] + 1
    axes.set(xlabel=rule.domain.names[0], ylabel=rule.domain.names[1] if len(steps) == 2 else "slots per step")
    if len(steps) == 1:
        order = np.argsort(low[:, 0])
        ends = np.append(edges[0][low[order, 0]], edges[0][-1])
        axes.stairs(blocks.slots[order] / (high - low)[order, 0], ends, color=BLUE_COLOUR, fill=True, baseline=1e-9)
        axes.set_title("slots that the left party publishes", fontsize=10)
        axes.set(yscale="log", ylim=(max(1e-3, 0.5 / len(edges[0])), None))
        return
    image, x, y = _spread(low, high, blocks.slots, edges)
    axes.pcolormesh(x, y, image.T, cmap="Blues", rasterized=True)
    axes.set_title("slots that the left party publishes", fontsize=10)
    if max(len(side.blocks.slots) for side in (found.left, found.right)) <= MAX_OUTLINED_BOXES:
        _outline_boxes(axes, found, edges)


def _outline_boxes(axes: Any, found: Match, edges: list[Floats]) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    for side, colour, style in ((found.left, BLUE_COLOUR, "-"), (found.right, ORANGE_COLOUR, ":")):
        corners = zip(side.blocks.lo[:, :2].tolist(), (side.blocks.hi[:, :2] + 1).tolist(), strict=True)
        patches = [
            Rectangle((edges[0][a], edges[1][b]), edges[0][c] - edges[0][a], edges[1][d] - edges[1][b])
            for (a, b), (c, d) in corners
        ]
        axes.add_collection(
            PatchCollection(patches, facecolor="none", edgecolor=colour, linestyle=style, linewidth=0.8)
        )
    lines = [Line2D([], [], color=BLUE_COLOUR), Line2D([], [], color=ORANGE_COLOUR, linestyle=":")]
    axes.legend(lines, ["boxes left", "right"], fontsize=8, loc="upper right")


def _spread(low: Ints, high: Ints, slots: Ints, edges: list[Floats]) -> tuple[Floats, Floats, Floats]:
    """Return the slots per pixel of an image, each box's slots spread evenly over it, and the image's edges."""
    coarse = [max(1, -(-(len(e) - 1) // MAX_PIXELS_PER_AXIS)) for e in edges]
    ends = [np.append(e[:-1][::c], e[-1]) for e, c in zip(edges, coarse, strict=True)]
    image = np.zeros([len(e) - 1 for e in ends])
    for (a, b), (c, d), n in zip((low // coarse).tolist(), (-(-high // coarse)).tolist(), slots.tolist(), strict=True):
        image[a:c, b:d] += n / ((c - a) * (d - b))
    return image, ends[0], ends[1]
